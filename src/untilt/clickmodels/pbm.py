"""The position-based model."""

from typing import ClassVar

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt.bias.curve import PositionBias
from untilt.bias.curve_tools import from_log_ratios
from untilt.bias.position_graph import position_graph
from untilt.catalog import method
from untilt.clickmodels.base import HIGH, IndependentModel, Lists, with_unknown
from untilt.clickmodels.examination_em import PlaceFit, PlaceModel, doubt_of_places
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError


@method(
    "click model", "pbm", title="Position-based model", order=13, reference="craswell2008",
    note="each position is examined by itself: P(click) = theta_k gamma",
)  # fmt: skip
class PBM(PlaceModel, IndependentModel):
    r"""The position-based model: P(c = 1) = theta_k gamma_d ([craswell2008]_, [chuklin2015click]_).

    Fitted by EM on clicks and impressions per (query, document, position), which are sufficient:
    ten million sessions cost what their cells cost. Scale: the most examined position has
    theta = 1, because clicks tell only products.

    Right where looking at a position depends on neither the documents above nor the clicks there.
    `UBM` and `DBN` let go of this; see `compare_click_models`.

    Learned: `examination_` (K,), `relevance_`, `bias_` (relative to position 1, with intervals),
    `em_` (history and status).

    Parameters
    ----------
    prior_strength : pseudo impressions of the prior on gamma; 0 turns it off
    level : of the intervals of `bias_`
    tolerance, max_steps : of `run_em`
    """

    name: ClassVar[str] = "pbm"
    family: ClassVar[str] = "position"

    def _learn(self, log: ClickLog) -> None:
        cells, fit = self._fit_places(log, log.position - 1, log.depth)
        # A position that was never shown has the mean of the others: nothing is known about it.
        unknown = float(np.nanmean(fit.theta))
        theta = np.where(np.isnan(fit.theta), unknown, fit.theta)
        self.examination_ = handed_over(np.where(theta >= HIGH, 1.0, theta))
        self._bias = self._measured(cells, fit)

    def _measured(
        self, cells: PositionCounts, fit: PlaceFit
    ) -> PositionBias | IdentifiabilityError:
        try:
            position_graph(cells).require(cells.depth, "PBM")
        except IdentifiabilityError as error:
            return error
        doubt = doubt_of_places(cells, fit.theta, fit.gamma)
        return from_log_ratios(
            np.log(fit.theta / fit.theta[0]),
            doubt.covariance,
            level=self.level,
            method="PBM",
            assumes=("examination depends on the position alone", "no clicks by mistake or trust"),
            status=f"{fit.em.status}; {doubt.rule}",
        )

    def _marginal(self, lists: Lists) -> FloatArray:
        gamma = with_unknown(self.relevance_, self.prior_mean_)
        return self.examination_[lists.position - 1] * gamma[lists.index]
