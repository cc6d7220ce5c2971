"""Judging a ranker while it trains, on judged lists or on held-out clicks."""

from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt.bias.known import as_position_bias
from untilt.errors import OptionError
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.metrics import parse_metric
from untilt.rankers.boosting import Watch


def watch_for(
    valid: ClickLog | JudgedLists | None, bias: Any, early_stopping: int | None
) -> Watch | None:
    """NDCG@10 on judged lists; propensity-weighted DCG@10 of the held-out clicks on a log."""
    if early_stopping is None:
        return None
    if valid is None:
        raise OptionError(
            "early_stopping needs held-out data: fit(log, valid=...). "
            "log.split(0.8) gives both parts."
        )
    if isinstance(valid, JudgedLists):
        return _watch_judged(valid, early_stopping)
    return _watch_log(valid, bias, early_stopping)


def _watch_judged(judged: JudgedLists, rounds: int) -> Watch:
    metric = parse_metric("ndcg@10")

    def value(scores: FloatArray) -> float:
        return float(np.mean(metric.per_list(scores, judged.labels, judged.indptr)))

    return Watch(judged.features, value, "ndcg@10", True, rounds)


def _watch_log(log: ClickLog, bias: Any, rounds: int) -> Watch:
    """sum of clicks/theta times 1/log2(1 + new rank), ranked among the query's shown documents."""
    if log.features is None:
        raise OptionError("the held-out log has no features to score.")
    features, log = log.features, log.collapse()
    theta = np.ones(log.depth) if bias is None else as_position_bias(bias, log.depth).examination
    shown = np.unique(log.document)
    credit = np.bincount(log.document, weights=log.row_count * log.label / theta[log.position - 1])[
        shown
    ]
    order = np.argsort(log.doc_query[shown], kind="stable")
    shown, credit = shown[order], credit[order]
    indptr = ragged.indptr_of(np.unique(log.doc_query[shown], return_counts=True)[1])
    dcg = parse_metric("dcg@10:gain=linear")
    sessions = max(1, log.n_sessions)

    def value(scores: FloatArray) -> float:
        return float(np.sum(dcg.per_list(scores, credit, indptr)) / sessions)

    return Watch(features[shown], value, "propensity-weighted dcg@10", True, rounds)
