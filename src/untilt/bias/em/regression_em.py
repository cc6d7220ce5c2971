"""Position bias and relevance learned together by EM."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numba as nb
import numpy as np

from untilt._core.arrays import (
    BoolArray,
    FeatureArray,
    FloatArray,
    IntArray,
    handed_over,
    sum_by,
)
from untilt._core.ascent import short_steps
from untilt._core.progress import track
from untilt._core.statistics import bootstrap_weights
from untilt.bias.curve import (
    FEATURES_EXPLAIN,
    NO_CLICKS,
    POSITION_BASED,
    SAME_RELEVANCE,
    PositionBias,
)
from untilt.bias.em.affine import FLOOR, AffineFit, clustered, inverted, uncertainty_of_affine
from untilt.bias.em.learned_relevance import (
    CrossFittedNetworks,
    CrossFittedRelevance,
    CrossFittedTrees,
    NetworkOptions,
    TreeOptions,
    learned_em,
)
from untilt.bias.em.relevance import (
    FEWEST_DOCUMENTS,
    RelevanceFit,
    StratifiedFit,
    class_of,
    position_based_em,
    several_positions,
    stratified,
    widened,
)
from untilt.bias.estimator import BiasEstimator, counts_to
from untilt.bias.log_ratios import Uncertainty, from_log_ratios
from untilt.bias.position_graph import PositionGraph, joined_depth, position_graph
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import Cells, PositionCounts
from untilt.data.limits import allow_table
from untilt.errors import IdentifiabilityError, OptionError, UntiltError, check_choice
from untilt.facts import Fact, joined, note, phrase, warning

ERRORS_RESAMPLED = note(
    "bias.errors-resampled", "errors from {n_resamples} resamples of {n_queries:,} queries"
)
NO_INTERVAL_FEW_DOCUMENTS = warning(
    "bias.no-interval-few-documents",
    "only {n_documents:,} documents, and strata of like ones need {least:,}: the curve has no "
    "interval",
)
NO_INTERVAL_ALL_CLICKED = warning(
    "bias.no-interval-all-clicked",
    "{share:.0%} of the impressions belong to documents that are always clicked: their clicks do "
    "not depend on the position, and the curve has no interval",
)
FEW_IMPRESSIONS_SENTENCE = warning(
    "bias.few-impressions",
    "a document was shown only {mean:.0f} times on average, which makes the curve too flat",
)
ERRORS_INCIDENTAL = note(
    "bias.errors-incidental",
    "errors include what the relevance of single documents, fitted to few clicks, may change",
)()
_OF_CLICKS = (
    "at equal values of {features:listed} documents are clicked nearly alike at every position, as "
    "with clicks of the past, which have the position in them"
)
MADE_OF_CLICKS = warning(
    "bias.made-of-clicks", _OF_CLICKS + ", and no curve is left without that: there is no interval"
)
MOVED_BY_FEATURE = warning(
    "bias.made-of-clicks",
    _OF_CLICKS + ": without that, examination at position {position} is {without:.2f} in place of "
    "{here:.2f}, and the curve has no interval",
)

RELEVANCE = ("auto", "features", "counts")
# A click rate of 50 to 1000 impressions leaves .03 to .45 of the steepness; the one feature that
# tells all relevance leaves .55 and more, though the curve moves by a factor of 3 without it.
FLATTENING_CLASSES, LEAST_LEFT = 20, 0.5
MOST_MOVED = np.log(1.5)


@dataclass(kw_only=True, eq=False, repr=False)
class EMEstimator(BiasEstimator):
    """Base of `RegressionEM` and `TrustEM`: P(click at k) = alpha_k gamma + beta_k by EM.

    They differ in whether beta is fitted, and in the relevance that counts alone give. Their
    parameters are documented there.
    """

    _has_trust: ClassVar[bool]
    _bounds_dead = True
    _relevance_from: ClassVar[tuple[str, ...]] = RELEVANCE
    relevance_: FloatArray = field(init=False)
    history_: FloatArray = field(init=False)

    relevance: str = "auto"
    depth: int | None = None
    level: float = 0.95
    tolerance: float = 1e-4
    max_steps: int = 5000
    n_trees: int = 500
    learning_rate: float = 0.1
    n_leaves: int = 15
    min_data_in_leaf: int = 20
    folds: int = 5
    early_stopping: int = 20
    n_bootstrap: int = 0
    n_threads: int | None = None
    seed: int = 0

    def fit(self, log: ClickLog) -> Self:
        """Estimate the bias of this log. Raises `IdentifiabilityError` where it cannot be had."""
        super().fit(log)
        if log.item is not None and len(self.relevance_) < log.n_documents:
            self.relevance_ = handed_over(self.relevance_[log.item])
        return self

    def _estimate(self, log: ClickLog) -> PositionBias:
        self._check_options()
        features, cells = self._features(log), counts_to(log, self.depth)
        self._check_depth(log, cells.depth)
        require_first_clicked(cells)
        if features is None:
            cells = self._counted(cells)
        fit = self._fit(cells, features)
        if features is not None:
            fit = replace(fit, doubt=self._made_of_clicks(cells, features, fit, log.feature_names))
        self.history_ = fit.history
        bias, gamma = self._curve(cells, features, fit)
        relevance = np.full(log.n_documents, np.nan)
        relevance[cells.document] = gamma
        self.relevance_ = handed_over(relevance)
        return bias

    @abstractmethod
    def _from_counts(self, cells: PositionCounts) -> RelevanceFit:
        """Curves and relevance where documents have no features."""

    @abstractmethod
    def _curve(
        self, cells: PositionCounts, features: FeatureArray | None, fit: RelevanceFit
    ) -> tuple[PositionBias, FloatArray]:
        """The curve with its errors, and gamma of the documents of the cells."""

    @abstractmethod
    def _without_interval(self, cells: PositionCounts, fit: RelevanceFit) -> Fact | None:
        """Why errors would not be honest, if so."""

    @property
    def _uses_features(self) -> bool:
        return self.relevance != "counts"

    def _check_depth(self, log: ClickLog, depth: int) -> None:
        """Raise where an option does not fit these positions."""

    def _tree_options(self) -> TreeOptions:
        return TreeOptions(**{each.name: getattr(self, each.name) for each in fields(TreeOptions)})

    def _check_options(self) -> None:
        check_choice("relevance", self.relevance, self._relevance_from)
        self._tree_options().check()
        if self.n_bootstrap < 0 or self.n_bootstrap == 1:
            raise OptionError(
                f"n_bootstrap must be 0 (no resampling) or at least 2. Got {self.n_bootstrap} "
                "instead; 100 is usual."
            )

    def _features(self, log: ClickLog) -> FeatureArray | None:
        """The features to learn relevance from, or None where counts are to be used."""
        if self.relevance in ("features", "network") and log.features is None:
            raise OptionError(
                f"⟦relevance={self.relevance!r}⟧ needs features, and this log has "
                "none. ⟦Give read_log a table of documents with features|Give "
                "--documents TABLE⟧, or use ⟦relevance='counts'⟧."
            )
        return None if self.relevance == "counts" else log.features

    def _fit(self, cells: PositionCounts, features: FeatureArray | None) -> RelevanceFit:
        if features is None:
            return self._from_counts(cells)
        own, options, trust = features[cells.document], self._tree_options(), self._has_trust
        models = self._models(cells, own, options)
        learned = learned_em(cells, models, trust=trust, patience=options.early_stopping)
        return stratified(cells, own, learned, trust=trust, options=options)

    def _models(
        self, cells: PositionCounts, features: FeatureArray, options: TreeOptions
    ) -> CrossFittedRelevance:
        """What learns relevance from features."""
        return CrossFittedTrees(cells, features, options)

    def _counted(self, cells: PositionCounts) -> PositionCounts:
        """The documents that relevance from counts can use; raises where positions share too few.

        Without trust bias those with a click: the others have no influence on the curve.
        """
        graph, method = position_graph(cells), type(self).__name__
        graph.require(cells.depth, method, clicks=False)
        _require_clicks_joined(graph, method)
        return several_positions(cells, clicked=not self._has_trust)

    def _uncertainty(
        self, cells: PositionCounts, features: FeatureArray | None, fit: RelevanceFit,
        free: BoolArray, jacobian: FloatArray, numbers: Callable[[AffineFit], FloatArray],
    ) -> Uncertainty:  # fmt: skip
        """(m, m) covariance of m `numbers` of the curves, by formula or from resamples."""
        reason = fit.doubt or self._without_interval(cells, fit)
        if reason is not None:
            return Uncertainty(np.full((len(jacobian), len(jacobian)), np.nan), reason)
        if self.n_bootstrap:
            return self._resampled(cells, lambda drawn: numbers(self._fit(drawn, features).affine))
        errors = fit.uncertainty(cells, free, jacobian)
        if fit.coarse is None:
            return errors
        # Coarse strata may leave no slope at an anchor: then they tell nothing.
        with np.errstate(divide="ignore", invalid="ignore"):
            change = numbers(fit.coarse) - numbers(fit.affine)
        return widened(errors, np.where(free[: len(change)], change, 0))

    def _made_of_clicks(
        self, cells: PositionCounts, features: FeatureArray, fit: RelevanceFit,
        names: Sequence[str],
    ) -> Fact | None:  # fmt: skip
        """Features that may be clicks of the past, if the curve is another without them.

        A click rate of last month has the position in it: at equal values of it documents are
        clicked nearly alike at every position, and the curve comes out flat.
        """
        suspects = flattening(cells, features[cells.document])
        if not suspects:
            return None
        told = {"features": [names[j] for j in suspects]}
        try:
            rest = self._fit(cells, np.delete(features, suspects, axis=1))
        except UntiltError:
            return MADE_OF_CLICKS(**told)
        z, other = (np.log(each.alpha + each.beta) for each in (fit.affine, rest.affine))
        z, other = z - z[0], other - other[0]
        k = int(np.argmax(np.where(cells.by_position(cells.clicks) > 0, np.abs(other - z), 0)))
        if abs(other[k] - z[k]) <= MOST_MOVED:
            return None
        here, without = np.exp(z[k]), np.exp(other[k])
        return MOVED_BY_FEATURE(**told, position=k + 1, here=here, without=without)

    def _resampled(
        self, cells: PositionCounts, curve: Callable[[PositionCounts], FloatArray]
    ) -> Uncertainty:
        """Covariance of a curve over resamples of the queries."""
        queries, query = np.unique(cells.query, return_inverse=True)
        draws = bootstrap_weights(len(queries), self.n_bootstrap, self.seed)
        curves = [
            curve(cells.repeated(weights[query])) for weights in track(draws, "resampling queries")
        ]
        covariance = np.cov(np.array(curves), rowvar=False)
        rule = ERRORS_RESAMPLED(n_resamples=self.n_bootstrap, n_queries=len(queries))
        return Uncertainty(np.atleast_2d(covariance), rule)


def flattening(cells: PositionCounts, features: FeatureArray) -> list[int]:
    """Features at whose equal values, in 20 classes, clicks fall less than half as steeply."""
    cells = cells.at_positions(cells.by_position(cells.clicks) > 0)
    clicks = cells.by_position(cells.clicks)
    raw = np.log(clicks / cells.by_position(cells.impressions))
    fall, free = float(np.dot(clicks, raw - raw[0])), np.arange(cells.depth) > 0
    found = []
    missing = float(np.finfo(np.float32).min)
    for j, column in enumerate(np.nan_to_num(features.T.astype(float), nan=missing)):
        alike = cells.grouped(class_of(column, FLATTENING_CLASSES))
        if np.dot(clicks, fit_shares(alike, free).z) > LEAST_LEFT * fall:
            found.append(j)
    return found


def relevance_assumed(by_features: bool) -> Fact:
    """What must be true of relevance: from features, or from counts of the same document."""
    return FEATURES_EXPLAIN if by_features else SAME_RELEVANCE


def require_first_clicked(cells: PositionCounts) -> None:
    """Raise unless the first position was clicked."""
    if not cells.by_position(cells.clicks)[0] > 0:
        raise IdentifiabilityError(
            "position 1 was never clicked, and examination is measured relative to it. Check that "
            "positions are numbered from 1, or leave the first out of the log."
        )


def _require_clicks_joined(graph: PositionGraph, method: str) -> None:
    """Raise unless clicks on shared documents join every position that has any clicks.

    A position without a single click is no matter of missing links: its examination is about 0.
    """
    first = next(part for part in graph.clicked_components if 1 in part)
    clicks = np.diag(graph.clicks)
    lost = [k for k in range(1, graph.depth + 1) if k not in first and clicks[k - 1] > 0]
    if lost:
        swap = graph.joining_swap(first, [lost[0]])
        reach = joined_depth(graph.clicks.T > 0, needed=clicks > 0)
        fewer = "or ask for fewer positions: ⟦log.top({reach})|--depth {reach}⟧; "
        fewer = phrase(fewer if reach > 1 else "", reach=reach)
        raise IdentifiabilityError(
            phrase(
                "{method:method} cannot compare position {lost} with position 1: the documents "
                "shown on both sides have too few clicks there. To join them, {swap} in "
                "a share of the sessions; {fewer}or learn relevance from features: "
                "⟦{method}(relevance='features')⟧.",
                method=method,
                lost=lost[0],
                swap=swap,
                fewer=fewer,
            )
        )


NEWTON_STEPS = 100


class ShareFit(NamedTuple):
    """(K,) log(theta_k / theta_1), and its errors; 0 and no error where nothing was clicked."""

    z: FloatArray
    errors: Uncertainty


def fit_shares(cells: PositionCounts, free: BoolArray) -> ShareFit:
    """Solve the equations for the positions `free` (K,), relative to position 1.

    Of the m clicks on a document shown n_k times at k, the position-based model expects the share

        s_k = n_k theta_k / sum_l n_l theta_l

    at k, whatever its relevance: E[c_k - m s_k] = 0 for every single document. So the solution of

        sum over documents (c_k - m s_k) = 0

    is right however few impressions a document has. A maximum over theta and all relevances
    together is not: with few clicks each relevance is fitted to noise (Neyman and Scott), and no
    sampling error contains that. What the two differ by does.

    The likelihood of the shares is concave in log theta (multinomial), and J its information.
    Errors from sessions are J^-1: clicks as Poisson counts, which is too much rather than too
    little.
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    n_queries = int(query.max()) + 1
    allow_table("the score of each query at each position", n_queries, cells.depth, copies=4)

    def newton_step(z: FloatArray) -> FloatArray:
        scores, J = _equations(cells.arrays, query, np.exp(z), n_queries)
        step = np.zeros(cells.depth)
        step[free] = inverted(J[np.ix_(free, free)]) @ scores.sum(axis=0)[free]
        return step

    # Far from the solution Newton's method overshoots: a step of log theta is at most 2.
    z = short_steps(
        newton_step, np.zeros(cells.depth), largest=2.0, enough=1e-8, max_steps=NEWTON_STEPS
    )
    scores, J = _equations(cells.arrays, query, np.exp(z), n_queries)
    inverse = np.zeros_like(J)
    inverse[np.ix_(free, free)] = inverted(J[np.ix_(free, free)])
    noise = _noise_by_query(cells, query, np.exp(z), inverse, n_queries)
    return ShareFit(z, clustered(scores @ inverse, noise, inverse))


