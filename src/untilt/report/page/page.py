"""The page: one HTML file with everything in it.

The browser itself is told to fetch nothing (Content-Security-Policy), so the file can be mailed,
archived and opened offline. Each chart is there twice: as a drawing, for print and for readers that
run no scripts, and as a specification that the inlined Vega turns into an interactive one.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from untilt._version import __version__
from untilt.charts.theme import PAGE, SHAPES, css_variables
from untilt.report.decision import Answer, Decision, Value
from untilt.report.page.parts import Fact, Figure
from untilt.report.page.sections import sections_of
from untilt.report.page.words import (
    count_of,
    day,
    first_sentence,
    interval,
    metric_name,
    metric_words,
    number,
    places,
    second_sentence,
)

if TYPE_CHECKING:
    import jinja2


# The top of the page: the answer in two sentences, and its interval as a strip.

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
    """What the template shows of the answer."""

    verdict: str
    mark: str
    word: str
    first: str
    second: str
    facts: tuple[Fact, ...]
    strip: Strip | None
    small_print: str


def answer_view(data: Decision) -> AnswerView | None:
    """None where there is no answer; `Decision.no_answer` says why."""
    answer = data.answer
    if answer is None:
        return None
    mark, word = VERDICTS[answer.verdict]
    more = data.how_sure.more_sessions if data.how_sure else None
    return AnswerView(
        verdict=answer.verdict,
        mark=mark,
        word=word,
        first=first_sentence(answer),
        second=second_sentence(answer, more),
        facts=_facts(answer),
        strip=_strip(answer.difference),
        small_print=_small_print(answer),
    )


def _facts(answer: Answer) -> tuple[Fact, ...]:
    level = places((answer.value, answer.shown_value))
    change = places((answer.difference,))
    return (
        Fact(answer.shown, number(answer.shown_value.value, level),
             interval(answer.shown_value, level)),
        Fact(answer.new, number(answer.value.value, level),
             interval(answer.value, level)),
        Fact("difference", number(answer.difference.value, change, signed=True),
             interval(answer.difference, change, signed=True)),
    )  # fmt: skip


def _strip(difference: Value) -> Strip | None:
    """Room for 0 and the interval, with a sixth of the width on either side."""
    value, low, high = difference.value, difference.low, difference.high
    if value is None or low is None or high is None or not high > low:
        return None
    start, end = min(0.0, low), max(0.0, high)
    decimals = places((difference,))

    def at(x: float) -> float:
        return round(12 + 76 * (x - start) / (end - start), 2)

    texts = (number(x, decimals, signed=True) for x in (low, value, high))
    return Strip(at(0.0), at(low), at(value), at(high), *texts)


def _small_print(answer: Answer) -> str:
    metric, counts = metric_name(answer.metric), metric_words(answer.metric)
    better = "higher" if answer.higher_is_better else "lower"
    parts = [f"{metric} per session, {better} is better"]
    parts += [counts] if counts else []
    parts += [answer.scale] if answer.scale else []
    return "; ".join(parts) + "."


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
    return {figure.name: figure.spec for s in sections_of(data) for figure in s.figures}
