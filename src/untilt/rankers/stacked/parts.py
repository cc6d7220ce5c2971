"""The parts of the stacked learner: what clicks say, what the old ranker says, what was shown.

Rows are the documents that were shown and, where lists are cut above the candidates, a sample of
those that never were. Each part is boosted trees, cross-fitted by query (`crossfit`):

- f(x): the hierarchical position-based likelihood of the clicks (`objectives.hierarchical`);
- pi(x): the old ranker, imitated. L_i is the mean over sessions of log(rank), where a session that
  did not show i counts the mean log rank of the places below its end; trees on -L;
- rho(x) = P(shown | x), where some documents never were.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from untilt._core.arrays import FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.random import child_generator
from untilt._core.threads import side_by_side
from untilt.bias.experiments.assignment import baseline_lists
from untilt.data.clicklog import ClickLog
from untilt.objectives.hierarchical import (
    ClickCells,
    Effects,
    Hierarchy,
    HierarchyFit,
    evenly,
    fit_hierarchy,
    next_variances,
)
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.trees.boosting import step_tree
from untilt.rankers.trees.crossfit import CrossFitted, FoldTraining
from untilt.rankers.trees.objectives import LikeAFunction

# How much each part is worth: weights by the likelihood of clicks that the trees have not seen.
#
#     eta = base + u_q + b pi + k f + kappa k (1 - rho) f + u_i,     b, k >= 0,
#
# fitted to the clicks with cross-fitted pi, f and rho. pi has standard deviation 1, and b the prior
# N(0.15 r, 0.04^2), r the correlation of pi with what it imitates: the old ranker knew something
# that few clicks cannot tell, and many can. k is shrunk (Stein), and so is b0, the slope of pi
# alone. kappa has the prior N(-1, 0.3^2) and is kept in [-1, 0]: off the support f is not believed
# unless the log says so. The score is
#
#     A = b pi + k m f + max(b0 - b, 0) (1 - m) pi,       m = clip(1 + kappa (1 - rho), 0, 1):
#
# what the clicks say where documents like this were shown, what the old ranker said where not. With
# nothing unshown rho = 1, and A = b pi + k f.

# With b shrunk to 0 as k is, NDCG@10 was .0032 +- .0015 less in the mean of 90 logs of 50 to 600
# queries (OHSUMED, MSLR, MQ2008), .013 less on whole lists of MSLR, .004 more on those of OHSUMED.
OLD, OLD_ERROR = 0.15, 0.04
KAPPA, KAPPA_ERROR = -1.0, 0.3


@dataclass(frozen=True)
class Stack:
    """The weights of the parts; see the module."""

    base: float
    b: float
    k: float
    b0: float
    kappa: float

    def believed(self, rho: FloatArray) -> FloatArray:
        """m: how far f is believed."""
        return np.clip(1 + self.kappa * (1 - rho), 0.0, 1.0)

    def score(self, pi: FloatArray, f: FloatArray, rho: FloatArray) -> FloatArray:
        """A."""
        m = self.believed(rho)
        return self.b * pi + self.k * m * f + max(self.b0 - self.b, 0.0) * (1 - m) * pi


def stack(
    cells: ClickCells,
    model: Hierarchy,
    pi: FloatArray,
    f: FloatArray,
    rho: FloatArray | None,
    imitation_correlation: float,
) -> Stack:
    """The weights, by the clicks of the shown documents; `rho` None where nothing is unshown.

    pi, f and rho are cross-fitted, pi has standard deviation 1; `imitation_correlation` is r.
    """
    one = np.ones(len(pi))
    variances = (model.v, model.s2)
    old = slopes(cells, [pi], variances)
    b0 = shrunk(old, 1)
    both = fit_hierarchy(
        cells,
        np.column_stack([one, pi, f]),
        variances=variances,
        low=(-np.inf, 0.0, 0.0),
        prior_mean=(0.0, OLD * imitation_correlation, 0.0),
        prior_precision=(0.0, 1 / OLD_ERROR**2, 0.0),
    )
    b, k, base = float(both.weights[1]), shrunk(both, 2), float(both.weights[0])
    if rho is None:
        return Stack(base, b, k, b0, 0.0)
    if k == 0:
        return Stack(base, b, k, b0, KAPPA)
    gate = fit_hierarchy(
        cells,
        np.column_stack([one, b * pi + k * f, k * (1 - rho) * f]),
        variances=variances,
        prior_mean=(0.0, 1.0, KAPPA),
        prior_precision=(0.0, 1e6, 1 / KAPPA_ERROR**2),
    )
    return Stack(base, b, k, b0, float(np.clip(gate.weights[2], -1.0, 0.0)))


def slopes(
    cells: ClickCells, columns: list[FloatArray], variances: tuple[float, float] | None = None
) -> HierarchyFit:
    """A constant and one slope >= 0 for each column."""
    X = np.column_stack([np.ones(cells.n_documents), *columns])
    low = (-np.inf, *([0.0] * len(columns)))
    return fit_hierarchy(cells, X, variances=variances, low=low)


def shrunk(fit: HierarchyFit, at: int) -> float:
    """w max(0, 1 - var/w^2): a slope that could be noise is 0."""
    w, variance = float(fit.weights[at]), float(fit.covariance[at, at])
    return w * max(0.0, 1 - variance / w**2) if w > 0 else 0.0


# Unshown candidates sampled for each query; those stand for all of them.
MOST_UNSHOWN = 40
# The shape of each part's trees, over the parameters of the ranker. Three shapes learn from clicks:
# the ranker's own, the same with random thresholds, and fewer splits with more documents behind
# them, which say more where clicks are few. The old ranker and the support are smooth, and what is
# exact is a target with hardly any noise: larger steps find them in fewer trees.
OF_CLICKS: dict[str, dict[str, Any]] = {
    "fine": {},
    "random": {"extra_trees": True},
    "small": {"num_leaves": 8, "min_data_in_leaf": 40},
}
SMOOTH: dict[str, Any] = {"learning_rate": 0.15, "num_leaves": 8, "min_data_in_leaf": 40}
EXACT: dict[str, Any] = {
    "learning_rate": 0.15, "num_leaves": 31, "min_data_in_leaf": 10, "bagging_fraction": 1.0,
    "bagging_freq": 0, "feature_fraction": 1.0,
}  # fmt: skip
SMOOTH_TREES, EXACT_TREES = 80, 50
SMOOTH_QUERIES = 4000  # more say nothing more of what is smooth
PART_TREES = 300  # the most of the likelihood, where no number is given
# The mean over folds and shapes takes steps of twice the ranker's learning rate: half the trees,
# and NDCG@10 better by .003 to .007 in three cells of simulated clicks. Still longer steps of small
# trees took a tenth less time, but .006 on MQ2008 with 10 sessions, where few trees are best.
RATE = 2.0
# With these steps held-out clicks have a single peak: on 8 logs of bench_quality.py (MSLR, MQ2008,
# OHSUMED, synthetic) all 16 numbers of trees were those of 50 trees or 30%, in a tenth to a quarter
# fewer trees.
PATIENCE = (30, 0.2)


@dataclass(frozen=True, eq=False)
class PartRows:
    """Documents to learn from: the shown ones first, numbered as in the training lists.

    Parameters
    ----------
    document : (rows,) index into the log's documents
    query : (rows,) 0..queries - 1
    weight : (rows,) how many documents the row stands for: 1, or more where candidates are sampled
    n_shown : the first so many rows were shown
    n_unshown : candidates of the log that never were, sampled or not
    """

    document: IntArray
    features: FeatureArray
    query: IntArray
    weight: FloatArray
    n_shown: int
    n_unshown: int

    @property
    def n_queries(self) -> int:
        """Queries with a document that was shown."""
        return int(self.query.max()) + 1

    @property
    def shown(self) -> IntArray:
        """The rows that were shown."""
        return np.arange(self.n_shown)

    def of_some_queries(self, most: int) -> IntArray | None:
        """Rows of so many queries, evenly over all of them; None where there are no more."""
        if self.n_queries <= most:
            return None
        return np.flatnonzero(evenly(self.n_queries, most)[self.query])

    @property
    def is_shown(self) -> FloatArray:
        """(rows,) 1 for shown documents, 0 for candidates that never were."""
        return (np.arange(len(self.query)) < self.n_shown).astype(float)


def rows_of(log: ClickLog, lists: TrainingLists, seed: int) -> PartRows:
    """Shown documents and sampled candidates of the queries that have any.

    The sample does not depend on the order of the documents table: candidates stand in the order of
    a projection of their features, and every so many of them is taken.
    """
    assert log.features is not None
    is_shown = np.bincount(log.document, minlength=log.n_documents) > 0
    shown = np.flatnonzero(is_shown)
    queries, query = np.unique(lists.doc_query, return_inverse=True)
    number = np.full(log.n_queries, -1, dtype=np.int64)
    number[queries] = np.arange(len(queries))
    unshown = np.flatnonzero(~is_shown & (number[log.doc_query] >= 0))
    drawn, weight = _sampled(log, unshown, number, seed)
    document = np.concatenate([shown, drawn])
    return PartRows(
        document=document,
        features=np.concatenate([lists.features, log.features[drawn]]),
        query=np.concatenate([query, number[log.doc_query[drawn]]]),
        weight=np.concatenate([np.ones(len(shown)), weight]),
        n_shown=len(shown),
        n_unshown=len(unshown),
    )


def _sampled(
    log: ClickLog, unshown: IntArray, number: IntArray, seed: int
) -> tuple[IntArray, FloatArray]:
    assert log.features is not None
    if not len(unshown):
        return unshown, np.zeros(0)
    generator = child_generator(seed, 23)
    direction = generator.standard_normal(log.features.shape[1])
    projection = np.nan_to_num(log.features[unshown]) @ direction
    query = number[log.doc_query[unshown]]
    order = np.lexsort((projection, query))
    n = np.bincount(query, minlength=int(number.max()) + 1)
    begin = np.cumsum(n) - n
    rank = np.arange(len(order)) - np.repeat(begin, n)
    every = np.maximum(1.0, n / MOST_UNSHOWN)
    start = generator.random(len(n))
    step = np.repeat(every, n)
    phase = rank + np.repeat(start, n)
    kept = (np.floor(phase / step) != np.floor((phase - 1) / step)) | (step == 1)
    chosen = order[kept]
    taken = np.bincount(query[chosen], minlength=len(n))
    return unshown[chosen], (n / np.maximum(taken, 1))[query[chosen]]


class HierarchicalObjective(LikeAFunction):
    """The marginal likelihood of clicks: one Newton step of the effects in each round."""

    def __init__(self, model: Hierarchy, base: float) -> None:
        self.model, self.base = model, base
        start = model.modes(np.full(model.cells.n_documents, base))
        self._u, self._u_q = start.document, start.query

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """-u / v and H / (1 + v H), one entry per document."""
        H = self.model.newton_step(scores + self.base, self._u, self._u_q)
        return -self._u / self.model.v, self.model.curvature(H)


class _PartLikelihood:
    """The pooled likelihood of the folds' held-out clicks; it keeps v and s2 up to date."""

    def __init__(self, cells: ClickCells, rows: PartRows) -> None:
        null = fit_hierarchy(cells, np.ones((rows.n_shown, 1)))
        self.base, self.model = float(null.weights[0]), null.model
        self.null = float(null.log_likelihood)
        self.objectives: list[HierarchicalObjective] = []
        self._effects: Effects = null.effects
        self._n = rows.n_shown

    def value(self, scores: FloatArray) -> float:
        offset = scores[: self._n] + self.base
        self._effects = self.model.modes(offset, self._effects, steps=6, tolerance=1e-3)
        total = float(self._effects.log_likelihood.sum()) - self.null
        self.model = next_variances(self.model, self._effects)
        for objective in self.objectives:
            objective.model = Hierarchy(objective.model.cells, self.model.v, self.model.s2)
        return total


