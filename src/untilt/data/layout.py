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

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt._core.declared import is_whole
from untilt.catalog import storable
from untilt.data.limits import DEEPEST
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

    def places(self, n: int) -> IntArray:
        """(n,) where a curve of plain positions has positions 1..n: at their ranks."""
        return self.ranks(n)

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
    absent : positions that hold no results, as in `Slots`
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    absent: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.columns or any(len(row) != len(self.columns) for row in self.values):
            raise OptionError(
                f"each context has a value for each of its columns, of which there is at least "
                f"one. Got the columns {self.columns} and the values {self.values[:3]}."
            )
        if len(set(self.values)) < len(self.values):
            raise OptionError("a context has one curve. Got the values of one of them twice.")

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
        """The rank of the position, whatever the context."""
        place = self.places(n)
        return Slots(self.absent).ranks(int(place[-1]))[place - 1]

    def places(self, n: int) -> IntArray:
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
                f"this bias has a curve for each {' and '.join(self.columns)}, and the "
                f"log has no context {missing[0]!r} (it has: {have}). Read it with "
                f"⟦read_log(..., context={list(self.columns)})|--context COLUMN⟧."
            )
        texts = [np.array([as_text(v) for v in log.context[name]], object) for name in self.columns]
        index = {row: c for c, row in enumerate(self.values)}
        rows = zip(*texts, strict=True)
        return np.fromiter((index.get(row, len(index)) for row in rows), np.int64, log.n_lists)

    def of(self, log: "ClickLog") -> "ClickLog":
        """The log over positions of contexts; sessions of two contexts never were one list."""
        log = Slots(self.absent).of(log) if self.absent else log
        context = np.repeat(self.context_of(log), np.diff(log.indptr))
        if log.depth * self.n_contexts > DEEPEST:
            raise OptionError(
                f"{self.n_contexts} contexts of {log.depth} positions make more than {DEEPEST:,} "
                f"cells. Cut the log with ⟦log.top({DEEPEST // self.n_contexts})|--depth "
                f"{DEEPEST // self.n_contexts}⟧, or join contexts."
            )
        position = (log.position.astype(np.int64) - 1) * self.n_contexts + context + 1
        return log._with(position=position, layout=self)


@storable
@dataclass(frozen=True)
class Grid(Layout):
    """Cells of a grid, or of carousels below each other: position (row - 1) columns + column.

    Cells are numbered row by row. `order` numbers them anew: position p is then the cell
    `order[p - 1]` of that numbering. Evaluation orders cells by examination, so that the best
    document of a ranker goes to the cell that is looked at most.
    """

    rows: int
    columns: int
    order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        whole = is_whole(self.rows) and is_whole(self.columns)
        if not whole or self.rows < 1 or self.columns < 1 or self.size > DEEPEST:
            raise OptionError(
                "a grid has at least one row and one column, as whole numbers, and at most "
                f"{DEEPEST:,} cells. Got {self.rows!r} x {self.columns!r}."
            )
        if self.order and sorted(self.order) != list(range(1, self.size + 1)):
            raise OptionError(f"order must name each of the {self.size} cells once.")

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.rows * self.columns

    def ranks(self, n: int) -> IntArray:
        """Positions themselves: the order of the cells is the order of ranks."""
        return np.arange(1, n + 1)

    def cell(self, row: int, column: int) -> int:
        """The position of a cell, both from 1."""
        if not (1 <= row <= self.rows and 1 <= column <= self.columns):
            raise OptionError(
                f"this grid has rows 1..{self.rows} and columns 1..{self.columns}. "
                f"Got row {row}, column {column}."
            )
        number = (row - 1) * self.columns + column
        return self.order.index(number) + 1 if self.order else number

    @property
    def number(self) -> IntArray:
        """(cells,) the number of each position's cell, row by row, from 1."""
        return np.array(self.order or range(1, self.size + 1), dtype=np.int64)

    @property
    def row(self) -> IntArray:
        """(cells,) the row of each position, from 1."""
        return (self.number - 1) // self.columns + 1

    @property
    def column(self) -> IntArray:
        """(cells,) the column of each position, from 1."""
        return (self.number - 1) % self.columns + 1

    def name(self, position: int) -> str:
        """Row and column."""
        return f"row {self.row[position - 1]}, column {self.column[position - 1]}"

    def ordered(self, order: IntArray) -> "Grid":
        """The same cells; position p is what position `order[p - 1]` is here."""
        return Grid(self.rows, self.columns, tuple(self.number[order - 1].tolist()))

    def of(self, log: "ClickLog") -> "ClickLog":
        """A log of the same grid with its cells numbered as here."""
        theirs = log.layout
        if not isinstance(theirs, Grid) or (theirs.rows, theirs.columns) != (
            self.rows, self.columns,
        ):  # fmt: skip
            have = "of a list" if theirs is None else f"of {theirs!r}"
            raise OptionError(
                f"this bias is of a grid of {self.rows} x {self.columns} cells, and the positions "
                f"of the log are {have}. Read the log with its columns row and column, and "
                f"grid=({self.rows}, {self.columns})."
            )
        place = np.empty(self.size + 1, dtype=np.int64)
        place[self.number] = np.arange(1, self.size + 1)
        return log._with_positions(place[theirs.number[log.position - 1]], self)

    def neighbours(self) -> tuple[IntArray, IntArray]:
        """The positions of cells side by side and below each other, a pair in each column."""
        at = {(r, c): p for p, (r, c) in enumerate(zip(self.row, self.column, strict=True), 1)}
        pairs = [
            (p, at[r + down, c + right])
            for (r, c), p in at.items()
            for down, right in ((0, 1), (1, 0))
            if (r + down, c + right) in at
        ]
        one, two = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return one, two


