"""The page: one HTML file with everything in it.

The browser itself is told to fetch nothing (Content-Security-Policy), so the file can be mailed,
archived and opened offline. Each chart is there twice: as a drawing, for print and for readers that
run no scripts, and as a specification that the inlined Vega turns into an interactive one.
"""

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from untilt._version import __version__
from untilt.report.decision import Decision
from untilt.report.page_answer import answer_view
from untilt.report.page_parts import Figure
from untilt.report.page_sections import sections_of
from untilt.report.page_theme import COLOURS, CONFIG, STATIC_WIDTH, shape_path
from untilt.report.page_words import count_of, day

if TYPE_CHECKING:
    import jinja2

# Vega compiles its expressions with Function(), hence unsafe-eval; data: is for its cursors.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)


def page(data: Decision) -> str:
    """The whole page as text."""
    sections = sections_of(data)
    charts = any(section.figures for section in sections)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            data=data,
            answer=answer_view(data),
            sections=sections,
            about=_about(data),
            style=_file("style.css"),
            script=_file("page.js") if charts else "",
            library=_library() if charts else "",
            config=CONFIG,
            policy=POLICY,
            version=__version__,
        )
    )


def drawing(figure: Figure) -> str:
    """The chart as SVG, in the page's colours; ids are the figure's own."""
    import vl_convert

    spec = {**figure.spec, "width": STATIC_WIDTH}
    svg: str = vl_convert.vegalite_to_svg(spec, config=CONFIG)
    # Two drawings on one page may use the same name for a clip or a gradient.
    svg = re.sub(r'(\bid="|url\(#)', rf"\g<1>{figure.name}-", svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def _about(data: Decision) -> str:
    """One line under the title."""
    parts = []
    if data.log:
        parts += [count_of(data.log.sessions, "session"),
                  count_of(data.log.queries, "query", "queries")]  # fmt: skip
    if data.how_computed and data.how_computed.finished:
        parts.append(day(data.how_computed.finished))
    return " \u00b7 ".join(parts)


@cache
def _environment() -> "jinja2.Environment":
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("untilt.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = lambda figure: markupsafe.Markup(drawing(figure))
    environment.filters["shape"] = shape_path
    environment.filters["colour"] = lambda number: COLOURS[number % len(COLOURS)]
    return environment


def _file(name: str) -> str:
    return (files("untilt.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as vl-convert ships them."""
    import vl_convert

    code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # The end of a script would end ours; a backslash changes nothing inside JavaScript's strings.
    return re.sub(r"</(script)", r"<\\/\1", code, flags=re.IGNORECASE)


def chart_specs(data: Decision) -> dict[str, dict[str, Any]]:
    """Name -> Vega-Lite specification of each chart on the page."""
    return {figure.name: figure.spec for s in sections_of(data) for figure in s.figures}
