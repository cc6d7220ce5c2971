r"""Curves from documents that are alike in what features say: about relevance, and about position.

A learned relevance is never exact, and whoever ordered the lists used the same features. Where the
model smooths, the position still tells which of two documents is the better one, and the rest of
relevance is taken for examination. So the learned relevance only sorts, and so does the position
that the features predict: within a stratum, documents alike in both, where a document stood is left
to its competitors (position is the treatment, its prediction the propensity of [rosenbaum1983]_).
The relevance of each stratum is estimated anew, as if it were one document.

Right if either sorts well. Figures in docs/estimators/regression-em.md and trust-em.md. Strata by
learned relevance alone, 20 or 60, were no better than that relevance itself.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, handed_over
from untilt.bias.em.boosted import TreeOptions, fold_of_documents, tree_params
from untilt.bias.em.documents import class_em, position_based_em
from untilt.bias.em.lines import EDGE_CURVE_ERRORS as EDGE
from untilt.bias.em.lines import Lines, information, inverse_information, is_estimated
from untilt.bias.harvesting.pairs import Doubt, larger
from untilt.bias.position_graph import position_graph
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError

# Where features say that a document stands: the mean position of others like it.

# Production rankers are often linear, which trees imitate badly, and often trees: so both, the
# second on what the first leaves. Correlation with the positions of a linear ranker: trees alone
# 0.56, a straight line 0.63; with those of a ranker of trees: 0.61 and 0.49.
N_TREES = 50
# Of the squares of a standardised feature: features that repeat each other do no harm.
RIDGE = 1e-6


def predicted_position(
    cells: PositionCounts, features: FeatureArray, fold: IntArray, options: TreeOptions
) -> FloatArray:
    """(documents,) predicted mean position, by models that have not seen the document's fold."""
    mean = cells.mean_position
    straight = _by_least_squares(features, mean, fold)
    rest = mean - straight
    trees = _by_trees(features, rest, fold, options)
    # Where there is nothing left to learn, trees are noise: as much of them as held-out folds like.
    share = np.dot(trees, rest) / max(float(np.dot(trees, trees)), 1e-300)
    return straight + np.clip(share, 0, 1) * trees


def _by_least_squares(features: FeatureArray, target: FloatArray, fold: IntArray) -> FloatArray:
    """Each fold by the squares of the others: those of all less its own."""
    X = _standardised(features)
    own = [X[fold == f] for f in range(int(fold.max()) + 1)]
    squares = np.array([rows.T @ rows for rows in own])
    products = np.array([rows.T @ target[fold == f] for f, rows in enumerate(own)])
    ridge = RIDGE * len(X) * np.eye(X.shape[1])
    found = np.empty(len(X))
    for f, rows in enumerate(own):
        A, b = squares.sum(axis=0) - squares[f] + ridge, products.sum(axis=0) - products[f]
        found[fold == f] = rows @ np.linalg.solve(A, b)
    return found


def _standardised(features: FeatureArray) -> FloatArray:
    """Mean 0 and spread 1, a first column of ones; what is missing counts as the mean."""
    X = np.array(features, dtype=np.float64)
    known = np.isfinite(X)
    X[~known] = 0.0
    n = np.maximum(known.sum(axis=0), 1)
    X -= X.sum(axis=0) / n
    X[~known] = 0.0
    X /= np.maximum(np.sqrt(np.sum(X**2, axis=0) / n), 1e-12)
    return np.hstack([np.ones((len(X), 1)), X])


def _by_trees(
    features: FeatureArray, target: FloatArray, fold: IntArray, options: TreeOptions
) -> FloatArray:
    import lightgbm

    params: dict[str, Any] = {**tree_params(options), "objective": "regression"}
    binned = lightgbm.Dataset(features, label=target, params=params, free_raw_data=False)
    binned.construct()
    found = np.empty(len(target))
    for f in range(int(fold.max()) + 1):
        others = binned.subset(np.flatnonzero(fold != f))
        booster = lightgbm.train(params, others, num_boost_round=N_TREES)
        found[fold == f] = booster.predict(features[fold == f])
    return found


