"""The documents' claims put to the test: one number per run that is positive where they hold.

"similar" is the exception: there the number is a difference that should be within a margin.

A run is a seed; on data with folds it is a fold, the mean over its seeds: those share queries.

A claim about several x or panels is about their mean, unless it says "every": then each x (of a
claim about rising or falling: each step to the next x) and each panel has a test of its own. Each
other row has one always. The claim holds where all tests at the level do: a conjunction is wrong no
more often than one of its parts. It does not hold where one test is on the other side, and for that
p-values are corrected by Holm for their number.

Results over runs: means with intervals.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.statistics import Interval, MeanEstimate, holm, student_quantile, weighted_mean
from untilt.papers.cells import Cell, Result
from untilt.papers.layouts import LAYOUTS, MADE
from untilt.papers.schema import STEPWISE, Claim, ClaimKind, Experiment, Panel, Row, Value, named

Run = int
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


class Summary:
    """All points of an experiment on one data set."""

    def __init__(self, experiment: Experiment, results: Mapping[Cell, Result]) -> None:
        self.experiment = experiment
        self.points: dict[Key, SummaryPoint] = {}
        gathered: dict[Key, dict[Run, list[float]]] = {}
        has_folds = any(cell.fold > 1 for cell in results)
        for cell, result in results.items():
            for key, value in _flat(experiment, cell, result):
                run = cell.fold if has_folds else cell.seed
                gathered.setdefault(key, {}).setdefault(run, []).append(value)
        for key, runs in gathered.items():
            means = {run: float(np.mean(values)) for run, values in runs.items()}
            self.points[key] = SummaryPoint(*key, means)
        names = {cell.data for cell in results}
        titles = {each.name: each.title for each in LAYOUTS.values()} | {MADE: "make_judged"}
        self.data = ", ".join(titles.get(name, name) for name in sorted(names))
        self.seconds = sum(result.seconds for result in results.values())
        self.n_runs = len({run for point in self.points.values() for run in point.runs})

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


HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
Series = dict[Value | None, float]  # by x, within one run
MOST_RUNS = 1000  # beyond that a difference is as good as none


@dataclass(frozen=True)
class Verdict:
    """A claim, the mean over runs of the number that should be positive, and what that says.

    `against` is the title of the row, and `at` the x, of the test that is shown, where a claim has
    several. `sides` counts these: clearly on its side, clearly on the other, all. `runs_needed` is
    about how many runs with this mean and spread would decide it, None for MOST_RUNS or more.
    """

    claim: Claim
    verdict: str
    value: float
    interval: Interval | None
    n_runs: int
    against: str = ""
    at: Value | None = None
    sides: tuple[int, int, int] | None = None
    runs_needed: int | None = None

    @property
    def sentence(self) -> str:
        """The reason in figures, and for what is undecided how many runs would decide it."""
        if self.interval is None:
            return f"{self.value:+.4f} in one run, which decides nothing"
        place = "" if self.at is None else f" at {self.at}"
        place += f" against {self.against}" if self.against else ""
        margin = f", margin {self.claim.margin:g}" if self.claim.kind == "similar" else ""
        tests = ""
        if self.sides is not None:
            tests = (
                f" ({self.sides[0]} of {self.sides[2]} tests for it, {self.sides[1]} against it)"
            )
        needed = "" if self.verdict != OPEN else f"; more than {MOST_RUNS:,} runs would be needed"
        if needed and self.runs_needed is not None:
            needed = f"; about {self.runs_needed} runs with this spread would decide it"
        return (
            f"{self.value:+.4f}{place}, interval {self.interval.low:+.4f} to "
            f"{self.interval.high:+.4f} over {self.n_runs} runs{margin}"
            f"{tests}{needed}"
        )

    @property
    def short(self) -> str:
        """The verdict with its figure, for a table."""
        half = (
            "" if self.interval is None else f"±{(self.interval.high - self.interval.low) / 2:.3f}"
        )
        tests = "" if self.sides is None else " ({}, {}, {})".format(*self.sides)
        return f"**{self.verdict}** {self.value:+.3f}{half}{tests}"

    @property
    def _needed(self) -> str:
        if self.verdict != OPEN:
            return ""
        if self.runs_needed is None:
            return f"; more than {MOST_RUNS:,} runs with this spread would be needed"
        return f"; about {self.runs_needed} runs with this spread would decide it"


def verdicts(summary: Summary) -> list[Verdict]:
    """Every claim that the results can speak about, decided."""
    decided = (_verdict(summary, claim) for claim in summary.experiment.claims)
    return [verdict for verdict in decided if verdict is not None]


def _verdict(summary: Summary, claim: Claim) -> Verdict | None:
    panels = [p for p in summary.experiment.panels if claim.panel in ("", p.name)]
    if claim.every or len(_others(claim)) > 1:
        return _of_several(summary, claim, panels)
    values = _over_panels([_by_run(summary, claim, panel, *_others(claim)) for panel in panels])
    if not len(values):
        return None
    mean = weighted_mean(values)
    interval = mean.interval(LEVEL) if mean.n > 1 else None
    return Verdict(
        claim=claim,
        verdict=_decided(claim, interval),
        value=mean.value,
        interval=interval,
        n_runs=mean.n,
        runs_needed=_runs_needed(mean, _distance(claim, mean.value), LEVEL),
    )


def _others(claim: Claim) -> tuple[str, ...]:
    """The rows that the first one is compared with, "" for none; two gaps are one comparison."""
    return ("",) if claim.kind == "larger-gap" else claim.rows[1:] or ("",)


def _over_panels(by_panel: list[dict[Run, float]]) -> FloatArray:
    """One number per run: the mean over panels. Panels of one run are not independent."""
    runs = dict.fromkeys(run for each in by_panel for run in each)
    return np.array([np.mean([each[run] for each in by_panel if run in each]) for run in runs])


def _title(summary: Summary, item: str) -> str:
    name, _, metric = item.partition(":")
    experiment = summary.experiment
    title = named(experiment.row(name), experiment.rows)
    return f"{title}{f', {metric}' if metric else ''}"


def _decided(claim: Claim, interval: Interval | None) -> str:
    if interval is None:
        return OPEN
    low, high, margin = interval.low, interval.high, claim.margin
    if claim.kind == "similar":  # the whole interval within the margin, or beyond it
        inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        return HOLDS if inside else FAILS if outside else OPEN
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


def _distance(claim: Claim, value: float) -> float:
    """How far the mean is from where the claim begins to hold."""
    return abs(abs(value) - claim.margin) if claim.kind == "similar" else abs(value)


def _runs_needed(mean: MeanEstimate, distance: float, level: float) -> int | None:
    """The smallest n with t(n - 1) s / sqrt(n) < distance, s being the spread of the runs seen."""
    if mean.n < 2:
        return None
    spread = mean.std_error * np.sqrt(mean.n)
    for n in range(2, MOST_RUNS + 1):
        if student_quantile(level, n - 1) * spread < distance * np.sqrt(n):
            return n
    return None


def _of_several(summary: Summary, claim: Claim, panels: list[Panel]) -> Verdict | None:
    """A test for each other row; of "every" also for each panel and each x or step."""
    tested: list[tuple[Value | None, str, MeanEstimate]] = []
    for together in [[panel] for panel in panels] if claim.every else [panels]:
        for other in _others(claim):
            for place in _places(summary, claim, together[0]) if claim.every else [claim.at]:
                asked = replace(claim, at=place)
                values = _over_panels([_by_run(summary, asked, p, other) for p in together])
                if len(values):
                    at = _in_words(place) if claim.every else None
                    tested.append((at, other, weighted_mean(values)))
    if not tested:
        return None
    p = np.array([mean.p_value for *_, mean in tested])
    corrected = holm(p)
    value = np.array([mean.value for *_, mean in tested])
    with_it, against_it = (p < 1 - LEVEL) & (value > 0), (corrected < 1 - LEVEL) & (value < 0)
    verdict = HOLDS if with_it.all() else FAILS if against_it.any() else OPEN
    # What is shown decides: of an open claim the least of the tests that leave it open, at the
    # level at which it was held against the claim.
    deciding = {HOLDS: with_it, FAILS: against_it, OPEN: ~with_it}[verdict]
    shown = int(np.argmin(np.where(deciding, value, np.inf)))
    at, against, mean = tested[shown]
    level = LEVEL
    if value[shown] < 0 and corrected[shown] > 0:
        level = 1 - (1 - LEVEL) * p[shown] / corrected[shown]
    return Verdict(
        claim=claim,
        verdict=verdict,
        value=mean.value,
        interval=mean.interval(level) if mean.n > 1 else None,
        n_runs=mean.n,
        against=_title(summary, against) if len(claim.rows) > 2 else "",
        at=at,
        sides=(int(with_it.sum()), int(against_it.sum()), len(tested)),
        runs_needed=_runs_needed(mean, abs(mean.value), level),
    )


def _places(summary: Summary, claim: Claim, panel: Panel) -> list[tuple[Value, ...]]:
    """What every test of a claim is about: one x, or an x and the next; nothing without an axis."""
    own = _series(summary, claim, panel, claim.rows[0]).values()
    xs = [x for x in dict.fromkeys(x for each in own for x in each) if x is not None]
    if claim.kind in STEPWISE:
        return list(pairwise(xs))
    return [(x,) for x in xs] or [()]


def _in_words(at: tuple[Value, ...]) -> Value | None:
    """A single x as it is, a step in words."""
    return (
        at[0]
        if len(at) == 1
        else " to ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in at) or None
    )


def _by_run(summary: Summary, claim: Claim, panel: Panel, other: str) -> dict[Run, float]:
    if claim.kind == "larger-gap":
        return _larger_gap(summary, claim, panel)
    first = _series(summary, claim, panel, claim.rows[0])
    second = _series(summary, claim, panel, other) if other else {}
    target = _series(summary, claim, panel, claim.target) if claim.target else {}
    values = {}
    for run, own in first.items():
        if (other and run not in second) or (claim.target and run not in target):
            continue
        statistic = KINDS[claim.kind](claim, own, second.get(run, {}), target.get(run, {}))
        if statistic is not None:
            values[run] = statistic
    return values


def _series(summary: Summary, claim: Claim, panel: Panel, name: str) -> dict[Run, Series]:
    """Run -> x -> value, at the claim's values of x (all where it names none)."""
    row, _, own_metric = name.partition(":")
    metric = own_metric or claim.metric or panel.metrics[0]
    xs: Sequence[Value | None] = summary.xs(panel, metric) or [None]
    series: dict[Run, Series] = {}
    for x in xs:
        point = summary.point(panel.name, row, metric, x)
        if point is not None and (not claim.at or x in claim.at):
            for run, value in point.runs.items():
                series.setdefault(run, {})[x] = value
    return series


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


def _larger_gap(summary: Summary, claim: Claim, panel: Panel) -> dict[Run, float]:
    """(first - second) - (third - fourth), run by run: the mean over x of each."""
    series = [_series(summary, claim, panel, name) for name in claim.rows]
    shared = [run for run in series[0] if all(run in each for each in series)]
    gaps = {run: [float(np.mean(list(each[run].values()))) for each in series] for run in shared}
    return {run: (a - b) - (c - d) for run, (a, b, c, d) in gaps.items()}


Statistic = Callable[[Claim, Series, Series, Series], float | None]
KINDS: dict[ClaimKind, Statistic] = {
    "above": _above,
    "below": _below,
    "similar": _similar,
    "rises": _rises,
    "falls": _falls,
    "gains-more": _gains_more,
    "closer": _closer,
}
