r"""How sure curves from strata are, the relevance of every stratum being unknown too.

As in `curve_errors`, with a stratum in the place of a document: its relevance takes

    h / sum w alpha^2,   h = sum over its cells w alpha x,   x = (gamma, 1)

out of the score of each of its cells, s (x - alpha h / sum w alpha^2). Strata reach over queries,
so the scores are summed by query, not by stratum. What strata are too coarse to undo is no noise:
`widened` adds what coarser ones change. 200 simulated logs say whether that is enough
(docs/estimators/regression-em.md and trust-em.md).
"""

import numba as nb
import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.bias.cells import Cells
from untilt.bias.curve_errors import EDGE, information, inverse_information, is_estimated
from untilt.bias.inference import Doubt, larger
from untilt.bias.lines import Lines
from untilt.bias.strata import StratifiedFit, pooled


def doubt_of_strata(
    cells: Cells, fit: StratifiedFit, free: BoolArray, jacobian: FloatArray
) -> Doubt:
    """(m, m) covariance of m numbers that follow from the curves; see `doubt_of_lines`."""
    gamma = np.empty(int(fit.number.max()) + 1)
    gamma[fit.number] = fit.lines.gamma
    together, lines = pooled(cells, fit.number), Lines(fit.lines.alpha, fit.lines.beta, gamma)
    J, _ = information(together, lines, np.zeros(len(gamma), dtype=np.int64))
    inverse = inverse_information(J[np.ix_(free, free)])
    to_numbers = np.zeros(jacobian.T.shape)
    to_numbers[free] = inverse @ jacobian[:, free].T
    query = np.unique(cells.query, return_inverse=True)[1]
    influence = _sum_influence(
        cells.indptr,
        cells.position,
        cells.impressions,
        cells.clicks,
        fit.number,
        query,
        lines.alpha,
        lines.beta,
        gamma,
        _influence_of_a_click(together, lines, to_numbers),
        int(query.max()) + 1,
    )
    by_session = jacobian[:, free] @ inverse @ jacobian[:, free].T
    return larger(influence.T @ influence, len(influence), by_session)


def widened(doubt: Doubt, change: FloatArray) -> Doubt:
    """With the change that coarser strata make to the numbers, as an error of its own."""
    change = np.where(np.isfinite(change), change, 0.0)
    return Doubt(
        doubt.covariance + np.outer(change, change), f"{doubt.rule}, and what coarser strata change"
    )


def _influence_of_a_click(together: Cells, lines: Lines, to_numbers: FloatArray) -> FloatArray:
    """(strata, K, m) what a unit of score of a stratum at k adds to the numbers."""
    depth, alpha, gamma = together.depth, lines.alpha, lines.gamma
    owner, k = np.repeat(together.document, np.diff(together.indptr)), together.position - 1
    p = np.clip(alpha[k] * gamma[owner] + lines.beta[k], EDGE, 1 - EDGE)
    w = together.impressions / (p * (1 - p))
    taken = np.zeros((len(gamma), 2 * depth))
    taken[owner, k], taken[owner, depth + k] = w * alpha[k] * gamma[owner], w * alpha[k]
    own = np.bincount(owner, w * alpha[k] ** 2, len(gamma))
    taken *= (is_estimated(gamma) / np.maximum(own, 1e-300))[:, None]
    by_alpha, by_beta = to_numbers[:depth], to_numbers[depth:]
    direct = gamma[:, None, None] * by_alpha + by_beta
    return direct - alpha[:, None] * (taken @ to_numbers)[:, None, :]


@nb.njit(cache=True)
def _sum_influence(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    number: IntArray,
    query: IntArray,
    alpha: FloatArray,
    beta: FloatArray,
    gamma: FloatArray,
    table: FloatArray,
    n_queries: int,
) -> FloatArray:
    """(queries, m) sum of each query's scores, in terms of the numbers."""
    influence = np.zeros((n_queries, table.shape[2]))
    for d in range(len(number)):
        stratum, q = number[d], query[d]
        for cell in range(indptr[d], indptr[d + 1]):
            k, n, c = position[cell] - 1, impressions[cell], clicks[cell]
            p = min(max(alpha[k] * gamma[stratum] + beta[k], EDGE), 1 - EDGE)
            s = (c - n * p) / (p * (1 - p))
            for m in range(table.shape[2]):
                influence[q, m] += s * table[stratum, k, m]
    return influence
