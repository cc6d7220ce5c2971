r"""Clicks that are affine in relevance, P(click at k) = alpha_k gamma_d + beta_k: fit and errors.

Without trust bias beta = 0 and alpha = theta. With gamma given, each position is a separate concave
problem.

For the errors the relevance of each document is a nuisance parameter: estimated with the curves, it
takes information from them. With the score s = (c - n p) / (p (1 - p)) and the weight
w = n / (p (1 - p)) of a cell, the information about the curves that is left is

    J = sum_cells w x x' - sum_documents h h' / sum w alpha^2,   h = sum over its cells w alpha x

where x = (gamma, 1) are the derivatives of p by (alpha_k, beta_k), alpha its derivative by gamma.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt.bias.log_ratios import STAYS, Uncertainty, effective_by_column, larger_error
from untilt.data.counts import Cells, PositionCounts
from untilt.data.limits import allow_table
from untilt.errors import IdentifiabilityError

# A position that is never clicked falls towards 0 without end; an estimate of 0 would be no
# examination at all, which no weighting can divide by.
FLOOR = 1e-6
# Where theta starts, at the most clicked position. At 1 EM would not move: the posterior of an
# examination that was certain is certain.
HIGHEST_START = 0.9
# p is kept this far from 0 and 1, so that one impossible click cannot decide a curve.
EDGE = 1e-6
# The same for the errors: a cell that fits exactly would decide everything.
ERROR_EDGE = 1e-9
# A document whose relevance is at its bound is not estimated any more.
AT_BOUND = 1e-5
# Of the largest eigenvalue of the scaled information; below, clicks do not identify a direction.
LEAST_INFORMATION = 1e-10


class AffineFit(NamedTuple):
    """alpha, beta (K,) and gamma (documents of the cells,)."""

    alpha: FloatArray
    beta: FloatArray
    gamma: FloatArray


def fit_affine(
    cells: PositionCounts, fit: AffineFit, *, level: bool, steps: int, tolerance: float = 0.0
) -> tuple[AffineFit, float]:
    """The fit after Newton steps at each position, gamma as given, and its log-likelihood.

    The likelihood is concave in (alpha_k, beta_k). Steps that do not raise it are halved, position
    by position. Without `level`, beta stays as it is. Ends early when a step gains less than
    `tolerance`.
    """
    here = _sums(cells, fit)
    for _ in range(steps):
        d_alpha, d_beta = _newton(here, level=level)
        size = np.ones(len(fit.alpha))
        for _ in range(30):
            alpha = np.maximum(fit.alpha + size * d_alpha, FLOOR)
            next_fit = fit._replace(alpha=alpha, beta=fit.beta + size * d_beta)
            following = _sums(cells, next_fit)
            worse = following.value < here.value
            if not worse.any():
                break
            size[worse] = np.where(size[worse] < 1e-6, 0.0, size[worse] / 2)
        gain = float(np.sum(following.value) - np.sum(here.value))
        fit, here = next_fit, following
        if gain <= tolerance:
            break
    return fit, float(np.sum(here.value))


class _PositionSums(NamedTuple):
    """Per position: scores, information and log-likelihood of (alpha_k, beta_k)."""

    s_alpha: FloatArray
    s_beta: FloatArray
    aa: FloatArray
    ab: FloatArray
    bb: FloatArray
    value: FloatArray


def _sums(cells: PositionCounts, fit: AffineFit) -> _PositionSums:
    return _PositionSums(*_sum_cells(cells.arrays, fit))


def _newton(sums: _PositionSums, *, level: bool) -> tuple[FloatArray, FloatArray]:
    """Fisher scoring steps of all positions; none where there is no information."""
    if not level:
        return sums.s_alpha / np.maximum(sums.aa, 1e-300), np.zeros_like(sums.s_alpha)
    centre = sums.ab / np.maximum(sums.bb, 1e-300)
    # Where gamma hardly varies at a position the slope is unknown; it then stays nearly as it is.
    spread = np.maximum(sums.aa - sums.ab * centre, 0) + 1e-6 * sums.aa
    d_alpha = (sums.s_alpha - centre * sums.s_beta) / np.maximum(spread, 1e-300)
    return d_alpha, sums.s_beta / np.maximum(sums.bb, 1e-300) - centre * d_alpha


@nb.njit(cache=True)
def _sum_cells(cells: Cells, fit: AffineFit) -> FloatArray:
    """(6, K): the rows of `_Sums`."""
    indptr, position, impressions, clicks = cells
    alpha, beta, gamma = fit
    sums = np.zeros((6, len(alpha)))
    for d in range(len(gamma)):
        g = gamma[d]
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * g + beta[k], EDGE), 1 - EDGE)
            s, w = (c - n * p) / (p * (1 - p)), n / (p * (1 - p))
            sums[0, k] += s * g
            sums[1, k] += s
            sums[2, k] += w * g * g
            sums[3, k] += w * g
            sums[4, k] += w
            sums[5, k] += c * np.log(p) + (n - c) * np.log1p(-p)
    return sums


def uncertainty_of_affine(
    cells: PositionCounts, fit: AffineFit, free: BoolArray, jacobian: FloatArray
) -> Uncertainty:
    """(m, m) covariance of m numbers that follow from the curves.

    The larger of clustered by query and session noise, as `larger_error` says.

    Parameters
    ----------
    free : (2K,) which of alpha_1..alpha_K, beta_1..beta_K are estimated; the others are fixed,
        by the scale of relevance or at 0 by the model
    jacobian : (m, 2K) derivatives of the m numbers by (alpha, beta)
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    J, scores = information(cells, fit, query)
    to_numbers = np.zeros(jacobian.T.shape)
    to_numbers[free] = inverted(J[np.ix_(free, free)]) @ jacobian[:, free].T
    noise = _noise_by_query(cells, query, fit, to_numbers, len(scores))
    by_session = jacobian[:, free] @ to_numbers[free]
    return clustered(scores @ to_numbers, noise, by_session)


