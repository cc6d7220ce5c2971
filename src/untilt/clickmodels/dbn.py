"""The dynamic Bayesian network model and its simplified form."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.em import EMResult, Step
from untilt.catalog import method
from untilt.clickmodels import chain
from untilt.clickmodels.chain import ChainCounts, Steps
from untilt.clickmodels.click_model import Lists, Smoothing, fraction, smoothed_rates
from untilt.data.clicklog import ClickLog
from untilt.errors import check_choice


class DBNState(NamedTuple):
    """alpha, sigma : (documents,); gamma : (1,)."""

    alpha: FloatArray
    sigma: FloatArray
    gamma: FloatArray


class DBNPriors(NamedTuple):
    """Of attraction and of satisfaction."""

    alpha: Smoothing
    sigma: Smoothing


@dataclass(kw_only=True, eq=False, repr=False)
class _Satisfaction(chain.ChainEMModel):
    """A reader whom a click satisfies with probability sigma_d, and who else goes on with gamma."""

    em_: EMResult[DBNState] = field(init=False)
    satisfaction_: FloatArray = field(init=False)
    satisfaction_mean_: float = field(init=False)
    perseverance_: float = field(init=False)

    def _fit(self, log: ClickLog, *, gamma: float, always: bool, counting: bool = False) -> None:
        """From this gamma, which stays as it is where `always`; EM is left out where `counting`."""
        counts = chain.chain_counts(log, log.document, log.n_documents)
        state, priors = _counted(counts, self.prior_strength, gamma)
        shown = counts.shown
        if not counting:
            self.em_, priors = self._run(
                state,
                priors,
                lambda priors: dbn_step(counts, priors, always=always),
                lambda state, priors: DBNPriors(
                    priors.alpha.centred(state.alpha, shown),
                    priors.sigma.centred(state.sigma, counts.stepped),
                ),
            )
            state = self.em_.state
        self._keep_attraction(state.alpha, priors.alpha.mean)
        self.satisfaction_, self.satisfaction_mean_ = handed_over(state.sigma), priors.sigma.mean
        self.relevance_ = handed_over(state.alpha * state.sigma)
        self.prior_mean_ = priors.alpha.mean * priors.sigma.mean
        self.perseverance_ = 1.0 if always else float(state.gamma[0])

    def _steps(self, lists: Lists) -> Steps:
        sigma = lists.of_documents(self.satisfaction_, self.satisfaction_mean_)
        return Steps(self._attraction(lists), self.perseverance_ * (1 - sigma), self.perseverance_)


@method(
    "click model", "dbn", choose=("run",), title="Dynamic Bayesian network", order=17,
    reference="chapelle2009dbn",
    note="people leave when a click satisfies them, and may give up before",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class DBN(_Satisfaction):
    r"""The dynamic Bayesian network model ([chapelle2009dbn]_).

    A row that is looked at is clicked with probability alpha_d (attraction); a click satisfies
    with probability sigma_d, and the reader leaves; whoever is not satisfied goes on with
    probability gamma (perseverance), clicked or not. So g = gamma (1 - sigma_d) and s = gamma.
    Fitted by EM, see `untilt.clickmodels.chain`.

    Learned: `attraction_`, `satisfaction_`, `perseverance_`, `relevance_` = alpha sigma (the
    probability to be satisfied by a document that is looked at), `em_`.

    Parameters
    ----------
    prior_strength : pseudo impressions for alpha and pseudo clicks for sigma, around their means;
        0 turns smoothing off. A click in the last row tells nothing about sigma
    tolerance, max_steps : of `run_em`
    """

    def _learn(self, log: ClickLog) -> None:
        self._fit(log, gamma=0.9, always=False)


@method(
    "click model", "sdbn", choose=("run",), title="Simplified DBN", order=16,
    reference="chapelle2009dbn",
    note="people go on until a click satisfies them",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class SDBN(_Satisfaction):
    r"""`DBN` with gamma = 1: only a satisfied reader leaves ([chapelle2009dbn]_).

    `method="counting"` does as the paper: readers are taken as gone after their last click, so
    alpha_d = clicks / impressions at or above a last click (all impressions of a session without
    clicks) and sigma_d = last clicks / clicks. That takes a reader who went on in vain for a
    satisfied one. `method="likelihood"` (the default) maximises the likelihood itself by EM.

    Learned: `attraction_`, `satisfaction_`, `relevance_` = alpha sigma; `em_` with "likelihood".

    Parameters
    ----------
    prior_strength, tolerance, max_steps : as in `DBN`
    method : "likelihood" or "counting"
    """

    method: str = "likelihood"

    def _learn(self, log: ClickLog) -> None:
        check_choice("method", self.method, chain.METHODS)
        self._fit(log, gamma=1.0, always=True, counting=self.method == "counting")


def _counted(counts: ChainCounts, strength: float, gamma: float) -> tuple[DBNState, DBNPriors]:
    """The estimates of the simplified model, as they are or as a start."""
    alpha, alpha_mean = smoothed_rates(counts.clicks, counts.examined_if_gone, strength)
    sigma, sigma_mean = smoothed_rates(counts.stepped - counts.went_on, counts.stepped, strength)
    priors = DBNPriors(Smoothing(strength, alpha_mean), Smoothing(strength, sigma_mean))
    return DBNState(alpha, sigma, np.array([gamma])), priors


def dbn_step(counts: ChainCounts, priors: DBNPriors, *, always: bool) -> Step[DBNState]:
    r"""After a click that was not gone on from, P(satisfied) = sigma / (1 - gamma (1 - sigma)).

    `always` : the reader who is not satisfied goes on, gamma = 1
    """
    seen, clicked = counts.shown > 0, counts.stepped > 0

    def step(state: DBNState) -> tuple[DBNState, float]:
        alpha, sigma = state.alpha, state.sigma
        # A jump ahead of EM is cut off just below 1; where gamma is 1 by definition, it stays 1.
        gamma = 1.0 if always else fraction(float(state.gamma[0]), 1.0)
        g = gamma * (1 - sigma)
        expected = chain.expect(counts, alpha, g, gamma)
        satisfied = (counts.stepped - expected.went_on) * sigma / (1 - g)
        could = float(np.sum(counts.stepped - satisfied)) + expected.skipped
        went_on = float(expected.went_on.sum()) + expected.skipped_on
        following = DBNState(
            np.where(seen, priors.alpha.rate(counts.clicks, expected.examined), priors.alpha.mean),
            np.where(clicked, priors.sigma.rate(satisfied, counts.stepped), priors.sigma.mean),
            np.array([1.0 if always else fraction(went_on, could)]),
        )
        density = priors.alpha.log_density(alpha, seen) + priors.sigma.log_density(sigma, clicked)
        return following, expected.log_likelihood + density

    return step
