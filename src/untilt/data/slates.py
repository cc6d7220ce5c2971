"""Slates: the lists of documents that sessions were shown, each with the sessions it stands for.

Learners sum over the sessions of a slate before they train, so their cost grows with distinct
slates. `Slates` is the part that all of them share: what was shown, where, and to how many. A
learner's own statistics are further columns in a subclass.

The positions of a slate are its *slots*. They may have gaps: an advertisement, a dropped row. A
ranker that orders a list anew puts its documents into these slots, never into others.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.grouping import group_equal_lists
from untilt._core.portable import Portable
from untilt._core.sorting import falling_order
from untilt._core.threads import Share, parallel_kernel
from untilt.data.clicklog import ClickLog

# Fixed number of blocks whatever the number of threads: sums are then the same for any of them.
_BLOCKS = 64
# Kernels take unsigned indices, too: those cannot be negative, which is one check less.
IndexArray = np.ndarray[tuple[Any, ...], np.dtype[np.integer[Any]]]
# Sessions are whole numbers, weighted sessions are not.
CountArray = np.ndarray[tuple[Any, ...], np.dtype[np.number[Any]]]
# Up to this many documents counting those with larger scores beats sorting: no allocation.
_COUNT_UP_TO = 48


@dataclass(frozen=True, eq=False, kw_only=True)
class Slates(Portable):
    """Shown lists. A slate owns the rows indptr[i]:indptr[i + 1], in order of position.

    Parameters
    ----------
    indptr : (slates + 1,)
    query : (slates,) index of the query
    count : (slates,) sessions, or weighted sessions
    document : (rows,) index of the document shown, 0..n_documents - 1; each belongs to one query
    position_index : (rows,) where it was shown, 0-based
    """

    # Names of the columns by slate and by row; a subclass adds its own, so that `take` knows them.
    SLATE_COLUMNS: ClassVar[tuple[str, ...]] = ("query", "count")
    ROW_COLUMNS: ClassVar[tuple[str, ...]] = ("document", "position_index")

    indptr: IntArray
    query: IntArray
    count: CountArray
    document: IntArray
    position_index: IntArray
    n_documents: int

    @classmethod
    def of(cls, slates: "Slates", **columns: Any) -> Self:
        """These slates with the columns that this class adds, or in place of theirs."""
        shared = {each.name: getattr(slates, each.name) for each in fields(Slates)}
        return cls(**{**shared, **columns})

    @property
    def n_slates(self) -> int:
        """Number of slates."""
        return len(self.indptr) - 1

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return int(self.position_index.max()) + 1 if len(self.position_index) else 0

    @property
    def row_count(self) -> CountArray:
        """(rows,) sessions that showed the row."""
        return np.repeat(self.count, ragged.lengths(self.indptr))

    @cached_property
    def query_ptr(self) -> IntArray:
        """(queries + 1,) where the slates of each query begin; they must stand side by side."""
        if self.n_slates == 0:
            return np.zeros(1, dtype=np.int64)
        new = np.flatnonzero(self.query[1:] != self.query[:-1]) + 1
        return np.concatenate([[0], new, [self.n_slates]])

    def spread(self, values: FloatArray) -> float:
        """Root mean square of (rows,) values around their list's mean, over sessions; 1 for 0."""
        lengths = ragged.lengths(self.indptr)
        mean = ragged.sums_by_list(self.indptr, values) / np.maximum(lengths, 1)
        square = (values - np.repeat(mean, lengths)) ** 2
        return float(np.sqrt(np.average(square, weights=self.row_count))) or 1.0

    def take(self, chosen: IntArray) -> Self:
        """The slates with these indices, in this order."""
        rows = ragged.rows_of_lists(self.indptr, chosen)
        return replace(
            self,
            indptr=ragged.indptr_of(ragged.lengths(self.indptr)[chosen]),
            **{name: getattr(self, name)[chosen] for name in self.SLATE_COLUMNS},
            **{name: getattr(self, name)[rows] for name in self.ROW_COLUMNS},
        )

    def blocks(self, work: IntArray) -> IntArray:
        """Slates at which blocks begin: whole queries each, with about the same `work` (slates,).

        A document belongs to one query, so no two blocks write to the same document.
        """
        return blocks(self.query_ptr, work)


def blocks(query_ptr: IntArray, work: IntArray) -> IntArray:
    """Slates at which blocks begin, for slates of each query side by side; see `Slates.blocks`."""
    n_blocks = max(1, min(_BLOCKS, len(query_ptr) - 1))
    before = np.concatenate([[0], np.cumsum(work)])[query_ptr]
    cuts = np.searchsorted(before, np.linspace(0, before[-1], n_blocks + 1)[1:-1])
    return np.concatenate([[0], query_ptr[cuts], [query_ptr[-1]]])


