"""The documents' claims put to the test: one number per run that is positive where they hold.

"similar" is the exception: there the number is a difference that should be within a margin.

A claim about several x is about their mean, unless it says "every": then each x, each panel and
each other row has a test of its own, with p-values corrected by Holm for their number. It holds
where all of them do, and does not where one is clearly on the other side.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from untilt._core.statistics import Interval, MeanEstimate, holm, weighted_mean
from untilt.papers.schema import Claim, ClaimKind, Panel, Value
from untilt.papers.summary import LEVEL, Run, Summary

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
Series = dict[Value | None, float]  # by x, within one run


@dataclass(frozen=True)
class Verdict:
    """A claim, the mean over runs of the number that should be positive, and what that says.

    `against` is the row, and `at` the x, that a claim about several was decided by. `sides` counts
    the tests of a claim about every x: clearly on its side, clearly on the other, neither.
    """

    claim: Claim
    verdict: str
    value: float
    interval: Interval | None
    n_runs: int
    against: str = ""
    at: Value | None = None
    sides: tuple[int, int, int] | None = None

    @property
    def sentence(self) -> str:
        """The value in figures."""
        if self.interval is None:
            return f"{self.value:+.4f} in one run"
        low, high = self.interval.low, self.interval.high
        versus = f" against {self.against}" if self.against else ""
        found = f"{self.value:+.4f}{versus}, {LEVEL:.0%} interval [{low:+.4f}, {high:+.4f}]"
        if self.sides is None:
            return found
        with_it, against_it, _ = self.sides
        where = "" if self.at is None else f" (at {self.at})"
        return (
            f"{with_it} of {sum(self.sides)} tests on its side and {against_it} against it, "
            f"p-values by Holm; the lowest{where} is {found}"
        )


def verdicts(summary: Summary) -> list[Verdict]:
    """Every claim that the results can speak about, decided."""
    decided = (_verdict(summary, claim) for claim in summary.experiment.claims)
    return [verdict for verdict in decided if verdict is not None]


def _verdict(summary: Summary, claim: Claim) -> Verdict | None:
    panels = [p for p in summary.experiment.panels if claim.panel in ("", p.name)]
    if claim.every:
        return _of_every(summary, claim, panels)
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


def _of_every(summary: Summary, claim: Claim, panels: list[Panel]) -> Verdict | None:
    """A test for each panel, each other row and each x."""
    tested: list[tuple[Value | None, str, MeanEstimate]] = []
    for panel in panels:
        for other in claim.rows[1:]:
            xs = dict.fromkeys(
                x for own in _series(summary, claim, panel, claim.rows[0]).values() for x in own
            )
            for x in xs:
                values = _by_run(
                    summary, replace(claim, at=(x,) if x is not None else ()), panel, other
                )
                if values:
                    tested.append((x, other, weighted_mean(np.array(values))))
    if not tested:
        return None
    p = holm(np.array([mean.p_value for *_, mean in tested]))
    value = np.array([mean.value for *_, mean in tested])
    clear = p < 1 - LEVEL
    sides = int(np.sum(clear & (value > 0))), int(np.sum(clear & (value < 0)))
    at, against, lowest = tested[int(np.argmin(value))]
    return Verdict(
        claim=claim,
        verdict=HOLDS if sides[0] == len(tested) else FAILS if sides[1] else OPEN,
        value=lowest.value,
        interval=lowest.interval(LEVEL) if lowest.n > 1 else None,
        n_runs=lowest.n,
        against=against if len(claim.rows) > 2 else "",
        at=at,
        sides=(*sides, len(tested) - sum(sides)),
    )


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


def _larger_gap(summary: Summary, claim: Claim, panel: Panel) -> list[float]:
    """(first - second) - (third - fourth), run by run: the mean over x of each."""
    series = [_series(summary, claim, panel, name) for name in claim.rows]
    shared = [run for run in series[0] if all(run in each for each in series)]
    a, b, c, d = ([float(np.mean(list(each[run].values()))) for run in shared] for each in series)
    return [(w - x) - (y - z) for w, x, y, z in zip(a, b, c, d, strict=True)]


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
