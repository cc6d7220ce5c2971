"""The order of short lists, inside compiled code.

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
