r"""One-slack cutting planes for 1/2 |w|^2 + C R(w), R convex and piecewise linear in the scores.

R is the largest of very many planes: R(w) = max_t b_t + a_t . w. Only those met on the way are
kept; with them alone the problem is a quadratic program whose optimum bounds the true one from
below ([joachims2006linear]_). Each round adds the plane at a point between the best weights so far
and the small program's optimum, after a search along that line, which saves most of the rounds a
plain cutting plane takes ([franc2009ocas]_). The duality gap, best objective minus best bound, is
known exactly in every round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt._core.progress import progress
from untilt.facts import Fact, note, warning

GAP_OPEN = warning(
    "training.gap-open", "stopped early (duality gap {gap:.1e} after {rounds} rounds)"
)

GAP_CLOSED = note("training.gap-closed", "converged (duality gap {gap:.1e} after {rounds} rounds)")


def solve_simplex_qp(G: FloatArray, b: FloatArray, start: FloatArray) -> FloatArray:
    """The beta that minimises 1/2 beta' G beta - b' beta with beta >= 0 and sum(beta) = 1.

    Exact, by an active set. G is positive semidefinite. On a free set the optimum solves one linear
    system; an entry that would turn negative leaves the set, the entry with the largest gain enters
    it, until no entry gains. Entries enter one at a time, so the objective falls at every step and
    none is seen twice.

    Parameters
    ----------
    G, b : (m, m) and (m,)
    start : (m,) any point of the simplex; near the optimum it saves most of the work
    """
    m = len(b)
    # Nearly equal planes make G singular; this ridge picks one mix of them and moves the optimum
    # by no more than rounding does. With G = 0 it alone keeps the linear systems solvable.
    size = max(float(np.trace(G)), float(np.abs(b).max()), np.finfo(float).tiny)
    H = G + 1e-13 * size * np.eye(m)
    tolerance = 1e-12 * max(float(np.diag(G).max()), float(np.abs(b).max()))
    beta, free = start.copy(), start > 0
    for _ in range(20 * m + 50):
        beta, free = _on_free_set(H, b, beta, free)
        gain = b - H @ beta
        level = float(gain[free].max())
        gain[free] = -np.inf
        candidate = int(np.argmax(gain))
        if gain[candidate] <= level + tolerance:
            break
        free[candidate] = True
    return np.maximum(beta, 0.0) / np.maximum(beta, 0.0).sum()


def _on_free_set(
    H: FloatArray, b: FloatArray, beta: FloatArray, free: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Walk to the optimum of the free entries, dropping those that reach 0 on the way."""
    beta, free = beta.copy(), free.copy()
    while True:
        index = np.flatnonzero(free)
        target = _equality_optimum(H[np.ix_(index, index)], b[index])
        here = beta[index]
        falling = target <= 0
        if not falling.any():
            beta[index] = target
            return beta, free
        drop = here[falling] - target[falling]
        steps = np.divide(here[falling], drop, out=np.zeros_like(drop), where=drop > 0)
        step = min(1.0, float(steps.min()))
        moved = here + step * (target - here)
        out = index[falling][steps <= step]
        beta[index] = np.maximum(moved, 0.0)
        beta[out] = 0.0
        free[out] = False


def _equality_optimum(H: FloatArray, b: FloatArray) -> FloatArray:
    """The optimum with sum 1 and any sign: H z + mu 1 = b, 1' z = 1."""
    m = len(b)
    system = np.ones((m + 1, m + 1))
    # Scaled so that the border is of the size of H; otherwise a large C makes the system look
    # singular.
    size = max(float(np.abs(np.diag(H)).max()), np.finfo(float).tiny)
    system[:m, :m] = H / size
    system[m, m] = 0.0
    return np.linalg.solve(system, np.append(b / size, 1.0))[:m]


# A plane that has not carried weight for this many rounds goes; it comes back if it is needed.
_IDLE_ROUNDS = 30
# New planes are made this far from the best point towards the program's optimum. On MQ2008 (three
# parts, C = 100, gap 1e-3) 0.05 takes 41 rounds, 0.2 takes 75, and 1, the plain method, 405.
_LEAN = 0.05
_LINE_STEPS = 12
_ENOUGH = 0.1  # of the gap: a finer search along one line does not save rounds


# Scores -> the risk and a subgradient by score.
Risk = Callable[[FloatArray], tuple[float, FloatArray]]


class LinearMap(Protocol):
    """From weights to scores, and back."""

    @property
    def n_features(self) -> int:
        """Number of weights."""
        ...

    def scores(self, w: FloatArray) -> FloatArray:
        """Scores of all rows."""
        ...

    def pull(self, gradient: FloatArray) -> FloatArray:
        """From a gradient by score to one by weight."""
        ...


@dataclass(frozen=True, eq=False)
class Solution:
    """The best weights met, and a lower bound on the objective of any weights."""

    weights: FloatArray
    objective: float
    bound: float
    rounds: int
    planes: int
    tolerance: float

    @property
    def gap(self) -> float:
        """Objective minus its lower bound, as a share of the objective."""
        gap = max(0.0, self.objective - self.bound)  # rounding can put the bound a hair above
        return gap / max(self.objective, np.finfo(float).tiny)

    @property
    def converged(self) -> bool:
        """Whether the gap came down to the tolerance."""
        return self.gap <= self.tolerance

    @property
    def status(self) -> Fact:
        """How the optimisation ended."""
        return (GAP_CLOSED if self.converged else GAP_OPEN)(gap=self.gap, rounds=self.rounds)


