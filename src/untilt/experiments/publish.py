"""Charts and the page of an experiment, from the results that lie in a folder."""

from pathlib import Path

from untilt.experiments.chart import chart_of
from untilt.experiments.layouts import LAYOUTS
from untilt.experiments.page import Section, write_page
from untilt.experiments.run import Plan, plan
from untilt.experiments.sources import Source
from untilt.experiments.summary import Summary
from untilt.report.charts import save_chart

FORMATS = ("svg", "png", "html")


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
    return [*written, folder / f"{name}.md"]


def _plans(what: Plan, folder: Path) -> list[Plan]:
    """This plan and those of the other data sets at the experiment's own size."""
    others = [Source(), *(Source(name, Path(name)) for name in LAYOUTS)]
    return [
        what
        if source.name == what.source.name
        else plan(what.experiment, source, folder, quick=what.quick)
        for source in others
    ]
