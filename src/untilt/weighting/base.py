"""What a weighting is: a table W[k, l], and which pairs it is for."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike, as_examination
from untilt.facts import Fact

Against = Literal["unclicked", "all"]


class Weighting(ABC):
    """W[k, l] multiplies the loss of a pair (clicked at position k, other at position l).

    `against` says what the clicked document is compared with: the unclicked documents of the
    session, or all others. `joint` weightings start from a table and are given S[k, l], the summed
    unweighted loss per pair of positions, each round.
    """

    against: Against = "unclicked"
    joint: ClassVar[bool] = False
    # The per-session factor 1/idealDCG(clicks) of NDCG lambdas is correlated with the clicks; a
    # weighting that is exact without it turns it off (see `is_consistent`).
    per_session_norm: ClassVar[bool] = True

    @abstractmethod
    def table(self, depth: int) -> FloatArray:
        """W, shape (depth, depth), rows = position of the clicked document."""

    def offset(self, depth: int) -> FloatArray | None:  # noqa: ARG002
        """Weight of *every* shown pair, clicked or not: only an affine correction has one.

        The weight of "i above j" is W[k, l] label_i + offset[k, l], summed over sessions.
        """
        return None

    @property
    def position_bias(self) -> BiasLike | None:
        """The curve behind the table, where there is one."""
        bias: BiasLike | None = getattr(self, "bias", None)
        return bias


class JointWeighting(Weighting):
    """A weighting that is learned along with the ranker; its state is of its own kind."""

    joint: ClassVar[bool] = True

    @abstractmethod
    def update(self, S: FloatArray, state: Any) -> Any:
        """The next state from the losses S[k, l] and the state before (None at the start)."""

    @abstractmethod
    def table_of(self, state: Any) -> FloatArray:
        """W for a state."""

    @abstractmethod
    def bias_of(self, state: Any, history: list[Any]) -> PositionBias:
        """What the learned state says about position bias."""


# Pair weights that change by less than 0.1% no longer change the ranking.
_SETTLED = 1e-3


class LearnedTable:
    """The table of a joint weighting while a ranker learns: S[k, l] goes in, the next table out.

    S is the summed unweighted loss per pair of positions at the ranker so far. Boosting gives it
    after every tree, a network after every epoch, a linear ranker after every whole fit.

    `table` is W[k, l] now, `history` the state of the weighting after each update.
    """

    table: FloatArray
    history: list[Any]

    def __init__(self, weighting: JointWeighting, depth: int) -> None:
        self.weighting = weighting
        self._first = weighting.table(depth)
        self.restart()

    def restart(self) -> None:
        """Back to the first table, for a new training."""
        self.table = self._before = self._first
        self.history = []

    def update(self, S: FloatArray) -> FloatArray:
        """The next table."""
        self.history.append(self.weighting.update(S, self.history[-1] if self.history else None))
        self._before, self.table = self.table, self.weighting.table_of(self.history[-1])
        return self.table

    @property
    def settled(self) -> bool:
        """Whether the last update changed no weight by more than 0.1%."""
        return bool(np.max(np.abs(np.log(self.table / self._before))) <= _SETTLED)

    def bias(self, rounds: int | None = None, *, status: Fact | None = None) -> PositionBias | None:
        """What the first `rounds` updates (all without) say of the bias; None before the first.

        `status` takes the place of the weighting's own.
        """
        history = self.history[:rounds]
        if not history:
            return None
        bias = self.weighting.bias_of(history[-1], history)
        return bias if status is None else replace(bias, status=status)


def theta_up_to(bias: BiasLike, depth: int) -> FloatArray:
    """theta_1..theta_depth of any kind of bias."""
    return np.asarray(as_examination(bias).at(np.arange(1, depth + 1)), dtype=float)
