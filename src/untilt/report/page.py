"""The page: one HTML file with everything in it.

The browser itself is told to fetch nothing (Content-Security-Policy), so the file can be mailed,
archived and opened offline. Each chart is there as a specification that the inlined Vega turns into
an interactive one and, where vl-convert is installed, as a drawing for readers that run no scripts.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from untilt._core.words import (
    count_of,
    day,
    decimals_for,
    ends,
    metric_name,
    metric_words,
    number,
    percent,
    sentence,
    whole,
)
from untilt._version import __version__
from untilt.auditing import audit_view
from untilt.auditing.audit import Audit
from untilt.auditing.audit_view import count_table
from untilt.charts.convert import Call, ChartsNotDrawnError, can_convert, converted
from untilt.charts.theme import PAGE, SHAPES, css_variables, hashes_of, inline_library
from untilt.evaluation import estimate_view
from untilt.evaluation.estimate_view import MANY
from untilt.evaluation.results import SystemDifference
from untilt.facts import phrase
from untilt.report import sections
from untilt.report.decision import Answer, Decision, first_sentence
from untilt.report.step_results import HeldOut, Provenance, StepTime
from untilt.views import Figure, Section, Table, Tile, finished

if TYPE_CHECKING:
    import jinja2


# The sections of a page, in the order a decision needs them. What has no data has no section.


def sections_of(data: Decision) -> tuple[Section, ...]:
    """Everything below the answer."""
    part = data.held_out
    notes = {} if data.training is None else {e.name: e.note for e in data.training.candidates}
    found = (
        _how_sure(data, part) if part else None,
        estimate_view.sensitivity_section(part.sensitivity)
        if part and part.sensitivity and part.sensitivity.causes
        else None,
        *(part.labels.view() if part and part.labels else ()),
        *(part.step.view() if part and part.step else ()),
        estimate_view.unshown_section(part.comparison, part.chosen, part.among) if part else None,
        log_section(data, data.audit) if data.audit else None,
        sections.position_section(data),
        audit_view.comparable_section(data.audit) if data.audit else None,
        _reading(data.audit) if data.audit else None,
        compared_section(part, notes) if part else None,
        sections.choice_section(data.training) if data.training else None,
        sections.learner_section(data.candidate.learned)
        if data.candidate and data.candidate.learned
        else None,
        estimate_view.null_section(part.null_tests, part.comparison[part.chosen])
        if part and part.null_tests
        else None,
        estimate_view.clip_section(
            part.clip_curve, part.chosen, evaluator=part.evaluator, clip=part.clip
        )
        if part and part.clip_curve
        else None,
        sections.moved_section(part.new_positions, data.audit)
        if part and part.new_positions
        else None,
        sections.pair_bias_section(part.pair_bias, data.audit) if part and part.pair_bias else None,
        sections.importance_section(part.importances, part.importance_of)
        if part and part.importances
        else None,
        sections.changed_section(part.changed) if part and part.changed else None,
        Section("warnings", "Warnings", cautions=data.warnings) if data.warnings else None,
        _provenance(data.provenance) if data.provenance else None,
    )
    return tuple(section for section in found if section)


def run_sections(data: Decision) -> list[Section]:
    """What a run says in a terminal or a notebook: the answer, and why; the page has all."""
    answer, made = data.answer, data.candidate
    told = ("step", "rankers", "warnings") if answer is None or answer.reasons else TOLD
    why = None if data.training is None else data.training.why
    facts = () if made is None else (why, made.note, data.told_of_file)
    ranker = Section("ranker", "The ranker", notes=tuple(each for each in facts if each))
    return [
        answer_section(data),
        *(each for each in sections_of(data) if each.name in told),
        *([ranker] if ranker.notes else []),
    ]


def answer_section(data: Decision) -> Section:
    """The verdict, what to do, and why there is no verdict."""
    answer = data.answer
    if answer is None:
        return Section("answer", "The answer", (data.no_answer or "",))
    _, word = VERDICTS[answer.verdict]
    command = answer.recommendation.fields.get("command")
    return Section(
        "answer",
        f"The answer: {word.lower()}",
        (first_sentence(answer), answer.recommendation),
        notes=(phrase("On the command line: `{command}`", command=command),) if command else (),
        cautions=answer.reasons,
    )


def _effective_queries(part: HeldOut) -> tuple[Tile, ...]:
    """As many queries of equal traffic, of those in which the chosen order differs."""
    count = part.comparison[part.chosen].effective_queries
    if count is None:
        return ()
    note = "the number of queries with equal traffic that would give the same precision"
    return (Tile("Effective queries", number(count, 1) if count < MANY else whole(count), note),)


def _how_sure(data: Decision, part: HeldOut) -> Section:
    n, of = len(data.warnings), part[part.chosen]
    answer = data.answer
    tiles = [
        Tile("Held-out sessions", whole(of.n_sessions), "judged by rankers not trained on them"),
        Tile("Held-out queries", whole(of.n_queries), "intervals are over queries"),
        *_effective_queries(part),
        Tile("Effective size", whole(of.effective_n),
             "the number of clicks with equal weight that would give the same precision"),
        Tile("Heaviest click", f"\u00d7 {number(of.largest_weight, 1)}",
             "largest weight that one click has"),
    ]  # fmt: skip
    if of.clipped_share:
        tiles.append(
            Tile("Clipped clicks", percent(of.clipped_share), "intervals are those without a clip")
        )
    if of.unshown is not None:
        note = f"of its top {of.unshown.top}, where it ranks all candidates"
        tiles.append(Tile("Never shown", percent(of.unshown.share), note))
    if part.check is not None and part.check.possible:
        note = "whether the log's own clicks agree with the examination curve"
        tiles.append(Tile("Curve fits", "yes" if part.check.fits else "no", note))
    if part.null_tests is not None:
        failed = len(part.null_tests.failures(part.comparison[part.chosen]))
        note = "what has no difference shows none" if not failed else "see below"
        tiles.append(Tile("Null tests", f"{failed} failed" if failed else "passed", note))
    if answer is not None and answer.verdict == "undecided":
        more = answer.difference.more_sessions
        if 0 < more < float("inf"):
            note = "more held-out sessions to decide a difference of this size"
            tiles.append(Tile("Still needed", whole(more), note))
    tiles.append(Tile("Warnings", str(n) if n else "none", "listed below" if n else ""))
    notes = tuple(map(sentence, data.notes))
    return Section("how-sure", "How sure is this?", tiles=tuple(tiles), notes=notes)


def log_section(data: Decision, audit: Audit) -> Section:
    """The audit's section, with what the run did to the log."""
    of_audit, split, models = audit_view.log_section(audit), data.split, data.click_models
    held_out = "queries" if split is not None and split.by == "query" else "sessions"
    by_use = {} if split is None else getattr(split, held_out)
    dropped = data.source.dropped if data.source else {}
    tables = (
        count_table(f"{held_out.capitalize()} by use", "use", held_out, by_use),
        count_table("Rows left out", "reason", "rows", dropped),
    )
    return replace(
        of_audit,
        small_tables=(*of_audit.small_tables, *(table for table in tables if table.rows)),
        notes=tuple(
            note
            for part in (data.source, audit, split, models)
            if part is not None
            for note in part.notes
            if note.severity == "note"  # others are among the warnings
        ),
    )


