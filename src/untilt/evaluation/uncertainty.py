"""How far an estimate can be trusted: spread over queries, errors of the bias, weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray, check_same_shape, sum_by
from untilt._core.portable import Portable
from untilt._core.random import Seed, child_generator
from untilt._core.statistics import (
    Interval,
    MeanEstimate,
    effective_units,
    jackknife_error,
    joint_degrees_of_freedom,
    normal_quantile,
    student_quantile,
    two_way_variance,
)
from untilt.bias.curve import PositionBias
from untilt.data.layout import places_of
from untilt.evaluation.pool import Credit, Pool, pool_of
from untilt.facts import Fact, note

if TYPE_CHECKING:
    from untilt.evaluation.results import Estimates

CURVE_CHECK = note(
    "estimate.curve-check",
    "position {position} has {ratio:.2f} times the clicks that the curve expects (z {z:+.1f}, p "
    "{p_value:.2g}; {n_documents:,} documents shown at several positions)",
)
CURVE_CHECK_IMPOSSIBLE = note(
    "estimate.curve-check-impossible",
    "these sessions cannot check the curve: too few clicks are on documents that were shown at "
    "several positions ({n_documents:,})",
)

DRAWS_AT_ONCE = 32  # of the bootstrap, held at the same time
MISFIT_P = 1e-3  # p-value below which a curve is said not to fit
LEAST_CLICKS = 20.0  # observed or expected at a position that is checked


class SumsOfPeople(NamedTuple):
    """Squared influences on the values, (systems, systems), by person and by person within query.

    effective : that many people with equally many sessions would tell as much
    """

    by_person: FloatArray
    by_both: FloatArray
    effective: float


@dataclass(frozen=True, eq=False)
class Sums(Portable):
    """What systems add up to, query by query: all that values, errors and differences need.

    Parameters
    ----------
    total : (queries, systems)
    norm : (queries,) what the totals are divided by: sessions, or summed weights of clicks
    slope : (systems, K) derivative of each summed total by theta_k
    norm_slope : (K,) the same of the summed norm
    covariance : (K, K) of theta, or None where the curve is taken as known
    curve_degrees : (K,) degrees of freedom behind the error of theta at each position
    people : what people who come back do to the values, None where the log does not say who is who
    """

    total: FloatArray
    norm: FloatArray
    slope: FloatArray
    norm_slope: FloatArray
    covariance: FloatArray | None
    curve_degrees: FloatArray | None = None
    people: SumsOfPeople | None = None

    @property
    def value(self) -> FloatArray:
        """(systems,) V = sum_q total_q / sum_q norm_q."""
        with np.errstate(invalid="ignore"):
            return self.total.sum(axis=0) / self.norm.sum()

    @property
    def influence(self) -> FloatArray:
        """(queries, systems) (total_q - V norm_q) / sum norm: what each query does to V."""
        with np.errstate(invalid="ignore"):
            return (self.total - self.value * self.norm[:, None]) / self.norm.sum()

    @property
    def gradient(self) -> FloatArray:
        """(systems, K) dV/dtheta_k."""
        with np.errstate(invalid="ignore"):
            return (self.slope - self.value[:, None] * self.norm_slope) / self.norm.sum()

    @property
    def leverage(self) -> FloatArray:
        """(queries,) norm_q / sum norm."""
        with np.errstate(invalid="ignore"):
            return self.norm / self.norm.sum()

    def left_out(self, baseline: int | None = None) -> FloatArray:
        """(queries, systems) what leaving a query out takes off a value, or off a difference."""
        influence = self.influence
        if baseline is not None:
            influence = influence - influence[:, [baseline]]
        return influence / np.maximum(1 - self.leverage, 1e-9)[:, None]

    def largest_query(self, baseline: int | None = None) -> FloatArray:
        """(systems,) share of one query in the variance of a value, or of its difference."""
        squares = self.left_out(baseline) ** 2
        return np.max(squares, axis=0) / np.maximum(np.sum(squares, axis=0), 1e-300)

    def without(self, query: int) -> "Sums":
        """Without one query; the errors of the curve stay as they are."""
        total, norm = (np.delete(each, query, axis=0) for each in (self.total, self.norm))
        return replace(self, total=total, norm=norm)

    def means(self, baseline: int | None = None) -> "Means":
        """Values with their errors; of all systems minus one where a baseline is given."""
        total, influence, gradient = self.total, self.influence, self.gradient
        value, zero = self.value, np.zeros((1, 1))
        if baseline is not None:
            value = value - value[baseline]
            influence = influence - influence[:, [baseline]]
            gradient = gradient - gradient[[baseline]]
            zero = total[:, [baseline]]
        count = np.array([effective_units(self.norm[rests]) for rests in (total != zero).T])
        sampling = jackknife_error(influence, self.leverage)
        if baseline is None:  # clicks on no query at all: the value 0 has no error that is known
            sampling = np.where(count > 0, sampling, np.nan)
        people = np.inf
        if self.people is not None:
            *squares, people = self.people
            both = (_variances(each, baseline) for each in squares)
            sampling = np.sqrt(two_way_variance(sampling**2, *both))
        of_bias = bias_error(gradient, self.covariance)
        degrees = self._curve_degrees(gradient)
        return Means(value, sampling, of_bias, count, len(self.norm), degrees, people)

    def _curve_degrees(self, gradient: FloatArray) -> FloatArray:
        """(systems,) behind the errors of the curve: of the positions that a value rests on."""
        if self.covariance is None or self.curve_degrees is None:
            return np.full(len(gradient), np.inf)
        part = gradient**2 * np.diag(self.covariance)
        fewer = np.sum(part / self.curve_degrees, axis=1)
        total = part.sum(axis=1)
        return np.divide(total, fewer, out=np.full(len(part), np.inf), where=fewer > 0)


@dataclass(frozen=True, eq=False)
class Means:
    r"""Values or differences of systems, with errors that hold for few queries and uneven ones.

    The error from queries is that of leaving each one out; Student's t has as many degrees of
    freedom as there are effective queries, less one, (sum n)^2 / sum n^2 over the queries in which
    the value is not 0 and the systems of a difference not equal: the others tell nothing about its
    spread. Errors of the bias join by Satterthwaite's rule, with the curve's own effective queries
    where it knows them.

    Parameters
    ----------
    value, sampling_error, bias_error, effective_queries : (systems,)
    n_queries : all of them
    curve_degrees : (systems,) degrees of freedom of `bias_error`
    effective_people : where errors are clustered by person too
    """

    value: FloatArray
    sampling_error: FloatArray
    bias_error: FloatArray
    effective_queries: FloatArray
    n_queries: int
    curve_degrees: FloatArray
    effective_people: float = np.inf

    @property
    def std_error(self) -> FloatArray:
        """(systems,) of both sources."""
        return np.hypot(self.sampling_error, self.bias_error)

    @property
    def degrees_of_freedom(self) -> FloatArray:
        """(systems,) of Student's t."""
        fewest = np.minimum(self.effective_queries, self.effective_people)
        errors = np.stack([self.sampling_error, self.bias_error], axis=1)
        degrees = np.stack([np.maximum(fewest - 1, 1.0), self.curve_degrees], axis=1)
        return np.array(
            [joint_degrees_of_freedom(*each) for each in zip(errors, degrees, strict=True)]
        )

    def of(self, systems: Sequence[int]) -> "Means":
        """Those of some systems."""
        arrays = ((n, each) for n, each in vars(self).items() if isinstance(each, np.ndarray))
        columns: dict[str, Any] = {name: each[systems] for name, each in arrays}
        return replace(self, **columns)

    def without_errors(self) -> "Means":
        """The values alone, where nothing is known of their errors; what is 0 for sure stays so."""
        unknown = np.where((self.value == 0) & (self.std_error == 0), 0.0, np.nan)
        return replace(self, sampling_error=unknown, bias_error=unknown)

    def __iter__(self) -> Iterator[MeanEstimate]:
        columns = zip(self.value, self.std_error, self.degrees_of_freedom, strict=True)
        for value, error, degrees in columns:
            yield MeanEstimate(float(value), float(error), self.n_queries, float(degrees) + 1)