@dataclass(frozen=True, eq=False)
class Likelihood:
    """f, with the constant and the variances of its model."""

    trees: CrossFitted
    base: float
    model: Hierarchy


def click_part(
    cells: ClickCells,
    rows: PartRows,
    training: FoldTraining,
    sessions: float,
    params: dict[str, Any],
) -> Likelihood:
    """f: trees on the marginal likelihood, their number by the held-out one (per session)."""
    held_out = _PartLikelihood(cells, rows)
    query_fold = np.zeros(rows.n_queries, dtype=np.int64)
    query_fold[rows.query] = training.fold
    for k in range(training.n_folds):
        own, _ = cells.take_queries(query_fold != k)
        model = Hierarchy(own, held_out.model.v, held_out.model.s2)
        held_out.objectives.append(HierarchicalObjective(model, held_out.base))
    trees = training.grow(
        held_out.objectives,
        lambda scores: held_out.value(scores) / sessions,
        what="learning from clicks",
        among=rows.shown,
        params=params,
        patience=PATIENCE,
    )
    return Likelihood(trees, held_out.base, held_out.model)


def mean_log_rank(log: ClickLog, rows: PartRows) -> FloatArray:
    """(rows,) L of each row, by the lists of the ranker in use; experiments say nothing of it."""
    usual = baseline_lists(log)
    lists = log.take(usual) if np.any(usual) else log
    count = lists.row_count
    n = sum_by(lists.document, count, log.n_documents)
    logs = sum_by(lists.document, count * np.log(lists.position), log.n_documents)
    sessions = sum_by(lists.query, lists.sessions, log.n_queries)
    length = sum_by(lists.query, lists.sessions * _ends(lists), log.n_queries)
    end = length / np.maximum(sessions, 1)
    candidates = np.bincount(log.doc_query, minlength=log.n_queries).astype(float)
    below = np.maximum(candidates - end, 1.0)
    mean_below = (gammaln(end + below + 1) - gammaln(end + 1)) / below
    q = log.doc_query
    missed = np.maximum(sessions[q] - n, 0.0)
    total = (logs + missed * mean_below[q]) / np.maximum(sessions[q], 1)
    return np.where(sessions[q] > 0, total, mean_below[q])[rows.document]