@nb.njit(cache=True)
def _equations(
    cells: Cells, query: IntArray, theta: FloatArray, n_queries: int
) -> tuple[FloatArray, FloatArray]:
    """Scores (queries, K), and J = sum over documents of m (diag(s) - s s')."""
    indptr, position, impressions, clicks = cells
    depth = len(theta)
    scores, J = np.zeros((n_queries, depth)), np.zeros((depth, depth))
    for d in range(len(query)):
        m, total = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            m += clicks[cell]
            total += impressions[cell] * theta[position[cell] - 1]
        for a in range(indptr[d], indptr[d + 1]):
            k = position[a] - 1
            s = impressions[a] * theta[k] / total
            scores[query[d], k] += clicks[a] - m * s
            J[k, k] += m * s
            for b in range(indptr[d], indptr[d + 1]):
                j = position[b] - 1
                J[k, j] -= m * s * impressions[b] * theta[j] / total
    return scores, J


def _noise_by_query(
    cells: PositionCounts, query: IntArray, theta: FloatArray, inverse: FloatArray, n_queries: int
) -> FloatArray:
    """(queries, K) each query's part of the diagonal of J^-1 J J^-1."""
    k, owner, documents = cells.position_index, cells.document_index, cells.n_documents
    m, shown = sum_by(owner, cells.clicks, documents), cells.impressions * theta[k]
    s, noise = shown / sum_by(owner, shown, documents)[owner], []
    for column in inverse.T:
        mean = sum_by(owner, s * column[k], documents)
        square = sum_by(owner, s * column[k] ** 2, documents)
        noise.append(sum_by(query, m * (square - mean * mean), n_queries))
    return np.column_stack(noise)


