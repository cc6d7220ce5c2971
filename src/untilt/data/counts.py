"""Clicks and impressions per (query, document, position): all that estimators from ranks need.

Under the position-based model sessions of one (query, document) at one position are alike, so their
sum is a sufficient statistic. Ten million sessions become as many cells as there are distinct
(query, document, position), whatever their number.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, handed_over, read_only_view, sum_by
from untilt._core.portable import Portable
from untilt.data.clicklog import ClickLog


class Cells(NamedTuple):
    """The cells of a `PositionCounts` as plain arrays, for compiled loops."""

    indptr: IntArray
    position: IntArray
    impressions: FloatArray
    clicks: FloatArray


@dataclass(frozen=True, eq=False)
class PositionCounts(Portable):
    """Documents, sorted by query, each with one cell per position where it was shown.

    Parameters
    ----------
    indptr : (documents + 1,) document i owns cells indptr[i]:indptr[i + 1]
    query, document : (documents,) indices into the log's tables
    position : (cells,) 1-based, rising within a document
    impressions : (cells,) sessions that showed the document there
    clicks : (cells,) sum of the label over them
    depth : lowest position, K
    """

    indptr: IntArray
    query: IntArray
    document: IntArray
    position: IntArray
    impressions: FloatArray
    clicks: FloatArray
    depth: int

    @property
    def arrays(self) -> Cells:
        """What compiled loops over the cells need."""
        return Cells(self.indptr, self.position, self.impressions, self.clicks)

    @property
    def n_cells(self) -> int:
        """Number of distinct (query, document, position)."""
        return len(self.position)

    @property
    def n_documents(self) -> int:
        """Number of documents, those without cells included."""
        return len(self.indptr) - 1

    @property
    def document_index(self) -> IntArray:
        """(cells,) index into `document` of the one that owns each cell."""
        return ragged.list_of_row(self.indptr)

    @property
    def position_index(self) -> IntArray:
        """(cells,) position - 1."""
        return self.position - 1

    @property
    def rate(self) -> FloatArray:
        """(cells,) clicks per impression."""
        return self.clicks / self.impressions

    @property
    def mean_position(self) -> FloatArray:
        """(documents,) mean over the impressions of each; every document must have been shown."""
        n = self.impressions
        return self.by_document(n * self.position) / self.by_document(n)

    def by_position(self, values: FloatArray) -> FloatArray:
        """(K,) sum of values (one per cell) at each position."""
        return sum_by(self.position_index, values, self.depth)

    def by_document(self, values: FloatArray) -> FloatArray:
        """(documents,) sum of values (one per cell) over each document; 0 without cells."""
        return ragged.sums_by_list(self.indptr, np.asarray(values, dtype=float))

    def corrected_sums(self, alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(documents,) corrected clicks and exposure, for curves of at least `depth` positions.

            sum_k (c_k - n_k beta_k),   sum_k n_k alpha_k

        with E[click at k] = alpha_k gamma + beta_k. Their ratio is unbiased for the relevance gamma
        of a document ([vardasbi2020affine]_); without trust bias it is clicks per examination.
        """
        k, n = self.position_index, self.impressions
        return self.by_document(self.clicks - n * beta[k]), self.by_document(n * alpha[k])

    def where(self, keep: BoolArray) -> Self:
        """Only the documents where `keep` (documents,) is true."""
        lengths = ragged.lengths(self.indptr)
        cells = np.repeat(keep, lengths)
        return replace(
            self,
            indptr=handed_over(ragged.indptr_of(lengths[keep])),
            query=handed_over(self.query[keep]),
            document=handed_over(self.document[keep]),
            position=handed_over(self.position[cells]),
            impressions=handed_over(self.impressions[cells]),
            clicks=handed_over(self.clicks[cells]),
        )

    def at_positions(self, keep: BoolArray) -> Self:
        """Only the positions where `keep` (K,) is true, numbered anew from 1.

        Documents that were shown nowhere else stay, without cells.
        """
        cells = keep[self.position_index]
        number = np.cumsum(keep).astype(self.position.dtype)
        return replace(
            self,
            indptr=handed_over(ragged.keep_rows(self.indptr, cells)),
            position=handed_over(number[self.position_index[cells]]),
            impressions=handed_over(self.impressions[cells]),
            clicks=handed_over(self.clicks[cells]),
            depth=int(keep.sum()),
        )

    def repeated(self, times: IntArray) -> Self:
        """Each document as often as `times` (documents,) says; those with 0 are left out."""
        kept = self.where(times > 0)
        factor = np.repeat(times[times > 0], ragged.lengths(kept.indptr)).astype(float)
        return replace(
            kept,
            impressions=handed_over(kept.impressions * factor),
            clicks=handed_over(kept.clicks * factor),
        )

    def grouped(self, group: IntArray) -> Self:
        """The sums over groups of documents, each as if it were one document.

        `group` (documents,) holds 0..groups - 1; `query` and `document` become the group's number.
        """
        n_groups = int(group.max()) + 1
        cell = group[self.document_index] * self.depth + self.position_index
        impressions, clicks = (
            sum_by(cell, values, n_groups * self.depth)
            for values in (self.impressions, self.clicks)
        )
        used = np.flatnonzero(impressions)
        number = handed_over(np.arange(n_groups))
        return replace(
            self,
            indptr=handed_over(
                ragged.indptr_of(np.bincount(used // self.depth, minlength=n_groups))
            ),
            query=number,
            document=number,
            position=handed_over((used % self.depth + 1).astype(np.int32)),
            impressions=handed_over(impressions[used]),
            clicks=handed_over(clicks[used]),
        )


def position_counts(
    log: ClickLog, *, position: IntArray | None = None, depth: int | None = None
) -> PositionCounts:
    """The counts of a log's shown documents. Counted lists give the same as repeated sessions.

    `position` (rows,) replaces the log's own positions, with `depth` their number: for
    models whose examination depends on more than the position.
    """
    by_query = np.argsort(log.doc_query, kind="stable")
    rank = np.empty(log.n_documents, dtype=np.int64)
    rank[by_query] = np.arange(log.n_documents)
    counts = counts_from_rows(
        rank[log.document],
        log.position if position is None else position,
        log.row_count,
        log.label,
        log.n_documents,
        log.depth if depth is None else depth,
    )
    document = by_query[counts.document]
    return replace(
        counts, query=handed_over(log.doc_query[document]), document=handed_over(document)
    )


def corrected_clicks(
    log: ClickLog, alpha: FloatArray, beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`PositionCounts.corrected_sums` of all documents of a log; 0 where one was never shown."""
    k, count = log.position - 1, log.row_count
    return (
        sum_by(log.document, count * (log.label - beta[k]), log.n_documents),
        sum_by(log.document, count * alpha[k], log.n_documents),
    )


def counts_from_rows(
    document: IntArray,
    position: IntArray,
    count: IntArray | FloatArray,
    label: FloatArray,
    n_documents: int,
    depth: int,
    *,
    keep_unshown: bool = False,
) -> PositionCounts:
    """The counts of rows: document 0..n_documents - 1, all of one query 0.

    `count` may hold any weights. With `keep_unshown` documents without rows stay, without cells.
    """
    order, start = _rows_by_document(document, n_documents)
    columns = (read_only_view(column) for column in (position, count, label))
    n_cells, cell_position, impressions, clicks = _fill(order, start, *columns, depth)
    kept = np.arange(n_documents) if keep_unshown else np.flatnonzero(n_cells)
    return PositionCounts(
        indptr=handed_over(ragged.indptr_of(n_cells[kept])),
        query=handed_over(np.zeros(len(kept), dtype=np.int32)),
        document=handed_over(kept),
        position=handed_over(cell_position),
        impressions=handed_over(impressions),
        clicks=handed_over(clicks),
        depth=depth,
    )


@nb.njit(cache=True)
def _rows_by_document(document: IntArray, n_documents: int) -> tuple[IntArray, IntArray]:
    """Counting sort of the rows by their document, and where each begins."""
    start = np.zeros(n_documents + 1, dtype=np.int64)
    for row in range(len(document)):
        start[document[row] + 1] += 1
    for i in range(n_documents):
        start[i + 1] += start[i]
    free = start[:-1].copy()
    order = np.empty(len(document), dtype=np.int64)
    for row in range(len(document)):
        i = document[row]
        order[free[i]] = row
        free[i] += 1
    return order, start


@nb.njit(cache=True)
def _fill(
    order: IntArray,
    start: IntArray,
    position: IntArray,
    count: IntArray,
    label: FloatArray,
    depth: int,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Cells of each document, positions rising: how many, and their three columns."""
    n_cells = np.zeros(len(start) - 1, dtype=np.int64)
    # A document has at most as many cells as rows; cut to size at the end.
    cell_position = np.empty(len(order), dtype=np.int32)
    impressions = np.empty(len(order))
    clicks = np.empty(len(order))
    shown, clicked = np.zeros(depth + 1), np.zeros(depth + 1)
    cell = 0
    for i in range(len(start) - 1):
        highest, lowest = depth + 1, 0
        for at in range(start[i], start[i + 1]):
            row = order[at]
            k = position[row]
            shown[k] += count[row]
            clicked[k] += count[row] * label[row]
            highest, lowest = min(highest, k), max(lowest, k)
        for k in range(highest, lowest + 1):
            if shown[k] > 0:
                cell_position[cell], impressions[cell], clicks[cell] = k, shown[k], clicked[k]
                shown[k], clicked[k] = 0.0, 0.0
                n_cells[i] += 1
                cell += 1
    return n_cells, cell_position[:cell].copy(), impressions[:cell].copy(), clicks[:cell].copy()
