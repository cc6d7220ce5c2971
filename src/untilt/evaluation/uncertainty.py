"""How far an estimate can be trusted: spread over queries, errors of the bias, weights."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.portable import Portable
from untilt._core.random import Seed, child_generator
from untilt._core.statistics import Interval, MeanEstimate
from untilt.bias.curve import PositionBias
from untilt.evaluation.pool import Credit, Pool, pool_of
from untilt.facts import Fact

DRAWS_AT_ONCE = 32  # of the bootstrap, held at the same time
MISFIT_P = 1e-3  # p-value below which a curve is said not to fit
LEAST_CLICKS = 20.0  # observed or expected at a position that is checked


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

    @property
    def errors(self) -> tuple[FloatArray, FloatArray]:
        """(systems,) standard errors of V: from the sample of queries, and from theta."""
        return sampling_error(self.influence), bias_error(self.gradient, self.covariance)


def sampling_error(influence: FloatArray) -> FloatArray:
    """sqrt(n/(n-1) sum_q influence_q^2) of each column; NaN from a single query."""
    n = len(influence)
    if n < 2:
        return np.full(influence.shape[1], np.nan)
    return np.sqrt(n / (n - 1) * np.sum(influence**2, axis=0))


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


def student_intervals(
    value: FloatArray, std_error: FloatArray, n_queries: int, level: float
) -> list[Interval]:
    """value -+ t std_error with n - 1 degrees of freedom; the whole line from a single query."""
    return [
        MeanEstimate(float(v), float(s), n_queries).interval(level)
        for v, s in zip(value, std_error, strict=True)
    ]


def bootstrap_intervals(sums: Sums, level: float, n_draws: int, seed: Seed) -> list[Interval]:
    """Percentiles over samples of queries drawn with replacement, theta drawn along with them."""
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
    ends = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return [Interval(float(low), float(high), level) for low, high in ends.T]


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


def click_weights(pool: Pool, credit: Credit) -> ClickWeights:
    """Of one evaluator on one log; the same for all systems."""
    y, w = pool.clicks, credit.weight
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
            return Fact("estimate.curve-check-impossible")
        worst = int(np.argmax(np.abs(self.z)))
        return Fact(
            "estimate.curve-check",
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
        position=np.flatnonzero(kept) + 1,
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
