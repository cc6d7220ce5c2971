"""Grouping equal ragged lists: by a 64-bit hash, then every merge checked value by value.

Two lists that share a hash are never merged unless they are equal. Keys are read where they lie,
column by column: a log of tens of millions of rows is not copied to be grouped.

Hashes of 64-bit words modulo 2^64, for arrays; `nb.njit` makes the same of them for kernels.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, BoolArray, IntArray, read_only_view
from untilt._core.portable import Portable
from untilt._core.threads import Share, parallel_kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, the step of splitmix64
MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def splitmix64(word: AnyArray) -> AnyArray:
    """The finaliser of splitmix64: each bit of the word changes half of the result's bits.

    No two words have the same result.
    """
    word = (word ^ (word >> np.uint64(30))) * MULTIPLIER
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))


def multiply_shift(word: AnyArray) -> AnyArray:
    """A cheaper hash of two multiplications, for what is compared afterwards."""
    word = word * GOLDEN
    word = (word ^ (word >> np.uint64(29))) * MULTIPLIER
    return word ^ (word >> np.uint64(32))


@dataclass(frozen=True)
class Groups(Portable):
    """Which lists are equal: `group_of_list`, and one member (`first`) to stand for each group.

    Groups are numbered in the order in which their first member appears.
    """

    group_of_list: IntArray
    first: IntArray

    @property
    def n_groups(self) -> int:
        """Number of distinct lists."""
        return len(self.first)


def group_equal_lists(
    indptr: IntArray, row_keys: list[AnyArray], list_keys: list[AnyArray]
) -> Groups:
    """Group lists whose rows agree in all row keys, in order, and which agree in all list keys."""
    rows, heads = [_as_words(key) for key in row_keys], [_as_words(key) for key in list_keys]
    indptr = np.ascontiguousarray(indptr, dtype=np.int64)
    hashes = _hash_lists(indptr, rows, heads)
    leader = _first_of_hash(np.argsort(hashes, kind="stable"), hashes)
    differs = np.zeros(len(leader), dtype=bool)
    for starts, key in _columns(indptr, rows, heads):
        _mark_different(len(leader), leader, starts, key, differs)
    if differs.any():
        _settle_collisions(np.flatnonzero(differs), hashes, leader, indptr, rows, heads)
    return _numbered(leader)


def _columns(
    indptr: IntArray, rows: list[AnyArray], heads: list[AnyArray]
) -> list[tuple[IntArray, AnyArray]]:
    """All keys with their lists; a list key is a row key of lists with one row each."""
    one_each = np.arange(len(indptr))
    columns = [*((one_each, key) for key in heads), *((indptr, key) for key in rows)]
    return [(read_only_view(starts), read_only_view(key)) for starts, key in columns]


def _hash_lists(indptr: IntArray, rows: list[AnyArray], heads: list[AnyArray]) -> AnyArray:
    hashes = np.zeros(len(indptr) - 1, dtype=np.uint64)
    for starts, key in _columns(indptr, rows, heads):
        _mix_in(len(hashes), hashes, starts, key)
    return hashes


def _as_words(key: AnyArray) -> AnyArray:
    """The key as whole numbers that are equal where its values are; no copy where it has them."""
    if np.issubdtype(key.dtype, np.floating):
        key = np.ascontiguousarray(key, dtype=np.float64)
        # -0.0 equals 0.0 but has other bits.
        negative_zero = (key == 0) & np.signbit(key)
        return (key + 0.0 if negative_zero.any() else key).view(np.int64)
    return np.ascontiguousarray(key) if key.dtype != bool else key.astype(np.int8)


def _numbered(leader: IntArray) -> Groups:
    """Groups in the order of their leaders, which stand before all other members."""
    is_first = leader == np.arange(len(leader))
    number = np.cumsum(is_first) - 1
    return Groups(number[leader], np.flatnonzero(is_first))


_mixed = nb.njit(cache=True)(multiply_shift)


@parallel_kernel()
def _mix_in(mine: Share, hashes: AnyArray, indptr: IntArray, key: AnyArray) -> None:
    for i in range(mine[0], mine[1]):
        state = _mixed(hashes[i] ^ np.uint64(indptr[i + 1] - indptr[i] + 1))
        for row in range(indptr[i], indptr[i + 1]):
            state = _mixed(state ^ np.uint64(key[row]))
        hashes[i] = state


def _first_of_hash(order: IntArray, hashes: AnyArray) -> IntArray:
    """For each list, the first list with its hash: `order` is a stable sort."""
    found, leader = hashes[order], np.empty(len(order), dtype=np.int64)
    begin = np.flatnonzero(np.diff(found, prepend=~found[:1]))
    leader[order] = np.repeat(order[begin], np.diff(begin, append=len(order)))
    return leader


@parallel_kernel()
def _mark_different(
    mine: Share, leader: IntArray, indptr: IntArray, key: AnyArray, differs: BoolArray
) -> None:
    for i in range(mine[0], mine[1]):
        begin, other = indptr[i], indptr[leader[i]]
        length = indptr[i + 1] - begin
        if length != indptr[leader[i] + 1] - other:
            differs[i] = True
            continue
        for offset in range(length):
            if key[begin + offset] != key[other + offset]:
                differs[i] = True
                break


def _settle_collisions(
    lists: IntArray,
    hashes: AnyArray,
    leader: IntArray,
    indptr: IntArray,
    rows: list[AnyArray],
    heads: list[AnyArray],
) -> None:
    """Different lists with one hash: told apart by their values. Next to never, so plainly."""
    seen: dict[tuple[int, ...], int] = {}
    for i in lists:
        begin, end = indptr[i], indptr[i + 1]
        values = [int(key[i]) for key in heads]
        for key in rows:
            values.extend(key[begin:end].tolist())
        leader[i] = seen.setdefault((int(hashes[i]), int(end - begin), *values), int(i))


def mixed(word: AnyArray) -> AnyArray:
    """Numbers that look random, the same for the same word: multiply and shift, modulo 2^64."""
    return multiply_shift(word.astype(np.uint64))
