"""Running an experiment: cells that are not finished yet, one after the other."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from untilt._core import codec
from untilt._core.files import append_line
from untilt._core.progress import progress
from untilt.errors import FileFormatError, OptionError, check_least, did_you_mean
from untilt.papers.datasets import JudgedSource
from untilt.papers.methods import Values, measure, row_at, versions
from untilt.papers.schema import Experiment, ExperimentSize, Panel, Row, Value
from untilt.papers.setting import CellSetting, at_value

Scale = Literal["", "quick", "full"]


@dataclass(frozen=True)
class Cell:
    """One method in one setting, the smallest unit of work: data, panel, row, x, seed and fold.

    `of` is a digest of everything else that the result depends on: the panel, the row, the sizes,
    and the versions of its methods. After a change of one the old results are other cells.
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
    """What a cell gave. A value is a number, or a list with one number per position.

    `trained` says how the ranker was trained, read off the ranker; lines of untilt 0.2 lack it.
    """

    cell: Cell
    values: Values
    seconds: float
    trained: dict[str, str] = field(default_factory=dict)


def cells_of(
    experiment: Experiment, source: JudgedSource, size: ExperimentSize, most_queries: int | None
) -> list[Cell]:
    """All cells, those that share clicks next to each other."""
    cells, rows_of = [], {panel.name: experiment.rows_of(panel) for panel in experiment.panels}
    # Once for each method: for each of the 48,000 cells of all experiments it takes four seconds.
    of = {
        (panel.name, row.name): digest(panel, row, size, most_queries)
        for panel in experiment.panels
        for row in rows_of[panel.name]
    }
    for seed, fold in source.runs(size):
        for panel in experiment.panels:
            rows = rows_of[panel.name]
            for x in (None, *points_of(panel, size)):
                for row in rows:
                    if (x is None) == (row.fixed or panel.sweep is None):
                        own = of[panel.name, row.name]
                        cells.append(Cell(source.name, panel.name, row.name, x, seed, fold, own))
    return cells


def points_of(panel: Panel, size: ExperimentSize) -> tuple[Value, ...]:
    """The values of the x axis; where the size asks for fewer, evenly spaced ones."""
    if panel.sweep is None:
        return ()
    values = panel.sweep.values
    if size.points is None or size.points >= len(values):
        return values
    kept = np.unique(np.linspace(0, len(values) - 1, size.points).round().astype(int))
    return tuple(values[k] for k in kept)


