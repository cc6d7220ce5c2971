"""Curves as log-ratios to position 1, the only scale that clicks can speak about.

z_k = log(theta_k / theta_1) with its covariance V: where estimators end, and where shapes and tests
begin.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.statistics import (
    any_time_factor,
    effective_units,
    left_out,
    normal_quantile,
    two_way_variance,
)
from untilt.bias.curve import GIVEN, PositionBias
from untilt.data.clicklog import ClickLog
from untilt.data.counts import clusters_of
from untilt.errors import OptionError
from untilt.facts import Fact, joined, note, phrase, positions_text, serious, warning

ERRORS = note(
    "bias.errors-by-query",
    "standard errors: the larger of clustered by query ({n_queries:,} queries, effectively "
    "{effective:,.1f}{where}) and session noise",
)

ERRORS_FEW = warning(
    "bias.errors-few-queries",
    "standard errors: the larger of clustered by query ({n_queries:,} queries, effectively "
    "{effective:,.1f}{where}: few) and session noise",
)

FEWEST_AT = " at position {position}, where they are fewest"

ANY_TIME = note(
    "bias.any-time",
    "intervals hold at every look during the experiment",
)()

NO_MAXIMUM = serious(
    "bias.no-maximum",
    "NOT CONVERGED after {steps} steps, largest gradient {residual:.0e} of all clicks",
)

MAXIMUM = note(
    "bias.maximum", "converged in {steps} steps, largest gradient {residual:.0e} of all clicks"
)

# With fewer queries their spread says little: of 10 queries it is a third too small once in eleven
# times (chi-square with 9 degrees of freedom), of 20 once in fifty.
FEWEST_QUERIES = 20
# Share of the clicks of a position from which on a query is left out by a separate fit; below,
# its leverage changes no error by more than 1%.
LARGE_SHARE = 0.01
# Of a query that is left out so much stays: all of it may be all that a position has.
STAYS = 0.05
# Of so many clicks the logarithm is normal for every purpose: ends differ by 1/200 of the error.
MANY_CLICKS = 10_000


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """(m, m) covariance of an estimate, and the rule that it was computed by.

    effective_queries : the smallest over the m, as in `PositionBias`; effective_at : (m,) all
    degrees_of_freedom : (m,) of Student's t; infinite where the error does not rest on the spread
        of queries. None is infinite everywhere
    click_parts : (K, m) parts of the variance from session noise, by the position of the clicks
        that they come from: below 0 where more clicks there make the estimate smaller. None where
        errors are taken as normal
    """

    covariance: FloatArray
    rule: Fact
    effective_queries: float | None = None
    degrees_of_freedom: FloatArray | None = None
    click_parts: FloatArray | None = None
    effective_at: FloatArray | None = None


def larger_error(
    by_query: FloatArray,
    n_queries: int,
    by_session: FloatArray,
    effective: FloatArray,
    click_parts: FloatArray | None = None,
) -> Uncertainty:
    """At each position the larger of two errors, with the correlations of the second.

    Clustered by query: right whatever makes queries differ, if there are many. The jackknife's:
    squares of what leaving each query out changes, which a query with much of the traffic cannot
    hide from, times (n - 1) / n. Student's t has the effective queries less 1 as its degrees of
    freedom where this error is the larger one.

    From sessions: right if the position-based model is, however few the queries are. Clustered
    errors alone covered the truth in 84% instead of 95% of logs with 25 queries (AdjacentChain,
    protocol `harvest`), because only a handful of them has documents at any two positions.

    Parameters
    ----------
    effective : (m,) effective queries of each estimate, by their parts of the session noise (the
        working variances of [bell2002]_)
    click_parts : as in `Uncertainty`, where the estimates are of positions 1..m; the rule then
        names one
    """
    if n_queries < 2:
        alone = warning("bias.errors-one-query", "errors from session noise: one query alone")()
        return Uncertainty(by_session, alone, click_parts=click_parts)
    clustered = np.sqrt(np.diag(by_query) * ((n_queries - 1) / n_queries))
    sessions = np.sqrt(np.diag(by_session))
    factor = np.divide(clustered, sessions, out=np.ones_like(sessions), where=sessions > 0)
    larger = clustered > sessions
    factor = np.where(larger, factor, 1)
    covariance = by_session * np.outer(factor, factor)
    covariance += np.diag(np.where(sessions > 0, 0, clustered**2))
    varies = larger | (sessions > 0)
    at = np.where(varies, effective, float(n_queries))
    told, named = float(at.min()), click_parts is not None and varies.any()
    where = phrase(FEWEST_AT if named else "", position=int(np.argmin(at)) + 1)
    rule = ERRORS_FEW if told < FEWEST_QUERIES else ERRORS
    return Uncertainty(
        covariance,
        rule(n_queries=n_queries, effective=told, where=where),
        effective_queries=told,
        degrees_of_freedom=np.where(larger, np.maximum(effective - 1, 1), np.inf),
        click_parts=click_parts,
        effective_at=at,
    )


def clustered_by_people(
    by_query: FloatArray,
    effective: FloatArray,
    log: ClickLog,
    influences: Iterable[tuple[IntArray, FloatArray, FloatArray]],
) -> tuple[FloatArray, FloatArray]:
    """Errors and effective units by query, made those by query and person where the log has people.

    by_query : (m, m) squares of what leaving each query out changes, their diagonal counts
    influences : for each of the m, the lists of its parts, what each part adds to the estimate,
        and its leverage, as in `left_out`
    """
    if log.person is None:
        return by_query, effective
    units = clusters_of(log)[1:]
    squares = [
        [np.sum(left_out(unit[at], *lost) ** 2) for unit in units] for at, *lost in influences
    ]
    both = np.diag(two_way_variance(np.diag(by_query), *np.transpose(squares)))
    return both, np.minimum(effective, effective_units(sum_by(log.person, log.sessions)))


def effective_by_column(noise: FloatArray) -> FloatArray:
    """(m,) effective queries of each column of (queries, m) variances; 0 where nothing varies."""
    squares = np.sum(noise**2, axis=0)
    return np.divide(noise.sum(axis=0) ** 2, squares, out=np.zeros_like(squares), where=squares > 0)


def log_ratios(bias: PositionBias) -> tuple[FloatArray, FloatArray]:
    """(K,) z_k = log(theta_k / theta_1) and its (K, K) covariance by the delta method.

    Zeros for a curve that was given, NaN for an estimate whose errors are not known. Without a
    covariance the errors of positions count as independent.
    """
    if bias.bounds is not None:
        bounded = positions_text((np.flatnonzero(bias.bounds.bounded) + 1).tolist())
        raise OptionError(
            f"{bounded} are bounded, not measured, so that this curve has no shape "
            "that could be fitted or compared. Estimate the joined positions alone "
            "(⟦depth=...⟧)."
        )
    theta = bias.examination
    covariance = bias.covariance
    if covariance is None:
        none = np.full_like(theta, np.nan if bias.estimated else 0.0)
        spread = none if bias.std_error is None else bias.std_error
        covariance = np.diag(spread**2)
    S = covariance / np.outer(theta, theta)
    # cov(log a_k - log a_1, log a_l - log a_1), term by term: an unknown error stays where it is.
    return np.log(theta / theta[0]), S - S[:, :1] - S[:1, :] + S[0, 0]


def from_log_ratios(
    z: FloatArray,
    errors: FloatArray | Uncertainty,
    *,
    level: float,
    method: str,
    assumes: tuple[Fact, ...],
    status: Fact,
    effective_queries: float | None = None,
    degrees_of_freedom: FloatArray | None = None,
    any_time: bool = False,
) -> PositionBias:
    """theta_k = exp(z_k), relative to position 1, with intervals exp(z_k -+ q se(z_k)).

    Intervals are made on the log scale: a ratio is skewed and cannot be negative. q is Student's
    quantile with these degrees of freedom, (K,); without any, the normal one. An error that rests
    on the spread of G effective queries has G - 1. Where the clicks behind the errors are known,
    ends are those of counts; see `_ends`.

    errors : (K, K) covariance of z, or an `Uncertainty`, which has the rest with it. Where all of
        it is NaN the errors are not known, and the estimate has no interval
    any_time : intervals that hold at every look while sessions come in; see `any_time_factor`
    """
    if not isinstance(errors, Uncertainty):
        errors = Uncertainty(errors, GIVEN, effective_queries, degrees_of_freedom)
    theta = np.exp(z)
    if np.isnan(errors.covariance).all():
        return PositionBias(
            theta, method=method, assumes=assumes, status=status, level=level, estimated=True
        )
    error = np.sqrt(np.maximum(np.diag(errors.covariance), 0))
    wider = any_time_factor(error, level) if any_time else 1.0
    low, high = _ends(z, error, errors, level, wider)
    return PositionBias(
        theta,
        std_error=theta * error,
        covariance=errors.covariance * np.outer(theta, theta),
        method=method,
        assumes=assumes,
        status=joined(status, ANY_TIME) if any_time else status,
        level=level,
        low=low,
        high=high,
        effective_queries=errors.effective_queries,
        effective_at=errors.effective_at,
    )


def _ends(
    z: FloatArray,
    error: FloatArray,
    errors: Uncertainty,
    level: float,
    wider: FloatArray | float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    r"""(K,) ends of the intervals of theta, `wider` than for one look.

    Clicks are counts, and a logarithm of few of them is far from normal. A part v of the variance
    stands for n = 1 / v clicks, whose interval [a, b] gives the distances log n - log a and
    log b - log n; the distances of independent parts add up like errors ([zou2008]_). All are then
    stretched as the error and its quantile exceed those of session noise. From about 30 clicks on
    this is exp(z -+ q se), as nearly as matters.

    Intervals of counts are Jeffreys' ([brown2003poisson]_), gamma quantiles of n + 1/2. The exact
    ones ([garwood1936]_) never miss too often and so miss too seldom: two in a ratio covered 99%.
    """
    half = wider * _quantiles(level, errors.degrees_of_freedom) * error
    if errors.click_parts is None:
        with np.errstate(over="ignore"):  # of a position that hardly anything joins: no upper end
            return np.exp(z - half), np.exp(z + half)
    parts = errors.click_parts
    below, above = _count_distances(np.abs(parts), level)
    down = np.sqrt(np.sum(np.where(parts > 0, below, above) ** 2, axis=0))
    up = np.sqrt(np.sum(np.where(parts > 0, above, below) ** 2, axis=0))
    by_session = normal_quantile(level) * np.sqrt(np.abs(parts).sum(axis=0))
    stretch = np.divide(half, by_session, out=np.ones_like(half), where=by_session > 0)
    known = by_session > 0
    return (
        np.exp(z - np.where(known, stretch * down, half)),
        np.exp(z + np.where(known, stretch * up, half)),
    )


def _count_distances(variance: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """From log n down and up to the ends of Jeffreys' interval of a count of n = 1 / variance."""
    few = variance > 1 / MANY_CLICKS
    n = 1 / np.where(few, variance, 1.0)
    tail = (1 - level) / 2
    normal = normal_quantile(level) * np.sqrt(variance)
    below = np.log(n / special.gammaincinv(n + 0.5, tail))
    above = np.log(special.gammaincinv(n + 0.5, 1 - tail) / n)
    return np.where(few, below, normal), np.where(few, above, normal)


