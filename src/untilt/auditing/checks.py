"""What an audit counts: plain facts about a log with sessions, each a small function of it.

Everything is weighted by sessions, so that a counted list and its repeated sessions give the same.

**Features that change.** Do documents rise when they get better?
Estimators that compare a document with itself at several positions believe that it is as relevant
wherever it stood. A production ranker that knows the price breaks that: the document stands higher
on the days when it is cheap, and is clicked more for both reasons. Experiments and models of
relevance by features are right all the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numba as nb
import numpy as np
from scipy.sparse import csr_array

from untilt._core import ragged
from untilt._core.arrays import AnyArray, BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt.bias.curve import PositionBias
from untilt.bias.log_ratios import log_ratios
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.facts import Fact, joined, note

PROXY_TOO_FEW = note("audit.proxy-too-few", "too few documents change positions")()
PROXY_NO_DIFFERENCE = note(
    "audit.proxy-no-difference",
    "too few sessions per document to separate better documents from worse ones",
)()
PROXY_CLICKS = note("audit.proxy-clicks", "clicks of documents that change positions")()
PROXY_NO_PREDICTION = note(
    "audit.proxy-no-prediction",
    "the features do not predict clicks within a position better than chance",
)()
PROXY_FEATURES = note(
    "audit.proxy-features", "a prediction of clicks within positions from the features"
)()
PROXY_NOTHING_WITHIN = note(
    "audit.proxy-nothing-within", "there is nothing to compare within queries"
)()


@dataclass(frozen=True)
class LogSize:
    """Size and shape of a log; `documents` and `queries` count those that no list shows too."""

    sessions: int
    distinct_lists: int
    queries: int
    documents: int
    impressions: int
    deepest_position: int
    features: int
    queries_with_sessions: int
    clicks: float
    shortest_list: int
    median_list: float


@dataclass(frozen=True)
class Coverage:
    """How much of the queries' candidates was ever shown, over queries with sessions.

    Parameters
    ----------
    candidates, shown : documents of these queries, and those of them that some list shows
    median_candidates, median_shown : per query
    lowest_share, median_share : shown / candidates of a query
    queries_shown_whole : queries of which every candidate was shown
    """

    candidates: int
    shown: int
    median_candidates: float
    median_shown: float
    lowest_share: float
    median_share: float
    queries_shown_whole: int
    json_properties: ClassVar[tuple[str, ...]] = ("share", "unshown")

    @property
    def share(self) -> float:
        """Shown documents among all candidates."""
        return self.shown / max(1, self.candidates)

    @property
    def unshown(self) -> int:
        """Candidates that no session showed."""
        return self.candidates - self.shown


def log_size(log: ClickLog) -> LogSize:
    """Counts of everything."""
    length = ragged.lengths(log.indptr)
    return LogSize(
        sessions=log.n_sessions,
        distinct_lists=log.collapse().n_lists,
        queries=log.n_queries,
        documents=log.n_items,
        impressions=log.n_impressions,
        deepest_position=log.depth,
        features=log.n_features,
        queries_with_sessions=len(np.unique(log.query)),
        clicks=float(np.dot(log.label, log.row_count)),
        shortest_list=int(length.min()),
        median_list=_weighted_median(length, log.sessions),
    )


def share_without_click(log: ClickLog) -> float:
    """Of the sessions, those in which nothing was clicked."""
    clicked = ragged.sums_by_list(log.indptr, log.label > 0) > 0
    return float(log.sessions[~clicked].sum() / max(1, log.n_sessions))


def sessions_with_gaps(log: ClickLog) -> int:
    """Sessions that skip a position which others show, between the first and their lowest one.

    Rows that were lost look like this; so do logs of clicked rows alone.
    """
    length = ragged.lengths(log.indptr)
    filled = length > 0
    used = np.cumsum(np.bincount(log.position) > 0)  # positions with results down to each
    lowest = np.zeros_like(length)
    lowest[filled] = used[log.position[log.indptr[1:][filled] - 1]]
    return int(log.sessions[lowest != length].sum())


def duplicate_impressions(log: ClickLog) -> int:
    """Impressions of a document that the same session already shows at another position."""
    log = log.without_versions()
    return int(_repeats(log.indptr, log.document, log.sessions, log.n_documents))


@nb.njit(cache=True)
def _repeats(indptr: IntArray, document: IntArray, sessions: IntArray, n_documents: int) -> int:
    last_list = np.full(n_documents, -1, dtype=np.int64)
    repeats = 0
    for i in range(len(indptr) - 1):
        for row in range(indptr[i], indptr[i + 1]):
            repeats += sessions[i] * (last_list[document[row]] == i)
            last_list[document[row]] = i
    return repeats


def sessions_by_ranker(log: ClickLog) -> Mapping[str, int]:
    """Name -> sessions, most first; rankers without a session are left out."""
    if log.ranker is None:
        return MappingProxyType({})
    sessions = sum_by(log.ranker, log.sessions, len(log.ranker_names))
    order = np.argsort(-sessions, kind="stable")
    by_name = {log.ranker_names[i]: int(sessions[i]) for i in order if sessions[i] > 0}
    return MappingProxyType(by_name)


def constant_features(log: ClickLog) -> tuple[str, ...]:
    """Features with a single value wherever they are known: no ranker can use them."""
    if log.features is None or len(log.features) == 0:
        return ()
    # Missing values never decide: fmin and fmax pass them over, and NaN == NaN is false.
    low, high = np.fmin.reduce(log.features), np.fmax.reduce(log.features)
    return _named(log, (low == high) | np.isnan(low))


def missing_features(log: ClickLog) -> Mapping[str, float]:
    """Name -> share of the documents for which the feature is missing (NaN), where there are any.

    `read_log(missing=0)` fills them on reading; then they cannot be seen here any more.
    """
    if log.features is None or len(log.features) == 0:
        return MappingProxyType({})
    share = np.isnan(log.features).mean(axis=0)
    names = _named(log, share > 0)
    return MappingProxyType(dict(zip(names, share[share > 0].tolist(), strict=True)))


def coverage(log: ClickLog) -> Coverage:
    """Shown documents against all documents of the queries that have sessions."""
    log = log.without_versions()
    is_shown = np.zeros(log.n_documents, dtype=bool)
    is_shown[log.document] = True
    asked = np.unique(log.query)
    candidates = _per_query(log, asked, np.ones(log.n_documents, dtype=bool))
    shown = _per_query(log, asked, is_shown)
    share = shown / np.maximum(1, candidates)
    return Coverage(
        candidates=int(candidates.sum()),
        shown=int(shown.sum()),
        median_candidates=_median(candidates),
        median_shown=_median(shown),
        lowest_share=float(share.min()),
        median_share=_median(share),
        queries_shown_whole=int(np.count_nonzero(shown == candidates)),
    )


def _per_query(log: ClickLog, asked: IntArray, which: BoolArray) -> IntArray:
    return np.bincount(log.doc_query[which], minlength=log.n_queries)[asked]


def _named(log: ClickLog, which: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, is_one in zip(log.feature_names, which, strict=True) if is_one)


def _median(values: IntArray | FloatArray) -> float:
    return float(np.median(values))


def _weighted_median(values: IntArray, count: IntArray) -> float:
    """The middle of the values, each standing `count` times."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(count[order])
    low, high = np.searchsorted(upto, [(upto[-1] - 1) // 2, upto[-1] // 2], side="right")
    return float(values[order[low]] + values[order[high]]) / 2


# Are documents shown higher also more relevant? Position against a proxy of relevance.
#
# A good production ranker puts relevant documents on top. Click rate by position then falls for two
# reasons, and only one of them is position bias. Where documents change positions the two can be
# separated; elsewhere features may predict relevance.

SURE = 2.0  # standard errors that a proxy must lie above 0 to count as one
SHRINKAGE = 0.01  # ridge penalty on standardised features, as a share of all impressions
CHUNK = 2**16  # rows of the features in memory at a time


@dataclass(frozen=True)
class RelevanceProxy:
    """Correlation of position and a proxy of relevance, within queries.

    Below 0 means that more relevant documents are shown higher. About 0 means that the order says
    little about relevance, so that click rate by position is close to position bias itself.

    Parameters
    ----------
    correlation : NaN where the log has no proxy to offer; `method` then says why
    std_error : clustered by query, and with the uncertainty of the curve where one is used
    method : how relevance was estimated
    """

    correlation: float
    std_error: float
    method: Fact

    @property
    def is_known(self) -> bool:
        """Whether there is a proxy at all."""
        return bool(np.isfinite(self.correlation))


def relevance_proxy(
    log: ClickLog, cells: PositionCounts, curve: PositionBias | None
) -> RelevanceProxy:
    """By the curve of positions that can be compared where there is one, else by the features."""
    by_clicks = _unknown(PROXY_TOO_FEW) if curve is None else by_curve(cells, curve)
    if by_clicks.is_known or log.features is None:
        return by_clicks
    by_features = by_prediction(log, cells if log.item is None else position_counts(log))
    if by_features.is_known:
        return by_features
    return _unknown(joined(by_clicks.method, by_features.method))


def by_curve(cells: PositionCounts, curve: PositionBias) -> RelevanceProxy:
    r"""Position against relevance estimated with a curve, over impressions and within queries.

    For a document with c clicks in n impressions, n_k of them at k, up to the depth of the curve:

        gamma = c / sum_k n_k theta_k,   m = sum_k n_k k / n
        r = A / sqrt(B C),   A = sum n m gamma,   C = sum n_k k^2,   B = sum n gamma^2 - noise

    with m, gamma and k taken from their means in the query, weighted by impressions. The noise is
    the binomial variance of gamma: without that correction few sessions would make any ranker look
    bad. The error has two parts, clustered by query and from the uncertainty of the curve.
    """
    z, V = log_ratios(curve)
    used = cells.at_positions(np.arange(cells.depth) < curve.depth)
    used = used.where(np.diff(used.indptr) > 0)
    a, b, c, chance = _moments(used, np.exp(z))
    if not b.sum() > SURE * chance:
        return _unknown(PROXY_NO_DIFFERENCE)
    proxy = _ratio(a, b, c, method=PROXY_CLICKS)
    # d r / d z_k by differences: the curve's error is shared by all queries, so it is added apart.
    step = 1e-4
    moved = [_moments(used, np.exp(z + step * unit))[:3] for unit in np.eye(len(z))]
    slope = np.array([(_correlation(*sums) - _correlation(a, b, c)) / step for sums in moved])
    error = np.sqrt(proxy.std_error**2 + slope @ V @ slope)
    return replace(proxy, std_error=float(error))


def _moments(
    cells: PositionCounts, theta: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """A, B and C of `by_curve` by query, and what B may be by chance where it is 0."""
    k, n_k, owner = cells.position, cells.impressions, cells.document_index
    query = np.unique(cells.query, return_inverse=True)[1]
    n, c = sum_by(owner, n_k), sum_by(owner, cells.clicks)
    at = theta[k - 1]
    seen = sum_by(owner, n_k * at)
    gamma = c / seen
    # (c^2 - c) / seen^2 estimates gamma^2: the square of gamma itself is too large by noise.
    square = sum_by(owner, n_k * at**2) * (c**2 - c) / seen**2
    noise = np.maximum(c - square, 0) / seen**2
    noise *= n * (1 - n / sum_by(query, n)[query])
    g = centred(gamma, n, query)
    m = centred(sum_by(owner, n_k * k) / n, n, query)
    spread = centred(k.astype(np.float64), n_k, query[owner])
    A = sum_by(query, n * g * m)
    B = sum_by(query, n * g * g - noise)
    C = sum_by(query[owner], n_k * spread**2)
    return A, B, C, float(np.sqrt(2 * np.sum(noise**2)))


def by_prediction(log: ClickLog, cells: PositionCounts) -> RelevanceProxy:
    """Position against relevance predicted from the features, both taken within the query.

    A linear model with a small ridge penalty predicts clicks within positions: click rate and
    features are taken from their means at each position, so position itself explains nothing. Each
    half of the queries is predicted by the model of the other half, and the prediction counts only
    if it predicts clicks within positions on the half that it has not seen.
    """
    owner = cells.document_index
    query, n = cells.query[owner], cells.impressions
    predicted = cross_fitted(log, cells, cells.document[owner], query % 2 == 1)
    within = centred(predicted, n, cells.position), centred(cells.rate, n, cells.position)
    covariance = sums_by_query(n * within[0] * within[1], query)
    if not covariance.sum() > SURE * np.sqrt(np.sum(covariance**2)):
        return _unknown(PROXY_NO_PREDICTION)
    g, k = centred(predicted, n, query), centred(cells.position.astype(np.float64), n, query)
    return _ratio(
        sums_by_query(n * g * k, query),
        sums_by_query(n * g * g, query),
        sums_by_query(n * k * k, query),
        method=PROXY_FEATURES,
    )


def cross_fitted(
    log: ClickLog, cells: PositionCounts, document: IntArray, second_half: BoolArray
) -> FloatArray:
    """(cells,) predictions of each half by the other half's model."""
    predicted = np.empty(len(document))
    standard = _Standard.of(log)
    for train, test in ((~second_half, second_half), (second_half, ~second_half)):
        w = _ridge(standard, cells, document, train)
        predicted[test] = standard.predict(w)[document[test]]
    return predicted


@dataclass(frozen=True, eq=False)
class _Standard:
    """Features less their mean, over their spread; missing, infinite and constant ones are 0."""

    features: FeatureArray
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, log: ClickLog) -> "_Standard":
        assert log.features is not None
        known = np.isfinite(log.features)
        x = np.where(known, log.features, 0)
        n = np.maximum(1, known.sum(axis=0))
        mean = x.sum(axis=0, dtype=np.float64) / n
        square = np.square(x, dtype=np.float64).sum(axis=0) / n
        spread = np.sqrt(np.maximum(square - mean**2, 0))
        # A spread that is rounding error alone is none.
        return cls(log.features, mean, np.where(spread > 1e-6 * np.abs(mean), spread, np.inf))

    def rows(self, documents: IntArray | slice) -> FloatArray:
        with np.errstate(invalid="ignore"):
            x = (self.features[documents] - self.mean) / self.spread
        return np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)

    def predict(self, w: FloatArray) -> FloatArray:
        """(documents,) x w, chunk by chunk."""
        starts = range(0, len(self.features), CHUNK)
        return np.concatenate([self.rows(slice(i, i + CHUNK)) @ w for i in starts])


def _ridge(
    standard: _Standard, cells: PositionCounts, document: IntArray, train: BoolArray
) -> FloatArray:
    """(X'NX + c I) w = X'Ny with X and y centred at each position, added up chunk by chunk."""
    rows = np.flatnonzero(train)
    d, K = len(standard.mean), cells.depth
    gram, moment = np.zeros((d, d)), np.zeros(d)
    sums, clicks, shown = np.zeros((K, d)), np.zeros(K), np.zeros(K)
    for begin in range(0, len(rows), CHUNK):
        part = rows[begin : begin + CHUNK]
        x = standard.rows(document[part])
        n, at = cells.impressions[part], cells.position[part] - 1
        gram += x.T @ (n[:, None] * x)
        moment += x.T @ cells.clicks[part]
        sums += csr_array((n, (at, np.arange(len(part)))), shape=(K, len(part))) @ x
        clicks += sum_by(at, cells.clicks[part], K)
        shown += sum_by(at, n, K)
    # sum n (x - mean_k)(x - mean_k)' = sum n x x' - sum_k s_k s_k' / n_k, and so for the clicks.
    mean = sums / np.maximum(shown, 1)[:, None]
    gram -= sums.T @ mean
    moment -= mean.T @ clicks
    return np.linalg.solve(gram + SHRINKAGE * max(1.0, shown.sum()) * np.eye(d), moment)


def centred(values: FloatArray, weights: FloatArray, group: IntArray) -> FloatArray:
    """Values less the weighted mean of their group."""
    total = sum_by(group, weights)
    mean = sum_by(group, weights * values) / np.where(total > 0, total, 1)
    return values - mean[group]


def sums_by_query(values: FloatArray, query: AnyArray) -> FloatArray:
    """(queries,) sums of the values of each query."""
    return sum_by(np.unique(query, return_inverse=True)[1], values)


def _ratio(a: FloatArray, b: FloatArray, c: FloatArray, *, method: Fact) -> RelevanceProxy:
    """A / sqrt(B C) of sums over queries, its error linearised; clipped to what it can be."""
    B, C, Q = b.sum(), c.sum(), len(a)
    if Q < 2 or not (B > 0 and C > 0):
        return _unknown(PROXY_NOTHING_WITHIN)
    r = _correlation(a, b, c)
    influence = a / np.sqrt(B * C) - r / 2 * (b / B + c / C)
    error = float(np.sqrt(Q / (Q - 1) * np.sum(influence**2)))
    return RelevanceProxy(float(np.clip(r, -1, 1)), error, method)


def _correlation(a: FloatArray, b: FloatArray, c: FloatArray) -> float:
    return float(a.sum() / np.sqrt(b.sum() * c.sum()))


def _unknown(why: Fact) -> RelevanceProxy:
    return RelevanceProxy(float("nan"), float("nan"), why)


# Relative change of relevance by one position that is worth a word: 0.9^(1/10), 10% over ten.
DRIFT = 0.01
SURELY_DRIFTS = 3.0  # standard errors that it, and what features explain, must lie away from 0


@dataclass(frozen=True)
class Versions:
    """Documents that have several versions, because features change.

    Parameters
    ----------
    features : names of those that change
    documents, versions : how many there are of both
    drift : by how much relevance changes from one position to the next at the same document, as a
        share of the mean; below 0 where documents stand higher when they are better, NaN where the
        changing features do not predict clicks
    std_error : of the drift, clustered by query
    """

    features: tuple[str, ...]
    documents: int
    versions: int
    drift: float = float("nan")
    std_error: float = float("nan")
    json_properties: ClassVar[tuple[str, ...]] = ("drifts",)

    @property
    def drifts(self) -> bool:
        """Whether a document's relevance changes with its position, so much that it matters."""
        return bool(abs(self.drift) > max(DRIFT, SURELY_DRIFTS * self.std_error))


def versions_of(log: ClickLog) -> Versions | None:
    """What changes in a log; None where nothing does."""
    names = changing_features(log)
    return Versions(names, log.n_items, log.n_documents, *_drift(log)) if names else None


def changing_features(log: ClickLog) -> tuple[str, ...]:
    """Features that differ between versions of a document, such as its price over time."""
    if log.item is None or log.features is None:
        return ()
    again = np.flatnonzero(np.diff(log.item) == 0)
    changes = np.zeros(log.n_features, dtype=bool)
    for begin in range(0, len(again), CHUNK):
        rows = again[begin : begin + CHUNK]
        before, after = log.features[rows], log.features[rows + 1]
        changes |= np.any((before != after) & ~(np.isnan(before) & np.isnan(after)), axis=0)
    return tuple(name for name, it in zip(log.feature_names, changes, strict=True) if it)


def _drift(log: ClickLog) -> tuple[float, float]:
    r"""Slope of predicted relevance over position within documents, and its error.

        drift = sum n (g - g_d)(k - k_d) / sum n (k - k_d)^2 / mean click rate

    over impressions at position k of documents d, whose means are g_d and k_d. Relevance g is
    predicted from the features as in `by_prediction`: clicks within positions, each half of
    the queries by the other half's model. What never changes has no part in it.
    """
    assert log.item is not None
    cells = position_counts(log)
    version = cells.document[cells.document_index]
    query, item, n = log.doc_query[version], log.item[version], cells.impressions
    predicted = cross_fitted(log, cells, version, query % 2 == 1)
    g = centred(predicted, n, item)
    k = centred(cells.position.astype(np.float64), n, item)
    clicks = centred(cells.rate, n, cells.position)
    explained = sums_by_query(n * g * clicks, query)
    a, c = sums_by_query(n * g * k, query), sums_by_query(n * k * k, query)
    rate, total, n_queries = cells.clicks.sum() / n.sum(), c.sum(), len(a)
    known = explained.sum() > SURELY_DRIFTS * np.sqrt(np.sum(explained**2))
    if not (known and rate > 0 and total > 0 and n_queries > 1):
        return float("nan"), float("nan")
    slope = a.sum() / total
    error = np.sqrt(n_queries / (n_queries - 1) * np.sum((a - slope * c) ** 2)) / total
    return float(slope / rate), float(error / rate)
