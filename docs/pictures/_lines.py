"""Lines over any number, the truth first and black: value, and the ends of its interval."""

from collections.abc import Mapping
from typing import NamedTuple

import altair as alt

from untilt.report.charts import HEIGHT, PALETTE, WIDTH, configured


class Line(NamedTuple):
    """A value at each x, with an interval where there is one."""

    x: object
    value: object
    low: object = None
    high: object = None


def line_chart(
    lines: Mapping[str, Line], *, title: str, subtitle: str, x_title: str, value_title: str,
    points: bool = True,
):  # fmt: skip
    """Lines with bands, each in a colour and with a shape of its own."""
    named = list(lines)
    scale, axis = alt.Scale(zero=False, nice=False), alt.Axis(grid=False, labelFlush=False)
    colour = alt.Color(
        "name:N", title=None, scale=alt.Scale(domain=named, range=list(PALETTE[: len(named)]))
    )
    shape = alt.Shape("name:N", title=None, scale=alt.Scale(domain=named))
    base = alt.Chart(alt.Data(values=_rows(lines))).encode(
        x=alt.X("x:Q", title=x_title, scale=scale, axis=axis), color=colour
    )
    y = {"title": value_title, "scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=6)}
    marks = [
        base.mark_area(opacity=0.22).encode(y=alt.Y("low:Q", **y), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=alt.Y("value:Q", **y)),
    ]
    if points:
        dots = base.mark_point(filled=True, size=55, opacity=1)
        marks.append(dots.encode(y=alt.Y("value:Q", **y), shape=shape))
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", subtitleColor="#555555")
    return configured(alt.layer(*marks).properties(title=heading, width=WIDTH, height=HEIGHT))


def _rows(lines):
    return [
        {"name": name, "x": float(x), "value": float(v), "low": float(a), "high": float(b)}
        for name, line in lines.items()
        for x, v, a, b in zip(
            line.x,
            line.value,
            line.value if line.low is None else line.low,
            line.value if line.high is None else line.high,
            strict=True,
        )
    ]