def shown_positions(position_index: IndexArray) -> tuple[IntArray, IndexArray]:
    """The position indices that occur, rising, and (rows,) which of them each row has."""
    occurs = np.bincount(position_index) > 0
    number = (np.cumsum(occurs) - 1).astype(position_index.dtype)
    return np.flatnonzero(occurs), number[position_index]


def merge_slates(lists: Slates, slate_of_list: IntArray) -> tuple[Slates, IntArray]:
    """Lists of the same number as one slate each, and the row that each row of the lists went to.

    Slates come by query, then by number. A sum over sessions of any value per row of the lists is
    ``sum_by(row, value, len(slates.document))``.

    Parameters
    ----------
    slate_of_list : (lists,) lists of the same number show the same documents at the same positions
    """
    _, first, number = np.unique(slate_of_list, return_index=True, return_inverse=True)
    order = np.argsort(lists.query[first], kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    slate = rank[number]
    shown = Slates.of(lists).take(first[order])
    sessions = sum_by(slate, lists.count, len(first))
    row = shown.indptr[slate][ragged.list_of_row(lists.indptr)] + ragged.index_in_list(lists.indptr)
    return replace(shown, count=sessions), row


def slates_of(log: ClickLog, *, by_slots: bool = False) -> tuple[Slates, IntArray]:
    """The distinct slates of a log, by query, and the row that each row of the log went to.

    Lists whose logged propensities differ are slates of their own.

    by_slots : merge lists also where the same documents fill the same slots in another arrangement,
        which a ranker orders alike; their rows hold the documents in order of their index then
    """
    document = log.document
    apart = [] if by_slots or log.propensity is None else [log.propensity]
    if by_slots:
        rows = ragged.order_within_lists(log.indptr, log.document)
        document = log.document[rows]
    groups = group_equal_lists(log.indptr, [document, log.position, *apart], [log.query])
    order = np.argsort(log.query[groups.first], kind="stable")
    first = groups.first[order]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    slate = rank[groups.group_of_list]
    taken = ragged.rows_of_lists(log.indptr, first)
    indptr = ragged.indptr_of(ragged.lengths(log.indptr)[first])
    slates = Slates(
        indptr=indptr,
        query=log.query[first],
        count=sum_by(slate, log.count, len(first)),
        document=document[taken],
        position_index=log.position[taken] - 1,
        n_documents=log.n_documents,
    )
    row = np.repeat(indptr[slate], ragged.lengths(log.indptr)) + ragged.index_in_list(log.indptr)
    if by_slots:
        unsorted = np.empty_like(row)
        unsorted[rows] = row
        row = unsorted
    return slates, row


def slot_discounts(slates: Slates, scores: FloatArray, weights: FloatArray) -> FloatArray:
    """(rows,) lambda at the slot that each document gets when a ranker orders its list anew.

    The documents of a list, highest score first, fill the slots of the list in order. Equal scores
    share: each gets the mean of lambda over the slots that they fill, the expectation over all
    their orders. A list in its own order gets exactly lambda at its positions.

    Parameters
    ----------
    scores : (documents,)
    weights : (K,) lambda at positions 1..K
    """
    discount = np.empty(len(slates.document))
    columns = (
        each.astype(np.int64, copy=False) for each in (slates.document, slates.position_index)
    )
    _fill_slots(len(slates.indptr) - 1, slates.indptr, *columns, scores, weights, discount)
    return discount


@nb.njit(cache=True)
def ranks(scores: FloatArray, ahead: IntArray, same: IntArray) -> None:
    """How many rows have a larger score than each, and how many the same, itself included."""
    m = len(scores)
    if m <= _COUNT_UP_TO:
        for i in range(m):
            above, equal = 0, 0
            for j in range(m):
                above += scores[j] > scores[i]
                equal += scores[j] == scores[i]
            ahead[i], same[i] = above, equal
        return
    order = falling_order(scores)
    first = 0
    while first < m:
        last = first + 1
        while last < m and scores[order[last]] == scores[order[first]]:
            last += 1
        for r in range(first, last):
            ahead[order[r]], same[order[r]] = first, last - first
        first = last


@parallel_kernel()
def _fill_slots(
    mine: Share, indptr: IntArray, document: IntArray, position_index: IntArray, scores: FloatArray,
    weights: FloatArray, discount: FloatArray,
) -> None:  # fmt: skip
    for slate in range(mine[0], mine[1]):
        a, b = indptr[slate], indptr[slate + 1]
        m = b - a
        own = np.empty(m)
        for i in range(m):
            own[i] = scores[document[a + i]]
        ahead, same = np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
        ranks(own, ahead, same)
        for i in range(m):
            # One slot is taken as it is: no sum that is divided again, so no rounding.
            first, equal = a + ahead[i], same[i]
            shared = weights[position_index[first]]
            if equal > 1:
                for r in range(first + 1, first + equal):
                    shared += weights[position_index[r]]
                shared /= equal
            discount[a + i] = shared
