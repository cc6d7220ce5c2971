"""A picture of position bias: curves over positions, each with the band of its interval."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from untilt.bias.position_bias import PositionBias
from untilt.errors import OptionError

if TYPE_CHECKING:
    import altair as alt

# Okabe and Ito's colours without the yellow: told apart by people with any colour blindness.
PALETTE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")


def plot(curves: Mapping[str, PositionBias], *, title: str | None = None) -> "alt.LayerChart":
    """Curves by name. Save it with `chart.save("bias.html")`, or .png, .svg."""
    import altair as alt

    if len(curves) > len(PALETTE):
        raise OptionError(
            f"a chart tells at most {len(PALETTE)} curves apart. Got {len(curves)}: draw several."
        )
    scale = alt.Scale(domain=list(curves), range=list(PALETTE[: len(curves)]))
    legend = alt.Legend(orient="top", labelLimit=400, symbolOpacity=1) if len(curves) > 1 else None
    colour = alt.Color("curve:N", title=None, scale=scale, legend=legend)
    x = alt.X("position:Q", title="position", axis=alt.Axis(tickMinStep=1, grid=False))
    base = alt.Chart(alt.Data(values=_rows(curves))).encode(x=x, color=colour)
    y = alt.Y("examination:Q", title=_scale_of(curves), scale=alt.Scale(zero=True))
    tip = [alt.Tooltip("curve:N"), alt.Tooltip("position:Q")]
    tip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("examination", "low", "high")]
    layers = alt.layer(
        base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title=_scale_of(curves)), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=tip),
    )
    heading = alt.TitleParams(
        title or "Examination by position", subtitle=_subtitle(curves), anchor="start"
    )
    return layers.properties(title=heading, width=560, height=320, background="white")


def _rows(curves: Mapping[str, PositionBias]) -> list[dict[str, Any]]:
    return [
        {
            "curve": name,
            "position": k,
            "examination": float(bias.examination[k - 1]),
            "low": bias.interval(k).low,
            "high": bias.interval(k).high,
        }
        for name, bias in curves.items()
        for k in range(1, bias.depth + 1)
    ]


def _scale_of(curves: Mapping[str, PositionBias]) -> str:
    relative = any(bias.relative for bias in curves.values())
    return "examination, relative to position 1" if relative else "examination"


def _subtitle(curves: Mapping[str, PositionBias]) -> str:
    levels = {bias.level for bias in curves.values() if not bias.is_known}
    return ", ".join(f"band: {level:.0%} interval" for level in sorted(levels))
