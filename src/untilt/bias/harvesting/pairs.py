"""Interventional sets: documents shown at two positions, summed over all pairs of positions.

S_kl holds the (query, document) shown at both k and l [agarwal2019estimating]_. With rate_k the
clicks per impression of such a document at k and w its weight,

    W[k, l] = sum over S_kl of w          C[k, l] = sum over S_kl of w rate_k

so that under the position-based model E C[k, l] = theta_k sum w gamma: C[k, l] / C[l, k] estimates
theta_k / theta_l whatever the relevance gamma.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.data.counts import PositionCounts
from untilt.errors import check_choice

WEIGHTS = ("session", "document")


@dataclass(frozen=True, eq=False)
class PairSums:
    """W and C, both (K, K) with a zero diagonal, of cells and a choice of weights."""

    weight: FloatArray
    clicked: FloatArray


def pair_sums(cells: PositionCounts, weight: str) -> PairSums:
    """Sums over all pairs of positions.

    weight="document": w = 1, each click at k weighs 1 / (times its document was shown at k).
    weight="session": w = n_k n_l / (n_k + n_l), Mantel and Haenszel's, so that a document seen a
    thousand times counts for more than one seen twice.
    """
    check_choice("weight", weight, WEIGHTS)
    W, C = _sums(
        cells.indptr,
        cells.position,
        cells.impressions,
        cells.clicks,
        cells.depth,
        weight == "session",
    )
    return PairSums(W, C)


def scores_by_query(
    cells: PositionCounts, weight: str, gain: FloatArray, offset: FloatArray
) -> tuple[FloatArray, int]:
    """Sum over queries of u u', and how many queries have a part in it.

    u_k = sum_l f_kl with f_kl = sum w (gain_kl rate_k - gain_lk rate_l + offset_kl), the query's
    part of the estimating equations; offset is antisymmetric, and gain 0 for pairs not used.
    """
    return _by_query(
        cells.indptr,
        cells.query,
        cells.position,
        cells.impressions,
        cells.clicks,
        cells.depth,
        weight == "session",
        gain,
        offset,
    )


def scores_by_session(
    cells: PositionCounts, weight: str, gain: FloatArray, theta: FloatArray
) -> FloatArray:
    """What `scores_by_query` is expected to be if sessions are all the noise there is.

    Clicks of a cell are binomial with probability theta_k g, where g = sum c / sum n theta over the
    cells of the document. Under the position-based model clicks at different places of a session
    are independent.
    """
    return _by_session(
        cells.indptr,
        cells.position,
        cells.impressions,
        cells.clicks,
        weight == "session",
        gain,
        theta,
    )


@nb.njit(cache=True)
def _weight(n_k: float, n_l: float, by_session: bool) -> float:
    return n_k * n_l / (n_k + n_l) if by_session else 1.0


@nb.njit(cache=True)
def _sums(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    depth: int,
    by_session: bool,
) -> tuple[FloatArray, FloatArray]:
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
    indptr: IntArray,
    query: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    depth: int,
    by_session: bool,
    gain: FloatArray,
    offset: FloatArray,
) -> tuple[FloatArray, int]:
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
def _by_session(
    indptr: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    by_session: bool,
    gain: FloatArray,
    theta: FloatArray,
) -> FloatArray:
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


# Standard errors of estimators that compare positions pair by pair.
#
# All of them solve J z = b, with z the log-ratios of examination and J the Laplacian of a graph
# over positions: z is a potential, and each pair of positions a wire. So the covariance is the
# sandwich J^-1 M J^-1, where M sums what each independent unit contributes to b.

# With fewer queries their spread says little: of 10 queries it is a third too small once in eleven
# times (chi-square with 9 degrees of freedom), of 20 once in fifty.
FEWEST_QUERIES = 20


@dataclass(frozen=True, eq=False)
class Doubt:
    """(K, K) covariance of the log-ratios, and the rule behind it."""

    covariance: FloatArray
    rule: str


@dataclass(frozen=True, eq=False)
class Flows:
    """How pairs of positions push the potentials; see `pair_sums.scores_by_query`.

    conductance : (K, K) weights of J's wires; gain, offset : (K, K)
    """

    conductance: FloatArray
    gain: FloatArray
    offset: FloatArray


def potentials(conductance: FloatArray, push: FloatArray) -> FloatArray:
    """z with J z = push and z_1 = 0, push one or several columns."""
    z = np.zeros_like(push, dtype=np.float64)
    z[1:] = np.linalg.solve(_grounded(conductance), push[1:])
    return z


def sandwich(conductance: FloatArray, M: FloatArray) -> FloatArray:
    """J^-1 M J^-1 with z_1 = 0 held fixed."""
    inverse = np.linalg.inv(_grounded(conductance))
    covariance = np.zeros_like(M)
    covariance[1:, 1:] = inverse @ M[1:, 1:] @ inverse
    return covariance


def doubt_of_pairs(cells: PositionCounts, weight: str, flows: Flows, theta: FloatArray) -> Doubt:
    """The doubt of an estimate from pairs of positions; see `larger`."""
    M, n = scores_by_query(cells, weight, flows.gain, flows.offset)
    noise = scores_by_session(cells, weight, flows.gain, theta)
    return larger(sandwich(flows.conductance, M), n, sandwich(flows.conductance, noise))


def larger(by_query: FloatArray, n_queries: int, by_session: FloatArray) -> Doubt:
    """At each position the larger of two errors, with the correlations of the second.

    Clustered by query: right whatever makes queries differ, if there are many. Under the model each
    query's part has mean 0, so the sum of squares estimates the variance; n / (n - 1) as usual.

    From sessions: right if the position-based model is, however few the queries are. Clustered
    errors alone covered the truth in 84% instead of 95% of logs with 25 queries (AdjacentChain,
    protocol `harvest`), because only a handful of them has documents at any two positions.
    """
    if n_queries < 2:
        return Doubt(by_session, "errors from session noise: one query alone")
    clustered = np.sqrt(np.diag(by_query) * n_queries / (n_queries - 1))
    sessions = np.sqrt(np.diag(by_session))
    factor = np.divide(clustered, sessions, out=np.ones_like(sessions), where=sessions > 0)
    factor = np.maximum(factor, 1)
    covariance = by_session * np.outer(factor, factor)
    few = ", too few to trust" if n_queries < FEWEST_QUERIES else ""
    return Doubt(
        covariance + np.diag(np.where(sessions > 0, 0, clustered**2)),
        f"errors the larger of clustered by query ({n_queries:,} queries{few}) and session noise",
    )


def _grounded(conductance: FloatArray) -> FloatArray:
    return (np.diag(conductance.sum(axis=1)) - conductance)[1:, 1:]
