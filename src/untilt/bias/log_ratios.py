"""Curves as log-ratios to position 1, the only scale that clicks can speak about.

z_k = log(theta_k / theta_1) with its covariance V: where estimators end, and where shapes and tests
begin.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray
from untilt._core.statistics import normal_quantile
from untilt.bias.curve import PositionBias
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.messages.about_general import positions_text

# With fewer queries their spread says little: of 10 queries it is a third too small once in eleven
# times (chi-square with 9 degrees of freedom), of 20 once in fifty.
FEWEST_QUERIES = 20


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """(m, m) covariance of an estimate, and the rule that it was computed by.

    NaN where it is not known; the rule says why.

    effective_queries : the smallest over the m, as in `PositionBias`
    degrees_of_freedom : (m,) of Student's t; infinite where the error does not rest on the spread
        of queries. None is infinite everywhere
    """

    covariance: FloatArray
    rule: Fact
    effective_queries: float | None = None
    degrees_of_freedom: FloatArray | None = None


def larger_error(by_query: FloatArray, n_queries: int, by_session: FloatArray) -> Uncertainty:
    """At each position the larger of two errors, with the correlations of the second.

    Clustered by query: right whatever makes queries differ, if there are many. Under the model each
    query's part has mean 0, so the sum of squares estimates the variance; n / (n - 1) as usual.

    From sessions: right if the position-based model is, however few the queries are. Clustered
    errors alone covered the truth in 84% instead of 95% of logs with 25 queries (AdjacentChain,
    protocol `harvest`), because only a handful of them has documents at any two positions.
    """
    if n_queries < 2:
        return Uncertainty(by_session, Fact("bias.errors-one-query"))
    clustered = np.sqrt(np.diag(by_query) * n_queries / (n_queries - 1))
    sessions = np.sqrt(np.diag(by_session))
    factor = np.divide(clustered, sessions, out=np.ones_like(sessions), where=sessions > 0)
    factor = np.maximum(factor, 1)
    covariance = by_session * np.outer(factor, factor)
    few = n_queries < FEWEST_QUERIES
    return Uncertainty(
        covariance + np.diag(np.where(sessions > 0, 0, clustered**2)),
        Fact(f"bias.errors-{'few-queries' if few else 'by-query'}", n_queries=n_queries),
    )


def log_ratios(bias: PositionBias) -> tuple[FloatArray, FloatArray]:
    """(K,) z_k = log(theta_k / theta_1) and its (K, K) covariance by the delta method.

    Zeros for a curve that was given, NaN for an estimate whose errors are not known. Without a
    covariance the errors of positions count as independent.
    """
    if bias.bounds is not None:
        bounded = positions_text((np.flatnonzero(bias.bounds.bounded) + 1).tolist())
        raise OptionError(
            f"{bounded} are bounded, not measured, so that this curve has no shape that could be "
            "fitted or compared. Estimate the joined positions alone (depth=...)."
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
    covariance: FloatArray,
    *,
    level: float,
    method: str,
    assumes: tuple[Fact, ...],
    status: Fact,
    effective_queries: float | None = None,
    degrees_of_freedom: FloatArray | None = None,
) -> PositionBias:
    """theta_k = exp(z_k), relative to position 1, with intervals exp(z_k -+ q se(z_k)).

    Intervals are made on the log scale: a ratio is skewed and cannot be negative. q is Student's
    quantile with these degrees of freedom, (K,); without any, the normal one. An error that rests
    on the spread of G effective queries has G - 1.
    Where the covariance is not known (NaN) the estimate has no interval.
    """
    theta = np.exp(z)
    about: dict[str, Any] = {
        "method": method, "assumes": assumes, "status": status, "level": level, "estimated": True
    }  # fmt: skip
    if np.isnan(covariance).all():
        return PositionBias(theta, **about)
    error = np.sqrt(np.maximum(np.diag(covariance), 0))
    half = _quantiles(level, degrees_of_freedom) * error
    return PositionBias(
        theta,
        std_error=theta * error,
        covariance=covariance * np.outer(theta, theta),
        low=np.exp(z - half),
        high=np.exp(z + half),
        effective_queries=effective_queries,
        **about,
    )


def _quantiles(level: float, degrees_of_freedom: FloatArray | None) -> FloatArray | float:
    """Student's where degrees of freedom are finite, else normal."""
    if degrees_of_freedom is None:
        return normal_quantile(level)
    free = np.where(np.isfinite(degrees_of_freedom), degrees_of_freedom, 1.0)
    student = special.stdtrit(np.maximum(free, 1.0), 0.5 + level / 2)
    return np.where(np.isfinite(degrees_of_freedom), student, normal_quantile(level))


def whitening(V: FloatArray) -> FloatArray:
    """R with R' R = V^-1; the identity for a known curve.

    Directions without variance (positions held equal, say) get a tiny one: they then stay as they
    are, as nearly as numbers allow.
    """
    variance, direction = np.linalg.eigh(V)
    if variance.max() <= 0:
        return np.eye(len(V))
    return (direction / np.sqrt(np.maximum(variance, 1e-10 * variance.max()))).T
