"""Pairwise debiasing: click and no-click bias learned along with the ranker."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.catalog import method, storable
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.weighting.base import JointWeighting


@storable
class Ratios(NamedTuple):
    """t+ (bias at click positions) and t- (bias at no-click positions), both 1 at position 1."""

    plus: FloatArray
    minus: FloatArray


@method(
    "weighting", "pairwise-debiasing", title="Pairwise debiasing", order=40,
    choose=("train", "select", "run", "usual"), reference="hu2019unbiased", drop=10,
    rests_on="relevance model",
    note="clicks; learns the bias of clicks and no-clicks along with the ranker, without a curve",
)  # fmt: skip
@dataclass(frozen=True)
class PairwiseDebiasing(JointWeighting):
    r"""W[k, l] = 1 / (t+_k t-_l), refreshed each round from S[k, l] ([hu2019unbiased]_).

    .. math::
        t^+_k = [ \sum_l S_{kl} / t^-_l \; / \; \sum_l S_{1l} / t^-_l ]^{1/(p+1)},
        t^-_l = [ \sum_k S_{kl} / t^+_k \; / \; \sum_k S_{k1} / t^+_k ]^{1/(p+1)}

    (equations 30 and 31; S is the summed unweighted loss of pairs clicked at k, unclicked at l).
    Needs no curve, but assumes that clicks are proportional to relevance and no-clicks to
    irrelevance at each position, which the position-based model does not satisfy exactly. Larger
    `p` holds the ratios closer to 1.
    """

    p: float = 0.0
    # Ratios outside [floor, 1/floor] come from positions with next to no clicks; unchecked, one
    # such position takes over the whole gradient.
    floor: float = 1e-3

    def __post_init__(self) -> None:
        if not self.p >= 0:
            raise OptionError(f"p must be at least 0. Got {self.p} instead.")
        if not 0 < self.floor <= 1:
            raise OptionError(f"floor must lie above 0 and up to 1. Got {self.floor} instead.")

    def table(self, depth: int) -> FloatArray:
        """The start: all ones."""
        return np.ones((depth, depth))

    def update(self, S: FloatArray, state: Ratios | None) -> Ratios:
        """Equations 30 and 31, both from the ratios of the round before."""
        depth = len(S)
        before = Ratios(np.ones(depth), np.ones(depth)) if state is None else state
        exponent = 1 / (self.p + 1)
        plus = self._ratio(S @ (1 / before.minus), exponent)
        minus = self._ratio((1 / before.plus) @ S, exponent)
        return Ratios(plus, minus)

    def _ratio(self, losses: FloatArray, exponent: float) -> FloatArray:
        if losses[0] <= 0:
            raise OptionError(
                "pairwise debiasing compares every position with position 1, but position 1 has "
                "no clicked-unclicked pair in this log. Use a weighting with a known bias instead."
            )
        return np.clip((losses / losses[0]) ** exponent, self.floor, 1 / self.floor)

    def table_of(self, state: Ratios) -> FloatArray:
        """1 / (t+_k t-_l)."""
        return 1 / (state.plus[:, None] * state.minus[None, :])

    def bias_of(self, state: Ratios, history: list[Ratios]) -> PositionBias:
        """t+ as an examination curve: under this method's assumption the two are proportional."""
        return PositionBias(
            state.plus,
            method=f"pairwise debiasing (p={self.p:g})",
            assumes=(Fact("bias.clicks-proportional"), Fact("bias.no-clicks-proportional")),
            status=Fact("bias.boosting-rounds", rounds=len(history)),
        )