@storable
@dataclass(frozen=True)
class Slots(Layout):
    """Positions of a page on which some hold no result, such as an advertisement's.

    Positions keep the numbers that they have on the page. Metrics take the r-th position that holds
    results for rank r.

    absent : the positions that hold none, or too few to say anything, rising
    """

    absent: tuple[int, ...]

    def ranks(self, n: int) -> IntArray:
        """The number of positions with results down to each; 1 above the first."""
        position = np.arange(1, n + 1)
        return np.maximum(position - np.searchsorted(self.absent, position, side="right"), 1)

    def name(self, position: int) -> str:
        """The number on the page."""
        return str(position)

    def places(self, n: int) -> IntArray:
        """Positions themselves."""
        return np.arange(1, n + 1)

    def has(self, n: int) -> BoolArray:
        """(n,) whether positions 1..n hold results."""
        return ~np.isin(np.arange(1, n + 1), self.absent)

    def of(self, log: "ClickLog") -> "ClickLog":
        """The log without what it shows at the positions that are left out."""
        if isinstance(log.layout, ContextCells | Grid):
            return log
        return log.at_positions(self.has(log.depth))._with(layout=self)


@dataclass(frozen=True)
class Packed(Slots):
    """Positions numbered without gaps: what an estimator sees; p is the p-th with results."""

    def numbers(self, n: int) -> IntArray:
        """(n,) the numbers on the page of the first n positions with results."""
        return np.flatnonzero(self.has(n + len(self.absent)))[:n] + 1

    def place(self, position: IntArray) -> IntArray:
        """Where positions of the page are; 0 for those that are left out."""
        rank = self.ranks(int(np.max(position, initial=1)))[np.maximum(position, 1) - 1]
        return np.where((position < 1) | np.isin(position, self.absent), 0, rank)

    def of(self, log: "ClickLog") -> "ClickLog":
        """The log with its positions numbered without gaps."""
        kept = super().of(log)
        return kept._with(position=kept.rank)


AnyLayout = ContextCells | Grid | Slots


def as_text(value: object) -> str:
    """A value of a context as it is compared: numbers by what they are, not by how they print."""
    if isinstance(value, int | float | np.number):
        return f"{float(value):.12g}"
    return str(value)


def ranks_of(layout: Layout | None, n: int) -> IntArray:
    """(n,) the ranks of positions 1..n."""
    return np.arange(1, n + 1) if layout is None else layout.ranks(n)


def places_of(layout: Layout | None, n: int) -> IntArray:
    """(n,) where a curve of plain positions has positions 1..n."""
    return np.arange(1, n + 1) if layout is None else layout.places(n)


def by_rank(layout: Layout | None, weights: FloatArray) -> FloatArray:
    """(n,) what positions 1..n weigh, from the weights of ranks 1..n."""
    return weights if layout is None else weights[layout.ranks(len(weights)) - 1]
