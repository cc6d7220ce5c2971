"""Between a curve and its log-ratios to position 1: the only scale that clicks can speak about."""

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.statistics import normal_quantile
from untilt.bias.position_bias import PositionBias


def log_ratios(bias: PositionBias) -> tuple[FloatArray, FloatArray]:
    """(K,) z_k = log(theta_k / theta_1) and its (K, K) covariance by the delta method.

    Zeros for a known curve. Without a covariance the errors of positions count as independent.
    """
    theta = bias.examination
    covariance = bias.covariance
    if covariance is None:
        spread = np.zeros_like(theta) if bias.std_error is None else bias.std_error
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
    assumes: tuple[str, ...],
    status: str,
) -> PositionBias:
    """theta_k = exp(z_k), relative to position 1, with intervals exp(z_k -+ q se(z_k)).

    Intervals are made on the log scale: a ratio is skewed and cannot be negative. q is the normal
    quantile also where queries are few: `inference.larger` then rests on session noise. With 9
    queries intervals covered in 96% of 200 logs, with Student's quantile in 99% (docs/planning.md).
    """
    theta = np.exp(z)
    error = np.sqrt(np.maximum(np.diag(covariance), 0))
    half = normal_quantile(level) * error
    return PositionBias(
        theta,
        std_error=theta * error,
        covariance=covariance * np.outer(theta, theta),
        method=method,
        assumes=assumes,
        status=status,
        level=level,
        low=np.exp(z - half),
        high=np.exp(z + half),
    )
