"""The click chain model."""

from typing import ClassVar, NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.em import EMResult, Step
from untilt.catalog import method
from untilt.clickmodels.base import Lists, Smoothing, fraction, smoothed_rates
from untilt.clickmodels.chain import ChainCounts, ChainModel, Steps, chain_counts, expect, fit_chain
from untilt.data.clicklog import ClickLog


class CCMState(NamedTuple):
    """alpha : (documents,); tau : (3,)."""

    alpha: FloatArray
    tau: FloatArray


@method(
    "click model", "ccm", title="Click chain model", order=18, reference="guo2009ccm",
    note="going on depends on the click and on the relevance of what was clicked",
)  # fmt: skip
class CCM(ChainModel):
    r"""The click chain model ([guo2009ccm]_, in the form of [chuklin2015click]_).

    A row that is looked at is clicked with probability alpha_d; a click satisfies with the same
    probability. The reader goes on with probability tau_1 after no click, tau_2 after a click that
    did not satisfy, tau_3 after one that did. So g = tau_2 (1 - alpha_d) + tau_3 alpha_d and
    s = tau_1. The paper integrates over alpha; here alpha is a parameter with a prior, fitted by
    EM on tails (`untilt.clickmodels.chain`), which is exact for this form.

    Learned: `attraction_`, alpha, which is also `relevance_`; `continuation_` (3,), tau; `em_`.

    Parameters
    ----------
    prior_strength : pseudo impressions that draw alpha to its mean; 0 turns smoothing off
    tolerance, max_steps : of `run_em`
    """

    name: ClassVar[str] = "ccm"
    family: ClassVar[str] = "chain"

    em_: EMResult[CCMState]
    continuation_: FloatArray

    def __init__(
        self,
        *,
        prior_strength: float = 1.0,
        tolerance: float = 1e-3,
        max_steps: int = 1000,
    ) -> None:
        self.prior_strength = prior_strength
        self.tolerance = tolerance
        self.max_steps = max_steps

    def _learn(self, log: ClickLog) -> None:
        counts = chain_counts(log, log.document, log.n_documents)
        alpha, mean = smoothed_rates(counts.clicks, counts.examined_if_gone, self.prior_strength)
        weight = counts.shown + counts.stepped
        self.em_, prior = fit_chain(
            CCMState(alpha, np.array([0.9, 0.8, 0.5])),
            Smoothing(self.prior_strength, mean),
            lambda prior: _step(counts, prior),
            lambda state, prior: prior.centred(state.alpha, weight),
            tolerance=self.tolerance,
            max_steps=self.max_steps,
            what="CCM",
        )
        self._keep_attraction(self.em_.state.alpha, prior.mean)
        self.continuation_ = handed_over(self.em_.state.tau)

    def _steps(self, lists: Lists) -> Steps:
        alpha = self._attraction(lists)
        return Steps(alpha, _on_click(alpha, self.continuation_), float(self.continuation_[0]))


def _on_click(alpha: FloatArray, tau: FloatArray) -> FloatArray:
    return tau[1] * (1 - alpha) + tau[2] * alpha


def _step(counts: ChainCounts, prior: Smoothing) -> Step[CCMState]:
    """P(satisfied | on) = alpha tau_3 / g, P(satisfied | left) = alpha (1 - tau_3) / (1 - g)."""
    seen = counts.shown > 0

    def step(state: CCMState) -> tuple[CCMState, float]:
        alpha, tau = state
        g = _on_click(alpha, tau)
        found = expect(counts, alpha, g, float(tau[0]))
        satisfied_on = found.went_on * alpha * tau[2] / g
        left = counts.stepped - found.went_on
        satisfied = satisfied_on + left * alpha * (1 - tau[2]) / (1 - g)
        others = counts.stepped - satisfied
        rate = prior.rate(counts.clicks + satisfied, found.examined + counts.stepped)
        new_tau = (
            fraction(found.skipped_on, found.skipped, 0.5),
            fraction((found.went_on - satisfied_on).sum(), others.sum(), 0.5),
            fraction(satisfied_on.sum(), satisfied.sum(), 0.5),
        )
        density = prior.log_density(alpha, seen)
        return CCMState(np.where(seen, rate, prior.mean), np.array(new_tau)), (
            found.log_likelihood + density
        )

    return step
