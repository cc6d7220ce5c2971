r"""Losses of ranking networks as pure functions of (params, batch), for `training.train`.

Every batch shares "features" (n, d), normalised, and "l2"; "row" says which of them it is about.
"scale" turns the sum over the batch into an estimate of the mean loss over all the data. To each
loss l2/2 |weights|^2 is added. Padding has weight 0 and adds nothing.

Pairs and softmax do not see a constant that is added to all scores, so the last bias is held at 0:
its gradient would be rounding errors, which Adam makes as large as any other step.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from untilt.networks import mlp

# p is kept this far from 0 and 1 (single precision), so that no click is impossible.
_EDGE = 1e-6
_ABSENT = -1e30

Batch = Mapping[str, mlp.Array]
Loss = Callable[[mlp.Params, Batch], mlp.Array]


@lru_cache(maxsize=64)
def pairwise_loss(
    activation: str,
    *,
    sigma: float = 1.0,
    dropout: float = 0.0,
    plain: bool = False,
    against_all: bool = False,
) -> Loss:
    r"""Sum over pairs of w_ij log(1 + exp(-sigma (s_i - s_j))), w_ij = W[k_i, k_j] pairs_ij.

    batch: "row", "position_index" (lists, length); "table" W, (K, K); and either "pairs" (lists,
    length, length), entry [i, j] the sessions that prefer i to j, or "gain" (lists, length) and
    "weight" (lists,), from which they follow as in `pairs_of_gains`: far less to copy.
    """

    def loss(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        jax, jnp, _ = mlp.jax_modules()
        s = list_scores(layers, batch, activation, dropout)
        k = batch["position_index"]
        pairs = batch["pairs"] if "pairs" in batch else pairs_of_gains(batch, plain, against_all)
        weight = pairs * batch["table"][k[:, :, None], k[:, None, :]]
        phi = jax.nn.softplus(-sigma * (s[:, :, None] - s[:, None, :]))
        return batch["scale"] * jnp.sum(weight * phi) + penalty(layers, batch)

    return loss


@lru_cache(maxsize=64)
def listwise_loss(activation: str, *, dropout: float = 0.0) -> Loss:
    r"""- sum over lists of sum_i a_i log softmax(s)_i.

    batch: "row", "mask", "weight" (lists, length), weight_i = a_i the weighted clicks of row i.
    """

    def loss(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        jnp = mlp.jax_modules().numpy
        log_share = masked_log_softmax(
            list_scores(layers, batch, activation, dropout), batch["mask"]
        )
        return -batch["scale"] * jnp.sum(batch["weight"] * log_share) + penalty(layers, batch)

    return loss


@lru_cache(maxsize=64)
def sided_listwise_loss(activation: str, *, dropout: float = 0.0) -> Loss:
    r"""sum over clicked i of up_i log(1 + sum_j down_j exp(s_j - s_i)), j unclicked in its list.

    batch: "row", "mask", "weight", "log_down" (lists, length): up_i times the sessions of the list
    where row i was clicked, and log down_j where row j was not; else 0, and -1e30.
    """

    def loss(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        jax, jnp, _ = mlp.jax_modules()
        s = list_scores(layers, batch, activation, dropout)
        there = jnp.where(batch["mask"] > 0, batch["log_down"], _ABSENT)
        others = jax.nn.logsumexp(s + there, axis=-1, keepdims=True)
        fit = jnp.sum(batch["weight"] * jax.nn.softplus(others - s))
        return batch["scale"] * fit + penalty(layers, batch)

    return loss


@lru_cache(maxsize=64)
def sided_pointwise_loss(activation: str, *, dropout: float = 0.0) -> Loss:
    r"""sum over cells of c up_k log(1 + exp(-s)) + (n - c) down_k log(1 + exp(s)).

    batch: as for `pointwise_loss`, with "up" and "down" (K,).
    """

    def loss(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        jax, jnp, _ = mlp.jax_modules()
        s = scores(layers, batch["features"][batch["row"]], activation, dropout, batch)
        c, n, k = batch["clicks"], batch["impressions"], batch["position_index"]
        won, lost = c * batch["up"][k], (n - c) * batch["down"][k]
        fit = batch["mask"] * (won * jax.nn.softplus(-s) + lost * jax.nn.softplus(s))
        return batch["scale"] * jnp.sum(fit) + penalty(layers, batch)

    return loss


@lru_cache(maxsize=64)
def pointwise_loss(activation: str, *, dropout: float = 0.0) -> Loss:
    r"""- sum over cells of c log p + (n - c) log(1 - p), p = alpha_k sigmoid(s) + beta_k.

    batch: "row", "position_index", "mask", "impressions" n, "clicks" c, all (cells,); "alpha" and
    "beta" (K,).
    """

    def loss(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        jax, jnp, _ = mlp.jax_modules()
        s = scores(layers, batch["features"][batch["row"]], activation, dropout, batch)
        alpha, beta = (
            batch["alpha"][batch["position_index"]],
            batch["beta"][batch["position_index"]],
        )
        p = jnp.clip(alpha * jax.nn.sigmoid(s) + beta, _EDGE, 1 - _EDGE)
        c, n = batch["clicks"], batch["impressions"]
        fit = batch["mask"] * (c * jnp.log(p) + (n - c) * jnp.log1p(-p))
        return -batch["scale"] * jnp.sum(fit) + penalty(layers, batch)

    return loss


@lru_cache(maxsize=64)
def dual_loss(activation: str, *, largest_weight: float, dropout: float = 0.0) -> Loss:
    r"""Both losses of dual learning ([ai2018dla]_), each with the other side held fixed.

    ranker       - sum c_i (theta_1 / theta_i) log softmax(s)_i
    propensity   - sum c_i (gamma_1 / gamma_i) log softmax(z)_i

    with theta = softmax(z) over the positions of a list, gamma = softmax(s) over its documents, and
    "1" the first row of the list. Neither ratio may exceed `largest_weight`.

    params: {"ranker": layers, "propensity": z (K,)}; batch: "row", "position_index", "mask",
    "clicks" (lists, length).
    """

    def loss(params: mlp.Params, batch: Batch) -> mlp.Array:
        jax, jnp, _ = mlp.jax_modules()
        fixed = jax.lax.stop_gradient
        s = list_scores(params["ranker"], batch, activation, dropout)
        z = params["propensity"][batch["position_index"]]
        relevance = masked_log_softmax(s, batch["mask"])
        examined = masked_log_softmax(z, batch["mask"])
        clicks = batch["clicks"]
        by_propensity = clicks * fixed(first_over_each(examined, largest_weight))
        by_relevance = clicks * fixed(first_over_each(relevance, largest_weight))
        total = jnp.sum(by_propensity * relevance) + jnp.sum(by_relevance * examined)
        return -batch["scale"] * total + penalty(params["ranker"], batch)

    return loss


@lru_cache(maxsize=64)
def scores_function(activation: str) -> Callable[[mlp.Layers, Batch], mlp.Array]:
    """(layers, {"features": (n, d)}) -> (n,) scores, to be compiled by `compiled_value`."""

    def score(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        return mlp.apply_layers(layers, batch["features"], activation)[:, 0]

    return score


@lru_cache(maxsize=64)
def slopes_function(activation: str) -> Callable[[mlp.Layers, Batch], mlp.Array]:
    """(layers, {"features": (n, d)}) -> (n, d) derivative of each row's score by its features."""

    def slopes(layers: mlp.Layers, batch: Batch) -> mlp.Array:
        jax, jnp, _ = mlp.jax_modules()
        return jax.grad(lambda x: jnp.sum(mlp.apply_layers(layers, x, activation)))(
            batch["features"]
        )

    return slopes


