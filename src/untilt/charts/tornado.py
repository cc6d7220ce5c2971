"""The tornado chart: how far a difference moves when one thing at a time is wrong."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from untilt.charts.theme import FILE, Theme, finite
from untilt.errors import ShapeError

if TYPE_CHECKING:
    import altair as alt

ROW = 46  # pixels of one cause: its name and label, and its bar below


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
    row: int = ROW,
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
    names = marks.transform_filter("datum.part == 'kept'").encode(
        x=alt.XValue(0), text=alt.Text("label:N")
    )
    look = {"align": "left", "yOffset": -9, "limit": 420}
    paper = theme.colours["paper"]
    lines = [
        alt.Chart(alt.Data(values=[{"at": at}]))
        .mark_rule(stroke=theme.colours["ink"], strokeDash=dash)
        .encode(x=alt.X("at:Q", **x), y=alt.YValue(0), y2=alt.Y2Value("height"))
        for at, dash in ((0.0, [1, 0]), (value, [4, 3]))
    ]
    return alt.layer(
        *lines,
        bar,
        names.mark_text(**look, stroke=paper, strokeWidth=5, fill=paper),
        names.mark_text(**look),
    ).properties(width=theme.width, height=row * len(bars))


def _parts(bar: TornadoBar, value: float) -> list[tuple[float, float, bool]]:
    """The bar on the value's side of 0, and on the other."""
    if value > 0:
        parts = [(max(bar.low, 0.0), max(bar.high, 0.0), True), (min(bar.low, 0.0), 0.0, False)]
    else:
        parts = [(min(bar.low, 0.0), min(bar.high, 0.0), True), (0.0, max(bar.high, 0.0), False)]
    return [part for part in parts if part[2] or part[0] != part[1]]
