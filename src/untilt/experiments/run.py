"""Running an experiment: cells that are not finished yet, one after the other."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untilt._core.progress import progress
from untilt.errors import OptionError
from untilt.experiments.cells import Cell, Result, ResultsFile, cells_of, resized
from untilt.experiments.measures import measure, row_at
from untilt.experiments.schema import Experiment, Size
from untilt.experiments.setting import Setting, at_value
from untilt.experiments.sources import Source

Told = Callable[[Result], None]


@dataclass(frozen=True)
class Plan:
    """An experiment on a data set at a size: what there is to do, and where results are kept.

    `most_queries` is the most that is taken of a public data set; None takes all.
    """

    experiment: Experiment
    source: Source
    size: Size
    quick: bool
    most_queries: int | None
    results: ResultsFile

    @property
    def cells(self) -> list[Cell]:
        """All cells of the plan."""
        return cells_of(self.experiment, self.source, self.size, self.most_queries)

    def finished(self) -> dict[Cell, Result]:
        """Cells of this plan that have been run."""
        known = self.results.read()
        return {cell: known[cell] for cell in self.cells if cell in known}


def plan(
    experiment: Experiment,
    source: Source,
    folder: str | Path,
    *,
    quick: bool = False,
    changes: dict[str, Any] | None = None,
) -> Plan:
    """What running this experiment on this data means; nothing is computed yet.

    Results are kept in FOLDER/results/NAME-DATA.jsonl, those of a quick run in a file of their own.

    Parameters
    ----------
    changes : sizes other than the file's, such as {"seeds": 5}
    """
    size = resized(experiment.quick if quick else experiment.full, changes or {})
    for name in ("queries", "test_queries", "seeds", "fold_seeds", "folds", "trees"):
        if getattr(size, name) < 1:
            raise OptionError(f"{name} must be at least 1. Got {getattr(size, name)} instead.")
    cut = quick or "queries" in (changes or {})
    name = f"{experiment.name}-{source.name}{'-quick' if quick else ''}.jsonl"
    return Plan(
        experiment=experiment,
        source=source,
        size=size,
        quick=quick,
        most_queries=size.queries if cut else None,
        results=ResultsFile(Path(folder) / "results" / name),
    )


def run(what: Plan, *, n_threads: int = 1, told: Told | None = None) -> dict[Cell, Result]:
    """Run the cells that are not finished, and return all results of the plan.

    Each result is written before the next cell starts, so a run may be stopped at any moment; the
    same call goes on where it was.
    """
    finished = what.finished()
    todo = [cell for cell in what.cells if cell not in finished]
    with progress(f"{what.experiment.name} on {what.source.title}", total=len(todo)) as advance:
        for group in _sharing(what, todo):
            setting = _setting(what, group[0], n_threads)
            for cell in group:
                finished[cell] = result = _result(what, setting, cell)
                what.results.append(result)
                if told is not None:
                    told(result)
                advance()
    return {cell: finished[cell] for cell in what.cells}


def _sharing(what: Plan, todo: Iterable[Cell]) -> list[list[Cell]]:
    """Cells grouped by the clicks that they share, in their order."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in todo:
        sweep = what.experiment.panel(cell.panel).sweep
        x = cell.x if sweep is not None and sweep.changes_the_log else None
        groups.setdefault((cell.seed, cell.fold, cell.panel, x), []).append(cell)
    return list(groups.values())


def _setting(what: Plan, cell: Cell, n_threads: int) -> Setting:
    panel, size = at_value(what.experiment.panel(cell.panel), what.size, cell.x)
    train, test = what.source.parts(
        seed=cell.seed, fold=cell.fold, size=size, most_queries=what.most_queries
    )
    return Setting(train, test, panel, size, seed=cell.seed, n_threads=n_threads)


def _result(what: Plan, setting: Setting, cell: Cell) -> Result:
    start = time.perf_counter()
    row = row_at(what.experiment.panel(cell.panel), what.experiment.row(cell.row), cell.x)
    values = measure(setting, row)
    plain = {name: _finite(value, cell, name) for name, value in values.items()}
    return Result(cell, plain, round(time.perf_counter() - start, 3))


def _finite(value: Any, cell: Cell, name: str) -> Any:
    numbers = value if isinstance(value, list) else [value]
    if all(math.isfinite(number) for number in numbers):
        return value
    raise OptionError(
        f"{name} of row {cell.row!r} in panel {cell.panel!r} is no finite number (seed "
        f"{cell.seed}, fold {cell.fold}, x {cell.x}). The log may be too small for this method: "
        "give it more queries or sessions."
    )
