r"""EM for the pairwise trust model over a whole log: Figures 1 and 2 of [ren2021pairwise]_.

Figure 2 updates theta and beta from the posteriors of single documents alone, and eps+, eps- and
gamma from those of pairs. So the algorithm is two EMs, one after the other, with the same fixed
point as both in turn:

    documents   max over theta, beta of   sum log P(c > 0) or log P(c = 0),   P(c > 0) = theta beta
    pairs       max over eps, gamma of    sum log P(c_i > c_j) or log P(c_i <= c_j)   (equation 14)

and the likelihood of each never falls. The likelihood of the pairs counts both orders of every pair
as if they were independent, as the document's does: a composite likelihood, fine for estimates, not
for standard errors.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.em import EMResult, run_em
from untilt.rankers.trust import trust_model as model

_FLOOR = 1e-6  # no probability is nearer to 0 or 1: EM would never move it again
_HALVINGS = 30


class Regression(Protocol):
    """Probabilities of cells, fitted to counts, as the maximisation step needs them.

    EM climbs if `refit` never lowers Q = sum over cells of successes log p + (trials - successes)
    log(1 - p), where successes are the expected ones of the expectation step.
    """

    def start(self) -> Any:
        """A state before anything is known."""

    def values(self, state: Any) -> FloatArray:
        """(cells,) probabilities."""

    def refit(self, state: Any, successes: FloatArray, trials: FloatArray) -> Any:
        """A state whose Q is not lower than that of `state`."""


@dataclass(frozen=True, eq=False)
class TableRegression:
    """One free probability per entity: Figure 2's updates of gamma and beta.

    Parameters
    ----------
    entity : (cells,) index of what a cell belongs to
    first : where all of them start
    """

    entity: IntArray
    first: float = 0.5

    def start(self) -> FloatArray:
        """`first` everywhere."""
        return np.full(int(self.entity.max(initial=-1)) + 1, self.first)

    def values(self, state: FloatArray) -> FloatArray:
        """The entity's probability."""
        return state[self.entity]

    def refit(self, state: FloatArray, successes: FloatArray, trials: FloatArray) -> FloatArray:
        """Successes over trials, the exact maximum; an entity without trials stays."""
        n = sum_by(self.entity, trials, len(state))
        s = sum_by(self.entity, successes, len(state))
        rate = np.divide(s, n, out=state.copy(), where=n > 0)
        return np.clip(rate, _FLOOR, 1 - _FLOOR)


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """p = 1 / (1 + exp(-(x . w + b))): one Newton step, halved until Q does not fall.

    Parameters
    ----------
    x : (cells, d) on one scale
    """

    x: FloatArray

    def start(self) -> FloatArray:
        """All weights 0: p = 1/2."""
        return np.zeros(self.x.shape[1] + 1)

    def values(self, state: FloatArray) -> FloatArray:
        """The logistic curve, kept off 0 and 1."""
        z = np.clip(self.x @ state[:-1] + state[-1], -30, 30)
        return np.clip(1 / (1 + np.exp(-z)), _FLOOR, 1 - _FLOOR)

    def refit(self, state: FloatArray, successes: FloatArray, trials: FloatArray) -> FloatArray:
        """One step uphill."""
        p = self.values(state)
        x = np.column_stack([self.x, np.ones(len(p))])
        slope = x.T @ (successes - trials * p)
        curvature = (x * (trials * p * (1 - p))[:, None]).T @ x
        # A ridge of 1e-9 of the trials: a column that never varies must not stop the step.
        step = np.linalg.solve(curvature + 1e-9 * trials.sum() * np.eye(len(slope)), slope)
        before = expected_likelihood(p, successes, trials)
        for _ in range(_HALVINGS):
            if expected_likelihood(self.values(state + step), successes, trials) >= before:
                return state + step
            step = step / 2
        return state


def expected_likelihood(p: FloatArray, successes: FloatArray, trials: FloatArray) -> float:
    """Q above."""
    return float(np.dot(successes, np.log(p)) + np.dot(trials - successes, np.log1p(-p)))


class Items(NamedTuple):
    """Documents of slates: 0-based position, sessions, sessions with c > 0."""

    position_index: IntArray
    sessions: FloatArray
    positive: FloatArray


class Pairs(NamedTuple):
    """Cells of ordered pairs: items i and j, sessions, sessions with c_i > c_j."""

    i: IntArray
    j: IntArray
    sessions: FloatArray
    above: FloatArray


class Trust(NamedTuple):
    """eps+ and eps- by pair of positions, (K, K), and the state of gamma."""

    eps_plus: FloatArray
    eps_minus: FloatArray
    gamma: Any


class Examination(NamedTuple):
    """theta and theta- by position, (K,), and the state of beta."""

    theta: FloatArray
    theta_minus: FloatArray
    beta: Any


@dataclass(frozen=True)
class TrustStart:
    """Where EM starts. Of equally good answers the start decides which one EM ends at."""

    theta: float = 0.9
    eps_plus: float = 0.95
    eps_minus: float = 0.05


