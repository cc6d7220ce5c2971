"""Row units: slates with one weight per document, for losses that set it against all others.

Where a pair's weight is W[k] and the other side is every other shown document, the sessions of a
slate leave one number per document behind,

    weight_i = sum over sessions of count * gain_i * W[k_i]

whatever was clicked together. Counts and repeated sessions are then the same sum.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray

# Fixed number of blocks whatever the number of threads: sums are then the same for any of them.
_BLOCKS = 64


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
    weight = np.bincount(at, weights=value, minlength=int(slates[-1]))
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
    n_blocks = max(1, min(_BLOCKS, len(query_ptr) - 1))
    wanted = np.linspace(0, rows[-1], n_blocks + 1)[1:-1]
    cuts = np.searchsorted(rows, wanted)
    return np.concatenate([[0], query_ptr[cuts], [len(indptr) - 1]]).astype(np.int64)
