"""Objectives on pairs: loss, gradient, hessian and the table of losses S[k, l].

For each pair of a slate, with x = s_i - s_j and weights w_ij = W[k_i, k_j] above_ij:

    loss     = delta (w_ij phi(x) + w_ji phi(-x))    phi(x) = log(1 + exp(-sigma x)) (logistic)
                                                     or max(0, 1 - x) (hinge)
    S[k, l] += delta above_ij phi(x)                 unweighted: what a joint weighting needs
    delta    = 1, or |D(rank_i) - D(rank_j)|         for lambdas: what a swap changes
                                                     (|dAP| in `MapObjective`)

delta is held fixed in the gradient, as lambdas are ([burges2006lambdarank]_).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.threads import Share, parallel_kernel
from untilt.data.limits import allow_table
from untilt.data.slates import shown_positions
from untilt.errors import OptionError, check_choice, check_least
from untilt.objectives import pair_kernels as kernels
from untilt.objectives.clicked_pairs import ClickedLists, sum_clicked_losses, sum_clicked_slopes
from untilt.objectives.pair_slates import PairSlates

# D(rank) by metric: nothing, 1/log2(1 + rank), or the rank itself.
DELTAS = {"none": 0, "dcg": 1, "ndcg": 1, "arp": 2}
LOSSES = {"logistic": 0, "hinge": 1}


@dataclass(frozen=True, eq=False)
class PairPass:
    """The result of one pass, gradient and hessian by document; `loss` is nan where not wanted."""

    gradient: FloatArray
    hessian: FloatArray
    loss: float


@dataclass(frozen=True, eq=False)
class PairObjective:
    """A pair loss over slates, for any table of pair weights.

    Parameters
    ----------
    slates : the summed pairs
    metric : "none", "dcg", "ndcg" or "arp"; "ndcg" differs from "dcg" in the norms of lists only
    loss : "logistic" or "hinge"
    sigma : steepness of the logistic loss
    pair_norm : divide a pair's gradient by 0.01 + |s_i - s_j|, so that pairs whose scores are far
        apart do not dominate (LightGBM's lambdarank_norm, its part that collapses)
    truncation : only pairs with at least one document ranked above this
    table : set by `with_table`: the weights, already multiplied into the summed pairs
    """

    slates: PairSlates
    metric: str = "ndcg"
    loss: str = "logistic"
    sigma: float = 1.0
    pair_norm: bool = False
    truncation: int | None = None
    table: FloatArray | None = None

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, tuple(DELTAS))
        check_pass(self.loss, self.sigma, self.truncation)

    def with_table(self, table: FloatArray, offset: FloatArray | None = None) -> "PairObjective":
        """The same objective with weights that will not change, multiplied into the pairs once.

        `offset` is the weight of every shown pair, clicked or not (`Weighting.offset`).
        """
        slates = self.slates
        above, below = slates.above.copy(), slates.below.copy()
        shift = np.zeros_like(table) if offset is None else offset
        kernels.multiply_table(
            len(slates.start), slates.indptr, slates.position_index, slates.start, slates.count,
            table, shift, above, below,
        )  # fmt: skip
        return replace(self, slates=replace(slates, above=above, below=below), table=table)

    def evaluate(
        self, scores: FloatArray, table: FloatArray | None = None, *, want_loss: bool = False
    ) -> PairPass:
        """One pass at these scores (one per document).

        `table` is W[k, l], all ones where not given; an objective `with_table` has its own.
        """
        fixed = self.table is not None
        weights = weights_of(self.table if fixed else table, self.slates)
        gradient, hessian, losses = empty_sums(self.slates)
        slates, clicked = (self.slates, None) if want_loss else self._parts
        if slates.n_slates:
            kernels.sum_slopes(
                len(slates.pair_blocks) - 1, *self._arguments(slates, scores), weights, fixed,
                self.pair_norm, want_loss, slates.in_order, gradient, hessian, losses,
            )  # fmt: skip
        if clicked is not None:
            sum_clicked_slopes(
                len(clicked.query_blocks) - 1, *self._clicked_arguments(clicked, scores), weights,
                self.pair_norm, gradient, hessian,
            )  # fmt: skip
        return PairPass(gradient, hessian, float(losses.sum()) if want_loss else float("nan"))

    def losses_by_position(self, scores: FloatArray) -> FloatArray:
        """S[k, l], which a joint weighting asks for, at a third of the cost of a pass.

        With `pair_norm` losses are divided as their slopes are.
        """
        slates, clicked = self._parts
        total = np.zeros((max(1, self.slates.depth),) * 2)
        of_clicks = None if clicked is None else clicked.query_blocks
        for shown, S in self._losses(scores, slates.pair_blocks, of_clicks):
            total[np.ix_(shown, shown)] += S.sum(axis=0)
        return total

    def losses_by_query(
        self, scores: FloatArray, at_once: int
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """The position indices that occur and S[query, k, l] for these, for some queries at a time.

        A query may come twice, with some of its lists each. Its S depend on its own lists alone.
        """
        slates, clicked = self._parts
        whole = slates.query_ptr
        for begin in range(0, len(whole) - 1, at_once):
            yield from self._losses(scores, whole[begin : begin + at_once + 1], None)
        queries = np.arange(0 if clicked is None else len(clicked.query_ptr))
        for begin in range(0, len(queries) - 1, at_once):
            yield from self._losses(scores, None, queries[begin : begin + at_once + 1])

    def _losses(
        self, scores: FloatArray, blocks: IntArray | None, query_blocks: IntArray | None
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """(positions, S[block, k, l]) of slates and of clicked lists, in these blocks of each."""
        assert self.table is None, "S is unweighted: ask the objective without a table"
        # Sums by block only for positions that occur: a single deep row costs no large table.
        slates, clicked = self._parts
        if blocks is not None:
            shown, number = shown_positions(slates.position_index)
            S = empty_table(len(blocks), max(1, len(shown)))
            arguments = list(self._arguments(slates, scores))
            arguments[1], arguments[4] = blocks, number
            kernels.sum_losses_by_position(len(S), *arguments, self.pair_norm, S)
            yield shown, S[:, : len(shown), : len(shown)]
        if clicked is not None and query_blocks is not None:
            shown, number = shown_positions(clicked.place)
            S = empty_table(len(query_blocks), max(1, len(shown)))
            arguments = list(self._clicked_arguments(clicked, scores))
            arguments[1], arguments[7] = query_blocks, number
            sum_clicked_losses(len(S), *arguments, self.pair_norm, S)
            yield shown, S[:, : len(shown), : len(shown)]

    @property
    def _parts(self) -> tuple[PairSlates, ClickedLists | None]:
        """Slates for each of the two ways to sum pairs: all of them, and those with few clicks."""
        if LOSSES[self.loss] != 0:
            return self.slates, None
        return self.slates.by_cost

    def _clicked_arguments(self, lists: ClickedLists, scores: FloatArray) -> tuple[Any, ...]:
        """The arguments that both kernels of clicked lists begin with."""
        return (
            np.ascontiguousarray(scores, dtype=np.float64), lists.query_blocks, lists.query_ptr,
            lists.document_ptr, lists.documents, lists.indptr, lists.row, lists.place,
            lists.clicked_ptr, lists.clicked, lists.gain, lists.scale, lists.largest,
            self.slates.plain, self.slates.against_all, float(self.sigma), self._discounts,
            self.truncation or np.iinfo(np.int64).max,
        )  # fmt: skip

    def _arguments(self, slates: PairSlates, scores: FloatArray) -> tuple[Any, ...]:
        """The arguments that both kernels of slates begin with."""
        return (
            np.ascontiguousarray(scores, dtype=np.float64), slates.pair_blocks, slates.indptr,
            slates.document, slates.position_index, slates.start, slates.above, slates.below,
            slates.gain, slates.scale, slates.plain, slates.against_all, float(self.sigma),
            self._discounts, LOSSES[self.loss], self.truncation or np.iinfo(np.int64).max,
        )  # fmt: skip

    @cached_property
    def _discounts(self) -> FloatArray:
        return rank_discounts(self.metric, self.slates.indptr)


@dataclass(frozen=True, eq=False)
class MapObjective:
    """The pair loss with |dAP|: what a swap changes depends on all labels of the list.

    With R relevant documents, cnt(r) of them at ranks 1..r, and

        m(r) = cnt(r)/r - sum of 1/r' over the relevant ranks r' <= r,     p(r) = m(r) + 1/r,

    swapping a relevant document at rank a with an irrelevant one at rank b changes average
    precision by

        |dAP| = (m(a) - m(b))/R    where a < b: precision is lost at a, won at b, and every relevant
                                   document between them loses 1/r
        |dAP| = (p(b) - p(a))/R    where b < a: the other way round

    so a pair costs one subtraction ([burges2010lambdamart]_). Because cnt takes in every label of
    the list, sessions with different clicks on one slate do not add up before the ranking is known:
    every distinct list is kept with its labels, and only equal lists are counted together.

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
                "⟦metric='map'⟧ cannot take an affine correction: swapping two documents of the "
                "same label changes nothing, so the correction would reach only some of the pairs. "
                "Use ⟦metric='dcg'⟧ with this weighting, or a bias without eps_plus and eps_minus."
            )
        return replace(self, table=table)

    def evaluate(
        self, scores: FloatArray, table: FloatArray | None = None, *, want_loss: bool = False
    ) -> PairPass:
        """One pass at these scores (one per document)."""
        table = table if self.table is None else self.table
        return self._pass(scores, table, None, want_loss=want_loss)

    def losses_by_position(self, scores: FloatArray) -> FloatArray:
        """S[k, l] of a pass without a table."""
        S = empty_table(len(self.slates.pair_blocks), max(1, self.slates.depth))
        self._pass(scores, None, S, want_loss=False)
        total: FloatArray = S.sum(axis=0)
        return total

    def _pass(
        self, scores: FloatArray, table: FloatArray | None, S: FloatArray | None, *, want_loss: bool
    ) -> PairPass:
        slates, want_S = self.slates, S is not None
        gradient, hessian, losses = empty_sums(slates)
        S = np.zeros((len(losses), 1, 1)) if S is None else S
        _sum_slopes(
            len(losses), np.ascontiguousarray(scores, dtype=np.float64), slates.pair_blocks,
            slates.indptr, slates.document, slates.position_index, slates.gain, slates.scale,
            weights_of(table, slates), float(self.sigma), LOSSES[self.loss], self.pair_norm,
            self.truncation or np.iinfo(np.int64).max, want_loss, want_S, gradient, hessian, S,
            losses,
        )  # fmt: skip
        return PairPass(gradient, hessian, float(losses.sum()) if want_loss else float("nan"))


