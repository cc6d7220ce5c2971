"""The dynamic Bayesian network model and its simplified form."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.em import EMResult, Step
from untilt._core.restored import check_array, check_number
from untilt.catalog import method, storable
from untilt.clickmodels import chain
from untilt.clickmodels.chain import ChainCounts, Steps
from untilt.clickmodels.choice import chosen_method
from untilt.clickmodels.click_model import Lists
from untilt.clickmodels.smoothing import HIGH, Smoothing, fraction, smoothing_of
from untilt.data.clicklog import ClickLog


@storable
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
    satisfaction_strength_: float = field(init=False)
    perseverance_: float = field(init=False)

    def _fit(self, log: ClickLog, *, gamma: float, always: bool, counting: bool = False) -> None:
        """From this gamma, which stays as it is where `always`; EM is left out where `counting`."""
        counts = chain.chain_counts(log, log.document, log.n_documents)
        strength = self.prior_strength if counting else self._first_strength
        state, priors = _counted(counts, strength, gamma)
        if not counting:
            self.em_, priors = self._run(
                state,
                priors,
                lambda priors: dbn_step(counts, priors, always=always),
                lambda state, priors: self._both_refitted(counts, state, priors, always=always),
            )
            state = self.em_.state
        self._keep_attraction(state.alpha, priors.alpha)
        self.satisfaction_, self.satisfaction_mean_ = handed_over(state.sigma), priors.sigma.mean
        self.satisfaction_strength_ = priors.sigma.strength
        self.relevance_ = handed_over(state.alpha * state.sigma)
        self.prior_mean_ = priors.alpha.mean * priors.sigma.mean
        self.perseverance_ = 1.0 if always else float(state.gamma[0])

    def _both_refitted(
        self, counts: ChainCounts, state: DBNState, priors: DBNPriors, *, always: bool
    ) -> DBNPriors:
        alpha, sigma = state.alpha, state.sigma
        expected, satisfied = _expect(counts, state, always=always)
        return DBNPriors(
            self._refitted(priors.alpha, alpha, counts.shown, counts.clicks, expected.examined),
            self._refitted(priors.sigma, sigma, counts.stepped, satisfied, counts.stepped),
        )

    def _check_restored(self) -> None:
        super()._check_restored()
        check_array("satisfaction_", self.satisfaction_, (len(self.documents_),), low=0, high=1)
        check_number("satisfaction_mean_", self.satisfaction_mean_, low=0, high=1)
        check_number("perseverance_", self.perseverance_, low=0, high=1)

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
    probability to be satisfied by a document that is looked at), `em_`; `prior_strength_` of alpha
    and `satisfaction_strength_` of sigma.

    Parameters
    ----------
    prior_strength : pseudo impressions for alpha and pseudo clicks for sigma, around their means;
        0 turns smoothing off, "auto" learns each from the log (`untilt.clickmodels.smoothing`). A
        click in the last row tells nothing about sigma
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
    satisfied one. `method="likelihood"` maximises the likelihood itself by EM: right where readers
    are as the model says. Where they are not, either may predict pages better, and "auto" (the
    default) takes the one whose perplexity is lower on training pages left out
    (`untilt.clickmodels.choice`).

    Learned: `attraction_`, `satisfaction_`, `relevance_` = alpha sigma; `method_`, the method
    taken; `em_` with "likelihood".

    Parameters
    ----------
    prior_strength, tolerance, max_steps : as in `DBN`
    method : "auto", "likelihood" or "counting"
    """

    method: str = "auto"
    method_: str = field(init=False)

    def _learn(self, log: ClickLog) -> None:
        self.method_ = chosen_method(self, log)
        self._fit(log, gamma=1.0, always=True, counting=self.method_ == "counting")


def _counted(
    counts: ChainCounts, strength: float | str, gamma: float
) -> tuple[DBNState, DBNPriors]:
    """The estimates of the simplified model, as they are or as a start."""
    last, examined = counts.stepped - counts.went_on, counts.examined_if_gone
    priors = DBNPriors(
        smoothing_of(counts.clicks, examined, strength),
        smoothing_of(last, counts.stepped, strength),
    )
    alpha = priors.alpha.rate(counts.clicks, examined)
    sigma = priors.sigma.rate(last, counts.stepped)
    return DBNState(alpha, sigma, np.array([gamma])), priors


def _expect(
    counts: ChainCounts, state: DBNState, *, always: bool
) -> tuple[chain.Expected, FloatArray]:
    """The E step, and of each document's clicks how many satisfied."""
    # A jump ahead of EM is cut off just below 1; where gamma is 1 by definition, it stays 1.
    gamma = 1.0 if always else fraction(float(state.gamma[0]), 1.0)
    # Not quite 1: with gamma = 1 and sigma = 0 nobody ever leaves after a click, and 1 - g is 0.
    g = np.minimum(gamma * (1 - state.sigma), HIGH)
    expected = chain.expect(counts, state.alpha, g, gamma)
    return expected, (counts.stepped - expected.went_on) * state.sigma / (1 - g)


def dbn_step(counts: ChainCounts, priors: DBNPriors, *, always: bool) -> Step[DBNState]:
    r"""After a click that was not gone on from, P(satisfied) = sigma / (1 - gamma (1 - sigma)).

    `always` : the reader who is not satisfied goes on, gamma = 1
    """
    seen, clicked = counts.shown > 0, counts.stepped > 0

    def step(state: DBNState) -> tuple[DBNState, float]:
        alpha, sigma = state.alpha, state.sigma
        expected, satisfied = _expect(counts, state, always=always)
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