def _quantiles(level: float, degrees_of_freedom: FloatArray | None) -> FloatArray | float:
    """Student's where degrees of freedom are finite, else normal."""
    if degrees_of_freedom is None:
        return normal_quantile(level)
    free = np.where(np.isfinite(degrees_of_freedom), degrees_of_freedom, 1.0)
    student = special.stdtrit(np.maximum(free, 1.0), 0.5 + level / 2)
    return np.where(np.isfinite(degrees_of_freedom), student, normal_quantile(level))


def degrees_of_freedom(bias: PositionBias) -> FloatArray:
    """(K,) behind the errors of a curve, read back from the width of its intervals.

    Infinite where an interval is no wider than a normal one, and for a curve that rests on no
    queries.
    """
    free = np.full(bias.depth, np.inf)
    if bias.effective_queries is None or bias.std_error is None or bias.low is None:
        return free
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.log(np.asarray(bias.high) / bias.low) / 2
        quantile = half * bias.examination / bias.std_error
    student = np.isfinite(quantile) & (quantile > 1.001 * normal_quantile(bias.level))
    tail = 0.5 + bias.level / 2
    free[student] = np.maximum(special.stdtridf(tail, quantile[student]), 1.0)
    return free


def on_queries(bias: PositionBias) -> dict[str, Any]:
    """What a shape of a curve inherits, for `from_log_ratios`; degrees as in Wald's test."""
    inverse = float(np.mean(1 / degrees_of_freedom(bias)[1:]))
    return {
        "effective_queries": bias.effective_queries,
        "degrees_of_freedom": np.array([1 / inverse if inverse > 0 else np.inf]),
    }


def wald_p_value(chi_square: float, rank: int, degrees_of_freedom: FloatArray) -> float:
    """Of Wald's statistic on `rank` estimates whose errors have these degrees of freedom.

    chi_square / rank is taken as F with rank and 1 / mean(1 / degrees) degrees of freedom: chi-
    square where all are infinite, Student's t where there is one.
    """
    if rank == 0:
        return 1.0
    inverse = float(np.mean(1 / degrees_of_freedom))
    if inverse == 0 or not np.isfinite(chi_square):
        return float(special.chdtrc(rank, chi_square))
    return float(special.fdtrc(rank, 1 / inverse, chi_square / rank))


def whitening(V: FloatArray) -> FloatArray:
    """R with R' R = V^-1; the identity for a known curve.

    Directions without variance (positions held equal, say) get a tiny one: they then stay as they
    are, as nearly as numbers allow.
    """
    variance, direction = np.linalg.eigh(V)
    if variance.max() <= 0:
        return np.eye(len(V))
    return (direction / np.sqrt(np.maximum(variance, 1e-10 * variance.max()))).T
