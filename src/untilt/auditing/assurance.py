r"""How probable it is that all intervals of a swap experiment come out as narrow as wished.

A plan knows the variance that an experiment leaves; the intervals come from an *estimate* of it,
and they are as wide as chance has it. Of each pair p of positions, with v_p its variance,

    v_p exp(-u_p),  u_p ~ N(0, v_p + 1 / clicks of the log)     from session noise: a variance of
        1 / n for n clicks, and neither n nor the click rate of the log comes out as expected
    times a Wishart matrix / df,  df = effective queries - 1    clustered by query

and the estimators take the larger, with Student's t for the second. Both are drawn for all pairs at
once, so positions that share a pair (a chain of neighbours) are wide together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.random import generator
from untilt._core.statistics import normal_quantile
from untilt.auditing.swap_design import Design, Traffic
from untilt.errors import OptionError

N_DRAWS = 2000  # of whole experiments: a probability of 0.9 is known to within 0.7 points
Parts = Callable[[float], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class Widths:
    """Widths that an experiment may have, drawn with the same random numbers whatever its size.

    design, traffic : of the plan
    parts : sessions -> what untouched and swapped sessions leave, as `swap_design.variance_parts`
    probability : (pairs,) of a session to be drawn for each pair
    level : of the intervals
    """

    design: Design
    traffic: Traffic
    parts: Parts
    probability: FloatArray
    level: float

    def probability_within(self, width: float, sessions: float) -> float:
        """Of all intervals being no wider than this after so many sessions."""
        return float(np.mean(self._within(width, sessions)))

    def _within(self, width: float, sessions: float) -> BoolArray:
        untouched, swapped = self.parts(sessions)
        lower = np.array([pair[1] for pair in self.design.pairs])
        rate = np.broadcast_to(self.traffic.rate_variance, self.traffic.depth)[lower - 1]
        degrees = np.maximum(self._effective(sessions) - 1, 1.0)
        rng = generator(0)
        u = rng.normal(size=(N_DRAWS, len(lower)))
        by_session = swapped * np.exp(-u * np.sqrt(swapped + rate))
        path = self.design.path
        sessions_error = np.sqrt(untouched + by_session @ path.T**2)
        # (draws, K, pairs): the paths of positions, each pair with its error.
        steps = path[None] * np.sqrt(by_session)[:, None, :]
        spread = np.sum((steps @ _wishart_roots(rng, degrees)) ** 2, axis=2)
        clustered = np.sqrt(untouched + spread)
        # The degrees of freedom of a position are those of its worst pair, as nearly as matters.
        on_path = np.where(path != 0, degrees, np.inf).min(axis=1)
        student = np.where(
            np.isfinite(on_path),
            special.stdtrit(np.where(np.isfinite(on_path), on_path, 1.0), 0.5 + self.level / 2),
            normal_quantile(self.level),
        )
        half = np.where(
            clustered > sessions_error,
            student * clustered,
            normal_quantile(self.level) * sessions_error,
        )
        return np.all(2 * np.sinh(half) <= width, axis=1)

    def _effective(self, sessions: float) -> FloatArray:
        drawn = zip(self.design.pairs, self.probability.tolist(), strict=True)
        return np.array(
            [
                self.traffic.effective_queries(
                    sessions * chance * float(self.traffic.reach[lower - 1]), lower
                )
                for (_, lower), chance in drawn
            ]
        )


def _wishart_roots(rng: np.random.Generator, degrees: FloatArray) -> FloatArray:
    """(draws, pairs, pairs) A with A A' a Wishart matrix over its degrees of freedom (Bartlett's).

    The queries are the same for all pairs, so along a chain their parts are added before they are
    squared. By inverse of uniform numbers, the same whatever the degrees: the probability of a plan
    then rises smoothly with its sessions. The unit matrix where degrees are infinite.
    """
    m = len(degrees)
    below = np.tril(rng.normal(size=(N_DRAWS, m, m)), -1) / np.sqrt(degrees)[:, None]
    uniform = rng.random((N_DRAWS, m))
    finite = np.isfinite(degrees)
    df = np.maximum(np.where(finite, degrees, 1.0) - np.arange(m), 1.0)
    chi = 2 * special.gammaincinv(df / 2, uniform) / np.where(finite, degrees, 1.0)
    diagonal = np.where(finite, np.sqrt(chi), 1.0)
    return np.asarray(below + diagonal[:, :, None] * np.eye(m))


def check_assurance(assurance: float | None) -> None:
    """Raise unless it is a probability to plan for, or none."""
    if assurance is not None and not 0 < assurance < 1:
        raise OptionError(
            "assurance is the probability that all intervals are as narrow as wished: it must lie "
            f"between 0 and 1. Got {assurance} instead; 0.9 is usual."
        )
