"""Lambdas of average precision: what a swap changes depends on all labels of the list.

With R relevant documents, cnt(r) of them at ranks 1..r, and

    m(r) = cnt(r)/r - sum of 1/r' over the relevant ranks r' <= r,     p(r) = m(r) + 1/r,

swapping a relevant document at rank a with an irrelevant one at rank b changes average precision by

    |dAP| = (m(a) - m(b))/R    where a < b: precision is lost at a, won at b, and every relevant
                               document between them loses 1/r
    |dAP| = (p(b) - p(a))/R    where b < a: the other way round

so a pair costs one subtraction ([burges2010lambdamart]_). Because cnt takes in every label of the
list, sessions with different clicks on one slate do not add up before the ranking is known: every
distinct list is kept with its labels, and only equal lists are counted together.
"""

from dataclasses import dataclass, replace

import numba as nb
import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.errors import OptionError
from untilt.objectives import pair_kernels as kernels
from untilt.objectives.pair_slates import PairSlates
from untilt.objectives.pairs import (
    LOSSES,
    PairPass,
    check_pass,
    empty_sums,
    empty_table,
    weights_of,
)


@dataclass(frozen=True, eq=False)
class MapObjective:
    """The pair loss with |dAP|, in the shape of `PairObjective`.

    A document is relevant where its gain is above 0; how far above makes no difference. Pairs of
    the same label change nothing when swapped, so clicked x all pairs are clicked x unclicked ones
    here, and what makes a table exact for the former does not carry over.

    Parameters
    ----------
    slates : made with ``collapse=False``
    loss, sigma, pair_norm, truncation, table : as in `PairObjective`
    """

    slates: PairSlates
    loss: str = "logistic"
    sigma: float = 1.0
    pair_norm: bool = False
    truncation: int | None = None
    table: FloatArray | None = None

    def __post_init__(self) -> None:
        check_pass(self.loss, self.sigma, self.truncation)
        if np.any(self.slates.start >= 0):
            raise OptionError(
                "average precision needs the labels of every list, but these slates hold summed "
                "pairs. Make them with collapse=False."
            )

    def with_table(self, table: FloatArray, offset: FloatArray | None = None) -> "MapObjective":
        """The same objective with weights that will not change; lists keep their labels."""
        if offset is not None:
            raise OptionError(
                "metric='map' cannot take an affine correction: swapping two documents of the same "
                "label changes nothing, so the correction would reach only some of the pairs. Use "
                "metric='dcg' with this weighting, or a bias without eps_plus and eps_minus."
            )
        return replace(self, table=table)

    def evaluate(
        self, scores: FloatArray, table: FloatArray | None = None, *, want_loss: bool = False
    ) -> PairPass:
        """One pass at these scores (one per document)."""
        no_table = np.zeros((len(self.slates.pair_blocks) - 1, 1, 1))
        table = table if self.table is None else self.table
        return self._pass(scores, table, no_table, want_loss=want_loss, want_S=False)

    def losses_by_position(self, scores: FloatArray) -> FloatArray:
        """S[k, l] of a pass without a table."""
        S = empty_table(self.slates)
        self._pass(scores, None, S, want_loss=False, want_S=True)
        total: FloatArray = S.sum(axis=0)
        return total

    def _pass(
        self,
        scores: FloatArray,
        table: FloatArray | None,
        S: FloatArray,
        *,
        want_loss: bool,
        want_S: bool,
    ) -> PairPass:
        slates = self.slates
        gradient, hessian, losses = empty_sums(slates)
        _sum_slopes(
            np.ascontiguousarray(scores, dtype=np.float64), slates.pair_blocks, slates.indptr,
            slates.document, slates.position_index, slates.gain, slates.scale,
            weights_of(table, slates), float(self.sigma), LOSSES[self.loss], self.pair_norm,
            self.truncation or np.iinfo(np.int64).max, want_loss, want_S, gradient, hessian, S,
            losses,
        )  # fmt: skip
        return PairPass(gradient, hessian, float(losses.sum()) if want_loss else float("nan"))


@nb.njit(cache=True, inline="always")
def _swap_terms(
    rank: IntArray, relevant: FloatArray, at_rank: FloatArray, m: FloatArray, p: FloatArray
) -> float:
    """m and p of the module's formula for each row; returns R.

    `at_rank` is scratch space: whether the document at each rank is relevant, then m by rank.
    """
    length = len(rank)
    for i in range(length):
        at_rank[rank[i]] = relevant[i]
    count, harmonic = 0.0, 0.0
    for r in range(length):
        count += at_rank[r]
        harmonic += at_rank[r] / (r + 1.0)
        at_rank[r] = count / (r + 1.0) - harmonic
    for i in range(length):
        m[i] = at_rank[rank[i]]
        p[i] = m[i] + 1.0 / (rank[i] + 1.0)
    return count


@nb.njit(parallel=True, cache=True, fastmath=kernels.FASTMATH, error_model="numpy")
def _sum_slopes(
    scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    position_index: IntArray, gain: FloatArray, scale: FloatArray, table: FloatArray,
    sigma: float, loss_kind: int, pair_norm: bool, truncation: int, want_loss: bool, want_S: bool,
    gradient: FloatArray, hessian: FloatArray, S: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    for block in nb.prange(len(bounds) - 1):
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            s, e, rank = np.empty(length), np.empty(length), np.empty(length, np.int64)
            relevant, at_rank = np.empty(length), np.empty(length)
            m, p = np.empty(length), np.empty(length)
            g, h = np.zeros(length), np.zeros(length)
            for i in range(length):
                s[i] = scores[document[begin + i]]
                relevant[i] = 1.0 if gain[begin + i] > 0.0 else 0.0
            kernels.ranks_of(s, rank)
            R = _swap_terms(rank, relevant, at_rank, m, p)
            if R < 1 or length <= R:
                continue
            wide = kernels.exponentials(s, sigma, e)
            for i in range(length):
                if relevant[i] == 0.0:
                    continue
                k = position_index[begin + i]
                for j in range(length):
                    if relevant[j] > 0.0 or (rank[i] >= truncation and rank[j] >= truncation):
                        continue
                    l = position_index[begin + j]  # noqa: E741  the formula's symbol
                    delta = (m[i] - m[j] if rank[i] < rank[j] else p[j] - p[i]) / R
                    w_ij = scale[u] * table[k, l]
                    x, e_i, e_j = s[i] - s[j], e[i], e[j]
                    if wide:
                        e_i, e_j = kernels.pair_exponentials(sigma * x)
                    slope, curve = kernels.pair_slope(loss_kind, sigma, x, e_i, e_j, w_ij, 0.0)
                    if want_loss or want_S:
                        phi, _ = kernels.pair_phi(loss_kind, sigma, x, e_i, e_j)
                        losses[block] += delta * w_ij * phi
                        if want_S:
                            S[block, k, l] += delta * scale[u] * phi
                    if pair_norm:
                        delta = delta / (0.01 + abs(x))
                    g[i] += slope * delta
                    h[i] += curve * delta
                    g[j] -= slope * delta
                    h[j] += curve * delta
            for i in range(length):
                gradient[document[begin + i]] += g[i]
                hessian[document[begin + i]] += h[i]
