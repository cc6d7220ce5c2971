"""Joint weightings with learners that fit all at once: fit, re-estimate the bias, fit again."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt.bias.curve import PositionBias
from untilt.facts import as_fact
from untilt.weighting.base import JointWeighting

Fit = TypeVar("Fit")

# Pair weights that move by less than 0.1% no longer move the ranking.
SETTLED = 1e-3


@dataclass(frozen=True, eq=False)
class Alternated(Generic[Fit]):
    """The last fit, the states of the bias on the way, and whether they came to rest."""

    fit: Fit
    history: list[Any]
    settled: bool
    bias: PositionBias

    @property
    def status(self) -> str:
        """How it ended, in words."""
        rounds = len(self.history)
        return (
            f"settled after {rounds} fits" if self.settled else f"not settled after {rounds} fits"
        )


def alternate(
    joint: JointWeighting,
    depth: int,
    *,
    learn: Callable[[FloatArray, Fit | None], Fit],
    losses: Callable[[Fit], FloatArray],
    max_rounds: int,
) -> Alternated[Fit]:
    """Fit with a table, take S[k, l] at the fit, let the weighting make the next table, and so on.

    Boosting refreshes the table after every tree; here every round is a whole fit, started from the
    one before. It ends when no pair weight changes by more than 0.1%, or after `max_rounds`.

    Parameters
    ----------
    learn : (table, fit before or None) -> fit
    losses : fit -> S[k, l], the summed unweighted loss per pair of positions
    """
    table, fit = joint.table(depth), None
    history: list[Any] = []
    settled = False
    for _ in track(range(max_rounds), "fitting ranker and bias in turn"):
        fit = learn(table, fit)
        history.append(joint.update(losses(fit), history[-1] if history else None))
        before, table = table, joint.table_of(history[-1])
        settled = bool(np.max(np.abs(np.log(table / before))) <= SETTLED)
        if settled:
            break
    assert fit is not None
    result = Alternated(fit, history, settled, joint.bias_of(history[-1], history))
    return replace(result, bias=replace(result.bias, status=as_fact(result.status)))
