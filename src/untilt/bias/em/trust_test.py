r"""A test for trust bias that holds where queries differ in examination.

Without trust bias P(click on d at k) = theta_qk gamma_d, with it alpha_qk gamma_d + beta_qk. Two
statistics of each query have mean 0 in the first case, and are negative where the top is trusted
(beta / alpha falls with the position):

    T_q = sum over k < l, d, e  w_d w_e (p_dk p_el - p_dl p_ek) (p_dk + p_dl - p_ek - p_el)
    U_q = sum over k < l, d     w_d (p_dk - rho_kl p_dl) (z_d - z_kl)

T compares two documents of a query shown at the same two positions: (alpha_k beta_l - alpha_l
beta_k) (gamma_d - gamma_e)^2 (alpha_k + alpha_l) in the mean. With click rates for p and c (c - 1)
/ (n (n - 1)) for p^2 its mean is exactly 0 without trust bias, whatever theta is in the query. U
asks whether clicks at k against those at l, rho_kl in all, are fewer for documents that rankers put
high: z is minus the mean position, z_kl its mean over the clicks at l. It needs no second document,
but that queries with steep curves are not those where such documents stand at k and l.

The test is Student's t of both, each scaled by its own spread over the queries, U less where z does
not tell relevance. The shifts of
`AffineCurves.relative` are no such test: where readers of some queries look further down than those
of others, documents scatter about the lines more than clicks do by chance, and a mixture that knows
chance alone turns the lines.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.statistics import effective_units
from untilt.data.counts import Cells, PositionCounts
from untilt.facts import Fact

# Impressions at which a document has half of the weight that it can have: beyond, relevances differ
# more than noise does, and one query with much traffic would decide the test.
HALF_WEIGHT = 10.0
# Student's t of clicks on z at which U counts half.
HALF_TOLD = 3.0
# With fewer effective queries their spread cannot be known well enough.
FEWEST_EFFECTIVE = 4.0


@dataclass(frozen=True)
class TrustTest:
    """Student's t of the mean over queries, and its two-sided p-value.

    t : below 0 where the top is trusted: irrelevant documents get more clicks there than the
        position-based model allows; above 0 for the contrary
    n_queries : with documents that were shown at several positions
    effective_queries : as many of equal weight; t has one degree of freedom less
    """

    t: float
    p_value: float
    n_queries: int
    effective_queries: float

    @property
    def fact(self) -> Fact:
        """The result for a status."""
        if np.isnan(self.p_value):
            return Fact("bias.trust-untested", n_queries=self.n_queries)
        found = "untold" if self.p_value >= 0.05 else "found" if self.t < 0 else "contrary"
        return Fact(f"bias.trust-{found}", p_value=self.p_value, n_queries=self.n_queries)


def trust_test(cells: PositionCounts) -> TrustTest:
    """Test whether clicks of this log depend on position and relevance as a product alone."""
    query = np.unique(cells.query, return_inverse=True)[1]
    n_queries = int(query.max()) + 1 if len(query) else 0
    z = -cells.mean_position
    tetrads = _sum_tetrads(cells.arrays, query, n_queries, cells.depth)
    ratios = _sum_ratios(cells.arrays, query, z, n_queries, cells.depth)
    statistic, weight = np.zeros(n_queries), np.zeros(n_queries)
    for (values, own), part in ((tetrads, 1.0), (ratios, _told_by(cells, query, z))):
        squares = float(np.sum(values**2))
        if squares > 0:
            statistic += part * values / np.sqrt(squares)
            weight += part * own / own.sum()
    n, effective = int(np.sum(weight > 0)), effective_units(weight)
    if effective < FEWEST_EFFECTIVE or not statistic.any():
        return TrustTest(float("nan"), float("nan"), n, effective)
    t = float(statistic.sum() / np.sqrt(np.sum(statistic**2)))
    return TrustTest(t, float(2 * special.stdtr(effective - 1, -abs(t))), n, effective)


def _told_by(cells: PositionCounts, query: IntArray, z: FloatArray) -> float:
    """From 0 to 1, how surely documents with a high z are clicked more at the same position.

    In random order z says nothing about relevance, and U would be noise beside T.
    """
    owner, k, n = cells.document_index, cells.position_index, cells.impressions
    w = n / (n + HALF_WEIGHT)
    total = np.maximum(cells.by_position(w), 1e-300)
    high = z[owner] - (cells.by_position(w * z[owner]) / total)[k]
    more = cells.rate - (cells.by_position(w * cells.rate) / total)[k]
    by_query = sum_by(query[owner], w * high * more)
    squares = float(np.sum(by_query**2))
    t = max(float(by_query.sum()) / np.sqrt(squares), 0.0) if squares > 0 else 0.0
    return t / (t + HALF_TOLD)


@nb.njit(cache=True)
def _weight(n: float, m: float) -> float:
    h = n * m / (n + m)
    return h / (h + HALF_WEIGHT)


@nb.njit(cache=True)
def _sum_tetrads(
    cells: Cells, query: IntArray, n_queries: int, depth: int
) -> tuple[FloatArray, FloatArray]:
    """(queries,) T_q and the sum of its weights.

    With a, b the rates of a document at k, l and A, B their squares, a pair (d, e) has
    A_d b_e + a_d b_d b_e - a_d a_e b_e - a_d B_e and the same with d, e exchanged: sums over all
    documents, less those of a document with itself.
    """
    indptr, position, impressions, clicks = cells
    T, weight = np.zeros(n_queries), np.zeros(n_queries)
    begin = 0
    while begin < len(query):
        q, end = query[begin], begin
        while end < len(query) and query[end] == q:
            end += 1
        # Sums of w A, w B, w a b, w a, w b, w for each pair of positions.
        sums = np.zeros((6, depth, depth))
        for d in range(begin, end):
            for first in range(indptr[d], indptr[d + 1]):
                for second in range(first + 1, indptr[d + 1]):
                    n, m = impressions[first], impressions[second]
                    if n < 2 or m < 2:
                        continue
                    k, j = position[first] - 1, position[second] - 1
                    w = _weight(n, m)
                    a, b = clicks[first] / n, clicks[second] / m
                    A = a * (clicks[first] - 1) / (n - 1)
                    B = b * (clicks[second] - 1) / (m - 1)
                    sums[0, k, j] += w * A
                    sums[1, k, j] += w * B
                    sums[2, k, j] += w * a * b
                    sums[3, k, j] += w * a
                    sums[4, k, j] += w * b
                    sums[5, k, j] += w
                    T[q] -= w * w * (A * b + a * b * b - a * a * b - a * B)
                    weight[q] -= w * w
        for k in range(depth):
            for j in range(k + 1, depth):
                A, B, ab, a, b, w = sums[:, k, j]
                T[q] += A * b + ab * b - a * ab - a * B
                weight[q] += w * w
        if weight[q] < 1e-9:
            weight[q] = 0.0
        begin = end
    return T, weight


@nb.njit(cache=True)
def _sum_ratios(
    cells: Cells, query: IntArray, z: FloatArray, n_queries: int, depth: int
) -> tuple[FloatArray, FloatArray]:
    """(queries,) U_q and the sum of its weights."""
    indptr, position, impressions, clicks = cells
    U, weight = np.zeros(n_queries), np.zeros(n_queries)
    # Sums of w p_k, w p_l and w p_l z for each pair of positions.
    sums = np.zeros((3, depth, depth))
    for summing in (True, False):
        for d in range(len(query)):
            for first in range(indptr[d], indptr[d + 1]):
                for second in range(first + 1, indptr[d + 1]):
                    k, j = position[first] - 1, position[second] - 1
                    n, m = impressions[first], impressions[second]
                    w = _weight(n, m)
                    a, b = clicks[first] / n, clicks[second] / m
                    if summing:
                        sums[0, k, j] += w * a
                        sums[1, k, j] += w * b
                        sums[2, k, j] += w * b * z[d]
                    elif sums[0, k, j] > 0 and sums[1, k, j] > 0:
                        rho = sums[0, k, j] / sums[1, k, j]
                        U[query[d]] += w * (a - rho * b) * (z[d] - sums[2, k, j] / sums[1, k, j])
                        weight[query[d]] += w
    return U, weight
