"""Trust bias by EM: users click on the top because it is the top."""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numba as nb
import numpy as np
import numpy.typing as npt
from scipy import special

from untilt._core.arrays import FeatureArray, FloatArray, IntArray, frozen, sum_by
from untilt._core.statistics import effective_units, normal_quantile, student_quantile
from untilt.bias.curve import NO_CLICKS, PositionBias
from untilt.bias.em.affine import FLOOR, AffineFit
from untilt.bias.em.regression_em import (
    CLICKS_THAT_WOULD_SHOW,
    EMEstimator,
    relevance_assumed,
)
from untilt.bias.em.relevance import MixtureFit, RelevanceFit, mixture_em
from untilt.bias.given import Examination, as_position_bias
from untilt.bias.log_ratios import Uncertainty
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import Cells, PositionCounts
from untilt.data.layout import Packed
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.facts import Fact, joined, note, warning
from untilt.views import Section, Table, View

TRUST_CONTRARY = warning(
    "bias.trust-contrary",
    "clicks are no product of position and relevance (p {p_value:.2g}, {n_queries:,} queries), but "
    "not as trust in the top makes them",
)

TRUST_UNTOLD = note(
    "bias.trust-untold",
    "no trust bias to be seen (p {p_value:.2g}, {n_queries:,} queries); shifts of the curves may "
    "also mean that queries differ in examination",
)

TRUST_FOUND = note(
    "bias.trust-found",
    "trust bias found: clicks are no product of position and relevance (p {p_value:.2g}, "
    "{n_queries:,} queries)",
)

EXAMINATION_GIVEN = note("bias.examination-given", "examination as given")()

EVEN_EPS_PLUS = note("bias.even-eps-plus", "a convention: eps+ is the same at all positions")()

SCALE_GIVEN = note(
    "bias.scale-given",
    "given: relevant documents are clicked with probability {relevant:.4g} at position {position}, "
    "irrelevant ones with {irrelevant:.4g}",
)

SCALE_CONVENTION = note(
    "bias.scale-convention",
    "a convention: gamma 0 and 1 are the documents at the 1% and 99% quantile of relevance, so "
    "that relevant documents are clicked with probability {relevant:.4g} at position {position}, "
    "irrelevant ones with {irrelevant:.4g}",
)

TRUST_UNTESTED = note(
    "bias.trust-untested",
    "trust bias not tested: {n_queries:,} queries showed documents at several positions, too few "
    "to compare them",
)
TOO_FEW_IMPRESSIONS = warning(
    "bias.too-few-impressions",
    "a document was shown only {mean:.1f} times on average: trust bias and relevance cannot be "
    "separated, and the curve has no interval; relevance by features (⟦relevance='features'⟧) "
    "can separate them",
)
TRUST_MODEL = note(
    "bias.trust-model", "clicks follow P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma))"
)()

# Impressions at which a document has half of the weight that it can have: beyond, relevances differ
# more than noise does, and one query with much traffic would decide the test.
HALF_WEIGHT = 10.0
# Student's t of clicks on z at which U counts half.
HALF_SEPARATED = 3.0
# With fewer effective queries their spread cannot be known well enough.
FEWEST_EFFECTIVE = 4.0


@dataclass(frozen=True)
class TrustTest:
    """Student's t of the mean over queries, and its two-sided p-value.

    t : below 0 where the top is trusted: irrelevant documents get more clicks there than the
        position-based model allows; above 0 for the contrary
    n_queries : with documents that were shown at several positions
    effective_queries : as many of equal weight; t has one degree of freedom less
    """

    t: float
    p_value: float
    n_queries: int
    effective_queries: float

    @property
    def fact(self) -> Fact:
        """The result for a status."""
        if np.isnan(self.p_value):
            return TRUST_UNTESTED(n_queries=self.n_queries)
        told = TRUST_FOUND if self.t < 0 else TRUST_CONTRARY
        told = TRUST_UNTOLD if self.p_value >= 0.05 else told
        return told(p_value=self.p_value, n_queries=self.n_queries)


