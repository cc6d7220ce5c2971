"""What sessions of a slate leave behind for the pairwise trust model: counts of pairs.

Posteriors, updates and losses of the model depend on a session only through which documents have a
label above 0 and which pairs are in which order, so sessions of one slate sum up exactly. Memory
grows with distinct slates times the square of their length, not with sessions.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray, sum_by


@dataclass(frozen=True, eq=False)
class TrustSlates:
    """Distinct slates with their counts. A pair (i, j) of a slate of n rows is entry i n + j.

    Parameters
    ----------
    indptr, row, place : rows of each slate: document (training row) and 0-based position
    sessions : (slates,)
    positive : (rows,) sessions with c > 0 there
    pair_ptr : (slates + 1,) pairs of each slate, n^2 of them
    above_positive, above_zero : (pairs,) sessions with c_i > c_j, by c_j > 0 and c_j = 0
    gain_positive, gain_zero : (pairs,) the same with (gain_i - gain_j) / idealDCG in place of 1
    """

    indptr: IntArray
    row: IntArray
    place: IntArray
    sessions: FloatArray
    positive: FloatArray
    pair_ptr: IntArray
    above_positive: FloatArray
    above_zero: FloatArray
    gain_positive: FloatArray
    gain_zero: FloatArray

    @property
    def n_slates(self) -> int:
        """Number of distinct slates."""
        return len(self.indptr) - 1

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return int(self.place.max()) + 1 if len(self.place) else 0

    @property
    def shown(self) -> FloatArray:
        """(rows,) sessions that showed the row of a slate."""
        return np.repeat(self.sessions, ragged.lengths(self.indptr))

    def pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """(slate, i, j) of every pair; i and j are rows of `row` and `place`; i = j included."""
        size = ragged.lengths(self.indptr)
        slate = np.repeat(np.arange(self.n_slates), size**2)
        at = np.arange(self.pair_ptr[-1]) - self.pair_ptr[slate]
        return slate, self.indptr[slate] + at // size[slate], self.indptr[slate] + at % size[slate]

    def padded(self, slates: IntArray, length: int, **more: FloatArray) -> dict[str, FeatureArray]:
        """The pair counts of these slates (-1 is an empty one), each (slates, length, length).

        `more` are further columns by pair, as flat as the counts.
        """
        columns = {name: getattr(self, name) for name in PAIR_COLUMNS} | more
        out = {name: np.zeros((len(slates), length, length), np.float32) for name in columns}
        size = ragged.lengths(self.indptr)
        for b, s in enumerate(slates):
            if s < 0:
                continue
            n, pairs = size[s], slice(self.pair_ptr[s], self.pair_ptr[s + 1])
            for name, column in columns.items():
                out[name][b, :n, :n] = column[pairs].reshape(n, n)
        return out


PAIR_COLUMNS = ("above_positive", "above_zero", "gain_positive", "gain_zero")


def trust_slates(
    indptr: IntArray,
    row: IntArray,
    place: IntArray,
    label: FloatArray,
    gain: FloatArray,
    count: FloatArray,
    norm: FloatArray,
    query: IntArray,
    slate_of_list: IntArray,
) -> TrustSlates:
    """Sum the sessions of every slate. Lists hold rows in order of position.

    `gain` is what a label is worth and `norm` the factor of a list, 1/idealDCG. Slates come in an
    order of their own (by query, documents, positions): the order of the lists plays no part.
    """
    first = np.unique(slate_of_list, return_index=True)[1]
    order = _content_order(indptr, row, place, query, first)
    number = np.empty(len(first), dtype=np.int64)
    number[order] = np.arange(len(first))
    chosen = first[order]
    rows = ragged.rows_of_lists(indptr, chosen)
    size = ragged.lengths(indptr)[chosen]
    pair_ptr = ragged.indptr_of(size**2)
    slate = number[slate_of_list]
    slate_ptr = ragged.indptr_of(size)
    positive, columns = np.zeros(len(rows)), np.zeros((4, pair_ptr[-1]))
    _count(indptr, label, gain, count * 1.0, norm, slate, slate_ptr, pair_ptr, positive, columns)
    return TrustSlates(
        indptr=slate_ptr,
        row=row[rows],
        place=place[rows],
        sessions=sum_by(slate, count, len(first)),
        positive=positive,
        pair_ptr=pair_ptr,
        **dict(zip(PAIR_COLUMNS, columns, strict=True)),
    )


def _content_order(
    indptr: IntArray, row: IntArray, place: IntArray, query: IntArray, lists: IntArray
) -> IntArray:
    """The order of these lists by query, then by what they show."""
    size = ragged.lengths(indptr)[lists]
    longest = int(size.max(initial=0))
    shown = np.full((2 * longest, len(lists)), -1, dtype=np.int64)
    for at in range(longest):
        there = size > at
        rows = indptr[lists[there]] + at
        shown[2 * at, there], shown[2 * at + 1, there] = row[rows], place[rows]
    return np.lexsort((*shown[::-1], query[lists]))


@nb.njit(cache=True)
def _count(
    indptr: IntArray,
    label: FloatArray,
    gain: FloatArray,
    count: FloatArray,
    norm: FloatArray,
    slate: IntArray,
    slate_ptr: IntArray,
    pair_ptr: IntArray,
    positive: FloatArray,
    columns: FloatArray,
) -> None:
    for u in range(len(indptr) - 1):
        start, n, s = indptr[u], indptr[u + 1] - indptr[u], slate[u]
        for i in range(n):
            if label[start + i] <= 0:
                continue
            positive[slate_ptr[s] + i] += count[u]
            for j in range(n):
                if label[start + i] > label[start + j]:
                    at = pair_ptr[s] + i * n + j
                    zero = 0 if label[start + j] > 0 else 1
                    columns[zero, at] += count[u]
                    step = gain[start + i] - gain[start + j]
                    columns[2 + zero, at] += count[u] * norm[u] * step
