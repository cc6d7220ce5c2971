"""The pair objective: loss, gradient, hessian and the table of losses S[k, l].

For each pair of a slate, with x = s_i - s_j and weights w_ij = W[k_i, k_j] above_ij:

    loss     = delta (w_ij phi(x) + w_ji phi(-x))    phi(x) = log(1 + exp(-sigma x)) (logistic)
                                                     or max(0, 1 - x) (hinge)
    S[k, l] += delta above_ij phi(x)                 unweighted: what a joint weighting needs
    delta    = 1, or |D(rank_i) - D(rank_j)|         for lambdas: what a swap changes

delta is held fixed in the gradient, as lambdas are ([burges2010lambdamart]_).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt.errors import OptionError, check_choice
from untilt.objectives.pair_kernels import multiply_table, sum_losses_by_position, sum_slopes
from untilt.objectives.pair_slates import PairSlates

# D(rank) by metric: nothing, 1/log2(1 + rank), or the rank itself.
DELTAS = {"none": 0, "dcg": 1, "ndcg": 1, "arp": 2}
LOSSES = {"logistic": 0, "hinge": 1}


@dataclass(frozen=True, eq=False)
class PairPass:
    """The result of one pass, gradient and hessian by document; `loss` is nan where not wanted."""

    gradient: FloatArray
    hessian: FloatArray
    loss: float


@dataclass(frozen=True, eq=False)
class PairObjective:
    """A pair loss over slates, for any table of pair weights.

    Parameters
    ----------
    slates : the summed pairs
    metric : "none", "dcg", "ndcg" or "arp"; "ndcg" differs from "dcg" in the norms of lists only
    loss : "logistic" or "hinge"
    sigma : steepness of the logistic loss
    pair_norm : divide a pair's gradient by 0.01 + |s_i - s_j|, so that pairs whose scores are far
        apart do not dominate (LightGBM's lambdarank_norm, its part that collapses)
    truncation : only pairs with at least one document ranked above this
    table : set by `with_table`: the weights, already multiplied into the summed pairs
    """

    slates: PairSlates
    metric: str = "ndcg"
    loss: str = "logistic"
    sigma: float = 1.0
    pair_norm: bool = False
    truncation: int | None = None
    table: FloatArray | None = None

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, tuple(DELTAS))
        check_pass(self.loss, self.sigma, self.truncation)

    def with_table(self, table: FloatArray, offset: FloatArray | None = None) -> "PairObjective":
        """The same objective with weights that will not change, multiplied into the pairs once.

        `offset` is the weight of every shown pair, clicked or not (`Weighting.offset`).
        """
        slates = self.slates
        above, below = slates.above.copy(), slates.below.copy()
        shift = np.zeros_like(table) if offset is None else offset
        multiply_table(
            slates.indptr, slates.position_index, slates.start, slates.count, table, shift,
            above, below,
        )  # fmt: skip
        return replace(self, slates=replace(slates, above=above, below=below), table=table)

    def evaluate(
        self, scores: FloatArray, table: FloatArray | None = None, *, want_loss: bool = False
    ) -> PairPass:
        """One pass at these scores (one per document).

        `table` is W[k, l], all ones where not given; an objective `with_table` has its own.
        """
        fixed = self.table is not None
        gradient, hessian, losses = empty_sums(self.slates)
        sum_slopes(
            *self._arguments(scores), weights_of(self.table if fixed else table, self.slates),
            fixed, self.pair_norm, want_loss, gradient, hessian, losses,
        )  # fmt: skip
        return PairPass(gradient, hessian, float(losses.sum()) if want_loss else float("nan"))

    def losses_by_position(self, scores: FloatArray) -> FloatArray:
        """S[k, l], which a joint weighting asks for, at a third of the cost of a pass."""
        assert self.table is None, "S is unweighted: ask the objective without a table"
        S = empty_table(self.slates)
        sum_losses_by_position(*self._arguments(scores), S)
        total: FloatArray = S.sum(axis=0)
        return total

    def _arguments(self, scores: FloatArray) -> tuple[Any, ...]:
        """The arguments that both kernels begin with."""
        slates = self.slates
        return (
            np.ascontiguousarray(scores, dtype=np.float64), slates.pair_blocks, slates.indptr,
            slates.document, slates.position_index, slates.start, slates.above, slates.below,
            slates.gain, slates.scale, slates.plain, slates.against_all, float(self.sigma),
            self._discounts(), LOSSES[self.loss], self.truncation or np.iinfo(np.int64).max,
        )  # fmt: skip

    def _discounts(self) -> FloatArray:
        """D(rank) for 0-based ranks, of which pairs take the difference; empty where delta is 1."""
        rank = np.arange(int(ragged.lengths(self.slates.indptr).max(initial=0)), dtype=float)
        kind = DELTAS[self.metric]
        return np.zeros(0) if kind == 0 else 1 / np.log2(rank + 2) if kind == 1 else rank


def empty_sums(slates: PairSlates) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradient and hessian, which one block alone writes to for each document; loss by block."""
    n = slates.n_documents
    return np.zeros(n), np.zeros(n), np.zeros(len(slates.pair_blocks) - 1)


def empty_table(slates: PairSlates) -> FloatArray:
    """S[block, k, l]."""
    depth = max(1, slates.depth)
    return np.zeros((len(slates.pair_blocks) - 1, depth, depth))


def weights_of(table: FloatArray | None, slates: PairSlates) -> FloatArray:
    """The table as kernels want it; all ones where there is none."""
    depth = max(1, slates.depth)
    return np.ones((depth, depth)) if table is None else np.ascontiguousarray(table, dtype=float)


def check_pass(loss: str, sigma: float, truncation: int | None) -> None:
    """Raise unless the loss, its steepness and the truncation make sense."""
    check_choice("loss", loss, tuple(LOSSES))
    if not sigma > 0:
        raise OptionError(f"sigma must be above 0. Got {sigma} instead.")
    if truncation is not None and truncation < 1:
        raise OptionError(
            f"truncation must be at least 1. Got {truncation} instead; None takes all pairs."
        )
