"""A picture of the clip curve: the estimate and its interval over tau."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import altair as alt

    from untilt.evaluation.clip_curve import ClipCurve

BLUE, RED = "#0072B2", "#D55E00"


def plot(curve: "ClipCurve", *, title: str | None = None) -> "alt.LayerChart":
    """Save it with `chart.save("clip.html")`, or .png, .svg."""
    import altair as alt

    rows = [
        {"tau": float(t), "value": float(v), "low": float(a), "high": float(b), "mse": float(m)}
        for t, v, a, b, m in zip(
            curve.tau, curve.value, curve.low, curve.high, curve.mse, strict=True
        )
        if np.isfinite(v)
    ]
    x = alt.X("tau:Q", title="clip tau", scale=alt.Scale(type="log", nice=False))
    y = alt.Y("value:Q", title=curve.metric, scale=alt.Scale(zero=False))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    tip = [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("tau", "value", "low", "high")]
    chosen = alt.Chart(alt.Data(values=[{"tau": curve.best}])).encode(x=x)
    layers = alt.layer(
        base.mark_area(opacity=0.2, color=BLUE).encode(
            y=alt.Y("low:Q", title=curve.metric), y2="high:Q"
        ),
        base.mark_line(color=BLUE).encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1, color=BLUE).encode(y=y, tooltip=tip),
        chosen.mark_rule(color=RED, strokeDash=[4, 3]),
    )
    heading = alt.TitleParams(
        title or "Estimate by clip",
        subtitle=f"band: {curve.level:.0%} interval; dashed: least estimated squared error",
        anchor="start",
    )
    return layers.properties(title=heading, width=560, height=320, background="white")
