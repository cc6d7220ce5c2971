r"""What the features say about the position: the score by which the lists were ordered.

A document stands where its score r(x) puts it among its competitors. Given the score, the place is
left to the competitors, so documents alike in r(x) are comparable whatever their relevance. But the
score must be known well. It is learned from the order of the documents of one query, pair by pair:

    minimise  sum over pairs, i above j,  log(1 + exp(s(x_i) - s(x_j)))

where s, the predicted position, is a straight line and trees. Each order is known for certain,
whereas a position regressed on the features has the competitors as its noise. With 500 queries the
rank correlation with the true score rose from 0.996 to 0.9999, of a ranker with products of
features from 0.986 to 0.997; the error of theta_10 fell from -6% to -2%, and from -19% to -6%.
"""

from typing import Any

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray
from untilt.bias.em.boosted import TreeOptions, tree_params
from untilt.data.counts import PositionCounts

# Production rankers are often linear, which trees imitate badly, and often trees: so both, the
# second from where the first ends.
N_TREES = 100
# Of a weight of the straight line, per document: where the order follows
# the line exactly its scale stays finite.
RIDGE = 1e-3
LINE_STEPS = 50
# Of the largest variance; directions with less are features that repeat each other.
LEAST_VARIANCE = 1e-9
# A document is compared with at most twice so many others of its query.
MOST_COMPETITORS = 25
# Least curvature of a leaf, in pairs; trees beyond that would follow single pairs.
LEAST_CURVATURE = 1.0


def predicted_position(
    cells: PositionCounts, features: FeatureArray, fold: IntArray, options: TreeOptions
) -> FloatArray:
    """(documents,) a score that rises with the position, by models blind to their own fold."""
    pairs = _Pairs(cells.query, cells.mean_position)
    X = _standardised(features)
    straight, both = np.empty(len(X)), np.empty(len(X))
    for f in range(int(fold.max()) + 1):
        own = fold == f
        seen = pairs.of(~own)
        line = _straight_line(X[~own], seen)
        straight[own] = X[own] @ line
        trees = _trees(features[~own], X[~own] @ line, seen, options)
        both[own] = straight[own] + trees.predict(features[own])
    # Where nothing is left to learn, trees are noise: as much of them as held-out pairs support.
    shares = np.linspace(0, 1, 11)
    losses = [pairs.loss(straight + share * (both - straight)) for share in shares]
    return straight + shares[int(np.argmin(losses))] * (both - straight)


class _Pairs:
    """Documents, sorted by query, and their positions: what is above what."""

    def __init__(self, query: IntArray, position: FloatArray) -> None:
        self.query, self.position = query, position
        changes = np.flatnonzero(np.diff(query)) + 1
        self.indptr = np.concatenate([[0], changes, [len(query)]])

    def of(self, keep: BoolArray) -> "_Pairs":
        return _Pairs(self.query[keep], self.position[keep])

    def gradient(self, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of the loss by each score, and its curvature."""
        gradient, curvature, _ = _sum_pairs(self.indptr, self.position, score)
        return gradient, curvature

    def loss(self, score: FloatArray) -> float:
        return float(_sum_pairs(self.indptr, self.position, score)[2])


def _straight_line(X: FloatArray, pairs: _Pairs) -> FloatArray:
    """(features,) weights of least loss, with a ridge; features are made uncorrelated first."""
    from scipy.optimize import minimize

    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    used = values > LEAST_VARIANCE * values[-1]
    whiten = vectors[:, used] / np.sqrt(values[used])
    Z, ridge = X @ whiten, RIDGE * len(X)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        gradient, _, value = _sum_pairs(pairs.indptr, pairs.position, Z @ w)
        return value + ridge / 2 * float(w @ w), Z.T @ gradient + ridge * w

    start = np.zeros(Z.shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": LINE_STEPS})
    return np.asarray(whiten @ found.x)


def _trees(features: FeatureArray, start: FloatArray, pairs: _Pairs, options: TreeOptions) -> Any:
    """Trees from where the straight line ended."""
    import lightgbm

    params = {
        **tree_params(options, features.size),
        "min_sum_hessian_in_leaf": LEAST_CURVATURE,
        "lambda_l2": 1.0,
    }
    data = lightgbm.Dataset(features, label=pairs.position, init_score=start, params=params)
    objective = {"objective": lambda score, _: pairs.gradient(score)}
    return lightgbm.train({**params, **objective}, data, num_boost_round=N_TREES)


def _standardised(features: FeatureArray) -> FloatArray:
    """Mean 0 and spread 1; what is missing counts as the mean."""
    X = np.array(features, dtype=np.float64)
    known = np.isfinite(X)
    X[~known] = 0.0
    n = np.maximum(known.sum(axis=0), 1)
    X -= X.sum(axis=0) / n
    X[~known] = 0.0
    return X / np.maximum(np.sqrt(np.sum(X**2, axis=0) / n), 1e-12)


@nb.njit(cache=True)
def _sum_pairs(
    indptr: IntArray, position: FloatArray, score: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Gradient and curvature by each score, and the loss, of all pairs of a query."""
    gradient, curvature, loss = np.zeros(len(score)), np.zeros(len(score)), 0.0
    for q in range(len(indptr) - 1):
        begin, n = indptr[q], indptr[q + 1] - indptr[q]
        # Each pair once: with the next half of the circle of documents, or with so many of them.
        reach = min(n // 2, MOST_COMPETITORS)
        for first in range(n):
            for distance in range(1, reach + 1):
                if 2 * distance == n and 2 * first >= n:
                    continue
                i, j = begin + first, begin + (first + distance) % n
                if position[i] == position[j]:
                    continue
                if position[i] > position[j]:
                    i, j = j, i
                lead = score[j] - score[i]
                p = 1 / (1 + np.exp(lead))
                loss += max(-lead, 0.0) + np.log1p(np.exp(-abs(lead)))
                gradient[i] += p
                gradient[j] -= p
                curvature[i] += p * (1 - p)
                curvature[j] += p * (1 - p)
    return gradient, curvature, loss
