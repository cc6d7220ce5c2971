"""Intervals and standard errors. Queries, not sessions, are the independent units."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.random import Seed, generator
from untilt.errors import OptionError


@dataclass(frozen=True)
class Interval:
    """A confidence interval at a stated level."""

    low: float
    high: float
    level: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __repr__(self) -> str:
        return f"[{self.low:.4g}, {self.high:.4g}]"


def normal_quantile(level: float) -> float:
    """z with P(|Z| <= z) = level."""
    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1. Got {level} instead; 0.95 is usual.")
    return float(stats.norm.ppf(0.5 + level / 2))


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


@dataclass(frozen=True)
class MeanEstimate:
    """A weighted mean over independent units, with its standard error."""

    value: float
    std_error: float
    n: int

    def interval(self, level: float = 0.95) -> Interval:
        """Student's t interval with n - 1 degrees of freedom."""
        if self.n < 2:
            return Interval(-np.inf, np.inf, level)
        half = float(stats.t.ppf(0.5 + level / 2, self.n - 1)) * self.std_error
        return Interval(self.value - half, self.value + half, level)

    def __repr__(self) -> str:
        return f"{self.value:.4f} +- {self.std_error:.4f}"


def weighted_mean(values: FloatArray, weights: FloatArray | None = None) -> MeanEstimate:
    """Weighted mean of independent units, its standard error from the units' spread.

    se^2 = n/(n-1) sum w_i^2 (x_i - mean)^2 / (sum w_i)^2, the ratio estimator's (linearised)
    variance; with equal weights it is the textbook s/sqrt(n). Units of weight 0 do not count.
    """
    x = np.asarray(values, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    used = w > 0
    x, w, n = x[used], w[used], int(used.sum())
    if n == 0:
        return MeanEstimate(float("nan"), float("nan"), 0)
    mean = float(np.dot(w, x) / w.sum())
    if n == 1:
        return MeanEstimate(mean, float("nan"), 1)
    variance = n / (n - 1) * np.sum((w * (x - mean)) ** 2) / w.sum() ** 2
    return MeanEstimate(mean, float(np.sqrt(variance)), n)


def bootstrap_weights(n_units: int, n_draws: int, seed: Seed) -> IntArray:
    """How often each unit is drawn in each bootstrap sample, shape (n_draws, n_units)."""
    rng = generator(seed)
    return rng.multinomial(n_units, np.full(n_units, 1 / n_units), size=n_draws)
