"""Results over seeds and folds: means with intervals, and the share of the gap recovered."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from untilt._core.statistics import Interval, MeanEstimate, student_quantile, weighted_mean
from untilt.experiments.cells import Cell, Result
from untilt.experiments.schema import Experiment, Panel, Row, Value

Run = tuple[int, int]
Key = tuple[str, str, str, Value | None]  # panel, row, metric, x
LEVEL = 0.95


@dataclass(frozen=True)
class Point:
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
        self.points: dict[Key, Point] = {}
        gathered: dict[Key, dict[Run, float]] = {}
        for cell, result in results.items():
            for key, value in _flat(experiment, cell, result):
                gathered.setdefault(key, {})[cell.run] = value
        for key, runs in gathered.items():
            self.points[key] = Point(*key, runs)
        self.seconds = sum(result.seconds for result in results.values())
        self.n_runs = len({cell.run for cell in results})

    def point(self, panel: str, row: str, metric: str, x: Value | None = None) -> Point | None:
        """A point; a fixed row has the same at every x."""
        found = self.points.get((panel, row, metric, x))
        return self.points.get((panel, row, metric, None)) if found is None else found

    def xs(self, panel: Panel, metric: str) -> list[Value]:
        """Values along the x axis that have results, in their order; none without an axis."""
        found = {x for p, _, m, x in self.points if p == panel.name and m == metric}
        order = [float(x) for x in found if not isinstance(x, str) and x is not None]
        if panel.sweep is None:
            return sorted(order)
        return [x for x in panel.sweep.values if x in found]

    def points_of(self, panel: Panel, row: Row, metric: str) -> list[Point]:
        """All points of a row, along the x axis."""
        wanted = (panel.name, row.name, metric)
        keys = [key for key in self.points if key[:3] == wanted]
        order = list(panel.sweep.values) if panel.sweep is not None else []
        return [self.points[key] for key in sorted(keys, key=lambda key: _place(key[3], order))]

    def metrics(self, panel: Panel) -> list[str]:
        """Metrics of the panel that have results."""
        there = {metric for name, _, metric, _ in self.points if name == panel.name}
        return [metric for metric in panel.metrics if metric in there]

    def share(self, panel: Panel, row: Row, metric: str) -> Share | None:
        """(row - lower) / (upper - lower) inside the row's group; None without both ends."""
        ends = self._ends(panel, row, metric)
        own = self.point(panel.name, row.name, metric)
        if ends is None or own is None:
            return None
        low, high = ends
        runs = [run for run in own.runs if run in low.runs and run in high.runs]
        table = np.array([[p.runs[run] for run in runs] for p in (own, low, high)])
        if not runs or not _gap(table.mean(axis=1)) > 0:
            return None
        return Share(_ratio(table.mean(axis=1)), _jackknife(table))

    def reported_share(self, panel: Panel, row: Row, metric: str) -> float | None:
        """The same share by the document's own figures."""
        found = {each.row: each.values for each in self.experiment.reported
                 if each.panel in ("", panel.name)}  # fmt: skip
        names = [row.name, *(self._end(panel, row, role) for role in ("lower", "upper"))]
        values = [found.get(name or "", {}).get(metric) for name in names]
        if any(value is None for value in values):
            return None
        return _ratio(np.array(values, dtype=float))

    def reported(self, panel: Panel, row: Row, metric: str) -> float | None:
        """The document's own figure."""
        for each in self.experiment.reported:
            if each.row == row.name and each.panel in ("", panel.name) and metric in each.values:
                return each.values[metric]
        return None

    def _ends(self, panel: Panel, row: Row, metric: str) -> tuple[Point, Point] | None:
        names = [self._end(panel, row, role) for role in ("lower", "upper")]
        low, high = (self.point(panel.name, name or "", metric) for name in names)
        return None if low is None or high is None else (low, high)

    def _end(self, panel: Panel, row: Row, role: str) -> str | None:
        for other in self.experiment.rows_of(panel):
            if other.group == row.group and other.role == role:
                return other.name
        return None


def _flat(experiment: Experiment, cell: Cell, result: Result) -> Iterable[tuple[Key, float]]:
    """Lists become one point per position."""
    for metric, value in result.values.items():
        if isinstance(value, list):
            for position, one in enumerate(value, start=1):
                yield (cell.panel, cell.row, metric, float(position)), float(one)
        else:
            sweep = experiment.panel(cell.panel).sweep
            yield (cell.panel, cell.row, metric, None if sweep is None else cell.x), float(value)


def _place(x: Value | None, order: list[Value]) -> float:
    if x is None:
        return -1.0
    return float(order.index(x)) if x in order else float(x)


def _gap(means: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    return float(means[2] - means[1])


def _ratio(means: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    return float((means[0] - means[1]) / _gap(means))


def _jackknife(table: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float | None:
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
