"""Arrays that cannot be written to, and numbers that are not changed in passing."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from untilt._core.arrays import frozen, handed_over, identifiers, whole_numbers
from untilt.errors import ShapeError


class Column:
    """Like a data frame's column: hands out the very memory it owns."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.values


def read_only_view(array: np.ndarray) -> np.ndarray:
    view = array[:]
    view.flags.writeable = False
    return view


WRITABLE_OWNERS: dict[str, Any] = {
    "array": lambda array: array,
    "view": lambda array: array[::1],
    "read-only view of a writable array": read_only_view,
    "column": Column,
    "pandas series": lambda array: pd.Series(array, copy=False),
    "memoryview": memoryview,
}


@pytest.mark.parametrize("owner", WRITABLE_OWNERS)
def test_frozen_shares_no_writable_memory(owner: str) -> None:
    array = np.array([1.0, 2.0, 3.0])
    kept = frozen(WRITABLE_OWNERS[owner](array))
    assert array.flags.writeable
    array[0] = 9.0
    assert kept.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 5.0


def test_frozen_takes_frozen_arrays_and_casts_without_a_copy_more() -> None:
    kept = frozen([1, 2, 3], np.float32)
    assert kept.dtype == np.float32
    assert frozen(kept) is kept
    assert np.shares_memory(frozen(kept[1:]), kept)
    assert frozen(np.arange(6).reshape(2, 3).T).flags.c_contiguous


def test_handed_over_freezes_the_very_array() -> None:
    array = np.arange(3)
    assert handed_over(array) is array
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([3, 1, 2], [3, 1, 2]),
        (np.array([3, 1], dtype=np.uint8), [3, 1]),
        (np.array([3, 1], dtype=np.uint64), [3, 1]),
        (np.array([3, 1], dtype=object), [3, 1]),
        (["a", "b"], ["a", "b"]),
        (np.array([b"a", b"\xc3\xa9"]), ["a", "é"]),
        (np.array(["a", 1], dtype=object), ["a", "1"]),
        (np.array([2**63 + 1, 1], dtype=np.uint64), ["9223372036854775809", "1"]),
        ([1.5, 2.0], ["1.5", "2.0"]),
        ([], []),
    ],
)
def test_identifiers_are_whole_numbers_or_text(given: Any, expected: list) -> None:
    ids = identifiers(given)
    assert ids.tolist() == expected
    assert not ids.flags.writeable
    assert ids.dtype == (np.int64 if expected and isinstance(expected[0], int) else object)


def test_identifiers_leave_their_input_alone() -> None:
    given = np.array([1, 2, 3])
    ids = identifiers(given)
    given[0] = 7
    assert ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "given",
    [[1, 2], np.array([1.0, 2.0]), np.array([1, 2], np.int64), np.array([1, 2], object), [True, 2]],
)
def test_whole_numbers_that_fit(given: Any) -> None:
    numbers = whole_numbers(given, np.int32, what="position")
    assert numbers.tolist() == [1, 2]
    assert numbers.dtype == np.int32
    assert not numbers.flags.writeable


def test_whole_numbers_are_copied_from_a_writable_array() -> None:
    given = np.array([1, 2], dtype=np.int32)
    numbers = whole_numbers(given, np.int32, what="position")
    given[0] = 5
    assert numbers.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("given", "found"),
    [([1.0, 1.5], "1.5"), ([2**32 + 1], "4294967297"), ([np.nan], "nan"), ([np.inf], "inf")],
)
def test_numbers_that_a_cast_would_change_are_refused(given: list, found: str) -> None:
    with pytest.raises(ShapeError, match=f"position must hold whole numbers.* Got {found} instead"):
        whole_numbers(given, np.int32, what="position")


def test_text_is_no_whole_number() -> None:
    with pytest.raises(ShapeError, match=r"position must hold whole numbers\. Got values of type"):
        whole_numbers(["1", "2"], np.int32, what="position")
