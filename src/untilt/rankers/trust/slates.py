"""Sessions of a slate as the pairwise trust model sees them: counts of pairs.

Posteriors, updates and losses of the model depend on a session only through which documents have a
label above 0 and which pairs are in which order, so sessions of one slate sum up exactly. Memory
grows with distinct slates times the square of their length, not with sessions.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray, sum_by
from untilt.data.limits import allow_table
from untilt.data.slates import Slates

PAIR_COLUMNS = ("above_positive", "above_zero", "gain_positive", "gain_zero")


@dataclass(frozen=True, eq=False, kw_only=True)
class TrustSlates(Slates):
    """Distinct slates with counts of labels. A pair (i, j) of a slate of n rows is entry i n + j.

    No `PairSlates`: the model tells pairs whose loser has a label of 0 from others, and needs both
    orders of a pair.

    Parameters
    ----------
    positive : (rows,) sessions with c > 0 there
    pair_ptr : (slates + 1,) pairs of each slate, n^2 of them
    above_positive, above_zero : (pairs,) sessions with c_i > c_j, by c_j > 0 and c_j = 0
    gain_positive, gain_zero : (pairs,) the same with (gain_i - gain_j) / idealDCG in place of 1
    """

    positive: FloatArray
    pair_ptr: IntArray
    above_positive: FloatArray
    above_zero: FloatArray
    gain_positive: FloatArray
    gain_zero: FloatArray

    def pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """(slate, i, j) of every pair; i and j are rows; i = j included."""
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


def trust_slates(
    lists: Slates, label: FloatArray, gain: FloatArray, norm: FloatArray, slate_of_list: IntArray
) -> TrustSlates:
    """Sum the sessions of every slate. Lists hold rows in order of position.

    Slates come in an order of their own (by query, documents, positions): the order of the lists
    plays no part.

    Parameters
    ----------
    label, gain : (rows,) of the lists; the gain is what a label is worth
    norm : (lists,) factor of the gains of a list, 1/idealDCG
    slate_of_list : (lists,) lists of the same number show the same documents at the same positions
    """
    first = np.unique(slate_of_list, return_index=True)[1]
    order = _content_order(Slates.of(lists).take(first))
    number = np.empty(len(first), dtype=np.int64)
    number[order] = np.arange(len(first))
    slate, count = number[slate_of_list], lists.count.astype(float)
    shown = Slates.of(lists).take(first[order])
    pair_ptr = ragged.indptr_of(ragged.lengths(shown.indptr) ** 2)
    allow_table("PairwiseTrust, which counts every pair of every list,", 4, int(pair_ptr[-1]))
    positive, columns = np.zeros(len(shown.document)), np.zeros((4, pair_ptr[-1]))
    _count(lists.indptr, label, gain, count, norm, slate, shown.indptr, pair_ptr, positive, columns)
    return TrustSlates.of(
        shown,
        count=sum_by(slate, count, len(first)),
        positive=positive,
        pair_ptr=pair_ptr,
        **dict(zip(PAIR_COLUMNS, columns, strict=True)),
    )


def _content_order(slates: Slates) -> IntArray:
    """The order of slates by query, then by what they show."""
    size = ragged.lengths(slates.indptr)
    longest = int(size.max(initial=0))
    shown = np.full((2 * longest, slates.n_slates), -1, dtype=np.int64)
    for at in range(longest):
        there = size > at
        rows = slates.indptr[:-1][there] + at
        shown[2 * at, there] = slates.document[rows]
        shown[2 * at + 1, there] = slates.position_index[rows]
    return np.lexsort((*shown[::-1], slates.query))


@nb.njit(cache=True)
def _count(
    indptr: IntArray, label: FloatArray, gain: FloatArray, count: FloatArray, norm: FloatArray,
    slate: IntArray, slate_ptr: IntArray, pair_ptr: IntArray, positive: FloatArray,
    columns: FloatArray,
) -> None:  # fmt: skip
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
