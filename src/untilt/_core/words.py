"""Numbers and names in plain words, for people."""

import math
import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from untilt import catalog

if TYPE_CHECKING:  # the command line reads this module, and begins without NumPy
    from untilt._core.statistics import Interval

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


def decimals_for(intervals: "Iterable[Interval]") -> int:
    """Decimals that show two digits of the narrowest interval, or of the one end of an open one.

    >>> from untilt._core.statistics import Interval
    >>> decimals_for([Interval(1.0, 1.5), Interval(-math.inf, math.inf)])
    2
    """
    each_ends = [[end for end in (e.low, e.high) if math.isfinite(end)] for e in intervals]
    widths = [abs(ends[-1] - (ends[0] if len(ends) > 1 else 0)) for ends in each_ends if ends]
    widths = [width for width in widths if width > 0]
    if not widths:
        return 3
    return min(6, max(0, 1 - math.floor(math.log10(min(widths) / 2))))


def ends(interval: "Interval", decimals: int, *, signed: bool = False) -> str:
    """The ends of an interval: 0.08 to 0.14; a dash where they are not known.

    >>> from untilt._core.statistics import Interval
    >>> ends(Interval(0.08, math.inf), 2), ends(Interval(-math.inf, 0.1), 1)
    ('at least 0.08', 'at most 0.1')
    """
    told = [number(end, decimals, signed=signed) for end in (interval.low, interval.high)]
    if interval.high == math.inf > interval.low > -math.inf:
        return f"at least {told[0]}"
    if interval.low == -math.inf < interval.high < math.inf:
        return f"at most {told[1]}"
    return UNKNOWN if UNKNOWN in told else TO.join(told)


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
