"""Curves over positions, or over another number: line, points and band, and a tooltip for all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

from untilt._core.arrays import FloatArray, IntArray
from untilt.charts.theme import DASHES, FILE, SHAPES, Theme, check_series, finite
from untilt.errors import ShapeError

if TYPE_CHECKING:
    import altair as alt

Numbers = FloatArray | Sequence[float | None]
HEIGHT = 260
FEW_POINTS = 30  # more of them are drawn as small dots
FEW_TICKS = 12  # so many values of x are all written at the axis


@dataclass(frozen=True, eq=False)
class Curve:
    """A value at each x, with the ends of its interval where they are known."""

    x: FloatArray | IntArray | Sequence[float]
    value: Numbers
    low: Numbers | None = None
    high: Numbers | None = None

    def down_to(self, depth: float) -> "Curve":
        """The same without what lies beyond this x."""
        points = [point for point in self.points() if point[0] <= depth]
        x, value, low, high = ([point[j] for point in points] for j in range(4))
        whole = [float(each) for each in x if each is not None]
        ends = (None, None) if self.low is None or self.high is None else (low, high)
        return Curve(whole, value, *ends)

    def points(self) -> list[tuple[float, float | None, float | None, float | None]]:
        """(x, value, low, high) at each x; what is not known or not finite is None."""
        nothing = (None,) * len(self.x)
        low, high = (nothing if end is None else end for end in (self.low, self.high))
        return [
            (float(x), finite(v), finite(a), finite(b))
            for x, v, a, b in zip(self.x, self.value, low, high, strict=True)
        ]


@dataclass(frozen=True)
class XAxis:
    """The horizontal axis; "position" has whole numbers from 1."""

    title: str = "position"
    scale: Literal["position", "linear", "log"] = "position"

    def encoding(self, values: Sequence[float]) -> "alt.X":
        """x from the field `x`, with a margin on both sides."""
        import altair as alt

        deepest = values[-1]
        if self.scale == "position":
            axis = alt.Axis(values=position_ticks(int(deepest)), format="d", grid=False)
        elif len(values) <= FEW_TICKS:
            axis = alt.Axis(values=list(values), format=",.6~r", grid=False)
        else:
            axis = alt.Axis(format="~g", grid=False)
        axis.labelOverlap = True
        kind = "log" if self.scale == "log" else "linear"
        scale = alt.Scale(type=kind, domain=self.domain(values), nice=False)
        return alt.X("x:Q", title=self.title, scale=scale, axis=axis)

    def domain(self, values: Sequence[float]) -> tuple[float, float]:
        """The first and the last x with a margin of 3%; positions begin at 1."""
        there, back = (math.log, math.exp) if self.scale == "log" else (float, float)
        start, end = there(1 if self.scale == "position" else values[0]), there(values[-1])
        margin = 0.03 * ((end - start) or 1.0)
        return back(start - margin), back(end + margin)

    def columns(self, values: Sequence[float]) -> list[tuple[float, float]]:
        """The stretch of the axis that is nearer to each x than to any other."""
        start, end = self.domain(values)
        if self.scale == "log":
            middle = [math.sqrt(a * b) for a, b in pairwise(values)]
        else:
            middle = [(a + b) / 2 for a, b in pairwise(values)]
        return list(zip([start, *middle], [*middle, end], strict=True))


POSITIONS = XAxis()


def position_ticks(deepest: int) -> list[int]:
    """1, and whole numbers in steps of 1, 2, 5, 10, ... so that at most 20 are written."""
    step = next(s * 10**e for e in range(9) for s in (1, 2, 5) if deepest <= 20 * s * 10**e)
    return sorted({1, *range(step, deepest + 1, step)})


def curves_chart(
    curves: Mapping[str, Curve],
    *,
    value_title: str,
    x: XAxis = POSITIONS,
    truth: str | None = None,
    from_zero: bool = True,
    value_format: str | None = None,
    decimals: int = 4,
    level: float | None = None,
    marked: float | None = None,
    diagonal: bool = False,
    more: Mapping[str, Sequence[str]] | None = None,
    legend_columns: int | None = None,
    theme: Theme = FILE,
    height: int = HEIGHT,
) -> "alt.LayerChart":
    """Curves by name in one frame; a chart of one curve needs no legend.

    Parameters
    ----------
    truth : the curve drawn in ink and thick, below the others
    from_zero : whether the vertical axis begins at 0
    value_format : d3's format of the vertical axis; decimals : of the values in the tooltip
    level, marked : a dashed line across at this value; a dashed line upright at this x
    diagonal : both axes are positions, 1 at the top, and a dashed line is where they are equal
    more : further lines of the tooltip, title -> text at each x
    """
    import altair as alt

    check_series(list(curves))
    points = {name: curve.points() for name, curve in curves.items()}
    if not all(points.values()):
        raise ShapeError("a curve needs at least one position.")
    values = sorted({x for each in points.values() for x, *_ in each})
    colour, shape, dash = looks(list(curves), theme, truth, legend_columns)
    rows = [
        {"name": name, "x": x, "value": v, "low": low, "high": high, "truth": name == truth}
        for name, each in points.items()
        for x, v, low, high in each
    ]
    known = [value for each in points.values() for _, value, *_ in each if value is not None]
    lowest = max([values[-1], *known])
    y = _value_axis(value_title, from_zero, value_format, math.ceil(lowest) if diagonal else None)
    base = alt.Chart().encode(x=x.encoding(values), color=colour)
    layers = [*_lines_behind(theme, values, level, marked, diagonal)]
    if any(row["low"] is not None for row in rows):
        band = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        low = alt.Y("low:Q", title=value_title)
        layers.append(
            band.mark_area(opacity=0.16, strokeWidth=0).encode(y=low, y2=alt.Y2("high:Q"))
        )
    thick = alt.condition("datum.truth", alt.value(6), alt.value(2))
    layers.append(base.mark_line().encode(y=y, strokeDash=dash, strokeWidth=thick))
    size = 46 if len(values) <= FEW_POINTS else 12
    layers.append(base.mark_point(filled=True, size=size, opacity=1).encode(y=y, shape=shape))
    layers.append(_tooltips(points, x, values, decimals, more or {}, theme))
    return alt.layer(*layers, data=alt.Data(values=rows)).properties(
        width=theme.width, height=height
    )


def looks(
    names: list[str], theme: Theme, truth: str | None = None, legend_columns: int | None = None
) -> "tuple[alt.Color, alt.Shape, alt.StrokeDash]":
    """Colour, shape and dash of each name; the truth is drawn in ink."""
    import altair as alt

    def scale(each: list[Any]) -> "alt.Scale":
        return alt.Scale(domain=names, range=each[: len(names)])

    legend = None
    if theme.legend and len(names) > 1:
        legend = alt.Legend(columns=legend_columns or alt.Undefined)
    free, dashes = iter(theme.series), iter(DASHES)
    colours = [theme.colours["ink"] if name == truth else next(free) for name in names]
    dash = [DASHES[0] if name == truth else next(dashes) for name in names]
    return (
        alt.Color("name:N", title=None, scale=scale(colours), legend=legend),
        alt.Shape("name:N", title=None, scale=scale(list(SHAPES)), legend=legend),
        alt.StrokeDash("name:N", title=None, scale=scale(dash), legend=None),
    )


def _value_axis(
    title: str, from_zero: bool, value_format: str | None, depth: int | None
) -> "alt.Y":
    import altair as alt

    if depth is not None:
        scale = alt.Scale(zero=False, reverse=True, nice=False, domain=[0.5, depth + 0.5])
        axis = alt.Axis(values=position_ticks(depth), format="d")
        return alt.Y("value:Q", title=title, scale=scale, axis=axis)
    axis = alt.Axis(tickCount=5, format=value_format or alt.Undefined)
    return alt.Y("value:Q", title=title, scale=alt.Scale(zero=from_zero), axis=axis)


def _lines_behind(
    theme: Theme, values: Sequence[float], level: float | None, marked: float | None, diagonal: bool
) -> "list[alt.Chart]":
    import altair as alt

    def chart(*rows: dict[str, float]) -> "alt.Chart":
        return alt.Chart(alt.Data(values=list(rows)))

    lines = []
    if diagonal:
        ends = chart(*({"x": x, "value": x} for x in (1, values[-1])))
        line = ends.mark_line(color=theme.colours["muted"], strokeDash=[3, 4], strokeWidth=1)
        lines.append(line.encode(x=alt.X("x:Q"), y=alt.Y("value:Q")))
    if level is not None:
        rule = chart({"value": level}).mark_rule(strokeDash=[3, 4])
        lines.append(rule.encode(x=alt.XValue(0), x2=alt.X2Value("width"), y=alt.Y("value:Q")))
    if marked is not None:
        rule = chart({"x": marked}).mark_rule(
            stroke=theme.colours["c2"], strokeDash=[5, 4], strokeWidth=2
        )
        lines.append(rule.encode(x=alt.X("x:Q")))
    return lines


def _tooltips(
    points: Mapping[str, Sequence[tuple[float, float | None, float | None, float | None]]],
    x: XAxis,
    values: Sequence[float],
    decimals: int,
    more: Mapping[str, Sequence[str]],
    theme: Theme,
) -> "alt.Chart":
    """A column at each x, seen when pointed at, whose tooltip has all curves' values.

    Columns rather than a selection of the nearest point: there, Vega-Lite 6 looks for the text of a
    tooltip in the wrong place and shows "undefined". Fields have numbers for names, because the
    name of a curve may be anything.
    """
    import altair as alt

    texts = [{at: _value_text(rest, decimals) for at, *rest in each} for each in points.values()]
    texts += [dict(zip(values, lines, strict=True)) for lines in more.values()]
    rows = [
        {
            "x": f"{at:.6g}", "from": start, "to": end,
            **{f"t{i}": text.get(at, "\u2013") for i, text in enumerate(texts)},
        }
        for at, (start, end) in zip(values, x.columns(values), strict=True)
    ]  # fmt: skip
    titles = [name or "value" for name in (*points, *more)]
    # Charts side by side need names of their own, the same in every run.
    name = f"at_{crc32(repr(rows).encode()):x}"
    pointed = alt.selection_point(name=name, on="pointerover", clear="pointerout")
    tips = [alt.Tooltip(field=f"t{i}", type="nominal", title=t) for i, t in enumerate(titles)]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_rect(color=theme.colours["muted"])
        .encode(
            x=alt.X("from:Q"),
            x2=alt.X2("to:Q"),
            y=alt.YValue(0),
            y2=alt.Y2Value("height"),
            opacity=alt.condition(pointed, alt.value(0.1), alt.value(0), empty=False),
            tooltip=[alt.Tooltip("x:N", title=x.title.partition(":")[0]), *tips],
        )
        .add_params(pointed)
    )


def _value_text(point: Sequence[float | None], decimals: int) -> str:
    value, low, high = (
        "\u2013" if each is None else f"{each:,.{decimals}f}".replace("-", "\u2212")
        for each in point
    )
    return value if point[1] is None else f"{value}  [{low}, {high}]"