def _reading(audit: Audit) -> Section | None:
    tests = audit.reading
    if tests is None or not tests.tests:
        return None
    return audit_view.reading_section(tests, audit.click_rates.level)


def compared_section(part: HeldOut, notes: Mapping[str, str]) -> Section:
    """Rankers on held-out sessions."""
    return estimate_view.compared_section(
        part.estimates,
        part.comparison,
        evaluator=part.evaluator,
        baseline=part.baseline,
        chosen=part.chosen,
        notes=notes,
    )


def _provenance(done: Provenance) -> Section:
    about = {
        "Command": done.command,
        "Finished": done.finished,
        "Machine": done.machine,
        "Seed": "" if done.seed is None else str(done.seed),
    }
    words = (0, 1)
    steps = _steps(done.steps)
    wide, narrow = ((steps,), ()) if len(steps.header) > 2 else ((), (steps,))
    tables = (
        Table(("", ""), tuple((n, text) for n, text in about.items() if text), "The run", words),
        *wide,
        Table(("option", "value"), tuple(done.options.items()), "All options", words, folded=True),
    )
    small = (
        *narrow,
        count_table("Sizes", "what", "how many", done.sizes),
        Table(("package", "version"), tuple(done.versions.items()), "Versions"),
    )
    return Section(
        "computed",
        "How it was computed",
        folded=True,
        tables=tuple(table for table in tables if table.rows),
        small_tables=tuple(table for table in small if table.rows),
    )


def _steps(steps: Sequence[StepTime]) -> Table:
    resumed = any(step.resumed for step in steps)
    notes = [("by an earlier run" if step.resumed else "",) if resumed else () for step in steps]
    rows = tuple(
        (f"{s.of}: {s.name}" if s.of else s.name, number(s.seconds, 1), *n)
        for s, n in zip(steps, notes, strict=True)
    )
    header = ("step", "seconds", *(("note",) if resumed else ()))
    return Table(header, rows, "Where the time went", text_columns=(0, 2))


