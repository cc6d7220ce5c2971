"""Units: what was shown, with the pair statistics that all its sessions leave behind.

A unit is one slate (a query's documents in one order), or one judged list. All gradients depend on
the sessions of a slate only through sums over them, so a unit stores, for each pair of its rows,

    above[i, j] = sum over sessions with label_i > label_j of count * (gain_i - gain_j) * norm

and the same for j above i. The cost of a boosting round then grows with distinct slates, not with
sessions. A slate with few distinct lists keeps its labels instead (`start` = -1): cheaper to hold.
"""

from dataclasses import dataclass
from functools import cached_property

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, sum_by
from untilt.errors import OptionError

# Fixed number of blocks whatever the number of threads: sums are then the same for any of them.
_BLOCKS = 64
GAINS = ("exponential", "linear", "plain")


@dataclass(frozen=True, eq=False)
class PairUnits:
    """Pair statistics of all units, units of one query side by side.

    Parameters
    ----------
    query_ptr : (queries + 1,) units of each query; one query is one thread's work, so that no two
        threads write to the same document
    indptr, row, place : rows of each unit: document (training row) and 0-based position
    start : (units,) where the unit's pairs begin in `above`/`below`, or -1 for label units
    above, below : weight of "i above j" and "j above i" for i > j, packed as i (i - 1)/2 + j
    gain, scale : label units: gain of each row, and count times norm of the unit
    shown : (units,) sessions behind the unit, on the same scale as the pair weights
    """

    query_ptr: IntArray
    indptr: IntArray
    row: IntArray
    place: IntArray
    start: IntArray
    above: FloatArray
    below: FloatArray
    gain: FloatArray
    scale: FloatArray
    shown: FloatArray
    n_rows: int
    depth: int
    plain: bool
    against_all: bool

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.indptr) - 1

    @cached_property
    def blocks(self) -> IntArray:
        """Units at which blocks of work begin: whole queries, about the same number of pairs."""
        n_blocks = max(1, min(_BLOCKS, len(self.query_ptr) - 1))
        length = np.diff(self.indptr)
        work = np.concatenate([[0], np.cumsum(length * length)])[self.query_ptr]
        cuts = np.searchsorted(work, np.linspace(0, work[-1], n_blocks + 1)[1:-1])
        return np.concatenate([[0], self.query_ptr[cuts], [self.n_units]])


def gains_of(labels: FloatArray, gain: str) -> FloatArray:
    """2^y - 1, y, or y as a mere order ("plain": all pairs of different labels weigh the same)."""
    if gain not in GAINS:
        raise OptionError(f"gain must be one of {', '.join(GAINS)}. Got {gain!r} instead.")
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
    """The factor per list: 1/idealDCG for "ndcg", 1/sum of gains for "arp", else 1."""
    if metric == "ndcg":
        cut = np.iinfo(np.int64).max if truncation is None else truncation
        ideal = _ideal_dcg(indptr, gain, cut)
    elif metric == "arp":
        ideal = ragged.sums_by_list(indptr, gain)
    else:
        return np.ones(len(indptr) - 1)
    return np.divide(1.0, ideal, out=np.zeros_like(ideal), where=ideal > 0)


@nb.njit(parallel=True, cache=True)
def _ideal_dcg(indptr: IntArray, gain: FloatArray, truncation: int) -> FloatArray:
    n = len(indptr) - 1
    ideal = np.zeros(n)
    for u in nb.prange(n):
        ordered = np.sort(gain[indptr[u] : indptr[u + 1]])
        length = len(ordered)
        for r in range(min(length, truncation)):
            ideal[u] += ordered[length - 1 - r] / np.log2(r + 2.0)
    return ideal


