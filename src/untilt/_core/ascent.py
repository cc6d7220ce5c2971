"""Maximising: the EM loop, which never accepts a lower likelihood, and Newton's method.

A model brings `step(state)`: the next state by one E and one M step, and the log-likelihood of the
state that went in, which the E step has anyway. The loop does the rest.

Newton's method for concave functions: steps kept short, and halved until they climb.

`untilt.bias.em.affine.fit_affine` has another loop: it halves the step of each position separately.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from untilt._core.arrays import FloatArray, handed_over
from untilt._core.progress import progress
from untilt.catalog import storable
from untilt.errors import OptionError, check_least
from untilt.facts import Fact, note, warning


class Point(Protocol):
    """What a function is at x."""

    @property
    def value(self) -> float: ...
    @property
    def gradient(self) -> FloatArray: ...


At = TypeVar("At", bound=Point)
Number = TypeVar("Number", float, FloatArray)


class Maximum(NamedTuple):
    """Where the search ended: x, the function there, and the largest |gradient| / scale left."""

    x: FloatArray
    at: Any
    steps: int
    residual: float
    converged: bool


def maximise(
    function: Callable[[FloatArray], At],
    newton: Callable[[FloatArray, At], FloatArray],
    start: FloatArray,
    *,
    scale: float,
    tolerance: float,
    max_steps: int,
    largest: float = np.inf,
) -> Maximum:
    """Climb from `start` until no |gradient| exceeds `tolerance` times `scale`.

    Parameters
    ----------
    newton : (x, function at x) -> Newton's step, minus the inverse Hessian times the gradient
    largest : entry of a step; longer ones are scaled down, because far from the maximum the
        quadratic model may point anywhere
    """
    x, here = start, function(start)
    for steps in range(max_steps + 1):
        residual = float(np.abs(here.gradient).max()) / scale
        if residual <= tolerance or steps == max_steps:
            break
        step = newton(x, here)
        step = step * min(1.0, largest / max(np.abs(step).max(), 1e-300))
        gain, size = float(np.sum(here.gradient * step)), 1.0
        following = function(x + step)
        # So near the maximum Newton's step is right, and its gain is lost in the value's rounding.
        while gain > 1e-9 * abs(here.value) and following.value < here.value + 1e-4 * gain * size:
            size /= 2
            following = function(x + size * step)
        x, here = x + size * step, following
    return Maximum(x, here, steps, residual, residual <= tolerance)


def short_steps(
    newton: Callable[[Number], Number], x: Number, *, largest: float, enough: float, max_steps: int
) -> Number:
    """x after Newton's steps, no entry above `largest`, until a step is below `enough`."""
    for _ in range(max_steps):
        step = np.clip(newton(x), -largest, largest)
        x = x + step
        if np.abs(step).max() < enough:
            break
    return x


_ENDS = {
    each.code: each
    for each in (
        note("em.converged", "converged in {steps} steps"),
        note(
            "em.stopped", "stopped after {steps} steps: the M step raised the likelihood no further"
        ),
        warning(
            "em.out-of-steps",
            "not converged after {steps} steps; allow more, or a larger tolerance",
        ),
    )
}
"""How a search ended, by its code."""

State = TypeVar("State")
Step = Callable[[State], tuple[State, float]]

# A fall of this share of the likelihood is rounding: sums of millions of logs differ in the last
# digits when their order does.
_ROUNDING = 1e-12
# Judged over so many steps in a row, a full cycle of the accelerated loop.
_PATIENCE = 3


@storable
@dataclass(frozen=True, eq=False, repr=False)
class EMResult(Generic[State]):
    """Where EM ended: the best state, its log-likelihood, and how it got there.

    Parameters
    ----------
    state : the state of the highest log-likelihood
    history : (steps,) log-likelihood of each state in turn; it never falls
    n_steps : E and M steps done, also those that were not accepted
    converged : whether it ended because there was nothing left to gain
    status : the same as a fact
    """

    state: State
    history: FloatArray
    n_steps: int
    converged: bool
    status: Fact

    @property
    def log_likelihood(self) -> float:
        """That of the state."""
        return float(self.history[-1])

    def __repr__(self) -> str:
        return f"EMResult(log-likelihood {self.log_likelihood:.6g}, {self.status})"