def trust_test(cells: PositionCounts) -> TrustTest:
    """Test whether clicks of this log depend on position and relevance as a product alone.

    Without trust bias P(click on d at k) = theta_qk gamma_d, with it alpha_qk gamma_d + beta_qk.
    Two statistics of each query have mean 0 in the first case, and are negative where the top is
    trusted (beta / alpha falls with the position):

        T_q = sum over k < l, d, e  w_d w_e (p_dk p_el - p_dl p_ek) (p_dk + p_dl - p_ek - p_el)
        U_q = sum over k < l, d     w_d (p_dk - rho_kl p_dl) (z_d - z_kl)

    T compares two documents of a query shown at the same two positions: (alpha_k beta_l - alpha_l
    beta_k) (gamma_d - gamma_e)^2 (alpha_k + alpha_l) in the mean. With click rates for p and c (c -
    1) / (n (n - 1)) for p^2 its mean is exactly 0 without trust bias, whatever theta is in the
    query. U asks whether clicks at k against those at l, rho_kl in all, are fewer for documents
    that rankers put high: z is minus the mean position, z_kl its mean over the clicks at l. It
    needs no second document, but that queries with steep curves are not those where such documents
    stand at k and l.

    The test is Student's t of both, each scaled by its own spread over the queries, U less where z
    does not tell relevance. The shifts of `AffineCurves.relative` are no such test: where readers
    of some queries look further down than those of others, documents scatter about the lines more
    than clicks do by chance, and a mixture that knows chance alone turns the lines.
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    n_queries = int(query.max()) + 1 if len(query) else 0
    z = -cells.mean_position
    tetrads = _sum_tetrads(cells.arrays, query, n_queries, cells.depth)
    ratios = _sum_ratios(cells.arrays, query, z, n_queries, cells.depth)
    statistic, weight = np.zeros(n_queries), np.zeros(n_queries)
    for (values, own), part in ((tetrads, 1.0), (ratios, _separation(cells, query, z))):
        squares = float(np.sum(values**2))
        if squares > 0:
            statistic += part * values / np.sqrt(squares)
            weight += part * own / own.sum()
    n, effective = int(np.sum(weight > 0)), effective_units(weight)
    if effective < FEWEST_EFFECTIVE or not statistic.any():
        return TrustTest(float("nan"), float("nan"), n, effective)
    t = float(statistic.sum() / np.sqrt(np.sum(statistic**2)))
    return TrustTest(t, float(2 * special.stdtr(effective - 1, -abs(t))), n, effective)


def _separation(cells: PositionCounts, query: IntArray, z: FloatArray) -> float:
    """From 0 to 1, how surely documents with a high z are clicked more at the same position.

    In random order z says nothing about relevance, and U would be noise beside T.
    """
    owner, k, n = cells.document_index, cells.position_index, cells.impressions
    w = n / (n + HALF_WEIGHT)
    total = np.maximum(cells.by_position(w), 1e-300)
    high = z[owner] - (cells.by_position(w * z[owner]) / total)[k]
    more = cells.rate - (cells.by_position(w * cells.rate) / total)[k]
    by_query = sum_by(query[owner], w * high * more)
    squares = float(np.sum(by_query**2))
    t = max(float(by_query.sum()) / np.sqrt(squares), 0.0) if squares > 0 else 0.0
    return t / (t + HALF_SEPARATED)


@nb.njit(cache=True)
def _weight(n: float, m: float) -> float:
    h = n * m / (n + m)
    return h / (h + HALF_WEIGHT)


@nb.njit(cache=True)
def _sum_tetrads(
    cells: Cells, query: IntArray, n_queries: int, depth: int
) -> tuple[FloatArray, FloatArray]:
    """(queries,) T_q and the sum of its weights.

    With a, b the rates of a document at k, l and A, B their squares, a pair (d, e) has
    A_d b_e + a_d b_d b_e - a_d a_e b_e - a_d B_e and the same with d, e exchanged: sums over all
    documents, less those of a document with itself.
    """
    indptr, position, impressions, clicks = cells
    T, weight = np.zeros(n_queries), np.zeros(n_queries)
    begin = 0
    while begin < len(query):
        q, end = query[begin], begin
        while end < len(query) and query[end] == q:
            end += 1
        # Sums of w A, w B, w a b, w a, w b, w for each pair of positions.
        sums = np.zeros((6, depth, depth))
        for d in range(begin, end):
            for first in range(indptr[d], indptr[d + 1]):
                for second in range(first + 1, indptr[d + 1]):
                    n, m = impressions[first], impressions[second]
                    if n < 2 or m < 2:
                        continue
                    k, j = position[first] - 1, position[second] - 1
                    w = _weight(n, m)
                    a, b = clicks[first] / n, clicks[second] / m
                    A = a * (clicks[first] - 1) / (n - 1)
                    B = b * (clicks[second] - 1) / (m - 1)
                    sums[0, k, j] += w * A
                    sums[1, k, j] += w * B
                    sums[2, k, j] += w * a * b
                    sums[3, k, j] += w * a
                    sums[4, k, j] += w * b
                    sums[5, k, j] += w
                    T[q] -= w * w * (A * b + a * b * b - a * a * b - a * B)
                    weight[q] -= w * w
        for k in range(depth):
            for j in range(k + 1, depth):
                A, B, ab, a, b, w = sums[:, k, j]
                T[q] += A * b + ab * b - a * ab - a * B
                weight[q] += w * w
        if weight[q] < 1e-9:
            T[q] = weight[q] = 0.0
        begin = end
    return T, weight


@nb.njit(cache=True)
def _sum_ratios(
    cells: Cells, query: IntArray, z: FloatArray, n_queries: int, depth: int
) -> tuple[FloatArray, FloatArray]:
    """(queries,) U_q and the sum of its weights."""
    indptr, position, impressions, clicks = cells
    U, weight = np.zeros(n_queries), np.zeros(n_queries)
    # Sums of w p_k, w p_l and w p_l z for each pair of positions.
    sums = np.zeros((3, depth, depth))
    for summing in (True, False):
        for d in range(len(query)):
            for first in range(indptr[d], indptr[d + 1]):
                for second in range(first + 1, indptr[d + 1]):
                    k, j = position[first] - 1, position[second] - 1
                    n, m = impressions[first], impressions[second]
                    w = _weight(n, m)
                    a, b = clicks[first] / n, clicks[second] / m
                    if summing:
                        sums[0, k, j] += w * a
                        sums[1, k, j] += w * b
                        sums[2, k, j] += w * b * z[d]
                    elif sums[0, k, j] > 0 and sums[1, k, j] > 0:
                        rho = sums[0, k, j] / sums[1, k, j]
                        U[query[d]] += w * (a - rho * b) * (z[d] - sums[2, k, j] / sums[1, k, j])
                        weight[query[d]] += w
    return U, weight


# Trust bias as two curves, E[click at k] = alpha_k gamma + beta_k, on a scale of relevance.
#
# For any a > 0 and b, the curves (alpha_k / a, beta_k - b alpha_k / a) with relevance a gamma + b
# give the same clicks. So clicks identify 2K - 2 numbers of the 2K: the affine map
#
#     P(click at k) = slope_k P(click at 1) + shift_k,
#     slope_k = alpha_k / alpha_1,   shift_k = beta_k - slope_k beta_1
#
# from the click probability of a document at position 1 to the one at position k. The missing two
# are a choice of scale: which documents have gamma 0 and which have gamma 1.


@dataclass(frozen=True)
class TrustAnchor:
    """What fixes the scale of relevance: two click rates at one position.

    For instance, show judged documents at position 1 and count: relevant ones (gamma 1) were
    clicked in 67% of the sessions, irrelevant ones (gamma 0) in 44%: TrustAnchor(0.67, 0.44).

    Parameters
    ----------
    relevant : theta eps+ = alpha + beta at the position
    irrelevant : theta eps- = beta at the position
    position : 1-based
    """

    relevant: float
    irrelevant: float
    position: int = 1

    def check(self, depth: int) -> None:
        """Raise unless these are click rates at a position down to `depth`."""
        if not 0 <= self.irrelevant < self.relevant <= 1:
            raise OptionError(
                "an anchor must have 0 <= irrelevant < relevant <= 1: relevant documents are "
                f"clicked more often. Got irrelevant={self.irrelevant}, relevant={self.relevant}."
            )
        if not 1 <= self.position <= depth:
            raise DepthError(
                f"the anchor's position must be one of 1..{depth}. Got {self.position} instead."
            )


class CurveIntervals(NamedTuple):
    """Of alpha and beta at each position, (K,) each."""

    alpha_low: FloatArray
    alpha_high: FloatArray
    beta_low: FloatArray
    beta_high: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class AffineCurves(View):
    """alpha and beta with their covariance, on the scale that `anchor` sets.

    Parameters
    ----------
    alpha, beta : (K,)
    covariance : (2K, 2K) of (alpha, beta); 0 at the anchor's position, where both are given
    anchor : the scale of relevance
    degrees_of_freedom : of Student's t; infinite where errors do not rest on the spread of queries
    """

    alpha: FloatArray
    beta: FloatArray
    covariance: FloatArray
    anchor: TrustAnchor
    degrees_of_freedom: float = math.inf

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "covariance"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return len(self.alpha)

    @property
    def alpha_std_error(self) -> FloatArray:
        """(K,)"""
        return np.sqrt(np.maximum(np.diag(self.covariance)[: self.depth], 0))

    @property
    def beta_std_error(self) -> FloatArray:
        """(K,)"""
        return np.sqrt(np.maximum(np.diag(self.covariance)[self.depth :], 0))

    def intervals(self, level: float = 0.95) -> CurveIntervals:
        r"""alpha exp(-+ q se / alpha), and beta along with it.

        alpha is a slope, whose error grows with it: +- q se covers too little where the estimate
        happens to be low (86% of 200 logs at position 10, relevance from features). The click rate
        at k is known well, so beta is low where alpha is high: the part of its error that goes with
        alpha follows alpha's interval, the rest is symmetric. Without errors (NaN) it has no ends.
        """
        q, depth = _quantile(level, self.degrees_of_freedom), self.depth
        if np.isnan(self.covariance).any():
            nothing = np.full(depth, np.inf)
            return CurveIntervals(np.zeros(depth), nothing, -nothing, nothing)
        variance, together = np.diag(self.covariance), np.diag(self.covariance[:depth, depth:])
        # Beyond e^10 an interval says nothing.
        reach = np.exp(np.minimum(q * self.alpha_std_error / np.maximum(self.alpha, 1e-300), 10))
        low = self.alpha / reach
        high = np.maximum(self.alpha * reach, self.alpha + q * self.alpha_std_error)
        of_alpha = np.maximum(variance[:depth], 0)
        b = np.divide(together, of_alpha, out=np.zeros(depth), where=of_alpha > 0)
        rest = np.maximum(variance[depth:] - b * together, 0)
        ends = np.sort([b * (low - self.alpha), b * (high - self.alpha)], axis=0)
        below, above = np.sqrt(ends**2 + q**2 * rest)
        return CurveIntervals(low, high, self.beta - below, self.beta + above)

    def anchored(self, anchor: TrustAnchor) -> "AffineCurves":
        """The same clicks on another scale of relevance; nothing is fitted again."""
        anchor.check(self.depth)
        alpha, beta = re_anchored(self.alpha, self.beta, anchor)
        jacobian = anchor_jacobian(self.alpha, self.beta, anchor)
        covariance = jacobian @ self.covariance @ jacobian.T
        return AffineCurves(alpha, beta, covariance, anchor, self.degrees_of_freedom)

    def on_page(self, page: Packed, depth: int) -> "AffineCurves":
        """The curves by the numbers of the page; the value above where it holds no results."""
        at = page.ranks(depth) - 1
        both = np.concatenate([at, at + self.depth])
        covariance = self.covariance[np.ix_(both, both)]
        anchor = replace(self.anchor, position=int(page.numbers(self.anchor.position)[-1]))
        return AffineCurves(
            self.alpha[at], self.beta[at], covariance, anchor, self.degrees_of_freedom
        )

    def relative(self) -> "AffineCurves":
        """What clicks identify without any scale: alpha is slope, beta is shift.

        P(click at k) = slope_k P(click at 1) + shift_k; without trust bias all shifts are 0. Shifts
        also arise where queries differ in examination: `TrustEM.trust_test_` is the test.
        """
        return self.anchored(TrustAnchor(relevant=1.0, irrelevant=0.0, position=1))

    lines = relative  # its former name

    def view(self) -> list[Section]:
        """Both curves with their standard errors."""
        columns = (self.alpha, self.alpha_std_error, self.beta, self.beta_std_error)
        rows = tuple(
            (str(k), *(f"{each:.4f}" for each in row))
            for k, row in enumerate(zip(*columns, strict=True), 1)
        )
        header = ("position", "alpha", "std error", "beta", "std error")
        title = (
            f"AffineCurves, scale by position {self.anchor.position}: relevant clicked "
            f"{self.anchor.relevant:.4f}, irrelevant {self.anchor.irrelevant:.4f}"
        )
        return [Section("curves", title, tables=(Table(header, rows, text_columns=()),))]


def _quantile(level: float, degrees_of_freedom: float) -> float:
    """Student's, or the normal one where degrees of freedom are infinite."""
    if math.isinf(degrees_of_freedom):
        return normal_quantile(level)
    return student_quantile(level, degrees_of_freedom)


