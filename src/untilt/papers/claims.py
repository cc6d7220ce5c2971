"""The documents' claims put to the test: one number per run that is positive where they hold.

"similar" is the exception: there the number is a difference that should be within a margin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from untilt._core.statistics import Interval, MeanEstimate, student_quantile, weighted_mean
from untilt.papers.run import Cell, Result
from untilt.papers.schema import Claim, Experiment, Panel, Row, Value

# Results over seeds and folds: means with intervals, and the share of the gap recovered.

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


HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
Series = dict[Value | None, float]  # by x, within one run


@dataclass(frozen=True)
class Verdict:
    """A claim, the mean over runs of the number that should be positive, and what that says.

    `against` is the row that a claim about several was decided by.
    """

    claim: Claim
    verdict: str
    value: float
    interval: Interval | None
    n_runs: int
    against: str = ""

    @property
    def sentence(self) -> str:
        """What was found, in figures."""
        if self.interval is None:
            return f"{self.value:+.4f} in one run"
        low, high = self.interval.low, self.interval.high
        versus = f" against {self.against}" if self.against else ""
        return f"{self.value:+.4f}{versus}, {LEVEL:.0%} interval [{low:+.4f}, {high:+.4f}]"


def verdicts(summary: Summary) -> list[Verdict]:
    """Every claim that the results can speak about, decided."""
    found = [_verdict(summary, claim) for claim in summary.experiment.claims]
    return [verdict for verdict in found if verdict is not None]


def _verdict(summary: Summary, claim: Claim) -> Verdict | None:
    panels = [p for p in summary.experiment.panels if claim.panel in ("", p.name)]
    candidates = []
    for other in ("",) if claim.kind == "larger-gap" else claim.rows[1:] or ("",):
        by_run = [_by_run(summary, claim, panel, other) for panel in panels]
        values = [value for runs in by_run for value in runs]
        if values:
            candidates.append((float(np.mean(values)), other, np.array(values)))
    if not candidates:
        return None
    # "Better than all others" is decided by the other that comes nearest; "like all others"
    # names one other only.
    _, against, by_run_of_it = min(candidates, key=lambda candidate: candidate[0])
    mean = weighted_mean(by_run_of_it)
    interval = mean.interval(LEVEL) if mean.n > 1 else None
    return Verdict(
        claim=claim,
        verdict=_decided(claim, interval),
        value=mean.value,
        interval=interval,
        n_runs=mean.n,
        against=against if against and len(claim.rows) > 2 else "",
    )


def _decided(claim: Claim, interval: Interval | None) -> str:
    if interval is None:
        return OPEN
    low, high, margin = interval.low, interval.high, claim.margin
    if claim.kind == "similar":  # the whole interval within the margin, or beyond it
        inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        return HOLDS if inside else FAILS if outside else OPEN
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


def _by_run(summary: Summary, claim: Claim, panel: Panel, other: str) -> list[float]:
    if claim.kind == "larger-gap":
        return _larger_gap(summary, claim, panel)
    first = _series(summary, claim, panel, claim.rows[0])
    second = _series(summary, claim, panel, other) if other else {}
    target = _series(summary, claim, panel, claim.target) if claim.target else {}
    values = []
    for run, own in first.items():
        if (other and run not in second) or (claim.target and run not in target):
            continue
        statistic = KINDS[claim.kind](claim, own, second.get(run, {}), target.get(run, {}))
        if statistic is not None:
            values.append(statistic)
    return values


def _series(
    summary: Summary, claim: Claim, panel: Panel, name: str
) -> dict[tuple[int, int], Series]:
    """Run -> x -> value, at the claim's values of x (all where it names none)."""
    row, _, own_metric = name.partition(":")
    metric = own_metric or claim.metric or panel.metrics[0]
    xs: Sequence[Value | None] = summary.xs(panel, metric) or [None]
    found: dict[tuple[int, int], Series] = {}
    for x in xs:
        point = summary.point(panel.name, row, metric, x)
        if point is not None and (not claim.at or x in claim.at):
            for run, value in point.runs.items():
                found.setdefault(run, {})[x] = value
    return found


def _above(_: Claim, own: Series, other: Series, __: Series) -> float | None:
    """Mean difference over the x that both have."""
    return _mean([own[x] - other[x] for x in own if x in other])


def _below(claim: Claim, own: Series, other: Series, target: Series) -> float | None:
    difference = _above(claim, own, other, target)
    return None if difference is None else -difference


def _similar(claim: Claim, own: Series, other: Series, __: Series) -> float | None:
    """Mean difference; without another row, to the claim's own value."""
    return _mean([own[x] - other.get(x, claim.value) for x in own])


def _rises(claim: Claim, own: Series, _: Series, __: Series) -> float | None:
    """Last less first, in the order of `at` or of the axis."""
    xs = [x for x in (claim.at or own) if x in own]
    return own[xs[-1]] - own[xs[0]] if len(xs) > 1 else None


def _falls(claim: Claim, own: Series, other: Series, target: Series) -> float | None:
    rise = _rises(claim, own, other, target)
    return None if rise is None else -rise


def _gains_more(claim: Claim, own: Series, other: Series, target: Series) -> float | None:
    """How much more the first rises, or how much less it falls."""
    rises = _rises(claim, own, {}, target), _rises(claim, other, {}, target)
    return None if rises[0] is None or rises[1] is None else rises[0] - rises[1]


def _closer(_: Claim, own: Series, other: Series, target: Series) -> float | None:
    """Mean distance of the other from the target less that of the first."""
    xs = [x for x in target if x in own and x in other]
    return _mean([abs(other[x] - target[x]) - abs(own[x] - target[x]) for x in xs])


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _larger_gap(summary: Summary, claim: Claim, panel: Panel) -> list[float]:
    """(first - second) - (third - fourth), run by run: the mean over x of each."""
    series = [_series(summary, claim, panel, name) for name in claim.rows]
    shared = [run for run in series[0] if all(run in each for each in series)]
    a, b, c, d = ([float(np.mean(list(each[run].values()))) for run in shared] for each in series)
    return [(w - x) - (y - z) for w, x, y, z in zip(a, b, c, d, strict=True)]


Statistic = Callable[[Claim, Series, Series, Series], float | None]
KINDS: dict[str, Statistic] = {
    "above": _above,
    "below": _below,
    "similar": _similar,
    "rises": _rises,
    "falls": _falls,
    "gains-more": _gains_more,
    "closer": _closer,
}