def pairs_of_gains(batch: Batch, plain: bool, against_all: bool) -> mlp.Array:
    """[i, j]: weight times what the gain of i is above that of j, or 1 where it is ("plain").

    `against_all` compares with nothing: the gain of i itself, for every other row j.
    """
    jnp = mlp.jax_modules().numpy
    gain, mask = jnp.asarray(batch["gain"]), batch["mask"]
    lead = gain[:, :, None] - (0.0 if against_all else gain[:, None, :])
    lead = (lead > 0).astype(gain.dtype) if plain else jnp.maximum(lead, 0.0)
    row = jnp.arange(gain.shape[1])
    other = row[:, None] != row[None, :]
    there = mask[:, :, None] * mask[:, None, :] * other
    return batch["weight"][:, None, None] * there * lead


def list_scores(
    layers: mlp.Layers, batch: Batch, activation: str, dropout: float = 0.0
) -> mlp.Array:
    """(lists, length) scores without a constant: the last bias is left out."""
    biases = layers["biases"]
    free = {
        **layers,
        "biases": [*biases[:-1], 0.0 * mlp.jax_modules().jax.lax.stop_gradient(biases[-1])],
    }
    return scores(free, batch["features"][batch["row"]], activation, dropout, batch)


def scores(
    layers: mlp.Layers, x: mlp.Array, activation: str, dropout: float, batch: Batch
) -> mlp.Array:
    """The first output; with dropout, "noise" in the batch is the seed of the step."""
    key = mlp.jax_modules().jax.random.key(batch["noise"]) if dropout > 0 else None
    return mlp.apply_layers(layers, x, activation, dropout=dropout, key=key)[..., 0]


def masked_log_softmax(x: mlp.Array, mask: mlp.Array) -> mlp.Array:
    """log softmax over the last axis among the rows that are there."""
    jax, jnp, _ = mlp.jax_modules()
    return jax.nn.log_softmax(jnp.where(mask > 0, x, _ABSENT), axis=-1)


def first_over_each(log_share: mlp.Array, largest: float) -> mlp.Array:
    """share_1 / share_i of each list, at most `largest`; finite also where there is no row."""
    jnp = mlp.jax_modules().numpy
    return jnp.exp(jnp.clip(log_share[:, :1] - log_share, None, min(math.log(largest), 60.0)))


def penalty(layers: mlp.Layers, batch: Batch) -> mlp.Array:
    """l2/2 |weights|^2."""
    return 0.5 * batch["l2"] * mlp.sum_of_squares(layers)