def fit_examination(
    items: Items,
    beta: Regression,
    *,
    start: TrustStart,
    theta: FloatArray | None = None,
    first: float | None = None,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> EMResult[Examination]:
    """theta, theta- and beta from single documents; `theta` gives a known curve, or none.

    `first` holds theta_1 at that value: clicks give only theta_k beta, so without it a constant
    factor is free between the two wherever beta is a free table.
    """
    depth = int(items.position_index.max(initial=-1)) + 1
    known = np.full(depth, start.theta) if theta is None else np.asarray(theta, dtype=float)[:depth]
    known = np.clip(known, _FLOOR, 1 - _FLOOR)
    if first is not None:
        known[0] = np.clip(first, _FLOOR, 1 - _FLOOR)

    def step(state: Examination) -> tuple[Examination, float]:
        following, likelihood = examination_step(items, beta, state)
        if theta is not None:
            following = following._replace(theta=known)
        elif first is not None:
            following.theta[0] = known[0]
        return following, likelihood

    begin = Examination(known, known.copy(), beta.start())
    return run_em(begin, step, tolerance=tolerance, max_steps=max_steps, what="examination by EM")


def examination_step(
    items: Items, beta: Regression, state: Examination
) -> tuple[Examination, float]:
    """One E and M step, and the log-likelihood of the state that went in."""
    theta, b = state.theta[items.position_index], beta.values(state.beta)
    zero = items.sessions - items.positive
    hidden = model.posterior_zero(theta, b)
    likelihood = np.dot(items.positive, np.log(theta * b)) + np.dot(zero, np.log1p(-theta * b))
    relevant = items.positive + zero * hidden.relevant
    examination = updated_examination(
        sum_by(items.position_index, zero * hidden.examined, len(state.theta)),
        sum_by(items.position_index, zero, len(state.theta)),
        sum_by(items.position_index, items.positive, len(state.theta)),
        before=state,
    )
    following = examination._replace(beta=beta.refit(state.beta, relevant, items.sessions))
    return following, float(likelihood)


def updated_examination(
    examined_zero: FloatArray, zero: FloatArray, positive: FloatArray, before: Examination
) -> Examination:
    """theta- and theta of Figure 2 from sums by position; one without sessions stays."""
    theta_minus = np.divide(examined_zero, zero, out=before.theta_minus.copy(), where=zero > 0)
    n = zero + positive
    theta = np.divide(positive + zero * theta_minus, n, out=before.theta.copy(), where=n > 0)
    theta, theta_minus = (np.clip(p, _FLOOR, 1 - _FLOOR) for p in (theta, theta_minus))
    return before._replace(theta=theta, theta_minus=theta_minus)


def fit_trust(
    items: Items,
    pairs: Pairs,
    examination: Examination,
    beta: FloatArray,
    gamma: Regression,
    *,
    start: TrustStart,
    fixed: bool = False,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> EMResult[Trust]:
    """eps+, eps- and gamma from pairs, examination and beta given; `fixed` keeps eps+, eps-."""
    depth = len(examination.theta)
    eps = np.full((depth, depth), start.eps_plus), np.full((depth, depth), start.eps_minus)

    def step(state: Trust) -> tuple[Trust, float]:
        following, likelihood = trust_step(items, pairs, examination, beta, gamma, state)
        kept = following._replace(eps_plus=eps[0], eps_minus=eps[1])
        return kept if fixed else following, likelihood

    begin = Trust(*eps, gamma.start())
    return run_em(begin, step, tolerance=tolerance, max_steps=max_steps, what="trust bias by EM")


def trust_step(
    items: Items,
    pairs: Pairs,
    examination: Examination,
    beta: FloatArray,
    gamma: Regression,
    state: Trust,
) -> tuple[Trust, float]:
    """One E and M step, and the log-likelihood of the state that went in."""
    k_i, k_j = items.position_index[pairs.i], items.position_index[pairs.j]
    g = gamma.values(state.gamma)
    theta_i, theta_j = examination.theta[k_i], examination.theta[k_j]
    eps_plus, eps_minus = state.eps_plus[k_i, k_j], state.eps_minus[k_i, k_j]
    given = (theta_i, theta_j, eps_plus, eps_minus, g, beta[pairs.i])
    yes, no = model.posterior_above(*given), model.posterior_not_above(*given)
    p, below = model.above(*given), pairs.sessions - pairs.above
    likelihood = np.dot(pairs.above, np.log(p)) + np.dot(below, np.log1p(-p))
    depth = len(examination.theta)

    def by_pair(values: FloatArray) -> FloatArray:
        sums = sum_by(k_i * depth + k_j, values, depth**2)
        return sums.reshape(depth, depth)

    preferred = pairs.above * model.preference(yes, g) + below * model.preference(no, g)
    eps = updated_trust(
        by_pair(pairs.above * yes.preferred),
        by_pair(below * no.preferred),
        by_pair(pairs.above * yes.not_preferred),
        by_pair(below * no.not_preferred),
        before=state,
    )
    return eps._replace(gamma=gamma.refit(state.gamma, preferred, pairs.sessions)), float(
        likelihood
    )


def updated_trust(
    preferred_above: FloatArray,
    preferred_below: FloatArray,
    other_above: FloatArray,
    other_below: FloatArray,
    before: Trust,
) -> Trust:
    """eps+ and eps- of Figure 2 from sums by pair of positions, with eps- <= eps+.

    Where eps- would be the larger one both get their common rate, the maximum under the constraint;
    a pair of positions without sessions stays.
    """
    n_plus, n_minus = preferred_above + preferred_below, other_above + other_below
    plus = np.divide(preferred_above, n_plus, out=before.eps_plus.copy(), where=n_plus > 0)
    minus = np.divide(other_above, n_minus, out=before.eps_minus.copy(), where=n_minus > 0)
    crossed = minus > plus
    common = np.divide(
        preferred_above + other_above, n_plus + n_minus, out=plus.copy(), where=crossed
    )
    plus, minus = np.where(crossed, common, plus), np.where(crossed, common, minus)
    return before._replace(
        eps_plus=np.clip(plus, _FLOOR, 1 - _FLOOR), eps_minus=np.clip(minus, _FLOOR, 1 - _FLOOR)
    )
