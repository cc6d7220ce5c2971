"""When a network stops: by labels, or by how likely it makes clicks that it has not seen.

Clicks weighted by 1 / theta are worth the more the steeper the curve. A network that learns the
curve along with the ranking would be praised for steepness; the likelihood of the clicks does not
do that.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.facts import Fact
from untilt.networks.jax_layers import Layers, Params
from untilt.networks.mlp import normalised
from untilt.networks.training import Stopping
from untilt.rankers.click_likelihood import held_out_likelihood
from untilt.rankers.networks import network_ranker
from untilt.rankers.validation import as_in_training, held_out_clicks, validation_for

HOLD_OUT = 0.2  # of the training queries
FEWEST_QUERIES = 50  # ten held out; what fewer say of an epoch is noise

Data = ClickLog | JudgedLists
# From the parameters to the examination at positions 1, 2, ..., relative to any of them.
Curve = Callable[[Params], FloatArray]


class Parts(NamedTuple):
    """What to learn from, what to stop by, and what is to be said about it."""

    train: Data
    held_out: Data | None
    fact: Fact

    @property
    def summary(self) -> dict[str, Fact]:
        """For `summary_` of a ranker."""
        return {"held_out": self.fact}


def set_aside(ranker: network_ranker.NetworkRanker, data: Data, valid: Data | None) -> Parts:
    """20% of the queries to stop by, unless held-out data is given, or too little is there."""
    if valid is not None:
        return Parts(data, valid, Fact("network.held-out-given"))
    if ranker.early_stopping is None:
        return Parts(data, None, Fact("network.no-early-stopping"))
    if data.n_queries >= FEWEST_QUERIES:
        train, rest = data.split(1 - HOLD_OUT, seed=ranker.seed)
        if _has_labels(train) and _has_labels(rest):
            return Parts(train, rest, Fact("network.held-out", n_queries=rest.n_queries))
    few = {"n_queries": data.n_queries, "fewest": FEWEST_QUERIES}
    return Parts(data, None, Fact("network.too-few-to-hold-out", **few))


def _has_labels(data: Data) -> bool:
    label = data.label if isinstance(data, ClickLog) else data.labels
    return bool(np.any(label != 0))


def stopping_for(
    ranker: network_ranker.NetworkRanker,
    held_out: Data | None,
    inputs: network_ranker.Inputs,
    *,
    bias: BiasLike | None = None,
    curve: Curve | None = None,
    layers: Callable[[Params], Layers] = lambda params: params,
) -> Stopping | None:
    """Judge each epoch by held-out data; None without any.

    Parameters
    ----------
    bias : under which clicks are judged; without one all positions are examined alike
    curve : in its place, for a network that learns its own: the curve of an epoch's parameters
    layers : the ranker's among the parameters
    """
    if held_out is None:
        return None
    judge = _judge_of(held_out, bias, curve)
    rows = as_in_training(judge.features, inputs.names, inputs.missing)
    features = normalised(rows, inputs.mean, inputs.scale, ranker.transform)

    def value(params: Params) -> float:
        scores = network_ranker.network_scores(layers(params), features, ranker.activation)
        return judge.value(scores, params)

    return Stopping(value, ranker.early_stopping)


class _Judge(NamedTuple):
    """Held-out documents, and the value of their scores at the parameters of an epoch."""

    features: FeatureArray
    value: Callable[[FloatArray, Params], float]


def _judge_of(held_out: Data, bias: BiasLike | None, curve: Curve | None) -> _Judge:
    if not isinstance(held_out, ClickLog):
        labels = validation_for(held_out, None, None)
        assert labels is not None
        return _Judge(labels.features, lambda scores, _: labels.value(scores))
    return (
        _by_clicks(held_out, bias, curve)
        if held_out.is_binary
        else _by_credit(held_out, bias, curve)
    )


def _by_clicks(log: ClickLog, bias: BiasLike | None, curve: Curve | None) -> _Judge:
    """Log-likelihood per session: its gain by the scores, or all of it where the curve moves."""
    clicks = held_out_likelihood(log, None if curve is not None else bias)
    if curve is None:
        return _Judge(clicks.features, lambda scores, _: clicks.value(scores))

    def value(scores: FloatArray, params: Params) -> float:
        now = clicks.with_curve(_at_positions(curve(params), log.depth))
        return now.null + now.value(scores)

    return _Judge(clicks.features, value)


def _by_credit(log: ClickLog, bias: BiasLike | None, curve: Curve | None) -> _Judge:
    """DCG@10 per propensity-weighted label, for feedback that is no click.

    Per label, because a steeper curve makes every weight larger, and with it a plain sum.
    """
    given = held_out_clicks(log, None if curve is not None else bias)

    def value(scores: FloatArray, params: Params) -> float:
        now = given
        if curve is not None:
            now = held_out_clicks(log, _at_positions(curve(params), log.depth))
        return float(np.sum(now.per_query(scores)) / np.sum(now.credit))

    return _Judge(given.features, value)


def _at_positions(theta: FloatArray, depth: int) -> FloatArray:
    """Relative to position 1; positions below those trained on count as the last one."""
    theta = np.asarray(theta, dtype=float)
    theta = np.pad(theta / theta[0], (0, max(0, depth - len(theta))), mode="edge")
    return np.maximum(theta[:depth], 1e-6)
