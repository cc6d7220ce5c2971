r"""Straight lines of clicks on relevance: P(click at k) = alpha_k gamma_d + beta_k.

Without trust bias beta = 0 and alpha = theta. With gamma given, each position's line is a concave
problem of its own.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.cells import Cells
from untilt.bias.count_em import FLOOR

# p is kept this far from 0 and 1, so that one impossible click cannot decide a line.
EDGE = 1e-6


@dataclass(frozen=True, eq=False)
class Lines:
    """alpha, beta (K,) and gamma (documents of the cells,)."""

    alpha: FloatArray
    beta: FloatArray
    gamma: FloatArray


def fit_lines(
    cells: Cells,
    gamma: FloatArray,
    alpha: FloatArray,
    beta: FloatArray,
    *,
    level: bool,
    steps: int,
    tolerance: float = 0.0,
) -> tuple[FloatArray, FloatArray, float]:
    """(alpha, beta, log-likelihood) after Newton steps at each position, gamma as given.

    The likelihood is concave in (alpha_k, beta_k). Steps that do not raise it are halved, position
    by position. Without `level`, beta stays as it is. Ends early when a step gains less than
    `tolerance`.
    """
    here = _line_sums(cells, gamma, alpha, beta)
    for _ in range(steps):
        d_alpha, d_beta = _newton(here, level=level)
        size = np.ones(len(alpha))
        for _ in range(30):
            new_alpha, new_beta = alpha + size * d_alpha, beta + size * d_beta
            new = _line_sums(cells, gamma, np.maximum(new_alpha, FLOOR), new_beta)
            worse = new.value < here.value
            if not worse.any():
                break
            size[worse] = np.where(size[worse] < 1e-6, 0.0, size[worse] / 2)
        gain = float(np.sum(new.value) - np.sum(here.value))
        alpha, beta, here = np.maximum(new_alpha, FLOOR), new_beta, new
        if gain <= tolerance:
            break
    return alpha, beta, float(np.sum(here.value))


@dataclass(frozen=True, eq=False)
class _LineSums:
    """Per position: scores, information and log-likelihood of (alpha_k, beta_k)."""

    s_alpha: FloatArray
    s_beta: FloatArray
    aa: FloatArray
    ab: FloatArray
    bb: FloatArray
    value: FloatArray


def _line_sums(cells: Cells, gamma: FloatArray, alpha: FloatArray, beta: FloatArray) -> _LineSums:
    table = _sum_lines(
        cells.indptr, cells.position, cells.impressions, cells.clicks, gamma, alpha, beta
    )
    return _LineSums(*table)


def _newton(sums: _LineSums, *, level: bool) -> tuple[FloatArray, FloatArray]:
    """Fisher scoring steps of all positions; none where there is no information."""
    if not level:
        return sums.s_alpha / np.maximum(sums.aa, 1e-300), np.zeros_like(sums.s_alpha)
    centre = sums.ab / np.maximum(sums.bb, 1e-300)
    # Where gamma hardly varies at a position the slope is unknown; it then stays nearly as it is.
    spread = np.maximum(sums.aa - sums.ab * centre, 0) + 1e-6 * sums.aa
    d_alpha = (sums.s_alpha - centre * sums.s_beta) / np.maximum(spread, 1e-300)
    return d_alpha, sums.s_beta / np.maximum(sums.bb, 1e-300) - centre * d_alpha


@nb.njit(cache=True)
def _sum_lines(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    gamma: FloatArray,
    alpha: FloatArray,
    beta: FloatArray,
) -> FloatArray:
    """(6, K): the rows of `_LineSums`."""
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
