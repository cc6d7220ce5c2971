"""Equal lists are found, and only equal lists: whatever the hash does."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt._core import grouping

TRUE_HASH = grouping._hash_lists
HASHES: dict[str, Callable[..., np.ndarray]] = {
    "true hash": TRUE_HASH,
    "one bucket": lambda *lists: np.zeros_like(TRUE_HASH(*lists)),
    "two buckets": lambda *lists: TRUE_HASH(*lists) % np.uint64(2),
}


@st.composite
def ragged_keys(draw: st.DrawFn) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    lengths = draw(st.lists(st.integers(0, 2), max_size=12))
    n, rows = len(lengths), sum(lengths)

    def column(size: int, values: st.SearchStrategy, dtype: type) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=dtype)

    row_keys = [
        column(rows, st.integers(0, 1), np.int32),
        column(rows, st.sampled_from([0.0, -0.0, 0.5]), np.float64),
    ]
    return np.r_[0, np.cumsum(lengths)].astype(int), row_keys, [column(n, st.integers(-1, 0), int)]


@pytest.mark.parametrize("name", HASHES)
@settings(deadline=None)
@given(keys=ragged_keys())
def test_groups_are_those_of_a_dictionary(name: str, keys: tuple) -> None:
    indptr, row_keys, list_keys = keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_hash_lists", HASHES[name])
        groups = grouping.group_equal_lists(indptr, row_keys, list_keys)
    first_of: dict[tuple, int] = {}
    expected = []
    for i in range(len(indptr) - 1):
        rows = slice(indptr[i], indptr[i + 1])
        key = (
            tuple(column[i] for column in list_keys),
            tuple(zip(*(column[rows].tolist() for column in row_keys), strict=True)),
        )
        expected.append(first_of.setdefault(key, i))
    assert groups.n_groups == len(first_of)
    assert groups.first.tolist() == sorted(first_of.values())
    assert groups.first[groups.group_of_list].tolist() == expected


def test_large_lists_differ_in_the_last_row() -> None:
    row = np.tile(np.arange(1000), 3)
    row[-1] = -1
    groups = grouping.group_equal_lists(np.array([0, 1000, 2000, 3000]), [row], [np.zeros(3, int)])
    assert groups.group_of_list.tolist() == [0, 0, 1]


def test_the_hash_spreads(rng: np.random.Generator) -> None:
    # 20,000 lists that differ in one small number each: no two may share a hash (chance 1e-11).
    rows = np.zeros((20_000, 3), dtype=np.int64)
    rows[np.arange(20_000), rng.integers(0, 3, 20_000)] = np.arange(1, 20_001)
    hashes = TRUE_HASH(np.arange(0, 20_001), [column.copy() for column in rows.T], [])
    assert len(np.unique(hashes)) == 20_000
