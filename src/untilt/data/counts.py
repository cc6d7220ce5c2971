"""Clicks and impressions per (query, document, position): all that estimators from ranks need.

Under the position-based model sessions of one (query, document) at one position are alike, so their
sum is a sufficient statistic. Ten million sessions become as many cells as there are distinct
(query, document, position), whatever their number.
"""

from dataclasses import dataclass, replace

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt.data.clicklog import ClickLog


@dataclass(frozen=True, eq=False)
class PositionCounts:
    """Shown documents, sorted by query, each with one cell per position where it was shown.

    Parameters
    ----------
    indptr : (shown documents + 1,) document i owns cells indptr[i]:indptr[i + 1]
    query, document : (shown documents,) indices into the log's tables
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
    def n_cells(self) -> int:
        """Number of distinct (query, document, position)."""
        return len(self.position)

    @property
    def rate(self) -> FloatArray:
        """(cells,) clicks per impression."""
        return self.clicks / self.impressions

    def by_position(self, values: FloatArray) -> FloatArray:
        """(K,) sum of values (one per cell) at each position."""
        return np.bincount(self.position - 1, weights=values, minlength=self.depth)


def position_counts(log: ClickLog) -> PositionCounts:
    """The cells of a log. Counted lists give the same cells as repeated sessions."""
    by_query = np.argsort(log.doc_query, kind="stable")
    place = np.empty(log.n_documents, dtype=np.int64)
    place[by_query] = np.arange(log.n_documents)
    found = counts_from_rows(
        place[log.document], log.position, log.row_count, log.label, log.n_documents, log.depth
    )
    document = by_query[found.document]
    return replace(
        found, query=handed_over(log.doc_query[document]), document=handed_over(document)
    )


def counts_from_rows(
    document: IntArray,
    position: IntArray,
    count: IntArray,
    label: FloatArray,
    n_documents: int,
    depth: int,
) -> PositionCounts:
    """The cells of rows: document 0..n_documents - 1, all of one query 0."""
    order, start = _rows_by_document(document, n_documents)
    n_cells, cell_position, impressions, clicks = _fill(order, start, position, count, label, depth)
    shown = np.flatnonzero(n_cells)
    return PositionCounts(
        indptr=handed_over(np.concatenate([[0], np.cumsum(n_cells[shown])])),
        query=handed_over(np.zeros(len(shown), dtype=np.int32)),
        document=handed_over(shown),
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
