"""Judging a ranker while it trains, on judged lists or on held-out clicks."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray, Missing, sum_by
from untilt._core.feature_table import known_values
from untilt.bias.experiments.assignment import baseline_lists
from untilt.bias.given import BiasLike, as_position_bias
from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks
from untilt.data.judged import JudgedLists
from untilt.data.layout import Layout, by_rank
from untilt.data.slates import Slates, slates_of, slot_discounts
from untilt.errors import OptionError, ShapeError
from untilt.metrics.metric import parse_metric

_DCG = parse_metric("dcg@10:gain=linear")


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
        return replace(self, features=as_in_training(self.features, names, missing))


def as_in_training(
    features: FeatureArray, names: tuple[str, ...], missing: Missing
) -> FeatureArray:
    """Held-out features with missing ones as in training; raises where there are others."""
    if features.shape[1] != len(names):
        raise ShapeError(
            f"the held-out data must have the {len(names)} features that are trained on. "
            f"Got {features.shape[1]} instead."
        )
    return known_values(features, names, missing)


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

    A ranker orders each list of the baseline anew, and its documents fill the list's own slots. The
    value of a query is the sum over its documents of n_d g_d times the mean of 1 / log2(1 + slot),
    with n_d the sessions that showed d and g_d = sum (c - beta_k) / sum alpha_k over them,
    experiments too: an unbiased estimate of the DCG@10 that it would get.

    Parameters
    ----------
    features, credit : one row per shown document
    indptr, sessions : documents and sessions of each query
    slates : the lists to order, documents numbered as here; one list per query, without gaps,
        where not given
    document : index of each into the documents of the log, where there is one
    """

    features: FeatureArray
    credit: FloatArray
    indptr: IntArray
    sessions: FloatArray
    slates: Slates | None = None
    document: IntArray | None = None
    layout: Layout | None = None

    def per_query(self, scores: FloatArray) -> FloatArray:
        """DCG@10 of each query, summed over its sessions."""
        if self.slates is None:
            return _DCG.per_list(scores, self.credit, self.indptr)
        weights = np.zeros(max(self.slates.depth, _DCG.cut or 0))
        weights[: _DCG.cut] = _DCG.discount(len(weights))[: _DCG.cut]
        weights = by_rank(self.layout, weights)
        discount = slot_discounts(self.slates, np.asarray(scores, dtype=float), weights)
        document, count = self.slates.document, self.slates.row_count
        n = sum_by(document, count, len(self.credit))
        mean = sum_by(document, count * discount, len(self.credit)) / n
        return ragged.sums_by_list(self.indptr, mean * self.credit)


def check_held_out(log: ClickLog) -> FeatureArray:
    """The features of a held-out log; raises unless it has some to score, and sessions."""
    if log.features is None:
        raise OptionError("the held-out log has no features to score.")
    if log.n_lists == 0:
        raise OptionError("the held-out log has no sessions to judge by.")
    return log.features


def held_out_clicks(log: ClickLog, bias: BiasLike | None) -> HeldOutClicks:
    """Credit of each shown document; without a bias every click counts the same."""
    features = check_held_out(log)
    alpha, beta = np.ones(log.depth), np.zeros(log.depth)
    if bias is not None:
        alpha, beta = as_position_bias(bias, log.depth).affine()
    clicks, exposure = corrected_clicks(log, alpha, beta)
    production = log.take(baseline_lists(log))
    slates, _ = slates_of(production, by_slots=True)
    shown = np.unique(slates.document)
    shown = shown[np.argsort(log.doc_query[shown], kind="stable")]
    queries, per_query = np.unique(log.doc_query[shown], return_counts=True)
    number = np.empty(log.n_documents, dtype=np.int64)
    number[shown] = np.arange(len(shown))
    impressions = sum_by(slates.document, slates.row_count, log.n_documents)
    with np.errstate(invalid="ignore", divide="ignore"):
        credit = np.where(exposure > 0, impressions * clicks / exposure, 0.0)
    return HeldOutClicks(
        features=features[shown],
        # The affine correction of few clicks may be negative, which no gain can be.
        credit=np.maximum(credit[shown], 0.0),
        indptr=ragged.indptr_of(per_query),
        sessions=sum_by(production.query, production.sessions, log.n_queries)[queries],
        slates=replace(slates, document=number[slates.document], n_documents=len(shown)),
        document=shown,
        layout=log.layout,
    )


def held_out_labels(judged: JudgedLists) -> HeldOutClicks:
    """The same with human labels in place of clicks: the credit of a document is 2^y - 1."""
    return HeldOutClicks(
        features=judged.features,
        credit=np.exp2(judged.labels) - 1,
        indptr=judged.indptr,
        sessions=np.ones(judged.n_queries),
    )