def digest(panel: Panel, row: Row, size: ExperimentSize, most_queries: int | None) -> str:
    """Eight letters for all that shapes a cell's result; words for people are left out."""
    shape = asdict(panel)
    for words in ("name", "unit", "rows", "sweep"):
        shape.pop(words)
    if panel.times == 1:  # finished cells are older than this key
        shape.pop("times")
    if panel.sweep is not None:
        shape["sweep"] = panel.sweep.parameter
    method = {k: v for k, v in asdict(row).items() if k not in ("title", "group", "name")}
    # Younger than the first results: where they are not used, those cells keep their digests.
    for table, name in ((shape, "clicks_per_query"), (method, "tune")):
        if not table[name]:
            del table[name]
    sizes = {k: v for k, v in asdict(size).items() if v not in (None, (), False)}
    for amount in ("seeds", "fold_seeds", "folds", "points"):
        sizes.pop(amount, None)
    # Code counts where it is no longer the first: built-in methods by version, others by source.
    code = versions(panel, row)
    text = json.dumps(
        [shape, method, sizes, most_queries, *([code] if code else [])], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class ResultsFile:
    """Finished cells, one JSON line each, with its checksum.

    Several processes may append. A line that was cut by a kill, damaged or edited counts as not
    there, so that its cell is run again. A file without any line of ours is somebody else's, and
    refused. Lines of untilt 0.2 have no checksum.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[Cell, Result]:
        """Every finished cell; a later line takes the place of an earlier one."""
        return {result.cell: result for result in self._lines() if result is not None}

    def damaged(self) -> int:
        """How many lines are cut, damaged or edited."""
        return sum(result is None for result in self._lines())

    def append(self, result: Result) -> None:
        """Add a finished cell."""
        record = asdict(result)
        line = json.dumps({**record, "sha256": codec.checksum(record)}, allow_nan=False)
        append_line(self.path, line)

    def _lines(self) -> list[Result | None]:
        """What each line holds; None for one that cannot be used."""
        if not self.path.exists():
            return []
        text = self.path.read_text(encoding="utf8", errors="replace")
        lines = [line for line in text.split("\n") if line.strip()]
        results = [_result_of(line) for line in lines]
        if lines and not any(results) and not all(map(_was_cut, lines)):
            raise FileFormatError(
                f"line 1 of {self.path} is no finished cell, and none of the others is. Move the "
                "file away, or give another --out."
            )
        return results


def _result_of(line: str) -> Result | None:
    try:
        record = codec.read_json(line, where="it", again="")
        known = record.pop("sha256", None) if isinstance(record, dict) else None
        if known is not None and known != codec.checksum(record):
            return None
        return codec.from_plain(Result, record, where="it")
    except FileFormatError:
        return None


def _was_cut(line: str) -> bool:
    """A line that a kill cut short: it begins like one of ours and does not end."""
    return '{"cell": '.startswith(line[:9]) and not line.endswith("}")


@dataclass(frozen=True)
class ReproductionPlan:
    """An experiment on a data set at a size: what there is to do, and where results are kept.

    `scale` is "quick" or "full" where that was asked for, and means another size than that of a run
    without a word about it. `most_queries` is the most that is taken of a public data set; None
    takes all.
    """

    experiment: Experiment
    source: JudgedSource
    size: ExperimentSize
    scale: Scale
    most_queries: int | None
    results: ResultsFile

    @property
    def picture_name(self) -> str:
        """What the chart of this data set is called, without a suffix."""
        name = f"{self.experiment.name}-{self.source.name}"
        return f"{name}{'-' if self.scale else ''}{self.scale}"

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
    source: JudgedSource,
    folder: str | Path,
    *,
    scale: Scale = "",
    changes: Mapping[str, Any] | None = None,
) -> ReproductionPlan:
    """What running this experiment on this data means; nothing is computed yet.

    Results are kept in FOLDER/results/NAME-DATA.jsonl, those of a quick run in a file of their own.

    Parameters
    ----------
    scale : "quick", or "full" for the document's own size; nothing for the file's [size]
    changes : sizes other than the file's, such as {"seeds": 5}
    """
    changes = changes or {}
    for name in changes:
        if name not in ExperimentSize.__dataclass_fields__:
            hint = did_you_mean(name, ExperimentSize.__dataclass_fields__)
            raise OptionError(f"an experiment's size has no {name!r}.{hint}")
    sizes = {"": experiment.size, "quick": experiment.quick, "full": experiment.full}
    if scale == "full" and experiment.full == experiment.size:
        scale = ""
    size = replace(sizes[scale], **changes)
    for name in ("queries", "test_queries", "seeds", "fold_seeds", "folds", "trees"):
        check_least(name, getattr(size, name), 1)
    cut = scale == "quick" or "queries" in changes
    # Cells that the full size shares with the default one are not run twice.
    name = f"{experiment.name}-{source.name}{'-quick' if scale == 'quick' else ''}.jsonl"
    return ReproductionPlan(
        experiment=experiment,
        source=source,
        size=size,
        scale=scale,
        most_queries=size.queries if cut else None,
        results=ResultsFile(Path(folder) / "results" / name),
    )


def run(
    what: ReproductionPlan, *, n_threads: int = 1, on_result: Callable[[Result], None] | None = None
) -> dict[Cell, Result]:
    """Run the cells that are not finished, and return all results of the plan.

    Each result is written before the next cell starts, so a run may be stopped at any moment; the
    same call goes on where it was. `on_result` is called with each.
    """
    finished = what.finished()
    todo = [cell for cell in what.cells if cell not in finished]
    with progress(f"{what.experiment.name} on {what.source.title}", total=len(todo)) as advance:
        for group in sharing(what, todo):
            setting = setting_of(what, group[0], n_threads)
            for cell in group:
                finished[cell] = result = result_of(what, setting, cell)
                what.results.append(result)
                if on_result is not None:
                    on_result(result)
                advance()
    return {cell: finished[cell] for cell in what.cells}


def sharing(what: ReproductionPlan, todo: Iterable[Cell]) -> list[list[Cell]]:
    """Cells grouped by the clicks that they share, in their order."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in todo:
        sweep = what.experiment.panel(cell.panel).sweep
        x = cell.x if sweep is not None and sweep.changes_the_log else None
        groups.setdefault((cell.seed, cell.fold, cell.panel, x), []).append(cell)
    return list(groups.values())


def setting_of(what: ReproductionPlan, cell: Cell, n_threads: int) -> CellSetting:
    """The lists and clicks that the cell is run on."""
    panel, size = at_value(what.experiment.panel(cell.panel), what.size, cell.x)
    train, test = what.source.parts(
        seed=cell.seed, fold=cell.fold, size=size, most_queries=what.most_queries
    )
    return CellSetting(train, test, panel, size, seed=cell.seed, n_threads=n_threads)


def result_of(what: ReproductionPlan, setting: CellSetting, cell: Cell) -> Result:
    """Run one cell."""
    start = time.perf_counter()
    row = row_at(what.experiment.panel(cell.panel), what.experiment.row(cell.row), cell.x)
    setting.trained = {}
    values = measure(setting, row)
    for name, value in values.items():
        if not np.all(np.isfinite(value)):
            raise OptionError(
                f"{name} of row {cell.row!r} in panel {cell.panel!r} is no finite number (seed "
                f"{cell.seed}, fold {cell.fold}, x {cell.x}). The log may be too small for this "
                "method: give it more queries or sessions."
            )
    return Result(cell, values, round(time.perf_counter() - start, 3), setting.trained)
