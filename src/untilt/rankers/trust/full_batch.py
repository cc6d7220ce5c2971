"""The full-batch form: EM over the whole log, then a ranker trained on fixed pair weights."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, IntArray
from untilt._core.em import EMResult
from untilt._core.random import Seed, child_generator
from untilt.networks import jax_layers
from untilt.networks.training import Loss, Stopping, Trained, train
from untilt.rankers.trust import pair_em
from untilt.rankers.trust.em_step import Batch
from untilt.rankers.trust.mini_batch import slate_batches
from untilt.rankers.trust.preference import learned, logits_of_cells, start_preference
from untilt.rankers.trust.slates import TrustSlates
from untilt.rankers.trust.trust_model import logistic_loss, pair_weights, rank_change

_FLOOR = 1e-6
_RATE = 1e-3


@dataclass(frozen=True, eq=False)
class NetworkRegression:
    """p = sigmoid(f(x_i)), f a network, or gamma for pairs (`untilt.rankers.trust.preference`).

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
    _start: dict[str, jax_layers.Params] = field(default_factory=dict)

    def start(self) -> dict[str, jax_layers.Params]:
        """Random layers, the same at every call."""
        if not self._start:
            width, act = self.features.shape[1], self.activation
            self._start.update(
                start_preference(self.seed, width, self.widths, form=self.form, activation=act)
            )
        return dict(self._start)

    def values(self, state: dict[str, jax_layers.Params]) -> FloatArray:
        """Probabilities by NumPy in double precision."""
        d = self.features.shape[1]
        model = learned(state, self.form, self.activation, mean=np.zeros(d), scale=np.ones(d))
        if self.form == "pairs" and self.j is not None:
            p = model.gamma(self.features[self.i], self.features[self.j])
        else:  # one pass a document, not one a cell
            f = model.network.forward(self.features)[:, 0]
            z = f[self.i] if self.j is None else f[self.i] - f[self.j] - model.tie
            p = 1 / (1 + np.exp(-np.clip(z, -30, 30)))
        return np.clip(p, _FLOOR, 1 - _FLOOR)

    def refit(
        self, state: jax_layers.Params, successes: FloatArray, trials: FloatArray
    ) -> dict[str, jax_layers.Params]:
        """A few steps uphill; where they led down, shorter ones."""
        jax = jax_layers.jax_modules().jax
        before = pair_em.expected_likelihood(self.values(state), successes, trials)
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
            if pair_em.expected_likelihood(self.values(climbed), successes, trials) >= before:
                return dict(climbed)
        return dict(state)


@lru_cache(maxsize=16)
def _compiled_climb(activation: str, steps: int, form: str | None) -> Callable[..., Any]:
    jax, jnp, optax = jax_layers.jax_modules()
    direction = optax.scale_by_adam()

    def loss(state: jax_layers.Params, data: Batch) -> jax_layers.Array:
        layers, x, i = state["layers"], data["features"], data["i"]
        if form is None:
            z = jax_layers.apply_layers(layers, x, activation)[i, 0]
        else:
            z = logits_of_cells(layers, state["tie"], x, i, data["j"], form, activation)
        fail = data["trials"] - data["successes"]
        return jnp.sum(data["successes"] * jax.nn.softplus(-z) + fail * jax.nn.softplus(z))

    def climb(state: jax_layers.Params, data: Batch, rate: jax_layers.Array) -> jax_layers.Array:
        def one(carry: jax_layers.Params, _: None) -> tuple[jax_layers.Params, None]:
            at, memory = carry
            update, memory = direction.update(jax.grad(loss)(at, data), memory)
            return (jax.tree.map(lambda p, u: p - rate * u, at, update), memory), None

        return jax.lax.scan(one, (state, direction.init(state)), None, length=steps)[0][0]

    return jax.jit(climb)


RELEVANCE = ("network", "linear", "table")


class FullBatchFit(NamedTuple):
    """Both EMs, and the values of beta (per item cell) and gamma (per pair cell) at their end."""

    examination: EMResult[pair_em.Examination]
    trust: EMResult[pair_em.Trust]
    beta: FloatArray
    gamma: FloatArray
    pair: IntArray


def cells_of_slates(slates: TrustSlates) -> tuple[pair_em.Items, pair_em.Pairs, IntArray]:
    """Items, pairs of two different rows, and which of the slates' pairs these are."""
    slate, i, j = slates.pairs()
    apart = i != j
    above = slates.above_positive + slates.above_zero
    items = pair_em.Items(slates.position_index, slates.row_count.astype(float), slates.positive)
    pairs = pair_em.Pairs(
        i[apart], j[apart], slates.count[slate[apart]].astype(float), above[apart]
    )
    return items, pairs, np.flatnonzero(apart)


