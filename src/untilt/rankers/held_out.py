"""Judging a ranker while it trains, on judged lists or on held-out clicks."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray, sum_by
from untilt.bias.given import as_position_bias
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.metrics import parse_metric
from untilt.rankers.trees.boosting import Watch

_DCG = parse_metric("dcg@10:gain=linear")
_LEAST_SHARE = 0.1  # of a query's sessions; documents shown in fewer count as if shown in so many


def watch_for(
    valid: ClickLog | JudgedLists | None, bias: Any, early_stopping: int | None
) -> Watch | None:
    """NDCG@10 on judged lists; propensity-weighted DCG@10 of the held-out clicks on a log.

    Held-out data without `early_stopping` is watched only: all trees are kept.
    """
    if valid is None and early_stopping is None:
        return None
    if valid is None:
        raise OptionError(
            "early_stopping needs held-out data: fit(log, valid=...). "
            "log.split(0.8) gives both parts."
        )
    if isinstance(valid, JudgedLists):
        return _watch_judged(valid, early_stopping)
    if isinstance(valid, ClickLog):
        return _watch_log(valid, bias, early_stopping)
    raise OptionError(
        f"valid must be a ClickLog or JudgedLists. Got {type(valid).__name__} instead."
    )


def _watch_judged(judged: JudgedLists, rounds: int | None) -> Watch:
    metric = parse_metric("ndcg@10")

    def value(scores: FloatArray) -> float:
        return float(np.mean(metric.per_list(scores, judged.labels, judged.indptr)))

    return Watch(judged.features, value, "ndcg@10", True, rounds)


def _watch_log(log: ClickLog, bias: Any, rounds: int | None) -> Watch:
    clicks = held_out_clicks(log, bias)
    total = float(clicks.sessions.sum())

    def value(scores: FloatArray) -> float:
        return float(np.sum(clicks.per_query(scores)) / total)

    return Watch(clicks.features, value, "propensity-weighted dcg@10", True, rounds)


@dataclass(frozen=True, eq=False)
class HeldOutClicks:
    """Held-out clicks as credit per document: what a ranker is judged by without labels.

    The value of a query is sum over its shown documents of N_q g_d / log2(1 + new rank), with g_d =
    sum (c - beta_k) / sum alpha_k over the sessions that showed d: an unbiased estimate of the DCG
    it would get, also where only some of the N_q sessions show a document
    ([oosterhuis2020policy]_).
    """

    features: FeatureArray
    credit: FloatArray
    indptr: IntArray
    sessions: FloatArray

    def per_query(self, scores: FloatArray) -> FloatArray:
        """DCG@10 of each query, summed over its sessions."""
        return _DCG.per_list(scores, self.credit, self.indptr)


def held_out_clicks(log: ClickLog, bias: Any) -> HeldOutClicks:
    """Credit of each shown document; without a bias every click counts the same."""
    if log.features is None:
        raise OptionError("the held-out log has no features to score.")
    features, log = log.features, log.collapse()
    if log.n_lists == 0:
        raise OptionError("the held-out log has no sessions to judge by.")
    alpha, beta = np.ones(log.depth), np.zeros(log.depth)
    if bias is not None:
        alpha, beta = as_position_bias(bias, log.depth).affine()
    place, count = log.position - 1, log.row_count
    found = sum_by(log.document, count * (log.label - beta[place]))
    looked = sum_by(log.document, count * alpha[place])
    could = sum_by(log.query, log.sessions, log.n_queries)
    could = could[log.doc_query[: len(found)]]
    # A document that hardly any session shows would weigh without bounds.
    with np.errstate(invalid="ignore", divide="ignore"):
        corrected = found * could / np.maximum(looked, could * alpha.min() * _LEAST_SHARE)
    shown = np.unique(log.document)
    shown = shown[np.argsort(log.doc_query[shown], kind="stable")]
    queries, per_query = np.unique(log.doc_query[shown], return_counts=True)
    return HeldOutClicks(
        features=features[shown],
        # A negative credit (affine correction of few clicks) has no place in a gain.
        credit=np.maximum(corrected[shown], 0.0),
        indptr=ragged.indptr_of(per_query),
        sessions=sum_by(log.query, log.sessions)[queries],
    )


def held_out_labels(judged: JudgedLists) -> HeldOutClicks:
    """The same with human labels in place of clicks: the credit of a document is 2^y - 1."""
    return HeldOutClicks(
        features=judged.features,
        credit=np.exp2(judged.labels) - 1,
        indptr=judged.indptr,
        sessions=np.ones(judged.n_queries),
    )