# Classes of learned relevance. There are six times as many of predicted position, the one that
# confounds: with 500 queries 5 x 20 strata left 3% of error in theta_10 where 10 x 10 left 4.4%.
CLASSES = (2, 10)
POSITION_CLASSES = 6
# What is lost by so much coarser strata is an honest guess of what even finer ones would bring, and
# is part of the errors: without it 95% intervals of trust bias covered in 88% to 96% of 200 logs.
COARSE_POSITION_CLASSES = 4
# Trust bias has more to fit: with strata of 17 documents it fitted the noise (beta an eighth too
# low), with 50 not. Without it larger strata only leave more error.
DOCUMENTS_PER_STRATUM = {False: 15, True: 50}


class Learned(Protocol):
    """Relevance learned from features, with curves of its own; see `BoostedFit`."""

    @property
    def lines(self) -> Lines:
        """The curves, and gamma of each document."""

    @property
    def history(self) -> FloatArray:
        """Log-likelihood of held-out clicks by step."""

    @property
    def status(self) -> str:
        """How it ended."""


@dataclass(frozen=True, eq=False)
class StratifiedFit:
    """Curves from strata, and the learned relevance that sorted them.

    Parameters
    ----------
    lines : the curves; gamma of a document is that of its stratum
    coarse : the same from coarser strata
    number : (documents,) stratum of each
    learned : what the model of relevance says of each document, with curves of its own
    history, status : of the model
    """

    lines: Lines
    coarse: Lines
    number: IntArray
    learned: Lines
    history: FloatArray
    status: str


def stratified(
    cells: PositionCounts,
    features: FeatureArray,
    fit: Learned,
    *,
    trust: bool,
    options: TreeOptions,
) -> StratifiedFit:
    """The curves of a learned relevance, by strata. `features` has a row per document."""
    position = predicted_position(cells, features, fold_of_documents(cells, options), options)
    number, coarser = (
        strata_of(fit.lines.gamma, position, trust=trust, position_classes=classes)
        for classes in (POSITION_CLASSES, COARSE_POSITION_CLASSES)
    )
    return StratifiedFit(
        lines=lines_of_strata(cells, number, trust=trust),
        coarse=lines_of_strata(cells, coarser, trust=trust),
        number=number,
        learned=fit.lines,
        history=fit.history,
        status=f"{fit.status}; {int(number.max()) + 1} strata",
    )


def strata_of(
    relevance: FloatArray,
    position: FloatArray,
    *,
    trust: bool,
    position_classes: int = POSITION_CLASSES,
) -> IntArray:
    """(documents,) stratum of each, numbered from 0: classes of both scores, crossed."""
    wanted = len(relevance) / DOCUMENTS_PER_STRATUM[trust]
    n_relevance = int(np.clip(np.sqrt(wanted / POSITION_CLASSES), *CLASSES))
    n_position = position_classes * n_relevance
    pairs = _class_of(relevance, n_relevance) * n_position + _class_of(position, n_position)
    return np.unique(pairs, return_inverse=True)[1]


def lines_of_strata(cells: PositionCounts, number: IntArray, *, trust: bool) -> Lines:
    """The curves of maximum likelihood where each stratum has one relevance."""
    together = cells.grouped(number)
    _require_mixed(together)
    if trust:
        plus, minus, gamma = class_em(together)
        return Lines(plus - minus, minus, handed_over(gamma[number]))
    theta, gamma = position_based_em(together, tolerance=1e-6, max_steps=20_000).state
    return Lines(theta, np.zeros(cells.depth), handed_over(gamma[number]))


def _class_of(score: FloatArray, n_classes: int) -> IntArray:
    """(documents,) 0..n_classes - 1 by size, equally many each but for ties."""
    limits = np.quantile(score, np.arange(1, n_classes) / n_classes)
    return np.searchsorted(limits, score)


def _require_mixed(together: PositionCounts) -> None:
    """Raise where features tell the position so well that no two alike stood at both."""
    first = position_graph(together).components[0]
    lost = [k for k in range(1, together.depth + 1) if k not in first]
    if lost:
        raise IdentifiabilityError(
            f"position {lost[0]} cannot be compared with position 1: documents with like features "
            "never stood at both, so the features tell the position itself. Leave out features "
            "that are made from it (an old rank, the production score), or swap positions 1 and "
            f"{lost[0]} in a share of the sessions and use relevance='counts'."
        )


