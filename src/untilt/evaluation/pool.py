"""What an evaluation needs of a log: for each query the documents to rank, each with its clicks."""

from dataclasses import dataclass
from typing import Literal

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.errors import OptionError

Among = Literal["shown", "candidates"]
# Below this many documents counting who is ahead beats sorting (no allocation, no branches).
COUNT_UP_TO = 48
SMALL = 20_000  # scores


@dataclass(frozen=True, eq=False)
class Pool:
    """Queries with sessions, the documents that systems rank for them, and their clicks.

    Parameters
    ----------
    query, sessions : (queries,) index into the log's queries; sessions N_q
    indptr : (queries + 1,) query i owns pool documents indptr[i]:indptr[i + 1]
    document : (documents,) index into the log's documents
    cell_indptr : (documents + 1,) document i owns cells; none where it was never shown
    position, impressions, clicks : (cells,) one cell per (document, position)
    depth : the lowest position shown
    """

    query: IntArray
    sessions: FloatArray
    indptr: IntArray
    document: IntArray
    cell_indptr: IntArray
    position: IntArray
    impressions: FloatArray
    clicks: FloatArray
    depth: int

    @property
    def n_queries(self) -> int:
        """Queries with at least one session."""
        return len(self.query)

    @property
    def n_sessions(self) -> float:
        """Sessions of all of them."""
        return float(self.sessions.sum())

    @property
    def query_of_document(self) -> IntArray:
        """(documents,) which query of the pool."""
        return ragged.list_of_row(self.indptr)

    @property
    def document_of_cell(self) -> IntArray:
        """(cells,) which document of the pool."""
        return ragged.list_of_row(self.cell_indptr)

    @property
    def query_of_cell(self) -> IntArray:
        """(cells,) which query of the pool."""
        return self.query_of_document[self.document_of_cell]

    @property
    def absent_share(self) -> float:
        """Mean share of its query's sessions that a shown document is missing from."""
        shown = self.by_document(self.impressions)
        could = self.sessions[self.query_of_document][shown > 0].sum()
        return 1 - float(shown.sum()) / could if could > 0 else 0.0

    def by_document(self, values: FloatArray) -> FloatArray:
        """(documents,) sum of values (one per cell)."""
        return ragged.sums_by_list(self.cell_indptr, np.asarray(values, dtype=float))

    def by_query(self, values: FloatArray) -> FloatArray:
        """(queries,) sum of values (one per document)."""
        return ragged.sums_by_list(self.indptr, np.asarray(values, dtype=float))


def pool_of(log: ClickLog, among: Among) -> Pool:
    """Sum the log once. Counted lists give the same pool as repeated sessions."""
    if log.n_lists == 0:
        raise OptionError("this log has no sessions to estimate from. Check what was read or cut.")
    cells = position_counts(log)
    sessions = sum_by(log.query, log.sessions, log.n_queries)
    query = np.flatnonzero(sessions)
    place = np.full(log.n_queries, -1)
    place[query] = np.arange(len(query))
    n_cells = np.zeros(log.n_documents, dtype=np.int64)
    n_cells[cells.document] = ragged.lengths(cells.indptr)
    wanted = n_cells > 0 if among == "shown" else sessions[log.doc_query] > 0
    # position_counts sorts shown documents the same way: by query, then as they stand in the log.
    document = np.flatnonzero(wanted)
    document = document[np.argsort(log.doc_query[document], kind="stable")]
    per_query = np.bincount(place[log.doc_query[document]], minlength=len(query))
    return Pool(
        query=query,
        sessions=sessions[query],
        indptr=ragged.indptr_of(per_query),
        document=document,
        cell_indptr=ragged.indptr_of(n_cells[document]),
        position=cells.position,
        impressions=cells.impressions,
        clicks=cells.clicks,
        depth=cells.depth,
    )


