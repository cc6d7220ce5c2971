"""Judging a ranker while it trains, on judged lists or on held-out clicks."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FeatureArray, FloatArray, IntArray, Missing, sum_by
from untilt._core.feature_table import known_values
from untilt.bias.contextual.curves import ContextualCurve, contexts_of
from untilt.bias.experiments.assignment import baseline_lists
from untilt.bias.given import BiasLike, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.counts import corrected_clicks, position_counts
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.data.layout import Layout, by_rank
from untilt.data.slates import Slates, slates_of, slot_discounts
from untilt.errors import OptionError, ShapeError
from untilt.metrics.metric import parse_metric
from untilt.objectives import hierarchical
from untilt.objectives.graded import Observed, observed
from untilt.rankers.learning_data import curves_at

# How well scores explain clicks they have not seen: the held-out click likelihood.
#
# The clicks of a log become cells (`untilt.objectives.hierarchical`) under a curve: one of
# positions, an affine one (trust bias), one for each context, or all ones where no bias is known.
# Any score of documents can then be asked how likely it makes the clicks, whatever scale it is on.


def cells_of(
    log: ClickLog, bias: BiasLike | ContextualCurve | None, documents: IntArray
) -> hierarchical.ClickCells:
    """The clicks of these documents (indices of the log's, numbered 0, 1, ... in the result).

    A label above 0 counts as a click. Documents that no list shows have no cells. Without a bias
    every position is examined alike.
    """
    log = numbered_for(log, bias)
    number = np.full(log.n_documents, -1, dtype=np.int64)
    number[documents] = np.arange(len(documents))
    document, place, n, clicks, alpha, beta = (
        _by_context(log, bias) if isinstance(bias, ContextualCurve) else _by_position(log, bias)
    )
    kept = number[document] >= 0
    return hierarchical.click_cells(
        log.doc_query[documents].astype(np.int64),
        number[document][kept],
        place[kept],
        n[kept],
        clicks[kept],
        alpha,
        beta,
    )


def graded_logits(
    log: ClickLog, cells: hierarchical.ClickCells, documents: IntArray, labels: Grades
) -> Observed:
    """What grades say of these documents, the first of which the cells are of."""
    fit = hierarchical.fit_hierarchy(cells, np.ones((cells.n_documents, 1)))
    of_document, of_query = fit.model.posterior_variance(fit.effects)
    mean, variance = np.full((2, log.n_documents), np.nan)
    shown = documents[: cells.n_documents]
    mean[shown] = fit.weights[0] + fit.effects.document + cells.of_queries(fit.effects.query)
    variance[shown] = of_document + cells.of_queries(of_query)
    found = observed(labels, log, mean, variance)
    return found._replace(logits=np.ascontiguousarray(found.logits[:, documents]))


def _clicked(log: ClickLog) -> ClickLog:
    return log if log.is_binary else log._with(label=(log.label > 0).astype(float))


def _by_position(log: ClickLog, bias: BiasLike | None) -> tuple[Any, ...]:
    counts = position_counts(_clicked(log))
    document = counts.document[counts.document_index]
    alpha, beta = curves_at(bias, log.depth)
    return document, counts.position_index, counts.impressions, counts.clicks, alpha, beta


def _by_context(log: ClickLog, curve: ContextualCurve) -> tuple[Any, ...]:
    """One cell for each (document, context, position)."""
    curve.average().at(max(1, log.depth))  # says clearly where it does not reach that deep
    contexts = contexts_of(log, None, per="list", columns=curve.columns)
    theta = np.exp(curve.log_ratios(contexts.values))
    context = np.repeat(contexts.of_list, np.diff(log.indptr)).astype(np.int64)
    row_place = context * theta.shape[1] + log.position - 1
    key = log.document.astype(np.int64) * theta.size + row_place
    cells, cell = np.unique(key, return_inverse=True)
    n, clicks = (
        sum_by(cell, log.row_count * each, len(cells))
        for each in (np.ones(len(cell)), (log.label > 0).astype(float))
    )
    document, place = np.divmod(cells, theta.size)
    return document, place, n, clicks, theta.ravel(), np.zeros(theta.size)


def of_positions(bias: BiasLike | ContextualCurve | None) -> BiasLike | None:
    """The same; of a curve for each context the mean over the sessions."""
    return bias.average() if isinstance(bias, ContextualCurve) else bias


@dataclass(eq=False)
class HeldOutLikelihood:
    """Clicks that a model has not seen, and how much more likely its scores make them.

    The logit of relevance is base + slope * score + u_q + u_i with slope >= 0; base, slope and the
    variances of the effects are fitted to these clicks. So the scale of the score does not matter,
    nor does a constant for each query. Both terms of the gain are likelihoods of the same clicks
    under the same curve; a steeper curve is not rewarded, as it is by clicks that are weighted with
    it. To compare two curves on the same clicks add `null`: the sum is the log-likelihood itself.

    Parameters
    ----------
    features : of the shown documents, in the order that scores are expected in
    cells : their clicks
    sessions : (queries,) that the clicks come from
    """

    features: FeatureArray
    cells: hierarchical.ClickCells
    sessions: FloatArray
    _null: hierarchical.HierarchyFit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._null = hierarchical.fit_hierarchy(self.cells, np.ones((self.cells.n_documents, 1)))

    @property
    def null(self) -> float:
        """Log-likelihood per session of scores that say nothing."""
        return float(self._null.per_query.sum() / self.sessions.sum())

    def value(self, scores: FloatArray) -> float:
        """Gain in log-likelihood per session over scores that say nothing; never below 0."""
        return float(self.per_query(scores).sum() / self.sessions.sum())

    def per_query(self, scores: FloatArray) -> FloatArray:
        """(queries,) the gain of each query, summed over its sessions."""
        return self.gain(self.fit(scores))

    def gain(self, fit: hierarchical.HierarchyFit | None) -> FloatArray:
        """(queries,) of a fit."""
        if fit is None:
            return np.zeros(self.cells.n_queries)
        return fit.per_query - self._null.per_query

    def fit(
        self, scores: FloatArray, start: hierarchical.HierarchyFit | None = None
    ) -> hierarchical.HierarchyFit | None:
        """base and slope (per standard deviation of the centred score); None where slope is 0.

        The fit of similar scores is a `start` that is near.
        """
        centred = self.cells.centred(np.asarray(scores, dtype=float))
        spread = float(np.std(centred))
        if not np.isfinite(spread) or spread <= 1e-12 * float(np.max(np.abs(scores), initial=1.0)):
            return None
        columns = np.column_stack([np.ones(len(centred)), centred / spread])
        null = self._null
        if start is None:
            start = replace(null, weights=np.append(null.weights, 0.0))
        fit = hierarchical.fit_hierarchy(self.cells, columns, start=start, low=(-np.inf, 0.0))
        if fit.weights[1] <= 0 or fit.log_likelihood <= null.log_likelihood:
            return None
        return fit

    def of_some_queries(self, most: int) -> "tuple[HeldOutLikelihood, IntArray]":
        """The same for so many queries, evenly over all, and which documents are theirs."""
        cells, document = self.cells.of_some_queries(most)
        sessions = self.sessions[hierarchical.evenly(self.cells.n_queries, most)]
        return HeldOutLikelihood(self.features[document], cells, sessions), document

    def with_curve(self, theta: FloatArray) -> "HeldOutLikelihood":
        """The same clicks under another curve, (positions,)."""
        cells = replace(self.cells, alpha=np.asarray(theta, dtype=float), beta=np.zeros(len(theta)))
        return HeldOutLikelihood(self.features, cells, self.sessions)


def held_out_likelihood(
    log: ClickLog, bias: BiasLike | ContextualCurve | None
) -> HeldOutLikelihood:
    """The clicks of a log that no model has seen, under this bias."""
    features = check_held_out(log)
    shown = np.flatnonzero(np.bincount(log.document, minlength=log.n_documents) > 0)
    cells = cells_of(log, bias, shown)
    queries = np.unique(log.doc_query[shown])
    return HeldOutLikelihood(
        features=features[shown],
        cells=cells,
        sessions=sum_by(log.query, log.sessions, log.n_queries)[queries],
    )


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
            "early_stopping needs held-out data: fit(log, ⟦valid=...⟧). "
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
    clicks, exposure = corrected_clicks(log, *curves_at(bias, log.depth))
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
