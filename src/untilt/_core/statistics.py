"""Intervals and standard errors. Queries, not sessions, are the independent units."""

from dataclasses import dataclass

import numpy as np
from scipy import special  # not scipy.stats: that is half a second more at every import

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.random import Seed, generator
from untilt.catalog import storable
from untilt.errors import OptionError


@storable
@dataclass(frozen=True)
class Interval:
    """A confidence interval at a stated level."""

    low: float
    high: float
    level: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __repr__(self) -> str:
        return f"{self:.4g}"

    def __format__(self, spec: str) -> str:
        return f"[{self.low:{spec}}, {self.high:{spec}}]" if spec else repr(self)


def normal_quantile(level: float) -> float:
    """z with P(|Z| <= z) = level."""
    check_level(level)
    return float(special.ndtri(0.5 + level / 2))


def student_quantile(level: float, degrees_of_freedom: float) -> float:
    """t with P(|T| <= t) = level."""
    check_level(level)
    return float(special.stdtrit(degrees_of_freedom, 0.5 + level / 2))


def check_level(level: float) -> None:
    """Raise unless `level` can be the level of an interval."""
    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1. Got {level} instead; 0.95 is usual.")


def normal_interval(value: float, std_error: float, level: float = 0.95) -> Interval:
    """value -+ z * std_error."""
    half = normal_quantile(level) * std_error
    return Interval(value - half, value + half, level)


def wilson_interval(
    successes: FloatArray | IntArray, trials: FloatArray | IntArray, level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval for a proportion, right near 0 and 1; (0, 1) where nothing was tried."""
    z = normal_quantile(level)
    n = np.asarray(trials, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.asarray(successes, dtype=float) / n
        centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
    return np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0)


@storable
@dataclass(frozen=True)
class MeanEstimate:
    """A weighted mean over independent units, with its standard error."""

    value: float
    std_error: float
    n: int

    def interval(self, level: float = 0.95) -> Interval:
        """Student's t interval with n - 1 degrees of freedom; the whole line from a single unit."""
        check_level(level)
        if self.n < 2 or not np.isfinite(self.std_error):
            return Interval(-np.inf, np.inf, level)
        half = student_quantile(level, self.n - 1) * self.std_error
        return Interval(self.value - half, self.value + half, level)

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the mean is 0, two-sided; NaN from a single unit."""
        if self.n < 2 or not np.isfinite(self.std_error):
            return float("nan")
        if self.std_error == 0:
            return 1.0 if self.value == 0 else 0.0
        return float(2 * special.stdtr(self.n - 1, -abs(self.value / self.std_error)))

    def __repr__(self) -> str:
        return f"{self.value:.4f} +- {self.std_error:.4f}"


def weighted_mean(
    values: FloatArray, weights: FloatArray | None = None, *, units: IntArray | None = None
) -> MeanEstimate:
    """Weighted mean, its standard error from the spread of independent units.

    se^2 = n/(n-1) sum_u (sum_{i in u} w_i (x_i - mean))^2 / (sum w_i)^2, the ratio estimator's
    (linearised) variance; with equal weights and a unit per value it is the textbook s/sqrt(n).
    Values of weight 0 do not count.

    Parameters
    ----------
    values, weights : (n,)
    units : (n,) which unit each value belongs to (the query of a list, say), 0, 1, ...;
        each value is its own where not given
    """
    x = np.asarray(values, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    used = w > 0
    x, w = x[used], w[used]
    if len(x) == 0:
        return MeanEstimate(float("nan"), float("nan"), 0)
    mean = float(np.dot(w, x) / w.sum())
    residual: FloatArray = w * (x - mean)
    if units is not None:
        unit = np.unique(np.asarray(units)[used], return_inverse=True)[1]
        residual = sum_by(unit, residual)
    n = len(residual)
    if n == 1:
        return MeanEstimate(mean, float("nan"), 1)
    variance = n / (n - 1) * np.sum(residual**2) / w.sum() ** 2
    return MeanEstimate(mean, float(np.sqrt(variance)), n)


def bootstrap_weights(n_units: int, n_draws: int, seed: Seed) -> IntArray:
    """How often each unit is drawn in each bootstrap sample, shape (n_draws, n_units)."""
    rng = generator(seed)
    return rng.multinomial(n_units, np.full(n_units, 1 / n_units), size=n_draws)
