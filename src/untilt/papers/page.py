"""A page for each document: its experiments with the document's figures beside ours, and claims.

Pages are made from the catalogue and the results that are kept beside them, all cells of which
stay in files. `reproduce` runs an experiment and writes its page and charts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt.charts.theme import save_chart
from untilt.papers.cells import ReproductionPlan, ResultsFile, Scale, plan, run
from untilt.papers.chart import chart_of, compared, tables_of
from untilt.papers.claims import FAILS, HOLDS, OPEN, Summary, Verdict, verdicts
from untilt.papers.datasets import JudgedSource, source_of
from untilt.papers.layouts import LAYOUTS, MADE, FileLayout, Form
from untilt.papers.schema import (
    Claim,
    Document,
    Experiment,
    ExperimentSize,
    documents,
    load,
    names,
    parse,
)
from untilt.views import Section, Table, View

VERDICTS = (HOLDS, FAILS, OPEN)
NOT_RUN = "not run"
INDEX = "index.md"
READING = (
    "± is half the 95% interval. Claims: positive figures are on the claim's side, except of two "
    "things that should not differ. In brackets: tests clearly for, clearly against (corrected by "
    "Holm), all; a claim holds where all are for it, and does not where one is against it. On data "
    "with folds the fold is the unit, the mean over its seeds: seeds share queries, folds share "
    "training queries, so that intervals are too short for other queries."
)


@dataclass(frozen=True, repr=False)
class Reproduction(View):
    """An experiment on one data set, as far as it has been run."""

    plan: ReproductionPlan
    files: tuple[Path, ...] = ()

    @cached_property
    def summary(self) -> Summary:
        """Means over runs."""
        return Summary(self.plan.experiment, self.plan.finished())

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """What became of each claim."""
        return verdicts(self.summary)

    @property
    def source(self) -> JudgedSource:
        """The data."""
        return self.plan.source

    def of(self, claim: Claim) -> Verdict | None:
        """What became of a claim; None where the results do not speak about it."""
        return next((each for each in self.verdicts if each.claim == claim), None)

    def count(self, verdict: str) -> int:
        """How many claims of the document, not our own, have this verdict."""
        return sum(each.verdict == verdict and not each.claim.own for each in self.verdicts)

    def view(self) -> list[Section]:
        """Tables, and the claims with their verdicts."""
        tables = tuple(tables_of(self.summary))
        points = tuple(f"{v.verdict}: {v.claim.text} {v.sentence}." for v in self.verdicts)
        return [
            Section("results", self.plan.experiment.title, (_sizes([self]),), tables=tables),
            *([Section("claims", "What the document claims", notes=points)] if points else []),
        ]


def reproduce(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *,
    data: str = MADE,
    path: str | Path | None = None,
    out: str | Path = "reproduced",
    scale: Scale = "",
    n_threads: int = 1,
    **sizes: Any,
) -> Reproduction:
    """Run an experiment and write its page and charts; results finished in `out` are reused.

    Parameters
    ----------
    experiment : the name of one of the catalogue, a .toml file, or its tables as a dict
    data, path : judged lists by name and folder, as `untilt reproduce --data --path`
    scale : "quick", "full", or nothing for the size of the published pages
    sizes : other sizes than the file's, such as seeds=2 or queries=200
    """
    if isinstance(experiment, Mapping):
        experiment = parse({"name": "mine", **experiment}, where="the experiment")
    elif not isinstance(experiment, Experiment):
        experiment = load(str(experiment))
    what = plan(experiment, source_of(data, path), out, scale=scale, changes=sizes)
    run(what, n_threads=n_threads)
    return Reproduction(what, tuple(publish(what, Path(out))))


def known_sources() -> list[JudgedSource]:
    """All data sets; for reading results it does not matter where their files lie."""
    return [JudgedSource(), *(JudgedSource(name, Path(name)) for name in LAYOUTS)]


def publish(
    what: ReproductionPlan, folder: Path, *, formats: tuple[str, ...] = ("svg",)
) -> list[Path]:
    """Write the charts of this plan, and the page of its document."""
    known = [load(name) for name in names() if what.experiment.name != name]
    together = [each for each in known if each.document == what.experiment.document]
    together = sorted([*together, what.experiment], key=lambda each: each.name)
    found = [each for experiment in together for each in _found(experiment, folder, what)]
    mine = next(each for each in found if each.plan.picture_name == what.picture_name)
    charts = _write_charts(mine, folder, formats)
    text = document_page(_document(what.experiment.document), found, folder)
    return [*charts, _write(folder / page_name(what), text)]


def page_name(what: ReproductionPlan) -> str:
    """The file of the page: its document, and the scale where one was asked for."""
    return f"{what.experiment.document}{'-' if what.scale else ''}{what.scale}.md"


def republish(folder: Path) -> list[Path]:
    """Write pages, index and charts anew from the results that are kept here; nothing is run."""
    every = [each for name in names() for each in _found(load(name), folder)]
    written = [path for each in every for path in _write_charts(each, folder, ("svg",))]
    for document in documents():
        found = [each for each in every if each.plan.experiment.document == document.name]
        if found:
            text = document_page(document, found, folder)
            written.append(_write(folder / f"{document.name}.md", text))
    return [*written, _write(folder / INDEX, index(every))]


def _write(path: Path, text: str) -> Path:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf8")
    return path


def _write_charts(of: Reproduction, folder: Path, formats: tuple[str, ...]) -> list[Path]:
    chart = chart_of(of.summary, data=of.source.title)
    return [save_chart(chart, folder / f"{of.plan.picture_name}.{kind}") for kind in formats]


def _found(
    experiment: Experiment, folder: Path, beside: ReproductionPlan | None = None
) -> list[Reproduction]:
    """The experiment on each data set with results, and the plan that is being published."""
    scale: Scale = "" if beside is None else beside.scale
    sources = {each.name: each for each in known_sources()}
    for path in sorted((folder / "results").glob(f"{experiment.name}-*.jsonl")):
        # Of a folder of the user's own its results tell the name and the folds.
        for cell in ResultsFile(path).read():
            if sources.setdefault(cell.data, _own(cell.data, cell.fold)).folds < cell.fold:
                sources[cell.data] = _own(cell.data, cell.fold)
    plans = [plan(experiment, each, folder, scale=scale) for each in sources.values()]
    if beside is not None and beside.experiment == experiment:
        plans = [each for each in plans if each.source.name != beside.source.name] + [beside]
        plans.sort(key=lambda each: list(sources).index(each.source.name))
    return [Reproduction(what) for what in plans if what.finished()]


def _own(name: str, folds: int) -> JudgedSource:
    form = Form(("train",), ("test",), folds=folds)
    return JudgedSource(name, Path(name), FileLayout(name, name, (form,)))


def _document(name: str) -> Document:
    known = {each.name: each for each in documents()}
    return known.get(name, Document(name, "experiments of your own", ""))


def document_page(document: Document, found: Sequence[Reproduction], folder: Path) -> str:
    """The page as Markdown."""
    lines = [f"# {document.name}: {document.title}", ""]
    lines += [f"`{document.reference}` in references.bib. [How to read it]({INDEX})", ""]
    lines += [*(f"- {note}" for note in document.notes), ""] if document.notes else []
    lines += [*markdown(_counts(document, found)), ""]
    by_name: dict[str, list[Reproduction]] = {}
    for each in found:
        by_name.setdefault(each.plan.experiment.name, []).append(each)
    for several in by_name.values():
        lines += _experiment(several, folder)
    untested = [
        *document.untested,
        *(u for s in by_name.values() for u in s[0].plan.experiment.untested),
    ]
    if untested:
        lines += ["## Not tested here", ""]
        lines += [f"- {each.text} ({each.source}): {each.reason}" for each in untested] + [""]
    return "\n".join(lines)


def _experiment(found: Sequence[Reproduction], folder: Path) -> list[str]:
    experiment = found[0].plan.experiment
    lines = [
        f"## {experiment.name}: {experiment.title}",
        "",
        f"{experiment.source}. {experiment.question}",
    ]
    lines += ["", *(f"- {note}" for note in experiment.notes)]
    lines += [f"- {_sizes(found)}"]
    pictures = [f"{each.plan.picture_name}.svg" for each in found]
    shown = [
        f"[![{experiment.name}]({name})]({name})" for name in pictures if (folder / name).is_file()
    ]
    lines += ["", " ".join(shown)] if shown else []
    if experiment.form == "table":
        for table in compared([each.summary for each in found]):
            lines += ["", *markdown(table)]
    if experiment.claims:
        rows = [_claim(claim, found) for claim in experiment.claims]
        titles = (each.source.title for each in found)
        lines += ["", *markdown(Table(("claim", "where", *titles), tuple(rows), ""))]
    return [*lines, ""]


def _claim(claim: Claim, found: Sequence[Reproduction]) -> tuple[str, ...]:
    decided = [each.of(claim) for each in found]
    where = "ours" if claim.own else claim.source.removeprefix("section ")
    return claim.text, where, *(NOT_RUN if each is None else each.short for each in decided)


def _counts(document: Document, found: Sequence[Reproduction]) -> Table:
    """A line for each data set."""
    experiments = [load(name) for name in names()]
    claims = [c for e in experiments if e.document == document.name for c in e.claims if not c.own]
    rows = []
    for title in dict.fromkeys(each.source.title for each in found):
        on = [each for each in found if each.source.title == title]
        counts = [sum(each.count(verdict) for each in on) for verdict in VERDICTS]
        counts.append(max(0, len(claims) - sum(counts)))
        rows.append((title, *map(str, counts)))
    return Table((f"claims of {document.name} on", *VERDICTS, NOT_RUN), tuple(rows), "")


def index(found: Sequence[Reproduction]) -> str:
    """The pages, with the number of claims by verdict."""
    lines = [
        "# Reproduced tables and figures", "",
        "`untilt reproduce NAME` runs one; all finished cells are in `results/`, a line each with "
        "its data, row, seed, fold, values, seconds and how the ranker was trained.", "",
        READING, "",
    ]  # fmt: skip
    for document in documents():
        here = [each for each in found if each.plan.experiment.document == document.name]
        if here:
            lines += [f"## [{document.name}: {document.title}]({document.name}.md)", ""]
            lines += [*markdown(_counts(document, here)), ""]
    return "\n".join(lines)


def _sizes(found: Sequence[Reproduction]) -> str:
    """One sentence about sizes, as they were run."""
    what = found[0].plan
    panels = [
        f"panel {panel.name!r}: {_traffic(what.size.times(panel.times))}"
        for panel in what.experiment.panels
        if panel.times > 1
    ]
    parts = [
        _traffic(what.size),
        *panels,
        *(f"{each.source.title}: {_runs(each)}" for each in found),
    ]
    return "; ".join(parts) + "."


def _runs(of: Reproduction) -> str:
    what, size, done = of.plan, of.plan.size, of.plan.finished()
    seeds = f"{len({cell.seed for cell in done})} seeds"
    runs = f"{of.summary.n_runs} folds x {seeds}" if what.source.folds > 1 else seeds
    most = size.queries if what.source.folder is None else what.most_queries
    queries = "" if most is None else f"{most:,} queries, "
    total = len(what.cells)
    part = (
        "" if len(done) == total else f", {len(done):,} of {total:,} cells finished{_stale(what)}"
    )
    return f"{queries}{runs}{part}"


def _stale(what: ReproductionPlan) -> str:
    """How many of the others have results of earlier code or sizes, which are not shown."""
    planned = {
        (c.data, c.panel, c.row, c.x, *c.run) for c in what.cells if c not in what.finished()
    }
    kept = {(c.data, c.panel, c.row, c.x, *c.run) for c in what.results.read()}
    old = len(planned & kept)
    return f", {old:,} stale: run by earlier code or sizes" if old else ""


def _traffic(size: ExperimentSize) -> str:
    if size.clicks is not None:
        return f"{size.clicks:,} clicks"
    if size.clicks_per_query is not None:
        return f"{size.clicks_per_query:g} clicks per query"
    with_click = " with a click" if size.clicked else ""
    return f"{size.sessions_per_query or 100} sessions{with_click} per query"


def markdown(table: Table) -> list[str]:
    """A table in Markdown, numbers to the right."""
    rule = "|" + "|".join(["---", *(["---:"] * (len(table.header) - 1))]) + "|"
    return [_line(table.header), rule, *(_line(row) for row in table.rows)]


def _line(cells: Iterable[str]) -> str:
    return "|" + "|".join(cell.replace("|", "\\|") for cell in cells) + "|"
