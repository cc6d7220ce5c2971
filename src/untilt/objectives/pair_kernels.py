"""Compiled loops over the pairs of units: weights multiplied in, slopes, losses by place."""

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.objectives.label_pairs import FASTMATH, ranked_label_pairs
from untilt.objectives.pair_terms import (
    exponentials,
    label_weights,
    longest_of,
    pair_exponentials,
    pair_phi,
    pair_slope,
    ranks_of,
)


@nb.njit(parallel=True, cache=True)
def bake(
    indptr: IntArray,
    place: IntArray,
    start: IntArray,
    shown: FloatArray,
    table: FloatArray,
    offset: FloatArray,
    above: FloatArray,
    below: FloatArray,
) -> None:
    """w_ij = W[k_i, k_j] above_ij + offset[k_i, k_j] sessions, kept at or above 0.

    A negative weight makes the loss unbounded. Moving it to the other direction with its sign
    turned keeps the net preference w_ij - w_ji, which is what is unbiased.
    """
    for u in nb.prange(len(start)):
        if start[u] < 0:
            continue
        begin = indptr[u]
        for i in range(indptr[u + 1] - begin):
            k = place[begin + i]
            for j in range(i):
                l = place[begin + j]  # noqa: E741  the formula's symbol
                at = start[u] + i * (i - 1) // 2 + j
                w_ij = above[at] * table[k, l] + offset[k, l] * shown[u]
                w_ji = below[at] * table[l, k] + offset[l, k] * shown[u]
                above[at] = max(w_ij, 0.0) + max(-w_ji, 0.0)
                below[at] = max(w_ji, 0.0) + max(-w_ij, 0.0)


@nb.njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def sum_slopes(
    scores: FloatArray, bounds: IntArray, indptr: IntArray, row: IntArray, place: IntArray,
    start: IntArray, above: FloatArray, below: FloatArray, gain: FloatArray, scale: FloatArray,
    plain: bool, against_all: bool, sigma: float, discount: FloatArray, loss_kind: int,
    truncation: int, table: FloatArray, packed_weighted: bool, pair_norm: bool, want_loss: bool,
    gradient: FloatArray, hessian: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    """Gradient, hessian and, where wanted, the loss: each block of units writes rows of its own."""
    for block in nb.prange(len(bounds) - 1):
        longest = longest_of(bounds[block], bounds[block + 1], indptr)
        own, e, d = np.empty(longest), np.empty(longest), np.empty(longest)
        g, h, ranks = np.empty(longest), np.empty(longest), np.empty(longest, np.int64)
        s_by_rank, e_by_rank = np.empty(longest), np.empty(longest)
        gain_by_rank, place_by_rank = np.empty(longest), np.empty(longest, np.int64)
        forth, back = np.empty(longest), np.empty(longest)
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            if length < 2:
                continue
            s, rank = own[:length], ranks[:length]
            for i in range(length):
                s[i] = scores[row[begin + i]]
            ranks_of(s, rank)
            wide = exponentials(s, sigma, e)
            if start[u] < 0 and loss_kind == 0 and not wide and not want_loss:
                for i in range(length):
                    r = rank[i]
                    s_by_rank[r], e_by_rank[r] = s[i], e[i]
                    gain_by_rank[r], place_by_rank[r] = gain[begin + i], place[begin + i]
                ranked_label_pairs(
                    length, s_by_rank, e_by_rank, gain_by_rank, place_by_rank, discount, table,
                    scale[u], sigma, plain, against_all, pair_norm, truncation, forth, back, g, h,
                )  # fmt: skip
                for i in range(length):
                    gradient[row[begin + i]] += g[rank[i]]
                    hessian[row[begin + i]] += h[rank[i]]
                continue
            for i in range(length):
                g[i], h[i] = 0.0, 0.0
                if len(discount):
                    d[i] = discount[rank[i]]
            for i in range(length):
                k = place[begin + i]
                gi, hi = 0.0, 0.0
                for j in range(i):
                    if rank[i] >= truncation and rank[j] >= truncation:
                        continue
                    if start[u] >= 0:
                        at = start[u] + i * (i - 1) // 2 + j
                        w_ij, w_ji = above[at], below[at]
                    else:
                        w_ij, w_ji = label_weights(
                            gain[begin + i], gain[begin + j], scale[u], plain, against_all
                        )
                    if w_ij == 0.0 and w_ji == 0.0:
                        continue
                    if start[u] < 0 or not packed_weighted:
                        l = place[begin + j]  # noqa: E741  the formula's symbol
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
                gradient[row[begin + i]] += g[i]
                hessian[row[begin + i]] += h[i]


@nb.njit(parallel=True, cache=True, fastmath=FASTMATH, error_model="numpy")
def sum_losses_by_place(
    scores: FloatArray, bounds: IntArray, indptr: IntArray, row: IntArray, place: IntArray,
    start: IntArray, above: FloatArray, below: FloatArray, gain: FloatArray, scale: FloatArray,
    plain: bool, against_all: bool, sigma: float, discount: FloatArray, loss_kind: int,
    truncation: int, S: FloatArray,
) -> None:  # fmt: skip
    """S[block, k, l], the unweighted losses of pairs by where the two stood."""
    for block in nb.prange(len(bounds) - 1):
        longest = longest_of(bounds[block], bounds[block + 1], indptr)
        own, e, d = np.empty(longest), np.empty(longest), np.empty(longest)
        ranks = np.empty(longest, np.int64)
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            if length < 2:
                continue
            s, rank = own[:length], ranks[:length]
            for i in range(length):
                s[i] = scores[row[begin + i]]
            ranks_of(s, rank)
            wide = exponentials(s, sigma, e)
            if len(discount):
                for i in range(length):
                    d[i] = discount[rank[i]]
            for i in range(length):
                k = place[begin + i]
                for j in range(i):
                    if rank[i] >= truncation and rank[j] >= truncation:
                        continue
                    if start[u] >= 0:
                        at = start[u] + i * (i - 1) // 2 + j
                        w_ij, w_ji = above[at], below[at]
                    else:
                        w_ij, w_ji = label_weights(
                            gain[begin + i], gain[begin + j], scale[u], plain, against_all
                        )
                    if w_ij == 0.0 and w_ji == 0.0:
                        continue
                    l = place[begin + j]  # noqa: E741  the formula's symbol
                    delta = abs(d[i] - d[j]) if len(discount) else 1.0
                    x, e_i, e_j = s[i] - s[j], e[i], e[j]
                    if wide:
                        e_i, e_j = pair_exponentials(sigma * x)
                    phi_ij, phi_ji = pair_phi(loss_kind, sigma, x, e_i, e_j)
                    S[block, k, l] += delta * w_ij * phi_ij
                    S[block, l, k] += delta * w_ji * phi_ji
