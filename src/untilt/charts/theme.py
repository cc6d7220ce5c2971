"""Colours, shapes and sizes that all charts share; how a chart gets its title and becomes a file.

The palette is Okabe and Ito's: people with any kind of colour blindness can tell its colours apart.
Shapes and dashes say the same again for a grey printer. On the page, colours are the names of CSS
variables, so dark, light and print need no second drawing; in a file they are those of `LIGHT`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untilt._core.files import replacing
from untilt.charts.convert import ChartsNotDrawnError, converted, require_converter, vega_library
from untilt.errors import MissingExtraError, OptionError, ShapeError
from untilt.views import drawers

if TYPE_CHECKING:
    import altair as alt

LIGHT = {
    "paper": "#ffffff", "ink": "#1b1d1f", "muted": "#5d6369", "grid": "#e2e1dd",
    "c1": "#0072b2", "c2": "#d55e00", "c3": "#009e73", "c4": "#b85c92", "c5": "#c98500",
    "c6": "#3d9bd1", "c7": "#1b1d1f",
}  # fmt: skip
DARK = {
    "paper": "#1a1d21", "ink": "#eceae6", "muted": "#a3a9b0", "grid": "#33383e",
    "c1": "#56b4e9", "c2": "#e69f00", "c3": "#1fb88c", "c4": "#d98fb8", "c5": "#f0e442",
    "c6": "#e8743b", "c7": "#eceae6",
}  # fmt: skip
SHAPES = {  # name in Vega -> outline in a box from -6 to 6, for a legend outside of the chart
    "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
    "square": "M-4,-4h8v8h-8z",
    "triangle-up": "M0,-5L5,4L-5,4z",
    "diamond": "M0,-5.5L5,0L0,5.5L-5,0z",
    "cross": "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
    "triangle-down": "M0,5L5,-4L-5,-4z",
    "triangle-right": "M5,0L-4,5L-4,-5z",
}
DASHES = ([1, 0], [7, 3], [2, 3], [10, 3, 2, 3], [5, 2], [2, 2, 6, 2], [12, 4])
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
# A picture's text is placed by the widths of letters here and drawn by a font there: these, Arial's
# replacements on other systems, have the same widths. A page measures its text where it is drawn.
FILE_FONT = "Arial, 'Liberation Sans', Arimo, Helvetica, sans-serif"
PICTURES = (".png", ".svg")
SUFFIXES = (".html", *PICTURES, ".json")


@dataclass(frozen=True)
class Theme:
    """Names of colours by their use, the width of a chart, and whether it draws its own legend."""

    colours: Mapping[str, str]
    width: int | str
    legend: bool

    @property
    def series(self) -> tuple[str, ...]:
        """The colours of curves and groups, in order; the last is the ink."""
        return tuple(self.colours[f"c{i}"] for i in range(1, 8))

    def config(self) -> dict[str, Any]:
        """Vega-Lite's configuration."""
        muted, grid, ink = (self.colours[name] for name in ("muted", "grid", "ink"))
        plain = {"titleFontWeight": "normal", "titleColor": muted, "labelColor": muted}
        return {
            "background": self.colours["paper"] if self.legend else "transparent",
            "font": FILE_FONT if self.legend else FONT,
            "padding": 12 if self.legend else {"left": 2, "right": 6, "top": 6, "bottom": 2},
            "view": {"stroke": None},
            "axis": {
                **plain, "domain": False, "tickColor": grid, "gridColor": grid,
                "labelFontSize": 12, "titleFontSize": 12, "labelPadding": 6, "titlePadding": 10,
            },
            "legend": {
                "labelColor": ink, "titleColor": muted, "titleFontWeight": "normal",
                "labelFontSize": 12, "labelLimit": 0, "orient": "top", "symbolSize": 90,
                "symbolOpacity": 1,
            },
            "title": {
                "color": ink, "fontSize": 16, "subtitleColor": muted, "subtitleFontSize": 12,
                "anchor": "start", "offset": 12,
            },
            "text": {"fill": ink, "fontSize": 13},
            "rule": {"stroke": muted},
        }  # fmt: skip


FILE = Theme(LIGHT, width=560, legend=True)
PAGE = Theme({name: f"var(--{name})" for name in LIGHT}, width="container", legend=False)
MOST_SERIES = len(FILE.series)


