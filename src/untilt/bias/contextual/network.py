"""log theta_k(x) by a small network, learned from where the clicks on documents fall."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray
from untilt._core.random import child_generator
from untilt.bias.contextual.evidence import Contexts, Evidence
from untilt.bias.contextual.likelihood import log_likelihood
from untilt.networks.batches import PaddedRows
from untilt.networks.jax_layers import (
    Optimiser,
    apply_layers,
    jax_modules,
    start_layers,
    sum_of_squares,
    to_network,
)
from untilt.networks.mlp import Network, normalised
from untilt.networks.training import Loss, Stopping, Trained, train

# With fewer queries a held-out share of them says nothing about the rest.
FEWEST_TO_HOLD_OUT = 20


@dataclass(frozen=True)
class NetworkOptions:
    """How the network of `ContextualBias` is made and trained; see there."""

    widths: tuple[int, ...]
    activation: str
    l2: float
    epochs: int
    batch_size: int
    learning_rate: float
    validation: float
    patience: int
    seed: int


@dataclass(frozen=True, eq=False)
class Inputs:
    """Evidence with its contexts and their normalisation, and the curve without any context."""

    evidence: Evidence
    contexts: Contexts
    mean: FloatArray
    scale: FloatArray
    start: FloatArray


def fit_network(
    inputs: Inputs, options: NetworkOptions, *, member: int = 0
) -> tuple[Network, Trained]:
    """Train one network; member 0 on the queries as they are, others on bootstrap samples."""
    evidence = inputs.evidence
    queries, unit = np.unique(evidence.query, return_inverse=True)
    weight = _times_drawn(len(queries), options.seed, member)[unit.ravel()]
    held_out = _held_out(len(queries), options, member)[unit.ravel()]
    learn = np.flatnonzero(~held_out & (weight > 0))
    x = normalised(inputs.contexts.values, inputs.mean, inputs.scale)
    clicks = float(np.dot(weight[learn], evidence.clicks[learn].sum(axis=1)))
    trained = train(
        _loss(options.activation),
        _start(inputs, options, member),
        PaddedRows(_columns(evidence, weight, x, learn, clicks), options.batch_size, options.seed),
        optimiser=Optimiser("adam", options.learning_rate, "cosine"),
        epochs=options.epochs,
        constants={
            "l2_per_click": np.array(options.l2 / clicks, np.float32),
            "per_batch": np.array(len(learn) / min(len(learn), options.batch_size), np.float32),
        },
        stopping=_stopping(inputs, options, np.flatnonzero(held_out)),
        what="examination by context",
    )
    network = to_network(trained.params, options.activation, mean=inputs.mean, scale=inputs.scale)
    return network, trained


@lru_cache(maxsize=8)
def _loss(activation: str) -> Loss:
    """-sum_i w_i sum_k c_ik log P_ik per click, plus l2 / 2 of the squared weights per click."""

    def loss(params: Any, batch: Any) -> Any:
        jax, jnp = jax_modules().jax, jax_modules().numpy
        z = apply_layers(params, batch["x"], activation) + batch["log_shown"]
        log_share = jax.nn.log_softmax(z, axis=1)
        # Never shown there: no clicks, and log n stands at -30 rather than at minus infinity.
        fit = jnp.sum(batch["mask"][:, None] * batch["clicks"] * log_share)
        return 0.5 * batch["l2_per_click"] * sum_of_squares(params) - batch["per_batch"] * fit

    return loss


def _columns(
    evidence: Evidence, weight: FloatArray, x: FeatureArray, rows: IntArray, clicks: float
) -> dict[str, FeatureArray]:
    shown = evidence.impressions[rows]
    log_shown = np.log(np.where(shown > 0, shown, np.exp(-30.0)))
    weighted = weight[rows, None] * evidence.clicks[rows] / clicks
    return {
        "x": x[evidence.context[rows]],
        "log_shown": log_shown.astype(np.float32),
        "clicks": weighted.astype(np.float32),
    }


def _start(inputs: Inputs, options: NetworkOptions, member: int) -> Any:
    """Random hidden layers; outputs at the curve without context, whatever the input."""
    depth = inputs.evidence.clicks.shape[1]
    widths = (inputs.contexts.values.shape[1], *options.widths, depth)
    seed = child_generator(options.seed, 0, member)
    layers = start_layers(seed, widths, activation=options.activation)
    layers["weights"][-1] = np.zeros_like(layers["weights"][-1])
    layers["biases"][-1] = inputs.start.astype(np.float32)
    return layers


def _times_drawn(n_queries: int, seed: int, member: int) -> FloatArray:
    if member == 0:
        return np.ones(n_queries)
    draw = child_generator(seed, 2, member)
    return draw.multinomial(n_queries, np.full(n_queries, 1 / n_queries)).astype(float)


def _held_out(n_queries: int, options: NetworkOptions, member: int) -> BoolArray:
    """(queries,) which are not learned from but say when to stop."""
    held_out = np.zeros(n_queries, dtype=bool)
    if n_queries >= FEWEST_TO_HOLD_OUT and options.validation > 0:
        draw = child_generator(options.seed, 3, member)
        n = max(1, round(options.validation * n_queries))
        held_out[draw.choice(n_queries, n, replace=False)] = True
    return held_out


def _stopping(inputs: Inputs, options: NetworkOptions, rows: IntArray) -> Stopping | None:
    if len(rows) == 0:
        return None
    evidence = inputs.evidence.take(rows)

    def value(params: Any) -> float:
        network = to_network(params, options.activation, mean=inputs.mean, scale=inputs.scale)
        return log_likelihood(network.forward(inputs.contexts.values), evidence)

    return Stopping(value, options.patience)
