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

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.ascent import EMResult, run_em
from untilt._core.random import Seed, child_generator
from untilt.networks import mlp
from untilt.networks.training import Loss
from untilt.rankers.trust import trust_model as model
from untilt.rankers.trust.mini_batch import Batch
from untilt.rankers.trust.slates import TrustSlates
from untilt.rankers.trust.trust_model import (
    logistic_loss,
    logits_of_cells,
    pair_weights,
    preference_of,
    rank_change,
    start_preference,
)

if TYPE_CHECKING:
    from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker

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


class LabelItems(NamedTuple):
    """Documents of slates: 0-based position, sessions, sessions with c > 0."""

    position_index: IntArray
    sessions: FloatArray
    positive: FloatArray


class LabelPairs(NamedTuple):
    """Cells of ordered pairs: items i and j, sessions, sessions with c_i > c_j."""

    i: IntArray
    j: IntArray
    sessions: FloatArray
    above: FloatArray


class TrustState(NamedTuple):
    """eps+ and eps- by pair of positions, (K, K), and the state of gamma."""

    eps_plus: FloatArray
    eps_minus: FloatArray
    gamma: Any


class PairExamination(NamedTuple):
    """theta and theta- by position, (K,), and the state of beta."""

    theta: FloatArray
    theta_minus: FloatArray
    beta: Any


