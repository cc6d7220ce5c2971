"""The page of an experiment: question, sizes, tables, chart, and which claims hold here.

All experiments of a folder at a glance: the index of pages, and the table of all claims.

Both are made from the catalogue and the results that are kept beside the pages. A claim whose
experiment has no results says so; a claim that nothing here could decide gives its reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from untilt._core.files import replacing
from untilt.catalog import default
from untilt.charts.theme import save_chart
from untilt.papers.cells import ReproductionPlan, ResultsFile, plan
from untilt.papers.chart import chart_of, tables_of
from untilt.papers.claims import FAILS, HOLDS, OPEN, Summary, Verdict, verdicts
from untilt.papers.datasets import JudgedSource
from untilt.papers.layouts import LAYOUTS, FileLayout, Form
from untilt.papers.schema import (
    Claim,
    Document,
    Experiment,
    ExperimentSize,
    documents,
    load,
    named,
    names,
)
from untilt.views import Table

VERDICTS = (HOLDS, FAILS, OPEN)
NOT_RUN = "not run"
INDEX, CLAIMS = "index.md", "claims.md"
ABOUT_THE_INDEX = (
    "Claims of the documents, put to the test here; each page has the figures, the chart and the "
    "reasons, and [all claims](claims.md) stand in one table, with those that cannot be tested "
    "here. Holds: the 95% interval over runs lies on the claim's side; does not hold: on the "
    "other; undecided: it reaches both sides. A claim about every point needs every point. "
    "Questions of our own stand on the pages, and are not counted here."
)
ABOUT_THE_CLAIMS = (
    "Every claim of the documents that we found, with its section and what became of it here, on "
    "each set of judged lists from which clicks were made. Holds: the 95% interval over runs lies "
    "on the claim's side; does not hold: on the other; undecided: it reaches both sides. Figures "
    "are positive where the claim holds, except where two things should not differ. Questions of "
    "our own stand apart, at the end, and are not counted."
)


@dataclass(frozen=True)
class Outcome:
    """An experiment on one data set: its verdicts, and whether all its cells are finished."""

    source: JudgedSource
    verdicts: tuple[Verdict, ...]
    whole: bool

    def of(self, claim: Claim) -> Verdict | None:
        """What became of a claim; None where the results do not speak about it."""
        return next((each for each in self.verdicts if each.claim == claim), None)

    def count(self, verdict: str) -> int:
        """How many claims of the document, not our own, have this verdict."""
        return sum(each.verdict == verdict and not each.claim.own for each in self.verdicts)


@dataclass(frozen=True)
class Reproduced:
    """An experiment with its outcome on each data set that has results."""

    experiment: Experiment
    outcomes: tuple[Outcome, ...]
    has_page: bool

    def on(self, source: JudgedSource) -> Outcome | None:
        """The outcome on one data set."""
        return next((each for each in self.outcomes if each.source == source), None)


def write_overview(folder: Path) -> list[Path]:
    """index.md: the experiments that come with untilt and have a page here, claims counted.

    claims.md: all claims of their documents, those of experiments that were not run, too.
    """
    every = [
        Reproduced(each, _outcomes(each, folder), (folder / f"{each.name}.md").is_file())
        for each in map(load, names())
    ]
    texts = {INDEX: index([each for each in every if each.has_page]), CLAIMS: claims_table(every)}
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf8")
    return [folder / name for name in texts]


def known_sources() -> list[JudgedSource]:
    """All data sets; for reading results it does not matter where their files lie."""
    return [JudgedSource(), *(JudgedSource(name, Path(name)) for name in LAYOUTS)]


def _outcomes(experiment: Experiment, folder: Path) -> tuple[Outcome, ...]:
    outcomes = []
    for source in known_sources():
        what = plan(experiment, source, folder)
        finished = what.finished()
        if finished:
            decided = tuple(verdicts(Summary(experiment, finished)))
            outcomes.append(Outcome(source, decided, len(finished) == len(what.cells)))
    return tuple(outcomes)


def index(found: Sequence[Reproduced]) -> str:
    """The pages, with the number of claims by verdict."""
    lines = ["# Reproduced tables and figures", "", ABOUT_THE_INDEX, ""]
    lines += _row("experiment", "on", *VERDICTS), "|---|---|---:|---:|---:|"
    for reproduced in found:
        experiment = reproduced.experiment
        title = f"[{experiment.name}]({experiment.name}.md): {experiment.title}"
        for each in reproduced.outcomes:
            part = "" if each.whole else " (part)"
            counts = (str(each.count(verdict)) for verdict in VERDICTS)
            lines.append(_row(title, f"{each.source.title}{part}", *counts))
    return "\n".join([*lines, ""])


def claims_table(found: Sequence[Reproduced]) -> str:
    """All claims of the documents that have a page here, and our own questions apart."""
    here = [each for each in documents() if any(of.has_page for of in _of(each, found))]
    lines = ["# Claims of the documents", "", ABOUT_THE_CLAIMS, "", *_counts(here, found), ""]
    for document in here:
        lines += [f"## {document.name}: {document.title}", "", f"{document.reference}.", ""]
        lines += _claims(_of(document, found), own=False)
        lines += _untested(document, _of(document, found))
    ours = [_claims(_of(document, found), own=True) for document in here]
    lines += ["## Questions of our own", ""] if any(ours) else []
    for document, table in zip(here, ours, strict=True):
        lines += [f"### Beside {document.name}", "", *table] if table else []
    return "\n".join(lines)


def _of(document: Document, found: Sequence[Reproduced]) -> list[Reproduced]:
    return [each for each in found if each.experiment.document == document.name]


def _counts(here: Iterable[Document], found: Sequence[Reproduced]) -> list[str]:
    """A line for each document and data set."""
    lines = [
        _row("document", "on", *VERDICTS, NOT_RUN, "cannot be tested here"),
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for document in here:
        own = _of(document, found)
        n_claims = sum(not claim.own for each in own for claim in each.experiment.claims)
        n_untested = len(document.untested) + sum(len(each.experiment.untested) for each in own)
        for source in _sources(own):
            outcomes = [of for each in own if (of := each.on(source)) is not None]
            counts = [sum(each.count(verdict) for each in outcomes) for verdict in VERDICTS]
            counts += [n_claims - sum(counts), n_untested]
            title = f"{document.name}: {document.title}"
            lines.append(_row(title, source.title, *map(str, counts)))
    return lines


def _sources(found: Sequence[Reproduced]) -> list[JudgedSource]:
    """Data sets that any of these experiments has results on."""
    there = [each.source for reproduced in found for each in reproduced.outcomes]
    return [source for source in known_sources() if source in there]


def _claims(found: Sequence[Reproduced], *, own: bool) -> list[str]:
    """A line per claim, a column per data set."""
    sources = _sources(found)
    lines = []
    for each in found:
        name = each.experiment.name
        page = f"[{name}]({name}.md)" if each.has_page else name
        for claim in each.experiment.claims:
            if claim.own == own:
                cells = [_cell(each.on(source), claim) for source in sources]
                lines.append(_row(claim.text, claim.source, page, *cells))
    if not lines:
        return []
    titles = (source.title for source in sources)
    head = _row("claim", "section", "page", *(f"on {title}" for title in titles))
    return [head, "|" + "---|" * (3 + len(sources)), *lines, ""]


def _cell(outcome: Outcome | None, claim: Claim) -> str:
    """Verdict and reason on one data set."""
    verdict = None if outcome is None else outcome.of(claim)
    if outcome is None or verdict is None:
        return NOT_RUN
    part = "" if outcome.whole else " (not all runs yet)"
    return f"**{verdict.verdict}**{part}: {verdict.sentence}.{reason_of(verdict, outcome.source)}"


def reason_of(verdict: Verdict, source: JudgedSource) -> str:
    """The catalogue's reason on this data set, where the claim does not hold."""
    reason = verdict.claim.because.get(source.name, "")
    return f" {reason}" if reason and verdict.verdict != HOLDS else ""


