r"""Losses beside the logistic pair loss.

Of linear rankers, the hinge and two bounds on DCG.

*Weighted pairwise hinge*, with its most violated constraint:

    loss = sum over pairs of w_ij max(0, 1 - (s_i - s_j))

Where the weight of a pair is a product of one number per side or a difference of two,

    w_ij = strength_i (up_i - down_j)   for level_i > level_j,

all pairs with s_i - s_j < 1 are found by one sort and running sums, O(n log n) per list
([joachims2006linear]_ does so for plain pairs). Tables of pair weights that depend on both
positions have no such form: `PairHinge` visits every pair.

*Lower bounds on DCG*. The rank of a document is at most

    R_i = 1 + sum_{j != i} b(s_i - s_j),   b(x) = log2(1 + exp(-sigma x)) >= 1[x <= 0]

(`DcgBound`, smooth), or with the hinge b(x) = max(0, 1 - x) (`HingeDcgBound`),
and 1/log2(1 + rank) falls with the rank, so that with weights r_i (clicks over propensity)

    sum_i r_i / log2(1 + R_i)  <=  sum_i r_i / log2(1 + rank_i) = DCG

([agarwal2019framework]_; "additive metrics" in [oosterhuis2020tutorial]_). The bound is close for
documents near the top, where a click counts most, and loose for a document far below others, since
b grows with the distance. It is not concave: a start at 0 finds a local optimum.

With the hinge, R_i is convex and piecewise linear in the scores, and phi(R) = 1 - 1/log2(1 + R)
rises and is concave. So phi lies below each of its tangents, and at any scores t

    sum_i r_i phi(R_i)  <=  sum_i r_i [phi(R_i(t)) + phi'(R_i(t)) (R_i - R_i(t))]

with equality at t. The right side is a ranking SVM with the weights r_i phi'(R_i(t)): convex. To
minimise it, take the new scores for t and begin again is the convex-concave procedure
([yuille2003cccp]_); the left side falls or stays at every step.

Of clicks by document or by list, the position-based likelihood and weighted losses.

The weighted ones weigh a click and a no-click apart: up_k is the weight of a click at position k
and down_k that of a shown document without one. They are 1/theta and theta for propensity ratios
([wang2020prs]_ section 6), 1/theta and 1 for IPS, 1 and 1 for raw clicks.

*By document*, weighted cross-entropy:

    sum over clicked of up_k log(1 + exp(-s)) + sum over unclicked of down_k log(1 + exp(s))

with one constant added to all scores, the best one. Of examination alone (relevance r is 0 or 1, a
document is clicked if it is relevant and examined) its expectation with propensity ratios is

    sum over relevant of log(1 + exp(-s)) + sum over irrelevant of theta log(1 + exp(s))
    + sum over relevant of theta (1 - theta) log(1 + exp(s))

the last of which is what theta cannot see, as for pairs.

*By list*, each clicked document against the unclicked ones of its session:

    sum over clicked i of up_i log(1 + sum over unclicked j of down_j exp(s_j - s_i))

a softmax whose other documents count as far as they were examined. With o_j in place of theta_j it
is in expectation the loss of every relevant document against examined irrelevant ones, nothing
else; log(1 + x) is concave, so that with theta_j it is no less than that.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.ascent import short_steps
from untilt._core.threads import ParallelKernel, Share, parallel_kernel
from untilt.data.counts import PositionCounts
from untilt.data.slates import Slates
from untilt.errors import OptionError
from untilt.objectives.pair_slates import PairSlates, RowSlates
from untilt.objectives.pairs import PairObjective

# The position-based model as a pointwise likelihood: c ~ Bernoulli(alpha_k sigmoid(f) + beta_k).
#
# Without trust bias alpha = theta and beta = 0. Clicks are summed by cell (document, position) with
# n impressions and c clicks. With g = sigmoid(f), p = alpha g + beta and p' = alpha g (1 - g),
#
#     d loss/df = -(c - n p) p' / (p (1 - p)),   Fisher information = n p'^2 / (p (1 - p)).
#
# Fisher's information stands in for the hessian: it is never negative ([wang2018regression]_ has
# the same model, fitted by EM).

# p is kept this far from 0 and 1, so that one impossible click cannot make the loss infinite.
_EDGE = 1e-9


@dataclass(frozen=True, eq=False)
class PbmLikelihood:
    """Negative log-likelihood of the clicks, its gradient and information, per document.

    Parameters
    ----------
    counts : clicks and impressions, which may be weighted sessions
    alpha, beta : (positions,) the affine curves of the bias
    """

    counts: PositionCounts
    alpha: FloatArray
    beta: FloatArray

    @cached_property
    def _document(self) -> IntArray:
        return self.counts.document_index

    @cached_property
    def _curves(self) -> tuple[FloatArray, FloatArray]:
        """alpha and beta of each cell."""
        return self.alpha[self.counts.position_index], self.beta[self.counts.position_index]

    def click_probability(self, scores: FloatArray) -> FloatArray:
        """p of each cell."""
        alpha, beta = self._curves
        return alpha * sigmoid(scores[self._document]) + beta

    def loss(self, scores: FloatArray) -> float:
        """- sum c log p + (n - c) log(1 - p)."""
        p = np.clip(self.click_probability(scores), _EDGE, 1 - _EDGE)
        c, n = self.counts.clicks, self.counts.impressions
        return float(-np.sum(c * np.log(p) + (n - c) * np.log1p(-p)))

    def gradient(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(gradient, information), one entry per document."""
        (alpha, beta), c, n = self._curves, self.counts.clicks, self.counts.impressions
        g = sigmoid(scores[self._document])
        p = np.clip(alpha * g + beta, _EDGE, 1 - _EDGE)
        slope = alpha * g * (1 - g)
        inverse_variance = 1 / (p * (1 - p))
        by_cell = -(c - n * p) * slope * inverse_variance, n * slope**2 * inverse_variance
        gradient, information = (
            sum_by(self._document, values, self.counts.n_documents) for values in by_cell
        )
        return gradient, information

    def base_score(self) -> float:
        """The one score for all documents that fits the clicks best, by Newton's method."""
        score, n_documents = 0.0, self.counts.n_documents
        for _ in range(50):
            gradient, information = self.gradient(np.full(n_documents, score))
            step = gradient.sum() / max(float(information.sum()), 1e-12)
            score = float(np.clip(score - np.clip(step, -2, 2), -8, 8))
            if abs(step) < 1e-8:
                break
        return score


