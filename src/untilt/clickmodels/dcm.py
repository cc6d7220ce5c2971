"""The dependent click model."""

from typing import ClassVar, NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.em import EMResult, Step
from untilt.catalog import method
from untilt.clickmodels.base import Lists, Smoothing, smoothed_rates
from untilt.clickmodels.chain import ChainCounts, ChainModel, Steps, chain_counts, expect, fit_chain
from untilt.data.clicklog import ClickLog
from untilt.errors import check_choice

METHODS = ("likelihood", "counting")


class DCMState(NamedTuple):
    """alpha : (documents,); lam : (K,)."""

    alpha: FloatArray
    lam: FloatArray


@method(
    "click model", "dcm", title="Dependent click model", order=15, reference="guo2009dcm",
    note="after a click people go on with a probability of the position",
)  # fmt: skip
class DCM(ChainModel):
    r"""The dependent click model: after a click at k go on with probability lambda_k.

    After no click the reader always goes on ([guo2009dcm]_). Below the last click nobody knows
    whether the reader was still there. `method="counting"` does as the paper: it takes the last
    click as the end, alpha_d = clicks / impressions at or above a last click (all impressions of a
    session without clicks) and lambda_k = 1 - last clicks at k / clicks at k. That maximises a
    lower bound of the likelihood, and makes lambda too small: a reader who went on in vain
    counts as gone. `method="likelihood"` (the default) maximises the likelihood itself by EM.

    Learned: `attraction_`, alpha, which is also `relevance_`; `continuation_` (K,), lambda. At
    positions with no click above another row it is the mean of the others. `em_` with "likelihood".

    Parameters
    ----------
    prior_strength : pseudo impressions that draw alpha to its mean; 0 turns smoothing off
    method : "likelihood" or "counting"
    tolerance, max_steps : of `run_em`
    """

    name: ClassVar[str] = "dcm"
    family: ClassVar[str] = "chain"

    em_: EMResult[DCMState]
    continuation_: FloatArray

    def __init__(
        self,
        *,
        prior_strength: float = 1.0,
        method: str = "likelihood",
        tolerance: float = 1e-3,
        max_steps: int = 1000,
    ) -> None:
        self.prior_strength = prior_strength
        self.method = method
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _learn(self, log: ClickLog) -> None:
        check_choice("method", self.method, METHODS)
        counts = chain_counts(log, log.position - 1, log.depth)
        state, mean = counted(counts, self.prior_strength)
        if self.method == "likelihood":
            self.em_, prior = fit_chain(
                state,
                Smoothing(self.prior_strength, mean),
                lambda prior: _step(counts, prior),
                lambda state, prior: prior.centred(state.alpha, counts.shown),
                tolerance=self.tolerance,
                max_steps=self.max_steps,
                what="DCM",
            )
            state, mean = self.em_.state, prior.mean
        self._keep_attraction(state.alpha, mean)
        self.continuation_ = handed_over(state.lam)

    def _steps(self, lists: Lists) -> Steps:
        return Steps(self._attraction(lists), self.continuation_[lists.position - 1], 1.0)


def counted(counts: ChainCounts, strength: float) -> tuple[DCMState, float]:
    """The paper's estimates, and the mean of alpha."""
    alpha, mean = smoothed_rates(counts.clicks, counts.examined_if_gone, strength)
    return DCMState(alpha, _lambda(counts.went_on, counts.stepped)), mean


def _lambda(went_on: FloatArray, stepped: FloatArray) -> FloatArray:
    mean = float(went_on.sum() / stepped.sum()) if stepped.sum() > 0 else 0.5
    return Smoothing(0.0, mean).rate(went_on, stepped)


def _step(counts: ChainCounts, prior: Smoothing) -> Step[DCMState]:
    seen = counts.shown > 0

    def step(state: DCMState) -> tuple[DCMState, float]:
        found = expect(counts, state.alpha, state.lam, 1.0)
        alpha = np.where(seen, prior.rate(counts.clicks, found.examined), prior.mean)
        density = prior.log_density(state.alpha, seen)
        return DCMState(alpha, _lambda(found.went_on, counts.stepped)), (
            found.log_likelihood + density
        )

    return step