def re_anchored(
    alpha: FloatArray, beta: FloatArray, anchor: TrustAnchor
) -> tuple[FloatArray, FloatArray]:
    """(alpha, beta) moved to the scale of an anchor."""
    r = anchor.position - 1
    slope = alpha / alpha[r]
    return (
        slope * (anchor.relevant - anchor.irrelevant),
        beta + slope * (anchor.irrelevant - beta[r]),
    )


def anchor_jacobian(alpha: FloatArray, beta: FloatArray, anchor: TrustAnchor) -> FloatArray:
    """(2K, 2K) derivatives of `re_anchored` by (alpha, beta)."""
    depth, r = len(alpha), anchor.position - 1
    slope = alpha / alpha[r]
    d_slope = np.eye(depth) / alpha[r]
    d_slope[:, r] -= slope / alpha[r]
    d_beta = np.eye(depth)
    d_beta[:, r] -= slope
    return np.block(
        [
            [(anchor.relevant - anchor.irrelevant) * d_slope, np.zeros((depth, depth))],
            [(anchor.irrelevant - beta[r]) * d_slope, d_beta],
        ]
    )


# Without an anchor these shares of the documents, by relevance, are gamma 0 and gamma 1.
LEAST_RELEVANT, MOST_RELEVANT = 0.01, 0.99
# Impressions per document below which counts have no interval: one click of two impressions says as
# well that the document is relevant as that the reader trusts the position.
FEWEST_IMPRESSIONS = 5.0


