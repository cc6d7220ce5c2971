"""Models of a reader who goes down the list: cascade, dependent click, click chain and (S)DBN."""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, handed_over
from untilt._core.ascent import EMResult, Step
from untilt.catalog import method, storable
from untilt.clickmodels import chain, click_model
from untilt.clickmodels.chain import ChainCounts, Chances, chosen_method, least_perplexity
from untilt.clickmodels.click_model import Lists
from untilt.clickmodels.smoothing import AUTO, HIGH, Smoothing, fraction, smoothing_of
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError


@method(
    "click model", "cm", choose=("run",), title="Cascade model", order=14, reference="craswell2008",
    note="people read down to the first click and leave",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class CM(chain.ChainModel):
    """The cascade model: read on until the first click, and leave ([craswell2008]_).

    So alpha_d = first clicks / impressions at or above the first click: counting is exact. What
    follows a first click is impossible under this model; it is left out when fitting, its
    conditional probability is 0, and the log-likelihood of such sessions minus infinity.

    Second clicks do happen, so the most likely alpha is too small for lower positions. With
    `prior_strength` "auto" alpha = (x + 1) / (n + 2) is tried beside the learned smoothing, and the
    one taken whose perplexity is lower on training pages left out (`untilt.clickmodels.chain`).

    Learned: `attraction_`, alpha, which is also `relevance_`; `prior_strength_`, `prior_mean_`.

    Parameters
    ----------
    prior_strength : pseudo impressions that draw alpha to its mean; 0 turns smoothing off, "auto"
        learns it from the log
    prior_mean : the mean; learned from the log where not given. 0.5 with a strength of 2 gives
        alpha = (x + 1) / (n + 2)
    """

    prior_mean: float | None = None

    def _learn(self, log: ClickLog) -> None:
        if self.prior_mean is not None and not 0 < self.prior_mean < 1:
            raise OptionError(f"prior_mean must lie between 0 and 1. Got {self.prior_mean}.")
        total = np.concatenate([[0.0], np.cumsum(log.label)])
        above = total[:-1] - np.repeat(total[log.indptr[:-1]], ragged.lengths(log.indptr))
        examined = (above == 0) * log.row_count
        x = click_model.sums_by_document(log, log.label * examined)
        n = click_model.sums_by_document(log, examined)
        prior = smoothing_of(x, n, self.prior_strength)
        if self.prior_mean is not None:
            prior = Smoothing(prior.strength, self.prior_mean)
        elif self.prior_strength == AUTO:
            learned = CM(prior_strength=prior.strength, prior_mean=prior.mean)
            even = CM(prior_strength=2.0, prior_mean=0.5)
            if least_perplexity(log, [learned, even]) is even:
                prior = Smoothing(2.0, 0.5)
        self._keep_attraction(prior.rate(x, n), prior)

    def _steps(self, lists: click_model.Lists) -> Chances:
        return Chances(self._attraction(lists), np.zeros(len(lists.position)), 1.0)


@storable
class DCMState(NamedTuple):
    """alpha : (documents,); lam : (K,)."""

    alpha: FloatArray
    lam: FloatArray


@method(
    "click model", "dcm", choose=("run",), title="Dependent click model", order=15,
    reference="guo2009dcm",
    note="after a click people go on with a probability of the position",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class DCM(chain.ChainEMModel):
    r"""The dependent click model: after a click at k go on with probability lambda_k.

    After no click the reader always goes on ([guo2009dcm]_). Below the last click it is not known
    whether the reader was still there. `method="counting"` does as the paper: it takes the last
    click as the end, alpha_d = clicks / impressions at or above a last click (all impressions of a
    session without clicks) and lambda_k = 1 - last clicks at k / clicks at k. That maximises a
    lower bound of the likelihood, and makes lambda too small: a reader who went on in vain counts
    as gone. `method="likelihood"` maximises the likelihood itself by EM. "auto" (the default) takes
    the one whose perplexity is lower on training pages left out, as in `SDBN`.

    Learned: `attraction_`, alpha, which is also `relevance_`; `continuation_` (K,), lambda. At
    positions with no click above another row it is the mean of the others. `method_`, the method
    taken; `em_` with "likelihood"; `prior_strength_`.

    Parameters
    ----------
    prior_strength : pseudo impressions that draw alpha to its mean; 0 turns smoothing off, "auto"
        learns it from the log (`untilt.clickmodels.smoothing`)
    method : "auto", "likelihood" or "counting"
    tolerance, max_steps : of `run_em`
    """

    method: str = "auto"
    method_: str = field(init=False)
    _shares: ClassVar = {"continuation_": ("position",)}
    em_: EMResult[DCMState] = field(init=False)
    continuation_: FloatArray = field(init=False)

    def _learn(self, log: ClickLog) -> None:
        self.method_ = chosen_method(self, log)
        counts = chain.chain_counts(log, log.position - 1, log.depth)
        counting = self.method_ == "counting"
        strength = self.prior_strength if counting else self._first_strength
        prior = smoothing_of(counts.clicks, counts.examined_if_gone, strength)
        alpha = prior.rate(counts.clicks, counts.examined_if_gone)
        state = DCMState(alpha, _lambda(counts.went_on, counts.stepped))
        if not counting:
            step, refitted = partial(_dcm_step, counts), partial(self._dcm_refitted, counts)
            self.em_, prior = self._run(state, prior, step, refitted)
            state = self.em_.state
        self._keep_attraction(state.alpha, prior)
        self.continuation_ = handed_over(state.lam)

    def _dcm_refitted(self, counts: ChainCounts, state: DCMState, prior: Smoothing) -> Smoothing:
        examined = chain.expect(counts, state.alpha, state.lam, 1.0).examined
        return self._refitted(prior, state.alpha, counts.shown, counts.clicks, examined)

    def _steps(self, lists: click_model.Lists) -> Chances:
        return Chances(self._attraction(lists), self.continuation_[lists.position - 1], 1.0)


def _lambda(went_on: FloatArray, stepped: FloatArray) -> FloatArray:
    mean = float(went_on.sum() / stepped.sum()) if stepped.sum() > 0 else 0.5
    return Smoothing(0.0, mean).rate(went_on, stepped)


def _dcm_step(counts: ChainCounts, prior: Smoothing) -> Step[DCMState]:
    seen = counts.shown > 0

    def step(state: DCMState) -> tuple[DCMState, float]:
        expected = chain.expect(counts, state.alpha, state.lam, 1.0)
        alpha = np.where(seen, prior.rate(counts.clicks, expected.examined), prior.mean)
        density = prior.log_density(state.alpha, seen)
        following = DCMState(alpha, _lambda(expected.went_on, counts.stepped))
        return following, expected.log_likelihood + density

    return step


@storable
class CCMState(NamedTuple):
    """alpha : (documents,); tau : (3,)."""

    alpha: FloatArray
    tau: FloatArray


@method(
    "click model", "ccm", choose=("run",), title="Click chain model", order=18,
    reference="guo2009ccm",
    note="going on depends on the click and on the relevance of what was clicked",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class CCM(chain.ChainEMModel):
    r"""The click chain model ([guo2009ccm]_, in the form of [chuklin2015click]_).

    A row that is looked at is clicked with probability alpha_d; a click satisfies with the same
    probability. The reader goes on with probability tau_1 after no click, tau_2 after a click that
    did not satisfy, tau_3 after one that did. So g = tau_2 (1 - alpha_d) + tau_3 alpha_d and
    s = tau_1. The paper integrates over alpha; here alpha is a parameter with a prior, fitted by
    EM (`untilt.clickmodels.chain`), which is exact for this form.

    Learned: `attraction_`, alpha, which is also `relevance_`; `continuation_` (3,), tau; `em_`.

    Parameters
    ----------
    prior_strength : pseudo impressions that draw alpha to its mean; 0 turns smoothing off, "auto"
        learns it from the log
    tolerance, max_steps : of `run_em`
    """

    _shares: ClassVar = {"continuation_": (3,)}
    em_: EMResult[CCMState] = field(init=False)
    continuation_: FloatArray = field(init=False)

    def _learn(self, log: ClickLog) -> None:
        counts = chain.chain_counts(log, log.document, log.n_documents)
        prior = smoothing_of(counts.clicks, counts.examined_if_gone, self._first_strength)
        alpha = prior.rate(counts.clicks, counts.examined_if_gone)
        start = CCMState(alpha, np.array([0.9, 0.8, 0.5]))
        step, refitted = partial(_ccm_step, counts), partial(self._ccm_refitted, counts)
        self.em_, prior = self._run(start, prior, step, refitted)
        self._keep_attraction(self.em_.state.alpha, prior)
        self.continuation_ = handed_over(self.em_.state.tau)

    def _ccm_refitted(self, counts: ChainCounts, state: CCMState, prior: Smoothing) -> Smoothing:
        alpha, weight = state.alpha, counts.shown + counts.stepped
        on_click = _on_click(alpha, state.tau)
        examined = chain.expect(counts, alpha, on_click, float(state.tau[0])).examined
        return self._refitted(prior, alpha, weight, counts.clicks, examined)

    def _steps(self, lists: click_model.Lists) -> Chances:
        alpha = self._attraction(lists)
        return Chances(alpha, _on_click(alpha, self.continuation_), float(self.continuation_[0]))


def _on_click(alpha: FloatArray, tau: FloatArray) -> FloatArray:
    return tau[1] * (1 - alpha) + tau[2] * alpha


def _ccm_step(counts: ChainCounts, prior: Smoothing) -> Step[CCMState]:
    """P(satisfied | on) = alpha tau_3 / g, P(satisfied | left) = alpha (1 - tau_3) / (1 - g)."""
    seen = counts.shown > 0

    def step(state: CCMState) -> tuple[CCMState, float]:
        alpha, tau = state
        g = _on_click(alpha, tau)
        expected = chain.expect(counts, alpha, g, float(tau[0]))
        satisfied_on = expected.went_on * alpha * tau[2] / g
        left = counts.stepped - expected.went_on
        satisfied = satisfied_on + left * alpha * (1 - tau[2]) / (1 - g)
        others = counts.stepped - satisfied
        rate = prior.rate(counts.clicks + satisfied, expected.examined + counts.stepped)
        new_tau = (
            fraction(expected.skipped_on, expected.skipped),
            fraction((expected.went_on - satisfied_on).sum(), others.sum()),
            fraction(satisfied_on.sum(), satisfied.sum()),
        )
        following = CCMState(np.where(seen, rate, prior.mean), np.array(new_tau))
        return following, expected.log_likelihood + prior.log_density(alpha, seen)

    return step


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

    _shares: ClassVar = {
        "satisfaction_": ("document",), "satisfaction_mean_": (), "perseverance_": (),
    }  # fmt: skip
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
            step = partial(dbn_step, counts, always=always)
            refitted = partial(self._both_refitted, counts, always=always)
            self.em_, priors = self._run(state, priors, step, refitted)
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

    def _steps(self, lists: Lists) -> Chances:
        sigma = lists.of_documents(self.satisfaction_, self.satisfaction_mean_)
        return Chances(
            self._attraction(lists), self.perseverance_ * (1 - sigma), self.perseverance_
        )


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
    (`untilt.clickmodels.chain`).

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
    # Not quite 1: with gamma = 1 and sigma = 0 no reader leaves after a click, and 1 - g is 0.
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