@dataclass(eq=False)
class Planes:
    """The working set: R(w) >= offset_t + slope_t . w. Good for any C, so a search keeps it.

    The plane 0 (R is never negative) is always in it, at index 0.
    """

    slope: FloatArray
    offset: FloatArray = field(default_factory=lambda: np.zeros(1))
    gram: FloatArray = field(default_factory=lambda: np.zeros((1, 1)))
    share: FloatArray = field(default_factory=lambda: np.ones(1))
    idle: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    @classmethod
    def none(cls, n_features: int) -> "Planes":
        """Only R(w) >= 0."""
        return cls(np.zeros((1, n_features)))

    def add(self, slope: FloatArray, offset: float) -> None:
        """One more plane, without weight so far."""
        cross = self.slope @ slope
        self.gram = np.block([[self.gram, cross[:, None]], [cross[None, :], slope @ slope]])
        self.slope = np.vstack([self.slope, slope])
        self.offset = np.append(self.offset, offset)
        self.share = np.append(self.share, 0.0)
        self.idle = np.append(self.idle, 0)

    def solve(self, C: float) -> tuple[FloatArray, float]:
        """The optimum over these planes, w = -C sum_t share_t slope_t, and its value."""
        self.share = solve_simplex_qp(C * self.gram, self.offset, self.share)
        w = -C * (self.share @ self.slope)
        self.idle = np.where(self.share > 0, 0, self.idle + 1)
        return w, float(C * (self.offset @ self.share) - 0.5 * (w @ w))

    def forget(self) -> None:
        """Drop planes that have long been idle."""
        keep = np.flatnonzero(self.idle <= _IDLE_ROUNDS)
        if 0 not in keep:
            keep = np.append(0, keep)
        self.slope, self.offset = self.slope[keep], self.offset[keep]
        self.gram, self.share = self.gram[np.ix_(keep, keep)], self.share[keep]
        self.idle = self.idle[keep]

    def __len__(self) -> int:
        return len(self.offset) - 1


def minimise(
    X: LinearMap,
    risk: Risk,
    C: float,
    *,
    tolerance: float,
    max_iter: int,
    planes: Planes | None = None,
    start: FloatArray | None = None,
) -> Solution:
    """Minimise 1/2 |w|^2 + C R(w) until the gap is below `tolerance` of the objective."""
    planes = Planes.none(X.n_features) if planes is None else planes
    w = np.zeros(X.n_features) if start is None else start
    best = _Point.at(risk, C, w, X.scores(w))
    _cut(X, risk, planes, best.scores)
    bound, rounds = 0.0, 0
    with progress("adding cutting planes") as advance:
        for rounds in range(1, max_iter + 1):  # noqa: B007  reported
            w, value = planes.solve(C)
            bound = max(bound, value)
            if best.objective - bound <= tolerance * best.objective:
                break
            ahead = X.scores(w)
            best = _search(risk, C, best, w, ahead, enough=_ENOUGH * (best.objective - bound))
            lean = best.scores + _LEAN * (ahead - best.scores)
            if best.objective - bound <= tolerance * best.objective:
                break
            _cut(X, risk, planes, lean)
            planes.forget()
            advance()
    return Solution(best.w, best.objective, bound, rounds, len(planes), tolerance)


@dataclass(frozen=True, eq=False)
class _Point:
    w: FloatArray
    scores: FloatArray
    objective: float
    slope: FloatArray  # of the risk, by score

    @classmethod
    def at(cls, risk: Risk, C: float, w: FloatArray, scores: FloatArray) -> "_Point":
        loss, slope = risk(scores)
        return cls(w, scores, 0.5 * float(w @ w) + C * loss, slope)


def _cut(X: LinearMap, risk: Risk, planes: Planes, scores: FloatArray) -> None:
    loss, slope = risk(scores)
    planes.add(X.pull(slope), loss - float(slope @ scores))


def _search(
    risk: Risk, C: float, best: _Point, w: FloatArray, ahead: FloatArray, enough: float
) -> _Point:
    """The lowest point met on the ray from `best` through `w`, by bisection of the slope.

    Scores are linear along the ray, so a step costs no pass over the features. The objective is
    convex: once the tangent at the lower end shows that less than `enough` is left to win, stop.
    """
    d, ds = w - best.w, ahead - best.scores
    lowest, low, high, t = best, 0.0, np.inf, 1.0
    floor = -np.inf
    for _ in range(_LINE_STEPS):
        there = _Point.at(risk, C, best.w + t * d, best.scores + t * ds)
        lowest = min(lowest, there, key=lambda point: point.objective)
        rising = float(there.w @ d) + C * float(there.slope @ ds)
        if rising > 0:
            high = t
        else:
            low = t
            left, falling = there.objective, rising
        if low > 0 and np.isfinite(high):
            floor = left + falling * (high - low)
        if lowest.objective - floor <= enough:
            break
        t = 2 * t if np.isinf(high) else 0.5 * (low + high)
    return lowest
