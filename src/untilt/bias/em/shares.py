r"""The curve without relevance: which share of a document's clicks came at which position.

Of the m clicks on a document shown n_k times at k, the position-based model expects the share

    s_k = n_k theta_k / sum_l n_l theta_l

at k, whatever its relevance: E[c_k - m s_k] = 0 for every single document. So the solution of

    sum over documents (c_k - m s_k) = 0

is right however few impressions a document has. A maximum over theta and all relevances together is
not: with few clicks each relevance is fitted to noise (Neyman and Scott), and no sampling error
contains that. What the two differ by does.
"""

from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.bias.em.affine import clustered, inverted
from untilt.bias.log_ratios import Uncertainty
from untilt.data.counts import Cells, PositionCounts
from untilt.data.depth import allow_table

NEWTON_STEPS = 100
# A step of log theta at most so large: far from the solution Newton's method overshoots.
LARGEST_STEP = 2.0


class ShareFit(NamedTuple):
    """(K,) log(theta_k / theta_1), and its errors; 0 and no error where nothing was clicked."""

    z: FloatArray
    errors: Uncertainty


def fit_shares(cells: PositionCounts, free: BoolArray) -> ShareFit:
    """Solve the equations for the positions `free` (K,), relative to position 1.

    The likelihood of the shares is concave in log theta (multinomial), and J its information.
    Errors from sessions are J^-1: clicks as Poisson counts, which is too much rather than too
    little.
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    n_queries = int(query.max()) + 1
    allow_table("the score of each query at each position", n_queries, cells.depth, copies=4)
    z = np.zeros(cells.depth)
    for _ in range(NEWTON_STEPS):
        scores, J = _equations(cells.arrays, query, np.exp(z), n_queries)
        step = np.zeros(cells.depth)
        step[free] = inverted(J[np.ix_(free, free)]) @ scores.sum(axis=0)[free]
        z += np.clip(step, -LARGEST_STEP, LARGEST_STEP)
        if np.abs(step).max() < 1e-8:
            break
    scores, J = _equations(cells.arrays, query, np.exp(z), n_queries)
    inverse = np.zeros_like(J)
    inverse[np.ix_(free, free)] = inverted(J[np.ix_(free, free)])
    noise = _noise_by_query(cells.arrays, query, np.exp(z), inverse, n_queries)
    return ShareFit(z, clustered(scores @ inverse, noise, inverse))


@nb.njit(cache=True)
def _equations(
    cells: Cells, query: IntArray, theta: FloatArray, n_queries: int
) -> tuple[FloatArray, FloatArray]:
    """Scores (queries, K), and J = sum over documents of m (diag(s) - s s')."""
    indptr, position, impressions, clicks = cells
    depth = len(theta)
    scores, J = np.zeros((n_queries, depth)), np.zeros((depth, depth))
    for d in range(len(query)):
        m, total = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            m += clicks[cell]
            total += impressions[cell] * theta[position[cell] - 1]
        for a in range(indptr[d], indptr[d + 1]):
            k = position[a] - 1
            s = impressions[a] * theta[k] / total
            scores[query[d], k] += clicks[a] - m * s
            J[k, k] += m * s
            for b in range(indptr[d], indptr[d + 1]):
                j = position[b] - 1
                J[k, j] -= m * s * impressions[b] * theta[j] / total
    return scores, J


@nb.njit(cache=True)
def _noise_by_query(
    cells: Cells, query: IntArray, theta: FloatArray, inverse: FloatArray, n_queries: int
) -> FloatArray:
    """(queries, K) each query's part of the diagonal of J^-1 J J^-1."""
    indptr, position, impressions, clicks = cells
    noise = np.zeros((n_queries, len(theta)))
    for d in range(len(query)):
        m, total = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            m += clicks[cell]
            total += impressions[cell] * theta[position[cell] - 1]
        for i in range(len(theta)):
            mean, square = 0.0, 0.0
            for cell in range(indptr[d], indptr[d + 1]):
                k = position[cell] - 1
                s = impressions[cell] * theta[k] / total
                mean += s * inverse[k, i]
                square += s * inverse[k, i] ** 2
            noise[query[d], i] += m * (square - mean * mean)
    return noise
