"""The linear part of the stacked learner: what clicks say, by one weight for each feature.

    c ~ Bin(n, alpha_k sigmoid(eta_i) + beta_k),   eta_i = base + w'z(x_i) + u_q + u_i,

with w ~ N(0, 1/penalty). z are the features between their 1% and 99% points, standardised over the
shown documents; a missing one is 0. The penalty is the one that makes clicks of queries likely that
w has not seen. With few queries a line says more than trees: with 50 to 70 of them (OHSUMED, MSLR;
10 and 100 sessions each) NDCG@10 of the whole learner was .387 with it and .368 without, the mean
of eight logs.

w'z is a sum over features, so that a tree for each of them says the same in steps: the learner
stays one booster.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.threads import side_by_side
from untilt.objectives.hierarchical import ClickCells, Hierarchy, HierarchyFit, fit_hierarchy
from untilt.rankers.trees.crossfit import FoldTraining
from untilt.rankers.trees.merging import step_tree
from untilt.rankers.stacked.parts import Rows
from untilt.rankers.trees.stacking import slopes

PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
_EDGES = (1.0, 99.0)  # percent
_FARTHEST = 4.0  # standard deviations
_ROUNDS = 12
_STEPS = 127  # of the tree that says what a feature adds


@dataclass(frozen=True, eq=False)
class Scale:
    """z(x) of the features."""

    low: FloatArray
    high: FloatArray
    mean: FloatArray
    per_spread: FloatArray

    @classmethod
    def of(cls, features: FeatureArray) -> "Scale":
        """By these rows; a feature that is constant or never known counts as 0."""
        known = np.where(np.isnan(features).all(axis=0), 0.0, features)
        low, high = np.nanpercentile(known, _EDGES, axis=0)
        cut = np.clip(known, low, high)
        spread = np.nanstd(cut, axis=0)
        per_spread = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9)
        return cls(low, high, np.nanmean(cut, axis=0), per_spread)

    def __call__(self, features: FeatureArray) -> FloatArray:
        """(rows, d)."""
        z = (np.clip(features, self.low, self.high) - self.mean) * self.per_spread
        return np.clip(np.nan_to_num(z, copy=False), -_FARTHEST, _FARTHEST)


@dataclass(frozen=True, eq=False)
class Lines:
    """w and what it says.

    Parameters
    ----------
    weights, scale : (d,) the mean over the folds; z
    terms : (rows, d) w_j z_j, whose sum over features is the score
    scores : (rows,) by the weights that have not seen the row's query
    """

    weights: FloatArray
    scale: Scale
    terms: FloatArray
    scores: FloatArray
    penalty: float

    def trees(self, weight: float, features: FeatureArray) -> list[str]:
        """What `merged` takes: a tree for each feature that counts, times the weight."""
        counts = np.flatnonzero(np.ptp(self.terms, axis=0) > 0).tolist()
        return [step_tree(j, features[:, j], weight * self.terms[:, j], _STEPS) for j in counts]


def line_part(cells: ClickCells, rows: Rows, folds: FoldTraining, model: Hierarchy) -> Lines:
    """w, cross-fitted; `model` gives the variances of the effects."""
    n = rows.n_shown
    scale = Scale.of(rows.features[:n])
    z = scale(rows.features)
    query_fold = np.zeros(rows.n_queries, dtype=np.int64)
    query_fold[rows.query] = folds.fold

    def path(k: int) -> list[FloatArray]:
        own, document = cells.take_queries(query_fold != k)
        return _path(own, z[:n][document], (model.v, model.s2))

    paths = side_by_side(path, range(folds.n_folds), n_threads=folds.options.n_threads)

    def held_out(at: int) -> tuple[FloatArray, HierarchyFit]:
        own = np.empty(len(z))
        for k, weights in enumerate(paths):
            asked = folds.fold == k
            own[asked] = z[asked] @ weights[at]
        return own, slopes(cells, [own[:n]])

    tried = side_by_side(held_out, range(len(PENALTIES)), n_threads=folds.options.n_threads)
    at = max(range(len(PENALTIES)), key=lambda at: tried[at][1].log_likelihood)
    weights = np.mean([each[at] for each in paths], axis=0)
    return Lines(weights, scale, z * weights, tried[at][0], PENALTIES[at])


def _path(cells: ClickCells, z: FloatArray, variances: tuple[float, float]) -> list[FloatArray]:
    """w of each penalty, the strongest first: each begins where the last one ended."""
    X, found = np.column_stack([np.ones(len(z)), z]), []
    fit: HierarchyFit | None = None
    for penalty in PENALTIES:
        precision = np.full(X.shape[1], penalty)
        precision[0] = 0.0
        fit = fit_hierarchy(
            cells, X, start=fit, variances=variances, prior_precision=precision.tolist(),
            rounds=_ROUNDS,
        )  # fmt: skip
        found.append(fit.weights[1:])
    return found
