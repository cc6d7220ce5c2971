"""Candidates of queries, what grades and predictions say of them, and the weight of each place.

A metric that is a sum over documents, sum_q w_q sum_i lambda(rank of i) gain(y_i), gives every
document one number a_i = w_q lambda(rank of i), and a difference of two orders gives it the
difference of both numbers. w_q is the query's share of the sessions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, sum_by
from untilt._core.feature_table import predicted
from untilt._core.portable import Portable
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades, find_pairs
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.judged import Predicts
from untilt.evaluation.slots import as_rank_metric, ranks_by_query, shared_places
from untilt.evaluation.systems import LoggedOrder
from untilt.metrics.metric import BINARY, EACH_GAIN, EXPONENTIAL, ONE, Metric

Data = ClickLog | JudgedLists


@dataclass(frozen=True, eq=False)
class Candidates(Portable):
    """Documents query by query; rows indptr[q]:indptr[q + 1] are those of query q.

    Parameters
    ----------
    data : the log or the lists that they are from
    query_id : (queries,)
    doc_id : (rows,)
    row : (rows,) the document's number in `data`
    sessions : (queries,) how often each was asked; 1 each for judged lists
    """

    data: Data
    query_id: AnyArray
    doc_id: AnyArray
    row: IntArray
    indptr: IntArray
    sessions: FloatArray

    @property
    def owner(self) -> IntArray:
        """(rows,) the number of each row's query."""
        return np.repeat(np.arange(len(self.query_id)), np.diff(self.indptr))

    @property
    def weight(self) -> FloatArray:
        """(queries,) share of the sessions."""
        share: FloatArray = self.sessions / self.sessions.sum()
        return share

    def find(self, given: Any) -> IntArray:
        """The row of each of its pairs (`query_id`, `doc_id`), -1 where it is no candidate."""
        return find_pairs(given, self.query_id[self.owner], self.doc_id)


def candidates(data: Data) -> Candidates:
    """Those of the queries that have sessions, or of all judged lists."""
    if isinstance(data, JudgedLists):
        sessions = np.ones(data.n_queries)
        rows = np.arange(len(data))
        return Candidates(data, data.query_id, data.doc_id, rows, data.indptr, sessions)
    asked = sum_by(data.query, data.count.astype(float), data.n_queries)
    first = np.ones(data.n_documents, dtype=bool)  # of the versions of a document
    if data.item is not None:
        first = np.diff(data.item, prepend=-1) > 0
    kept = np.flatnonzero(first & (asked[data.doc_query] > 0))
    kept = kept[np.argsort(data.doc_query[kept], kind="stable")]
    queries, owner = np.unique(data.doc_query[kept], return_inverse=True)
    indptr = ragged.indptr_of(np.bincount(owner, minlength=len(queries)))
    return Candidates(data, data.query_id[queries], data.doc_id[kept], kept, indptr, asked[queries])


def place_weights(lists: Candidates, system: Any, metric: Metric) -> FloatArray:
    """(rows,) w_q lambda(rank); of the logged order the mean over its sessions."""
    depth = int(np.diff(lists.indptr).max(initial=0))
    data = lists.data
    if isinstance(system, LoggedOrder):
        if not isinstance(data, ClickLog):
            raise OptionError("judged lists hold no shown order. Give a click log, or scores.")
        by_rank = as_rank_metric(metric).weights(max(depth, int(data.rank.max(initial=0))))
        shown = data.row_count * by_rank[data.rank - 1] / data.n_sessions
        item = np.arange(data.n_documents) if data.item is None else data.item
        whole: FloatArray = sum_by(item[data.document], shown, data.n_items)[item[lists.row]]
        return whole
    scores = scores_of(lists, system)
    by_rank = as_rank_metric(metric).weights(depth)
    page = by_rank[ragged.index_in_list(lists.indptr)]
    mean = shared_places(lists.indptr, *ranks_by_query(lists.indptr, scores), page)
    return np.asarray(lists.weight[lists.owner] * mean)