def clustered(influence: FloatArray, noise: FloatArray, by_session: FloatArray) -> Uncertainty:
    """The larger of clustered by query and session noise, queries of any size.

    A query's share of the session noise is its leverage h: without it the estimate would move by
    about influence / (1 - h). The squares of that are the jackknife error, and the effective
    queries (sum of shares)^2 / (sum of squares) less 1 the degrees of freedom of Student's t.

    Parameters
    ----------
    influence : (queries, m) what each query adds to the m numbers
    noise : (queries, m) its part of their variance by session noise
    by_session : (m, m)
    """
    used = noise.max(axis=1) > 0
    influence, noise = influence[used], noise[used]
    total = noise.sum(axis=0)
    share = np.divide(noise, total, out=np.zeros_like(noise), where=total > 0)
    moved = influence / np.maximum(1 - share, STAYS)
    return larger_error(moved.T @ moved, len(noise), by_session, effective_by_column(noise))


def information(
    cells: PositionCounts, fit: AffineFit, query: IntArray
) -> tuple[FloatArray, FloatArray]:
    """J (2K, 2K) and the score of each query (queries, 2K), gamma taken out of both."""
    n_queries = int(query.max()) + 1
    allow_table("the score of each query at each position", n_queries, 2 * cells.depth, copies=3)
    return _information(cells.arrays, query, fit, is_estimated(fit.gamma), n_queries)


def is_estimated(gamma: FloatArray) -> BoolArray:
    """Whether gamma is away from its bounds, where it takes no information from the curves."""
    return (gamma > AT_BOUND) & (gamma < 1 - AT_BOUND)


def inverted(J: FloatArray) -> FloatArray:
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
        "the clicks do not identify the curves: some positions share too few "
        "documents, or their shared documents are all alike in relevance. Use "
        "⟦RegressionEM⟧, which needs less, or ask for fewer positions: "
        "⟦log.top(k)|--depth K⟧."
    )


def _noise_by_query(
    cells: PositionCounts, query: IntArray, fit: AffineFit, to_numbers: FloatArray, n_queries: int
) -> FloatArray:
    """(queries, m) a' J_q a for each column a of `to_numbers` (2K, m), J_q the query's part."""
    k, owner, documents = cells.position_index, cells.document_index, cells.n_documents
    alpha, g = fit.alpha[k], fit.gamma[owner]
    p = np.clip(alpha * g + fit.beta[k], ERROR_EDGE, 1 - ERROR_EDGE)
    w = cells.impressions / (p * (1 - p))
    own = sum_by(owner, w * alpha**2, documents)
    taken, noise = is_estimated(fit.gamma) & (own > 0), []
    for column in to_numbers.T:
        x = g * column[k] + column[cells.depth + k]
        square = sum_by(owner, w * x * x, documents)
        product = sum_by(owner, w * alpha * x, documents)
        square -= np.divide(product * product, own, out=np.zeros(documents), where=taken)
        noise.append(sum_by(query, square, n_queries))
    return np.column_stack(noise)


@nb.njit(cache=True)
def _information(
    cells: Cells, query: IntArray, fit: AffineFit, open_gamma: BoolArray, n_queries: int
) -> tuple[FloatArray, FloatArray]:
    indptr, position, impressions, clicks = cells
    alpha, beta, gamma = fit
    depth = len(alpha)
    J = np.zeros((2 * depth, 2 * depth))
    scores = np.zeros((n_queries, 2 * depth))
    h = np.zeros(2 * depth)
    for d in range(len(gamma)):
        g, q = gamma[d], query[d]
        own, own_score = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * g + beta[k], ERROR_EDGE), 1 - ERROR_EDGE)
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
