r"""The curve of P(click) = theta_i gamma_d without a prior on gamma: for `bias_` of PBM and UBM.

A prior draws documents to their mean, and with them the curve: deep documents are worse than the
mean, so a position that shows them looks less examined than it is. Fitting every gamma_d freely
does no better with few sessions each (Neyman and Scott: as many parameters as documents). Here
gamma_d is taken out instead. With n and c the impressions and clicks of document d in condition i,

    pi_di = n_di theta_i / sum_j n_dj theta_j,      C_d = sum_i c_di,

the scores s_di = c_di - C_d pi_di have mean 0 whatever gamma_d is and however few sessions there
are, because E c_di = n_di theta_i gamma_d. Setting their sum over documents to 0 maximises

    sum_d (sum_i c_di log theta_i - C_d log sum_j n_dj theta_j)

which is concave in log theta: the likelihood of where a document's clicks fell given their number,
if clicks are rare, and an unbiased estimating equation if they are not.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba as nb
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from untilt._core import ascent
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt.data.counts import Cells, PositionCounts
from untilt.data.limits import allow_table

MOST_STEPS = 100
ENOUGH = 1e-7  # of all clicks: the largest score that is left
# Of the series that deletes a query. Where one query holds half of the evidence 10 terms give
# 99.9% of its sum, where it holds nine tenths 20 give 88%.
MOST_TERMS = 20


@dataclass(frozen=True, eq=False)
class ConditionalCurve:
    """Means of theta over conditions, one for each position, and what their errors rest on.

    log_mean : (K,)
    by_query : (queries, K) log_mean minus the same without the query
    by_session : (K, K) covariance of log_mean if sessions are all the noise there is
    weight : (queries, K) what each query adds to that variance
    click_parts : (K, K) what clicks at each position add; see `bias.log_ratios.Uncertainty`
    n_steps, residual : how the search ended; residual is the largest score left, of all clicks
    """

    log_mean: FloatArray
    by_query: FloatArray
    by_session: FloatArray
    weight: FloatArray
    click_parts: FloatArray
    n_steps: int
    residual: float


def comparable(counts: PositionCounts) -> BoolArray:
    """(conditions,) whether its ratio to the first has a maximum-likelihood estimate.

    That is so where clicks on shared documents join the two in both directions, over any others;
    and, with theta 0, where documents that were clicked in such a condition were shown and never
    clicked here.
    """
    # From a condition to the documents clicked there, and on to all conditions that show these.
    condition, document, n = counts.position_index, counts.document_index, counts.depth
    clicked = counts.clicks > 0
    begin = np.concatenate([condition[clicked], n + document])
    end = np.concatenate([n + document[clicked], condition])
    # 32 bits: csgraph of SciPy 1.11 takes no other indices.
    begin, end = begin.astype(np.int32), end.astype(np.int32)
    paths = csr_array((np.ones(len(begin)), (begin, end)), shape=(n + counts.n_documents,) * 2)
    _, part = connected_components(paths, directed=True, connection="strong")
    joined = part[:n] == part[0]
    never = counts.by_position(counts.clicks) == 0
    reached = np.zeros(counts.n_documents, dtype=bool)
    reached[document[clicked & joined[condition]]] = True
    beside = np.zeros(n, dtype=bool)
    beside[condition[reached[document]]] = True
    return (joined & ~never) | (never & beside)


def fit_curve(
    counts: PositionCounts, start: FloatArray, share: csr_array | None = None
) -> ConditionalCurve:
    """The curve, on the scale on which the first condition has theta = 1.

    Parameters
    ----------
    start : (conditions,) where the search begins
    share : (K, conditions) of which the curve is the mean, rows with sum 1, 0 for conditions that
        are not `comparable`; each condition alone where not given
    """
    clicks = counts.by_position(counts.clicks)
    use = comparable(counts) & (clicks > 0)
    fitted, cells = np.flatnonzero(use), counts.at_positions(use)
    query = np.unique(cells.query, return_inverse=True)[1]
    allow_table("what each query adds to each position", int(query[-1]) + 1, len(fitted), copies=5)
    z = np.log(np.maximum(start[fitted] / start[fitted[0]], 1e-3))
    end = _maximum(cells.arrays, z, clicks[fitted])
    theta = np.exp(end.x)
    score, noise = _scores(cells.arrays, query, int(query[-1]) + 1, theta)
    inverse = _inverse(_slope(cells.arrays, theta)[2])
    shares = (
        np.eye(counts.depth)[:, fitted] if share is None else share[:, fitted].toarray(order="F")
    )
    mean = shares @ theta
    slope = shares * theta / mean[:, None]
    weight, parts = _noise_parts(cells, query, len(score), theta, slope @ inverse)
    return ConditionalCurve(
        log_mean=np.log(mean),
        by_query=_deleted(cells, query, theta, score, inverse) @ slope.T,
        by_session=slope @ inverse @ noise @ inverse @ slope.T,
        weight=weight,
        click_parts=(shares > 0) @ parts,
        n_steps=end.steps,
        residual=end.residual,
    )


class _Point(NamedTuple):
    value: float
    gradient: FloatArray
    information: FloatArray


def _maximum(cells: Cells, z: FloatArray, clicks: FloatArray) -> ascent.Maximum:
    """The z of the highest value; z_1 = 0."""

    def function(z: FloatArray) -> _Point:
        logs, expected, information = _slope(cells, np.exp(z))
        return _Point(float(np.sum(clicks * z)) - logs, clicks - expected, information)

    return ascent.maximise(
        function,
        lambda _, here: _inverse(here.information) @ here.gradient,
        z,
        scale=float(clicks.sum()),
        tolerance=ENOUGH,
        max_steps=MOST_STEPS,
        largest=2.0,
    )


def _inverse(information: FloatArray) -> FloatArray:
    """Of a Laplacian with the first condition held fixed: its row and column are 0."""
    inverse = np.zeros_like(information)
    inverse[1:, 1:] = np.linalg.inv(information[1:, 1:])
    return inverse


def _deleted(
    cells: PositionCounts,
    query: IntArray,
    theta: FloatArray,
    score: FloatArray,
    inverse: FloatArray,
) -> FloatArray:
    r"""(queries, conditions) log theta minus the same without the query.

    One Newton step without query q moves z by -(J - J_q)^-1 s_q: the jackknife, and like it too
    large rather than too small where a query holds much of the evidence. As a series,
    x = J^-1 s_q + J^-1 J_q J^-1 s_q + ..., which needs J_q only times a vector.
    """
    owner, i, n = cells.document_index, cells.position_index, cells.n_documents
    clicks, _, pi = _exposures(cells, theta)
    at, unit = query[owner] * len(theta) + i, query[owner]
    term = score @ inverse
    total = term.copy()
    for _ in range(MOST_TERMS):
        x = term[unit, i]
        product = clicks[owner] * pi * (x - sum_by(owner, pi * x, n)[owner])
        term = sum_by(at, product, term.size).reshape(term.shape) @ inverse
        total += term
        if np.abs(term).max() <= 0.01 * np.abs(total).max():
            break
    return total


@nb.njit(cache=True)
def _exposure(cells: Cells, d: int, theta: FloatArray) -> tuple[float, float]:
    """C_d and sum_j n_dj theta_j."""
    clicks, exposure = 0.0, 0.0
    for a in range(cells.indptr[d], cells.indptr[d + 1]):
        clicks += cells.clicks[a]
        exposure += cells.impressions[a] * theta[cells.position[a] - 1]
    return clicks, exposure


@nb.njit(cache=True)
def _variance(impressions: Any, theta: Any, clicks: Any, exposure: Any) -> Any:
    """n p (1 - p) with p = theta (C_d + 1/2) / (E_d + 1).

    The halves because a document that was clicked each of two times is not free of noise.
    """
    p = np.minimum(theta * (clicks + 0.5) / (exposure + 1.0), 1.0)
    return impressions * p * (1.0 - p)


@nb.njit(cache=True)
def _slope(cells: Cells, theta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """sum_d C_d log E_d, sum_d C_d pi_d, and sum_d C_d (diag(pi_d) - pi_d pi_d')."""
    logs, expected = 0.0, np.zeros(len(theta))
    information = np.zeros((len(theta), len(theta)))
    for d in range(len(cells.indptr) - 1):
        clicks, exposure = _exposure(cells, d, theta)
        if clicks == 0:
            continue
        logs += clicks * np.log(exposure)
        for a in range(cells.indptr[d], cells.indptr[d + 1]):
            i = cells.position[a] - 1
            here = clicks * cells.impressions[a] * theta[i] / exposure
            expected[i] += here
            for b in range(cells.indptr[d], cells.indptr[d + 1]):
                if b != a:
                    j = cells.position[b] - 1
                    both = here * cells.impressions[b] * theta[j] / exposure
                    information[i, i] += both
                    information[i, j] -= both
    return logs, expected, information


@nb.njit(cache=True)
def _scores(
    cells: Cells, query: IntArray, n_queries: int, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """s_q of each query, and the variance of all scores if clicks are binomial given gamma_d.

    s_d = (I - pi_d 1') c_d has the variance V - pi v' - v pi' + (1' v) pi pi' with
    V = diag(v), v_i = n_i p_i (1 - p_i); see `_variance`.
    """
    score, noise = np.zeros((n_queries, len(theta))), np.zeros((len(theta), len(theta)))
    pi, v = np.zeros(len(theta)), np.zeros(len(theta))
    for d in range(len(cells.indptr) - 1):
        clicks, exposure = _exposure(cells, d, theta)
        if clicks == 0:
            continue
        all_v = 0.0
        for a in range(cells.indptr[d], cells.indptr[d + 1]):
            i = cells.position[a] - 1
            pi[i] = cells.impressions[a] * theta[i] / exposure
            v[i] = _variance(cells.impressions[a], theta[i], clicks, exposure)
            all_v += v[i]
            score[query[d], i] += cells.clicks[a] - clicks * pi[i]
        for a in range(cells.indptr[d], cells.indptr[d + 1]):
            i = cells.position[a] - 1
            noise[i, i] += v[i]
            for b in range(cells.indptr[d], cells.indptr[d + 1]):
                j = cells.position[b] - 1
                noise[i, j] += all_v * pi[i] * pi[j] - pi[i] * v[j] - v[i] * pi[j]
    return score, noise


def _noise_parts(
    cells: PositionCounts, query: IntArray, n_queries: int, theta: FloatArray, rows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What clicks add to the variance of each estimate, by query and by their condition.

    A click on d in condition i moves estimate k by g_ki - g_k . pi_d with g_k the rows
    (K, conditions) of slope J^-1; clicks vary by v as in `_scores`. (queries, K), and
    (conditions, K), the latter below 0 where more clicks make the estimate smaller.
    """
    owner, i, n = cells.document_index, cells.position_index, cells.n_documents
    clicks, exposure, pi = _exposures(cells, theta)
    variance = _variance.py_func(cells.impressions, theta[i], clicks[owner], exposure[owner])
    v = variance * (clicks > 0)[owner]
    weight, parts = [], []
    for row in rows:
        moved = row[i] - sum_by(owner, pi * row[i], n)[owner]
        square, direction = moved * moved * v, sum_by(i, moved * v, len(theta))
        weight.append(sum_by(query[owner], square, n_queries))
        parts.append(np.sign(direction) * sum_by(i, square, len(theta)))
    return np.column_stack(weight), np.column_stack(parts)


def _exposures(cells: PositionCounts, theta: FloatArray) -> tuple[FloatArray, ...]:
    """(documents,) C_d and E_d = sum_j n_dj theta_j, and (cells,) pi."""
    owner, shown = cells.document_index, cells.impressions * theta[cells.position_index]
    exposure = sum_by(owner, shown, cells.n_documents)
    return sum_by(owner, cells.clicks, cells.n_documents), exposure, shown / exposure[owner]
