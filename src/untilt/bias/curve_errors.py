r"""How sure the curves are: errors of alpha and beta in P(click) = alpha_k gamma_d + beta_k.

The relevance of each document is a nuisance: estimated with the curves, it takes information from
them. With the score s = (c - n p) / (p (1 - p)) and the weight w = n / (p (1 - p)) of a cell, the
information about the curves that is left is

    J = sum_cells w x x' - sum_documents h h' / sum w alpha^2,   h = sum over its cells w alpha x

where x = (gamma, 1) are the derivatives of p by (alpha_k, beta_k), alpha its derivative by gamma.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.bias.cells import Cells
from untilt.bias.inference import Doubt, larger
from untilt.bias.lines import Lines
from untilt.errors import IdentifiabilityError

# p is kept this far from 0 and 1: a cell that fits without any doubt would decide everything.
EDGE = 1e-9
# A document whose relevance stands at its bound is not estimated any more.
AT_BOUND = 1e-5
# Of the largest eigenvalue of the scaled information; below, a direction is not told by the clicks.
LEAST_INFORMATION = 1e-10


def doubt_of_lines(cells: Cells, lines: Lines, free: BoolArray, jacobian: FloatArray) -> Doubt:
    """(m, m) covariance of m numbers that follow from the curves.

    The larger of clustered by query and session noise, as `inference.larger` says.

    Parameters
    ----------
    free : (2K,) which of alpha_1..alpha_K, beta_1..beta_K are estimated; the others are held, as
        the scale of relevance, or 0 by the model
    jacobian : (m, 2K) derivatives of the m numbers by (alpha, beta)
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    J, scores = information(cells, lines, query)
    inverse = inverse_information(J[np.ix_(free, free)])
    influence = scores[:, free] @ inverse @ jacobian[:, free].T
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return larger(influence.T @ influence, len(scores), by_session)


def information(cells: Cells, lines: Lines, query: IntArray) -> tuple[FloatArray, FloatArray]:
    """J (2K, 2K) and the score of each query (queries, 2K), gamma taken out of both."""
    return _information(
        cells.indptr,
        cells.position,
        cells.impressions,
        cells.clicks,
        query,
        lines.alpha,
        lines.beta,
        lines.gamma,
        is_estimated(lines.gamma),
        int(query.max()) + 1,
    )


def is_estimated(gamma: FloatArray) -> BoolArray:
    """Whether gamma is away from its bounds, where it takes no information from the curves."""
    return (gamma > AT_BOUND) & (gamma < 1 - AT_BOUND)


def inverse_information(J: FloatArray) -> FloatArray:
    """J^-1, scaled to a unit diagonal first: alpha and beta differ by orders of magnitude."""
    scale = np.sqrt(np.diag(J))
    if len(J) and np.all(scale > 0):
        values, vectors = np.linalg.eigh(J / np.outer(scale, scale))
        if values[0] > LEAST_INFORMATION * values[-1]:
            scaled = vectors / scale[:, None]
            return (scaled / values) @ scaled.T
    if len(J) == 0:
        return J
    raise IdentifiabilityError(
        "the clicks cannot tell the curves apart: some positions share too few documents, or their "
        "shared documents are all alike in relevance. Use RegressionEM, which needs less, or ask "
        "for fewer positions: log.top(k)."
    )


@nb.njit(cache=True)
def _information(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    query: IntArray,
    alpha: FloatArray,
    beta: FloatArray,
    gamma: FloatArray,
    open_gamma: BoolArray,
    n_queries: int,
) -> tuple[FloatArray, FloatArray]:
    depth = len(alpha)
    J = np.zeros((2 * depth, 2 * depth))
    scores = np.zeros((n_queries, 2 * depth))
    h = np.zeros(2 * depth)
    for d in range(len(gamma)):
        g, q = gamma[d], query[d]
        own, own_score = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * g + beta[k], EDGE), 1 - EDGE)
            w = n / (p * (1 - p))
            s = (c - n * p) / (p * (1 - p))
            J[k, k] += w * g * g
            J[k, depth + k] += w * g
            J[depth + k, k] += w * g
            J[depth + k, depth + k] += w
            scores[q, k] += s * g
            scores[q, depth + k] += s
            h[k], h[depth + k] = w * alpha[k] * g, w * alpha[k]
            own += w * alpha[k] ** 2
            own_score += s * alpha[k]
        if open_gamma[d] and own > 0:
            for a in range(indptr[d], indptr[d + 1]):
                for i in (position[a] - 1, depth + position[a] - 1):
                    scores[q, i] -= h[i] * own_score / own
                    for b in range(indptr[d], indptr[d + 1]):
                        for j in (position[b] - 1, depth + position[b] - 1):
                            J[i, j] -= h[i] * h[j] / own
    return J, scores
