"""Clicks and impressions per (query, document, position): all that estimators from ranks need.

Under the position-based model sessions of one (query, document) at one position are alike, so their
sum is a sufficient statistic. Ten million sessions become as many cells as there are distinct
(query, document, position), whatever their number.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt.logs.clicklog import ClickLog


@dataclass(frozen=True, eq=False)
class Cells:
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


def cells_of(log: ClickLog) -> Cells:
    """The cells of a log. Counted lists give the same cells as repeated sessions."""
    by_query = np.argsort(log.doc_query, kind="stable")
    place = np.empty(log.n_documents, dtype=np.int64)
    place[by_query] = np.arange(log.n_documents)
    order, start = _rows_by_document(place, log.document)
    n_cells, position, impressions, clicks = _fill(
        order, start, log.position, log.row_count, log.label, log.depth
    )
    shown = np.flatnonzero(n_cells)
    indptr = np.concatenate([[0], np.cumsum(n_cells[shown])])
    document = by_query[shown]
    return Cells(
        indptr=handed_over(indptr),
        query=handed_over(log.doc_query[document]),
        document=handed_over(document),
        position=handed_over(position),
        impressions=handed_over(impressions),
        clicks=handed_over(clicks),
        depth=log.depth,
    )


@nb.njit(cache=True)
def _rows_by_document(place: IntArray, document: IntArray) -> tuple[IntArray, IntArray]:
    """Counting sort of the rows by the place of their document, and where each begins."""
    start = np.zeros(len(place) + 1, dtype=np.int64)
    for row in range(len(document)):
        start[place[document[row]] + 1] += 1
    for i in range(len(place)):
        start[i + 1] += start[i]
    free = start[:-1].copy()
    order = np.empty(len(document), dtype=np.int64)
    for row in range(len(document)):
        i = place[document[row]]
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
