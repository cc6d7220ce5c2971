"""The full-batch form: EM over the whole log, then a ranker trained on fixed pair weights."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.em import EMResult
from untilt._core.random import Seed, child_generator
from untilt.networks.jax_layers import apply_layers, jax_modules, start_layers, sum_of_squares
from untilt.networks.optimisers import Optimiser
from untilt.networks.training import Trained, train
from untilt.objectives.pairwise_trust_em import (
    Examination,
    Items,
    Pairs,
    Trust,
    TrustStart,
    fit_examination,
    fit_trust,
)
from untilt.objectives.pairwise_trust_loss import logistic_loss, pair_weights, rank_change
from untilt.objectives.trust_network import NetworkRegression
from untilt.objectives.trust_regressions import LogisticRegression, Regression, TableRegression
from untilt.objectives.trust_slates import TrustSlates
from untilt.rankers.pairwise_trust_online import slate_batches

RELEVANCE = ("network", "linear", "table")


class WholeFit(NamedTuple):
    """Both EMs, and the values of beta (per item cell) and gamma (per pair cell) at their end."""

    examination: EMResult[Examination]
    trust: EMResult[Trust]
    beta: FloatArray
    gamma: FloatArray
    pair: FloatArray


def cells_of_slates(slates: TrustSlates) -> tuple[Items, Pairs, FloatArray]:
    """Items, pairs of two different rows, and which of the slates' pairs these are."""
    slate, i, j = slates.pairs()
    apart = i != j
    above = slates.above_positive + slates.above_zero
    items = Items(slates.place, slates.shown, slates.positive)
    pairs = Pairs(i[apart], j[apart], slates.sessions[slate[apart]], above[apart])
    return items, pairs, np.flatnonzero(apart)


def fit_whole(
    slates: TrustSlates,
    regressions: tuple[Regression, Regression],
    *,
    theta: FloatArray | None,
    first: float | None,
    start: TrustStart,
    fixed_trust: bool,
    tolerance: float,
    max_steps: int,
) -> WholeFit:
    """Examination and beta from documents, then trust bias and gamma from pairs."""
    items, pairs, pair = cells_of_slates(slates)
    of_beta, of_gamma = regressions
    options = {"start": start, "tolerance": tolerance, "max_steps": max_steps}
    examination = fit_examination(items, of_beta, theta=theta, first=first, **options)  # type: ignore[arg-type]
    beta = of_beta.values(examination.state.beta)
    trust = fit_trust(
        items,
        pairs,
        examination.state,
        beta,
        of_gamma,
        fixed=fixed_trust,
        **options,  # type: ignore[arg-type]
    )
    return WholeFit(examination, trust, beta, of_gamma.values(trust.state.gamma), pair)


def regressions_for(
    relevance: str,
    slates: TrustSlates,
    features: FloatArray,
    *,
    widths: tuple[int, ...],
    activation: str,
    seed: Seed,
) -> tuple[Regression, Regression]:
    """Who gives beta and gamma; `features` are normalised, one row per document."""
    _, pairs, _ = cells_of_slates(slates)
    row_i, row_j = slates.row[pairs.i], slates.row[pairs.j]
    if relevance == "table":
        pair = np.unique(row_i * (row_j.max(initial=0) + 1) + row_j, return_inverse=True)[1]
        return TableRegression(slates.row), TableRegression(pair)
    if relevance == "linear":
        x = features.astype(np.float64)
        return LogisticRegression(x[slates.row]), LogisticRegression(x[row_i] - x[row_j])

    def network(i: IntArray, j: IntArray | None, path: int) -> NetworkRegression:
        return NetworkRegression(features, i, j, widths, activation, child_generator(seed, path))

    return network(slates.row, None, 4), network(row_i, row_j, 5)


def weights_of_pairs(slates: TrustSlates, fit: WholeFit, loss: str, clip: float) -> FloatArray:
    """(pairs,) w_ij summed over sessions, without the change of discounts that `opt` adds."""
    items, pairs, _ = cells_of_slates(slates)
    e, t = fit.examination.state, fit.trust.state
    k_i, k_j = items.place[pairs.i], items.place[pairs.j]
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
    features: FloatArray,
    widths: tuple[int, ...],
    *,
    activation: str,
    rank_changes: bool,
    l2: float,
    optimiser: Optimiser,
    epochs: int,
    batch_size: int,
    seed: Seed,
) -> Trained:
    """A network on sum w_ij log(1 + exp(-(s_i - s_j))), times |dZ| with `rank_changes`."""
    # On the scale of one session's pairs, so that weights do not change what l2 means.
    total = weight.sum()
    batches = slate_batches(slates, batch_size, seed, weight=weight * (slates.n_slates / total))
    layers = start_layers(
        child_generator(seed, 0, 2), (features.shape[1], *widths, 1), activation=activation
    )
    loss = weighted_loss(activation, rank_changes, l2)
    constants = {"features": features}
    what = "training the ranker"
    return train(
        loss, layers, batches, optimiser=optimiser, epochs=epochs, constants=constants, what=what
    )


@lru_cache(maxsize=32)
def weighted_loss(activation: str, rank_changes: bool, l2: float) -> Callable[[Any, Any], Any]:
    """loss(layers, batch) for fixed pair weights."""
    jax, jnp, _ = jax_modules()

    def loss(layers: Any, batch: Any) -> Any:
        s = apply_layers(layers, batch["features"][batch["row"]], activation)[..., 0]
        weight = batch["weight"]
        if rank_changes:
            weight = weight * rank_change(jax.lax.stop_gradient(s), batch["mask"] > 0, jnp)
        pair = weight * logistic_loss(s[:, :, None] - s[:, None, :], jnp)
        return jnp.sum(pair) / batch["sessions"].shape[0] + l2 / 2 * sum_of_squares(layers)

    return loss
