"""Numbers and results in plain words, and what a page is made of."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from untilt import catalog
from untilt._core.statistics import Interval
from untilt.report.decision import Answer

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
MINUS, DASH, TO = "\u2212", "\u2013", " to "
UNKNOWN = DASH


def number(value: float | None, decimals: int = 3, *, signed: bool = False) -> str:
    """
    >>> number(-1234.5678, 1), number(0.25, 2, signed=True), number(None)
    ('−1,234.6', '+0.25', '–')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:  # no minus nought
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def whole(value: float | None) -> str:
    """A count: 12,345."""
    return number(value, 0)


def percent(share: float | None, decimals: int = 1) -> str:
    """
    >>> percent(0.1234), percent(0.00004)
    ('12.3%', 'under 0.1%')
    """
    if share is None or not math.isfinite(share):
        return UNKNOWN
    least = 10.0 ** -(decimals + 2)
    if 0 < share < least / 2:
        return f"under {least:.{decimals}%}"
    return f"{share:.{decimals}%}".replace("-", MINUS)


def decimals_for(intervals: Iterable[Interval]) -> int:
    """Decimals that show two digits of the narrowest interval; three where there is none.

    >>> decimals_for([Interval(1.0, 1.5), Interval(-math.inf, math.inf)])
    2
    """
    widths = [each.high - each.low for each in intervals]
    widths = [width for width in widths if 0 < width < math.inf]
    if not widths:
        return 3
    return min(6, max(0, 1 - math.floor(math.log10(min(widths) / 2))))


def ends(interval: Interval, decimals: int, *, signed: bool = False) -> str:
    """The ends of an interval: 0.08 to 0.14; a dash where they are not known."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return UNKNOWN
    return TO.join(number(end, decimals, signed=signed) for end in (interval.low, interval.high))


def metric_name(metric: str) -> str:
    """
    >>> metric_name("dcg@10"), metric_name("arp"), metric_name("my metric")
    ('DCG@10', 'ARP', 'my metric')
    """
    base = re.split(r"[@ ]", metric)[0]
    classes = {each.name: each.target for each in catalog.methods("metric")}
    short = classes.get(base, base)
    return metric.replace(base, short, 1) if short.isupper() else metric


def metric_words(metric: str) -> str:
    """What the metric counts, or nothing where it carries no record."""
    notes = {"reciprocal": "a relevant document counts one over its position"}
    notes |= {each.name: each.note for each in catalog.methods("metric")}
    words = notes.get(metric.split("@", maxsplit=1)[0], "")
    depth = re.fullmatch(r"[a-z]+@(\d+)", metric)
    return f"{words}, first {depth[1]} positions" if words and depth else words


def evaluator_words(evaluator: str) -> str:
    """The name of an evaluator and what it does, where it carries a record."""
    notes = {each.name: each.note for each in catalog.methods("evaluator")}
    return f"{evaluator} ({notes[evaluator]})" if evaluator in notes else evaluator


def first_sentence(answer: Answer) -> str:
    """Which verdict, and by how much; no figures where there is no verdict."""
    new, shown = quoted(answer.new.system), answer.shown.system
    claim = {
        "better": f"The new ranker {new} would have served readers better than the {shown}",
        "worse": f"The new ranker {new} would have served readers worse than the {shown}",
        "undecided": f"The difference between the new ranker {new} and the {shown} may be chance",
        "cannot tell": f"This log cannot tell whether the new ranker {new} is better than the "
        f"{shown}",
    }[answer.verdict]
    if answer.verdict == "cannot tell":
        return f"{claim}."
    if answer.condition is not None:
        claim = f"{claim}, {answer.condition}"
    value, interval = answer.difference.value, answer.difference.interval
    decimals = decimals_for([interval])
    change = number(value, decimals, signed=True)
    sure = f"{interval.level:.0%} interval {ends(interval, decimals, signed=True)}"
    metric = f"{metric_name(answer.new.metric)} per session"
    if answer.shown.value > 0 and math.isfinite(value):
        share = f"{value / answer.shown.value:+.1%}".replace("-", MINUS)
        return f"{claim}: {share} {metric} ({change}, {sure})."
    return f"{claim}: {change} {metric} ({sure})."


def quoted(name: str) -> str:
    """A name as it is, in quotes: a sentence must not change its first letter."""
    return f"\u201c{name}\u201d"


def sentence(text: str) -> str:
    """
    >>> sentence("an end is missing")
    'An end is missing.'
    """
    return text[:1].upper() + stopped(text[1:])


def stopped(text: str) -> str:
    """With a full stop, the first letter as it is: it may begin a name."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def day(time: str) -> str:
    """
    >>> day("2026-11-05T12:07:43+00:00"), day("last week")
    ('5 November 2026', 'last week')
    """
    try:
        read = datetime.fromisoformat(time)
    except ValueError:
        return time
    return f"{read.day} {MONTHS[read.month - 1]} {read.year}"


def count_of(n: int, one: str, many: str = "") -> str:
    """
    >>> count_of(1, "query", "queries"), count_of(2000, "session")
    ('1 query', '2,000 sessions')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


# What a page is made of: sections of sentences, tiles, figures and tables.
#
# Text is not escaped here; the template does that.


@dataclass(frozen=True)
class Table:
    """Cells as text. Columns listed in `text_columns` are words; all others are numbers.

    `marked` rows stand out; `folded` tables open under their caption.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    text_columns: tuple[int, ...] = (0,)
    marked: tuple[int, ...] = ()
    folded: bool = False
    opened: bool = False


@dataclass(frozen=True)
class Key:
    """One entry of a legend; `number` counts from 0 and picks colour, shape and dash."""

    name: str
    number: int


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite specification, with the same in words and in a table."""

    name: str
    title: str
    spec: dict[str, Any]
    description: str
    table: Table
    caption: str = ""
    keys: tuple[Key, ...] = ()


def specification(chart: Any, description: str) -> dict[str, Any]:
    """The Vega-Lite specification of an Altair chart; its configuration is that of the page."""
    spec = chart.properties(description=description).to_dict(validate=False)
    return {name: part for name, part in spec.items() if name not in ("$schema", "config")}


@dataclass(frozen=True)
class Tile:
    """One number that matters, what it is, and what it means."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One heading of the page and what stands under it; small tables side by side."""

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    small_tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
