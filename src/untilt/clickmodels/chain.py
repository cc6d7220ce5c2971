"""Readers who go from the top down and may leave after any row: prediction, all models alike."""

from abc import abstractmethod
from typing import NamedTuple

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over
from untilt.clickmodels.base import ClickModel, Lists, with_unknown


class Steps(NamedTuple):
    """attraction : (rows,) alpha; on_click : (rows,) P(go on | click); on_skip : P(go on | not)."""

    attraction: FloatArray
    on_click: FloatArray
    on_skip: float


class ChainModel(ClickModel):
    r"""A reader looks at the first row, clicks with probability alpha, and goes on or leaves.

    With e_r = P(row r is looked at | clicks above), g and s the probabilities of going on after a
    click and after none,

        P(c_r = 1 | clicks above) = e_r alpha_r
        e_{r+1} = g_r after a click, else s e_r (1 - alpha_r) / (1 - e_r alpha_r)

    and P(row r+1 is looked at) = P(row r is looked at) (alpha_r g_r + (1 - alpha_r) s). Models
    differ in g and s alone.
    """

    attraction_: FloatArray
    attraction_mean_: float

    @abstractmethod
    def _steps(self, lists: Lists) -> Steps:
        """alpha, g and s of these rows."""

    def _attraction(self, lists: Lists) -> FloatArray:
        return with_unknown(self.attraction_, self.attraction_mean_)[lists.index]

    def _keep_attraction(self, alpha: FloatArray, mean: float) -> None:
        """Attraction by document and of unknown ones, which are relevance too."""
        self.attraction_ = self.relevance_ = handed_over(alpha)
        self.attraction_mean_ = self.prior_mean_ = mean

    def _conditional(self, lists: Lists) -> FloatArray:
        return _conditional(lists.indptr, lists.click, *self._steps(lists))

    def _marginal(self, lists: Lists) -> FloatArray:
        return _marginal(lists.indptr, *self._steps(lists))

    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        return _draw(lists.indptr, *self._steps(lists), uniform)


@nb.njit(cache=True)
def _conditional(
    indptr: IntArray, click: FloatArray, attraction: FloatArray, on_click: FloatArray, s: float
) -> FloatArray:
    probability = np.empty(len(click))
    for i in range(len(indptr) - 1):
        looked = 1.0
        for row in range(indptr[i], indptr[i + 1]):
            p = looked * attraction[row]
            probability[row] = p
            if click[row] > 0:
                looked = on_click[row]
            elif p < 1.0:
                looked = s * looked * (1.0 - attraction[row]) / (1.0 - p)
            else:
                looked = 0.0
    return probability


@nb.njit(cache=True)
def _marginal(
    indptr: IntArray, attraction: FloatArray, on_click: FloatArray, s: float
) -> FloatArray:
    probability = np.empty(len(attraction))
    for i in range(len(indptr) - 1):
        looked = 1.0
        for row in range(indptr[i], indptr[i + 1]):
            probability[row] = looked * attraction[row]
            looked *= attraction[row] * on_click[row] + (1.0 - attraction[row]) * s
    return probability


@nb.njit(cache=True)
def _draw(
    indptr: IntArray, attraction: FloatArray, on_click: FloatArray, s: float, uniform: FloatArray
) -> AnyArray:
    click = np.zeros(len(attraction), dtype=np.uint8)
    for i in range(len(indptr) - 1):
        for row in range(indptr[i], indptr[i + 1]):
            on = s
            if uniform[row, 0] < attraction[row]:
                click[row] = 1
                on = on_click[row]
            if uniform[row, 1] >= on:
                break
    return click
