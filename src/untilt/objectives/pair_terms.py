"""The terms of one pair and of one list, inlined into the kernels that sum them."""

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray


@nb.njit(cache=True, inline="always")
def longest_of(begin: int, end: int, indptr: IntArray) -> int:
    """Rows of the longest unit: room is asked for once per block, which on short lists is dear."""
    longest = 0
    for u in range(begin, end):
        longest = max(longest, indptr[u + 1] - indptr[u])
    return longest


@nb.njit(cache=True, inline="always")
def ranks_of(s: FloatArray, rank: IntArray) -> None:
    """0-based rank of each score, ties in row order. Counting beats sorting on short lists."""
    length = len(s)
    if length > 64:
        order = np.argsort(-s, kind="mergesort")
        for r in range(length):
            rank[order[r]] = r
        return
    for i in range(length):
        better, own, below = 0, s[i], s[i + 1 :]
        for j in range(i):
            better += s[j] >= own
        for j in range(len(below)):
            better += below[j] > own
        rank[i] = better


@nb.njit(cache=True, inline="always")
def exponentials(s: FloatArray, sigma: float, e: FloatArray) -> bool:
    """exp(sigma s_i) up to a factor; True where the scores lie too far apart for that.

    rho = E_j/(E_i + E_j) then needs one exp per row instead of one per pair. Centred, it holds for
    spreads up to 700/sigma; in a wider list pairs take their own exp (`pair_exponentials`).
    """
    low, high = np.inf, -np.inf
    for i in range(len(s)):
        low, high = min(low, s[i]), max(high, s[i])
    wide = sigma * (high - low) > 700.0
    if not wide:
        for i in range(len(s)):
            e[i] = np.exp(sigma * (s[i] - 0.5 * (low + high)))
    return wide


@nb.njit(cache=True, inline="always")
def pair_exponentials(x: float) -> tuple[float, float]:
    """(E_i, E_j) with E_i/E_j = exp(x), the larger of them 1."""
    return np.exp(min(x, 0.0)), np.exp(min(-x, 0.0))


@nb.njit(cache=True, inline="always")
def pair_slope(
    loss_kind: int, sigma: float, x: float, e_i: float, e_j: float, w_ij: float, w_ji: float
) -> tuple[float, float]:
    """d loss / d s_i (that of s_j is its negative) and the curvature, for x = s_i - s_j."""
    if loss_kind == 0:
        rho = e_j / (e_i + e_j)
        return (
            sigma * (w_ji * (1.0 - rho) - w_ij * rho),
            sigma * sigma * (w_ij + w_ji) * rho * (1.0 - rho),
        )
    return w_ji * (x > -1.0) - w_ij * (x < 1.0), 0.0


@nb.njit(cache=True, inline="always")
def pair_phi(loss_kind: int, sigma: float, x: float, e_i: float, e_j: float) -> tuple[float, float]:
    """(phi(x), phi(-x)); the larger of the two from the smaller, so neither overflows."""
    if loss_kind == 1:
        return max(0.0, 1.0 - x), max(0.0, 1.0 + x)
    # log1p would keep digits of terms far below the others in a sum, at three times the price.
    smaller = np.log(1.0 + min(e_i, e_j) / max(e_i, e_j))
    return smaller + max(-sigma * x, 0.0), smaller + max(sigma * x, 0.0)


@nb.njit(cache=True, inline="always")
def label_weights(
    gain_i: float, gain_j: float, scale: float, plain: bool, against_all: bool
) -> tuple[float, float]:
    """Weights of "i above j" and "j above i" in a unit that kept its labels."""
    if against_all:
        w_ij, w_ji = gain_i, gain_j
    else:
        w_ij, w_ji = max(gain_i - gain_j, 0.0), max(gain_j - gain_i, 0.0)
    if plain:
        w_ij, w_ji = 1.0 * (w_ij > 0.0), 1.0 * (w_ji > 0.0)
    return w_ij * scale, w_ji * scale
