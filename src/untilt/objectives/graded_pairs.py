"""Pairs of graded labels that pull both ways: lambdas on a relevance that is known up to noise.

Each pair of a list, with x = s_i - s_j, labels mu and row weights w, has the loss

    delta w_i w_j (mu_i phi(x) + mu_j phi(-x)),    phi(x) = log(1 + exp(-sigma x)),

delta = |D(rank_i) - D(rank_j)| as in `pairs`. The scores of two documents settle where sigma x is
the log of the ratio of their labels, as they would with sessions in place of labels.

The weight of a pair is a product of what its two rows have, so that nothing is stored for pairs,
and a row is summed over all others in one loop that writes nothing: the processor does several
pairs at a time. That is each pair twice: 1.7 ms for 777 lists of 7 to 144 documents, where each
pair once with stored weights took 1.6 to 2.2 ms.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.threads import Share, parallel_kernel
from untilt.data.slates import Slates
from untilt.objectives.pair_kernels import FASTMATH, longest_of, pair_exponentials
from untilt.objectives.pairs import PairPass, check_metric, check_pass, rank_discounts

# Lists are filled up to a multiple of this with rows that weigh nothing: loops then have no rest
# that is done row by row. Measured with 777 lists of 18 to 30: 1.2 ms, 1.6 ms with 8.
_LANES = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class GradedSlates(Slates):
    """One list for each query, with a label and a weight for each row; equal scores rank in its
    order, and `count` is what the query weighs.
    """

    ROW_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.ROW_COLUMNS, "label", "weight")

    label: FloatArray
    weight: FloatArray


@dataclass(frozen=True, eq=False)
class GradedPairs:
    """Two-sided lambdas on graded labels; the options are those of `PairObjective`."""

    slates: GradedSlates
    metric: str = "ndcg"
    sigma: float = 1.0
    pair_norm: bool = False
    truncation: int | None = None

    def __post_init__(self) -> None:
        check_metric(self.metric)
        check_pass("logistic", self.sigma, self.truncation)

    def evaluate(self, scores: FloatArray) -> PairPass:
        """Gradient and hessian at these scores, one per document."""
        slates = self.slates
        gradient, hessian = np.zeros(slates.n_documents), np.zeros(slates.n_documents)
        # delta = always + |D - D'|, and a pair is divided by near + per |x|.
        always = 0.0 if len(self._discounts) else 1.0
        near, per = (0.01, 1.0) if self.pair_norm else (1.0, 0.0)
        _sum_slopes(
            len(self._blocks) - 1, np.ascontiguousarray(scores, dtype=np.float64), self._blocks,
            slates.indptr, slates.document, slates.label, slates.weight,
            np.asarray(slates.count, dtype=float), float(self.sigma), self._discounts, always,
            near, per, self.truncation or np.iinfo(np.int64).max, self._order, gradient, hessian,
        )  # fmt: skip
        return PairPass(gradient, hessian, float("nan"))

    @cached_property
    def _blocks(self) -> IntArray:
        return self.slates.blocks(ragged.lengths(self.slates.indptr) ** 2)

    @cached_property
    def _discounts(self) -> FloatArray:
        return rank_discounts(self.metric, self.slates.indptr)

    @cached_property
    def _order(self) -> IntArray:
        """Rows by the scores of the last call, where the next one begins to sort: boosting moves
        few documents at a time. What comes out does not depend on it.
        """
        return np.arange(len(self.slates.document))


@parallel_kernel(fastmath=FASTMATH, error_model="numpy")
def _sum_slopes(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    label: FloatArray, weight: FloatArray, count: FloatArray, sigma: float, discount: FloatArray,
    always: float, near: float, per: float, truncation: int, order: IntArray, gradient: FloatArray,
    hessian: FloatArray,
) -> None:  # fmt: skip
    for block in range(mine[0], mine[1]):
        longest = longest_of(bounds[block], bounds[block + 1], indptr)
        longest = (longest + _LANES - 1) // _LANES * _LANES
        s, e, d = np.zeros(longest), np.ones(longest), np.zeros(longest)
        gain, w = np.zeros(longest), np.zeros(longest)
        for u in range(bounds[block], bounds[block + 1]):
            n = indptr[u + 1] - indptr[u]
            if n < 2:
                continue
            own = order[indptr[u] : indptr[u + 1]]
            _sort(own, scores, document, s)
            wide = sigma * (s[0] - s[n - 1]) > 700.0
            middle = 0.5 * (s[0] + s[n - 1])
            for i in range(n):
                e[i] = 0.0 if wide else np.exp(sigma * (s[i] - middle))
                w[i] = weight[own[i]]
                gain[i] = w[i] * label[own[i]]
                if len(discount):
                    d[i] = discount[i]
            filled = (n + _LANES - 1) // _LANES * _LANES
            for i in range(n, filled):
                s[i], e[i], d[i], gain[i], w[i] = 0.0, 1.0, 0.0, 0.0, 0.0
            for i in range(n):
                others = filled if i < truncation else min(truncation, n)
                if wide:
                    slope, curve = _row_by_pairs(
                        i, sigma, always, near, per, s[:others], d[:others], gain[:others],
                        w[:others], s[i], d[i], gain[i], w[i],
                    )  # fmt: skip
                else:
                    slope, curve = _row(
                        always, near, per, s[:others], e[:others], d[:others], gain[:others],
                        w[:others], s[i], e[i], d[i], gain[i], w[i],
                    )  # fmt: skip
                    # The row beside itself pulls nowhere, but where delta is 1 it has a curve.
                    if i < truncation:
                        curve -= always * 0.5 * gain[i] * w[i] / near
                gradient[document[own[i]]] += count[u] * sigma * slope
                hessian[document[own[i]]] += count[u] * sigma * sigma * curve


@nb.njit(cache=True, nogil=True, inline="always")
def _sort(own: IntArray, scores: FloatArray, document: IntArray, s: FloatArray) -> None:
    """Rows by falling score, equal ones in their own order, by insertion; s takes the scores."""
    for i in range(len(own)):
        row = own[i]
        score = scores[document[row]]
        j = i
        while j > 0 and (s[j - 1] < score or (s[j - 1] == score and own[j - 1] > row)):
            s[j], own[j] = s[j - 1], own[j - 1]
            j -= 1
        s[j], own[j] = score, row


@nb.njit(cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def _row(
    always: float, near: float, per: float, s: FloatArray, e: FloatArray, d: FloatArray,
    gain: FloatArray, w: FloatArray, s_i: float, e_i: float, d_i: float, gain_i: float, w_i: float,
) -> tuple[float, float]:  # fmt: skip
    """Slope and curve of one row against all; e is exp(sigma s) up to a factor."""
    slope, curve = 0.0, 0.0
    for j in range(len(s)):
        both, distance = e_i + e[j], near + per * abs(s_i - s[j])
        inverse = 1.0 / (both * distance)  # one division for two
        delta, above, below = always + abs(d_i - d[j]), gain_i * w[j], gain[j] * w_i
        slope += delta * (below * e_i - above * e[j]) * inverse
        curve += delta * (above + below) * (e_i * inverse * distance) * (e[j] * inverse)
    return slope, curve


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _row_by_pairs(
    i: int, sigma: float, always: float, near: float, per: float, s: FloatArray, d: FloatArray,
    gain: FloatArray, w: FloatArray, s_i: float, d_i: float, gain_i: float, w_i: float,
) -> tuple[float, float]:  # fmt: skip
    """The same where scores lie too far apart for exp(sigma s)."""
    slope, curve = 0.0, 0.0
    for j in range(len(s)):
        if j == i or w[j] == 0.0:
            continue
        x = s_i - s[j]
        e_i, e_j = pair_exponentials(sigma * x)
        rho = e_j / (e_i + e_j)
        delta = (always + abs(d_i - d[j])) / (near + per * abs(x))
        above, below = gain_i * w[j], gain[j] * w_i
        slope += delta * (below * (1.0 - rho) - above * rho)
        curve += delta * (above + below) * rho * (1.0 - rho)
    return slope, curve
