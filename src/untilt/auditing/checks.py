"""What an audit counts: plain facts about a log with sessions, each a small function of it.

Everything is weighted by sessions, so that a counted list and its repeated sessions give the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt.data.clicklog import ClickLog


@dataclass(frozen=True)
class LogSize:
    """Size and shape of a log; `documents` and `queries` count those that no list shows too."""

    sessions: int
    distinct_lists: int
    queries: int
    documents: int
    impressions: int
    deepest_position: int
    features: int
    queries_with_sessions: int
    clicks: float
    shortest_list: int
    median_list: float


@dataclass(frozen=True)
class Coverage:
    """How much of the queries' candidates was ever shown, over queries with sessions.

    Parameters
    ----------
    candidates, shown : documents of these queries, and those of them that some list shows
    median_candidates, median_shown : per query
    lowest_share, median_share : shown / candidates of a query
    queries_shown_whole : queries of which every candidate was shown
    """

    candidates: int
    shown: int
    median_candidates: float
    median_shown: float
    lowest_share: float
    median_share: float
    queries_shown_whole: int
    json_properties: ClassVar[tuple[str, ...]] = ("share",)

    @property
    def share(self) -> float:
        """Shown documents among all candidates."""
        return self.shown / max(1, self.candidates)


def log_size(log: ClickLog) -> LogSize:
    """Counts of everything."""
    length = ragged.lengths(log.indptr)
    return LogSize(
        sessions=log.n_sessions,
        distinct_lists=log.collapse().n_lists,
        queries=log.n_queries,
        documents=log.n_documents,
        impressions=log.n_impressions,
        deepest_position=log.depth,
        features=log.n_features,
        queries_with_sessions=len(np.unique(log.query)),
        clicks=float(np.dot(log.label, log.row_count)),
        shortest_list=int(length.min()),
        median_list=_weighted_median(length, log.sessions),
    )


def share_without_click(log: ClickLog) -> float:
    """Of the sessions, those in which nothing was clicked."""
    clicked = ragged.sums_by_list(log.indptr, log.label > 0) > 0
    return float(log.sessions[~clicked].sum() / max(1, log.n_sessions))


def sessions_with_gaps(log: ClickLog) -> int:
    """Sessions that skip a position: they do not show every position from 1 to their lowest one.

    Rows that were lost look like this; so do logs of clicked rows alone.
    """
    length = ragged.lengths(log.indptr)
    filled = length > 0
    lowest = np.zeros_like(length)
    lowest[filled] = log.position[log.indptr[1:][filled] - 1]
    return int(log.sessions[lowest != length].sum())


def duplicate_impressions(log: ClickLog) -> int:
    """Impressions of a document that the same session already shows at another position."""
    order = ragged.order_within_lists(log.indptr, log.document)
    owner, document = ragged.list_of_row(log.indptr)[order], log.document[order]
    again = (owner[1:] == owner[:-1]) & (document[1:] == document[:-1])
    return int(log.sessions[owner[1:][again]].sum())


def sessions_by_ranker(log: ClickLog) -> Mapping[str, int]:
    """Name -> sessions, most first; rankers without a session are left out."""
    if log.ranker is None:
        return MappingProxyType({})
    sessions = sum_by(log.ranker, log.sessions, len(log.ranker_names))
    order = np.argsort(-sessions, kind="stable")
    by_name = {log.ranker_names[i]: int(sessions[i]) for i in order if sessions[i] > 0}
    return MappingProxyType(by_name)


def constant_features(log: ClickLog) -> tuple[str, ...]:
    """Features with a single value wherever they are known: no ranker can use them."""
    if log.features is None or len(log.features) == 0:
        return ()
    # Missing values never decide: fmin and fmax pass them over, and NaN == NaN is false.
    low, high = np.fmin.reduce(log.features), np.fmax.reduce(log.features)
    return _named(log, (low == high) | np.isnan(low))


def missing_features(log: ClickLog) -> Mapping[str, float]:
    """Name -> share of the documents for which the feature is missing (NaN), where there are any.

    `read_log(missing=0)` fills them on reading; then they cannot be seen here any more.
    """
    if log.features is None or len(log.features) == 0:
        return MappingProxyType({})
    share = np.isnan(log.features).mean(axis=0)
    names = _named(log, share > 0)
    return MappingProxyType(dict(zip(names, share[share > 0].tolist(), strict=True)))


def coverage(log: ClickLog) -> Coverage:
    """Shown documents against all documents of the queries that have sessions."""
    is_shown = np.zeros(log.n_documents, dtype=bool)
    is_shown[log.document] = True
    asked = np.unique(log.query)
    candidates = _per_query(log, asked, np.ones(log.n_documents, dtype=bool))
    shown = _per_query(log, asked, is_shown)
    share = shown / np.maximum(1, candidates)
    return Coverage(
        candidates=int(candidates.sum()),
        shown=int(shown.sum()),
        median_candidates=_median(candidates),
        median_shown=_median(shown),
        lowest_share=float(share.min()),
        median_share=_median(share),
        queries_shown_whole=int(np.count_nonzero(shown == candidates)),
    )


def _per_query(log: ClickLog, asked: IntArray, which: BoolArray) -> IntArray:
    return np.bincount(log.doc_query[which], minlength=log.n_queries)[asked]


def _named(log: ClickLog, which: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, is_one in zip(log.feature_names, which, strict=True) if is_one)


def _median(values: IntArray | FloatArray) -> float:
    return float(np.median(values))


def _weighted_median(values: IntArray, count: IntArray) -> float:
    """The middle of the values, each standing `count` times."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(count[order])
    low, high = np.searchsorted(upto, [(upto[-1] - 1) // 2, upto[-1] // 2], side="right")
    return float(values[order[low]] + values[order[high]]) / 2
