"""Ragged helpers against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from untilt._core import ragged
from untilt.errors import ShapeError

some_lengths = st.lists(st.integers(0, 4), max_size=8)


def lists_of(indptr: np.ndarray, values: np.ndarray) -> list[list]:
    return [
        values[a:b].tolist() for a, b in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)
    ]


@given(some_lengths)
def test_lengths_and_places(lengths: list[int]) -> None:
    indptr = ragged.indptr_of(np.array(lengths, dtype=int))
    assert ragged.lengths(indptr).tolist() == lengths
    assert ragged.list_of_row(indptr).tolist() == [
        i for i, n in enumerate(lengths) for _ in range(n)
    ]
    assert ragged.index_in_list(indptr).tolist() == [t for n in lengths for t in range(n)]


@given(some_lengths, st.data())
def test_rows_of_lists_in_the_order_asked_for(lengths: list[int], data: st.DataObject) -> None:
    indptr = ragged.indptr_of(np.array(lengths, dtype=int))
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1))) if lengths else []
    rows = ragged.rows_of_lists(indptr, np.array(chosen, dtype=int))
    assert rows.tolist() == [row for i in chosen for row in range(indptr[i], indptr[i + 1])]


@given(some_lengths, st.data())
def test_keep_rows(lengths: list[int], data: st.DataObject) -> None:
    indptr = ragged.indptr_of(np.array(lengths, dtype=int))
    n = sum(lengths)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    expected = [[row for row in rows if keep[row]] for rows in lists_of(indptr, np.arange(n))]
    assert lists_of(ragged.keep_rows(indptr, keep), np.flatnonzero(keep)) == expected


@given(some_lengths, st.data())
def test_order_within_lists_sorts_by_the_first_key_first(
    lengths: list[int], data: st.DataObject
) -> None:
    indptr = ragged.indptr_of(np.array(lengths, dtype=int))
    n = sum(lengths)
    small = st.lists(st.integers(0, 2), min_size=n, max_size=n)
    first, second = (np.array(data.draw(small), dtype=int) for _ in range(2))
    order = ragged.order_within_lists(indptr, first, second)
    expected = [
        sorted(rows, key=lambda row: (first[row], second[row]))
        for rows in lists_of(indptr, np.arange(n))
    ]
    assert lists_of(indptr, order) == expected


@given(some_lengths)
def test_sums_by_list(lengths: list[int]) -> None:
    indptr = ragged.indptr_of(np.array(lengths, dtype=int))
    values = np.arange(1, sum(lengths) + 1) ** 2
    expected = [sum(members) for members in lists_of(indptr, values)]
    assert ragged.sums_by_list(indptr, values).tolist() == expected
    assert ragged.sums_by_list(indptr, values / 4).tolist() == [total / 4 for total in expected]
    odd = [sum(v % 2 for v in members) for members in lists_of(indptr, values)]
    assert ragged.sums_by_list(indptr, values % 2 == 1).tolist() == odd


def test_a_large_list_does_not_round_the_sum_of_a_small_one() -> None:
    assert ragged.sums_by_list(np.array([0, 1, 2]), np.array([1e17, 1.0])).tolist() == [1e17, 1.0]


def test_chosen_lists_from_indices_and_masks() -> None:
    assert ragged.chosen_lists([2, 0, 2], 3, what="lists").tolist() == [2, 0, 2]
    assert ragged.chosen_lists([-1], 3, what="lists").tolist() == [-1]
    assert ragged.chosen_lists([], 3, what="lists").tolist() == []
    assert ragged.chosen_lists(np.array([True, False, True]), 3, what="lists").tolist() == [0, 2]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([True, False], r"a mask of lists must have 3 entries. Got \(2,\)"),
        ([0, 3], "indices of lists must lie between 0 and 2. Got 0 to 3"),
        ([-4], "indices of lists must lie between 0 and 2. Got -4 to -4"),
        ([0.5], "indices of lists must hold whole numbers"),
    ],
)
def test_lists_that_are_not_there(chosen: list, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ragged.chosen_lists(chosen, 3, what="lists")


@pytest.mark.parametrize(
    ("indptr", "message"),
    [
        ([], "JudgedLists: indptr must be a flat array that starts at 0"),
        ([1, 5], "indptr must be a flat array that starts at 0"),
        ([[0, 5]], "indptr must be a flat array that starts at 0"),
        ([0, 4, 3, 5], "indptr must never fall"),
        ([0, 4], "indptr must end at the number of rows, 5. Got 4 instead"),
    ],
)
def test_check_indptr(indptr: list, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ragged.check_indptr(np.array(indptr, dtype=np.int64), 5, what="JudgedLists")
    ragged.check_indptr(np.array([0, 0, 5, 5]), 5, what="JudgedLists")
