"""What would turn a decision: the difference under departures from the model, one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from untilt._core.printed import Cells, as_table
from untilt._core.statistics import Interval
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.messages.about_sensitivity import TITLES, amount_text

if TYPE_CHECKING:
    import altair as alt

    from untilt.charts.tornado import TornadoBar


@dataclass(frozen=True)
class Cause:
    """One way to be wrong: the differences over the range tried, and the amount that turns them.

    Parameters
    ----------
    name : "curve", "position", "drift", "trust", "clip", "queries", "time" or "bounds"
    tried : what the range is, in words
    least, most : the amounts at its ends
    at_least, at_most : the difference there
    turns_at : the amount nearest to the neutral one at which the difference changes its sign; None
        where none was found up to the largest one tried
    undecided_at : the same for its interval, where that leaves out 0 at first
    answer : what would turn it, in words
    """

    name: str
    tried: Fact
    least: float
    most: float
    at_least: float
    at_most: float
    answer: Fact
    turns_at: float | None = None
    undecided_at: float | None = None

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


@dataclass(frozen=True)
class Sensitivity:
    """What would turn one system minus another: `sensitivity["trust"].turns_at`.

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
        return tuple(each for each in self.causes if self._turns(each))

    def _turns(self, cause: Cause) -> bool:
        return min(cause.at_least * self.value, cause.at_most * self.value) < 0

    def __getitem__(self, name: str) -> Cause:
        for cause in self.causes:
            if cause.name == name:
                return cause
        known = ", ".join(cause.name for cause in self.causes)
        raise OptionError(f"{name!r} was not tried here. There are: {known or 'none'}.")

    def __iter__(self) -> Iterator[Cause]:
        return iter(self.causes)

    def __len__(self) -> int:
        return len(self.causes)

    @property
    def title(self) -> str:
        """Whose difference it is."""
        return f"What would turn {self.system} minus {self.baseline} ({self.metric})"

    def table(self) -> Cells:
        """Header and rows: what is wrong, range, difference there, turns at, undecided at."""
        rows: list[tuple[str, ...]] = [
            (
                each.title,
                each.range,
                f"{min(each.at_least, each.at_most):+.4f} to "
                f"{max(each.at_least, each.at_most):+.4f}",
                each.amount(each.turns_at),
                each.amount(each.undecided_at),
            )
            for each in self.causes
        ]
        return ("what may be wrong", "tried", "difference", "turns at", "undecided at"), rows

    def plot(self, *, title: str | None = None) -> "alt.LayerChart":
        """A tornado chart: the difference over the range of each cause, the widest on top.

        Save it with `chart.save("sensitivity.html")`, or .png, .svg.
        """
        from untilt.charts.theme import finished
        from untilt.charts.tornado import tornado_chart

        chart = tornado_chart(
            self.bars(), value=self.value, value_title=f"{self.metric}, difference per session"
        )
        return finished(
            chart,
            title=title or self.title,
            subtitle="bars: the range tried; dashed: as measured; upright line: no difference",
        )

    def bars(self) -> "dict[str, TornadoBar]":
        """Bars of a tornado chart, labelled with what would turn the answer."""
        from untilt.charts.tornado import TornadoBar

        return {
            each.title: TornadoBar(
                low=min(each.at_least, each.at_most, self.value),
                high=max(each.at_least, each.at_most, self.value),
                label=f"turns at {each.amount(each.turns_at)}"
                if each.turns_at is not None
                else "does not turn",
                range=each.range,
            )
            for each in self.causes
        }

    def __repr__(self) -> str:
        head = (
            f"{self.title}: {self.value:+.4f}, {self.interval.level:.0%} interval {self.interval}"
        )
        return "\n".join([head, as_table(*self.table()), *(f"- {c.answer}" for c in self.causes)])
