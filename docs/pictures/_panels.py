"""Panels side by side with the same rows: values with intervals, and the truth as a line."""

from collections.abc import Mapping

import altair as alt
import numpy as np

from untilt.charts.intervals import Bar, intervals_chart
from untilt.charts.theme import finished, panel_title


def panels(
    values: Mapping[str, Mapping[str, Bar]],
    *,
    title: str,
    subtitle: str | list[str],
    value_title: str,
    truth: float | None = None,
    width: int = 250,
):
    """`values[panel][row]`; all panels share the axis, so that bars can be compared across them."""
    ends = [end for rows in values.values() for bar in rows.values() for end in bar[1:3]]
    ends += [] if truth is None else [truth]
    margin = 0.08 * (max(ends) - min(ends))
    parts = [
        intervals_chart(
            rows,
            value_title=value_title,
            names="axis" if number == 0 else "none",
            at=truth,
            domain=(min(ends) - margin, max(ends) + margin),
        ).properties(width=width, title=panel_title(name.split("\n")))
        for number, (name, rows) in enumerate(values.items())
    ]
    return finished(alt.hconcat(*parts, spacing=18), title=title, subtitle=subtitle)


def over_logs(estimates, low, high) -> Bar:
    """Means of estimates and of their intervals, all relative to the truth; how many hold it."""
    low, high = np.asarray(low), np.asarray(high)
    held = int(np.sum((low <= 1) & (high >= 1)))
    return Bar(float(np.mean(estimates)), low.mean(), high.mean(), f"{held} of {len(low)}")


def over_seeds(values) -> Bar:
    """Mean, lowest and highest."""
    return Bar(float(np.mean(values)), float(np.min(values)), float(np.max(values)))
