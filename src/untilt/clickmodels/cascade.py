"""The cascade model."""

from typing import ClassVar

import numpy as np

from untilt.catalog import method
from untilt.clickmodels.base import Lists, clicks_before, smoothed_rates, sums_by_document
from untilt.clickmodels.chain import ChainModel, Steps
from untilt.data.clicklog import ClickLog


@method(
    "click model", "cm", title="Cascade model", order=14, reference="craswell2008",
    note="people read down to the first click and leave",
)  # fmt: skip
class CM(ChainModel):
    """The cascade model: read on until the first click, and leave ([craswell2008]_).

    So alpha_d = first clicks / impressions at or above the first click: counting is exact. What
    follows a first click is impossible under this model; it is left out when fitting, its
    conditional probability is 0, and the log-likelihood of such sessions minus infinity.

    Learned: `attraction_`, alpha, which is also `relevance_`.

    Parameters
    ----------
    prior_strength : pseudo impressions that draw alpha to its mean; 0 turns smoothing off
    """

    name: ClassVar[str] = "cm"
    family: ClassVar[str] = "chain"

    def __init__(self, *, prior_strength: float = 1.0) -> None:
        self.prior_strength = prior_strength

    def _learn(self, log: ClickLog) -> None:
        examined = (clicks_before(log.indptr, log.label) == 0) * log.row_count
        alpha, mean = smoothed_rates(
            sums_by_document(log, log.label * examined),
            sums_by_document(log, examined),
            self.prior_strength,
        )
        self._keep_attraction(alpha, mean)

    def _steps(self, lists: Lists) -> Steps:
        return Steps(self._attraction(lists), np.zeros(len(lists.position)), 1.0)
