"""The dynamic Bayesian network and its simplified form."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.em import EMResult, Step
from untilt.catalog import method
from untilt.clickmodels.base import Lists, Smoothing, fraction, smoothed_rates, with_unknown
from untilt.clickmodels.chain import ChainCounts, ChainModel, Steps, chain_counts, expect, fit_chain
from untilt.clickmodels.dcm import METHODS
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


class _Satisfaction(ChainModel):
    """A reader whom a click satisfies with probability sigma_d, and who else goes on with gamma."""

    satisfaction_: FloatArray
    satisfaction_mean_: float
    perseverance_: float

    def _steps(self, lists: Lists) -> Steps:
        sigma = with_unknown(self.satisfaction_, self.satisfaction_mean_)[lists.index]
        return Steps(self._attraction(lists), self.perseverance_ * (1 - sigma), self.perseverance_)

    def _keep(self, state: DBNState, alpha_mean: float, sigma_mean: float) -> None:
        self._keep_attraction(state.alpha, alpha_mean)
        self.satisfaction_ = handed_over(state.sigma)
        self.satisfaction_mean_ = sigma_mean
        self.relevance_ = handed_over(state.alpha * state.sigma)
        self.prior_mean_ = alpha_mean * sigma_mean


@method(
    "click model", "dbn", title="Dynamic Bayesian network", order=17, reference="chapelle2009dbn",
    note="people leave when a click satisfies them, and may give up before",
)  # fmt: skip
class DBN(_Satisfaction):
    r"""The dynamic Bayesian network model ([chapelle2009dbn]_).

    A row that is looked at is clicked with probability alpha_d (attraction); a click satisfies
    with probability sigma_d, and the reader leaves; whoever is not satisfied goes on with
    probability gamma (perseverance), clicked or not. So g = gamma (1 - sigma_d) and s = gamma.
    EM on tails, see `untilt.clickmodels.chain`.

    Learned: `attraction_`, `satisfaction_`, `perseverance_`, `relevance_` = alpha sigma (the
    probability to be satisfied by a document that is looked at), `em_`.

    Parameters
    ----------
    prior_strength : pseudo impressions for alpha and pseudo clicks for sigma, around their means;
        0 turns smoothing off. A click in the last row tells nothing about sigma
    tolerance, max_steps : of `run_em`
    """

    name: ClassVar[str] = "dbn"
    family: ClassVar[str] = "chain"

    em_: EMResult[DBNState]

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
        state, priors = counted(counts, self.prior_strength, gamma=0.9)
        self.em_, priors = _fit(counts, state, priors, self, _perseverance)
        self._keep(self.em_.state, priors.alpha.mean, priors.sigma.mean)
        self.perseverance_ = float(self.em_.state.gamma[0])


@method(
    "click model", "sdbn", title="Simplified DBN", order=16, reference="chapelle2009dbn",
    note="people go on until a click satisfies them",
)  # fmt: skip
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

    name: ClassVar[str] = "sdbn"
    family: ClassVar[str] = "chain"

    em_: EMResult[DBNState]

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
        counts = chain_counts(log, log.document, log.n_documents)
        state, priors = counted(counts, self.prior_strength, gamma=1.0)
        if self.method == "likelihood":
            self.em_, priors = _fit(counts, state, priors, self, _always)
            state = self.em_.state
        self._keep(state, priors.alpha.mean, priors.sigma.mean)
        self.perseverance_ = 1.0


Perseverance = Callable[[float, float], float]


def _perseverance(went_on: float, could: float) -> float:
    return fraction(went_on, could, 0.5)


def _always(went_on: float, could: float) -> float:  # noqa: ARG001
    return 1.0


def counted(counts: ChainCounts, strength: float, *, gamma: float) -> tuple[DBNState, DBNPriors]:
    """The estimates of the simplified model, as they are or as a start."""
    alpha, alpha_mean = smoothed_rates(counts.clicks, counts.examined_if_gone, strength)
    sigma, sigma_mean = smoothed_rates(counts.stepped - counts.went_on, counts.stepped, strength)
    priors = DBNPriors(Smoothing(strength, alpha_mean), Smoothing(strength, sigma_mean))
    return DBNState(alpha, sigma, np.array([gamma])), priors


def _fit(
    counts: ChainCounts,
    start: DBNState,
    priors: DBNPriors,
    model: DBN | SDBN,
    perseverance: Perseverance,
) -> tuple[EMResult[DBNState], DBNPriors]:
    shown = counts.shown

    def centred(state: DBNState, priors: DBNPriors) -> DBNPriors:
        return DBNPriors(
            priors.alpha.centred(state.alpha, shown),
            priors.sigma.centred(state.sigma, counts.stepped),
        )

    return fit_chain(
        start,
        priors,
        lambda priors: _step(counts, priors, perseverance),
        centred,
        tolerance=model.tolerance,
        max_steps=model.max_steps,
        what=type(model).__name__,
    )


def _step(counts: ChainCounts, priors: DBNPriors, perseverance: Perseverance) -> Step[DBNState]:
    r"""After a click that was not gone on from, P(satisfied) = sigma / (1 - gamma (1 - sigma))."""
    seen, clicked = counts.shown > 0, counts.stepped > 0

    def step(state: DBNState) -> tuple[DBNState, float]:
        alpha, sigma = state.alpha, state.sigma
        # A jump ahead of EM is cut off just below 1; where gamma is 1 by definition, it stays 1.
        gamma = perseverance(float(state.gamma[0]), 1.0)
        g = gamma * (1 - sigma)
        found = expect(counts, alpha, g, gamma)
        satisfied = (counts.stepped - found.went_on) * sigma / (1 - g)
        could = float(np.sum(counts.stepped - satisfied)) + found.skipped
        went_on = float(found.went_on.sum()) + found.skipped_on
        new = DBNState(
            np.where(seen, priors.alpha.rate(counts.clicks, found.examined), priors.alpha.mean),
            np.where(clicked, priors.sigma.rate(satisfied, counts.stepped), priors.sigma.mean),
            np.array([perseverance(went_on, could)]),
        )
        density = priors.alpha.log_density(alpha, seen) + priors.sigma.log_density(sigma, clicked)
        return new, found.log_likelihood + density

    return step
