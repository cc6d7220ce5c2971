"""Orders made by compiled code: of short lists inside of it, and of rows by their group.

numba's own `argsort` takes one to two seconds to compile in each kernel that calls it, and again in
each kernel that calls that one.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray


@nb.njit(cache=True)
def falling_order(values: FloatArray) -> IntArray:
    """Rows from the largest value down; equal values stay in the order of their rows.

    Insertion over shrinking gaps (Shell's sort) is the least to compile, in each kernel that calls
    it. Rows break ties, so the sort need not be stable.
    """
    order, gap = np.arange(len(values)), len(values)
    while gap > 1:
        gap = 1 if gap < 5 else 5 * gap // 11
        for i in range(gap, len(order)):
            row, value, j = order[i], values[order[i]], i
            while j >= gap:
                other = order[j - gap]
                if values[other] > value or (values[other] == value and other < row):
                    break
                order[j] = other
                j -= gap
            order[j] = row
    return order


@nb.njit(cache=True)
def counting_order(group: IntArray, n_groups: int) -> tuple[IntArray, IntArray]:
    """Stable counting sort of rows by group: their order, and where each group begins in it."""
    start = np.zeros(n_groups + 1, dtype=np.int64)
    for row in range(len(group)):
        start[group[row] + 1] += 1
    for g in range(n_groups):
        start[g + 1] += start[g]
    free = start[:-1].copy()
    order = np.empty(len(group), dtype=np.int64)
    for row in range(len(group)):
        g = group[row]
        order[free[g]] = row
        free[g] += 1
    return order, start
