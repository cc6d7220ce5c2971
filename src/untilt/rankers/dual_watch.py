"""Judging dual learning while it trains: held-out clicks are weighted by the curve of the hour."""

from typing import Any

import numpy as np

from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.networks.mlp import normalised
from untilt.networks.training import Stopping
from untilt.rankers.network_model import Inputs, NetworkRanker, network_scores, stopping_for
from untilt.rankers.watch import held_out_clicks, watch_for


def dual_stopping(
    valid: ClickLog | JudgedLists | None, inputs: Inputs, ranker: NetworkRanker
) -> Stopping | None:
    """NDCG@10 on judged lists; on a log, DCG@10 per propensity-weighted click.

    The propensities are those learned so far. Per click, because a steeper curve makes every
    weight larger, and with it a plain sum.
    """
    watch = watch_for(valid, None, ranker.early_stopping)
    if watch is None:
        return None
    plain = stopping_for(watch, inputs, ranker.transform, ranker.activation, "ranker")
    if not isinstance(valid, ClickLog):
        return plain
    log: ClickLog = valid

    def value(params: Any) -> float:
        z = np.asarray(params["propensity"], dtype=float)
        depth = max(log.depth, len(z))
        # Positions below those trained on count as the last one.
        theta = np.exp(np.pad(z - z[0], (0, depth - len(z)), mode="edge"))
        clicks = held_out_clicks(log, theta)
        features = normalised(clicks.features, inputs.mean, inputs.scale, ranker.transform)
        scores = network_scores(params["ranker"], features, ranker.activation)
        return float(np.sum(clicks.per_query(scores)) / np.sum(clicks.credit))

    return Stopping(value, watch.rounds)
