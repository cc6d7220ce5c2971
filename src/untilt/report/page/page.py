"""The page: one HTML file with everything in it.

The browser itself is told to fetch nothing (Content-Security-Policy), so the file can be mailed,
archived and opened offline. Each chart is there twice: as a drawing, for print and for readers that
run no scripts, and as a specification that the inlined Vega turns into an interactive one.
"""

import math
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from untilt._version import __version__
from untilt.charts.theme import PAGE, SHAPES, css_variables
from untilt.evaluation.results import SystemDifference
from untilt.report.decision import Answer, Decision
from untilt.report.page.parts import Figure, Tile
from untilt.report.page.sections import figures_of, sections_of
from untilt.report.page.words import (
    count_of,
    day,
    decimals_for,
    ends,
    first_sentence,
    metric_name,
    metric_words,
    number,
)

if TYPE_CHECKING:
    import jinja2

VERDICTS = {
    "better": ("\u25b2", "Better"),
    "worse": ("\u25bc", "Worse"),
    "undecided": ("\u25c6", "Not decided"),
}


@dataclass(frozen=True)
class Strip:
    """An interval and 0 on a line, in percent of its width, with the words for its ends."""

    zero: float
    low: float
    value: float
    high: float
    low_text: str
    value_text: str
    high_text: str


@dataclass(frozen=True)
class AnswerView:
    """The top of the page: the answer in two sentences, and its interval as a strip."""

    verdict: str
    mark: str
    word: str
    first: str
    second: str
    tiles: tuple[Tile, ...]
    strip: Strip | None
    small_print: str


def answer_view(data: Decision) -> AnswerView | None:
    """None where there is no answer; `Decision.no_answer` says why."""
    answer, part = data.answer, data.held_out
    if answer is None or part is None:
        return None
    mark, word = VERDICTS[answer.verdict]
    return AnswerView(
        verdict=answer.verdict,
        mark=mark,
        word=word,
        first=first_sentence(answer),
        second=answer.recommendation,
        tiles=_tiles(answer),
        strip=_strip(answer.difference),
        small_print=_small_print(answer, part.scale),
    )


def _tiles(answer: Answer) -> tuple[Tile, ...]:
    level = decimals_for(each.interval for each in (answer.new, answer.shown))
    gap = answer.difference
    change = decimals_for([gap.interval])
    return (
        *(
            Tile(each.system, number(each.value, level), ends(each.interval, level))
            for each in (answer.shown, answer.new)
        ),
        Tile("difference", number(gap.value, change, signed=True),
             ends(gap.interval, change, signed=True)),
    )  # fmt: skip


def _strip(difference: SystemDifference) -> Strip | None:
    """Room for 0 and the interval, with a sixth of the width on either side."""
    value, low, high = difference.value, difference.interval.low, difference.interval.high
    if not 0 < high - low < math.inf:
        return None
    start, end = min(0.0, low), max(0.0, high)
    decimals = decimals_for([difference.interval])

    def at(x: float) -> float:
        return round(12 + 76 * (x - start) / (end - start), 2)

    texts = (number(x, decimals, signed=True) for x in (low, value, high))
    return Strip(at(0.0), at(low), at(value), at(high), *texts)


def _small_print(answer: Answer, scale: str) -> str:
    metric = answer.new.metric
    better = "higher" if answer.higher_is_better else "lower"
    parts = (f"{metric_name(metric)} per session, {better} is better", metric_words(metric), scale)
    return "; ".join(part for part in parts if part) + "."


STATIC_WIDTH = 660  # of the drawing that stands in print and where scripts do not run
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
            style=css_variables() + _file("style.css"),
            script=_file("page.js") if charts else "",
            library=_library() if charts else "",
            config=PAGE.config(),
            policy=POLICY,
            version=__version__,
        )
    )


def drawing(figure: Figure) -> str:
    """The chart as SVG, in the page's colours; ids are the figure's own."""
    import vl_convert

    spec = {**figure.spec, "width": STATIC_WIDTH}
    svg: str = vl_convert.vegalite_to_svg(spec, config=PAGE.config())
    # Two drawings on one page may use the same name for a clip or a gradient.
    svg = re.sub(r'(\bid="|url\(#)', rf"\g<1>{figure.name}-", svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def _about(data: Decision) -> str:
    """One line under the title."""
    parts = []
    if data.audit:
        size = data.audit.size
        parts += [count_of(size.sessions, "session"), count_of(size.queries, "query", "queries")]
    if data.provenance and data.provenance.finished:
        parts.append(day(data.provenance.finished))
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
    environment.filters["shape"] = lambda number: list(SHAPES.values())[number]
    environment.filters["colour"] = lambda number: PAGE.series[number]
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
    return {figure.name: figure.spec for figure in figures_of(data)}
