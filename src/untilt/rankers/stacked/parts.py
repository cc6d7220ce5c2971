"""The parts of the stacked learner: what clicks say, and what the old ranker says.

Rows are the documents that were shown and, where lists are cut above the candidates, a sample of
those that never were. Each part is cross-fitted by query (`crossfit`):

- x: trees with random thresholds on the hierarchical position-based likelihood of the clicks
  (`objectives.hierarchical`), from 0;
- s: trees on the same likelihood that begin at a line of the features;
- pi: the old ranker, imitated. L_i is the mean over sessions of log(rank), where a session that did
  not show i counts the mean log rank of the places below its end; trees on -L.

x and s say nearly the same. With 50 to 200 queries s alone took .005 +- .002 of NDCG@10, and with
400 or more x alone .002 (17 simulated and 12 real logs).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.random import child_generator
from untilt._core.threads import side_by_side
from untilt.bias.experiments.assignment import baseline_lists
from untilt.data.clicklog import ClickLog
from untilt.objectives.hierarchical import (
    ClickCells,
    Hierarchy,
    HierarchyFit,
    fit_hierarchy,
    next_variances,
)
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.trees.boosting import step_tree
from untilt.rankers.trees.crossfit import CrossFitted, FoldTraining
from untilt.rankers.trees.objectives import LikeAFunction

# Candidates sampled for each query among those that were never shown.
MOST_UNSHOWN = 40
# Small trees: over the ranker's own parameters, at most so many leaves, and twice its documents in
# a leaf. Steps are twice its learning rate, as the mean over the folds is smoother than one
# booster; four times for pi and B, whose targets have hardly any noise. With twice for both, and
# twice as many trees in B, NDCG@10 was .0007 +- .0003 higher (8 logs), for 1.6 times the time.
LEAVES, STEPS, LONG_STEPS = 8, 2, 4
# Above so many shown documents steps grow with their root, as the noise of a leaf falls with it, up
# to the longest: PART_TREES of the short ones would end before held-out clicks do.
STEADY, LONGEST = 5_000, 8
PART_TREES = 300  # the most of each part, where no number is given
SMOOTH_TREES = 80  # the most of pi
# Held-out clicks of 70 queries differ by 1 to 3 nats between 0 and 30 trees, which chooses nothing.
FEWEST = 30
# With these steps held-out clicks have a single peak: on 8 logs of bench_quality.py (MSLR, MQ2008,
# OHSUMED, synthetic) all 16 numbers of trees were those of 50 trees or 30%, in a tenth to a quarter
# fewer trees.
PATIENCE = (30, 0.2)


def steps_of(usual: float, n_shown: int) -> float:
    """The step of trees in learning rates, with so many shown documents."""
    return min(usual * max(1.0, np.sqrt(n_shown / STEADY)), LONGEST)


def small_trees(params: dict[str, Any], steps: float) -> dict[str, Any]:
    """Parameters over those of the ranker."""
    return {
        "learning_rate": steps * params["learning_rate"],
        "num_leaves": min(LEAVES, params["num_leaves"]),
        "min_data_in_leaf": 2 * params["min_data_in_leaf"],
    }


@dataclass(frozen=True, eq=False)
class PartRows:
    """Documents to learn from: the shown ones first, numbered as in the training lists.

    Parameters
    ----------
    document : (rows,) index into the log's documents
    query : (rows,) 0..queries - 1
    n_shown : the first so many rows were shown, or have a grade
    n_unshown : candidates of the log that never were, sampled or not
    """

    document: IntArray
    features: FeatureArray
    query: IntArray
    n_shown: int
    n_unshown: int

    def with_evidence(self, values: FloatArray, has: BoolArray) -> tuple["PartRows", FloatArray]:
        """The rows that have evidence next to the shown ones, and the values (2, rows) of both."""
        order = np.argsort(~(has | (np.arange(len(has)) < self.n_shown)), kind="stable")
        more = int(has[self.n_shown :].sum())
        rows = PartRows(
            self.document[order], self.features[order], self.query[order], self.n_shown + more,
            self.n_unshown - more,
        )  # fmt: skip
        return rows, np.ascontiguousarray(values[:, order[: rows.n_shown]])


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
    direction = child_generator(seed, 23).standard_normal(log.features.shape[1])
    projection = np.nan_to_num(log.features[unshown]) @ direction
    ordered = unshown[np.lexsort((projection, number[log.doc_query[unshown]]))]
    n = np.bincount(number[log.doc_query[ordered]], minlength=len(queries))
    at = ragged.index_in_list(ragged.indptr_of(n))
    share = np.repeat(np.minimum(1.0, MOST_UNSHOWN / np.maximum(n, 1)), n)
    drawn = ordered[np.floor((at + 1) * share) > np.floor(at * share)]
    return PartRows(
        document=np.concatenate([shown, drawn]),
        features=np.concatenate([lists.features, log.features[drawn]]),
        query=np.concatenate([query, number[log.doc_query[drawn]]]),
        n_shown=len(shown),
        n_unshown=len(unshown),
    )


# ---- x and s: the likelihood of clicks


class HierarchicalObjective(LikeAFunction):
    """The marginal likelihood of clicks: one Newton step of the effects in each round."""

    def __init__(self, model: Hierarchy, offset: FloatArray) -> None:
        self.model, self.offset = model, offset
        start = model.modes(offset)
        self._u, self._u_q = start.document, start.query

    def __call__(self, scores: FloatArray, dataset: object = None) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """-u / v and H / (1 + v H), one entry per document."""
        H = self.model.newton_step(scores + self.offset, self._u, self._u_q)
        return -self._u / self.model.v, self.model.curvature(H)


@dataclass(frozen=True, eq=False)
class Clicks:
    """The clicks of the shown rows: all of them, and those outside each fold.

    Parameters
    ----------
    training : for each fold the cells of the other queries, and which rows they are of
    null : the fit of a constant
    """

    cells: ClickCells
    training: list[tuple[ClickCells, IntArray]]
    null: HierarchyFit

    @classmethod
    def of(cls, cells: ClickCells, rows: PartRows, folds: FoldTraining) -> "Clicks":
        """Of all rows that were shown."""
        fold = np.zeros(cells.n_queries, dtype=np.int64)
        fold[rows.query] = folds.fold
        training = [cells.take_queries(fold != k) for k in range(folds.n_folds)]
        return cls(cells, training, fit_hierarchy(cells, np.ones((cells.n_documents, 1))))


def click_trees(
    clicks: Clicks,
    folds: FoldTraining,
    sessions: float,
    *,
    begin: Hierarchy | None = None,
    line: "Line | None" = None,
) -> tuple[CrossFitted, Hierarchy]:
    """x, or s with the line that its trees begin at; and its model, which begins at `begin`.

    Held-out clicks choose the number of trees; at each look v and s2 take a scoring step.
    """
    cells, base = clicks.cells, float(clicks.null.weights[0])
    start = np.full(cells.n_documents, base) if line is None else line.base + line.scores
    n, model, effects = cells.n_documents, begin or clicks.null.model, clicks.null.effects
    objectives = []
    for k, (own, rows) in enumerate(clicks.training):
        offset = np.full(len(rows), base) if line is None else line.base + line.by_fold[k][rows]
        objectives.append(HierarchicalObjective(replace(model, cells=own), offset))

    def value(scores: FloatArray) -> float:
        nonlocal model, effects
        effects = model.modes(start[:n] + scores[:n], effects, steps=6, tolerance=1e-3)
        model = next_variances(model, effects)
        for each in objectives:
            each.model = replace(model, cells=each.model.cells)
        return float(effects.log_likelihood.sum() - clicks.null.log_likelihood) / sessions

    trees = folds.grow(
        objectives, value, what="learning from clicks", among=np.arange(n), patience=PATIENCE,
        params={**small_trees(folds.params, steps_of(STEPS, n)), "extra_trees": line is None},
        fewest=FEWEST if line is None else 0,
    )  # fmt: skip
    return trees, model


# The line l(x) = w'z(x) that s begins at, by the same likelihood with w ~ N(0, 1/penalty). z are
# the features between their 1% and 99% points, standardised over the shown documents; a missing one
# is 0. The penalty is the one that makes held-out clicks likely.
#
# w'z is a sum over features, so that a tree for each of them says the same in steps: the learner
# stays one booster.

PENALTIES = (1000.0, 300.0, 100.0, 30.0, 10.0, 3.0)
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
class Line:
    """w and what it says.

    Parameters
    ----------
    weights, scale : (d,) w, the mean over the folds; z
    terms : (rows, d) w_j z_j
    by_fold : (folds, rows) what the weights of each fold say
    scores : (rows,) of each row by the weights that have not seen its query
    """

    base: float
    weights: FloatArray
    scale: Scale
    terms: FloatArray
    by_fold: FloatArray
    scores: FloatArray
    penalty: float

    def trees(self, weight: float, features: FeatureArray) -> list[str]:
        """What `merged` takes: a tree for each feature that counts, times the weight."""
        counts = np.flatnonzero(np.ptp(self.terms, axis=0) > 0).tolist()
        return [step_tree(j, features[:, j], weight * self.terms[:, j], _STEPS) for j in counts]


def line_of(clicks: Clicks, rows: PartRows, folds: FoldTraining, model: Hierarchy) -> Line:
    """w of the penalty that held-out clicks choose; `model` has the variances of the effects."""
    n = rows.n_shown
    scale = Scale.of(rows.features[:n])
    z = scale(rows.features)

    def path(fold: tuple[ClickCells, IntArray]) -> list[FloatArray]:
        cells, own = fold
        return _path(replace(model, cells=cells), z[own])

    paths = side_by_side(path, clicks.training, n_threads=folds.options.n_threads)

    def tried(at: int) -> tuple[float, Line]:
        w = np.mean([each[at] for each in paths], axis=0)
        by_fold = np.stack([z @ each[at][1:] for each in paths])
        scores = by_fold[folds.fold, np.arange(len(z))]
        value = float(model.modes(w[0] + scores[:n]).log_likelihood.sum())
        line = Line(float(w[0]), w[1:], scale, z * w[1:], by_fold, scores, PENALTIES[at])
        return value, line

    return max((tried(at) for at in range(len(PENALTIES))), key=lambda each: each[0])[1]


def _path(model: Hierarchy, z: FloatArray) -> list[FloatArray]:
    """(1 + d,) base and w of each penalty, the strongest first; each begins at the last."""
    X, found = np.column_stack([np.ones(len(z)), z]), []
    fit: HierarchyFit | None = None
    for penalty in PENALTIES:
        fit = fit_hierarchy(
            model.cells, X, start=fit, variances=(model.v, model.s2), rounds=_ROUNDS,
            prior_precision=[0.0, *[penalty] * z.shape[1]],
        )  # fmt: skip
        found.append(fit.weights)
    return found


# ---- pi: the old ranker


def mean_log_rank(log: ClickLog, rows: PartRows) -> FloatArray:
    """(rows,) L of each row, by the lists of the ranker in use; experiments say nothing of it."""
    usual = baseline_lists(log)
    lists = log.take(usual) if np.any(usual) else log
    count = lists.row_count
    n = sum_by(lists.document, count, log.n_documents)
    logs = sum_by(lists.document, count * np.log(lists.position), log.n_documents)
    sessions = sum_by(lists.query, lists.sessions, log.n_queries)
    ends = np.maximum.reduceat(lists.position, lists.indptr[:-1]).astype(float)
    length = sum_by(lists.query, lists.sessions * ends, log.n_queries)
    end = length / np.maximum(sessions, 1)
    candidates = np.bincount(log.doc_query, minlength=log.n_queries).astype(float)
    below = np.maximum(candidates - end, 1.0)
    mean_below = (gammaln(end + below + 1) - gammaln(end + 1)) / below
    q = log.doc_query
    missed = np.maximum(sessions[q] - n, 0.0)
    total = (logs + missed * mean_below[q]) / np.maximum(sessions[q], 1)
    return np.where(sessions[q] > 0, total, mean_below[q])[rows.document]


def old_ranker(log: ClickLog, rows: PartRows, folds: FoldTraining) -> tuple[CrossFitted, float]:
    """(pi, r): trees on -L, centred in each query, and their correlation with it where held out."""
    L = mean_log_rank(log, rows)
    target = (sum_by(rows.query, L) / np.bincount(rows.query))[rows.query] - L
    spread = max(float(np.sum(target**2)), 1e-12)

    def value(scores: FloatArray) -> float:
        return 1 - float(np.sum((target - scores) ** 2)) / spread

    steps = steps_of(LONG_STEPS, rows.n_shown)
    most = round(SMOOTH_TREES * LONG_STEPS / steps)
    trees = folds.grow(
        "regression", value, what="imitating the old ranker", label=target,
        most=min(most, folds.options.n_trees), patience=PATIENCE,
        params=small_trees(folds.params, steps),
    )  # fmt: skip
    length = np.sqrt(spread * max(float(np.sum(trees.scores**2)), 1e-12))
    return trees, max(0.0, float(target @ trees.scores) / length)