def _ends(lists: ClickLog) -> FloatArray:
    """(lists,) the lowest position of each."""
    return np.maximum.reduceat(lists.position, lists.indptr[:-1]).astype(float)


def old_ranker_part(L: FloatArray, rows: PartRows, training: FoldTraining) -> CrossFitted:
    """pi: trees on -L, centred in each query, as no order depends on a query's mean."""
    w = rows.weight
    mean = sum_by(rows.query, w * L, rows.n_queries) / sum_by(rows.query, w, rows.n_queries)
    target = mean[rows.query] - L

    def value(scores: FloatArray) -> float:
        return 1 - float(np.sum(w * (target - scores) ** 2) / max(np.sum(w * target**2), 1e-12))

    return training.grow(
        "regression", value, what="imitating the old ranker", label=target, weight=w,
        among=rows.of_some_queries(SMOOTH_QUERIES),
        most=min(SMOOTH_TREES, training.options.n_trees), params=SMOOTH, patience=PATIENCE,
    )  # fmt: skip


def imitation_correlation(old: CrossFitted) -> float:
    """The correlation of pi with what it imitates, on queries that it has not seen."""
    return float(np.sqrt(max(0.0, *old.tried.values)))


def support_part(rows: PartRows, training: FoldTraining) -> CrossFitted:
    """rho: trees on whether a row was shown; scores are probabilities."""
    shown, w = rows.is_shown, rows.weight

    def value(scores: FloatArray) -> float:
        p = np.clip(scores, 1e-6, 1 - 1e-6)
        return float(np.sum(w * np.log(np.where(shown > 0, p, 1 - p))) / np.sum(w))

    return training.grow(
        "binary", value, what="learning what is shown", label=shown, weight=w,
        among=rows.of_some_queries(SMOOTH_QUERIES),
        most=min(SMOOTH_TREES, training.options.n_trees), params=SMOOTH, patience=PATIENCE,
    )  # fmt: skip