def _untested(document: Document, found: Sequence[Reproduced]) -> list[str]:
    untested = [*document.untested, *(each for of in found for each in of.experiment.untested)]
    if not untested:
        return []
    lines = [_row(each.text, each.source, each.reason) for each in untested]
    head = _row("cannot be tested here", "section", "reason")
    return [head, "|---|---|---|", *lines, ""]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


HEADINGS = {
    HOLDS: "Holds",
    FAILS: "Does not hold",
    OPEN: "Undecided: the interval reaches both sides",
}
SIGNS = (
    "Figures of claims are positive on the claim's side, except where two things should not "
    "differ; intervals are 95%, over runs. Methods are compared within a run, so that a claim can "
    "be decided where the intervals of two means overlap."
)


@dataclass(frozen=True)
class PaperSection:
    """Results on one data set."""

    plan: ReproductionPlan
    summary: Summary
    chart: str  # file name beside the page, or nothing


def page(experiment: Experiment, sections: list[PaperSection]) -> str:
    """The page as Markdown."""
    lines = [
        f"# {experiment.name}: {experiment.title}",
        "",
        f"Document {experiment.document} ({experiment.reference} in references.bib), "
        f"{experiment.source}.",
        "",
        experiment.question,
        "",
    ]
    lines += [f"- {note}" for note in experiment.notes] + ([""] if experiment.notes else [])
    lines += [SIGNS, ""] if experiment.claims else []
    for section in sections:
        lines += _section(section)
    if experiment.untested:
        lines += ["## What cannot be tested here", ""]
        lines += [f"- {each.text} ({each.source}): {each.reason}" for each in experiment.untested]
        lines += [""]
    lines += ["This page is written by the command above each table; do not edit it by hand.", ""]
    return "\n".join(lines)