def notebook_svg(spec: dict[str, Any]) -> str:
    """A chart of the page as SVG in the colours of `LIGHT`; nothing where it cannot be drawn."""
    call = (
        "vegalite_to_svg",
        [{**spec, "width": FILE.width}],
        {"config": {**PAGE.config(), "font": FILE_FONT}},
    )
    try:
        (svg,) = converted([call])
    except (MissingExtraError, ChartsNotDrawnError):
        return ""
    colours = "; ".join(f"--{name}: {colour}" for name, colour in LIGHT.items())
    return f'<div style="{colours}; background: {LIGHT["paper"]}">{svg}</div>'


drawers.append(notebook_svg)


def css_variables() -> str:
    """The colours of the page for both schemes; dark is for screens only, so paper is light."""
    light, dark = (
        " ".join(f"--{name}: {colour};" for name, colour in colours.items())
        for colours in (LIGHT, DARK)
    )
    return (
        f":root {{ {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )


def finished(chart: Any, *, title: str = "", subtitle: str | Sequence[str] = "") -> Any:
    """The chart, or a row or column of charts, with its heading and the theme's configuration."""
    import altair as alt

    chart = chart.properties(config=alt.Config.from_dict(FILE.config()))
    if not title:
        return chart
    heading = alt.TitleParams(title, subtitle=subtitle or alt.Undefined, anchor="start")
    return chart.properties(title=heading)


def panel_title(text: str | Sequence[str]) -> "alt.TitleParams":
    """The small heading of one chart among several."""
    import altair as alt

    return alt.TitleParams(
        text, fontSize=13, fontWeight="normal", anchor="start", frame="group", offset=8
    )


def check_series(names: Sequence[str]) -> None:
    """Raise where there are no names, or more than there are distinct colours."""
    if not names:
        raise ShapeError("a chart needs at least one curve or value.")
    if len(names) > MOST_SERIES:
        raise OptionError(
            f"a chart shows at most {MOST_SERIES} curves clearly. Got {len(names)}: draw several."
        )


def save_chart(chart: "alt.TopLevelMixin", path: str | Path, *, scale: float = 2.0) -> Path:
    """Write a chart as .html, .png, .svg or .json (its Vega-Lite description).

    The HTML file holds everything that it needs: it opens without a network. PNG and SVG need the
    extra `pictures`.
    """
    path = Path(path)
    check_chart_path(path)
    spec = chart.to_json()
    with replacing(path) as temporary:
        if path.suffix == ".png":
            temporary.write_bytes(_made("vegalite_to_png", spec, scale=scale))
        elif path.suffix == ".svg":
            temporary.write_text(_made("vegalite_to_svg", spec), encoding="utf8")
        elif path.suffix == ".html":
            temporary.write_text(_html(spec), encoding="utf8")
        else:
            temporary.write_text(spec, encoding="utf8")
    return path


def _made(function: str, spec: str, **options: Any) -> Any:
    return converted([(function, [json.loads(spec)], options)])[0]


_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chart</title>
</head>
<body>
<div id="chart"></div>
<script>
LIBRARY
</script>
<script type="application/json" id="spec">SPEC</script>
<script>
vegaEmbed("#chart", JSON.parse(document.getElementById("spec").textContent), {mode: "vega-lite"});
</script>
</body>
</html>
"""


def _html(spec: str) -> str:
    """A page with the chart and the script that draws it."""
    # A "<" of the data must not end the script; inside JSON's strings its escape is the same text.
    return _HTML.replace("SPEC", spec.replace("<", "\\u003c")).replace("LIBRARY", inline_library())


def inline_library() -> str:
    """The script that draws charts, to stand inside a page."""
    # The end of a script would end ours; a backslash changes nothing inside JavaScript's strings.
    return re.sub(r"</(script)", r"<\\/\1", vega_library(), flags=re.IGNORECASE)


def hashes_of(*texts: str) -> str:
    """How a Content-Security-Policy names these scripts or styles, as they stand in their tags."""
    digests = (b64encode(sha256(each.encode()).digest()).decode() for each in texts)
    return " ".join(f"'sha256-{each}'" for each in digests) or "'none'"


def check_chart_path(path: Path) -> None:
    """Raise unless a chart can be written under this name; call it before a long computation."""
    if path.suffix not in SUFFIXES:
        raise OptionError(
            f"a chart is written as {', '.join(SUFFIXES)}. Got {path.name!r}: give it such an end."
        )
    if path.suffix in PICTURES:
        require_converter(f"a chart as {path.suffix} (.html and .json need nothing more)")


def finite(value: float | None) -> float | None:
    """The number for JSON; None, which leaves a gap, where it is not finite."""
    return float(value) if value is not None and abs(float(value)) < float("inf") else None