def _variances(S: FloatArray, baseline: int | None) -> FloatArray:
    """(systems,) of values, or of their differences to a baseline, from the covariance S."""
    own = np.diag(S)
    return own if baseline is None else np.maximum(own + own[baseline] - 2 * S[:, baseline], 0)


def bias_error(gradient: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """sqrt(g' S g) of each row: the error of the value that comes from theta (delta method)."""
    if covariance is None:
        return np.zeros(len(gradient))
    return np.sqrt(np.maximum(np.einsum("sk,kl,sl->s", gradient, covariance, gradient), 0))


def covariance_of(bias: PositionBias, depth: int) -> FloatArray | None:
    """(depth, depth) covariance of theta; 0 below the curve's end, None where it has no errors."""
    if bias.std_error is None:
        return None
    known = np.diag(bias.std_error**2) if bias.covariance is None else bias.covariance
    inside = min(depth, bias.depth)
    covariance = np.zeros((depth, depth))
    covariance[:inside, :inside] = known[:inside, :inside]
    return covariance


def curve_degrees(bias: PositionBias, depth: int) -> FloatArray:
    """(depth,) degrees of freedom of the curve: effective queries less one, at least 1."""
    fewest = np.inf if bias.effective_queries is None else bias.effective_queries
    at = np.full(bias.depth, fewest) if bias.effective_at is None else bias.effective_at
    at = np.pad(at[:depth], (0, max(depth - bias.depth, 0)), constant_values=np.inf)
    return np.maximum(at - 1, 1.0)


def holding(intervals: Sequence[Interval], values: FloatArray) -> list[Interval]:
    """Intervals of an estimate without a lean (a clip, a relevance model), widened to hold values.

    Nothing bounds such a lean but the estimate without it: so its interval is taken.
    """
    return [
        replace(each, low=min(each.low, float(value)), high=max(each.high, float(value)))
        for each, value in zip(intervals, values, strict=True)
    ]


def bootstrap_intervals(sums: Sums, level: float, n_draws: int, seed: Seed) -> list[Interval]:
    """Percentiles over samples of queries drawn with replacement, theta drawn along with them.

    Samples of few queries, or of uneven ones, spread too little ([mackinnon2023]_): the ends are
    moved away from the value by (t s) / (z d), with t and s those of `Means`, z the normal quantile
    and d the standard deviation of the samples, where that is above 1.
    """
    n = len(sums.norm)
    rng = child_generator(seed, 5)
    drawn = np.empty((n_draws, sums.total.shape[1]))
    for begin in range(0, n_draws, DRAWS_AT_ONCE):
        size = min(DRAWS_AT_ONCE, n_draws - begin)
        times = rng.multinomial(n, np.full(n, 1 / n), size=size).astype(float)
        norm = times @ sums.norm
        # One system at a time: a product of matrices may round equal columns differently.
        with np.errstate(invalid="ignore", divide="ignore"):
            for i, total in enumerate(np.ascontiguousarray(sums.total.T)):
                drawn[begin : begin + size, i] = (times @ total) / norm
    if sums.covariance is not None:
        zero = np.zeros(len(sums.covariance))
        theta = rng.multivariate_normal(zero, sums.covariance, size=n_draws, method="eigh")
        for i, gradient in enumerate(sums.gradient):
            drawn[:, i] += theta @ gradient
    ends = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0).T
    spread, z = np.nanstd(drawn, axis=0), normal_quantile(level)
    intervals = []
    for mean, (low, high), by_draws in zip(sums.means(), ends, spread, strict=True):
        if not np.isfinite(mean.std_error):
            intervals.append(mean.interval(level))
            continue
        half = student_quantile(level, mean.degrees_of_freedom) * mean.std_error
        wider = max(1.0, half / (z * by_draws)) if by_draws > 0 else 1.0
        below, above = wider * (low - mean.value), wider * (high - mean.value)
        intervals.append(Interval(mean.value + below, mean.value + above, level))
    return intervals


