r"""Losses of clicks by document or by list: the position-based likelihood, and weighted losses.

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

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.newton import short_steps
from untilt._core.threads import Share, parallel_kernel
from untilt.data.counts import PositionCounts
from untilt.data.slates import Slates

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
        blocks = lists.blocks(np.diff(lists.indptr))
        gradient, losses = np.zeros(lists.n_documents), np.zeros(len(blocks) - 1)
        _list_pass(
            len(losses), np.ascontiguousarray(scores, dtype=np.float64), blocks, lists.indptr,
            lists.document, lists.position_index, lists.count.astype(np.float64), self.clicked,
            self.up, np.log(self.down), gradient, losses,
        )  # fmt: skip
        return float(losses.sum()), gradient


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
