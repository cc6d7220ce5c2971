"""Interventional sets: documents shown at two positions, summed over all pairs of positions.

S_kl holds the (query, document) shown at both k and l [agarwal2019estimating]_. With rate_k the
clicks per impression of such a document at k and w its weight,

    W[k, l] = sum over S_kl of w          C[k, l] = sum over S_kl of w rate_k

so that under the position-based model E C[k, l] = theta_k sum w gamma: C[k, l] / C[l, k] estimates
theta_k / theta_l whatever the relevance gamma.

Every estimator from pairs solves J z = b with z_k = log(theta_k / theta_1) and J the Laplacian of a
graph over positions. So its covariance is the sandwich J^-1 M J^-1, where M sums the squares of
what each independent unit, a query or a session, contributes to b.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.estimator import counts_to
from untilt.bias.log_ratios import Uncertainty, larger_error
from untilt.data.clicklog import ClickLog
from untilt.data.counts import Cells, PositionCounts
from untilt.errors import IdentifiabilityError, check_choice
from untilt.facts import Fact

WEIGHTS = ("session", "document")
FEW_CLICKS = 10


@dataclass(frozen=True, eq=False)
class PairSums:
    """W and C, both (K, K) with a zero diagonal, of cells and a choice of weights."""

    weight: FloatArray
    clicked: FloatArray


def pair_sums(cells: PositionCounts, weight: str) -> PairSums:
    """Sums over all pairs of positions.

    weight="document": w = 1, each click at k weighs 1 / (times its document was shown at k).
    weight="session": w = n_k n_l / (n_k + n_l), Mantel and Haenszel's, so that a document shown a
    thousand times counts for more than one shown twice.
    """
    check_choice("weight", weight, WEIGHTS)
    W, C = _sums(cells.arrays, cells.depth, weight == "session")
    return PairSums(W, C)


def scores_by_query(
    cells: PositionCounts, weight: str, gain: FloatArray, offset: FloatArray
) -> tuple[FloatArray, int]:
    """Sum over queries of u u', and how many queries have a part in it.

    u_k = sum_l f_kl with f_kl = sum w (gain_kl rate_k - gain_lk rate_l + offset_kl), the query's
    part of the estimating equations; offset is antisymmetric, and gain 0 for pairs not used.
    """
    return _by_query(cells.arrays, cells.query, cells.depth, weight == "session", gain, offset)


def scores_by_session(
    cells: PositionCounts, weight: str, gain: FloatArray, theta: FloatArray
) -> FloatArray:
    """What `scores_by_query` is expected to be if sessions are all the noise there is.

    Clicks of a cell are binomial with probability theta_k g, where g = sum c / sum n theta over the
    cells of the document. Under the position-based model clicks at different positions of a session
    are independent.
    """
    return _by_session(cells.arrays, weight == "session", gain, theta)


@dataclass(frozen=True, eq=False)
class PairEquations:
    """The estimating equations J z = b of an estimator from pairs; see `scores_by_query`.

    curvature : (K, K) weights of the Laplacian J; gain, offset : (K, K)
    """

    curvature: FloatArray
    gain: FloatArray
    offset: FloatArray


def solve_laplacian(curvature: FloatArray, b: FloatArray) -> FloatArray:
    """z with J z = b and z_1 = 0; b has one or several columns."""
    z = np.zeros_like(b, dtype=np.float64)
    z[1:] = np.linalg.solve(_laplacian(curvature), b[1:])
    return z


def sandwich(curvature: FloatArray, M: FloatArray) -> FloatArray:
    """J^-1 M J^-1 with z_1 = 0 held fixed."""
    inverse = np.linalg.inv(_laplacian(curvature))
    covariance = np.zeros_like(M)
    covariance[1:, 1:] = inverse @ M[1:, 1:] @ inverse
    return covariance


def uncertainty_of_pairs(
    cells: PositionCounts, weight: str, equations: PairEquations, theta: FloatArray
) -> Uncertainty:
    """(K, K) covariance of log(theta_k / theta_1); see `larger_error`."""
    M, n = scores_by_query(cells, weight, equations.gain, equations.offset)
    noise = scores_by_session(cells, weight, equations.gain, theta)
    curvature = equations.curvature
    return larger_error(sandwich(curvature, M), n, sandwich(curvature, noise))


def _laplacian(curvature: FloatArray) -> FloatArray:
    """J without the row and column of position 1."""
    return (np.diag(curvature.sum(axis=1)) - curvature)[1:, 1:]


def counts_of_pairs(log: ClickLog, depth: int | None) -> PositionCounts:
    """The counts of positions 1..depth, at least two of them; all of the log where not given."""
    cells = counts_to(log, depth)
    if cells.depth == 1:
        raise IdentifiabilityError(
            "only position 1 is asked for or shown, and examination is relative to it: there is "
            "nothing to estimate. Read the deeper positions of the log, too."
        )
    return cells


def click_evidence(cells: PositionCounts) -> list[Fact]:
    """Clicks on documents shown at several positions, and the positions where they are few."""
    several = np.repeat(np.diff(cells.indptr) > 1, np.diff(cells.indptr))
    clicks = cells.by_position(np.where(several, cells.clicks, 0.0))
    return [Fact("bias.shared-clicks", clicks=float(clicks.sum())), *few_clicks(clicks)]


def few_clicks(clicks: FloatArray) -> list[Fact]:
    """A warning about the positions with fewer than 10 of these clicks, (K,), if there are any."""
    few = tuple((np.flatnonzero(clicks < FEW_CLICKS) + 1).tolist())
    return [Fact("bias.few-clicks", positions=few, fewer_than=FEW_CLICKS)] if few else []


@nb.njit(cache=True)
def _weight(n_k: float, n_l: float, by_session: bool) -> float:
    return n_k * n_l / (n_k + n_l) if by_session else 1.0


@nb.njit(cache=True)
def _sums(cells: Cells, depth: int, by_session: bool) -> tuple[FloatArray, FloatArray]:
    indptr, position, impressions, clicks = cells
    W, C = np.zeros((depth, depth)), np.zeros((depth, depth))
    for i in range(len(indptr) - 1):
        for a in range(indptr[i], indptr[i + 1]):
            k = position[a] - 1
            for b in range(indptr[i], indptr[i + 1]):
                if a != b:
                    l = position[b] - 1  # noqa: E741  the formula's symbol
                    w = _weight(impressions[a], impressions[b], by_session)
                    W[k, l] += w
                    C[k, l] += w * clicks[a] / impressions[a]
    return W, C


@nb.njit(cache=True)
def _by_query(
    cells: Cells,
    query: IntArray,
    depth: int,
    by_session: bool,
    gain: FloatArray,
    offset: FloatArray,
) -> tuple[FloatArray, int]:
    indptr, position, impressions, clicks = cells
    M, u = np.zeros((depth, depth)), np.zeros(depth)
    n_queries, used = 0, False
    n = len(indptr) - 1
    for i in range(n):
        for a in range(indptr[i], indptr[i + 1]):
            k = position[a] - 1
            for b in range(a + 1, indptr[i + 1]):
                l = position[b] - 1  # noqa: E741  the formula's symbol
                if gain[k, l] > 0 or gain[l, k] > 0:
                    w = _weight(impressions[a], impressions[b], by_session)
                    up = gain[k, l] * clicks[a] / impressions[a]
                    down = gain[l, k] * clicks[b] / impressions[b]
                    flow = w * (up - down + offset[k, l])
                    u[k] += flow
                    u[l] -= flow
                    used = True
        if used and (i + 1 == n or query[i + 1] != query[i]):
            for k in range(depth):
                if u[k] != 0:
                    for l in range(depth):  # noqa: E741  the formula's symbol
                        M[k, l] += u[k] * u[l]
            u[:] = 0
            n_queries += 1
            used = False
    return M, n_queries


@nb.njit(cache=True)
def _by_session(cells: Cells, by_session: bool, gain: FloatArray, theta: FloatArray) -> FloatArray:
    indptr, position, impressions, clicks = cells
    depth = len(theta)
    M, v = np.zeros((depth, depth)), np.zeros(depth)
    for i in range(len(indptr) - 1):
        begin, end = indptr[i], indptr[i + 1]
        seen = 0.0
        for a in range(begin, end):
            seen += impressions[a] * theta[position[a] - 1]
        g = clicks[begin:end].sum() / seen
        for a in range(begin, end):
            k = position[a] - 1
            chance = min(theta[k] * g, 1.0)
            noise = chance * (1 - chance) / impressions[a]
            v[:] = 0
            for b in range(begin, end):
                if a != b:
                    l = position[b] - 1  # noqa: E741  the formula's symbol
                    push = gain[k, l] * _weight(impressions[a], impressions[b], by_session)
                    v[k] += push
                    v[l] -= push
            for b in range(begin, end):
                x = position[b] - 1
                for c in range(begin, end):
                    y = position[c] - 1
                    M[x, y] += v[x] * v[y] * noise
    return M
