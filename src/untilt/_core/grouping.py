"""Grouping equal ragged lists: by a 64-bit hash, then every merge checked value by value.

Two lists that share a hash are never merged unless they are equal.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, IntArray


@dataclass(frozen=True)
class Groups:
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
    rows = _as_words(row_keys, int(indptr[-1]))
    heads = _as_words(list_keys, len(indptr) - 1)
    hashes = _hash_lists(indptr, rows, heads)
    order = np.argsort(hashes, kind="stable")
    leader = _leaders(order, hashes, indptr, rows, heads)
    first, group_of_list = np.unique(leader, return_inverse=True)
    return Groups(group_of_list.astype(np.int64), first)


def _as_words(keys: list[AnyArray], n: int) -> AnyArray:
    """Every key as exact 64-bit words, shape (n, number of keys)."""
    words = np.empty((n, len(keys)), dtype=np.uint64)
    for column, key in enumerate(keys):
        if np.issubdtype(key.dtype, np.floating):
            # + 0.0 makes -0.0 and 0.0 the same word.
            words[:, column] = (key.astype(np.float64) + 0.0).view(np.uint64)
        else:
            words[:, column] = key.astype(np.int64).view(np.uint64)
    return words


@nb.njit(cache=True)
def _mix(state: np.uint64, word: np.uint64) -> np.uint64:
    """One round of a splitmix-like hash: multiply, shift, add the next word."""
    z = (state ^ word) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return z ^ (z >> np.uint64(32))


@nb.njit(parallel=True, cache=True)
def _hash_lists(indptr: IntArray, rows: AnyArray, heads: AnyArray) -> AnyArray:
    n_lists = len(indptr) - 1
    hashes = np.empty(n_lists, dtype=np.uint64)
    for i in nb.prange(n_lists):
        state = np.uint64(indptr[i + 1] - indptr[i] + 1)
        for column in range(heads.shape[1]):
            state = _mix(state, heads[i, column])
        for row in range(indptr[i], indptr[i + 1]):
            for column in range(rows.shape[1]):
                state = _mix(state, rows[row, column])
        hashes[i] = state
    return hashes


@nb.njit(cache=True)
def _equal(a: int, b: int, indptr: IntArray, rows: AnyArray, heads: AnyArray) -> bool:
    length = indptr[a + 1] - indptr[a]
    if indptr[b + 1] - indptr[b] != length:
        return False
    for column in range(heads.shape[1]):
        if heads[a, column] != heads[b, column]:
            return False
    for offset in range(length):
        for column in range(rows.shape[1]):
            if rows[indptr[a] + offset, column] != rows[indptr[b] + offset, column]:
                return False
    return True


@nb.njit(cache=True)
def _leaders(
    order: IntArray, hashes: AnyArray, indptr: IntArray, rows: AnyArray, heads: AnyArray
) -> IntArray:
    """For each list, the first equal list. `order` is a stable sort, so leaders come first."""
    leader = np.empty(len(order), dtype=np.int64)
    start = 0
    for place in range(len(order)):
        i = order[place]
        if place == 0 or hashes[i] != hashes[order[place - 1]]:
            start = place
        leader[i] = i
        # Nearly always the run's first list is equal; the loop runs on only after a true collision.
        for earlier in range(start, place):
            candidate = order[earlier]
            if leader[candidate] == candidate and _equal(i, candidate, indptr, rows, heads):
                leader[i] = candidate
                break
    return leader
