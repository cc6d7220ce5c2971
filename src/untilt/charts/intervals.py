"""Named values with intervals: one under the other, or in groups side by side; and plain bars.

The tornado chart: how far a difference moves when one thing at a time is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from untilt.charts.curves import looks
from untilt.charts.theme import FILE, Theme, check_series, finite
from untilt.errors import ShapeError

if TYPE_CHECKING:
    import altair as alt

ROW = 44  # pixels of one value: its name or label, and its interval below
LONGEST = 22  # letters of a name beside its bar
LONGEST_ABOVE = 42  # characters of a name: with its value it fits a phone


class Bar(NamedTuple):
    """A value with the ends of its interval; a text in place of the figure; whether it is chosen.

    Where none is chosen all are drawn in colour, else the others are grey.
    """

    value: float | None
    low: float | None
    high: float | None
    label: str = ""
    chosen: bool = False


def intervals_chart(
    values: Mapping[str, Bar],
    *,
    value_title: str,
    names: Literal["axis", "above", "none"] = "axis",
    at: float | None = None,
    reported: Mapping[str, float] | None = None,
    value_format: str = ".4f",
    theme: Theme = FILE,
    row: int = ROW,
) -> "alt.LayerChart":
    """Values by name, one under the other, each with its interval and its label.

    The axis need not begin at 0: what counts is where the intervals lie to each other.

    Parameters
    ----------
    names : on the axis; above each value, so that a narrow screen has room; or left out
    at : an upright line, such as 0 or the truth
    reported : values to set beside them, as open diamonds
    value_format : d3's format of the tooltip's figures
    """
    import altair as alt

    if not values:
        raise ShapeError("a chart needs at least one value.")
    all_alike = not any(bar.chosen for bar in values.values())
    order = list(values)
    rows = [
        {
            "i": i, "name": name, "value": finite(bar.value), "low": finite(bar.low),
            "high": finite(bar.high), "label": _label(name, bar, names),
            "chosen": bar.chosen or all_alike,
        }
        for i, (name, bar) in enumerate(values.items())
    ]  # fmt: skip
    fixed = alt.Scale(zero=False, padding=16)
    x = {"title": value_title, "axis": alt.Axis(tickCount=5), "scale": fixed}
    y = _name_axis(order, names)
    colour = alt.condition(
        "datum.chosen", alt.value(theme.series[0]), alt.value(theme.colours["muted"])
    )
    tips = [alt.Tooltip("name:N"), *_tips(value_format)]
    offset = 9 if names == "above" else 0
    base = alt.Chart().encode(y=y, color=colour, tooltip=tips)
    layers = [
        base.mark_rule(strokeWidth=3, yOffset=offset, strokeCap="round").encode(
            x=alt.X("low:Q", **x), x2=alt.X2("high:Q")
        ),
        base.mark_point(filled=True, size=100, opacity=1, yOffset=offset, shape="circle").encode(
            x=alt.X("value:Q", **x)
        ),
        *_labels(alt.Chart().encode(y=y), x, names, theme),
    ]
    if reported:
        others = [{"i": order.index(k), "name": k, "value": v} for k, v in reported.items()]
        diamonds = alt.Chart(alt.Data(values=others)).mark_point(
            shape="diamond", size=90, color=theme.series[1], opacity=1
        )
        layers.append(
            diamonds.encode(
                y=y,
                x=alt.X("value:Q", **x),
                tooltip=[alt.Tooltip("name:N"), alt.Tooltip("value:Q")],
            )
        )
    if at is not None:
        layers.insert(0, _upright(at, len(rows), x, y, names, theme, row))
    return alt.layer(*layers, data=alt.Data(values=rows)).properties(
        width=theme.width, height=row * len(rows)
    )


def _upright(
    at: float, n_rows: int, x: dict[str, Any], y: Any, names: str, theme: Theme, row: int,
    dash: Sequence[int] = (),
) -> "alt.Chart":  # fmt: skip
    """A line at this value; in pieces beside the intervals where names stand above them."""
    import altair as alt

    pieces = [{"value": at, "i": i} for i in range(n_rows)] if names == "above" else [{"value": at}]
    line = alt.Chart(alt.Data(values=pieces)).encode(x=alt.X("value:Q", **x))
    look = {"stroke": theme.colours["ink"], "strokeDash": list(dash)}
    if names != "above":
        return line.mark_rule(**look).encode(y=alt.YValue(0), y2=alt.Y2Value("height"))
    return line.mark_rule(**look, yOffset=-2, y2Offset=row // 2 - 2).encode(y=y, y2=alt.Y2("i"))


def _label(name: str, bar: Bar, names: str) -> str:
    label = bar.label or ("" if bar.value is None else f"{bar.value:.3f}")
    if names != "above":
        return label
    short = name if len(name) <= LONGEST_ABOVE else f"{name[:14]}\u2026{name[15 - LONGEST_ABOVE :]}"
    return f"{short}{', chosen' if bar.chosen else ''}: {label}"


def _name_axis(order: list[str], names: str) -> "alt.Y":
    import altair as alt

    if names == "above":
        return alt.Y("i:O", axis=None)
    axis = alt.Axis(labelLimit=320, labelPadding=8, ticks=False) if names == "axis" else None
    return alt.Y("name:N", title=None, sort=order, axis=axis)


def _labels(base: Any, x: dict[str, Any], names: str, theme: Theme) -> "list[alt.Chart]":
    """The labels with a halo in the colour of the paper, because lines pass behind them."""
    import altair as alt

    if names == "above":
        base = base.encode(x=alt.XValue(0))
        look = {"align": "left", "yOffset": -10, "limit": alt.ExprRef("width")}
    else:
        base, look = base.encode(x=alt.X("value:Q", **x)), {"dy": -13, "fontSize": 12}
    paper = theme.colours["paper"]
    text = base.encode(text=alt.Text("label:N"))
    return [text.mark_text(**look, stroke=paper, strokeWidth=5, fill=paper), text.mark_text(**look)]


def _tips(value_format: str = ".4f") -> "list[alt.Tooltip]":
    import altair as alt

    return [alt.Tooltip(f"{field}:Q", format=value_format) for field in ("value", "low", "high")]


def groups_chart(
    groups: Mapping[str, Mapping[str, Bar]],
    *,
    value_title: str,
    group_title: str | None = None,
) -> "alt.LayerChart":
    """Values with intervals by group along the horizontal axis; names have a colour and a shape."""
    import altair as alt

    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    check_series(names)
    rows = [
        {"group": group, "name": name, "value": finite(bar.value), "low": finite(bar.low),
         "high": finite(bar.high)}
        for group, bars in groups.items() for name, bar in bars.items()
    ]  # fmt: skip
    colour, shape, _ = looks(names, FILE, legend_columns=2)
    several = any(len(bars) > 1 for bars in groups.values())
    axis = alt.Axis(labelAngle=-30, labelLimit=220)
    y = {"title": value_title, "scale": alt.Scale(zero=False)}
    tips = [alt.Tooltip("name:N"), *_tips()]
    base = alt.Chart().encode(
        x=alt.X("group:N", title=group_title, sort=list(groups), axis=axis),
        xOffset=alt.XOffset("name:N", sort=names) if several else alt.Undefined,
    )
    return alt.layer(
        base.mark_rule(strokeWidth=3).encode(
            y=alt.Y("low:Q", **y), y2=alt.Y2("high:Q"), color=colour
        ),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            y=alt.Y("value:Q", **y), color=colour, shape=shape, tooltip=tips
        ),
        data=alt.Data(values=rows),
    ).properties(width=max(320, 75 * len(groups)), height=240)


def bars_chart(
    shares: Mapping[str, float], *, value_title: str, theme: Theme = FILE, row: int = 24
) -> "alt.Chart":
    """Shares by name as bars, in the order given."""
    import altair as alt

    rows = [
        {"name": name, "label": label, "share": share}
        for (name, share), label in zip(shares.items(), _shortened(list(shares)), strict=True)
    ]
    axis = alt.Axis(labelLimit=150, labelColor=theme.colours["ink"], ticks=False)
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=alt.RelativeBandSize(0.62), color=theme.series[0], cornerRadiusEnd=2)
        .encode(
            y=alt.Y("label:N", sort=None, title=None, axis=axis),
            x=alt.X("share:Q", title=value_title, axis=alt.Axis(format="%", tickCount=4)),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=theme.width, height=row * len(rows))
    )


def _shortened(names: Sequence[str]) -> list[str]:
    """Long names without their middle, because ends differ most; whole where that is not enough."""
    short = [n if len(n) <= LONGEST else f"{n[:8]}\u2026{n[9 - LONGEST :]}" for n in names]
    return short if len(set(short)) == len(set(names)) else list(names)


CAUSE_ROW = 46  # pixels of one cause: its name and label, and its bar below


class TornadoBar(NamedTuple):
    """The ends of one bar, a label beside its name, and the range tried, for the tooltip."""

    low: float
    high: float
    label: str
    range: str = ""


def tornado_chart(
    bars: Mapping[str, TornadoBar],
    *,
    value: float,
    value_title: str,
    theme: Theme = FILE,
) -> "alt.LayerChart":
    """Bars by name, one under the other, around the value as measured (dashed) and around 0.

    What lies on the other side of 0 than the value is drawn in another colour: there the answer is
    another one. Names stand above their bars, so that a narrow screen has room.
    """
    import altair as alt

    if not bars:
        raise ShapeError("a tornado chart needs at least one bar.")
    kept, turned = theme.series[0], theme.series[1]
    rows = [
        {
            "i": i, "name": name, "tried": bar.range, "label": f"{name}: {bar.label}",
            "turning": bar.label, "part": "kept" if same else "turned",
            "from": finite(low), "to": finite(high), "low": finite(bar.low),
            "high": finite(bar.high),
        }
        for i, (name, bar) in enumerate(bars.items())
        for low, high, same in _parts(bar, value)
    ]  # fmt: skip
    x = {
        "title": value_title,
        "axis": alt.Axis(tickCount=5),
        "scale": alt.Scale(zero=True, padding=16),
    }
    y = alt.Y("i:O", axis=None)
    colour = alt.Color(
        "part:N", legend=None, scale=alt.Scale(domain=["kept", "turned"], range=[kept, turned])
    )
    tips = [
        alt.Tooltip("name:N"),
        alt.Tooltip("tried:N"),
        alt.Tooltip("low:Q", format="+.4f"),
        alt.Tooltip("high:Q", format="+.4f"),
        alt.Tooltip("turning:N", title="answer"),
    ]
    marks = alt.Chart(alt.Data(values=rows)).encode(y=y)
    bar = marks.mark_bar(height=12, yOffset=11).encode(
        x=alt.X("from:Q", **x), x2=alt.X2("to:Q"), color=colour, tooltip=tips
    )
    names = marks.transform_filter("datum.part == 'kept'")
    lines = [
        _upright(at, len(bars), x, y, "above", theme, CAUSE_ROW, dash)
        for at, dash in ((0.0, ()), (value, (4, 3)))
    ]
    return alt.layer(bar, *lines, *_labels(names, x, "above", theme)).properties(
        width=theme.width, height=CAUSE_ROW * len(bars)
    )


def _parts(bar: TornadoBar, value: float) -> list[tuple[float, float, bool]]:
    """The bar on the value's side of 0, and on the other."""
    if value > 0:
        parts = [(max(bar.low, 0.0), max(bar.high, 0.0), True), (min(bar.low, 0.0), 0.0, False)]
    else:
        parts = [(min(bar.low, 0.0), min(bar.high, 0.0), True), (0.0, max(bar.high, 0.0), False)]
    return [part for part in parts if part[2] or part[0] != part[1]]
