"""Interventional sets: documents shown at two positions, summed over all pairs of positions.

S_kl holds the (query, document) shown at both k and l [agarwal2019estimating]_. With rate_k the
clicks per impression of such a document at k and w its weight,

    W[k, l] = sum over S_kl of w          C[k, l] = sum over S_kl of w rate_k

so that under the position-based model E C[k, l] = theta_k sum w gamma: C[k, l] / C[l, k] estimates
theta_k / theta_l whatever the relevance gamma.

Every estimator from pairs solves J z = b with z_k = log(theta_k / theta_1) and J the Laplacian of a
graph over positions. So its covariance is the sandwich J^-1 M J^-1, where M sums the squares of
what each independent unit, a query or a session, contributes to b. Queries with a good part of the
clicks pull z towards themselves: of these the squares are of what leaving each of them out changes.
Where the log says whose sessions they are, people are units as well: see `clustered_by_people`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.curve import SHARED_CLICKS
from untilt.bias.estimator import counts_to, require_several
from untilt.bias.log_ratios import (
    LARGE_SHARE,
    STAYS,
    Uncertainty,
    clustered_by_people,
    larger_error,
)
from untilt.data.clicklog import ClickLog
from untilt.data.counts import FEWEST_CLICKS, Cells, PositionCounts, cell_of_rows
from untilt.errors import IdentifiabilityError, check_choice
from untilt.facts import Fact, warning

FEW_CLICKS_SENTENCE = warning(
    "bias.few-clicks",
    "fewer than {fewer_than} clicks at {positions:positions}: rough intervals there",
)

WEIGHTS = ("session", "document")


@dataclass(frozen=True, eq=False)
class PairSums:
    """W and C, both (K, K) with a zero diagonal: sums over documents by pair of positions."""

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


@dataclass(frozen=True, eq=False)
class SessionNoise:
    """Session noise of linear functions of the estimating equations, (m, K) `inverse` of them.

    covariance : (m, m); parts : (K, m) of its diagonal, by the position of the clicks, below 0
    where clicks there count against it; effective : (m,) effective queries by their parts of it
    """

    covariance: FloatArray
    parts: FloatArray
    effective: FloatArray


def session_noise(
    cells: PositionCounts, weight: str, gain: FloatArray, theta: FloatArray, inverse: FloatArray
) -> SessionNoise:
    """What the squares of queries are expected to be if sessions are all the noise there is.

    Clicks of a cell are binomial with probability theta_k g, where g = sum c / sum n theta over the
    cells of the document. Under the position-based model clicks at different positions of a session
    are independent.
    """
    M, parts, signs, squares, _ = _by_session(
        cells.arrays, cells.query, weight == "session", gain, theta, inverse
    )
    total = np.diag(M)
    effective = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)
    return SessionNoise(M, np.where(signs < 0, -parts, parts), effective)


@dataclass(frozen=True, eq=False)
class PairEquations:
    """The estimating equations J z = b of an estimator from pairs, u = 0 summed over queries.

    u_k = sum_l f_kl with f_kl = sum w (gain_kl rate_k - gain_lk rate_l + offset_kl); offset is
    antisymmetric, and gain 0 for pairs not used.

    curvature : (K, K) weights of the Laplacian J; gain, offset : (K, K)
    """

    curvature: FloatArray
    gain: FloatArray
    offset: FloatArray


def solve_laplacian(curvature: FloatArray, b: FloatArray) -> FloatArray:
    """z with J z = b and z_1 = 0; b has one or several columns."""
    z = np.zeros_like(b, dtype=np.float64)
    z[1:] = _solved(curvature, b[1:])
    return z


def _solved(curvature: FloatArray, b: FloatArray) -> FloatArray:
    try:
        return np.asarray(np.linalg.solve(_laplacian(curvature), b), float)
    except np.linalg.LinAlgError as error:
        raise IdentifiabilityError(
            "some positions have so many more clicks than others that rounding hides the others, "
            "and the positions cannot be compared. Look at the counts in the log."
        ) from error


def inverse_laplacian(curvature: FloatArray) -> FloatArray:
    """J^-1 with z_1 = 0 held fixed: zeros in its row and column."""
    inverse = np.zeros_like(curvature, dtype=np.float64)
    inverse[1:, 1:] = _solved(curvature, np.eye(len(curvature) - 1))
    return inverse


def uncertainty_of_pairs(
    cells: PositionCounts,
    weight: str,
    equations: PairEquations,
    z: FloatArray,
    refit: Callable[[PairSums], FloatArray],
    log: ClickLog | None = None,
    cell_of_row: IntArray | None = None,
) -> Uncertainty:
    """(K, K) covariance of z = log(theta_k / theta_1); see `larger_error`.

    `refit` is z of the sums without one query; for the others J^-1 u is what leaving it out does.
    `log` : that the cells were counted in, for its people, and the cell of each row, -1 for none;
    that of its document and position where not given.
    """
    inverse = inverse_laplacian(equations.curvature)
    sums = pair_sums(cells, weight)
    M, n, large = _by_query(
        cells.arrays,
        cells.query,
        cells.depth,
        weight == "session",
        equations.gain,
        equations.offset,
        LARGE_SHARE * _clicks_used(sums, equations.gain),
    )
    by_query = inverse @ M @ inverse
    for first, last in large.tolist():
        change = (refit(without(cells, weight, sums, first, last)) - z) / (1 - STAYS)
        by_query += np.outer(change, change)
    noise = session_noise(cells, weight, equations.gain, np.exp(z), inverse)
    effective = noise.effective
    if log is not None:
        lost = influences_of_rows(cells, log, weight, equations, z, cell_of_row)
        by_query, effective = clustered_by_people(by_query, effective, log, lost)
    return larger_error(by_query, n, noise.covariance, effective, noise.parts)


def influences_of_rows(
    cells: PositionCounts, log: ClickLog, weight: str, equations: PairEquations, z: FloatArray,
    cell_of_row: IntArray | None = None,
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:  # fmt: skip
    """For each of the K, the lists of the rows, what they add to z, and their leverage.

    A row adds (y - theta_k g) push / n to z, g as in `session_noise`; leverage is the share of the
    session noise.
    """
    k, n, theta = cells.position_index, cells.impressions, np.exp(z)
    g = cells.by_document(cells.clicks) / np.maximum(cells.by_document(n * theta[k]), 1e-300)
    chance = np.minimum(theta[k] * g[cells.document_index], 1)
    if cell_of_row is None:
        cell_of_row = cell_of_rows(log, cells.document[cells.document_index], cells.position)
    rows = np.flatnonzero(cell_of_row >= 0)
    at, lists = cell_of_row[rows], ragged.list_of_row(log.indptr)[rows]
    count, gap = log.row_count[rows], log.label[rows] - chance[at]
    known = (cells.arrays, cells.query, weight == "session", equations.gain, theta)
    for row in inverse_laplacian(equations.curvature):
        push = _by_session(*known, row[None])[-1] / n
        noise = count * (chance * (1 - chance) * push**2)[at]
        yield lists, count * gap * push[at], noise / max(noise.sum(), 1e-300)


def without(cells: PositionCounts, weight: str, sums: PairSums, first: int, last: int) -> PairSums:
    """The sums with next to nothing left of documents first..last - 1, those of one query."""
    arrays = cells.arrays._replace(indptr=cells.indptr[first : last + 1])
    W, C = _sums(arrays, cells.depth, weight == "session")
    gone = 1 - STAYS
    return PairSums(sums.weight - gone * W, sums.clicked - gone * C)


def _clicks_used(sums: PairSums, gain: FloatArray) -> FloatArray:
    """(K,) weighted clicks at each position, over the pairs that are used."""
    return np.where((gain > 0) | (gain.T > 0), sums.clicked, 0.0).sum(axis=1)


def _laplacian(curvature: FloatArray) -> FloatArray:
    """J without the row and column of position 1."""
    return (np.diag(curvature.sum(axis=1)) - curvature)[1:, 1:]


def counts_of_pairs(log: ClickLog, depth: int | None) -> PositionCounts:
    """The counts of positions 1..depth, at least two of them; all of the log where not given."""
    cells = counts_to(log, depth)
    require_several(cells.depth)
    return cells


def click_evidence(cells: PositionCounts) -> list[Fact]:
    """Clicks on documents shown at several positions, and the positions where they are few."""
    several = np.repeat(np.diff(cells.indptr) > 1, np.diff(cells.indptr))
    clicks = cells.by_position(np.where(several, cells.clicks, 0.0))
    return [SHARED_CLICKS(clicks=float(clicks.sum())), *few_clicks(clicks)]


def few_clicks(clicks: FloatArray) -> list[Fact]:
    """A warning about the positions with fewer than 10 of these clicks, (K,), if there are any."""
    few = tuple((np.flatnonzero(clicks < FEWEST_CLICKS) + 1).tolist())
    return [FEW_CLICKS_SENTENCE(positions=few, fewer_than=FEWEST_CLICKS)] if few else []


@nb.njit(cache=True)
def _weight(n_k: float, n_l: float, by_session: bool) -> float:
    return n_k * n_l / (n_k + n_l) if by_session else 1.0


@nb.njit(cache=True, error_model="numpy")
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


@nb.njit(cache=True, error_model="numpy")
def _by_query(
    cells: Cells, query: IntArray, depth: int, by_session: bool, gain: FloatArray,
    offset: FloatArray, limit: FloatArray,
) -> tuple[FloatArray, int, IntArray]:  # fmt: skip
    """Squares of the queries below the limit of clicks everywhere; first and last of the others."""
    indptr, position, impressions, clicks = cells
    M, u, clicked = np.zeros((depth, depth)), np.zeros(depth), np.zeros(depth)
    n_queries, n_large, used, first = 0, 0, False, 0
    n = len(indptr) - 1
    large = np.empty((n, 2), dtype=np.int64)
    for i in range(n):
        for a in range(indptr[i], indptr[i + 1]):
            k = position[a] - 1
            for b in range(a + 1, indptr[i + 1]):
                l = position[b] - 1  # noqa: E741  the formula's symbol
                if gain[k, l] > 0 or gain[l, k] > 0:
                    w = _weight(impressions[a], impressions[b], by_session)
                    up = clicks[a] / impressions[a]
                    down = clicks[b] / impressions[b]
                    flow = w * (gain[k, l] * up - gain[l, k] * down + offset[k, l])
                    u[k] += flow
                    u[l] -= flow
                    clicked[k] += w * up
                    clicked[l] += w * down
                    used = True
        if i + 1 == n or query[i + 1] != query[i]:
            if used:
                n_queries += 1
                over = False
                for k in range(depth):
                    over |= clicked[k] > limit[k]
                if over:
                    large[n_large, 0], large[n_large, 1] = first, i + 1
                    n_large += 1
                else:
                    for k in range(depth):
                        if u[k] != 0:
                            for l in range(depth):  # noqa: E741  the formula's symbol
                                M[k, l] += u[k] * u[l]
            u[:] = 0
            clicked[:] = 0
            first, used = i + 1, False
    return M, n_queries, large[:n_large].copy()


@nb.njit(cache=True, error_model="numpy")
def _by_session(
    cells: Cells, query: IntArray, by_session: bool, gain: FloatArray, theta: FloatArray,
    inverse: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Covariance (m, m), its parts by position and their signs (K, m), squares by query (m,).

    Last (cells,) what the rate of each adds to the first of the m.
    """
    indptr, position, impressions, clicks = cells
    depth, m = len(theta), len(inverse)
    M, z, mine, squares = np.zeros((m, m)), np.zeros(m), np.zeros(m), np.zeros(m)
    parts, signs = np.zeros((depth, m)), np.zeros((depth, m))
    n, pushes = len(indptr) - 1, np.zeros(len(position))
    for i in range(n):
        begin, end = indptr[i], indptr[i + 1]
        seen, clicked = 0.0, 0.0
        for a in range(begin, end):
            seen += impressions[a] * theta[position[a] - 1]
            clicked += clicks[a]
        g = clicked / seen if seen > 0 else 0.0
        for a in range(begin, end):
            k = position[a] - 1
            chance = min(theta[k] * g, 1.0)
            noise = chance * (1 - chance) / impressions[a]
            z[:] = 0
            for b in range(begin, end):
                if a != b:
                    l = position[b] - 1  # noqa: E741  the formula's symbol
                    push = gain[k, l] * _weight(impressions[a], impressions[b], by_session)
                    if push != 0:
                        for x in range(m):
                            z[x] += push * (inverse[x, k] - inverse[x, l])
            pushes[a] = z[0]
            for x in range(m):
                part = noise * z[x] * z[x]
                mine[x] += part
                parts[k, x] += part
                signs[k, x] += noise * z[x]
                for y in range(m):
                    M[x, y] += noise * z[x] * z[y]
        if i + 1 == n or query[i + 1] != query[i]:
            for x in range(m):
                squares[x] += mine[x] * mine[x]
                mine[x] = 0.0
    return M, parts, signs, squares, pushes
