"""Results over seeds and folds: means with intervals, and the share of the gap recovered."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.statistics import Interval, MeanEstimate, student_quantile, weighted_mean
from untilt.papers.cells import Cell, Result
from untilt.papers.layouts import LAYOUTS
from untilt.papers.schema import Experiment, Panel, Row, Value

Run = tuple[int, int]
Key = tuple[str, str, str, Value | None]  # panel, row, metric, x
LEVEL = 0.95


@dataclass(frozen=True)
class SummaryPoint:
    """One metric of one row at one x, over all runs."""

    panel: str
    row: str
    metric: str
    x: Value | None
    runs: Mapping[Run, float]

    @cached_property
    def mean(self) -> MeanEstimate:
        """Mean over runs with its standard error."""
        return weighted_mean(np.array(list(self.runs.values())))

    @property
    def value(self) -> float:
        """The mean."""
        return self.mean.value

    @property
    def interval(self) -> Interval | None:
        """Student's t over runs; None where there is only one."""
        return self.mean.interval(LEVEL) if len(self.runs) > 1 else None


@dataclass(frozen=True)
class Share:
    """A share of the gap with its half width; the ratio of means, its error by the jackknife."""

    value: float
    half: float | None


class Summary:
    """All points of an experiment on one data set."""

    def __init__(self, experiment: Experiment, results: Mapping[Cell, Result]) -> None:
        self.experiment = experiment
        self.points: dict[Key, SummaryPoint] = {}
        gathered: dict[Key, dict[Run, float]] = {}
        for cell, result in results.items():
            for key, value in _flat(experiment, cell, result):
                gathered.setdefault(key, {})[cell.run] = value
        for key, runs in gathered.items():
            self.points[key] = SummaryPoint(*key, runs)
        names = {cell.data for cell in results}
        self.data = next((each.title for each in LAYOUTS.values() if {each.name} == names), "")
        self.seconds = sum(result.seconds for result in results.values())
        self.n_runs = len({cell.run for cell in results})

    def point(
        self, panel: str, row: str, metric: str, x: Value | None = None
    ) -> SummaryPoint | None:
        """A point; a fixed row has the same at every x."""
        at_x = self.points.get((panel, row, metric, x))
        return self.points.get((panel, row, metric, None)) if at_x is None else at_x

    def xs(self, panel: Panel, metric: str) -> list[Value]:
        """Values along the x axis that have results, in their order; none without an axis."""
        there = {x for p, _, m, x in self.points if p == panel.name and m == metric}
        if panel.sweep is not None:
            return [x for x in panel.sweep.values if x in there]
        return sorted(float(x) for x in there if not isinstance(x, str) and x is not None)

    def points_of(self, panel: Panel, row: Row, metric: str) -> list[SummaryPoint]:
        """All points of a row, along the x axis."""
        wanted = (panel.name, row.name, metric)
        keys = [key for key in self.points if key[:3] == wanted]
        values = panel.sweep.values if panel.sweep is not None else ()
        return [self.points[key] for key in sorted(keys, key=lambda key: _rank(key[3], values))]

    def metrics(self, panel: Panel) -> list[str]:
        """Metrics of the panel that have results."""
        there = {metric for name, _, metric, _ in self.points if name == panel.name}
        return [metric for metric in panel.metrics if metric in there]

    def share(self, panel: Panel, row: Row, metric: str) -> Share | None:
        """(row - lower) / (upper - lower) inside the row's group; None without both ends."""
        rows = row, self._end(panel, row, "lower"), self._end(panel, row, "upper")
        points = [self.point(panel.name, each.name, metric) for each in rows if each is not None]
        by_run = [point.runs for point in points if point is not None]
        if len(by_run) < 3:
            return None
        runs = [run for run in by_run[0] if all(run in each for each in by_run)]
        table = np.array([[each[run] for run in runs] for each in by_run])
        if not runs or not _gap(table.mean(axis=1)) > 0:
            return None
        return Share(_ratio(table.mean(axis=1)), _jackknife(table))

    def reported_share(self, panel: Panel, row: Row, metric: str) -> float | None:
        """The same share by the document's own figures."""
        rows = [row, *(self._end(panel, row, role) for role in ("lower", "upper"))]
        values = [each and self.reported(panel, each, metric) for each in rows]
        if any(value is None for value in values):
            return None
        return _ratio(np.array(values, dtype=float))

    def reported(self, panel: Panel, row: Row, metric: str, *, on: str = "") -> float | None:
        """The document's own figure on this data set; without one on that of `reported_on`."""
        values = {
            each.source: each.values[metric]
            for each in reversed(self.experiment.reported)
            if each.row == row.name and each.panel in ("", panel.name) and metric in each.values
        }
        return values.get(on or self.reported_on)

    @property
    def reported_on(self) -> str:
        """The data set whose figures of the document stand beside: the same, else its first."""
        sources = [each.source for each in self.experiment.reported]
        return self.data if self.data in sources else next(iter(sources), "")

    def _end(self, panel: Panel, row: Row, role: str) -> Row | None:
        """The row of this role in the row's group."""
        rows = self.experiment.rows_of(panel)
        return next((each for each in rows if each.group == row.group and each.role == role), None)


def _flat(experiment: Experiment, cell: Cell, result: Result) -> Iterable[tuple[Key, float]]:
    """Lists become one point per position."""
    for metric, value in result.values.items():
        if isinstance(value, list):
            for position, one in enumerate(value, start=1):
                yield (cell.panel, cell.row, metric, float(position)), float(one)
        else:
            sweep = experiment.panel(cell.panel).sweep
            yield (cell.panel, cell.row, metric, None if sweep is None else cell.x), float(value)


def _rank(x: Value | None, values: tuple[Value, ...]) -> float:
    """Where x comes along the axis; what does not depend on it comes first."""
    if x is None:
        return -1.0
    return float(values.index(x)) if x in values else float(x)


def _gap(means: FloatArray) -> float:
    return float(means[2] - means[1])


def _ratio(means: FloatArray) -> float:
    return float((means[0] - means[1]) / _gap(means))


def _jackknife(table: FloatArray) -> float | None:
    """Half width of the interval: se^2 = (n-1)/n sum (share without run i - their mean)^2."""
    n = table.shape[1]
    if n < 3:
        return None
    without = [np.delete(table, i, axis=1).mean(axis=1) for i in range(n)]
    if any(not _gap(means) > 0 for means in without):
        return None
    shares = np.array([_ratio(means) for means in without])
    error = np.sqrt((n - 1) / n * np.sum((shares - shares.mean()) ** 2))
    return float(student_quantile(LEVEL, n - 1) * error)