# The linear part of the stacked learner: what clicks say, by one weight for each feature.
#
#     c ~ Bin(n, alpha_k sigmoid(eta_i) + beta_k),   eta_i = base + w'z(x_i) + u_q + u_i,
#
# with w ~ N(0, 1/penalty). z are the features between their 1% and 99% points, standardised over
# the shown documents; a missing one is 0. The penalty is the one that makes clicks of queries
# likely that w has not seen. With few queries a line says more than trees: with 50 to 70 of them
# (OHSUMED, MSLR; 10 and 100 sessions each) NDCG@10 of the whole learner was .387 with it and .368
# without, the mean of eight logs.
#
# w'z is a sum over features, so that a tree for each of them says the same in steps: the learner
# stays one booster.

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
    inverse_std: FloatArray

    @classmethod
    def of(cls, features: FeatureArray) -> "Scale":
        """By these rows; a feature that is constant or never known counts as 0."""
        known = np.where(np.isnan(features).all(axis=0), 0.0, features)
        low, high = np.nanpercentile(known, _EDGES, axis=0)
        cut = np.clip(known, low, high)
        spread = np.nanstd(cut, axis=0)
        inverse_std = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9)
        return cls(low, high, np.nanmean(cut, axis=0), inverse_std)

    def __call__(self, features: FeatureArray) -> FloatArray:
        """(rows, d)."""
        z = (np.clip(features, self.low, self.high) - self.mean) * self.inverse_std
        return np.clip(np.nan_to_num(z, copy=False), -_FARTHEST, _FARTHEST)


@dataclass(frozen=True, eq=False)
class LinearPart:
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


def linear_part(
    cells: ClickCells, rows: PartRows, folds: FoldTraining, model: Hierarchy
) -> LinearPart:
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
    return LinearPart(weights, scale, z * weights, tried[at][0], PENALTIES[at])


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