def build_units(
    *,
    indptr: IntArray,
    query: IntArray,
    row: IntArray,
    place: IntArray,
    gain: FloatArray,
    weight: FloatArray,
    slate_of_list: IntArray,
    n_rows: int,
    plain: bool = False,
    against_all: bool = False,
    dense: bool = False,
    collapse_pairs: bool = True,
) -> PairUnits:
    """Collapse lists into units.

    Parameters
    ----------
    indptr, query : the lists and the query of each
    row, place, gain : per row: training row, 0-based position, gain of its label
    weight : (lists,) sessions of the list times its norm, on whatever scale the caller wants
    slate_of_list : lists with the same slate showed the same rows at the same places
    plain : pairs of different labels weigh the same, whatever the difference
    against_all : every other row of the list is the losing side, not only those of a lower label
    dense : store pairs even where a slate has one list only (an offset needs every pair)
    collapse_pairs : False keeps every distinct list as a unit of its own, with its labels
    """
    order = np.lexsort((slate_of_list, query))
    slate = slate_of_list[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = slate[1:] != slate[:-1]
    first_of_slate = np.flatnonzero(new)
    lists_in_slate = np.diff(np.append(first_of_slate, len(order)))
    length = ragged.lengths(indptr)[order[first_of_slate]]
    packed = (lists_in_slate >= np.maximum(2, length // 10)) | dense
    packed &= collapse_pairs

    # One unit per packed slate; a slate that keeps labels gives one unit per list.
    leads = new | ~np.repeat(packed, lists_in_slate)
    lead = np.flatnonzero(leads)
    unit_list = order[lead]
    unit_packed = np.repeat(packed, lists_in_slate)[lead]
    lists_ptr = np.append(lead, len(order))
    unit_length = ragged.lengths(indptr)[unit_list]
    pairs = np.where(unit_packed, unit_length * (unit_length - 1) // 2, 0)
    start = np.where(unit_packed, np.cumsum(pairs) - pairs, -1)
    above, below = np.zeros(int(pairs.sum())), np.zeros(int(pairs.sum()))
    _accumulate(lists_ptr, order, indptr, gain, weight, start, above, below, plain, against_all)

    rows = ragged.rows_of_lists(indptr, unit_list)
    unit_query = query[unit_list]
    query_start = np.flatnonzero(np.append(True, unit_query[1:] != unit_query[:-1]))
    return PairUnits(
        query_ptr=np.append(query_start, len(unit_list)) if len(unit_list) else np.zeros(1, int),
        indptr=ragged.indptr_of(unit_length),
        row=row[rows].astype(np.int64),
        place=place[rows].astype(np.int64),
        start=start,
        above=above,
        below=below,
        gain=gain[rows].astype(np.float64),
        scale=np.where(unit_packed, 0.0, weight[unit_list]),
        shown=np.add.reduceat(weight[order], lead) if len(lead) else np.zeros(0),
        n_rows=n_rows,
        depth=int(place.max()) + 1 if len(place) else 0,
        plain=plain,
        against_all=against_all,
    )


@nb.njit(parallel=True, cache=True)
def _accumulate(
    lists_ptr: IntArray,
    order: IntArray,
    indptr: IntArray,
    gain: FloatArray,
    weight: FloatArray,
    start: IntArray,
    above: FloatArray,
    below: FloatArray,
    plain: bool,
    against_all: bool,
) -> None:
    for u in nb.prange(len(start)):
        if start[u] < 0:
            continue
        for place in range(lists_ptr[u], lists_ptr[u + 1]):
            begin, w = indptr[order[place]], weight[order[place]]
            length = indptr[order[place] + 1] - begin
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


def pack(values: AnyArray) -> AnyArray:
    """The lower triangle of a square matrix in the packing that units use."""
    return values[np.tril_indices(len(values), -1)]


# Row units: slates with one weight per document, for losses that set it against all others.
#
# Where a pair's weight is W[k] and the other side is every other shown document, the sessions of a
# slate leave one number per document behind,
#
#     weight_i = sum over sessions of count * gain_i * W[k_i]
#
# whatever was clicked together. Counts and repeated sessions are then the same sum.

# Fixed number of blocks whatever the number of threads: sums are then the same for any of them.
_BLOCKS_ROW_UNITS = 64


@dataclass(frozen=True, eq=False)
class RowUnits:
    """Slates of all queries, those of one query side by side.

    Parameters
    ----------
    query_ptr : (queries + 1,) slates of each query; a document belongs to one query, so a query is
        the smallest piece of work that no two threads share documents of
    indptr, row : documents (training rows) of each slate
    weight : (rows,) the document's weighted clicks in the slate
    """

    query_ptr: IntArray
    indptr: IntArray
    row: IntArray
    weight: FloatArray
    n_rows: int


def build_row_units(
    *,
    indptr: IntArray,
    query: IntArray,
    row: IntArray,
    value: FloatArray,
    slate_of_list: IntArray,
    n_rows: int,
) -> RowUnits:
    """Sum `value` (one per row of the lists) over the lists of each slate.

    Slates without a weight, or with a single document, have no pair to learn from and go.
    """
    _, first, unit_of_list = np.unique(slate_of_list, return_index=True, return_inverse=True)
    slates = ragged.indptr_of(ragged.lengths(indptr)[first])
    at = slates[unit_of_list][ragged.list_of_row(indptr)] + ragged.place_in_list(indptr)
    weight = sum_by(at, value, int(slates[-1]))
    useful = ragged.sums_by_list(slates, (weight != 0).astype(float)) > 0
    useful &= ragged.lengths(slates) > 1
    chosen = np.flatnonzero(useful)
    chosen = chosen[np.argsort(query[first[chosen]], kind="stable")]
    rows_at = ragged.rows_of_lists(slates, chosen)
    return RowUnits(
        query_ptr=runs(query[first[chosen]]),
        indptr=ragged.indptr_of(ragged.lengths(slates)[chosen]),
        row=row[ragged.rows_of_lists(indptr, first[chosen])].astype(np.int64),
        weight=weight[rows_at],
        n_rows=n_rows,
    )


def runs(sorted_keys: IntArray) -> IntArray:
    """Where each run of equal keys begins, and the end."""
    if len(sorted_keys) == 0:
        return np.zeros(1, dtype=np.int64)
    new = np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1]) + 1
    return np.concatenate([[0], new, [len(sorted_keys)]])


def block_bounds(query_ptr: IntArray, indptr: IntArray) -> IntArray:
    """Units at which blocks of work begin: whole queries each, with about the same rows."""
    rows = indptr[query_ptr]
    n_blocks = max(1, min(_BLOCKS_ROW_UNITS, len(query_ptr) - 1))
    wanted = np.linspace(0, rows[-1], n_blocks + 1)[1:-1]
    cuts = np.searchsorted(rows, wanted)
    return np.concatenate([[0], query_ptr[cuts], [len(indptr) - 1]]).astype(np.int64)
