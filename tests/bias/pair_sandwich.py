"""The sandwich of pairs with all queries, however large: errors of pairs are compared with it."""

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.harvesting.pairs import _by_query, inverse_laplacian
from untilt.data.counts import PositionCounts


def scores_by_query(
    cells: PositionCounts, weight: str, gain: FloatArray, offset: FloatArray
) -> tuple[FloatArray, int]:
    """Sum over queries of u u', and how many queries have a part in it.

    u_k = sum_l f_kl with f_kl = sum w (gain_kl rate_k - gain_lk rate_l + offset_kl), the query's
    part of the estimating equations; offset is antisymmetric, and gain 0 for pairs not used.
    """
    by_session, no_limit = weight == "session", np.full(cells.depth, np.inf)
    arrays = cells.arrays, cells.query, cells.depth
    M, n, _ = _by_query(*arrays, by_session, gain, offset, no_limit)
    return M, n


def sandwich(curvature: FloatArray, M: FloatArray) -> FloatArray:
    """J^-1 M J^-1 with z_1 = 0 held fixed."""
    inverse = inverse_laplacian(curvature)
    return inverse @ M @ inverse
