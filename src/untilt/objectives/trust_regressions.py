"""Probabilities fitted to counts, as the maximisation step needs them: tables and logistic lines.

A regression has a `start`, the `values` of a fitted state, and `refit`, which never lowers

    Q = sum over cells of successes log p + (trials - successes) log(1 - p),

where successes are expected ones of the expectation step. That is all that EM needs to climb.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from untilt._core.arrays import FloatArray, IntArray

_FLOOR = 1e-6  # no probability is nearer to 0 or 1: one such cell would never move again
_HALVINGS = 30


class Regression(Protocol):
    """Probabilities of cells."""

    def start(self) -> Any:
        """A state before anything is known."""

    def values(self, state: Any) -> FloatArray:
        """(cells,) probabilities."""

    def refit(self, state: Any, successes: FloatArray, trials: FloatArray) -> Any:
        """A state whose Q is not lower than that of `state`."""


@dataclass(frozen=True, eq=False)
class TableRegression:
    """One free probability per entity: Figure 2's updates of gamma and beta.

    Parameters
    ----------
    entity : (cells,) index of what a cell belongs to
    first : where all of them start
    """

    entity: IntArray
    first: float = 0.5

    def start(self) -> FloatArray:
        """`first` everywhere."""
        return np.full(int(self.entity.max(initial=-1)) + 1, self.first)

    def values(self, state: FloatArray) -> FloatArray:
        """The entity's probability."""
        return state[self.entity]

    def refit(self, state: FloatArray, successes: FloatArray, trials: FloatArray) -> FloatArray:
        """Successes over trials, the exact maximum; an entity without trials stays."""
        n = np.bincount(self.entity, weights=trials, minlength=len(state))
        s = np.bincount(self.entity, weights=successes, minlength=len(state))
        rate = np.divide(s, n, out=state.copy(), where=n > 0)
        return np.clip(rate, _FLOOR, 1 - _FLOOR)


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """p = 1 / (1 + exp(-(x . w + b))): one Newton step, halved until Q does not fall.

    Parameters
    ----------
    x : (cells, d) on one scale
    """

    x: FloatArray

    def start(self) -> FloatArray:
        """All weights 0: p = 1/2."""
        return np.zeros(self.x.shape[1] + 1)

    def values(self, state: FloatArray) -> FloatArray:
        """The logistic curve, kept off 0 and 1."""
        z = np.clip(self.x @ state[:-1] + state[-1], -30, 30)
        return np.clip(1 / (1 + np.exp(-z)), _FLOOR, 1 - _FLOOR)

    def refit(self, state: FloatArray, successes: FloatArray, trials: FloatArray) -> FloatArray:
        """One step uphill."""
        p = self.values(state)
        x = np.column_stack([self.x, np.ones(len(p))])
        slope = x.T @ (successes - trials * p)
        curvature = (x * (trials * p * (1 - p))[:, None]).T @ x
        # A ridge of 1e-9 of the trials: a column that never varies must not stop the step.
        step = np.linalg.solve(curvature + 1e-9 * trials.sum() * np.eye(len(slope)), slope)
        before = expected_likelihood(p, successes, trials)
        for _ in range(_HALVINGS):
            if expected_likelihood(self.values(state + step), successes, trials) >= before:
                return state + step
            step = step / 2
        return state


def expected_likelihood(p: FloatArray, successes: FloatArray, trials: FloatArray) -> float:
    """Q above."""
    return float(np.dot(successes, np.log(p)) + np.dot(trials - successes, np.log1p(-p)))
