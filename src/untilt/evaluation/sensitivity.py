"""What would flip a decision: how wrong the curve, or the model of reading, would have to be.

The interval of a difference covers chance. It does not cover a model that is wrong, and no log can
rule that out. So the difference D is computed again under one family of departures at a time, each
with one amount a that leaves everything as measured at its neutral value:

    curve      theta_k' = theta_k f^(log k / log K)    K = 10 or the lowest position; neutral f = 1
    position   theta_k' = f theta_k at the one position k that D depends on most
    drift      documents were f times as relevant while they stood at 1 as while they stood at K
    trust      a share t of the clicks at position 1 comes from trust in the top alone
    clip       another clip than the one used
    queries    the n queries that speak most for the answer are left out
    time       the two halves of the log, earlier and later sessions
    attention  theta_k' = theta_k^b by each session's own clicks: how much of the steepness of the
               curve must be attention, and no relevance that production followed; neutral b = 1
    bounds     positions that nothing joins to position 1, at any level within their bounds

Trust keeps the mean click rates as they are, as a curve that was estimated from clicks does. With m
the mean relevance, sum of clicks over sum of n theta, and eps-_k falling as 1/k
([agarwal2019trust]_),

    E[c_k] = theta_k (1 - t/k) gamma + theta_k m t/k

which is theta_k m at gamma = m whatever t is. Clicks c then stand for (c - n theta_k m t/k) /
(1 - t/k) of the position-based model, for any evaluator.

Drift of relevance that the order follows is seen by a curve from repeated positions as a curve that
falls too fast: the ratio of clicks is theta_k / theta_1 times the ratio of relevance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import brentq

from untilt._core.arrays import FloatArray
from untilt._core.statistics import Interval
from untilt.data.layout import Slots, places_of
from untilt.errors import OptionError
from untilt.evaluation.by_default import own_clicks
from untilt.evaluation.estimate_view import sensitivity_section
from untilt.evaluation.pool import with_option
from untilt.evaluation.results import Estimates, SystemDifference
from untilt.evaluation.systems import Inputs, extreme_curves
from untilt.facts import Fact, note, notes
from untilt.views import Section, View

if TYPE_CHECKING:
    import altair as alt

    from untilt.charts.intervals import TornadoBar

TITLES = {
    "curve": "Curve steeper or flatter",
    "position": "One position measured wrong",
    "drift": "Documents better while on top",
    "trust": "Clicks out of trust in the top",
    "attention": "Less of the curve is attention",
    "clip": "Another clip",
    "queries": "One query left out",
    "time": "Earlier and later sessions",
    "bounds": "Positions that nothing joins",
}
"""Cause -> what it is, in few words."""
_TRIED = notes(
    "sensitivity.tried",
    attention="{least:.0%} to 100% of the curve's steepness counted as attention, by each "
    "session's own clicks",
    curve="position {position} looked at {least:.2g} to {most:.2g} times as often as measured, "
    "relative to position 1 (others in proportion)",
    position="position {position} alone looked at {least:.2g} to {most:.2g} times as often as "
    "measured",
    drift="documents up to {most:.2g} times as relevant at position 1 as at position {position}",
    trust="up to {most:.0%} of the clicks at position 1 made by trust in the top",
    clip="a clip from {least:.2g} to {most:.2g}, not {used:.2g}",
    queries="any one of {of:,} queries left out",
    time="the earlier or the later half of the sessions alone",
    bounds="{positions:positions} at any level within their bounds",
)
_TURNS = notes(
    "sensitivity.turns",
    attention="the answer holds if at least {amount:.0%} of the curve's steepness is attention, "
    "and not relevance that production followed",
    curve="the answer would flip if position {one} were looked at {times:.2g} times as often as "
    "measured, relative to position {other}",
    position="the answer would flip if position {position} alone were looked at {amount:.2g} "
    "times as often as measured",
    drift="the answer would flip if documents were {amount:.2g} times as relevant at position 1 "
    "as at position {position}",
    trust="the answer would flip if trust in the top made {amount:.0%} of the clicks at position 1",
    clip="the answer would flip with a clip of {amount:.2g} instead of {used:.2g}",
    queries="the answer would flip without the {amount:,.0f} queries that favour it most, of "
    "{of:,}",
    time="the difference went from {early:+.4f} in the earlier half to {late:+.4f} in the later; "
    "at this rate the answer would flip {amount:.1f} times the length of the log after its "
    "end",
    bounds="no documents connect {positions:positions} to position 1, and levels within their "
    "bounds flip the answer",
)
_HOLDS = notes(
    "sensitivity.holds",
    attention="the answer holds however little of the curve's steepness is attention",
    curve="a curve 10 times steeper or flatter at position {position} does not flip the answer",
    position="one position wrong by a factor of up to 10, such as position {position}, does not "
    "flip the answer",
    drift="relevance up to 10 times higher at position 1 than at position {position} does not flip "
    "the answer",
    trust=(
        "trust in the top as the cause of 90% of the clicks at position 1 does not flip the answer"
    ),
    clip="another clip, from 0 to 1, does not flip the answer",
    queries="leaving out any of the {of:,} queries does not flip the answer",
    time="the difference is {early:+.4f} in the earlier half and {late:+.4f} in the later: no "
    "clear trend",
    bounds="no documents connect {positions:positions} to position 1, and no level within their "
    "bounds flips the answer",
)
_NEVER_STANDS = note(
    "sensitivity.turns-attention",
    "each session's own clicks do not decide the answer, even if all of the curve's steepness is "
    "attention",
)
_ONE_QUERY = note(
    "sensitivity.turns-queries",
    "the answer would flip without the one query that favours it most, of {of:,}",
)
_TURNED = note(
    "sensitivity.turns-time",
    "the difference went from {early:+.4f} in the earlier half to {late:+.4f} in the later; at "
    "this rate the answer has flipped by the end of the log",
)


@dataclass(frozen=True)
class Cause:
    """One way to be wrong: the differences over the range tried, and the amount that turns them.

    Parameters
    ----------
    name : "curve", "position", "drift", "trust", "clip", "attention", "queries", "time" or
        "bounds"
    tried : what the range is, in words
    least, most : the amounts at its ends
    at_least, at_most : the difference there
    flips_at : the amount nearest to the neutral one at which the difference changes its sign; None
        where none was found up to the largest one tried
    undecided_at : the same for its interval, where that leaves out 0 at first
    answer : what would flip it, in words
    interval : of the difference at `least`, for "attention": an answer may rest on it
    """

    name: str
    tried: Fact
    least: float
    most: float
    at_least: float
    at_most: float
    answer: Fact
    flips_at: float | None = None
    undecided_at: float | None = None
    interval: Interval | None = None
    json_renamed: ClassVar[Mapping[str, str]] = {"turns_at": "flips_at"}

    @property
    def swing(self) -> float:
        """How far the difference moves over the range."""
        return abs(self.at_most - self.at_least)

    @property
    def title(self) -> str:
        """What it is, in few words."""
        return TITLES.get(self.name, self.name)

    @property
    def range(self) -> str:
        """The amounts tried."""
        ends = self.amount(self.least), self.amount(self.most)
        return ends[0] if self.least == self.most else " to ".join(ends)

    def amount(self, amount: float | None) -> str:
        """An amount of this cause in its own unit; a dash for none."""
        return amount_text(self.name, amount)


@dataclass(frozen=True, repr=False)
class Sensitivity(View):
    """What would flip one system minus another: `sensitivity["trust"].flips_at`.

    `causes` stand in the order of how much they move the difference over the ranges tried. The
    ranges are conventions, the same for every log; whether they are likely is for you to judge.
    """

    system: str
    baseline: str
    metric: str
    value: float
    interval: Interval
    causes: tuple[Cause, ...]

    @property
    def turning(self) -> tuple[Cause, ...]:
        """The causes that turn the sign of the difference within the range tried."""
        ends = ((each, each.at_least, each.at_most) for each in self.causes)
        return tuple(each for each, a, b in ends if min(a * self.value, b * self.value) < 0)

    def __getitem__(self, name: str) -> Cause:
        found = self.cause(name)
        if found is not None:
            return found
        known = ", ".join(cause.name for cause in self.causes)
        raise OptionError(f"{name!r} was not tried here. There are: {known or 'none'}.")

    def cause(self, name: str) -> Cause | None:
        """The same; None where it was not tried."""
        return next((cause for cause in self.causes if cause.name == name), None)

    def __iter__(self) -> Iterator[Cause]:
        return iter(self.causes)

    def __len__(self) -> int:
        return len(self.causes)

    @property
    def title(self) -> str:
        """Whose difference it is."""
        return f"What would flip {self.system} minus {self.baseline} ({self.metric})"

    def plot(self, *, title: str | None = None) -> "alt.LayerChart":
        """A tornado chart: the difference over the range of each cause, the widest on top.

        Save it with `chart.save("sensitivity.html")`, or .png, .svg.
        """
        from untilt.charts.intervals import tornado_chart
        from untilt.charts.theme import finished

        chart = tornado_chart(
            self.bars(), value=self.value, value_title=f"{self.metric}, difference per session"
        )
        return finished(
            chart,
            title=title or self.title,
            subtitle="bars: the range tried; dashed: as measured; upright line: no difference",
        )

    def bars(self) -> "dict[str, TornadoBar]":
        """Bars of a tornado chart, labelled with what would flip the answer."""
        from untilt.charts.intervals import TornadoBar

        return {
            each.title: TornadoBar(
                low=min(each.at_least, each.at_most, self.value),
                high=max(each.at_least, each.at_most, self.value),
                label=f"flips at {each.amount(each.flips_at)}"
                if each.flips_at is not None
                else "does not flip",
                range=each.range,
            )
            for each in self.causes
        }

    def view(self) -> list[Section]:
        """The difference with one thing wrong at a time."""
        return [sensitivity_section(self, title=self.title)]


REFERENCE = 10  # the position whose examination, against position 1, measures the curve's slope
MOST_FACTOR = 10.0  # no factor beyond is tried: such a curve would not be called measured
MOST_TRUST = 0.9
MOST_CLIP = 1.0
POSITIONS_TRIED = 3  # of one position alone: those with the steepest derivatives
STEPS = 5  # amounts tried between the neutral one and the largest
FIRM_SHARE = 0.6
"""Of the steepness of a curve from lists that vary for unknown reasons: an answer that stands if no
more of it is attention is firm (docs/decisions.md)."""
PRECISE = 1e-3  # of an amount that flips the answer
CLEAR = 2.0  # standard errors between two halves of a log that are called a trend


def sensitivity_of(
    estimates: Estimates, system: str, baseline: str, *, factor: float = 1.5, trust: float = 0.2
) -> Sensitivity:
    """What would flip `system` minus `baseline`; see `Estimates.sensitivity`."""
    if not 1 < factor <= MOST_FACTOR:
        raise OptionError(f"factor must lie above 1, up to {MOST_FACTOR:g}. Got {factor} instead.")
    if not 0 < trust <= MOST_TRUST:
        raise OptionError(f"trust must lie above 0, up to {MOST_TRUST:g}. Got {trust} instead.")
    if estimates.inputs is None:
        raise OptionError("these estimates do not know their log: make them by untilt.estimate.")
    pair = _SystemPair(estimates, system, baseline, estimates.inputs)
    now = pair.now
    found: list[Cause | None] = []
    if now.value != 0 and np.isfinite(now.value):
        if pair.inputs.evaluator.needs_bias:
            found += [*_of_curve(pair, factor), _of_trust(pair, trust), _of_clip(pair)]
            found += [_of_bounds(pair), _of_attention(pair)]
        found += [_of_queries(pair), _of_time(pair)]
    causes = sorted((each for each in found if each), key=lambda each: -each.swing)
    interval = estimates.compare(baseline)[system].interval
    return Sensitivity(system, baseline, str(estimates.metric), now.value, interval, tuple(causes))


@dataclass(frozen=True, eq=False)
class _SystemPair:
    """Two systems whose difference is computed again."""

    estimates: Estimates
    system: str
    baseline: str
    inputs: Inputs

    @cached_property
    def now(self) -> SystemDifference:
        """The difference as it was estimated, without bounds of the curve."""
        return self.difference()

    @property
    def slope(self) -> FloatArray:
        """(K,) dD / dlog theta_k, up to a factor."""
        cells, bias = self.inputs.cells, self.inputs.bias
        at = [self.inputs.discounts[name].cell for name in (self.baseline, self.system)]
        credit = self.inputs.evaluator.credit(cells, bias)
        inside = min(cells.depth, bias.depth)
        by_position = cells.by_position(credit.slope * (at[1] - at[0]))[:inside]
        return by_position * bias.examination[:inside]

    def difference(self, **changed: Any) -> SystemDifference:
        """The difference had the curve, the evaluator, the clicks or the log been others."""
        again = self.estimates.again((self.baseline, self.system), **changed)
        return again.compare(self.baseline)[self.system]

    def with_theta(self, factor: FloatArray) -> SystemDifference:
        """The difference had the examination of all positions been `factor` times as large."""
        return self.difference(bias=self.inputs.bias.scaled(factor))


class _Flips(NamedTuple):
    """Amounts, on the scale of the search, nearest to 0 that turn the sign and reach 0."""

    sign: float | None
    interval: float | None

    def nearer(self, other: "_Flips") -> "_Flips":
        def pick(one: float | None, two: float | None) -> float | None:
            both = [each for each in (one, two) if each is not None]
            return min(both, key=abs) if both else None

        return _Flips(pick(self.sign, other.sign), pick(self.interval, other.interval))


def _search(at: Callable[[float], SystemDifference], last: float, now: SystemDifference) -> _Flips:
    """The first change of sign on the way from 0 to `last`, by steps and then to 0.1%."""
    side = np.sign(now.value)

    def margin(found: SystemDifference) -> float:
        return float(side * _nearest_end(found, side))

    seen: dict[float, SystemDifference] = {0.0: now}

    def cached(amount: float) -> SystemDifference:
        if amount not in seen:
            seen[amount] = at(amount)
        return seen[amount]

    def first(measure: Callable[[SystemDifference], float]) -> float | None:
        before = 0.0
        if not measure(now) > 0:
            return None
        for amount in np.linspace(0, last, STEPS + 1)[1:].tolist():
            if measure(cached(amount)) <= 0:
                close = PRECISE * abs(last)
                return float(brentq(lambda x: measure(cached(x)), before, amount, xtol=close))
            before = amount
        return None

    return _Flips(first(lambda found: float(side * found.value)), first(margin))


def _nearest_end(found: SystemDifference, side: float) -> float:
    """The end of the interval that is nearest to 0, for a difference of this sign."""
    return found.interval.low if side > 0 else found.interval.high


def _both_ways(
    at: Callable[[float], SystemDifference], last: float, now: SystemDifference
) -> _Flips:
    return _search(at, last, now).nearer(_search(at, -last, now))


def _of_curve(pair: _SystemPair, factor: float) -> Iterator[Cause]:
    """Slope of the curve, one position alone, and drift where repeated positions made the curve."""
    bias, now = pair.inputs.bias, pair.now
    depth = min(bias.depth, pair.inputs.cells.depth)
    if depth < 2:
        return
    ranks = places_of(bias.layout, bias.depth)
    at = int(min(REFERENCE, ranks[depth - 1]))
    if at < 2:
        return
    slope = np.log(ranks) / np.log(at)

    def tilted(u: float) -> SystemDifference:
        return pair.with_theta(np.exp(u * slope))

    u, most = np.log(factor), np.log(MOST_FACTOR)
    ends = [tilted(-u), tilted(u)]
    yield _cause("curve", (1 / factor, factor), ends, _both_ways(tilted, most, now), position=at)
    yield _of_position(pair, factor, depth)
    if any(each.code == "bias.same-relevance" for each in bias.assumes):
        # Relevance that is higher at the top makes a curve that falls too fast.
        yield _cause(
            "drift", (1.0, factor), [now, ends[1]], _search(tilted, most, now), position=at
        )


def _of_position(pair: _SystemPair, factor: float, depth: int) -> Cause:
    """Of the positions with the steepest derivatives, the one that turns first or moves most."""
    now, bias = pair.now, pair.inputs.bias

    def alone(k: int) -> Callable[[float], SystemDifference]:
        return lambda u: pair.with_theta(np.where(np.arange(bias.depth) == k, np.exp(u), 1.0))

    tried = np.argsort(-np.abs(pair.slope[:depth]), kind="stable")[:POSITIONS_TRIED].tolist()
    turns = {k: _both_ways(alone(k), np.log(MOST_FACTOR), now) for k in tried}
    k = min(tried, key=lambda k: (abs(turns[k].sign or np.inf), tried.index(k)))
    u = np.log(factor)
    ends = [alone(k)(-u), alone(k)(u)]
    rank = int(places_of(pair.inputs.cells.log.layout, depth)[k])
    return _cause("position", (1 / factor, factor), ends, turns[k], position=rank)


def _of_trust(pair: _SystemPair, share: float) -> Cause:
    cells, bias = pair.inputs.cells, pair.inputs.bias
    counts, alpha, _ = cells.under(bias)
    k, rank = cells.position, places_of(cells.log.layout, cells.depth)[cells.position - 1]
    exposure = float(np.sum(counts.impressions * alpha[k - 1]))
    mean = float(counts.clicks.sum()) / max(exposure, 1e-300)
    theta = bias.examination[np.minimum(k, bias.depth) - 1]

    def trusting(t: float) -> SystemDifference:
        part = t / rank
        clicks = (cells.clicks - cells.impressions * theta * mean * part) / (1 - part)
        return pair.difference(clicks=clicks)

    now = pair.now
    return _cause("trust", (0.0, share), [now, trusting(share)], _search(trusting, MOST_TRUST, now))


def _of_clip(pair: _SystemPair) -> Cause | None:
    evaluator = pair.inputs.evaluator
    if not evaluator.takes("clip"):
        return None
    used = float(pair.estimates.clip)

    def clipped(change: float) -> SystemDifference:
        return pair.difference(evaluator=with_option(evaluator, "clip", max(used + change, 0.0)))

    most = 2 * used if used > 0 else 0.1
    turns, now = _search(clipped, max(MOST_CLIP - used, 0.1), pair.now), pair.now
    if used > 0:
        turns = turns.nearer(_search(clipped, -used, now))
    ends = [clipped(-used), clipped(most - used)]
    return _cause("clip", (0.0, most), ends, turns, used=used)


def _of_bounds(pair: _SystemPair) -> Cause | None:
    """The least and the greatest difference over the levels of positions that nothing joins."""
    bounds = pair.inputs.bias.bounds
    if bounds is None:
        return None
    curves = extreme_curves(pair.inputs, {pair.baseline: -1.0, pair.system: 1.0})
    ends = [
        sign * np.inf if curve is None else pair.difference(bias=curve).value
        for sign, curve in zip((-1, 1), curves, strict=True)
    ]
    turns = min(ends[0] * pair.now.value, ends[1] * pair.now.value) < 0
    positions = tuple((np.flatnonzero(bounds.bounded) + 1).tolist())
    return _told("bounds", (1.0, 1.0), ends, 1.0 if turns else None, positions=positions)


def _of_attention(pair: _SystemPair) -> Cause | None:
    """How much of the curve's steepness the answer needs, by each session's own clicks.

    A curve that production's own choices made steeper, or flatter, is theta^b of the right one.
    """
    bias = pair.inputs.bias
    if bias.is_known or bias.depth < 2 or not isinstance(bias.layout, Slots | None):
        return None
    inputs = pair.inputs
    if inputs.cells.among == "list" and inputs.evaluator.pools_documents:
        inputs = inputs.on(by=own_clicks(inputs.evaluator, bias))
    side = np.sign(pair.now.value)

    def at(less: float) -> SystemDifference:
        b = 1 - less
        curve = bias.scaled(bias.examination ** (b - 1))
        error, covariance = curve.std_error, curve.covariance
        curve = replace(
            curve, std_error=None if error is None else b * error,
            covariance=None if covariance is None else b**2 * covariance,
        )  # fmt: skip
        return pair.difference(inputs=inputs, bias=curve)

    now = at(0.0)
    flips = _search(at, 1.0, now) if side * now.value > 0 else _Flips(0.0, 0.0)
    if not side * _nearest_end(now, side) > 0:
        flips = flips._replace(interval=0.0)
    sign, interval = (None if each is None else 1 - each for each in flips)
    least = at(1 - FIRM_SHARE)
    found = _told("attention", (FIRM_SHARE, 1.0), (least.value, now.value), interval)
    return replace(found, flips_at=sign, undecided_at=interval, interval=least.interval)


def _of_queries(pair: _SystemPair) -> Cause | None:
    """(D - d_q) / (N - n_q) without query q. Whose sum of d_q turns depends on no norm, so leaving
    out the largest first needs the fewest queries."""
    sums = pair.inputs.sums((pair.baseline, pair.system))
    gap, norm = sums.total[:, 1] - sums.total[:, 0], sums.norm
    n, now = len(gap), pair.now.value
    if n < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        without = (gap.sum() - gap) / (norm.sum() - norm)
    without = without[np.isfinite(without)]
    if len(without) == 0:
        return None
    most_for = np.sort(gap * np.sign(now))[::-1]
    left = abs(gap.sum()) - np.cumsum(most_for)
    turning = np.flatnonzero(left[:-1] < 0)
    flips_at = float(turning[0] + 1) if len(turning) else None
    return _told("queries", (1.0, 1.0), (without.min(), without.max()), flips_at, of=n)


def _of_time(pair: _SystemPair) -> Cause | None:
    """The difference in the earlier and in the later half of the sessions, where times are known.

    Two halves that differ clearly are continued as a straight line: flips_at is how many times the
    length of the log after its end the line reaches 0.
    """
    log = pair.inputs.cells.log
    if log.time is None or len(np.unique(log.time)) < 2:
        return None
    order = np.argsort(log.time, kind="stable")
    reached = np.cumsum(log.sessions[order])
    middle = log.time[order][np.searchsorted(reached, reached[-1] / 2)]
    later = log.time >= middle if (log.time < middle).any() else log.time > middle
    try:
        halves = [pair.difference(inputs=pair.inputs.on(part)) for part in (~later, later)]
    except OptionError:  # one half has no session of the baseline
        return None
    early, late = (half.value for half in halves)
    noise = np.hypot(halves[0].std_error, halves[1].std_error)
    slope, flips_at = 2 * (late - early), None
    end = late + slope / 4
    if abs(late - early) > CLEAR * noise and slope * pair.now.value < 0:
        flips_at = max(0.0, float(-end / slope))
    return _told("time", (0.0, 1.0), (early, late), flips_at, early=early, late=late)


def _answer(name: str, amount: float | None, **fields: Any) -> Fact:
    """What would flip the answer, or that nothing of the kind does."""
    if amount is None:
        return _HOLDS[name](amount=amount, **fields)
    told = _TURNS[name]
    if name == "curve":
        here = fields["position"]
        times, one, other = (amount, here, 1) if amount > 1 else (1 / amount, 1, here)
        fields = {**fields, "times": times, "one": one, "other": other}
    if name == "queries" and amount == 1:
        told = _ONE_QUERY
    if name == "time" and amount == 0:
        told = _TURNED
    if name == "attention" and amount == 1:
        told = _NEVER_STANDS
    return told(amount=amount, **fields)


def amount_text(name: str, amount: float | None) -> str:
    """An amount in the unit of its cause; a dash for none.

    >>> amount_text("curve", 1.5), amount_text("trust", 0.2), amount_text("queries", 3.0)
    ('x 1.50', '20%', '3 queries')
    """
    if amount is None:
        return "-"
    if name == "bounds":
        return "within bounds"
    if name in ("trust", "attention"):
        return f"{amount:.0%}"
    if name == "queries":
        return "any one" if amount == 1 else f"{amount:,.0f} queries"
    if name == "time":
        return {0.0: "earlier", 1.0: "later"}.get(amount, f"{amount:.1f} lengths on")
    return f"{amount:.2g}" if name == "clip" else f"x {amount:.2f}"


def _cause(
    name: str,
    amounts: tuple[float, float],
    ends: Sequence[SystemDifference],
    turns: _Flips,
    **fields: float,
) -> Cause:
    """A cause with its words; what is searched for is the log of a factor, a share, or a change."""

    def amount(found: float | None) -> float | None:
        if found is None or name == "trust":
            return found
        return fields["used"] + found if name == "clip" else float(np.exp(found))

    values = [each.value for each in ends]
    found = _told(name, amounts, values, amount(turns.sign), **fields)
    return replace(found, undecided_at=amount(turns.interval))


def _told(
    name: str,
    amounts: tuple[float, float],
    values: Sequence[float],
    flips_at: float | None,
    **fields: Any,
) -> Cause:
    """The differences at both ends of the range tried, and the answer in words."""
    (least, most), (at_least, at_most) = amounts, map(float, values)
    tried = _TRIED[name](least=least, most=most, **fields)
    answer = _answer(name, flips_at, **fields)
    return Cause(name, tried, least, most, at_least, at_most, answer, flips_at)