@nb.njit(cache=True)
def _places(row: FloatArray, ahead: IntArray, same: IntArray) -> None:
    """How many documents have a larger score than each, and how many the same, itself included."""
    m = len(row)
    if m <= COUNT_UP_TO:
        for i in range(m):
            above, equal = 0, 0
            for j in range(m):
                above += row[j] > row[i]
                equal += row[j] == row[i]
            ahead[i], same[i] = above, equal
        return
    order = np.argsort(-row)
    first = 0
    while first < m:
        last = first + 1
        while last < m and row[order[last]] == row[order[first]]:
            last += 1
        for r in range(first, last):
            ahead[order[r]], same[order[r]] = first, last - first
        first = last


@nb.njit(cache=True)
def discounts(scores: FloatArray, indptr: IntArray, cumulative: FloatArray) -> FloatArray:
    """(documents,) lambda at the rank of each document; equal scores share theirs."""
    found = np.empty(len(scores))
    for q in range(len(indptr) - 1):
        a, b = indptr[q], indptr[q + 1]
        ahead, same = np.empty(b - a, dtype=np.int64), np.empty(b - a, dtype=np.int64)
        _places(scores[a:b], ahead, same)
        for i in range(b - a):
            g, e = ahead[i], same[i]
            found[a + i] = (cumulative[g + e] - cumulative[g]) / e
    return found


def _system_sums(
    scores: FloatArray,
    indptr: IntArray,
    cell_indptr: IntArray,
    position: IntArray,
    total: FloatArray,
    slope: FloatArray,
    cumulative: FloatArray,
    depth: int,
    top: int,
    n_chunks: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums of lambda(rank) times credit, for all systems while a query's documents are at hand.

    Equal scores share their ranks: each gets the mean of lambda over the ranks that they fill, the
    expectation over all their orders. `cumulative[r]` is lambda(1) + ... + lambda(r).

    Returns
    -------
    value : (queries, systems) sum over documents of lambda * total
    slopes : (systems, depth) sum over cells of lambda * slope, by position
    unshown : (queries, systems) share of the first `top` places that go to documents without cells
    """
    n_systems, n_queries = scores.shape[0], len(indptr) - 1
    value = np.zeros((n_queries, n_systems))
    unshown = np.zeros((n_queries, n_systems))
    slopes = np.zeros((n_chunks, n_systems, depth))
    with_slopes = len(slope) > 0
    for chunk in nb.prange(n_chunks):
        begin, end = n_queries * chunk // n_chunks, n_queries * (chunk + 1) // n_chunks
        for q in range(begin, end):
            a, b = indptr[q], indptr[q + 1]
            m = b - a
            places = min(top, m)
            ahead, same = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
            for s in range(n_systems):
                _places(scores[s, a:b], ahead, same)
                for i in range(m):
                    d = a + i
                    g, e = ahead[i], same[i]
                    weight = (cumulative[g + e] - cumulative[g]) / e
                    value[q, s] += weight * total[d]
                    if cell_indptr[d] == cell_indptr[d + 1]:
                        share = (min(g + e, places) - min(g, places)) / e
                        unshown[q, s] += share / places
                    elif with_slopes and weight != 0.0:
                        for cell in range(cell_indptr[d], cell_indptr[d + 1]):
                            slopes[chunk, s, position[cell] - 1] += weight * slope[cell]
    summed = np.zeros((n_systems, depth))
    for chunk in range(n_chunks):
        summed += slopes[chunk]
    return value, summed, unshown


_sums_in_parallel = nb.njit(_system_sums, parallel=True, cache=True)
_sums_in_line = nb.njit(_system_sums, cache=True)


def system_sums(
    scores: FloatArray, pool: Pool, total: FloatArray, slope: FloatArray, weights: FloatArray,
    top: int,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """See `_system_sums`. Small work stays on this thread: waking others costs more."""
    cumulative = np.concatenate([[0.0], np.cumsum(weights)])
    few = scores.size <= SMALL
    kernel = _sums_in_line if few else _sums_in_parallel
    return kernel(
        scores,
        pool.indptr,
        pool.cell_indptr,
        pool.position,
        total,
        slope,
        cumulative,
        pool.depth,
        top,
        1 if few else 4 * nb.get_num_threads(),
    )