def _summed(
    kernel: ParallelKernel, lists: Slates, scores: FloatArray, *more: Any
) -> tuple[float, FloatArray]:
    """A loss over lists and its gradient by document, by a kernel that goes through them."""
    blocks = lists.blocks(ragged.lengths(lists.indptr))
    gradient, losses = np.zeros(lists.n_documents), np.zeros(len(blocks) - 1)
    s = np.ascontiguousarray(scores, dtype=np.float64)
    kernel(len(losses), s, blocks, lists.indptr, lists.document, *more, gradient, losses)
    return float(losses.sum()), gradient


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x, dtype=float)))


@dataclass(frozen=True, eq=False)
class SidedPointwise:
    """Weighted cross-entropy; sessions collapse to two sums per document.

    Parameters
    ----------
    won, lost : (documents,) summed weights of clicks, and of impressions without one
    """

    won: FloatArray
    lost: FloatArray

    @classmethod
    def of(cls, counts: PositionCounts, up: FloatArray, down: FloatArray) -> "SidedPointwise":
        """From clicks and impressions by document and position."""
        k, n = counts.position_index, counts.n_documents
        return cls(
            won=sum_by(counts.document_index, counts.clicks * up[k], n),
            lost=sum_by(counts.document_index, (counts.impressions - counts.clicks) * down[k], n),
        )

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The loss and its gradient, one entry per document, at the best constant."""
        s = scores + self._constant(scores)
        loss = self.won @ np.logaddexp(0.0, -s) + self.lost @ np.logaddexp(0.0, s)
        # The best constant has slope 0, so the gradient is that at a fixed one.
        return float(loss), self.lost * sigmoid(s) - self.won * sigmoid(-s)

    def _constant(self, scores: FloatArray) -> float:
        """Where the loss, convex in a constant that is added to all scores, is least."""
        total, won = self.won + self.lost, self.won.sum()

        def newton_step(constant: float) -> float:
            g = sigmoid(scores + constant)
            return float((won - total @ g) / max(total @ (g * (1 - g)), 1e-300))

        return float(short_steps(newton_step, 0.0, largest=2.0, enough=1e-12, max_steps=200))


@dataclass(frozen=True, eq=False)
class SidedListwise:
    """The softmax of clicked against unclicked documents, list by list.

    Which documents compete depends on the clicks of a session, so distinct lists with their clicks
    are kept, and only equal ones are counted together.

    Parameters
    ----------
    lists : shown lists, `count` how much each weighs
    clicked : (rows,) 1 or 0; of judged documents how much they count as clicked
    up, down : (positions,)
    """

    lists: Slates
    clicked: FloatArray
    up: FloatArray
    down: FloatArray

    @property
    def total(self) -> float:
        """The weight of all clicks."""
        rows = self.up[self.lists.position_index] * self.clicked
        return float(self.lists.count @ ragged.sums_by_list(self.lists.indptr, rows))

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The loss and its gradient, one entry per document."""
        lists = self.lists
        return _summed(
            _list_pass, lists, scores, lists.position_index, lists.count.astype(np.float64),
            self.clicked, self.up, np.log(self.down),
        )  # fmt: skip


