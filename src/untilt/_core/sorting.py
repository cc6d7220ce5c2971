"""Orders made by compiled code: of short lists inside of it, and of rows by their group.

numba's own `argsort` takes one to two seconds to compile in each kernel that calls it, and again in
each kernel that calls that one.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray

_RUN = 20  # rows that are put in order by insertion, before runs are merged


@nb.njit(cache=True)
def falling_order(values: FloatArray) -> IntArray:
    """Rows from the largest value down; equal values stay in the order of their rows."""
    n = len(values)
    order = np.arange(n)
    for begin in range(0, n, _RUN):
        for i in range(begin + 1, min(begin + _RUN, n)):
            row, value, j = order[i], values[order[i]], i
            while j > begin and values[order[j - 1]] < value:
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
    upper, width = np.empty(n if n > _RUN else 0, dtype=np.int64), _RUN
    while width < n:
        for begin in range(0, n - width, 2 * width):
            for r in range(width):
                upper[r] = order[begin + r]
            i, j, at, end = 0, begin + width, begin, min(begin + 2 * width, n)
            while i < width:
                if j == end or values[upper[i]] >= values[order[j]]:
                    order[at] = upper[i]
                    i += 1
                else:
                    order[at] = order[j]
                    j += 1
                at += 1
        width *= 2
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
