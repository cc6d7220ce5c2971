"""The position-based model as a pointwise likelihood: c ~ Bernoulli(alpha_k sigmoid(f) + beta_k).

Without trust bias alpha = theta and beta = 0. Clicks are summed by cell (document, position) with
n impressions and c clicks. With g = sigmoid(f), p = alpha g + beta and p' = alpha g (1 - g),

    d loss/df = -(c - n p) p' / (p (1 - p)),   Fisher information = n p'^2 / (p (1 - p)).

Fisher's information stands in for the hessian: it is never negative ([wang2018regression]_ has the
same model, fitted by EM).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt.data.counts import PositionCounts

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
