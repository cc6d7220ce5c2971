"""Curves over a number, the truth thick below the others, each with a band where it has one."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.theme import finished


def curves_over(
    curves: Mapping[str, Curve],
    *,
    title: str,
    subtitle: str,
    x_title: str,
    scale: Literal["position", "linear", "log"] = "linear",
    **options,
):
    """The whole picture, the truth first; `options` as for `curves_chart`."""
    chart = curves_chart(
        curves,
        x=XAxis(x_title, scale),
        truth=next(iter(curves)),
        from_zero=False,
        height=320,
        **options,
    )
    return finished(chart, title=title, subtitle=subtitle)


def over_seeds(x, values) -> Curve:
    """Mean over seeds (rows of `values`), and as a band the lowest and highest of them."""
    by_seed = np.asarray(values, dtype=float)
    return Curve(np.asarray(x), by_seed.mean(axis=0), by_seed.min(axis=0), by_seed.max(axis=0))
