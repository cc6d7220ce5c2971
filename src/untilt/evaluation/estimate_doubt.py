"""How far an estimate can be trusted: spread over queries, the bias's own doubt, weights."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import Seed, child_generator
from untilt._core.statistics import Interval, student_quantile
from untilt.bias.position_bias import PositionBias
from untilt.evaluation.counterfactual_methods import Credit
from untilt.evaluation.counterfactual_pool import Pool

DRAWS_AT_A_TIME = 32


@dataclass(frozen=True, eq=False)
class Sums:
    """What systems add up to, query by query: all that values, errors and differences need.

    Parameters
    ----------
    total : (queries, systems)
    norm : (queries,) what the totals are divided by: sessions, or summed weights of clicks
    slope : (systems, K) derivative of each summed total by theta_k
    norm_slope : (K,) the same of the summed norm
    covariance : (K, K) of theta, or None where the curve is taken as known
    """

    total: FloatArray
    norm: FloatArray
    slope: FloatArray
    norm_slope: FloatArray
    covariance: FloatArray | None

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


def sampling_error(influence: FloatArray) -> FloatArray:
    """sqrt(n/(n-1) sum_q influence_q^2) of each column; NaN from a single query."""
    n = len(influence)
    if n < 2:
        return np.full(influence.shape[1], np.nan)
    return np.sqrt(n / (n - 1) * np.sum(influence**2, axis=0))


def bias_error(gradient: FloatArray, covariance: FloatArray | None) -> FloatArray:
    """sqrt(g' S g) of each row: how far the doubt about theta moves the value (delta method)."""
    if covariance is None:
        return np.zeros(len(gradient))
    return np.sqrt(np.maximum(np.einsum("sk,kl,sl->s", gradient, covariance, gradient), 0))


def covariance_of(bias: PositionBias, depth: int) -> FloatArray | None:
    """(depth, depth) covariance of theta; 0 below the curve's end, None where it has no doubt."""
    if bias.std_error is None:
        return None
    known = np.diag(bias.std_error**2) if bias.covariance is None else bias.covariance
    inside = min(depth, bias.depth)
    covariance = np.zeros((depth, depth))
    covariance[:inside, :inside] = known[:inside, :inside]
    return covariance


def student_interval(value: float, std_error: float, n: int, level: float) -> Interval:
    """value -+ t std_error with n - 1 degrees of freedom; the whole line from a single query."""
    if n < 2 or not np.isfinite(std_error):
        return Interval(-np.inf, np.inf, level)
    half = student_quantile(level, n - 1) * std_error
    return Interval(value - half, value + half, level)


def bootstrap_intervals(sums: Sums, level: float, n_draws: int, seed: Seed) -> list[Interval]:
    """Percentiles over samples of queries drawn with replacement, theta drawn along with them."""
    n = len(sums.norm)
    rng = child_generator(seed, 5)
    drawn = np.empty((n_draws, sums.total.shape[1]))
    for begin in range(0, n_draws, DRAWS_AT_A_TIME):
        size = min(DRAWS_AT_A_TIME, n_draws - begin)
        times = rng.multinomial(n, np.full(n, 1 / n), size=size).astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn[begin : begin + size] = (times @ sums.total) / (times @ sums.norm)[:, None]
    if sums.covariance is not None:
        zero = np.zeros(len(sums.covariance))
        theta = rng.multivariate_normal(zero, sums.covariance, size=n_draws, method="eigh")
        drawn += theta @ sums.gradient.T
    ends = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [Interval(float(low), float(high), level) for low, high in ends.T]


@dataclass(frozen=True)
class Weights:
    """How even the weights of the clicks are, and how many clicks say nothing.

    effective_n = (sum w)^2 / sum w^2 over clicks: as many clicks of equal weight would do.
    clipped_share and unsupported_share are shares of all clicks: propensity under the clip; at a
    position that the bias does not know.
    """

    n_clicks: float
    effective_n: float
    largest: float
    clipped_share: float
    unsupported_share: float


def weights_of(pool: Pool, credit: Credit) -> Weights:
    """Of one method on one log; the same for all systems."""
    y, w = pool.clicks, credit.weight
    clicks = float(y.sum())
    used = (y > 0) & (w > 0)
    square = float(np.sum(y[used] * w[used] ** 2))
    share = max(clicks, 1e-300)
    return Weights(
        n_clicks=clicks,
        effective_n=float(np.sum(y[used] * w[used])) ** 2 / square if square > 0 else 0.0,
        largest=float(w[used].max(initial=0.0)),
        clipped_share=float(y[credit.clipped & credit.supported].sum()) / share,
        unsupported_share=float(y[~credit.supported].sum()) / share,
    )