def _section(section: PaperSection) -> list[str]:
    what, summary = section.plan, section.summary
    lines = [f"## On {what.source.title}", "", "```sh", command(what), "```", ""]
    lines += [setting(what, summary), ""]
    if section.chart:
        lines += [f"![{summary.experiment.title}]({section.chart})", ""]
    for table in tables_of(summary):
        lines += [f"**{table.caption}**", "", *markdown(table), ""]
    for title, own in (("What the document claims", False), ("What we asked beside it", True)):
        decided = [each for each in verdicts(summary) if each.claim.own == own]
        lines += [f"### {title}", ""] if decided else []
        for verdict, heading in HEADINGS.items():
            points = [_point(each, what.source) for each in decided if each.verdict == verdict]
            lines += [f"**{heading}**", "", *points, ""] if points else []
    trained = _trained(what)
    return [*lines, "### How each row was trained", "", *trained, ""] if trained else lines


def _trained(what: ReproductionPlan) -> list[str]:
    """How each row was trained, as the rankers say; what differs between runs as a range."""
    told: dict[str, dict[str, list[str]]] = {}
    for cell, result in what.finished().items():
        for name, value in result.trained.items():
            told.setdefault(cell.row, {}).setdefault(name, []).append(value)
    return [
        f"- {named(row, what.experiment.rows)}: "
        + ", ".join(f"{name} {_range(seen)}" for name, seen in told[row.name].items())
        for row in what.experiment.rows
        if row.name in told
    ]


def _range(values: list[str]) -> str:
    """The one value, or the smallest and the largest."""
    different = sorted(set(values))
    if len(different) == 1:
        return different[0]
    try:
        numbers = sorted(different, key=float)
    except ValueError:
        return " or ".join(different)
    return f"{numbers[0]} to {numbers[-1]}"


def _point(verdict: Verdict, source: JudgedSource) -> str:
    claim = verdict.claim
    return f"- {claim.text} ({claim.source}): {verdict.sentence}.{reason_of(verdict, source)}"


def command(what: ReproductionPlan) -> str:
    """The command that makes this section."""
    own = " --data FOLDER"
    public = own if what.source.own else f" --data {what.source.name} --path FOLDER"
    data = "" if what.source.folder is None else public
    return (
        f"untilt reproduce {what.experiment.name}{data}{f' --{what.scale}' if what.scale else ''}"
    )


def setting(what: ReproductionPlan, summary: Summary) -> str:
    """One sentence about sizes, as they were run."""
    size, n_runs = what.size, summary.n_runs
    if what.source.folder is None:
        data = f"{size.queries:,} queries to learn from and {size.test_queries:,} for the test"
    elif what.most_queries is None:
        data = "All queries"
    else:
        data = f"At most {what.most_queries:,} queries"
    runs = f"{n_runs} runs (folds x seeds)" if what.source.folds > 1 else f"{n_runs} seeds"
    trees = f", {size.trees} trees" if _has_trees(what.experiment) else ""
    done, total = len(what.finished()), len(what.cells)
    part = "" if done == total else f" Unfinished: {done:,} of {total:,} cells."
    panels = "".join(
        f" In the panel {panel.name!r}: {_traffic(size.times(panel.times))}."
        for panel in what.experiment.panels
        if panel.times > 1
    )
    return (
        f"{data}, {_traffic(size)}{trees}, {runs}.{panels}{part} "
        "± is the half width of the 95% interval over runs (Student's t)."
    )


