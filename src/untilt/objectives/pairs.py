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

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.errors import OptionError
from untilt.objectives.pair_kernels import bake, sum_losses_by_place, sum_slopes
from untilt.objectives.units import PairUnits

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