# Per document; simulated logs with fewer had curves several percent too high.
FEW_IMPRESSIONS = 30
# theta this near to 1 was stopped by its bound.
AT_CEILING = 1 - 1e-4
# The share of logs where 3 clicks were to be expected and none came is 1 in 20.
CLICKS_THAT_WOULD_SHOW = 3.0


@method(
    "bias", "regression-em", title="Regression EM", order=30, rests_on="relevance model",
    takes=("relevance", "seed"), reference="wang2018regression",
    note="examination and relevance by EM, relevance modelled by the features",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class RegressionEM(EMEstimator):
    r"""EM for P(click) = theta_k gamma, with gamma from features or from counts.

        E step  P(e=1, r=0 | c=0) = theta (1 - gamma) / (1 - theta gamma)
                P(e=0, r=1 | c=0) = (1 - theta) gamma / (1 - theta gamma)
        M step  theta_k = mean of P(e=1 | c) at k;  gamma from P(r=1 | c)

    ([wang2018regression]_.) With features, gamma(x) is learned by boosted trees on the posterior
    P(r=1 | c) as soft targets, one tree per EM step, cross-fitted by query (`CrossFittedTrees`);
    the curve comes from strata of documents alike in it and in predicted position (`stratified`).
    It needs no document at two positions, and it is as good as the features: whatever the
    production ranker used beyond them is taken for examination.

    With counts, each (query, document) has its own gamma: no such assumption, but positions
    must share documents, and documents need impressions, about 100 sessions per query: with 30
    curves were 1 to 6% too high, with 10 they were 11 to 21%, where `AllPairs` was within 5%
    (docs/position-bias.md).

    Only ratios are known: theta is relative to position 1.
    Fitted: `bias_`; `relevance_` (documents,) gamma as click probability at position 1, NaN where
    nothing is known; `history_`, the log-likelihood by step (of held-out queries with features).

    Parameters
    ----------
    relevance : "features", "counts", "auto" (features where the log has them), or "network":
        features as well, by networks in mini-batches instead of trees (see `CrossFittedNetworks`)
    depth : positions 1..depth; all of the log where not given
    level : of the intervals
    tolerance, max_steps : of EM with counts; see `run_em`
    n_trees, learning_rate, n_leaves, min_data_in_leaf : of the trees, n_trees at most
    folds : of the queries; a query's relevance comes from trees that have not seen it
    early_stopping : rounds without a gain on held-out queries before the trees stop
    n_bootstrap : resamples of queries for the errors, each with its own fit. 0: by formula, the
        larger of clustered by query and session noise
    n_threads : of LightGBM; by the size of the data where not given
    network : options of relevance="network", such as {"widths": (64, 32), "epochs": 100}; see
        `untilt.bias.em.learned_relevance.NetworkOptions`. folds and early_stopping (epochs) hold
        there too
    seed : draws folds, columns of trees and resamples
    """

    _has_trust = False
    _relevance_from = (*RELEVANCE, "network")

    network: Mapping[str, Any] | None = None

    def _models(
        self, cells: PositionCounts, features: FeatureArray, options: TreeOptions
    ) -> CrossFittedRelevance:
        if self.relevance != "network":
            return super()._models(cells, features, options)
        return CrossFittedNetworks(cells, features, NetworkOptions.of(self.network), options)

    def _from_counts(self, cells: PositionCounts) -> RelevanceFit:
        em = position_based_em(cells, tolerance=self.tolerance, max_steps=self.max_steps)
        affine = AffineFit(em.state.theta, np.zeros(cells.depth), em.state.gamma)
        status = joined(em.status, *_few_impressions(cells))
        return DocumentsFit(affine=affine, learned=affine, history=em.history, status=status)

    def _without_interval(self, cells: PositionCounts, fit: RelevanceFit) -> Fact | None:
        """Of strata, where they are too few or nearly everything was clicked.

        With fewer documents than strata are made for, intervals of 20 queries held the truth in 82%
        of cases instead of 95%. Where nearly everything was clicked, the curve sits on its bound at
        every position, and what is left of its error is rounding.
        """
        if not isinstance(fit, StratifiedFit):
            return None
        if cells.n_documents < FEWEST_DOCUMENTS:
            n, least = cells.n_documents, FEWEST_DOCUMENTS
            return NO_INTERVAL_FEW_DOCUMENTS(n_documents=n, least=least)
        p = fit.affine.alpha[cells.position_index] * fit.affine.gamma[cells.document_index]
        always = float(cells.impressions[p > AT_CEILING].sum() / cells.impressions.sum())
        return NO_INTERVAL_ALL_CLICKED(share=always) if always > 0.5 else None

    def _curve(
        self, cells: PositionCounts, features: FeatureArray | None, fit: RelevanceFit
    ) -> tuple[PositionBias, FloatArray]:
        dead = cells.by_position(cells.clicks) == 0
        free = np.concatenate([~dead, np.zeros(cells.depth, dtype=bool)])
        free[0] = False  # the scale is free: position 1 holds it
        to_ratios = np.eye(cells.depth, 2 * cells.depth)
        to_ratios[:, 0] -= 1
        to_ratios /= np.concatenate([fit.affine.alpha, np.ones(cells.depth)])
        errors = self._uncertainty(cells, features, fit, free, to_ratios, _log_ratios)
        by_features = features is not None
        learned_by = "network" if self.relevance == "network" else "features"
        curve = from_log_ratios(
            _log_ratios(fit.affine),
            errors,
            level=self.level,
            method=f"RegressionEM ({learned_by if by_features else 'counts'})",
            assumes=(POSITION_BASED, relevance_assumed(by_features)),
            status=joined(fit.status, errors.rule),
        )
        gamma = fit.learned.alpha[0] * fit.learned.gamma
        return _with_dead_positions(curve, dead, cells, gamma), gamma


@dataclass(frozen=True, eq=False, kw_only=True)
class DocumentsFit(RelevanceFit):
    """Curves where each document has its own relevance; without trust bias."""

    def uncertainty(
        self, cells: PositionCounts, free: BoolArray, jacobian: FloatArray
    ) -> Uncertainty:
        """With what relevances fitted to few clicks each may have done to the curve.

        `fit_shares` needs no relevance. As much of its difference as noise does not explain is a
        further error; the noise of two estimates, one with all the information, is the difference
        of their variances. Where documents have few impressions, or theta is at its bound and has
        no sampling error at all, the whole difference is, and errors are at least those of
        `fit_shares`.
        """
        errors = uncertainty_of_affine(cells, self.affine, free, jacobian)
        z, other = fit_shares(cells, free[: cells.depth])
        ours, theirs = np.diag(errors.covariance), np.diag(other.covariance)
        change = np.where(free[: cells.depth], z - _log_ratios(self.affine), 0.0)
        covariance = errors.covariance
        if _few_impressions(cells) or self.affine.alpha.max() > AT_CEILING:
            factor = np.sqrt(np.maximum(theirs / np.where(ours > 0, ours, np.inf), 1))
            covariance = covariance * np.outer(factor, factor)
            covariance = covariance + np.diag(np.where(ours > 0, 0, theirs))
        else:
            noise = np.maximum(theirs - ours, 0)
            change = np.sign(change) * np.sqrt(np.maximum(change**2 - noise, 0))
        return replace(
            errors,
            covariance=covariance + np.outer(change, change),
            rule=joined(errors.rule, ERRORS_INCIDENTAL),
        )


def _few_impressions(cells: PositionCounts) -> list[Fact]:
    """A warning where gamma of a document rests on few impressions."""
    mean = float(cells.impressions.sum()) / cells.n_documents
    return [FEW_IMPRESSIONS_SENTENCE(mean=mean)] if mean < FEW_IMPRESSIONS else []


def _log_ratios(fit: AffineFit) -> FloatArray:
    return np.log(fit.alpha / fit.alpha[0])


def _with_dead_positions(
    bias: PositionBias, dead: BoolArray, cells: PositionCounts, gamma: FloatArray
) -> PositionBias:
    """Positions without a click: next to nothing, up to what 3 expected clicks would have shown."""
    if not dead.any():
        return bias
    at_full_examination = cells.by_position(cells.impressions * gamma[cells.document_index])
    one_click = 1 / np.maximum(at_full_examination[dead], 1e-3)
    theta = bias.examination.copy()
    theta[dead] = FLOOR
    about: dict[str, Any] = {"examination": theta}
    if bias.has_interval:
        error, covariance = np.array(bias.std_error), np.array(bias.covariance)
        low, high = np.array(bias.low), np.array(bias.high)
        error[dead], low[dead], high[dead] = one_click, 0.0, CLICKS_THAT_WOULD_SHOW * one_click
        covariance[dead] = covariance[:, dead] = 0.0
        covariance[dead, dead] = one_click**2
        about |= {"std_error": error, "covariance": covariance, "low": low, "high": high}
    where = tuple((np.flatnonzero(dead) + 1).tolist())
    return replace(bias, **about, status=joined(bias.status, NO_CLICKS(positions=where)))
