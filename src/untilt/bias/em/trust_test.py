r"""A test for trust bias that compares documents within a query, whatever examination is there.

Without trust bias P(click on d at k) = theta_qk gamma_d: the table of documents and positions of a
query has rank one, so for two documents d, e that were both shown at k and at l

    p_dk p_el - p_dl p_ek = 0
    with trust bias       = (alpha_k beta_l - alpha_l beta_k) (gamma_d - gamma_e)

where theta may differ from query to query. Trust in the top (beta / alpha falls with the position)
makes it negative for k above l where d is the better one. The statistic of a query is

    T_q = sum over k < l, d, e  w_d w_e (p_dk p_el - p_dl p_ek) (p_dk + p_dl - p_ek - p_el)

with click rates for p and c (c - 1) / (n (n - 1)) for p^2, unbiased both: E T_q = 0 exactly. Errors
come from the spread of the queries alone. The shifts of `AffineCurves.relative` are no such test:
where readers of some queries look further down than those of others, documents scatter about the
lines more than clicks do by chance, and a mixture that knows chance alone turns the lines.
"""

from dataclasses import dataclass

import numba as nb
import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.statistics import effective_units
from untilt.data.counts import Cells, PositionCounts
from untilt.facts import Fact

# Impressions at which a document has half of the weight that it can have: beyond, relevances differ
# more than noise does, and one query with much traffic would decide the test.
HALF_WEIGHT = 10.0
# With fewer effective queries their spread cannot be known well enough.
FEWEST_EFFECTIVE = 4.0


@dataclass(frozen=True)
class TrustTest:
    """Student's t of the mean over queries, and its two-sided p-value.

    t : below 0 where the top is trusted: irrelevant documents get more clicks there than the
        position-based model allows; above 0 for the contrary
    n_queries : with two documents that were both shown at two positions
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
    T, weight = _sum_tetrads(cells.arrays, query, n_queries, cells.depth)
    used = weight > 0
    T, n, effective = T[used], int(used.sum()), effective_units(weight[used])
    squares = float(np.sum(T**2))
    if effective < FEWEST_EFFECTIVE or squares == 0:
        return TrustTest(float("nan"), float("nan"), n, effective)
    t = float(T.sum() / np.sqrt(squares))
    return TrustTest(t, float(2 * special.stdtr(effective - 1, -abs(t))), n, effective)


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
                    h = n * m / (n + m)
                    w = h / (h + HALF_WEIGHT)
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
