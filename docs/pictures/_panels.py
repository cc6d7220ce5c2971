"""Panels side by side with the same rows: values with intervals, and the truth as a line."""

from collections.abc import Mapping
from typing import NamedTuple

import altair as alt
import numpy as np

from untilt.report.charts.charts import PALETTE, configured


class Bar(NamedTuple):
    """A value with the ends of its interval, and a word to write beside it."""

    value: float
    low: float
    high: float
    note: str = ""


def panels(
    values: Mapping[str, Mapping[str, Bar]],
    *,
    title: str,
    subtitle: str | list[str],
    value_title: str,
    truth: float | None = None,
    width: int = 250,
    step: int = 46,
):
    """`values[panel][row]`; all panels share the axis, so that bars can be compared across them."""
    ends = [end for rows in values.values() for bar in rows.values() for end in bar[1:3]]
    low, high = min(ends + [truth] * (truth is not None)), max(ends + [truth] * (truth is not None))
    margin = 0.08 * (high - low)
    domain = (low - margin, high + margin)
    parts = [
        _panel(rows, domain, value_title, truth, first=number == 0)
        .properties(width=width, height=step * len(rows), title=_panel_title(name))
        for number, (name, rows) in enumerate(values.items())
    ]  # fmt: skip
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", subtitleColor="#555555")
    return configured(alt.hconcat(*parts, spacing=18).properties(title=heading))


def over_logs(estimates, low, high) -> Bar:
    """Means of estimates and of their intervals, all relative to the truth; how many hold it."""
    low, high = np.asarray(low), np.asarray(high)
    held = int(np.sum((low <= 1) & (high >= 1)))
    return Bar(float(np.mean(estimates)), low.mean(), high.mean(), f"{held} of {len(low)}")


def over_seeds(values) -> Bar:
    """Mean, lowest and highest."""
    return Bar(float(np.mean(values)), float(np.min(values)), float(np.max(values)))


def _panel(rows, domain, value_title, truth, *, first):
    data = [{"row": row, **bar._asdict()} for row, bar in rows.items()]
    labels = alt.Axis(labelLimit=320, labelPadding=8, ticks=False) if first else None
    y = alt.Y("row:N", title=None, sort=list(rows), axis=labels)
    x = {
        "title": value_title,
        "scale": alt.Scale(domain=domain, nice=False),
        "axis": alt.Axis(tickCount=5),
    }
    base = alt.Chart(alt.Data(values=data)).encode(y=y)
    text = base.mark_text(dy=-13, fontSize=12).encode(x=alt.X("value:Q", **x), text="note:N")
    marks = [
        base.mark_rule(strokeWidth=4, color=PALETTE[2]).encode(x=alt.X("low:Q", **x), x2="high:Q"),
        base.mark_point(filled=True, size=80, opacity=1, color=PALETTE[5]).encode(
            x=alt.X("value:Q", **x)
        ),
        text.encode(
            stroke=alt.value("white"), strokeWidth=alt.value(4)
        ),  # a halo: lines pass behind
        text,
    ]
    if truth is not None:
        at = alt.Chart(alt.Data(values=[{"truth": truth}]))
        marks.insert(
            0, at.mark_rule(strokeWidth=2.5, color=PALETTE[0]).encode(x=alt.X("truth:Q", **x))
        )
    return alt.layer(*marks)


def _panel_title(name: str):
    return alt.TitleParams(
        name.split("\n"), fontSize=13, fontWeight="normal", anchor="start", frame="group", offset=8
    )