def empty_sums(slates: PairSlates) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Gradient and hessian, which one block alone writes to for each document; loss by block."""
    n = slates.n_documents
    return np.zeros(n), np.zeros(n), np.zeros(len(slates.pair_blocks) - 1)


def empty_table(n_bounds: int, n_positions: int) -> FloatArray:
    """S[block, k, l] for blocks between so many bounds."""
    shape = n_bounds - 1, n_positions, n_positions
    allow_table("a table of pairs of positions for each block of lists", *shape)
    return np.zeros(shape)


def weights_of(table: FloatArray | None, slates: PairSlates) -> FloatArray:
    """The table as kernels want it; all ones where there is none."""
    if table is not None:
        return np.ascontiguousarray(table, dtype=float)
    return np.ones((max(1, slates.depth),) * 2)


def rank_discounts(metric: str, indptr: IntArray) -> FloatArray:
    """D(rank) for the 0-based ranks of these lists; empty where delta is 1 for every pair."""
    rank = np.arange(int(ragged.lengths(indptr).max(initial=0)), dtype=float)
    kind = DELTAS[metric]
    return np.zeros(0) if kind == 0 else 1 / np.log2(rank + 2) if kind == 1 else rank


def check_pass(loss: str, sigma: float, truncation: int | None) -> None:
    """Raise unless the loss, its steepness and the truncation make sense."""
    check_choice("loss", loss, tuple(LOSSES))
    if not sigma > 0:
        raise OptionError(f"sigma must be above 0. Got {sigma} instead.")
    if truncation is not None:
        check_least("truncation", truncation, 1, "; None takes all pairs")


@nb.njit(cache=True, inline="always")
def _swap_terms(
    rank: IntArray, relevant: FloatArray, at_rank: FloatArray, m: FloatArray, p: FloatArray
) -> float:
    """m and p of `MapObjective` for each row; returns R.

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


@parallel_kernel(fastmath=kernels.FASTMATH, error_model="numpy")
def _sum_slopes(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    position_index: IntArray, gain: FloatArray, scale: FloatArray, table: FloatArray,
    sigma: float, loss_kind: int, pair_norm: bool, truncation: int, want_loss: bool, want_S: bool,
    gradient: FloatArray, hessian: FloatArray, S: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    for block in range(mine[0], mine[1]):
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
                    if pair_norm:
                        delta = delta / (0.01 + abs(x))
                    if want_S:
                        S[block, k, l] += delta * scale[u] * phi
                    g[i] += slope * delta
                    h[i] += curve * delta
                    g[j] -= slope * delta
                    h[j] += curve * delta
            for i in range(length):
                gradient[document[begin + i]] += g[i]
                hessian[document[begin + i]] += h[i]
