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
from untilt.bias.experiments.assignment import baseline_lists
from untilt.data.clicklog import ClickLog
from untilt.objectives.hierarchical import (
    ClickCells,
    Effects,
    Hierarchy,
    evenly,
    fit_hierarchy,
    next_variances,
)
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.trees.crossfit import CrossFitted, FoldTraining
from untilt.rankers.trees.objectives import LikeAFunction

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
class Rows:
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


def rows_of(log: ClickLog, lists: TrainingLists, seed: int) -> Rows:
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
    return Rows(
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


class _HeldOut:
    """The pooled likelihood of the folds' held-out clicks; it keeps v and s2 up to date."""

    def __init__(self, cells: ClickCells, rows: Rows) -> None:
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
    rows: Rows,
    training: FoldTraining,
    sessions: float,
    params: dict[str, Any],
) -> Likelihood:
    """f: trees on the marginal likelihood, their number by the held-out one (per session)."""
    held_out = _HeldOut(cells, rows)
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


def mean_log_rank(log: ClickLog, rows: Rows) -> FloatArray:
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


def old_ranker_part(L: FloatArray, rows: Rows, training: FoldTraining) -> CrossFitted:
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


def likeness(old: CrossFitted) -> float:
    """The correlation of pi with what it imitates, on queries that it has not seen."""
    return float(np.sqrt(max(0.0, *old.tried.values)))


def support_part(rows: Rows, training: FoldTraining) -> CrossFitted:
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
