"""Charts: curves over positions with their doubt, in colours that everybody can tell apart.

Altair is imported inside the functions: `import untilt` must stay light.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.files import replacing
from untilt.data.rates import ClickRates
from untilt.errors import OptionError, ShapeError

if TYPE_CHECKING:
    import altair as alt

# Okabe and Ito's palette without its yellow (too faint on white), black first: told apart by
# people with any kind of colour blindness, and by lightness on a grey printer.
PALETTE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
SUFFIXES = (".html", ".png", ".svg", ".json")
WIDTH, HEIGHT = 560, 320


@dataclass(frozen=True, eq=False)
class Curve:
    """A value at each position, with the ends of its interval where they are known."""

    position: IntArray
    value: FloatArray
    low: FloatArray | None = None
    high: FloatArray | None = None

    @classmethod
    def of_rates(cls, rates: ClickRates) -> "Curve":
        """The click rates of a log."""
        return cls(rates.position, rates.rate, rates.low, rates.high)


def click_rate_chart(
    rates: ClickRates | Mapping[str, ClickRates], *, title: str = "Click rate by position"
) -> "alt.LayerChart":
    """Click rate at each position, of one log or of several by name."""
    named = {"": rates} if isinstance(rates, ClickRates) else rates
    level = next(iter(named.values())).level
    return position_chart(
        {name: Curve.of_rates(each) for name, each in named.items()},
        title=title,
        subtitle=f"band: {level:.0%} interval, clustered by query",
        value_title="clicks per impression",
    )


def position_chart(
    curves: Mapping[str, Curve], *, title: str, subtitle: str = "", value_title: str
) -> "alt.LayerChart":
    """Curves over positions: line and points for the value, a band for its interval.

    Each curve has a colour and a shape of its own; one curve alone needs no legend. Values that are
    not finite leave a gap.
    """
    import altair as alt

    _check(curves)
    base = alt.Chart(alt.Data(values=_rows(curves))).encode(x=_positions(curves))
    y, colour = alt.Y("value:Q", title=value_title, axis=alt.Axis(tickCount=6)), _colour(curves)
    few = all(len(curve.position) <= 30 for curve in curves.values())
    points = alt.MarkDef("point", filled=True, size=55 if few else 12, opacity=1)
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", subtitleColor="#555555")
    layers = alt.layer(
        base.mark_area(opacity=0.22).encode(
            y=alt.Y("low:Q", title=value_title), y2="high:Q", color=colour
        ),
        base.mark_line(strokeWidth=2).encode(y=y, color=colour),
        base.properties(mark=points).encode(
            y=y, color=colour, shape=_shape(curves), tooltip=_tooltip(named=len(curves) > 1)
        ),
    )
    return _styled(layers.properties(title=heading))


def interval_chart(
    values: Mapping[str, tuple[float, float, float]],
    *,
    title: str,
    subtitle: str = "",
    value_title: str,
) -> "alt.LayerChart":
    """Named values with their intervals, one under the other: name -> (value, low, high).

    The axis does not start at 0: what counts here is where the intervals lie to each other.
    """
    import altair as alt

    if not values:
        raise ShapeError("a chart needs at least one value.")
    rows = [
        {"name": name, "value": _finite(value), "low": _finite(low), "high": _finite(high)}
        for name, (value, low, high) in values.items()
    ]
    y = alt.Y(
        "name:N",
        title=None,
        sort=list(values),
        axis=alt.Axis(labelLimit=300, labelPadding=8, ticks=False),
    )
    x = {"scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=6, labelFlush=False)}
    base = alt.Chart(alt.Data(values=rows)).encode(y=y)
    heading = alt.TitleParams(title, subtitle=subtitle, anchor="start", subtitleColor="#555555")
    layers = alt.layer(
        base.mark_rule(strokeWidth=3, color=PALETTE[2]).encode(
            x=alt.X("low:Q", title=value_title, **x), x2="high:Q"
        ),
        base.mark_point(filled=True, size=90, opacity=1, color=PALETTE[0]).encode(
            x=alt.X("value:Q", title=value_title, **x), tooltip=_tooltip(named=True)
        ),
        base.mark_text(dy=-12, fontSize=12).encode(
            x=alt.X("value:Q", title=value_title, **x), text=alt.Text("value:Q", format=".3f")
        ),
    )
    return _styled(layers.properties(title=heading), height=44 * len(values))


def stacked(*charts: "alt.LayerChart") -> "alt.VConcatChart":
    """Charts one under the other, as one."""
    import altair as alt

    inner = [chart.copy() for chart in charts]
    for chart in inner:
        for top_level in ("config", "background", "padding"):
            setattr(chart, top_level, alt.Undefined)
    together = alt.vconcat(*inner, spacing=40)
    return configured(together.resolve_scale(color="independent", shape="independent"))


def save_chart(chart: "alt.TopLevelMixin", path: str | Path, *, scale: float = 2.0) -> Path:
    """Write a chart as .html, .png, .svg or .json (its Vega-Lite description).

    The HTML file holds everything that it needs: it opens without a network.
    """
    import vl_convert

    path = Path(path)
    check_chart_path(path)
    spec = chart.to_json()
    with replacing(path) as temporary:
        if path.suffix == ".png":
            temporary.write_bytes(vl_convert.vegalite_to_png(spec, scale=scale))
        else:
            temporary.write_text(_as_text(spec, path.suffix), encoding="utf8")
    return path


def check_chart_path(path: Path) -> None:
    """Raise unless a chart can be written under this name; ask before a long computation."""
    if path.suffix not in SUFFIXES:
        raise OptionError(
            f"a chart is written as {', '.join(SUFFIXES)}. Got {path.name!r}: give it such an end."
        )


def _as_text(spec: str, suffix: str) -> str:
    import vl_convert

    if suffix == ".svg":
        return str(vl_convert.vegalite_to_svg(spec))
    if suffix == ".html":
        return str(vl_convert.vegalite_to_html(spec, bundle=True))
    return spec


def _check(curves: Mapping[str, Curve]) -> None:
    if not curves or any(len(curve.position) == 0 for curve in curves.values()):
        raise ShapeError("a chart needs at least one curve, and a curve at least one position.")
    if len(curves) > len(PALETTE):
        raise OptionError(
            f"a chart tells at most {len(PALETTE)} curves apart. Got {len(curves)}: draw several."
        )


def _rows(curves: Mapping[str, Curve]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "position": int(position),
            "value": _finite(value),
            "low": _finite(low),
            "high": _finite(high),
        }
        for name, curve in curves.items()
        for position, value, low, high in zip(
            curve.position,
            curve.value,
            curve.value if curve.low is None else curve.low,
            curve.value if curve.high is None else curve.high,
            strict=True,
        )
    ]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _positions(curves: Mapping[str, Curve]) -> "alt.X":
    """Whole numbers from 1, in steps of 1, 2, 5, 10, ... so that at most 20 are written."""
    import altair as alt

    deepest = max(int(curve.position.max()) for curve in curves.values())
    step = next(s * 10**e for e in range(9) for s in (1, 2, 5) if deepest <= 20 * s * 10**e)
    values = sorted({1, *range(step, deepest + 1, step)})
    margin = 0.03 * max(1, deepest - 1)
    scale = alt.Scale(domain=(1 - margin, deepest + margin), nice=False)
    axis = alt.Axis(values=values, format="d", grid=False, labelFlush=False)
    return alt.X("position:Q", title="position", axis=axis, scale=scale)


def _colour(curves: Mapping[str, Curve]) -> "alt.Color":
    import altair as alt

    scale = alt.Scale(domain=list(curves), range=list(PALETTE[: len(curves)]))
    return alt.Color("name:N", title=None, scale=scale, legend=_legend(curves))


def _shape(curves: Mapping[str, Curve]) -> "alt.Shape":
    import altair as alt

    return alt.Shape(
        "name:N", title=None, scale=alt.Scale(domain=list(curves)), legend=_legend(curves)
    )


def _legend(curves: Mapping[str, Curve]) -> "alt.Legend | None":
    import altair as alt

    return alt.Legend() if len(curves) > 1 else None


def _tooltip(*, named: bool) -> "list[alt.Tooltip]":
    import altair as alt

    numbers = [alt.Tooltip(f"{field}:Q", format=".4f") for field in ("value", "low", "high")]
    return [alt.Tooltip("name:N"), *numbers] if named else numbers


def _styled(chart: "alt.LayerChart", *, height: int = HEIGHT) -> "alt.LayerChart":
    styled: alt.LayerChart = configured(chart.properties(width=WIDTH, height=height))
    return styled


def configured(chart: Any) -> Any:
    """The chart on white, in the sizes and greys that all charts share."""
    return (
        chart.properties(background="white", padding=12)
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=13, gridColor="#e6e6e6", domain=False)
        .configure_legend(
            labelFontSize=12, labelLimit=0, orient="top", symbolSize=90, symbolOpacity=1
        )
        .configure_title(fontSize=16, subtitleFontSize=12, offset=12)
    )