def scores_of(lists: Candidates, system: Any) -> FloatArray:
    """(rows,) of a ranker, or of one score for each document of the data."""
    data = lists.data
    if isinstance(system, Predicts):
        features, names = data.features, data.feature_names
        if features is None:
            raise OptionError("a ranker needs features, and these documents have none.")
        return np.asarray(predicted(system, features, names, data.missing), float)[lists.row]
    scores = np.asarray(system, dtype=float)
    n = data.n_documents if isinstance(data, ClickLog) else len(data)
    if scores.shape != (n,) or np.isnan(scores).any():
        raise ShapeError(
            f"scores must be {n:,} numbers, one a document. Got shape {scores.shape}"
            f"{' with NaN' if scores.shape == (n,) else ''}."
        )
    return scores[lists.row]


def is_sum(metric: Metric) -> bool:
    """Whether it is a sum over documents, without a norm: then single documents can be graded."""
    formula = metric.formula()
    return formula.walk == EACH_GAIN and formula.norm == ONE


def gains(metric: Metric, grade: FloatArray) -> FloatArray:
    """(n,) what each grade counts."""
    formula = metric.formula()
    if formula.gain == EXPONENTIAL:
        return np.exp2(np.maximum(grade, 0.0)) - 1
    return (grade >= formula.relevant_from).astype(float) if formula.gain == BINARY else grade


def largest_value(metric: Metric, lists: Candidates, top_grade: float) -> float:
    """Of a sum: every place filled by the top grade. What a share is taken of."""
    depth = int(np.diff(lists.indptr).max(initial=0))
    return float(
        as_rank_metric(metric).weights(depth).sum() * gains(metric, np.array([top_grade]))[0]
    )


@dataclass(frozen=True, eq=False)
class Graded(Portable):
    """What labels say of each candidate.

    Parameters
    ----------
    grade, gain : (rows,) means over judges of grades, and of what they count; NaN where not graded
    judges : (rows,) how many grades
    probability : (rows,) with which it was drawn; NaN where not known
    noise : variance of one gain around what judges say on average; 0 where none was given twice
    unmatched : labels whose pair is no candidate
    """

    grade: FloatArray
    gain: FloatArray
    judges: IntArray
    probability: FloatArray
    noise: float
    unmatched: int

    @property
    def known(self) -> BoolArray:
        """(rows,) whether a grade is there."""
        return np.isfinite(self.grade)


def join(lists: Candidates, labels: Grades, metric: Metric) -> Graded:
    """Labels by candidate, several of one document as their mean."""
    row = lists.find(labels)
    kept = row >= 0
    if not kept.any():
        raise OptionError(
            f"none of the {len(labels):,} grades is of a candidate here. The first is of query "
            f"{labels.query_id[0]!r}, document {labels.doc_id[0]!r}; the first candidates are "
            f"{lists.doc_id[:2].tolist()} of {lists.query_id[:1].tolist()}. Use the same ids."
        )
    at, n = row[kept], len(lists.doc_id)
    gain = gains(metric, labels.grade[kept])
    times = np.bincount(at, minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        grade, mean, p = (
            sum_by(at, each, n) / times
            for each in (labels.grade[kept], gain, labels.probability[kept])
        )
    more = times > 1
    apart = sum_by(at, (gain - mean[at]) ** 2, n)[more].sum()
    noise = float(apart / (times[more] - 1).sum()) if more.any() else 0.0
    return Graded(grade, mean, times, p, noise, int((~kept).sum()))


def prediction(lists: Candidates, given: Any) -> FloatArray:
    """(rows,) of grades for all candidates: labels, click judgments, scores or a ranker.

    A candidate without one gets the mean of the others: the regression has a constant.
    """
    said = getattr(given, "grade", getattr(given, "relevance", None))
    if said is None:
        return scores_of(lists, given)
    row = lists.find(given)
    at, n = row[row >= 0], len(lists.doc_id)
    with np.errstate(invalid="ignore"):
        value = sum_by(at, said[row >= 0], n) / np.bincount(at, minlength=n)
    known = np.isfinite(value)
    return np.where(known, value, value[known].mean() if known.any() else 0.0)


def part_of_traffic(sessions: FloatArray) -> tuple[Sequence[str], IntArray]:
    """Head, torso and tail: thirds of the sessions, from the most frequent query on."""
    order = np.argsort(-sessions, kind="stable")
    before = np.cumsum(sessions[order]) - sessions[order]
    part = np.empty(len(sessions), dtype=np.int64)
    part[order] = np.minimum((3 * before / sessions.sum()).astype(np.int64), 2)
    return ("head", "torso", "tail"), part
