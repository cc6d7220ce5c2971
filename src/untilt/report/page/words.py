"""Numbers and findings in plain words."""

import math
import re
from collections.abc import Iterable
from datetime import datetime

from untilt.catalog import Kind, Method, methods
from untilt.report.decision import Answer, PositionCurve, Value

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


def places(values: Iterable[Value]) -> int:
    """Decimals that show two digits of the narrowest interval; three where there is none.

    >>> places([Value(1.2345, 1.0, 1.5), Value(9.0)])
    2
    """
    widths = [
        v.high - v.low
        for v in values
        if v.low is not None and v.high is not None and v.high > v.low
    ]
    if not widths:
        return 3
    return min(6, max(0, 1 - math.floor(math.log10(min(widths) / 2))))


def interval(value: Value, decimals: int, *, signed: bool = False) -> str:
    """The ends of an interval: 0.08 to 0.14."""
    ends = (number(end, decimals, signed=signed) for end in (value.low, value.high))
    return UNKNOWN if value.low is None or value.high is None else TO.join(ends)


def metric_name(metric: str) -> str:
    """
    >>> metric_name("dcg@10"), metric_name("arp"), metric_name("my metric")
    ('DCG@10', 'ARP', 'my metric')
    """
    base = re.split(r"[@ ]", metric)[0]
    record = _record("metric", base)
    return metric.replace(base, record.target, 1) if record and record.target.isupper() else metric


def _record(kind: Kind, name: str) -> Method | None:
    return next((each for each in methods(kind) if each.name == name), None)


def method_words(method: str) -> str:
    """What an evaluator does, or its own name where it is not known."""
    record = _record("evaluator", method)
    return method if record is None else record.title[:1].lower() + record.title[1:]


def metric_words(metric: str) -> str:
    """What the metric counts, or nothing where it is not known."""
    name = metric.split("@", maxsplit=1)[0]
    record = _record("metric", name)
    words = {"reciprocal": "a relevant document counts one over its position"}.get(name, "")
    words = words if record is None else record.note
    depth = re.fullmatch(r"[a-z]+@(\d+)", metric)
    return f"{words}, first {depth[1]} positions" if words and depth else words


def first_sentence(answer: Answer) -> str:
    """Better, worse or undecided: which, by how much."""
    new = quoted(answer.new)
    claim = {
        "better": f"The new ranker {new} would have served readers better than the {answer.shown}",
        "worse": f"The new ranker {new} would have served readers worse than the {answer.shown}",
        "undecided": f"This log cannot tell whether the new ranker {new} is better than the "
        f"{answer.shown}",
    }[answer.verdict]
    decimals = places((answer.difference,))
    change = number(answer.difference.value, decimals, signed=True)
    ends = interval(answer.difference, decimals, signed=True)
    sure = f"{answer.level:.0%} interval {ends}"
    share, metric = _relative(answer), f"{metric_name(answer.metric)} per session"
    if share:
        return f"{claim}: {share} {metric} ({change}, {sure})."
    return f"{claim}: {change} {metric} ({sure})."


def quoted(name: str) -> str:
    """A name as it is, in quotes: a sentence must not change its first letter."""
    return f"\u201c{name}\u201d"


def _relative(answer: Answer) -> str:
    base, change = answer.shown_value.value, answer.difference.value
    if not base or change is None or base < 0:
        return ""
    return f"{change / base:+.1%}".replace("-", MINUS)


def second_sentence(answer: Answer, more_sessions: float | None) -> str:
    """What to do about it."""
    if answer.recommendation:
        return answer.recommendation
    if answer.verdict == "better":
        return "The interval leaves out 0, so try it on a share of the traffic."
    if answer.verdict == "worse":
        return f"The interval leaves out 0, so keep the {answer.shown}."
    if more_sessions is not None and math.isfinite(more_sessions) and more_sessions > 0:
        return (
            f"The interval includes 0; about {whole(more_sessions)} more held-out sessions would "
            "decide a difference of this size."
        )
    return "The interval includes 0; do not decide on these figures alone."


def ratio_of_ends(curve: PositionCurve) -> tuple[int, int, float] | None:
    """First and last position with a value, and how many times the first exceeds the last."""
    known = [(k, v) for k, v in zip(curve.position, curve.value, strict=True) if v]
    if len(known) < 2:
        return None
    (first, top), (last, bottom) = known[0], known[-1]
    return first, last, top / bottom


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
