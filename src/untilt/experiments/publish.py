"""Charts and the page of an experiment, from the results that lie in a folder."""

from pathlib import Path

from untilt._core.files import replacing
from untilt.experiments.chart import chart_of
from untilt.experiments.claims import FAILS, HOLDS, OPEN, verdicts
from untilt.experiments.files import load, names
from untilt.experiments.layouts import LAYOUTS
from untilt.experiments.page import Section, write_page
from untilt.experiments.run import Plan, plan
from untilt.experiments.schema import Experiment
from untilt.experiments.sources import Source
from untilt.experiments.summary import Summary
from untilt.report.charts import save_chart

FORMATS = ("svg", "png", "html")
INTRODUCTION = (
    "Claims of the documents, put to the test here; each page has the figures, the chart and the "
    "reasons. Holds: the 95% interval over runs lies on the claim's side; does not hold: on the "
    "other; undecided: it has both signs."
)


def publish(what: Plan, folder: Path, *, formats: tuple[str, ...] = ("svg",)) -> list[Path]:
    """Write the charts of this plan, and the page with all data sets that have results here."""
    name = f"{what.experiment.name}{'-quick' if what.quick else ''}"
    written = []
    sections = []
    for each in _plans(what, folder):
        finished = each.finished()
        if not finished:
            continue
        summary = Summary(each.experiment, finished)
        stem = f"{what.experiment.name}-{each.source.name}{'-quick' if what.quick else ''}"
        if each is what:
            chart = chart_of(summary, data=each.source.title)
            written += [save_chart(chart, folder / f"{stem}.{kind}") for kind in formats]
        pictures = [f"{stem}.{kind}" for kind in ("svg", "png")]
        there = [picture for picture in pictures if (folder / picture).is_file()]
        sections.append(Section(each, summary, there[0] if there else ""))
    write_page(folder / f"{name}.md", what.experiment, sections)
    if not what.quick:
        write_index(folder)
    return [*written, folder / f"{name}.md"]


def write_index(folder: Path) -> None:
    """index.md: every experiment that comes with untilt and has a page here, claims counted."""
    lines = ["# Reproduced tables and figures", "", INTRODUCTION, ""]
    lines += ["| experiment | on | holds | does not hold | undecided |", "|---|---|---:|---:|---:|"]
    for name in names():
        if (folder / f"{name}.md").is_file():
            lines += _counted(load(name), folder)
    with replacing(folder / "index.md") as temporary:
        temporary.write_text("\n".join([*lines, ""]), encoding="utf8")


def _counted(experiment: Experiment, folder: Path) -> list[str]:
    lines = []
    for source in _sources():
        what = plan(experiment, source, folder)
        finished = what.finished()
        if finished:
            found = [each.verdict for each in verdicts(Summary(experiment, finished))]
            counts = " | ".join(str(found.count(verdict)) for verdict in (HOLDS, FAILS, OPEN))
            title = f"[{experiment.name}]({experiment.name}.md): {experiment.title}"
            part = "" if len(finished) == len(what.cells) else " (part)"
            lines.append(f"| {title} | {source.title}{part} | {counts} |")
    return lines


def _plans(what: Plan, folder: Path) -> list[Plan]:
    """This plan and those of the other data sets at the experiment's own size."""
    return [
        what
        if source.name == what.source.name
        else plan(what.experiment, source, folder, quick=what.quick)
        for source in _sources()
    ]


def _sources() -> list[Source]:
    """All data sets; for reading results it does not matter where their files lie."""
    return [Source(), *(Source(name, Path(name)) for name in LAYOUTS)]