@method(
    "bias", "trust-em", title="Trust-bias EM", order=31, rests_on="relevance model",
    takes=("relevance", "seed"), reference="agarwal2019trust",
    note="examination with the click noise eps+ and eps- of each position, by EM",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class TrustEM(EMEstimator):
    r"""EM for P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma)) = alpha_k gamma + beta_k.

    alpha_k = theta_k (eps+_k - eps-_k), beta_k = theta_k eps-_k ([agarwal2019trust]_,
    [vardasbi2020affine]_). What clicks identify of this, and what not:

    - the affine map from a document's click probability at position 1 to the one at position k is
      identified: `curves_.relative()`;
    - alpha and beta are identified up to the scale of relevance (`AffineCurves` has the algebra).
      `anchor` gives that scale: then alpha and beta are estimates of the true ones. Without it the
      scale is a convention: of the fitted documents, gamma 0 is the 1% quantile and gamma 1 the
      99% quantile. Rankers need no anchor: (click - beta_k) / alpha_k is unbiased for a relevance
      that orders documents the same way, on any scale;
    - theta, eps+ and eps- apart from their products are not identified at all. `bias_` has the
      same eps+ everywhere and theta_1 = 1, unless `examination` is given. Its alpha and beta
      (`bias_.affine()`) do not depend on this choice.

    "keep eps+ > eps-": alpha is kept above 0; the mirror image (relevant taken for irrelevant) fits
    as well.

    Relevance comes from features or counts as in `RegressionEM`. Trust bias asks for more: with
    counts about 100 sessions per query (alpha_5 to 6%; to 1% with 1000), with features about 500
    queries (benchmarks/bench_em_coverage.py).

    Fitted: `bias_` (with eps_plus, eps_minus), `curves_` (alpha, beta and their errors),
    `relevance_` (documents,) gamma, NaN where nothing is known, `history_`; `trust_test_`, whether
    there is any trust bias, by comparing documents of one query (see `trust_test`).

    Parameters
    ----------
    anchor : `TrustAnchor(relevant, irrelevant, position)`, click rates that are known
    examination : theta where it is known from elsewhere: any bias, or an array
    relevance, depth, level, tolerance, max_steps, n_trees, learning_rate, n_leaves,
    min_data_in_leaf, folds, early_stopping, n_bootstrap, n_threads, seed : as in `RegressionEM`
    """

    _has_trust = True
    curves_: AffineCurves = field(init=False)
    trust_test_: TrustTest = field(init=False)

    anchor: TrustAnchor | None = None
    examination: Examination | npt.ArrayLike | None = None
    tolerance: float = 1e-2
    max_steps: int = 10_000

    def _from_counts(self, cells: PositionCounts) -> RelevanceFit:
        return mixture_em(cells, tolerance=self.tolerance, max_steps=self.max_steps)

    def _without_interval(self, cells: PositionCounts, fit: RelevanceFit) -> Fact | None:
        mean = float(cells.impressions.sum()) / cells.n_documents
        too_few = isinstance(fit, MixtureFit) and mean < FEWEST_IMPRESSIONS
        return TOO_FEW_IMPRESSIONS(mean=mean) if too_few else None

    def _curve(
        self, cells: PositionCounts, features: FeatureArray | None, fit: RelevanceFit
    ) -> tuple[PositionBias, FloatArray]:
        affine = fit.affine
        given = self.anchor
        anchor = _convention(fit.learned) if given is None else self._placed(given)
        _require_slope(affine, anchor)
        relevance = _rescaled(fit.learned, anchor)

        def numbers(affine: AffineFit) -> FloatArray:
            return np.concatenate(re_anchored(affine.alpha, affine.beta, anchor))

        # The scale is free where relevance comes from the same clicks: the anchor holds it.
        free = np.tile(cells.by_position(cells.clicks) > 0, 2)
        free[[anchor.position - 1, cells.depth + anchor.position - 1]] = False
        jacobian = anchor_jacobian(affine.alpha, affine.beta, anchor)
        errors = self._uncertainty(cells, features, fit, free, jacobian, numbers)
        errors = _with_dead_positions(errors, cells, relevance)
        self.curves_ = AffineCurves(
            *re_anchored(affine.alpha, affine.beta, anchor),
            errors.covariance,
            anchor,
            _least(errors.degrees_of_freedom),
        )
        self.trust_test_ = trust_test(cells)
        status = joined(fit.status, errors.rule, self.trust_test_.fact)
        bias = self._bias(status, errors.effective_queries, by_features=features is not None)
        return bias, relevance

    def _bias(
        self, status: Fact, effective_queries: float | None, *, by_features: bool
    ) -> PositionBias:
        curves = self.curves_
        # An estimate a little below 0 is noise: no irrelevant document is clicked less than never.
        beta = np.maximum(curves.beta, 0)
        relevant = np.maximum(curves.alpha + beta, FLOOR)
        theta, covariance = self._examination(relevant)
        errors: dict[str, Any] = {}
        if np.isfinite(covariance).all():
            half = _quantile(self.level, curves.degrees_of_freedom) * np.sqrt(np.diag(covariance))
            errors = {
                "covariance": covariance,
                "low": np.maximum(theta - half, 0),
                "high": theta + half,
            }
        return PositionBias(
            theta,
            **errors,
            estimated=True,
            effective_queries=effective_queries,
            eps_plus=relevant / theta,
            eps_minus=beta / theta,
            method=f"TrustEM ({'features' if by_features else 'counts'})",
            assumes=(TRUST_MODEL, relevance_assumed(by_features), *self._conventions()),
            status=status,
            relative=self.anchor is None,
            level=self.level,
        )

    def _examination(self, relevant: FloatArray) -> tuple[FloatArray, FloatArray]:
        """theta with its covariance: as given, else so that eps+ is the same everywhere."""
        depth = len(relevant)
        if self.examination is not None:
            at = self._page.numbers(depth)
            known = as_position_bias(self.examination, int(at[-1]))
            return known.at(at), np.zeros((depth, depth))
        theta = relevant / relevant[0]
        jacobian = np.eye(depth)
        jacobian[:, 0] -= theta
        jacobian = np.hstack([jacobian, jacobian]) / relevant[0]
        return theta, jacobian @ self.curves_.covariance @ jacobian.T

    def _conventions(self) -> tuple[Fact, Fact]:
        """What sets the scale of relevance, and what the scale of examination."""
        scale = SCALE_CONVENTION if self.anchor is None else SCALE_GIVEN
        theta = EVEN_EPS_PLUS if self.examination is None else EXAMINATION_GIVEN
        return scale(**asdict(self.curves_.anchor)), theta

    def _check_depth(self, log: ClickLog, depth: int) -> None:
        self._page = log.layout if isinstance(log.layout, Packed) else Packed(())
        if self.anchor is None:
            return
        if not isinstance(self.anchor, TrustAnchor):
            raise OptionError(
                "anchor must be a TrustAnchor(relevant, irrelevant, position) or None. "
                f"Got {self.anchor!r} instead."
            )
        self._placed(self.anchor).check(depth)

    def _placed(self, anchor: TrustAnchor) -> TrustAnchor:
        """The anchor where the cells have its position."""
        return replace(anchor, position=int(self._page.place(np.array(anchor.position))))

    def _reshaped(self, bias: PositionBias) -> PositionBias:
        if self._page.absent:
            self.curves_ = self.curves_.on_page(self._page, bias.depth)
        return bias


def _convention(affine: AffineFit) -> TrustAnchor:
    """Position 1's click probabilities of the 1% and 99% documents by relevance."""
    low, high = np.quantile(affine.gamma, [LEAST_RELEVANT, MOST_RELEVANT])
    at_first = affine.alpha[0] * np.array([low, high]) + affine.beta[0]
    irrelevant, relevant = np.clip(at_first, 0, 1)
    return TrustAnchor(relevant=float(relevant), irrelevant=float(irrelevant))


def _with_dead_positions(
    errors: Uncertainty, cells: PositionCounts, relevance: FloatArray
) -> Uncertainty:
    """Positions without a click: what would have brought 3 clicks there is beyond their interval.

    z+ is the click rate of relevant impressions and z- that of the others, so the errors are
    one click per so many.
    """
    dead = np.flatnonzero(cells.by_position(cells.clicks) == 0)
    if len(dead) == 0:
        return errors
    gamma = np.clip(relevance, 0, 1)[cells.document_index]
    shown = cells.by_position(cells.impressions)[dead]
    relevant = np.maximum(cells.by_position(cells.impressions * gamma)[dead], 1e-9)
    covariance = np.array(errors.covariance)
    scale = CLICKS_THAT_WOULD_SHOW / normal_quantile(0.95)
    for at, n in ((dead, relevant), (cells.depth + dead, shown)):
        covariance[at], covariance[:, at] = 0.0, 0.0
        covariance[at, at] = (scale / n) ** 2
    rule = joined(errors.rule, NO_CLICKS(positions=tuple((dead + 1).tolist())))
    return replace(errors, covariance=covariance, rule=rule)


def _least(degrees_of_freedom: FloatArray | None) -> float:
    return math.inf if degrees_of_freedom is None else float(np.min(degrees_of_freedom))


def _require_slope(affine: AffineFit, anchor: TrustAnchor) -> None:
    """Raise where clicks at the anchor's position do not depend on relevance: no scale."""
    if affine.alpha[anchor.position - 1] > FLOOR and anchor.relevant > anchor.irrelevant:
        return
    best = int(np.argmax(affine.alpha)) + 1
    raise IdentifiabilityError(
        f"clicks at position {anchor.position} do not depend on relevance in this log, so it "
        f"cannot set the scale of relevance. Give an anchor at another position, such as {best}: "
        f"TrustEM(anchor=TrustAnchor(relevant=..., irrelevant=..., position={best}))."
    )


def _rescaled(affine: AffineFit, anchor: TrustAnchor) -> FloatArray:
    """gamma on the anchor's scale."""
    r = anchor.position - 1
    at_anchor = affine.alpha[r] * affine.gamma + affine.beta[r]
    return (at_anchor - anchor.irrelevant) / (anchor.relevant - anchor.irrelevant)