@dataclass(frozen=True)
class ClickWeights(Portable):
    """How even the weights of the clicks are, and how many clicks say nothing.

    effective_n = (sum w)^2 / sum w^2 over clicks: as many clicks of equal weight would do.
    clipped_share and unsupported_share are shares of all clicks: propensity under the clip; at a
    position that the bias does not know. `clicked_queries` have a click; `clicks_at` and
    `credit_at` (K,) are clicks and their summed weights by position.
    """

    n_clicks: float
    effective_n: float
    largest: float
    clipped_share: float
    unsupported_share: float
    clicked_queries: int
    clicks_at: FloatArray
    credit_at: FloatArray


def click_weights(pool: Pool, credit: Credit, at: FloatArray) -> ClickWeights:
    """Of one evaluator on one log; the same for all systems, but where clicks count only in place.

    `at` (cells,) is the discount of a system.
    """
    y, w = pool.clicks, credit.weight * (1.0 if pool.propensity is None else at)
    clicks = float(y.sum())
    used = (y > 0) & (w > 0)
    square = float(np.sum(y[used] * w[used] ** 2))
    share = max(clicks, 1e-300)
    return ClickWeights(
        n_clicks=clicks,
        effective_n=float(np.sum(y[used] * w[used])) ** 2 / square if square > 0 else 0.0,
        largest=float(w[used].max(initial=0.0)),
        clipped_share=float(y[credit.clipped & credit.supported].sum()) / share,
        unsupported_share=float(y[~credit.supported].sum()) / share,
        clicked_queries=int(np.count_nonzero(pool.by_query(pool.by_document(y)))),
        clicks_at=pool.by_position(y),
        credit_at=pool.by_position(y * w),
    )


