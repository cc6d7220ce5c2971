"""The pair objective: loss, gradient, hessian and the table of losses S[k, l].

For each pair of a unit, with x = s_i - s_j and weights w_ij = W[k_i, k_j] above_ij:

    loss     = delta (w_ij phi(x) + w_ji phi(-x))    phi(x) = log(1 + exp(-sigma x)) (logistic)
                                                     or max(0, 1 - x) (hinge)
    S[k, l] += delta above_ij phi(x)                 unweighted: what a joint weighting needs
    delta    = 1, or |D(rank_i) - D(rank_j)|         for lambdas: what a swap changes

delta is held fixed in the gradient, as lambdas are ([burges2010lambdamart]_).
"""

from dataclasses import dataclass, replace
from typing import Any

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.errors import OptionError
from untilt.objectives.pair_terms import (
    FASTMATH,
    exponentials,
    label_weights,
    longest_of,
    pair_exponentials,
    pair_phi,
    pair_slope,
    ranked_label_pairs,
    ranks_of,
)
from untilt.objectives.units import PairUnits

# Compiled loops over the pairs of units: weights multiplied in, slopes, losses by place.


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


# What D(rank) is: nothing, 1/log2(1 + rank), or the rank itself.
DELTAS = {"none": 0, "dcg": 1, "ndcg": 1, "arp": 2}
LOSSES = {"logistic": 0, "hinge": 1}


@dataclass(frozen=True, eq=False)
class PairPass:
    """The result of one pass: `S` and `loss` are None or nan where not asked for."""

    gradient: FloatArray
    hessian: FloatArray
    loss: float
    S: FloatArray | None


@dataclass(frozen=True, eq=False)
class PairObjective:
    """A pair loss over units, for any table of pair weights.

    Parameters
    ----------
    units : the collapsed pair statistics
    metric : "none", "dcg", "ndcg" or "arp"; "ndcg" differs from "dcg" in the units' norms only
    loss : "logistic" or "hinge"
    sigma : steepness of the logistic loss
    pair_norm : divide a pair's gradient by 0.01 + |s_i - s_j|, which keeps pairs that are far
        apart from taking all the attention (LightGBM's lambdarank_norm, its part that collapses)
    truncation : only pairs with at least one document ranked above this
    """

    units: PairUnits
    metric: str = "ndcg"
    loss: str = "logistic"
    sigma: float = 1.0
    pair_norm: bool = False
    truncation: int | None = None

    def __post_init__(self) -> None:
        if self.metric not in DELTAS:
            raise OptionError(f"metric must be one of {', '.join(DELTAS)}. Got {self.metric!r}.")
        if self.loss not in LOSSES:
            raise OptionError(f"loss must be one of {', '.join(LOSSES)}. Got {self.loss!r}.")
        check_shape(self.sigma, self.truncation)

    def baked(self, table: FloatArray, offset: FloatArray | None = None) -> "PairObjective":
        """The same objective with a table that will not change multiplied into the pairs."""
        units = self.units
        above, below, gain_scale = units.above.copy(), units.below.copy(), units.scale
        shift = np.zeros_like(table) if offset is None else offset
        bake(units.indptr, units.place, units.start, units.shown, table, shift, above, below)
        return replace(self, units=replace(units, above=above, below=below, scale=gain_scale))

    def evaluate(
        self,
        scores: FloatArray,
        table: FloatArray | None = None,
        *,
        want_loss: bool = False,
        want_S: bool = False,
        packed_weighted: bool = False,
    ) -> PairPass:
        """One pass at these scores (one per training row).

        `packed_weighted` says that `baked` has already multiplied the table into the packed pairs;
        label units take it from `table` either way.
        """
        assert not (want_S and packed_weighted), "S is unweighted: ask the objective before baking"
        units, sums = self.units, PassSums.zeros(self.units, want_S=want_S)
        sum_slopes(
            *self._shape(scores), weights_of(table, units), packed_weighted, self.pair_norm,
            want_loss, sums.gradient, sums.hessian, sums.losses,
        )  # fmt: skip
        if want_S:
            sum_losses_by_place(*self._shape(scores), sums.S)
        return sums.result(want_loss=want_loss, want_S=want_S)

    def losses_by_place(self, scores: FloatArray) -> FloatArray:
        """S[k, l] alone: all that a joint weighting asks for, at a third of the price."""
        depth = max(1, self.units.depth)
        S = np.zeros((len(self.units.blocks) - 1, depth, depth))
        sum_losses_by_place(*self._shape(scores), S)
        total: FloatArray = S.sum(axis=0)
        return total

    def _shape(self, scores: FloatArray) -> tuple[Any, ...]:
        """What both kernels begin with."""
        units = self.units
        return (
            np.ascontiguousarray(scores, dtype=np.float64), units.blocks, units.indptr, units.row,
            units.place, units.start, units.above, units.below, units.gain, units.scale,
            units.plain, units.against_all, float(self.sigma), discounts(units, self.metric),
            LOSSES[self.loss], self.truncation or np.iinfo(np.int64).max,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class PassSums:
    """What the kernels add to: rows are written by one block alone, S and losses per block."""

    gradient: FloatArray
    hessian: FloatArray
    S: FloatArray
    losses: FloatArray

    @classmethod
    def zeros(cls, units: PairUnits, *, want_S: bool) -> "PassSums":
        """Empty sums for a pass over these units."""
        n_blocks = len(units.blocks) - 1
        depth = max(1, units.depth) if want_S else 1
        return cls(
            gradient=np.zeros(units.n_rows),
            hessian=np.zeros(units.n_rows),
            S=np.zeros((n_blocks, depth, depth)),
            losses=np.zeros(n_blocks),
        )

    def result(self, *, want_loss: bool, want_S: bool) -> PairPass:
        """The sums over blocks, where asked for."""
        loss = float(self.losses.sum()) if want_loss else float("nan")
        return PairPass(self.gradient, self.hessian, loss, self.S.sum(axis=0) if want_S else None)


def weights_of(table: FloatArray | None, units: PairUnits) -> FloatArray:
    """The table as kernels want it; all ones where there is none."""
    depth = max(1, units.depth)
    return np.ones((depth, depth)) if table is None else np.ascontiguousarray(table, dtype=float)


def discounts(units: PairUnits, metric: str) -> FloatArray:
    """D(rank) for 0-based ranks, of which pairs take the difference; empty where delta is 1."""
    rank = np.arange(int(np.diff(units.indptr).max(initial=0)), dtype=float)
    kind = DELTAS[metric]
    return np.zeros(0) if kind == 0 else 1 / np.log2(rank + 2) if kind == 1 else rank


def check_shape(sigma: float, truncation: int | None) -> None:
    """Raise unless the steepness and the truncation make sense."""
    if not sigma > 0:
        raise OptionError(f"sigma must be above 0. Got {sigma} instead.")
    if truncation is not None and truncation < 1:
        raise OptionError(
            f"truncation must be at least 1. Got {truncation} instead; None takes all pairs."
        )
