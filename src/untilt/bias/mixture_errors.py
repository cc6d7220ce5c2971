r"""How sure the curves of a mixture are, its distribution being unknown too.

A document's score for the curves is E[d log-likelihood / d (alpha, beta) | clicks]; its score for
the share of a value is w_m / pi_m - 1, and for the value itself w_m d log-likelihood / d gamma_m.
What these explain of the first, by least squares, is taken out: the rest are the efficient scores,
and their sum of squares over documents is the information about the curves that is left.
"""

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.bias.cells import Cells
from untilt.bias.curve_errors import inverse_information
from untilt.bias.inference import Doubt, larger
from untilt.bias.mixture_em import MixtureFit, normalised, posterior, tables

# Values with a smaller share are no part of the distribution; their scores are all noise.
LEAST_SHARE = 1e-3


def doubt_of_mixture(cells: Cells, fit: MixtureFit, free: BoolArray, jacobian: FloatArray) -> Doubt:
    """(m, m) covariance of m numbers that follow from the curves.

    The larger of clustered by query and session noise. Parameters as in
    `curve_errors.doubt_of_lines`.
    """
    query = np.unique(cells.query, return_inverse=True)[1]
    efficient = _efficient_scores(cells, fit)
    scores = _sums_by(query, efficient)
    J = efficient.T @ efficient
    inverse = inverse_information(J[np.ix_(free, free)])
    influence = scores[:, free] @ inverse @ jacobian[:, free].T
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return larger(influence.T @ influence, len(scores), by_session)


def _efficient_scores(cells: Cells, fit: MixtureFit) -> FloatArray:
    """(documents, 2K). Shares belong to a group each, values to all: taken out in that order."""
    plus, minus, values, shares = fit.em.state
    shares = normalised(shares)
    curves, of_values, of_shares = _scores(
        cells.indptr, cells.position, cells.impressions, cells.clicks, fit.group,
        plus, minus, values, shares,
    )  # fmt: skip
    used = shares >= LEAST_SHARE
    both = np.hstack([curves, of_values[:, used.any(axis=0)]])
    for g in range(len(shares)):
        rows = np.flatnonzero(fit.group == g)
        both[rows] = _unexplained(both[rows], of_shares[rows][:, used[g]])
    width = curves.shape[1]
    return _unexplained(both[:, :width], both[:, width:])


def _unexplained(scores: FloatArray, by: FloatArray) -> FloatArray:
    """What is left of the scores after a least-squares fit on others."""
    return scores - by @ np.linalg.lstsq(by, scores, rcond=1e-6)[0]


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
    values: FloatArray,
    shares: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scores of each document for (alpha, beta), (documents, 2K), for values and for shares."""
    p, log_p, log_q = tables(plus, minus, values)
    depth, size = p.shape
    log_shares = np.log(shares)
    curves = np.zeros((len(group), 2 * depth))
    of_values, of_shares = np.zeros((len(group), size)), np.empty((len(group), size))
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
                curves[d, k] += s * values[m]
                curves[d, depth + k] += s
                of_values[d, m] += s * (plus[k] - minus[k])
    return curves, of_values, of_shares
