"""Judging a ranker while it trains, on judged lists or on held-out clicks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray, Missing, sum_by
from untilt._core.feature_table import known_values
from untilt.bias.given import BiasLike, as_position_bias
from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, ShapeError
from untilt.metrics import parse_metric

_DCG = parse_metric("dcg@10:gain=linear")
# Of a query's sessions: a document shown in a smaller share counts as if shown in this one. Without
# it a document that hardly any session shows would weigh without bounds.
_LEAST_SHARE = 0.1


@dataclass(frozen=True)
class Validation:
    """Held-out data to score, and the value of the scores, of which more is better.

    Training stops when the value has not improved for `rounds`, or never where it is None.
    """

    features: FeatureArray
    value: Callable[[FloatArray], float]
    name: str
    rounds: int | None

    def like_training(self, names: tuple[str, ...], missing: Missing) -> "Validation":
        """The same with missing features as in training; raises where it has other features."""
        if self.features.shape[1] != len(names):
            raise ShapeError(
                f"the held-out data must have the {len(names)} features that are trained on. "
                f"Got {self.features.shape[1]} instead."
            )
        return replace(self, features=known_values(self.features, names, missing))


def validation_for(
    valid: ClickLog | JudgedLists | None, bias: BiasLike | None, early_stopping: int | None
) -> Validation | None:
    """NDCG@10 on judged lists; propensity-weighted DCG@10 of the held-out clicks on a log.

    Held-out data without `early_stopping` is only scored: all rounds are kept.
    """
    if valid is None and early_stopping is None:
        return None
    if valid is None:
        raise OptionError(
            "early_stopping needs held-out data: fit(log, valid=...). "
            "log.split(0.8) gives both parts."
        )
    if isinstance(valid, JudgedLists):
        return _by_labels(valid, early_stopping)
    if isinstance(valid, ClickLog):
        return _by_clicks(valid, bias, early_stopping)
    raise OptionError(
        f"valid must be a ClickLog or JudgedLists. Got {type(valid).__name__} instead."
    )


def _by_labels(judged: JudgedLists, rounds: int | None) -> Validation:
    metric = parse_metric("ndcg@10")

    def value(scores: FloatArray) -> float:
        return float(np.mean(metric.per_list(scores, judged.labels, judged.indptr)))

    return Validation(judged.features, value, str(metric), rounds)


def _by_clicks(log: ClickLog, bias: BiasLike | None, rounds: int | None) -> Validation:
    clicks = held_out_clicks(log, bias)
    total = float(clicks.sessions.sum())

    def value(scores: FloatArray) -> float:
        return float(np.sum(clicks.per_query(scores)) / total)

    return Validation(clicks.features, value, "propensity-weighted dcg@10", rounds)


@dataclass(frozen=True, eq=False)
class HeldOutClicks:
    """Held-out clicks as credit per document: what a ranker is judged by without labels.

    The value of a query is sum over its shown documents of N_q g_d / log2(1 + new rank), with g_d =
    sum (c - beta_k) / sum alpha_k over the sessions that showed d: an unbiased estimate of the DCG
    it would get, also where only some of the N_q sessions show a document
    ([oosterhuis2020policy]_).

    Parameters
    ----------
    features, credit : one row per shown document
    indptr, sessions : documents and sessions of each query
    """

    features: FeatureArray
    credit: FloatArray
    indptr: IntArray
    sessions: FloatArray

    def per_query(self, scores: FloatArray) -> FloatArray:
        """DCG@10 of each query, summed over its sessions."""
        return _DCG.per_list(scores, self.credit, self.indptr)


def held_out_clicks(log: ClickLog, bias: BiasLike | None) -> HeldOutClicks:
    """Credit of each shown document; without a bias every click counts the same."""
    if log.features is None:
        raise OptionError("the held-out log has no features to score.")
    features, log = log.features, log.collapse()
    if log.n_lists == 0:
        raise OptionError("the held-out log has no sessions to judge by.")
    alpha, beta = np.ones(log.depth), np.zeros(log.depth)
    if bias is not None:
        alpha, beta = as_position_bias(bias, log.depth).affine()
    clicks, exposure = corrected_clicks(log, alpha, beta)
    traffic = sum_by(log.query, log.sessions, log.n_queries)
    of_document = traffic[log.doc_query]
    with np.errstate(invalid="ignore", divide="ignore"):
        least = of_document * alpha.min() * _LEAST_SHARE
        credit = clicks * of_document / np.maximum(exposure, least)
    shown = np.unique(log.document)
    shown = shown[np.argsort(log.doc_query[shown], kind="stable")]
    queries, per_query = np.unique(log.doc_query[shown], return_counts=True)
    return HeldOutClicks(
        features=features[shown],
        # The affine correction of few clicks may be negative, which no gain can be.
        credit=np.maximum(credit[shown], 0.0),
        indptr=ragged.indptr_of(per_query),
        sessions=traffic[queries],
    )


def held_out_labels(judged: JudgedLists) -> HeldOutClicks:
    """The same with human labels in place of clicks: the credit of a document is 2^y - 1."""
    return HeldOutClicks(
        features=judged.features,
        credit=np.exp2(judged.labels) - 1,
        indptr=judged.indptr,
        sessions=np.ones(judged.n_queries),
    )