def fit_examination(
    items: LabelItems,
    beta: Regression,
    *,
    start: model.TrustStart,
    theta: FloatArray | None = None,
    first: float | None = None,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> EMResult[PairExamination]:
    """theta, theta- and beta from single documents; `theta` gives a known curve, or none.

    `first` holds theta_1 at that value: clicks give only theta_k beta, so without it a constant
    factor is free between the two wherever beta is a free table.
    """
    depth = int(items.position_index.max(initial=-1)) + 1
    known = np.full(depth, start.theta) if theta is None else np.asarray(theta, dtype=float)[:depth]
    known = np.clip(known, _FLOOR, 1 - _FLOOR)
    if first is not None:
        known[0] = np.clip(first, _FLOOR, 1 - _FLOOR)

    k, positive, zero = items.position_index, items.positive, items.sessions - items.positive
    n_zero, n_positive = (sum_by(k, each, depth) for each in (zero, positive))

    def step(state: PairExamination) -> tuple[PairExamination, float]:
        """One E and M step, and the log-likelihood of the state that went in."""
        at, b = state.theta[k], beta.values(state.beta)
        hidden = model.posterior_zero(at, b)
        likelihood = np.dot(positive, np.log(at * b)) + np.dot(zero, np.log1p(-at * b))
        examined = sum_by(k, zero * hidden.examined, depth)
        following = updated_examination(examined, n_zero, n_positive, before=state)
        if theta is not None:
            following = following._replace(theta=known)
        elif first is not None:
            following.theta[0] = known[0]
        relevant = positive + zero * hidden.relevant
        refitted = beta.refit(state.beta, relevant, items.sessions)
        return following._replace(beta=refitted), float(likelihood)

    begin = PairExamination(known, known.copy(), beta.start())
    return run_em(begin, step, tolerance=tolerance, max_steps=max_steps, what="examination by EM")


def updated_examination(
    examined_zero: FloatArray, zero: FloatArray, positive: FloatArray, before: PairExamination
) -> PairExamination:
    """theta- and theta of Figure 2 from sums by position; one without sessions stays."""
    theta_minus = np.divide(examined_zero, zero, out=before.theta_minus.copy(), where=zero > 0)
    n = zero + positive
    theta = np.divide(positive + zero * theta_minus, n, out=before.theta.copy(), where=n > 0)
    theta, theta_minus = (np.clip(p, _FLOOR, 1 - _FLOOR) for p in (theta, theta_minus))
    return before._replace(theta=theta, theta_minus=theta_minus)


def fit_trust(
    items: LabelItems,
    pairs: LabelPairs,
    examination: PairExamination,
    beta: FloatArray,
    gamma: Regression,
    *,
    start: model.TrustStart,
    fixed: bool = False,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
) -> EMResult[TrustState]:
    """eps+, eps- and gamma from pairs, examination and beta given; `fixed` keeps eps+, eps-."""
    depth = len(examination.theta)
    eps = np.full((depth, depth), start.eps_plus), np.full((depth, depth), start.eps_minus)
    k_i, k_j = items.position_index[pairs.i], items.position_index[pairs.j]
    theta_i, theta_j = examination.theta[k_i], examination.theta[k_j]
    below = pairs.sessions - pairs.above

    def by_pair(values: FloatArray) -> FloatArray:
        sums = sum_by(k_i * depth + k_j, values, depth**2)
        return sums.reshape(depth, depth)

    def step(state: TrustState) -> tuple[TrustState, float]:
        """One E and M step, and the log-likelihood of the state that went in."""
        g = gamma.values(state.gamma)
        now = state.eps_plus[k_i, k_j], state.eps_minus[k_i, k_j]
        pair = model.PairParameters(theta_i, theta_j, *now, g, beta[pairs.i])
        yes, no, p = model.posterior_above(pair), model.posterior_not_above(pair), model.above(pair)
        likelihood = float(np.dot(pairs.above, np.log(p)) + np.dot(below, np.log1p(-p)))
        preferred = pairs.above * model.preference(yes, g) + below * model.preference(no, g)
        following = state if fixed else updated_trust(
            by_pair(pairs.above * yes.preferred), by_pair(below * no.preferred),
            by_pair(pairs.above * yes.not_preferred), by_pair(below * no.not_preferred),
            before=state,
        )  # fmt: skip
        refitted = gamma.refit(state.gamma, preferred, pairs.sessions)
        return following._replace(gamma=refitted), likelihood

    begin = TrustState(*eps, gamma.start())
    return run_em(begin, step, tolerance=tolerance, max_steps=max_steps, what="trust bias by EM")


def updated_trust(
    preferred_above: FloatArray,
    preferred_below: FloatArray,
    other_above: FloatArray,
    other_below: FloatArray,
    before: TrustState,
) -> TrustState:
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


# The full-batch form: EM over the whole log, then a ranker trained on fixed pair weights.

_RATE = 1e-3


@dataclass(frozen=True, eq=False)
class NetworkRegression:
    """p = sigmoid(f(x_i)), f a network, or gamma for pairs (`untilt.rankers.trust.trust_model`).

    A refit is `steps` Adam steps on the whole data, taken only if Q in double precision is not
    lower than before: EM then never falls, though single precision cannot promise it.

    Parameters
    ----------
    features : (rows, d) normalised, single precision
    i, j : (cells,) rows of a cell; j is None for single documents
    form : of gamma
    """

    features: FeatureArray
    i: IntArray
    j: IntArray | None
    widths: tuple[int, ...]
    activation: str
    seed: Seed
    form: str = "scores"
    steps: int = 20
    _start: dict[str, mlp.Params] = field(default_factory=dict)

    def start(self) -> dict[str, mlp.Params]:
        """Random layers, the same at every call."""
        if not self._start:
            width, act = self.features.shape[1], self.activation
            self._start.update(
                start_preference(self.seed, width, self.widths, form=self.form, activation=act)
            )
        return dict(self._start)

    def values(self, state: dict[str, mlp.Params]) -> FloatArray:
        """Probabilities by NumPy in double precision."""
        d = self.features.shape[1]
        model = preference_of(state, self.form, self.activation, mean=np.zeros(d), scale=np.ones(d))
        if self.form == "pairs" and self.j is not None:
            p = model.gamma(self.features[self.i], self.features[self.j])
        else:  # one pass a document, not one a cell
            f = model.network.forward(self.features)[:, 0]
            z = f[self.i] if self.j is None else f[self.i] - f[self.j] - model.tie
            p = 1 / (1 + np.exp(-np.clip(z, -30, 30)))
        return np.clip(p, _FLOOR, 1 - _FLOOR)

    def refit(
        self, state: mlp.Params, successes: FloatArray, trials: FloatArray
    ) -> dict[str, mlp.Params]:
        """A few steps uphill; where they led down, shorter ones."""
        jax = mlp.jax_modules().jax
        before = expected_likelihood(self.values(state), successes, trials)
        form = None if self.j is None else self.form
        climb = _compiled_climb(self.activation, self.steps, form)
        data = {
            "features": self.features,
            "i": self.i,
            "j": self.i if self.j is None else self.j,
            "successes": (successes / trials.sum()).astype(np.float32),
            "trials": (trials / trials.sum()).astype(np.float32),
        }
        for rate in (_RATE, _RATE / 4, _RATE / 16):
            climbed = jax.tree.map(np.asarray, jax.device_get(climb(state, data, np.float32(rate))))
            if expected_likelihood(self.values(climbed), successes, trials) >= before:
                return dict(climbed)
        return dict(state)


@lru_cache(maxsize=16)
def _compiled_climb(activation: str, steps: int, form: str | None) -> Callable[..., Any]:
    jax, jnp, optax = mlp.jax_modules()
    direction = optax.scale_by_adam()

    def loss(state: mlp.Params, data: Batch) -> mlp.Array:
        layers, x, i = state["layers"], data["features"], data["i"]
        if form is None:
            z = mlp.apply_layers(layers, x, activation)[i, 0]
        else:
            z = logits_of_cells(layers, state["tie"], x, i, data["j"], form, activation)
        fail = data["trials"] - data["successes"]
        return jnp.sum(data["successes"] * jax.nn.softplus(-z) + fail * jax.nn.softplus(z))

    def climb(state: mlp.Params, data: Batch, rate: mlp.Array) -> mlp.Array:
        def one(carry: mlp.Params, _: None) -> tuple[mlp.Params, None]:
            at, memory = carry
            update, memory = direction.update(jax.grad(loss)(at, data), memory)
            return (jax.tree.map(lambda p, u: p - rate * u, at, update), memory), None

        return jax.lax.scan(one, (state, direction.init(state)), None, length=steps)[0][0]

    return jax.jit(climb)


RELEVANCE = ("network", "linear", "table")


class FullBatchFit(NamedTuple):
    """Both EMs, and the values of beta (per item cell) and gamma (per pair cell) at their end."""

    examination: EMResult[PairExamination]
    trust: EMResult[TrustState]
    beta: FloatArray
    gamma: FloatArray
    pair: IntArray


def cells_of_slates(slates: TrustSlates) -> tuple[LabelItems, LabelPairs, IntArray]:
    """Items, pairs of two different rows, and which of the slates' pairs these are."""
    slate, i, j = slates.pairs()
    apart = i != j
    above = slates.above_positive + slates.above_zero
    items = LabelItems(slates.position_index, slates.row_count.astype(float), slates.positive)
    pairs = LabelPairs(i[apart], j[apart], slates.count[slate[apart]].astype(float), above[apart])
    return items, pairs, np.flatnonzero(apart)


def fit_full_batch(
    ranker: "PairwiseTrustRanker",
    slates: TrustSlates,
    regressions: tuple[Regression, Regression],
    theta: FloatArray | None,
) -> FullBatchFit:
    """Examination and beta from documents, then trust bias and gamma from pairs."""
    items, pairs, pair = cells_of_slates(slates)
    of_beta, of_gamma = regressions
    fixed, first = ranker.loss == "ipw", ranker.first_examination
    start = model.TrustStart(eps_plus=1 - 1e-6, eps_minus=1e-6) if fixed else model.TrustStart()
    options = {"start": start, "tolerance": ranker.tolerance, "max_steps": ranker.max_steps}
    examination = fit_examination(items, of_beta, theta=theta, first=first, **options)  # type: ignore[arg-type]
    beta = of_beta.values(examination.state.beta)
    given = items, pairs, examination.state, beta, of_gamma
    trust = fit_trust(*given, fixed=fixed, **options)  # type: ignore[arg-type]
    return FullBatchFit(examination, trust, beta, of_gamma.values(trust.state.gamma), pair)


def regressions_for(
    ranker: "PairwiseTrustRanker", slates: TrustSlates, features: FeatureArray
) -> tuple[Regression, Regression]:
    """Who gives beta and gamma; `features` are normalised, one row per document."""
    _, pairs, _ = cells_of_slates(slates)
    row_i, row_j = slates.document[pairs.i], slates.document[pairs.j]
    if ranker.relevance == "table":
        pair = np.unique(row_i * (row_j.max(initial=0) + 1) + row_j, return_inverse=True)[1]
        return TableRegression(slates.document), TableRegression(pair)
    if ranker.relevance == "linear":
        x = features.astype(np.float64)
        return LogisticRegression(x[slates.document]), LogisticRegression(x[row_i] - x[row_j])

    def network(i: IntArray, j: IntArray | None, path: int, form: str) -> NetworkRegression:
        draw, widths = child_generator(ranker.seed, path), tuple(ranker.widths)
        return NetworkRegression(features, i, j, widths, ranker.activation, draw, form)

    return network(slates.document, None, 4, "scores"), network(row_i, row_j, 5, ranker.preference)


def weights_of_pairs(slates: TrustSlates, fit: FullBatchFit, loss: str, clip: float) -> FloatArray:
    """(pairs,) w_ij summed over sessions, without the change of discounts that `opt` adds."""
    items, pairs, _ = cells_of_slates(slates)
    e, t = fit.examination.state, fit.trust.state
    k_i, k_j = items.position_index[pairs.i], items.position_index[pairs.j]
    pair = model.PairParameters(
        e.theta[k_i], e.theta[k_j], t.eps_plus[k_i, k_j], t.eps_minus[k_i, k_j], fit.gamma,
        fit.beta[pairs.i],
    )  # fmt: skip
    positive, zero = pair_weights(pair, e.theta_minus[k_j], clip=clip)
    weight = np.zeros(slates.pair_ptr[-1])
    kind = "gain" if loss == "opt" else "above"
    many, none = getattr(slates, f"{kind}_positive"), getattr(slates, f"{kind}_zero")
    weight[fit.pair] = positive * many[fit.pair] + zero * none[fit.pair]
    return weight


@lru_cache(maxsize=32)
def weighted_loss(activation: str, rank_changes: bool) -> Loss:
    """loss(layers, batch) for fixed pair weights."""
    jax, jnp, _ = mlp.jax_modules()

    def loss(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        s = mlp.apply_layers(layers, batch["features"][batch["row"]], activation)[..., 0]
        weight = batch["weight"]
        if rank_changes:
            weight = weight * rank_change(jax.lax.stop_gradient(s), batch["mask"] > 0, jnp)
        pair = weight * logistic_loss(s[:, :, None] - s[:, None, :], jnp)
        penalty = batch["l2"] / 2 * mlp.sum_of_squares(layers)
        return jnp.sum(pair) / batch["sessions"].shape[0] + penalty

    return loss
