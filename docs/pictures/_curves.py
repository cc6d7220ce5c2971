"""Curves over positions, the truth first and black."""

from collections.abc import Mapping

import numpy as np

from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import finished


def truth_and(
    truth, estimates: Mapping[str, object], *, title: str, subtitle: str = "band: 95% interval"
):
    """The true curve, relative to position 1, and estimates (`PositionBias`) or plain arrays."""
    curves = {"truth": _curve(np.asarray(truth) / truth[0])}
    curves |= {name: _curve(each) for name, each in estimates.items()}
    chart = curves_chart(
        curves, truth="truth", value_title="examination, relative to position 1", height=320
    )
    return finished(chart, title=title, subtitle=subtitle)


def _curve(values) -> Curve:
    if hasattr(values, "examination"):
        positions = np.arange(1, len(values.examination) + 1)
        return Curve(positions, values.examination, values.low, values.high)
    return Curve(np.arange(1, len(values) + 1), np.asarray(values, dtype=float))
