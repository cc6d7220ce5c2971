"""Compiled loops over the pairs of slates, and the terms of one pair that they share.

Slates come in blocks of whole queries: a block writes to documents of its own alone, so blocks run
in parallel and give the same sums for any number of threads.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.sorting import falling_order
from untilt._core.threads import Share, parallel_kernel

# With Python's rule that division by zero raises, no loop with a division is vectorised: kernels
# take error_model="numpy" beside this, and never divide by zero.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


@parallel_kernel()
def multiply_table(
    mine: Share, indptr: IntArray, position_index: IntArray, start: IntArray, count: FloatArray,
    table: FloatArray, offset: FloatArray, above: FloatArray, below: FloatArray,
) -> None:  # fmt: skip
    """w_ij = W[k_i, k_j] above_ij + offset[k_i, k_j] sessions into the pairs, kept at or above 0.

    A negative weight makes the loss unbounded. Moving it to the other direction with its sign
    turned keeps the net preference w_ij - w_ji, which is what is unbiased.
    """
    for u in range(mine[0], mine[1]):
        if start[u] < 0:
            continue
        begin = indptr[u]
        for i in range(indptr[u + 1] - begin):
            k = position_index[begin + i]
            for j in range(i):
                l = position_index[begin + j]  # noqa: E741  the formula's symbol
                at = start[u] + i * (i - 1) // 2 + j
                w_ij = above[at] * table[k, l] + offset[k, l] * count[u]
                w_ji = below[at] * table[l, k] + offset[l, k] * count[u]
                above[at] = max(w_ij, 0.0) + max(-w_ji, 0.0)
                below[at] = max(w_ji, 0.0) + max(-w_ij, 0.0)


@parallel_kernel(fastmath=FASTMATH, error_model="numpy")
def sum_slopes(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    position_index: IntArray, start: IntArray, above: FloatArray, below: FloatArray,
    gain: FloatArray, scale: FloatArray, plain: bool, against_all: bool, sigma: float,
    discount: FloatArray, loss_kind: int, truncation: int, table: FloatArray, weighted: bool,
    pair_norm: bool, want_loss: bool, in_order: bool | None, gradient: FloatArray,
    hessian: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    """Gradient, hessian and, where wanted, the loss of the weighted pairs.

    Lists that keep labels are summed in order of rank unless `in_order` is None: numba then leaves
    that part out, half of what there is to compile.
    """
    for block in range(mine[0], mine[1]):
        longest = longest_of(bounds[block], bounds[block + 1], indptr)
        own, e, d = np.empty(longest), np.empty(longest), np.empty(longest)
        g, h, ranks = np.empty(longest), np.empty(longest), np.empty(longest, np.int64)
        s_by_rank, e_by_rank = np.empty(longest), np.empty(longest)
        gain_by_rank, position_by_rank = np.empty(longest), np.empty(longest, np.int64)
        forth, back = np.empty(longest), np.empty(longest)
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            if length < 2:
                continue
            s, rank = own[:length], ranks[:length]
            for i in range(length):
                s[i] = scores[document[begin + i]]
            ranks_of(s, rank)
            wide = exponentials(s, sigma, e)
            ranked = start[u] < 0 and loss_kind == 0 and not wide and not want_loss
            if in_order is not None and ranked:
                for i in range(length):
                    r = rank[i]
                    s_by_rank[r], e_by_rank[r] = s[i], e[i]
                    gain_by_rank[r], position_by_rank[r] = (
                        gain[begin + i],
                        position_index[begin + i],
                    )
                ranked_label_pairs(
                    length, s_by_rank, e_by_rank, gain_by_rank, position_by_rank, discount, table,
                    scale[u], sigma, plain, against_all, pair_norm, truncation, forth, back, g, h,
                )  # fmt: skip
                for i in range(length):
                    gradient[document[begin + i]] += g[rank[i]]
                    hessian[document[begin + i]] += h[rank[i]]
                continue
            for i in range(length):
                g[i], h[i] = 0.0, 0.0
                if len(discount):
                    d[i] = discount[rank[i]]
            for i in range(length):
                k = position_index[begin + i]
                gi, hi = 0.0, 0.0
                for j in range(i):
                    if rank[i] >= truncation and rank[j] >= truncation:
                        continue
                    w_ij, w_ji = pair_weights(
                        u, i, j, indptr, start, above, below, gain, scale, plain, against_all
                    )
                    if w_ij == 0.0 and w_ji == 0.0:
                        continue
                    if start[u] < 0 or not weighted:
                        l = position_index[begin + j]  # noqa: E741  the formula's symbol
                        w_ij, w_ji = w_ij * table[k, l], w_ji * table[l, k]
                    delta = abs(d[i] - d[j]) if len(discount) else 1.0
                    x, e_i, e_j = s[i] - s[j], e[i], e[j]
                    if wide:
                        e_i, e_j = pair_exponentials(sigma * x)
                    slope, curve = pair_slope(loss_kind, sigma, x, e_i, e_j, w_ij, w_ji)
                    if want_loss:
                        phi_ij, phi_ji = pair_phi(loss_kind, sigma, x, e_i, e_j)
                        losses[block] += delta * (w_ij * phi_ij + w_ji * phi_ji)
                    if pair_norm:
                        delta = delta / (0.01 + abs(x))
                    gi += slope * delta
                    hi += curve * delta
                    g[j] -= slope * delta
                    h[j] += curve * delta
                g[i] += gi
                h[i] += hi
            for i in range(length):
                gradient[document[begin + i]] += g[i]
                hessian[document[begin + i]] += h[i]


@parallel_kernel(fastmath=FASTMATH, error_model="numpy")
def sum_losses_by_position(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    position_index: IntArray, start: IntArray, above: FloatArray, below: FloatArray,
    gain: FloatArray, scale: FloatArray, plain: bool, against_all: bool, sigma: float,
    discount: FloatArray, loss_kind: int, truncation: int, pair_norm: bool, S: FloatArray,
) -> None:  # fmt: skip
    """S[block, k, l], the unweighted losses of pairs by their positions, normed as slopes are."""
    for block in range(mine[0], mine[1]):
        longest = longest_of(bounds[block], bounds[block + 1], indptr)
        own, e, d = np.empty(longest), np.empty(longest), np.empty(longest)
        ranks = np.empty(longest, np.int64)
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            if length < 2:
                continue
            s, rank = own[:length], ranks[:length]
            for i in range(length):
                s[i] = scores[document[begin + i]]
            ranks_of(s, rank)
            wide = exponentials(s, sigma, e)
            if len(discount):
                for i in range(length):
                    d[i] = discount[rank[i]]
            for i in range(length):
                k = position_index[begin + i]
                for j in range(i):
                    if rank[i] >= truncation and rank[j] >= truncation:
                        continue
                    w_ij, w_ji = pair_weights(
                        u, i, j, indptr, start, above, below, gain, scale, plain, against_all
                    )
                    if w_ij == 0.0 and w_ji == 0.0:
                        continue
                    l = position_index[begin + j]  # noqa: E741  the formula's symbol
                    delta = abs(d[i] - d[j]) if len(discount) else 1.0
                    x, e_i, e_j = s[i] - s[j], e[i], e[j]
                    if wide:
                        e_i, e_j = pair_exponentials(sigma * x)
                    phi_ij, phi_ji = pair_phi(loss_kind, sigma, x, e_i, e_j)
                    if pair_norm:
                        delta = delta / (0.01 + abs(x))
                    S[block, k, l] += delta * w_ij * phi_ij
                    S[block, l, k] += delta * w_ji * phi_ji


@nb.njit(cache=True, inline="always")
def longest_of(begin: int, end: int, indptr: IntArray) -> int:
    """Rows of the longest slate: memory is allocated once per block, not once per short list."""
    longest = 0
    for u in range(begin, end):
        longest = max(longest, indptr[u + 1] - indptr[u])
    return longest


@nb.njit(cache=True, inline="always")
def ranks_of(s: FloatArray, rank: IntArray) -> None:
    """0-based rank of each score, ties in row order. Counting beats sorting on short lists."""
    length = len(s)
    if length > 64:
        order = falling_order(s)
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
def pair_weights(
    u: int, i: int, j: int, indptr: IntArray, start: IntArray, above: FloatArray,
    below: FloatArray, gain: FloatArray, scale: FloatArray, plain: bool, against_all: bool,
) -> tuple[float, float]:  # fmt: skip
    """Weights of "i above j" and "j above i" for rows i > j of slate u, before any table."""
    if start[u] >= 0:
        at = start[u] + i * (i - 1) // 2 + j
        return above[at], below[at]
    gain_i, gain_j = gain[indptr[u] + i], gain[indptr[u] + j]
    if against_all:
        w_ij, w_ji = gain_i, gain_j
    else:
        w_ij, w_ji = max(gain_i - gain_j, 0.0), max(gain_j - gain_i, 0.0)
    if plain:
        w_ij, w_ji = 1.0 * (w_ij > 0.0), 1.0 * (w_ji > 0.0)
    return w_ij * scale[u], w_ji * scale[u]


@nb.njit(cache=True, fastmath=FASTMATH, error_model="numpy")
def ranked_label_pairs(
    length: int, s: FloatArray, e: FloatArray, gain: FloatArray, position_index: IntArray,
    discount: FloatArray, table: FloatArray, scale: float, sigma: float, plain: bool,
    against_all: bool, pair_norm: bool, truncation: int, forth: FloatArray, back: FloatArray,
    g: FloatArray, h: FloatArray,
) -> None:  # fmt: skip
    """Gradient and curvature of the logistic loss of one list that kept its labels, into g and h.

    All arrays are in order of rank: |D_a - D_b| and |s_a - s_b| then need no sign, truncation ends
    the outer loop instead of being asked at every pair, and the inner loops have no branch left, so
    that processors do four or eight pairs at a time. e is exp(sigma s) up to a factor; `forth` and
    `back` take the weights of "a above b" and "b above a" of one row a against all b below it.
    """
    g[:length], h[:length] = 0.0, 0.0
    for a in range(min(length - 1, truncation)):
        # Views that begin at 0: with any other start the compiler must mind negative indices.
        below = slice(a + 1, length)
        _weights_below(
            gain[a], gain[below], position_index[a], position_index[below], table, scale * sigma,
            plain, against_all, forth[below], back[below],
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
    gain_a: float, gain_b: FloatArray, k: int, position_b: IntArray, table: FloatArray,
    scale: float, plain: bool, against_all: bool, forth: FloatArray, back: FloatArray,
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
            forth[b] *= table[k, position_b[b]]
            back[b] *= table[position_b[b], k]
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
