"""What the sessions of a slate leave behind for pair losses: a weight for each pair of its rows.

All gradients depend on the sessions of a slate only through sums over them, so `PairSlates` stores,
for each pair of rows,

    above[i, j] = sum over sessions with label_i > label_j of count * (gain_i - gain_j) * norm

and the same for j above i. The cost of a boosting round then grows with distinct slates, not with
sessions. A slate with few distinct lists keeps these and their labels instead: cheaper to hold.

Where the weight of a pair depends on the clicked document alone and the other side is every other
document, one number per row is enough: `RowSlates`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, read_only_view, sum_by
from untilt._core.sorting import falling_order
from untilt._core.threads import Share, parallel_kernel
from untilt.data.slates import CountArray, Slates, merge_slates
from untilt.errors import OptionError, check_choice
from untilt.objectives.clicked_pairs import ClickedLists, has_few_pairs

GAINS = ("exponential", "linear", "plain")
# Dividing by a smaller sum of gains overflows: 1/5e-324 is infinite, and so is 1/1e-308 times the
# sessions of a frequent query. No measured feedback is so small.
LEAST_GAIN = 1e-150
# Of the slates. Fewer are left to the kernel of all others, at ten times the price each: their own
# takes one to two seconds to compile, and a log with equal sessions has next to none of them.
_WORTH_A_KERNEL = 0.02


@dataclass(frozen=True, eq=False, kw_only=True)
class PairSlates(Slates):
    """Slates with the weights of their pairs; slates of one query stand side by side.

    The canonical form of pairs. `count` is in the unit of the pair weights. A slate that keeps
    labels stands here once for each distinct list.

    Parameters
    ----------
    start : (slates,) where the slate's pairs begin in `above` and `below`, or -1 if it keeps labels
    above, below : weight of "i above j" and "j above i" for i > j, packed as i (i - 1)/2 + j
    gain, scale : where labels are kept: gain of each row, and count times norm of the list
    plain : pairs of different labels weigh the same
    against_all : the losing side is every other row, not only those of a lower label
    """

    SLATE_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.SLATE_COLUMNS, "start", "scale")
    ROW_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.ROW_COLUMNS, "gain")

    start: IntArray
    above: FloatArray
    below: FloatArray
    gain: FloatArray
    scale: FloatArray
    plain: bool
    against_all: bool

    @cached_property
    def by_cost(self) -> "tuple[PairSlates, ClickedLists | None]":
        """The slates without those that their clicks alone sum faster, and these.

        Slates that keep labels and have no pair are in neither.
        """
        labels = self.start < 0
        if not labels.any():
            return self, None
        some, few = has_few_pairs(self.indptr, self.gain, against_all=self.against_all)
        few &= labels
        if few.sum() < _WORTH_A_KERNEL * self.n_slates:
            return self.take(np.flatnonzero(~labels | some)), None
        rest = self.take(np.flatnonzero(~labels | (some & ~few)))
        return rest, ClickedLists.of(self, np.flatnonzero(few), self.gain, self.scale)

    @cached_property
    def in_order(self) -> bool | None:
        """True where enough slates keep labels to sum these in order of rank; else None."""
        return bool(np.sum(self.start < 0) > _WORTH_A_KERNEL * self.n_slates) or None

    @cached_property
    def pair_blocks(self) -> IntArray:
        """Slates at which blocks of work begin, with about the same number of pairs each."""
        return self.blocks(ragged.lengths(self.indptr) ** 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSlates(Slates):
    """Slates with one weight per row, its weighted clicks; slates of a query stand side by side.

    No `PairSlates`, because the losing side is every other row: no pair need be kept.
    """

    ROW_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.ROW_COLUMNS, "weight")

    weight: FloatArray

    @cached_property
    def row_blocks(self) -> IntArray:
        """Slates at which blocks of work begin, with about the same number of rows each."""
        return self.blocks(ragged.lengths(self.indptr))


def gains_of(labels: FloatArray, gain: str) -> FloatArray:
    """2^y - 1, y, or y as a mere order ("plain": all pairs of different labels weigh the same)."""
    check_choice("gain", gain, GAINS)
    if gain != "exponential":
        return np.asarray(labels, dtype=float)
    if len(labels) and labels.max() > 30:
        raise OptionError(
            f"gain 2^y - 1 of a label of {labels.max():g} is out of all proportion. "
            "Use gain='linear' for feedback such as dwell time."
        )
    return np.exp2(labels) - 1.0


def list_norms(
    indptr: IntArray, gain: FloatArray, metric: str, truncation: int | None = None
) -> FloatArray:
    """The factor per list: 1/idealDCG for "ndcg", 1/sum of gains for "arp", else 1.

    A list whose gains add up to less than `LEAST_GAIN` counts as one without gain: factor 0.
    """
    if metric == "ndcg":
        cut = np.iinfo(np.int64).max if truncation is None else truncation
        ideal = np.zeros(len(indptr) - 1)
        _ideal_dcg(len(ideal), read_only_view(indptr), read_only_view(gain), cut, ideal)
    elif metric == "arp":
        ideal = ragged.sums_by_list(indptr, gain)
    else:
        return np.ones(len(indptr) - 1)
    return np.divide(1.0, ideal, out=np.zeros_like(ideal), where=ideal >= LEAST_GAIN)


@parallel_kernel()
def _ideal_dcg(
    mine: Share, indptr: IntArray, gain: FloatArray, truncation: int, ideal: FloatArray
) -> None:
    for u in range(mine[0], mine[1]):
        own = gain[indptr[u] : indptr[u + 1]].copy()
        order = falling_order(own)
        for r in range(min(len(own), truncation)):
            ideal[u] += own[order[r]] / np.log2(r + 2.0)


def sum_pairs(
    lists: Slates,
    slate_of_list: IntArray,
    *,
    gain: FloatArray,
    weight: CountArray,
    plain: bool = False,
    against_all: bool = False,
    dense: bool = False,
    collapse: bool = True,
    share: FloatArray | None = None,
) -> PairSlates:
    """Sum the pairs of the lists of each slate.

    Parameters
    ----------
    slate_of_list : (lists,) lists of the same number show the same documents at the same positions
    gain : (rows,) gain of the row's label
    weight : (lists,) sessions of the list times its norm, in whatever unit the caller wants
    plain, against_all : as in `PairSlates`
    dense : store pairs even where a slate has one list only (an offset needs every pair)
    collapse : False keeps every distinct list with its labels
    share : (rows,) the same in all lists of a slate: pairs weigh the smaller one of the two times
        as much. It needs `dense`, and `collapse`
    """
    order = np.lexsort((slate_of_list, lists.query))
    slate = slate_of_list[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = slate[1:] != slate[:-1]
    first_of_slate = np.flatnonzero(new)
    lists_in_slate = np.diff(np.append(first_of_slate, len(order)))
    length = ragged.lengths(lists.indptr)[order[first_of_slate]]
    packed = (lists_in_slate >= np.maximum(2, length // 10)) | dense
    packed &= collapse

    # A packed slate stands once; a slate that keeps labels, once for each of its lists.
    packed_list = np.repeat(packed, lists_in_slate)
    lead = np.flatnonzero(new | ~packed_list)
    lead_list, lead_packed = order[lead], packed_list[lead]
    shown = Slates.of(lists).take(lead_list)
    length = ragged.lengths(shown.indptr)
    pairs = np.where(lead_packed, length * (length - 1) // 2, 0)
    start = np.where(lead_packed, np.cumsum(pairs) - pairs, -1)
    above, below = np.zeros(int(pairs.sum())), np.zeros(int(pairs.sum()))
    lists_ptr = np.append(lead, len(order))
    _accumulate(
        len(start), lists_ptr, order, read_only_view(lists.indptr), read_only_view(gain), weight,
        start, above, below, plain, against_all,
    )  # fmt: skip
    if share is not None:
        rows = ragged.rows_of_lists(lists.indptr, lead_list)
        _times_smaller(len(start), shown.indptr, start, share[rows], above, below)
    return PairSlates.of(
        shown,
        document=shown.document.astype(np.int64),
        position_index=shown.position_index.astype(np.int64),
        count=np.add.reduceat(weight[order], lead) if len(lead) else np.zeros(0),
        start=start,
        above=above,
        below=below,
        gain=gain[ragged.rows_of_lists(lists.indptr, lead_list)].astype(np.float64),
        scale=np.where(lead_packed, 0.0, weight[lead_list]),
        plain=plain,
        against_all=against_all,
    )


@parallel_kernel()
def _accumulate(
    mine: Share, lists_ptr: IntArray, order: IntArray, indptr: IntArray, gain: FloatArray,
    weight: FloatArray, start: IntArray, above: FloatArray, below: FloatArray, plain: bool,
    against_all: bool,
) -> None:  # fmt: skip
    for u in range(mine[0], mine[1]):
        if start[u] < 0:
            continue
        for at in range(lists_ptr[u], lists_ptr[u + 1]):
            begin, w = indptr[order[at]], weight[order[at]]
            length = indptr[order[at] + 1] - begin
            for i in range(length):
                winner = gain[begin + i]
                if winner <= 0.0:
                    continue
                for j in range(length):
                    loser = 0.0 if against_all else gain[begin + j]
                    if j == i or winner <= loser:
                        continue
                    amount = w if plain else w * (winner - loser)
                    if j < i:
                        above[start[u] + i * (i - 1) // 2 + j] += amount
                    else:
                        below[start[u] + j * (j - 1) // 2 + i] += amount


@parallel_kernel()
def _times_smaller(
    mine: Share, indptr: IntArray, start: IntArray, share: FloatArray, above: FloatArray,
    below: FloatArray,
) -> None:  # fmt: skip
    for u in range(mine[0], mine[1]):
        begin = indptr[u]
        for i in range(indptr[u + 1] - begin):
            for j in range(i):
                both = min(share[begin + i], share[begin + j])
                above[start[u] + i * (i - 1) // 2 + j] *= both
                below[start[u] + i * (i - 1) // 2 + j] *= both


def sum_rows(lists: Slates, slate_of_list: IntArray, value: FloatArray) -> RowSlates:
    """Sum `value`, one per row of the lists, over the lists of each slate.

    Slates without a weight, or with a single document, have no pair to learn from and are dropped.
    """
    shown, row = merge_slates(lists, slate_of_list)
    weight = sum_by(row, value, len(shown.document))
    slates = RowSlates.of(shown, weight=weight, document=shown.document.astype(np.int64))
    useful = ragged.sums_by_list(slates.indptr, (weight != 0).astype(float)) > 0
    useful &= ragged.lengths(slates.indptr) > 1
    return slates.take(np.flatnonzero(useful))
