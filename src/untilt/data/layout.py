"""What the position numbers of a log mean where they are more than ranks of one kind of list.

A debiasing method is a table over pairs of positions, and an estimator counts clicks by position.
Neither asks what a position is. So a cell of a grid is a position with a number, and so is position
3 on a telephone. A `Layout` gives the numbers their meaning: which of them a metric takes for which
rank, and what they are called.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.catalog import storable
from untilt.data.depth import DEEPEST
from untilt.errors import OptionError

if TYPE_CHECKING:
    from untilt.data.clicklog import ClickLog

OTHERS = "any other"  # the context that has no curve of its own


class Layout(ABC):
    """What positions 1, 2, ... stand for."""

    @abstractmethod
    def ranks(self, n: int) -> IntArray:
        """(n,) the 1-based rank that metrics take positions 1..n for; it never falls."""

    @abstractmethod
    def name(self, position: int) -> str:
        """What a position is called."""

    @abstractmethod
    def of(self, log: "ClickLog") -> "ClickLog":
        """The log with its positions numbered in this way."""


@storable
@dataclass(frozen=True)
class ContextCells(Layout):
    """Positions of several contexts: number (k - 1) C + c is position k in context c of C.

    Lists keep their order, and a list is of one context, so that a table of pair weights compares
    positions of one context alone. The last context is "any other": those without a curve of their
    own.

    columns : names of the log's context columns
    values : what they hold in each context but the last, one text per column
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]

    @property
    def n_contexts(self) -> int:
        """C."""
        return len(self.values) + 1

    @property
    def names(self) -> tuple[str, ...]:
        """What each context is called."""
        pairs = (
            ", ".join(f"{c} = {v}" for c, v in zip(self.columns, row, strict=True))
            for row in self.values
        )
        return (*pairs, OTHERS)

    def ranks(self, n: int) -> IntArray:
        """The position, whatever the context."""
        return np.arange(n) // self.n_contexts + 1

    def name(self, position: int) -> str:
        """Position and context."""
        k, c = divmod(position - 1, self.n_contexts)
        return f"{k + 1} ({self.names[c]})"

    def context_of(self, log: "ClickLog") -> IntArray:
        """(lists,) the number of each list's context, from 0."""
        missing = [name for name in self.columns if name not in log.context]
        if missing:
            have = ", ".join(log.context) or "none"
            raise OptionError(
                f"this bias has a curve for each {' and '.join(self.columns)}, and the log has no "
                f"context {missing[0]!r} (it has: {have}). Read it with read_log(..., "
                f"context={list(self.columns)})."
            )
        texts = [np.array([as_text(v) for v in log.context[name]], object) for name in self.columns]
        index = {row: c for c, row in enumerate(self.values)}
        rows = zip(*texts, strict=True)
        return np.fromiter((index.get(row, len(index)) for row in rows), np.int64, log.n_lists)

    def of(self, log: "ClickLog") -> "ClickLog":
        """The log over positions of contexts; sessions of two contexts never were one list."""
        context = np.repeat(self.context_of(log), np.diff(log.indptr))
        if log.depth * self.n_contexts > DEEPEST:
            raise OptionError(
                f"{self.n_contexts} contexts of {log.depth} positions make more than {DEEPEST:,} "
                f"cells. Cut the log with log.top({DEEPEST // self.n_contexts}), or join contexts."
            )
        position = (log.position.astype(np.int64) - 1) * self.n_contexts + context + 1
        return log._with(position=position, layout=self)


AnyLayout = ContextCells


def as_text(value: object) -> str:
    """A value of a context as it is compared: numbers by what they are, not by how they print."""
    if isinstance(value, int | float | np.number):
        return f"{float(value):.12g}"
    return str(value)


def ranks_of(layout: Layout | None, n: int) -> IntArray:
    """(n,) the ranks of positions 1..n."""
    return np.arange(1, n + 1) if layout is None else layout.ranks(n)


def by_rank(layout: Layout | None, weights: FloatArray) -> FloatArray:
    """(n,) what positions 1..n weigh, from the weights of ranks 1..n."""
    return weights if layout is None else weights[layout.ranks(len(weights)) - 1]