@parallel_kernel()
def _list_pass(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    position_index: IntArray, count: FloatArray, clicked: FloatArray, up: FloatArray,
    log_down: FloatArray, gradient: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    for block in range(mine[0], mine[1]):
        for u in range(bounds[block], bounds[block + 1]):
            begin, end = indptr[u], indptr[u + 1]
            largest = -np.inf
            for j in range(begin, end):
                if clicked[j] == 0.0:
                    y = scores[document[j]] + log_down[position_index[j]]
                    largest = max(largest, y)
            if largest == -np.inf:
                continue
            total = 0.0
            for j in range(begin, end):
                if clicked[j] == 0.0:
                    y = scores[document[j]] + log_down[position_index[j]]
                    total += np.exp(y - largest)
            others = largest + np.log(total)  # log of the weighted sum of the unclicked
            pulled = 0.0
            for i in range(begin, end):
                if clicked[i] > 0.0:
                    x = others - scores[document[i]]
                    w = count[u] * clicked[i] * up[position_index[i]]
                    e = np.exp(-abs(x))
                    losses[block] += w * (max(x, 0.0) + np.log1p(e))
                    slope = w * (1.0 if x > 0.0 else e) / (1.0 + e)
                    gradient[document[i]] -= slope
                    pulled += slope
            if pulled > 0.0:
                for j in range(begin, end):
                    if clicked[j] == 0.0:
                        y = scores[document[j]] + log_down[position_index[j]]
                        gradient[document[j]] += pulled * np.exp(y - others)


@dataclass(frozen=True, eq=False)
class SortedHinge:
    """Lists whose pair weights factor.

    Parameters
    ----------
    slates : with the slates of a query side by side
    strength, up : (rows,) of a row on the winning side
    down : (rows,) of a row on the losing side
    wins, loses : (rows,) levels: i is set above j where wins_i > loses_j; loses >= 1
    against_self : True where wins_i > loses_i may hold, so that a row must be kept from itself
    """

    slates: Slates
    strength: FloatArray
    up: FloatArray
    down: FloatArray
    wins: IntArray
    loses: IntArray
    against_self: bool

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The loss and its gradient, one entry per document."""
        return _summed(
            _sorted_pass, self.slates, scores, self.strength, self.up, self.down, self.wins,
            self.loses, self.against_self,
        )  # fmt: skip


def hinge_against_all(slates: RowSlates) -> SortedHinge:
    """Every document with its weight against every other document of the slate."""
    n = len(slates.document)
    return SortedHinge(
        slates,
        strength=slates.weight,
        up=np.ones(n),
        down=np.zeros(n),
        wins=np.where(slates.weight > 0, 2, 1),
        loses=np.ones(n, dtype=np.int64),
        against_self=True,
    )


def hinge_by_labels(slates: PairSlates, row_weight: FloatArray) -> SortedHinge:
    """Larger against smaller labels, for lists that keep labels and W[k, l] = row_weight[k]."""
    owner = ragged.list_of_row(slates.indptr)
    order = np.lexsort((slates.gain, owner))
    gain, slate = slates.gain[order], owner[order]
    new_level = np.concatenate([[True], (gain[1:] != gain[:-1]) | (slate[1:] != slate[:-1])])
    level = np.empty(len(order), dtype=np.int64)
    counted = np.cumsum(new_level)
    starts = slates.indptr[:-1][ragged.lengths(slates.indptr) > 0]
    level[order] = counted - np.repeat(counted[starts] - 1, np.bincount(owner)[slate[starts]])
    plain = slates.plain
    return SortedHinge(
        slates,
        strength=slates.scale[owner] * row_weight[slates.position_index],
        up=np.ones(len(order)) if plain else slates.gain,
        down=np.zeros(len(order)) if plain else slates.gain,
        wins=level,
        loses=level,
        against_self=False,
    )


@dataclass(frozen=True, eq=False)
class PairHinge:
    """Every pair of every slate, for tables that depend on both positions: O(n^2) per list."""

    objective: PairObjective

    @classmethod
    def of(cls, slates: PairSlates, table: FloatArray, offset: FloatArray | None) -> "PairHinge":
        """With this table, and the offset of an affine correction."""
        return cls(PairObjective(slates, metric="none", loss="hinge").with_table(table, offset))

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The loss and its gradient, one entry per document."""
        result = self.objective.evaluate(scores, want_loss=True)
        return result.loss, result.gradient


@dataclass(frozen=True, eq=False)
class DcgBound:
    """The bound over slates, for any scores.

    Parameters
    ----------
    slates : with a weight r_i per row
    sigma : steepness of b: larger is closer to the step for documents that are above, and punishes
        those that are below harder
    """

    slates: RowSlates
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise OptionError(f"sigma must be above 0. Got {self.sigma} instead.")

    def evaluate(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The bound and its gradient, one entry per document."""
        return _summed(_bound_pass, self.slates, scores, self.slates.weight, float(self.sigma))

    @property
    def best(self) -> float:
        """What no scores can pass: every document with a positive weight at rank 1."""
        return float(np.maximum(self.slates.weight, 0).sum())


@dataclass(frozen=True, eq=False)
class HingeDcgBound:
    """sum_i r_i phi(R_i) with the hinge bound on ranks; what a DCG of all at rank 1 is short of.

    Parameters
    ----------
    slates : with a weight r_i >= 0 per row
    """

    slates: RowSlates

    def ranks(self, scores: FloatArray) -> FloatArray:
        """(rows,) R_i, which no rank exceeds, ties counted against the document."""
        slates = self.slates
        ranks = np.ones(len(slates.document))
        s = np.ascontiguousarray(scores, dtype=np.float64)
        blocks = slates.row_blocks
        _hinge_ranks(len(blocks) - 1, s, blocks, slates.indptr, slates.document, ranks)
        return ranks

    def loss(self, scores: FloatArray) -> float:
        """sum_i r_i (1 - 1/log2(1 + R_i))."""
        return float(self.slates.weight @ (1 - 1 / np.log2(1 + self.ranks(scores))))

    def tangent(self, scores: FloatArray) -> SortedHinge:
        """The weighted hinge whose slope at these scores is that of the loss.

        Plus a constant it touches the loss here, and lies at or above it everywhere.
        """
        after = 1 + self.ranks(scores)
        slope = np.log(2.0) / (after * np.log(after) ** 2)
        return hinge_against_all(replace(self.slates, weight=self.slates.weight * slope))


@nb.njit(cache=True, inline="always")
def _add(tree: FloatArray, level: int, first: float, second: float) -> None:
    """Add to a level of a Fenwick tree of two sums."""
    while level < len(tree):
        tree[level, 0] += first
        tree[level, 1] += second
        level += level & -level


@nb.njit(cache=True, inline="always")
def _upto(tree: FloatArray, level: int) -> tuple[float, float]:
    """Both sums over the levels 1..level."""
    first, second = 0.0, 0.0
    while level > 0:
        first += tree[level, 0]
        second += tree[level, 1]
        level -= level & -level
    return first, second


@parallel_kernel()
def _sorted_pass(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    strength: FloatArray, up: FloatArray, down: FloatArray, wins: IntArray, loses: IntArray,
    against_self: bool, gradient: FloatArray, losses: FloatArray,
) -> None:  # fmt: skip
    for block in range(mine[0], mine[1]):
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            s, g = np.empty(length), np.zeros(length)
            top = 1
            for i in range(length):
                s[i] = scores[document[begin + i]]
                top = max(top, wins[begin + i], loses[begin + i])
            order = np.argsort(s)
            violated = 0.0

            # Winners from the highest score down: the losers within their margin only grow. Both
            # sweeps must ask s_i - s_j < 1 in the same words, or a pair at the edge of rounding
            # would stand in one sum and not in the other.
            tree = np.zeros((top + 1, 2))
            next_loser = length - 1
            for r in range(length - 1, -1, -1):
                i = order[r]
                while next_loser >= 0 and s[i] - s[order[next_loser]] < 1.0:
                    j = begin + order[next_loser]
                    _add(tree, loses[j], 1.0, down[j])
                    next_loser -= 1
                at = begin + i
                if strength[at] == 0.0 or wins[at] <= 1:
                    continue
                losers, their_down = _upto(tree, wins[at] - 1)
                if against_self:
                    losers, their_down = losers - 1.0, their_down - down[at]
                amount = strength[at] * (up[at] * losers - their_down)
                violated += amount
                g[i] -= amount

            # Losers from the lowest score up: the winners that fail to clear them only grow.
            tree[:] = 0.0
            total_up, total = 0.0, 0.0
            next_winner = 0
            for r in range(length):
                j = order[r]
                while next_winner < length and s[order[next_winner]] - s[j] < 1.0:
                    i = begin + order[next_winner]
                    _add(tree, wins[i], strength[i] * up[i], strength[i])
                    total_up += strength[i] * up[i]
                    total += strength[i]
                    next_winner += 1
                at = begin + j
                below_up, below = _upto(tree, loses[at])
                pull_up, pull = total_up - below_up, total - below
                if against_self and wins[at] > loses[at]:
                    pull_up, pull = pull_up - strength[at] * up[at], pull - strength[at]
                g[j] += pull_up - down[at] * pull

            for i in range(length):
                violated += g[i] * s[i]
                gradient[document[begin + i]] += g[i]
            losses[block] += violated


@parallel_kernel()
def _bound_pass(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    weight: FloatArray, sigma: float, gradient: FloatArray, values: FloatArray,
) -> None:  # fmt: skip
    ln2 = np.log(2.0)
    for block in range(mine[0], mine[1]):
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            s, fall = np.empty(length), np.empty(length)
            for i in range(length):
                s[i] = scores[document[begin + i]]
            for i in range(length):
                r = weight[begin + i]
                if r == 0.0:
                    continue
                rank, slope = 1.0, 0.0
                for j in range(length):
                    if j == i:
                        continue
                    # b and -ln2/sigma b' share one exp; its argument is kept at or below 0.
                    x = sigma * (s[i] - s[j])
                    e = np.exp(-abs(x))
                    rank += (max(-x, 0.0) + np.log1p(e)) / ln2
                    fall[j] = (e if x > 0.0 else 1.0) / (1.0 + e)
                    slope += fall[j]
                log = np.log(1.0 + rank)
                values[block] += r * ln2 / log
                # d/dR of ln2/ln(1 + R), times db/ds: the two ln2 cancel.
                steep = r * sigma / ((1.0 + rank) * log * log)
                gradient[document[begin + i]] += steep * slope
                for j in range(length):
                    if j != i:
                        gradient[document[begin + j]] -= steep * fall[j]


@parallel_kernel()
def _hinge_ranks(
    mine: Share, scores: FloatArray, bounds: IntArray, indptr: IntArray, document: IntArray,
    ranks: FloatArray,
) -> None:  # fmt: skip
    for block in range(mine[0], mine[1]):
        for u in range(bounds[block], bounds[block + 1]):
            begin, length = indptr[u], indptr[u + 1] - indptr[u]
            s = np.empty(length)
            for i in range(length):
                s[i] = scores[document[begin + i]]
            order = np.argsort(s)
            # From the lowest score up: the documents within the margin are those from `low` on.
            low, within = 0, s.sum()
            for r in range(length):
                i = order[r]
                while s[i] - s[order[low]] >= 1.0:
                    within -= s[order[low]]
                    low += 1
                # Its own term is the 1 of R_i = 1 + sum over the others.
                ranks[begin + i] = max((length - low) * (1.0 - s[i]) + within, 1.0)