def _traffic(size: ExperimentSize) -> str:
    if size.clicks is not None:
        return f"{size.clicks:,} clicks"
    if size.clicks_per_query is not None:
        return f"{size.clicks_per_query:g} clicks per query"
    return f"{size.sessions_per_query or 100} sessions per query"


def _has_trees(experiment: Experiment) -> bool:
    return any(
        row.ranker == default("ranker").name
        for panel in experiment.panels
        if panel.measure in ("judged", "average-position", "ratios")
        for row in experiment.rows_of(panel)
    )


def markdown(table: Table) -> list[str]:
    """A table in Markdown, numbers to the right."""
    rule = "|" + "|".join(["---", *(["---:"] * (len(table.header) - 1))]) + "|"
    return [_line(table.header), rule, *(_line(row) for row in table.rows)]


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def publish(
    what: ReproductionPlan, folder: Path, *, formats: tuple[str, ...] = ("svg",)
) -> list[Path]:
    """Write the charts of this plan, and the page with all data sets that have results here."""
    charts = _write_charts(what, folder, formats)
    path = _write_page(what, _plans(what, folder), folder)
    if not what.scale:
        write_overview(folder)
    return [*charts, path]


def republish(folder: Path, wanted: Sequence[str] = ()) -> list[Path]:
    """Write pages and charts anew from the results that are kept here, and nothing is run.

    Parameters
    ----------
    wanted : names of experiments that come with untilt; all where none is given
    """
    written = []
    for experiment in map(load, wanted or names()):
        plans = [plan(experiment, source, folder) for source in known_sources()]
        there = [each for each in plans if each.finished()]
        for each in there:
            written += _write_charts(each, folder, ("svg",))
        if there:
            written.append(_write_page(there[0], there, folder))
    return [*written, *write_overview(folder)]


def _write_charts(what: ReproductionPlan, folder: Path, formats: tuple[str, ...]) -> list[Path]:
    chart = chart_of(Summary(what.experiment, what.finished()), data=what.source.title)
    return [save_chart(chart, folder / f"{what.picture_name}.{kind}") for kind in formats]


def _write_page(what: ReproductionPlan, plans: Sequence[ReproductionPlan], folder: Path) -> Path:
    sections = []
    for each in plans:
        finished = each.finished()
        if finished:
            pictures = [f"{each.picture_name}.{kind}" for kind in ("svg", "png")]
            there = [picture for picture in pictures if (folder / picture).is_file()]
            summary = Summary(each.experiment, finished)
            sections.append(PaperSection(each, summary, there[0] if there else ""))
    path = folder / f"{what.page_name}.md"
    with replacing(path) as temporary:
        temporary.write_text(page(what.experiment, sections), encoding="utf8")
    return path


def _plans(what: ReproductionPlan, folder: Path) -> list[ReproductionPlan]:
    """This plan and those of the other data sets at the same size."""
    return [
        what
        if source.name == what.source.name
        else plan(what.experiment, source, folder, scale=what.scale)
        for source in [*known_sources(), *_own_sources(what, folder)]
    ]


def _own_sources(what: ReproductionPlan, folder: Path) -> list[JudgedSource]:
    """This plan's folder of the user's own, and those with results from earlier.

    Of an earlier one its results tell the name and the folds, which is all that a page needs.
    """
    own = {what.source.name: what.source} if what.source.own is not None else {}
    known = {source.name for source in known_sources()}
    for path in sorted((folder / "results").glob(f"{what.experiment.name}-*.jsonl")):
        cells = list(ResultsFile(path).read())
        for name in {cell.data for cell in cells} - known - set(own):
            folds = max(cell.fold for cell in cells)
            form = Form(("train",), ("test",), folds=folds)
            own[name] = JudgedSource(name, Path(name), FileLayout(name, name, (form,)))
    return list(own.values())
