"""Cells: the smallest units of work, each one line of a results file."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.suggest import did_you_mean
from untilt.errors import FileFormatError, OptionError
from untilt.experiments.schema import Experiment, Panel, Row, Size, Value
from untilt.experiments.sources import Source


@dataclass(frozen=True)
class Cell:
    """One method in one setting: data x panel x row x x x seed x fold.

    `of` is a digest of everything else that the result depends on: the panel, the row and the
    sizes. After a change of the experiment's file the old results are other cells.
    """

    data: str
    panel: str
    row: str
    x: Value | None
    seed: int
    fold: int
    of: str

    @property
    def run(self) -> tuple[int, int]:
        """(seed, fold): methods are compared within a run."""
        return self.seed, self.fold


@dataclass(frozen=True)
class Result:
    """What a cell gave. A value is a number, or a list with one number per position."""

    cell: Cell
    values: dict[str, Any]
    seconds: float


def cells_of(
    experiment: Experiment, source: Source, size: Size, most_queries: int | None
) -> list[Cell]:
    """All cells, those that share clicks next to each other."""
    cells = []
    for seed, fold in source.runs(size):
        for panel in experiment.panels:
            rows = experiment.rows_of(panel)
            for x in (None, *points_of(panel, size)):
                for row in rows:
                    if (x is None) == (row.fixed or panel.sweep is None):
                        of = digest(panel, row, size, most_queries)
                        cells.append(Cell(source.name, panel.name, row.name, x, seed, fold, of))
    return cells


def points_of(panel: Panel, size: Size) -> tuple[Value, ...]:
    """The values of the x axis; where the size asks for fewer, evenly spaced ones."""
    if panel.sweep is None:
        return ()
    values = panel.sweep.values
    if size.points is None or size.points >= len(values):
        return values
    kept = np.unique(np.linspace(0, len(values) - 1, size.points).round().astype(int))
    return tuple(values[k] for k in kept)


def digest(panel: Panel, row: Row, size: Size, most_queries: int | None) -> str:
    """Eight letters for all that shapes a cell's result; words for people are left out."""
    shape = asdict(panel)
    for words in ("name", "unit", "rows", "sweep"):
        shape.pop(words)
    if panel.sweep is not None:
        shape["sweep"] = panel.sweep.parameter
    method = {k: v for k, v in asdict(row).items() if k not in ("title", "group", "role", "name")}
    sizes = {k: v for k, v in asdict(size).items() if v not in (None, ())}
    for how_many in ("seeds", "fold_seeds", "folds", "points"):
        sizes.pop(how_many, None)
    text = json.dumps([shape, method, sizes, most_queries], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def resized(size: Size, changes: dict[str, Any]) -> Size:
    """The size with some of its numbers exchanged."""
    for name in changes:
        if name not in Size.__dataclass_fields__:
            hint = did_you_mean(name, Size.__dataclass_fields__)
            raise OptionError(f"an experiment's size has no {name!r}.{hint}")
    return replace(size, **changes)


class ResultsFile:
    """Finished cells, one JSON line each. Appending is one write: a kill leaves whole lines,

    or one broken last line, which reading skips and the next append closes off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[Cell, Result]:
        """Every finished cell; a later line takes the place of an earlier one."""
        return {result.cell: result for result in self._lines()}

    def append(self, result: Result) -> None:
        """Add a finished cell."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(
            {"cell": asdict(result.cell), "values": result.values,
             "seconds": result.seconds}, allow_nan=False,
        )  # fmt: skip
        data = f"{'' if self._ends_well() else chr(10)}{line}\n".encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _ends_well(self) -> bool:
        if not self.path.exists() or self.path.stat().st_size == 0:
            return True
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _lines(self) -> Iterator[Result]:
        if not self.path.exists():
            return
        lines = self.path.read_text(encoding="utf8").splitlines()
        for number, line in enumerate(lines):
            try:
                found = json.loads(line)
                yield Result(Cell(**found["cell"]), found["values"], found["seconds"])
            except (ValueError, TypeError, KeyError) as error:
                if self._was_cut(line):
                    continue
                raise FileFormatError(
                    f"line {number + 1} of {self.path} is no finished cell. Take the line out, or "
                    "give another --out."
                ) from error

    @staticmethod
    def _was_cut(line: str) -> bool:
        """A line that a kill cut short: it begins like one of ours and does not end."""
        return not line.strip() or ('{"cell": '.startswith(line[:9]) and not line.endswith("}"))