@dataclass(frozen=True, eq=False)
class CurveCheck(Portable):
    r"""Clicks at each position against what the curve expects of the *same* documents elsewhere.

    For documents shown at several positions, g_d = sum_k (y_dk - n_dk beta_k) / sum_k n_dk alpha_k
    uses all of them; position k should then have had sum_d n_dk (alpha_k g_d + beta_k) clicks.
    `z` is the difference over its standard error, clustered by query and with the curve's own error
    in it; `p_value` of the largest, corrected for the number of positions (Bonferroni).
    Clicks that do not follow the position-based model at all (a cascade, say) fail it too.

    Parameters
    ----------
    position : (positions,) with at least 20 clicks or expected clicks on such documents
    observed, expected, z : (positions,)
    n_documents : documents that were shown at several positions
    """

    position: IntArray
    observed: FloatArray
    expected: FloatArray
    z: FloatArray
    n_documents: int

    def __post_init__(self) -> None:
        check_same_shape(self, "position", "observed", "expected", "z")

    @property
    def possible(self) -> bool:
        """Whether the log can say anything at all."""
        return len(self.position) > 1

    @property
    def p_value(self) -> float:
        """Of the position that fits worst; 1 where nothing can be said."""
        if not self.possible:
            return 1.0
        worst = float(np.max(np.abs(self.z)))
        return float(min(1.0, len(self.z) * 2 * special.ndtr(-worst)))

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the curve."""
        return self.p_value >= MISFIT_P

    @property
    def fact(self) -> Fact:
        """The position that fits worst, with its ratio of observed to expected clicks."""
        if not self.possible:
            return CURVE_CHECK_IMPOSSIBLE(n_documents=self.n_documents)
        worst = int(np.argmax(np.abs(self.z)))
        return CURVE_CHECK(
            position=int(self.position[worst]),
            ratio=float(self.observed[worst] / max(self.expected[worst], 1e-300)),
            z=float(self.z[worst]),
            p_value=self.p_value,
            n_documents=self.n_documents,
        )

    def __str__(self) -> str:
        return str(self.fact)


def check_curve(pool: Pool, bias: PositionBias) -> CurveCheck:
    """Compare clicks with the curve on documents that were shown at several positions.

    Versions of a document are one here, as they are to estimators that compare its positions.
    """
    if pool.log.item is not None:
        pool = pool_of(pool.log.without_versions())
    counts, alpha, beta = pool.under(bias)
    owner, k = pool.document_index, pool.position_index
    several = pool.by_document((counts.impressions > 0).astype(float)) > 1
    n = np.where(several[owner], counts.impressions, 0.0)
    observed = np.where(n > 0, counts.clicks, 0.0)
    gained, exposure = replace(counts, impressions=n, clicks=observed).corrected_sums(alpha, beta)
    exposure = np.where(exposure > 0, exposure, 1.0)
    g = gained / exposure
    expected = n * (alpha[k] * g[owner] + beta[k])
    gap = sum_by(
        pool.query_index[owner] * pool.depth + k, observed - expected, pool.n_queries * pool.depth
    ).reshape(pool.n_queries, pool.depth)
    of_curve = _variance_from_curve(pool, bias, n * alpha[k], n * beta[k], g, exposure)
    error = np.sqrt(np.sum(gap**2, axis=0) + of_curve)
    clicks, hoped = pool.by_position(observed), pool.by_position(expected)
    kept = (np.maximum(clicks, hoped) >= LEAST_CLICKS) & (error > 0)
    return CurveCheck(
        position=places_of(pool.log.layout, pool.depth)[kept],
        observed=clicks[kept],
        expected=hoped[kept],
        z=gap.sum(axis=0)[kept] / error[kept],
        n_documents=int(several.sum()),
    )


def _variance_from_curve(
    pool: Pool, bias: PositionBias, a: FloatArray, b: FloatArray, g: FloatArray, total: FloatArray
) -> FloatArray:
    r"""(K,) variance that theta's own errors give to the expected clicks E_k.

    With a_dk = n_dk alpha_k, b_dk = n_dk beta_k, A_d = sum_k a_dk and both proportional to theta_k,
    dE_k / dlog theta_j = [j = k] sum_d (a_dk g_d + b_dk) - sum_d a_dk (a_dj g_d + b_dj) / A_d.
    """
    covariance = covariance_of(bias, pool.depth)
    if covariance is None:
        return np.zeros(pool.depth)
    from scipy import sparse

    owner, k, shape = pool.document_index, pool.position_index, (len(g), pool.depth)
    rows = a * g[owner] + b
    left = sparse.csr_matrix((a / total[owner], k, pool.indptr), shape)
    right = sparse.csr_matrix((rows, k, pool.indptr), shape)
    slope = np.diag(pool.by_position(rows)) - (left.T @ right).toarray()
    theta = np.ones(pool.depth)
    inside = min(pool.depth, bias.depth)
    theta[:inside] = bias.examination[:inside]
    return np.einsum("kj,jl,kl->k", slope, covariance / np.outer(theta, theta), slope)


@dataclass(frozen=True)
class WithoutQuery(Portable):
    """A difference without the query that speaks most for it, which has `share` of the sessions."""

    query: str
    share: float
    value: float
    interval: Interval
    effective_queries: float


def without_best_query(
    estimates: "Estimates", system: str, baseline: str, *, sign: float
) -> WithoutQuery | None:
    """Leave out the query with the largest part in a difference of this sign; None from one query.

    It is the most favourable one, not the one with the most variance: so a query that speaks more
    for the difference never takes a verdict away.
    """
    sums, inputs = estimates.unbiased or estimates.sums, estimates.inputs
    if len(sums.norm) < 2 or inputs is None:
        return None
    one, zero = estimates.systems.index(system), estimates.systems.index(baseline)
    query = int(np.argmax(sign * sums.left_out(zero)[:, one]))
    means = sums.without(query).means(zero).of([one])
    (mean,) = means
    log, interval = inputs.cells.log, mean.interval(estimates.level)
    if estimates.is_bounded:
        interval = interval.hull(estimates.compare(baseline)[system].interval)
    return WithoutQuery(
        query=str(log.query_id[np.unique(log.query)[query]]),
        share=float(sums.leverage[query]),
        value=mean.value,
        interval=interval,
        effective_queries=float(means.effective_queries[0]),
    )


MOST_OF_THE_CREDIT = 0.8  # positions that hold this share of it are looked at


@dataclass(frozen=True, eq=False)
class Support(Portable):
    """The evidence behind one system minus another on one log.

    Parameters
    ----------
    n_clicks, effective_n : clicks, and as many of equal weight would tell as much
    clicked_queries : queries with at least one click
    clipped_share, unsupported_share : of the clicks; see `ClickWeights`
    largest_query : share of one query in the variance of the difference
    rest : the difference without the query that speaks most for it, by each evaluator
    clicks_at, credit_at : (K,) clicks by position, and what they count in all; no credit where the
        curve does not reach
    effective_queries : as many queries of equal traffic would tell as much about the difference
    """

    n_clicks: float
    effective_n: float
    clicked_queries: int
    clipped_share: float
    unsupported_share: float
    largest_query: float
    clicks_at: FloatArray
    credit_at: FloatArray
    effective_queries: float | None = None
    rest: tuple[WithoutQuery, ...] = ()

    def __post_init__(self) -> None:
        check_same_shape(self, "clicks_at", "credit_at")

    @property
    def known_credit(self) -> float:
        """Share of the credit at positions that the curve knows.

        A click elsewhere is taken to count as much as one at the lowest position that is known; in
        truth it counts more, because examination falls.
        """
        used = np.flatnonzero(self.credit_at > 0)
        unknown = self.unsupported_share * self.n_clicks
        if unknown <= 0:
            return 1.0
        if len(used) == 0:
            return 0.0
        lowest = self.credit_at[used[-1]] / self.clicks_at[used[-1]]
        known = float(self.credit_at.sum())
        return known / (known + unknown * float(lowest))

    def curve_factor(self, bias: PositionBias) -> tuple[int, float]:
        """(position, factor): the curve is known to this factor where the credit is.

        The positions that are known best and hold 80% of the credit together are known to within
        sqrt(high / low) of this one, or better. A factor of 1 for a curve that was given. Bounds
        of a level do not count: they are carried through as they are, without any derivative.
        """
        factor = bias.uncertainty
        if bias.bounds is not None and bias.std_error is not None:
            within = np.exp(normal_quantile(bias.level) * bias.std_error / bias.examination)
            factor = np.where(bias.bounds.bounded, within, factor)
        factor = factor[: len(self.credit_at)]
        credit = self.credit_at[: len(factor)]
        if bias.is_known or credit.sum() <= 0:
            return 1, 1.0
        order = np.lexsort((np.arange(len(factor)), factor))
        reached = np.cumsum(credit[order]) / credit.sum()
        k = int(order[np.searchsorted(reached, MOST_OF_THE_CREDIT - 1e-9)])
        return k + 1, float(factor[k])


def support_of(estimates: "Estimates", system: str, baseline: str) -> Support:
    """The evidence behind `system` minus `baseline`."""
    weights, sums = estimates.weights, estimates.unbiased or estimates.sums
    one, zero = estimates.systems.index(system), estimates.systems.index(baseline)
    sign = float(np.sign(estimates.sums.value[one] - estimates.sums.value[zero]))
    judges = (estimates, *(() if estimates.also is None else (estimates.also,)))
    rest = [without_best_query(each, system, baseline, sign=sign) for each in judges]
    return Support(
        n_clicks=weights.n_clicks,
        effective_n=weights.effective_n,
        clicked_queries=weights.clicked_queries,
        clipped_share=weights.clipped_share,
        unsupported_share=weights.unsupported_share,
        largest_query=float(sums.largest_query(zero)[one]),
        clicks_at=weights.clicks_at,
        credit_at=weights.credit_at,
        effective_queries=float(sums.means(zero).effective_queries[one]),
        rest=tuple(each for each in rest if each is not None),
    )