# How sure curves from strata are, the relevance of every stratum being unknown too.
#
# As in `curve_errors`, with a stratum in the place of a document: its relevance takes
#
#     h / sum w alpha^2,   h = sum over its cells w alpha x,   x = (gamma, 1)
#
# out of the score of each of its cells, s (x - alpha h / sum w alpha^2). Strata reach over queries,
# so the scores are summed by query, not by stratum. What strata are too coarse to undo is no noise:
# `widened` adds what coarser ones change. 200 simulated logs say whether that is enough
# (docs/estimators/regression-em.md and trust-em.md).


def doubt_of_strata(
    cells: PositionCounts, fit: StratifiedFit, free: BoolArray, jacobian: FloatArray
) -> Doubt:
    """(m, m) covariance of m numbers that follow from the curves; see `doubt_of_lines`."""
    gamma = np.empty(int(fit.number.max()) + 1)
    gamma[fit.number] = fit.lines.gamma
    together, lines = cells.grouped(fit.number), Lines(fit.lines.alpha, fit.lines.beta, gamma)
    J, _ = information(together, lines, np.zeros(len(gamma), dtype=np.int64))
    inverse = inverse_information(J[np.ix_(free, free)])
    to_numbers = np.zeros(jacobian.T.shape)
    to_numbers[free] = inverse @ jacobian[:, free].T
    query = np.unique(cells.query, return_inverse=True)[1]
    influence = _sum_influence(
        cells.indptr,
        cells.position,
        cells.impressions,
        cells.clicks,
        fit.number,
        query,
        lines.alpha,
        lines.beta,
        gamma,
        _influence_of_a_click(together, lines, to_numbers),
        int(query.max()) + 1,
    )
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return larger(influence.T @ influence, len(influence), by_session)


def widened(doubt: Doubt, change: FloatArray) -> Doubt:
    """With the change that coarser strata make to the numbers, as an error of its own."""
    change = np.where(np.isfinite(change), change, 0.0)
    return Doubt(
        doubt.covariance + np.outer(change, change), f"{doubt.rule}, and what coarser strata change"
    )


def _influence_of_a_click(
    together: PositionCounts, lines: Lines, to_numbers: FloatArray
) -> FloatArray:
    """(strata, K, m) what a unit of score of a stratum at k adds to the numbers."""
    depth, alpha, gamma = together.depth, lines.alpha, lines.gamma
    owner, k = together.document_index, together.position_index
    p = np.clip(alpha[k] * gamma[owner] + lines.beta[k], EDGE, 1 - EDGE)
    w = together.impressions / (p * (1 - p))
    taken = np.zeros((len(gamma), 2 * depth))
    taken[owner, k], taken[owner, depth + k] = w * alpha[k] * gamma[owner], w * alpha[k]
    own = np.bincount(owner, w * alpha[k] ** 2, len(gamma))
    taken *= (is_estimated(gamma) / np.maximum(own, 1e-300))[:, None]
    by_alpha, by_beta = to_numbers[:depth], to_numbers[depth:]
    direct = gamma[:, None, None] * by_alpha + by_beta
    return direct - alpha[:, None] * (taken @ to_numbers)[:, None, :]


@nb.njit(cache=True)
def _sum_influence(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    number: IntArray,
    query: IntArray,
    alpha: FloatArray,
    beta: FloatArray,
    gamma: FloatArray,
    table: FloatArray,
    n_queries: int,
) -> FloatArray:
    """(queries, m) sum of each query's scores, in terms of the numbers."""
    influence = np.zeros((n_queries, table.shape[2]))
    for d in range(len(number)):
        stratum, q = number[d], query[d]
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * gamma[stratum] + beta[k], EDGE), 1 - EDGE)
            s = (c - n * p) / (p * (1 - p))
            for m in range(table.shape[2]):
                influence[q, m] += s * table[stratum, k, m]
    return influence
