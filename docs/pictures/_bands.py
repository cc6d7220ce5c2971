"""Lines over a number, the black one thick below the others, each with a band where it has one."""

from collections.abc import Mapping

import altair as alt
import numpy as np

from untilt.report.charts.charts import HEIGHT, PALETTE, WIDTH, Curve, configured


def lines(curves: Mapping[str, Curve], *, title: str, subtitle: str, **options):
    """The whole picture; `options` as for `panel`."""
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", subtitleColor="#555555")
    return configured(panel(curves, title=heading, **options))


def panel(
    curves: Mapping[str, Curve],
    *,
    title,
    x_title: str,
    value_title: str,
    scale: str = "linear",
    value_scale: str = "linear",
    value_format: str = "~g",
    points: bool = True,
    per_row: int = 3,
    height: int = HEIGHT,
):
    """A part of a picture. `per_row`: how many names a row of the legend holds.

    `points` marks every value, and the axis has a tick at each; else both are as fine as they are.
    """
    ticks = _ticks(curves) if points else alt.Axis(grid=False, labelFlush=False)
    x = alt.X("x:Q", title=x_title, scale=_scale_x(scale), axis=ticks)
    axis = alt.Axis(tickCount=6, format=value_format)
    y = {"title": value_title, "scale": alt.Scale(type=value_scale, zero=False), "axis": axis}
    legend = alt.Legend(columns=per_row, title=None)
    colours = alt.Scale(domain=list(curves), range=list(PALETTE[: len(curves)]))
    colour = alt.Color("name:N", scale=colours, legend=legend)
    shape = alt.Shape("name:N", scale=alt.Scale(domain=list(curves)), legend=legend)
    # Thick, so that it can be seen below a line that covers it.
    width = alt.condition("datum.first", alt.value(6), alt.value(2))
    base = alt.Chart(alt.Data(values=_rows(curves))).encode(x=x, color=colour)
    band = base.transform_filter("datum.low !== null").mark_area(opacity=0.2)
    marks = [
        band.encode(y=alt.Y("low:Q", **y), y2="high:Q"),
        base.mark_line().encode(y=alt.Y("value:Q", **y), strokeWidth=width),
    ]
    if points:
        dots = base.mark_point(filled=True, size=55, opacity=1)
        marks.append(dots.encode(y=alt.Y("value:Q", **y), shape=shape))
    return alt.layer(*marks).properties(title=title, width=WIDTH, height=height)


def over_seeds(x, values) -> Curve:
    """Mean over seeds (rows of `values`), and as a band the lowest and highest of them."""
    found = np.asarray(values, dtype=float)
    return Curve(np.asarray(x), found.mean(axis=0), found.min(axis=0), found.max(axis=0))


def _scale_x(kind: str):
    return alt.Scale(type=kind, nice=False, zero=False, padding=14)


def _ticks(curves: Mapping[str, Curve]):
    values = sorted({float(x) for curve in curves.values() for x in curve.position})
    return alt.Axis(values=values, labelExpr="datum.value", grid=False, labelFlush=False)


def _rows(curves: Mapping[str, Curve]) -> list[dict]:
    return [
        {
            "name": name,
            "first": name == next(iter(curves)),
            "x": float(curve.position[i]),
            "value": float(curve.value[i]),
            "low": None if curve.low is None else float(curve.low[i]),
            "high": None if curve.high is None else float(curve.high[i]),
        }
        for name, curve in curves.items()
        for i in range(len(curve.position))
    ]
