"""A linear pairwise fit, no more than the production ranker needs.

Serial on purpose: sums over threads differ in their last bits, and two documents with nearly equal
scores would then change places with the number of threads. The log must not depend on it.
"""

import numba as nb
import numpy as np
from scipy.optimize import minimize

from untilt._core.arrays import FloatArray, IntArray


def fit_linear(
    features: FloatArray, labels: FloatArray, indptr: IntArray, *, hinge: bool, l2: float
) -> FloatArray:
    r"""Weights that minimise mean_pairs loss(s_i - s_j) + l2/2 |w|^2 over pairs with y_i > y_j.

    The loss is ln(1 + exp(-m)), or max(0, 1 - m)^2 with `hinge`; s = w . (x - mean) / spread. The
    weights come back on the scale of the raw features; a feature that never varies gets 0.
    """
    # Contiguous: another layout in memory is another order of summation, and other last bits.
    x = np.ascontiguousarray(features, dtype=np.float64)
    spread = x.std(axis=0)
    spread[spread == 0] = np.inf
    x = (x - x.mean(axis=0)) / spread

    def objective(w: FloatArray) -> tuple[float, FloatArray]:
        total, n_pairs, slope = pair_loss(serial_dot(x, w), labels, indptr, hinge)
        n = max(1, n_pairs)
        return total / n + l2 / 2 * float(w @ w), serial_dot(x.T, slope) / n + l2 * w

    start = np.zeros(x.shape[1])
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return best.x / spread


def serial_dot(x: FloatArray, w: FloatArray) -> FloatArray:
    """x @ w without BLAS, whose threads change the last bits."""
    return np.einsum("ij,j->i", x, w)


@nb.njit(cache=True)
def pair_loss(
    scores: FloatArray, labels: FloatArray, indptr: IntArray, hinge: bool
) -> tuple[float, int, FloatArray]:
    """Summed loss over the pairs, their number, and the gradient with respect to the scores."""
    total, n_pairs = 0.0, 0
    slope = np.zeros(len(scores))
    for q in range(len(indptr) - 1):
        for i in range(indptr[q], indptr[q + 1]):
            for j in range(indptr[q], indptr[q + 1]):
                if labels[i] <= labels[j]:
                    continue
                margin = scores[i] - scores[j]
                if hinge:
                    short = max(0.0, 1.0 - margin)
                    loss, g = short * short, 2.0 * short
                else:
                    # ln(1 + exp(-m)), written so that neither end overflows.
                    e = np.exp(-abs(margin))
                    loss = np.log1p(e) + max(0.0, -margin)
                    g = (e if margin > 0 else 1.0) / (1.0 + e)
                total += loss
                n_pairs += 1
                slope[i] -= g
                slope[j] += g
    return total, n_pairs, slope
