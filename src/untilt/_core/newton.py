"""Newton's method for concave functions: steps kept short, and halved until they climb.

`untilt.bias.em.affine.fit_affine` has another loop: it halves the step of each position separately.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from untilt._core.arrays import FloatArray


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
