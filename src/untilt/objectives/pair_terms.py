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


# Pairs of one list that kept its labels, walked in the order of the present ranking.
#
# With rows sorted by score every pair has its better-ranked row first, so that |D_a - D_b| and
# |s_a - s_b| need no sign, truncation ends the outer loop instead of asking at every pair, and the
# inner loop has no branch left: processors do four or eight pairs at a time.

# With Python's rule that division by zero raises, no loop with a division is vectorised: kernels
# take error_model="numpy" beside this, and never divide by zero.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


@nb.njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def ranked_label_pairs(
    length: int, s: FloatArray, e: FloatArray, gain: FloatArray, place: IntArray,
    discount: FloatArray, table: FloatArray, scale: float, sigma: float, plain: bool,
    against_all: bool, pair_norm: bool, truncation: int, forth: FloatArray, back: FloatArray,
    g: FloatArray, h: FloatArray,
) -> None:  # fmt: skip
    """Gradient and curvature of the logistic loss into g and h, all arrays by rank.

    e is exp(sigma s) up to a factor. `forth` and `back` are room for the weights of "a above b" and
    "b above a" of one row a against all b below it.
    """
    g[:length], h[:length] = 0.0, 0.0
    for a in range(min(length - 1, truncation)):
        # Views that begin at 0: with any other start the compiler must mind negative indices.
        below = slice(a + 1, length)
        _weights_below(
            gain[a], gain[below], place[a], place[below], table, scale * sigma, plain, against_all,
            forth[below], back[below],
        )  # fmt: skip
        if len(discount):
            _times_change(discount[a], discount[below], forth[below], back[below])
        if pair_norm:
            _over_distance(s[a], s[below], forth[below], back[below])
        g_a, h_a = _slopes(sigma, e[a], e[below], forth[below], back[below], g[below], h[below])
        g[a] += g_a
        h[a] += h_a


# One loop each, over few arrays: of more than about five the compiler does not check whether they
# overlap, and then does one pair at a time.


@nb.njit(cache=True, fastmath=FASTMATH, error_model="numpy", inline="always")
def _weights_below(
    gain_a: float, gain_b: FloatArray, k: int, place_b: IntArray, table: FloatArray, scale: float,
    plain: bool, against_all: bool, forth: FloatArray, back: FloatArray,
) -> None:  # fmt: skip
    if against_all:
        for b in range(len(forth)):
            forth[b], back[b] = gain_a * scale, gain_b[b] * scale
    else:
        for b in range(len(forth)):
            ahead = scale * (gain_a - gain_b[b])
            forth[b], back[b] = max(ahead, 0.0), max(-ahead, 0.0)
    if plain:
        for b in range(len(forth)):
            forth[b], back[b] = scale * (forth[b] > 0.0), scale * (back[b] > 0.0)
    if len(table) > 1:
        for b in range(len(forth)):
            forth[b] *= table[k, place_b[b]]
            back[b] *= table[place_b[b], k]
    elif table[0, 0] != 1.0:
        for b in range(len(forth)):
            forth[b], back[b] = forth[b] * table[0, 0], back[b] * table[0, 0]


@nb.njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _times_change(d_a: float, d_b: FloatArray, forth: FloatArray, back: FloatArray) -> None:
    for b in range(len(forth)):
        delta = abs(d_a - d_b[b])
        forth[b] *= delta
        back[b] *= delta


@nb.njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _over_distance(s_a: float, s_b: FloatArray, forth: FloatArray, back: FloatArray) -> None:
    for b in range(len(forth)):
        factor = 1.0 / (0.01 + (s_a - s_b[b]))
        forth[b] *= factor
        back[b] *= factor


@nb.njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def _slopes(
    sigma: float, e_a: float, e_b: FloatArray, forth: FloatArray, back: FloatArray, g: FloatArray,
    h: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    g_a, h_a = 0.0, 0.0
    for b in range(len(forth)):
        rho = e_b[b] / (e_a + e_b[b])
        slope = back[b] * (1.0 - rho) - forth[b] * rho
        curve = sigma * (forth[b] + back[b]) * rho * (1.0 - rho)
        g_a += slope
        h_a += curve
        g[b] -= slope
        h[b] += curve
    return g_a, h_a
