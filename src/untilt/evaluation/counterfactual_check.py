"""Does the curve fit the clicks? What a log can say about the bias that it is corrected with."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.position_bias import PositionBias
from untilt.evaluation.counterfactual_pool import Pool
from untilt.evaluation.estimate_doubt import covariance_of

SURE = 1e-3  # p-value below which a curve is said not to fit
LEAST_CLICKS = 20.0


@dataclass(frozen=True, eq=False)
class CurveCheck:
    r"""Clicks at each position against what the curve expects of the *same* documents elsewhere.

    For documents shown at several positions, g_d = sum_k (y_dk - n_dk beta_k) / sum_k n_dk alpha_k
    uses all of them; position k should then have had sum_d n_dk (alpha_k g_d + beta_k) clicks.
    `z` is the difference over its standard error, clustered by query and with the curve's own doubt
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
        return self.p_value >= SURE

    def __str__(self) -> str:
        if not self.possible:
            return "no document was shown at two positions: this log cannot check the curve"
        worst = int(np.argmax(np.abs(self.z)))
        ratio = self.observed[worst] / max(self.expected[worst], 1e-300)
        return (
            f"position {self.position[worst]} has {ratio:.2f} times the clicks that the curve "
            f"expects (z {self.z[worst]:+.1f}, p {self.p_value:.2g}; {self.n_documents:,} "
            "documents shown at several positions)"
        )


def check_curve(pool: Pool, bias: PositionBias) -> CurveCheck:
    """Compare clicks with the curve on documents that were shown at several positions."""
    alpha, beta = bias.affine()
    known = pool.position <= bias.depth
    place = np.minimum(pool.position, bias.depth) - 1
    n = np.where(known & (alpha[place] > 0), pool.impressions, 0.0)
    several = pool.by_document((n > 0).astype(float)) > 1
    n = np.where(several[pool.document_of_cell], n, 0.0)
    y = np.where(n > 0, pool.clicks, 0.0)
    tried = pool.by_document(n * alpha[place])
    gained = pool.by_document(y - n * beta[place])
    g = gained / np.where(tried > 0, tried, 1.0)
    expected = n * (alpha[place] * g[pool.document_of_cell] + beta[place])
    doubt = _doubt_of_curve(pool, bias, n * alpha[place], n * beta[place], g, tried)
    return _by_position(pool, y, expected, doubt, int(several.sum()))


def _doubt_of_curve(
    pool: Pool, bias: PositionBias, a: FloatArray, b: FloatArray, g: FloatArray, tried: FloatArray
) -> FloatArray:
    r"""(K,) variance that theta's own errors give to the expected clicks E_k.

    With a_dk = n_dk alpha_k, b_dk = n_dk beta_k, A_d = sum_k a_dk and both proportional to theta_k,
    dE_k / dlog theta_j = [j = k] sum_d (a_dk g_d + b_dk) - sum_d a_dk (a_dj g_d + b_dj) / A_d.
    """
    covariance = covariance_of(bias, pool.depth)
    if covariance is None:
        return np.zeros(pool.depth)
    from scipy import sparse

    place, shape = pool.position - 1, (len(g), pool.depth)
    rows = a * g[pool.document_of_cell] + b
    share = a / np.where(tried > 0, tried, 1.0)[pool.document_of_cell]
    left = sparse.csr_matrix((share, place, pool.cell_indptr), shape)
    right = sparse.csr_matrix((rows, place, pool.cell_indptr), shape)
    slope = np.diag(np.bincount(place, rows, pool.depth)) - (left.T @ right).toarray()
    theta = np.ones(pool.depth)
    inside = min(pool.depth, bias.depth)
    theta[:inside] = bias.examination[:inside]
    return np.einsum("kj,jl,kl->k", slope, covariance / np.outer(theta, theta), slope)


def _by_position(
    pool: Pool, observed: FloatArray, expected: FloatArray, doubt: FloatArray, n_documents: int
) -> CurveCheck:
    size = (pool.n_queries, pool.depth)
    cell = pool.query_of_cell * pool.depth + pool.position - 1
    gap = np.bincount(cell, observed - expected, size[0] * size[1]).reshape(size)
    seen = np.bincount(pool.position - 1, observed, pool.depth)
    hoped = np.bincount(pool.position - 1, expected, pool.depth)
    error = np.sqrt(np.sum(gap**2, axis=0) + doubt)
    kept = (np.maximum(seen, hoped) >= LEAST_CLICKS) & (error > 0)
    return CurveCheck(
        position=np.flatnonzero(kept) + 1,
        observed=seen[kept],
        expected=hoped[kept],
        z=(gap.sum(axis=0)[kept]) / error[kept],
        n_documents=n_documents,
    )
