r"""Estimates under a curve whose levels are partly bounded: the least and the greatest value.

A curve of `AllPairs(unjoined="bounds")` leaves levels u of some parts of its positions open within
bounds (`untilt.bias.level_bounds`). A document is shown within one part alone, else it would join
two, so what it counts is proportional to x_p = e^{-u_p} of its part, and a value or a difference is
sum_p A_p x_p. Its extremes over the bounds are corners of a linear program. A clip, self-normalised
weights or documents of other sessions that do join parts bend it: then the program is solved again
with the derivatives at the corner found, from several starts, until nothing is gained, and levels
are tried one by one along their range.

The interval runs from the lower end of the interval at the least value to the upper end of that at
the greatest: within the bounds nothing is known, beyond them chance is what it always is.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from untilt._core.arrays import FloatArray, sum_by
from untilt.bias.curve import PositionBias
from untilt.evaluation.systems import Inputs

ROUNDS = 6  # of solving the program again
STEPS = 17  # levels tried along the range of a part where values are bent


def extreme_curves(
    inputs: Inputs, combination: Mapping[str, float]
) -> tuple[PositionBias | None, PositionBias | None]:
    """The curves at which sum_s c_s V_s is least and greatest; None where it has no bound.

    `combination` is system -> c: 1 for a value, 1 and -1 for a difference.
    """
    return _end(inputs, combination, 1.0), _end(inputs, combination, -1.0)


def _end(inputs: Inputs, combination: Mapping[str, float], sign: float) -> PositionBias | None:
    """The curve at which sign times the sum is least."""
    bounds = inputs.bias.bounds
    assert bounds is not None
    low, high = bounds.hull
    best, best_value, bent = np.zeros(len(low)), np.inf, False
    for start in (np.zeros(len(low)), high, np.where(np.isfinite(low), low, high - np.log(10))):
        here, value = start, sign * _value(inputs, combination, start)
        reached = np.inf
        for _ in range(ROUNDS):
            slope = sign * _slope(inputs, combination, here)
            there = bounds.least(slope)
            found = sign * _value(inputs, combination, there)
            straight = value + slope @ (np.exp(-there) - np.exp(-here))
            bent |= abs(found - straight) > 1e-6 * (abs(found) + abs(value))
            if not found < reached - 1e-9 * abs(found):
                break
            here, value, reached = there, found, found
        if reached < best_value:
            best, best_value = here, reached
        if not bent:
            break  # a straight line has one least corner, whatever the start
    if bounds.is_open(best):
        return None
    if bent:
        best = _polished(inputs, combination, sign, best, best_value)
    return at_levels(inputs.bias, best)


def _polished(
    inputs: Inputs, combination: Mapping[str, float], sign: float, levels: FloatArray, value: float
) -> FloatArray:
    """One level at a time along its range, the others held: a clip has its extremes anywhere."""
    assert inputs.bias.bounds is not None
    most = inputs.bias.bounds.most
    best = levels.copy()
    for _ in range(ROUNDS):
        before = value
        for p in range(1, len(best)):
            others = np.arange(len(best)) != p
            low, high = np.max((best - most[p])[others]), np.min((best + most[:, p])[others])
            for level in np.linspace(low, high, STEPS).tolist() if np.isfinite(low) else ():
                tried = best.copy()
                tried[p] = level
                found = sign * _value(inputs, combination, tried)
                if found < value:
                    best, value = tried, found
        if not value < before - 1e-6 * abs(before):
            break
    return best


def at_levels(bias: PositionBias, levels: FloatArray) -> PositionBias:
    """The curve with its parts at these levels u, which are then taken as known."""
    assert bias.bounds is not None
    return replace(bias.scaled(np.exp(levels)[bias.bounds.part]), bounds=None)


def _value(inputs: Inputs, combination: Mapping[str, float], levels: FloatArray) -> float:
    sums = inputs.sums(combination, bias=at_levels(inputs.bias, levels))
    return float(_weights(combination) @ sums.value)


def _slope(inputs: Inputs, combination: Mapping[str, float], levels: FloatArray) -> FloatArray:
    """(P,) derivatives by x_p = e^{-u_p}: -sum over the part of theta_k dV/dtheta_k, over x_p."""
    bias = at_levels(inputs.bias, levels)
    sums = inputs.sums(combination, bias=bias)
    by_theta = _weights(combination) @ sums.gradient
    n = min(len(by_theta), bias.depth)
    assert inputs.bias.bounds is not None
    part = inputs.bias.bounds.part[:n]
    by_level = sum_by(part, by_theta[:n] * bias.examination[:n], len(levels))
    return -by_level * np.exp(levels)


def _weights(combination: Mapping[str, float]) -> FloatArray:
    return np.array(list(combination.values()))
