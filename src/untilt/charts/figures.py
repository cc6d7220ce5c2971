"""Charts with their words and tables, as sections of a view hold them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from untilt._core import words
from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.intervals import Bar, bars_chart, intervals_chart
from untilt.charts.theme import MOST_SERIES, PAGE
from untilt.views import Figure, Key, Table

Curves = Mapping[str, Curve]


def curve_figure(
    name: str,
    title: str,
    curves: Curves,
    *,
    y_title: str,
    description: str,
    caption: Sequence[str | None] = (),
    decimals: int = 3,
    x_title: str = "position",
    table: Table | None = None,
    in_text: str = "",
    **chart: Any,
) -> Figure:
    """Curves with their legend and their table; the table has all, however many."""
    told = tuple(each for each in caption if each)
    if len(curves) > MOST_SERIES:
        told = (f"The first {MOST_SERIES} of {len(curves)} curves are drawn.", *told)
    drawn = dict(list(curves.items())[:MOST_SERIES])
    chart = {"x": XAxis(x_title), "decimals": decimals, **chart}
    return Figure(
        name,
        title,
        partial(curves_chart, drawn, value_title=y_title, theme=PAGE, **chart),
        description,
        curve_table(curves, decimals, x_title) if table is None else table,
        told,
        tuple(Key(each, i) for i, each in enumerate(drawn)) if len(drawn) > 1 else (),
        in_text,
    )


def interval_figure(
    name: str,
    title: str,
    bars: Mapping[str, Bar],
    *,
    value_title: str,
    at: float,
    value_format: str,
    description: str,
    table: Table,
    caption: Sequence[str] = (),
    in_text: str = "",
) -> Figure:
    """Values by name with their intervals, and an upright line at what would be no effect."""
    draw: Callable[[], Any] = partial(
        intervals_chart, bars, value_title=value_title, names="above", at=at,
        value_format=value_format, theme=PAGE,
    )  # fmt: skip
    return Figure(name, title, draw, description, table, tuple(caption), in_text=in_text)


def share_figure(
    name: str,
    title: str,
    shares: Mapping[str, float],
    *,
    value_title: str,
    description: str,
    table: Table,
    caption: Sequence[str] = (),
) -> Figure:
    """Shares of a whole by name, as bars."""
    draw = partial(bars_chart, shares, value_title=value_title, theme=PAGE)
    return Figure(name, title, draw, description, table, tuple(caption))


def curve_table(curves: Curves, decimals: int, first: str = "position") -> Table:
    """A row for each position; value and, where known, the ends of the interval of each curve."""
    header, columns = [first], []
    for name, curve in curves.items():
        at = {int(k): rest for k, *rest in curve.points()}
        wanted = (0,) if curve.low is None else (0, 1, 2)
        header += [name, "low", "high"][: len(wanted)]
        columns += [(at, j) for j in wanted]
    known = sorted({k for at, _ in columns for k in at})
    rows = tuple(
        (str(k), *(curve_cell(at.get(k), j, decimals) for at, j in columns)) for k in known
    )
    bars = tuple(columns[0][0][k][0] for k in known) if len(curves) == 1 else ()
    return Table(tuple(header), rows, text_columns=(), bars=bars)


def curve_cell(point: Sequence[float | None] | None, j: int, decimals: int) -> str:
    """One figure of a table; a position on the curve without a value is not known."""
    if point is not None and point[0] is None:
        return "not known" if j == 0 else ""
    return words.number(None if point is None else point[j], decimals)


def range_words(curves: Curves, *, percent_values: bool = False) -> str:
    """The ends of each curve in words, for those who do not see the chart."""
    parts, say = [], words.percent if percent_values else words.number
    for name, curve in curves.items():
        known = [(int(k), value) for k, value, *_ in curve.points() if value is not None]
        if known:
            (first, top), (last, bottom) = known[0], known[-1]
            parts.append(
                f"{name} goes from {say(top)} at position {first} to {say(bottom)} at position "
                f"{last}."
            )
    return " ".join(parts)
