"""Ragged lists: rows plus `indptr`, where list i owns rows indptr[i]:indptr[i + 1].

The only list shape in the package. Padding lives inside network code alone.
"""

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import AnyArray, BoolArray, IntArray, whole_numbers
from untilt.errors import ShapeError


def lengths(indptr: IntArray) -> IntArray:
    """Rows in each list."""
    return np.diff(indptr)


def indptr_of(list_lengths: IntArray) -> IntArray:
    """The `indptr` of lists with these lengths."""
    indptr = np.zeros(len(list_lengths) + 1, dtype=np.int64)
    np.cumsum(list_lengths, out=indptr[1:])
    return indptr


def list_of_row(indptr: IntArray) -> IntArray:
    """For every row, the index of the list that owns it."""
    return np.repeat(np.arange(len(indptr) - 1), lengths(indptr))


def index_in_list(indptr: IntArray) -> IntArray:
    """For every row, its 0-based index inside its list."""
    return np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths(indptr))


def rows_of_lists(indptr: IntArray, chosen: IntArray) -> IntArray:
    """The rows of the chosen lists, list after list, in the order asked for."""
    if len(chosen) == len(indptr) - 1 and np.array_equal(chosen, np.arange(len(chosen))):
        return np.arange(indptr[-1])  # all of them: a tenth of the time
    chosen_lengths = lengths(indptr)[chosen]
    starts = np.repeat(indptr[:-1][chosen], chosen_lengths)
    return starts + index_in_list(indptr_of(chosen_lengths))


def keep_rows(indptr: IntArray, keep: BoolArray) -> IntArray:
    """The `indptr` after dropping the rows where `keep` is false."""
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    return kept_before[indptr]


def order_within_lists(indptr: IntArray, *keys: AnyArray) -> IntArray:
    """Row order that sorts each list by the keys (first key first), lists staying in place."""
    return np.lexsort((*reversed(keys), list_of_row(indptr)))


def sums_by_list(indptr: IntArray, values: AnyArray) -> AnyArray:
    """Sum of `values` (one per row, or a row of several) over each list; empty lists give 0.

    Not as differences of a running total: that would round each sum to the size of all of them.
    """
    shape = (len(indptr) - 1, *values.shape[1:])
    sums = np.zeros(shape, dtype=np.result_type(values, np.int64))
    filled = lengths(indptr) > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, indptr[:-1][filled], dtype=sums.dtype)
    return sums


def chosen_lists(chosen: npt.ArrayLike, n_lists: int, *, what: str) -> IntArray:
    """Indices of lists, from indices or from a mask with one entry per list."""
    given = np.asarray(chosen)
    if given.dtype == bool:
        if given.shape != (n_lists,):
            raise ShapeError(
                f"a mask of {what} must have {n_lists} entries. Got {given.shape} instead."
            )
        return np.flatnonzero(given)
    index = whole_numbers(given, np.int64, what=f"indices of {what}")
    if index.size and (index.min() < -n_lists or index.max() >= n_lists):
        raise ShapeError(
            f"indices of {what} must lie between 0 and {n_lists - 1}. "
            f"Got {index.min()} to {index.max()} instead."
        )
    return index


def check_indptr(indptr: IntArray, n_rows: int, *, what: str) -> None:
    """Raise unless `indptr` starts at 0, never falls and ends at the number of rows."""
    if indptr.ndim != 1 or len(indptr) == 0 or indptr[0] != 0:
        raise ShapeError(f"{what}: indptr must be a flat array that starts at 0.")
    if np.any(np.diff(indptr) < 0):
        raise ShapeError(f"{what}: indptr must never fall.")
    if indptr[-1] != n_rows:
        raise ShapeError(
            f"{what}: indptr must end at the number of rows, {n_rows}. Got {indptr[-1]} instead."
        )
