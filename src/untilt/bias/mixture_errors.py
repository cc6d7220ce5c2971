r"""How sure the curves of a mixture are, its shares being unknown too.

A document's score for the curves is E[d log-likelihood / d (alpha, beta) | clicks]; its score for
the share of a grid point is w_m / pi_m - 1. What the second explain of the first, by least squares
within a group, is taken out: these are the efficient scores, and their sum of squares over
documents is the information about the curves that is left.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.bias.cells import Cells
from untilt.bias.curve_errors import inverse_information
from untilt.bias.inference import Doubt, larger
from untilt.bias.mixture_em import GRID, MixtureFit, normalised, posterior, tables

# Grid points with a smaller share are no part of the distribution; their scores are all noise.
LEAST_SHARE = 1e-3


def doubt_of_mixture(cells: Cells, fit: MixtureFit, free: BoolArray, jacobian: FloatArray) -> Doubt:
    """(m, m) covariance of m numbers that follow from the curves, the shares being unknown too.

    Scores of (alpha, beta) are freed of what the scores of the shares explain of them (efficient
    scores); their sum of squares over documents is the information. Parameters as in
    `curve_errors.doubt_of_lines`.
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    plus, minus, shares = fit.em.state
    data = (
        cells.indptr, cells.position, cells.impressions, cells.clicks, fit.group,
        plus, minus, normalised(shares), GRID,
    )  # fmt: skip
    curves, of_shares = _scores(*data)
    explained = _explained(curves, of_shares, fit.group, normalised(shares) >= LEAST_SHARE)
    efficient = curves - explained
    scores = _sums_by(query, efficient)
    J = efficient.T @ efficient
    inverse = inverse_information(J[np.ix_(free, free)])
    influence = scores[:, free] @ inverse @ jacobian[:, free].T
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return larger(influence.T @ influence, len(scores), by_session)


def _explained(
    curves: FloatArray, of_shares: FloatArray, group: IntArray, used: BoolArray
) -> FloatArray:
    """(documents, 2K) least-squares fit of the curves' scores on the shares' scores, by group."""
    fitted = np.zeros_like(curves)
    for g in range(len(used)):
        rows = np.flatnonzero(group == g)
        own = of_shares[rows][:, used[g]]
        fitted[rows] = own @ np.linalg.lstsq(own, curves[rows], rcond=1e-6)[0]
    return fitted


def _sums_by(query: IntArray, values: FloatArray) -> FloatArray:
    return np.column_stack([np.bincount(query, weights=column) for column in values.T])


@nb.njit(cache=True)
def _scores(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    group: IntArray,
    plus: FloatArray,
    minus: FloatArray,
    shares: FloatArray,
    grid: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Scores of each document for (alpha, beta), (documents, 2K), and for the shares."""
    p, log_p, log_q = tables(plus, minus, grid)
    depth, size = p.shape
    log_shares = np.log(shares)
    curves, of_shares = np.zeros((len(group), 2 * depth)), np.empty((len(group), size))
    weight = np.empty(size)
    for d in range(len(group)):
        g, begin, end = group[d], indptr[d], indptr[d + 1]
        posterior(begin, end, position, impressions, clicks, log_shares[g], log_p, log_q, weight)
        for m in range(size):
            of_shares[d, m] = weight[m] / shares[g, m] - 1
        for cell in range(begin, end):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            for m in range(size):
                s = weight[m] * (c / p[k, m] - (n - c) / (1 - p[k, m]))
                curves[d, k] += s * grid[m]
                curves[d, depth + k] += s
    return curves, of_shares