def run_em(
    start: State,
    step: Step[State],
    *,
    tolerance: float = 1e-4,
    max_steps: int = 1000,
    accelerate: bool = False,
    low: float = 1e-12,
    high: float = 1 - 1e-12,
    what: str = "EM",
) -> EMResult[State]:
    r"""Repeat `step` from `start` until next to nothing is left to gain.

    With gains g_t = L_t - L_{t-1} that shrink by the factor r = g_t / g_{t-1}, what is still to
    come is about g_t / (1 - r) (Aitken). The loop ends when that is at most `tolerance` for three
    steps in a row. The log-likelihood is not divided by the number of observations: a gain of 1e-4
    moves no parameter by more than about 0.02 of its standard error, however large the log.

    >>> def step(p):  # 3 of 4 were heads, and half of what is missing is filled in by p itself
    ...     return (3 / 4 + p) / 2, 3 * np.log(p) + np.log(1 - p)
    >>> end = run_em(0.5, step)
    >>> round(end.state, 3), end.converged
    (0.75, True)

    Parameters
    ----------
    step : state -> (next state, log-likelihood of the state that went in)
    tolerance : log-likelihood that may be left to gain, in nats
    max_steps : E and M steps at most
    accelerate : jump ahead along the last two steps (SQUAREM of Varadhan and Roland, 2008), where
        that does not lower the likelihood. The state must then be a tuple of arrays, or a
        NamedTuple, of probabilities
    low, high : bounds that a jump keeps to
    what : the name under which progress is told
    """
    if not tolerance > 0:
        raise OptionError(f"tolerance must be above 0. Got {tolerance} instead; 1e-4 is usual.")
    check_least("max_steps", max_steps, 1)
    visits = _accelerated(start, step, low, high) if accelerate else _plain(start, step)
    state, patience, n_steps = start, _PATIENCE, 0
    history: list[float] = []
    with progress(what, total=None) as advance:
        for state_now, likelihood, done in visits:
            n_steps += done
            advance(done)
            if history and not likelihood >= history[-1] - _ROUNDING * abs(history[-1]):
                return _result(state, history, n_steps, "em.stopped")
            state = state_now
            history.append(max(likelihood, history[-1]) if history else likelihood)
            patience = patience - 1 if _left_to_gain(history) <= tolerance else _PATIENCE
            if patience == 0:
                return _result(state, history, n_steps, "em.converged")
            if n_steps >= max_steps:
                break
    return _result(state, history, n_steps, "em.out-of-steps")


def _plain(state: State, step: Step[State]) -> Iterator[tuple[State, float, int]]:
    """Each state with its log-likelihood and the steps that it took to know."""
    while True:
        following, likelihood = step(state)
        yield state, likelihood, 1
        state = following


def _accelerated(
    state: Any, step: Step[Any], low: float, high: float
) -> Iterator[tuple[Any, float, int]]:
    """Two steps and a jump. A jump that would lower the likelihood is passed over in silence."""
    first, likelihood = step(state)
    yield state, likelihood, 1
    while True:
        second, likelihood = step(first)
        yield first, likelihood, 1
        jumped = _jump(state, first, second, low, high)
        after, jumped_likelihood = step(jumped)
        if jumped_likelihood >= likelihood:
            yield jumped, jumped_likelihood, 1
            state, done = after, 1
        else:
            state, done = second, 2
        first, likelihood = step(state)
        yield state, likelihood, done


def _jump(x0: Any, x1: Any, x2: Any, low: float, high: float) -> Any:
    """x0 + 2 s r + s^2 v with r = x1 - x0, v = x2 - 2 x1 + x0 and s = |r| / |v|, at least 1."""
    r = [b - a for a, b in zip(x0, x1, strict=True)]
    v = [c - b - d for b, c, d in zip(x1, x2, r, strict=True)]
    length = _norm(v)
    s = max(1.0, _norm(r) / length) if length > 0 else 1.0
    parts = []
    for a, b, c, last in zip(x0, r, v, x2, strict=True):
        # Not nearer to 0 or 1 than a tenth of what is left there: a jump right onto the edge would
        # stay, because EM moves away from it by factors only.
        edges = max(low, 0.0) + 0.1 * last, min(high, 1.0) - 0.1 * (1 - last)
        parts.append(np.clip(np.clip(a + 2 * s * b + s * s * c, *edges), low, high))
    return type(x0)(*parts) if hasattr(x0, "_fields") else tuple(parts)


def _norm(parts: list[FloatArray]) -> float:
    return float(np.sqrt(sum(float(np.sum(np.square(part))) for part in parts)))


def _left_to_gain(history: list[float]) -> float:
    """Aitken's estimate from the last two gains; infinite before there are two."""
    if len(history) < 3:
        return np.inf
    before, now = history[-2] - history[-3], history[-1] - history[-2]
    if now <= 0:
        return 0.0
    ratio = min(now / before, 0.999) if before > 0 else 0.999
    return now / (1 - ratio)


def _result(state: State, history: list[float], n_steps: int, code: str) -> EMResult[State]:
    return EMResult(
        state=state,
        history=handed_over(np.array(history)),
        n_steps=n_steps,
        converged=code == "em.converged",
        status=_ENDS[code](steps=n_steps),
    )
