"""What a difference between two systems rests on: clicks, queries, and the curve under them."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray, check_same_shape
from untilt._core.portable import Portable
from untilt._core.statistics import normal_quantile
from untilt.bias.curve import PositionBias
from untilt.evaluation.results import Estimates

MOST_OF_THE_CREDIT = 0.8  # positions that hold this share of it are looked at


@dataclass(frozen=True, eq=False)
class Support(Portable):
    """The evidence behind one system minus another on one log.

    Parameters
    ----------
    n_clicks, effective_n : clicks, and as many of equal weight would tell as much
    clicked_queries : queries with at least one click
    clipped_share, unsupported_share : of the clicks; see `ClickWeights`
    largest_query : share of one query in the variance of the difference
    clicks_at, credit_at : (K,) clicks by position, and what they count in all; no credit where the
        curve does not reach
    effective_queries : as many queries of equal traffic would tell as much about the difference
    """

    n_clicks: float
    effective_n: float
    clicked_queries: int
    clipped_share: float
    unsupported_share: float
    largest_query: float
    clicks_at: FloatArray
    credit_at: FloatArray
    effective_queries: float | None = None

    def __post_init__(self) -> None:
        check_same_shape(self, "clicks_at", "credit_at")

    @property
    def known_credit(self) -> float:
        """Share of the credit at positions that the curve knows.

        A click elsewhere is taken to count as much as one at the lowest position that is known; in
        truth it counts more, because examination falls.
        """
        used = np.flatnonzero(self.credit_at > 0)
        unknown = self.unsupported_share * self.n_clicks
        if unknown <= 0:
            return 1.0
        if len(used) == 0:
            return 0.0
        lowest = self.credit_at[used[-1]] / self.clicks_at[used[-1]]
        known = float(self.credit_at.sum())
        return known / (known + unknown * float(lowest))

    def curve_factor(self, bias: PositionBias) -> tuple[int, float]:
        """(position, factor): the curve is known to this factor where the credit is.

        The positions that are known best and hold 80% of the credit together are known to within
        sqrt(high / low) of this one, or better. A factor of 1 for a curve that was given. Bounds
        of a level do not count: they are carried through as they are, without any derivative.
        """
        factor = bias.uncertainty
        if bias.bounds is not None and bias.std_error is not None:
            within = np.exp(normal_quantile(bias.level) * bias.std_error / bias.examination)
            factor = np.where(bias.bounds.bounded, within, factor)
        factor = factor[: len(self.credit_at)]
        credit = self.credit_at[: len(factor)]
        if bias.is_known or credit.sum() <= 0:
            return 1, 1.0
        order = np.lexsort((np.arange(len(factor)), factor))
        reached = np.cumsum(credit[order]) / credit.sum()
        k = int(order[np.searchsorted(reached, MOST_OF_THE_CREDIT - 1e-9)])
        return k + 1, float(factor[k])


def support_of(estimates: Estimates, system: str, baseline: str) -> Support:
    """The evidence behind `system` minus `baseline`."""
    weights, sums = estimates.weights, estimates.unbiased or estimates.sums
    one, zero = estimates.systems.index(system), estimates.systems.index(baseline)
    return Support(
        n_clicks=weights.n_clicks,
        effective_n=weights.effective_n,
        clicked_queries=weights.clicked_queries,
        clipped_share=weights.clipped_share,
        unsupported_share=weights.unsupported_share,
        largest_query=float(sums.largest_query(zero)[one]),
        clicks_at=weights.clicks_at,
        credit_at=weights.credit_at,
        effective_queries=float(sums.means(zero).effective_queries[one]),
    )
