"""The position-based model as a pointwise likelihood: c ~ Bernoulli(alpha_k sigmoid(f) + beta_k).

Without trust bias alpha = theta and beta = 0. Clicks are collapsed into cells (row, position) with
n impressions and c clicks. With g = sigmoid(f), p = alpha g + beta and p' = alpha g (1 - g),

    d loss/df = -(c - n p) p' / (p (1 - p)),   Fisher information = n p'^2 / (p (1 - p)).

Fisher's information stands in for the hessian: it is never negative ([wang2018regression]_ has the
same model, fitted by EM).
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, sum_by

# p is kept this far from 0 and 1, so that one impossible click cannot make the loss infinite.
_EDGE = 1e-9


@dataclass(frozen=True, eq=False)
class PbmCells:
    """Clicks and impressions by (training row, position), sorted by row."""

    row: IntArray
    place: IntArray
    shown: FloatArray
    clicks: FloatArray
    n_rows: int

    def sums(self, values: FloatArray) -> FloatArray:
        """Sum of a value per cell over each training row."""
        return sum_by(self.row, values, self.n_rows)


def pbm_cells(
    *, row: IntArray, place: IntArray, label: FloatArray, weight: FloatArray, n_rows: int
) -> PbmCells:
    """Collapse rows of lists into cells; `weight` is the number of sessions behind each row."""
    depth = int(place.max()) + 1 if len(place) else 1
    keys, cell = np.unique(row.astype(np.int64) * depth + place, return_inverse=True)
    return PbmCells(
        row=keys // depth,
        place=keys % depth,
        shown=sum_by(cell, weight),
        clicks=sum_by(cell, weight * label),
        n_rows=n_rows,
    )


@dataclass(frozen=True, eq=False)
class PbmLikelihood:
    """Negative log-likelihood of the clicks, its gradient and information, per training row."""

    cells: PbmCells
    alpha: FloatArray
    beta: FloatArray

    def click_probability(self, scores: FloatArray) -> FloatArray:
        """p of each cell."""
        g = sigmoid(scores[self.cells.row])
        return self.alpha[self.cells.place] * g + self.beta[self.cells.place]

    def loss(self, scores: FloatArray) -> float:
        """- sum c log p + (n - c) log(1 - p)."""
        p = np.clip(self.click_probability(scores), _EDGE, 1 - _EDGE)
        c, n = self.cells.clicks, self.cells.shown
        return float(-np.sum(c * np.log(p) + (n - c) * np.log1p(-p)))

    def gradient(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(gradient, information), one entry per training row."""
        g = sigmoid(scores[self.cells.row])
        alpha, beta = self.alpha[self.cells.place], self.beta[self.cells.place]
        p = np.clip(alpha * g + beta, _EDGE, 1 - _EDGE)
        slope = alpha * g * (1 - g)
        inverse_variance = 1 / (p * (1 - p))
        gradient = -(self.cells.clicks - self.cells.shown * p) * slope * inverse_variance
        information = self.cells.shown * slope**2 * inverse_variance
        return self.cells.sums(gradient), self.cells.sums(information)

    def base_score(self) -> float:
        """The one score for all rows that fits the clicks best, by Newton's method."""
        score, n_rows = 0.0, self.cells.n_rows
        for _ in range(50):
            gradient, information = self.gradient(np.full(n_rows, score))
            step = gradient.sum() / max(float(information.sum()), 1e-12)
            score = float(np.clip(score - np.clip(step, -2, 2), -8, 8))
            if abs(step) < 1e-8:
                break
        return score


def sigmoid(x: FloatArray) -> FloatArray:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * np.asarray(x, dtype=float)))