TOLD = (
    "step",
    "rankers",
    "sensitivity",
    "warnings",
)  # sections of the page that a terminal shows too
VERDICTS = {
    "better": ("\u25b2", "Better"),
    "worse": ("\u25bc", "Worse"),
    "undecided": ("\u25c6", "Not decided"),
    "cannot tell": ("\u25cb", "Cannot tell"),
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
    reasons: tuple[str, ...]
    tiles: tuple[Tile, ...]
    strip: Strip | None
    small_print: str
    shipped: str = ""


def answer_view(data: Decision) -> AnswerView | None:
    """None where there is no answer; `Decision.no_answer` says why."""
    answer, part, made = data.answer, data.held_out, data.candidate
    if answer is None or part is None:
        return None
    mark, word = VERDICTS[answer.verdict]
    return AnswerView(
        verdict=answer.verdict, mark=mark, word=word, first=first_sentence(answer),
        second=answer.recommendation, reasons=tuple(map(sentence, answer.reasons)),
        tiles=_tiles(answer), strip=_strip(answer.difference),
        small_print=_small_print(answer, part.scale),
        shipped=" ".join(str(each) for each in (made.note, data.told_of_file) if each)
        if made is not None
        else "",
    )  # fmt: skip


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
# Only our own scripts run; page.js has Vega interpret its expressions. data: is for its cursors.
POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def page(data: Decision) -> str:
    """The whole page as text."""
    return rendered(
        data.title,
        "Ranking decision",
        answer_view(data),
        sections_of(data),
        about=_about(data),
        no_answer=data.no_answer or "",
    )


def rendered(
    title: str,
    eyebrow: str,
    answer: AnswerView | None,
    sections: Sequence[Section],
    *,
    about: str = "",
    no_answer: str = "",
) -> str:
    """A page of this style: an answer, and sections with their charts and tables."""
    from altair.utils.schemapi import debug_mode

    figures = [figure for section in sections for figure in section.figures]
    with debug_mode(False):  # no check of each piece by its schema, half of the time; tests do that
        library, drawings = _drawn(figures)
        scripts = (library, _file("page.js")) if library else ()
        return (
            _environment()
            .get_template("page.html.j2")
            .render(
                title=title,
                eyebrow=eyebrow,
                answer=answer,
                no_answer=no_answer,
                sections=sections,
                about=about,
                style=css_variables() + _file("style.css"),
                scripts=scripts,
                library=library,
                drawings=drawings,
                config=PAGE.config(),
                policy=POLICY.format(hashes_of(*(f"\n{each}\n" for each in scripts))),
                version=__version__,
            )
        )


def _drawn(figures: Sequence[Figure]) -> tuple[str, dict[str, str]]:
    """The script that draws charts, and the drawing of each; nothing where they cannot be made."""
    if not figures:
        return "", {}
    try:
        library = _library()
    except ChartsNotDrawnError:
        library = ""
    return library, _drawings(figures) if can_convert() else {}


def _drawings(figures: Sequence[Figure]) -> dict[str, str]:
    calls: list[Call] = [
        ("vegalite_to_svg", [{**figure.spec, "width": STATIC_WIDTH}], {"config": PAGE.config()})
        for figure in figures
    ]
    try:
        drawings = converted(calls)
    except ChartsNotDrawnError:
        return {}
    named = zip(figures, drawings, strict=True)
    return {figure.name: _drawing(figure, svg) for figure, svg in named}


def _drawing(figure: Figure, svg: str) -> str:
    """The chart's SVG with ids of the figure's own."""
    # Two drawings on one page may use the same name for a clip or a gradient, and Vega counts clips
    # on from drawing to drawing: here they are counted anew, so that the same figures give the same
    # bytes.
    found = dict.fromkeys(re.findall(r'\bid="([^"]+)"', svg))
    names = {each: f"{figure.name}-part{number}" for number, each in enumerate(found, start=1)}
    svg = re.sub(r'(\bid="|url\(#)([^")]+)', lambda m: m[1] + names.get(m[2], m[2]), svg)
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

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("untilt.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["finished"] = finished
    environment.filters["shape"] = lambda number: list(SHAPES.values())[number]
    environment.filters["colour"] = lambda number: PAGE.series[number]
    return environment


def _file(name: str) -> str:
    return (files("untilt.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    return inline_library()