def fit_full_batch(
    slates: TrustSlates,
    regressions: tuple[pair_em.Regression, pair_em.Regression],
    *,
    theta: FloatArray | None,
    first: float | None,
    start: pair_em.TrustStart,
    fixed_trust: bool,
    tolerance: float,
    max_steps: int,
) -> FullBatchFit:
    """Examination and beta from documents, then trust bias and gamma from pairs."""
    items, pairs, pair = cells_of_slates(slates)
    of_beta, of_gamma = regressions
    options = {"start": start, "tolerance": tolerance, "max_steps": max_steps}
    examination = pair_em.fit_examination(items, of_beta, theta=theta, first=first, **options)  # type: ignore[arg-type]
    beta = of_beta.values(examination.state.beta)
    trust = pair_em.fit_trust(
        items,
        pairs,
        examination.state,
        beta,
        of_gamma,
        fixed=fixed_trust,
        **options,  # type: ignore[arg-type]
    )
    return FullBatchFit(examination, trust, beta, of_gamma.values(trust.state.gamma), pair)


def regressions_for(
    relevance: str,
    slates: TrustSlates,
    features: FeatureArray,
    *,
    widths: tuple[int, ...],
    activation: str,
    seed: Seed,
    preference: str = "scores",
) -> tuple[pair_em.Regression, pair_em.Regression]:
    """Who gives beta and gamma; `features` are normalised, one row per document."""
    _, pairs, _ = cells_of_slates(slates)
    row_i, row_j = slates.document[pairs.i], slates.document[pairs.j]
    if relevance == "table":
        pair = np.unique(row_i * (row_j.max(initial=0) + 1) + row_j, return_inverse=True)[1]
        return pair_em.TableRegression(slates.document), pair_em.TableRegression(pair)
    if relevance == "linear":
        x = features.astype(np.float64)
        return pair_em.LogisticRegression(x[slates.document]), pair_em.LogisticRegression(
            x[row_i] - x[row_j]
        )

    def network(i: IntArray, j: IntArray | None, path: int, form: str) -> NetworkRegression:
        draw = child_generator(seed, path)
        return NetworkRegression(features, i, j, widths, activation, draw, form)

    return network(slates.document, None, 4, "scores"), network(row_i, row_j, 5, preference)


def weights_of_pairs(slates: TrustSlates, fit: FullBatchFit, loss: str, clip: float) -> FloatArray:
    """(pairs,) w_ij summed over sessions, without the change of discounts that `opt` adds."""
    items, pairs, _ = cells_of_slates(slates)
    e, t = fit.examination.state, fit.trust.state
    k_i, k_j = items.position_index[pairs.i], items.position_index[pairs.j]
    positive, zero = pair_weights(
        e.theta[k_i], e.theta[k_j], e.theta_minus[k_j], t.eps_plus[k_i, k_j],
        t.eps_minus[k_i, k_j], fit.gamma, fit.beta[pairs.i], clip=clip,
    )  # fmt: skip
    weight = np.zeros(slates.pair_ptr[-1])
    kind = "gain" if loss == "opt" else "above"
    many, none = getattr(slates, f"{kind}_positive"), getattr(slates, f"{kind}_zero")
    weight[fit.pair] = positive * many[fit.pair] + zero * none[fit.pair]
    return weight


def train_on_weights(
    slates: TrustSlates,
    weight: FloatArray,
    features: FeatureArray,
    widths: tuple[int, ...],
    *,
    activation: str,
    rank_changes: bool,
    l2: float,
    optimiser: jax_layers.Optimiser,
    epochs: int,
    batch_size: int,
    seed: Seed,
    stopping: Stopping | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
) -> Trained:
    """A network on sum w_ij log(1 + exp(-(s_i - s_j))), times |dZ| with `rank_changes`."""
    # On the scale of one session's pairs, so that weights do not change what l2 means.
    total = weight.sum()
    batches = slate_batches(slates, batch_size, seed, weight=weight * (slates.n_slates / total))
    layers = jax_layers.start_layers(
        child_generator(seed, 0, 2), (features.shape[1], *widths, 1), activation=activation
    )
    return train(
        weighted_loss(activation, rank_changes),
        layers,
        batches,
        optimiser=optimiser,
        epochs=epochs,
        constants={"features": features, "l2": np.asarray(l2, np.float32)},
        stopping=stopping,
        checkpoint=checkpoint,
        fingerprint=fingerprint,
        what="training the ranker",
    )


@lru_cache(maxsize=32)
def weighted_loss(activation: str, rank_changes: bool) -> Loss:
    """loss(layers, batch) for fixed pair weights."""
    jax, jnp, _ = jax_layers.jax_modules()

    def loss(layers: jax_layers.Layers, batch: Batch) -> jax_layers.Array:
        s = jax_layers.apply_layers(layers, batch["features"][batch["row"]], activation)[..., 0]
        weight = batch["weight"]
        if rank_changes:
            weight = weight * rank_change(jax.lax.stop_gradient(s), batch["mask"] > 0, jnp)
        pair = weight * logistic_loss(s[:, :, None] - s[:, None, :], jnp)
        penalty = batch["l2"] / 2 * jax_layers.sum_of_squares(layers)
        return jnp.sum(pair) / batch["sessions"].shape[0] + penalty

    return loss
