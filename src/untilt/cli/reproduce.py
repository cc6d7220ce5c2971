"""`untilt reproduce`: a table or figure of the literature, run here."""

import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from untilt._core.declared import EXPERT
from untilt._core.places import refuse_taken
from untilt.cli.console import Output, attributes
from untilt.cli.declared import FORCE, Writes, argument, option, out_option
from untilt.errors import OptionError
from untilt.facts import warning
from untilt.papers.layouts import LAYOUTS, MADE

if TYPE_CHECKING:
    from untilt._core.statistics import Interval
    from untilt.papers.cells import ReproductionPlan, Scale
    from untilt.papers.page import Reproduction

LINES_DAMAGED = warning(
    "run.lines-damaged",
    "{lines:,} {lines:line|lines} of {file} cannot be used, cut short or changed after being "
    "written: what they held is run again",
)


class Picture(StrEnum):
    """Kinds of files a chart is written as."""

    SVG = "svg"
    PNG = "png"
    HTML = "html"


def reproduce(
    name: str | None = argument(
        None, "Name of an experiment (see --list), or a .toml file.", "NAME|FILE"
    ),
    show_list: bool = option(False, "List the experiments.", "--list"),
    quick: bool = option(
        False, "Run a small version, in a minute at most; its figures mean little."
    ),
    full: bool = option(False, "Run at the paper's size, in hours instead of minutes."),
    data: str = option(
        MADE,
        f"Judged lists: {', '.join((MADE, *LAYOUTS))}, or a folder with files named like theirs.",
        metavar="NAME|FOLDER",
    ),
    path: Path | None = option(
        None, "Folder of the judged lists (default: $UNTILT_DATA/NAME).", metavar="FOLDER"
    ),
    out: Path = out_option(
        Path("reproduced"), "Folder of results, charts and the page.", "FOLDER",
        Writes(("results/",)),
    ),
    seeds: int | None = option(
        None, "Number of seeds, per fold (default: the experiment's).", min=1, panel=EXPERT
    ),
    folds: int | None = option(None, "Number of folds to use (default: all).", min=1, panel=EXPERT),
    queries: int | None = option(
        None, "Largest number of training queries (default: all).", min=10, panel=EXPERT
    ),
    chart: list[Picture] | None = option(
        None, "Format of the charts (default: svg). May be repeated.", panel=EXPERT
    ),
    imported: list[str] | None = option(
        None,
        "Module, or .py file, whose @method classes the experiment may name. May be repeated.",
        "--import",
        metavar="MODULE",
    ),
    threads: int = option(1, "Threads of one ranker.", min=1, panel=EXPERT),
    force: bool = FORCE,
    *,
    output: Output,
) -> None:  # fmt: skip
    """Run a table or figure of a paper and compare the results.

    Without --quick or --full, it uses the paper's clicks per query, and as many queries and runs
    as fit into minutes to an hour.

    Finished parts are kept in FOLDER/results, so that the same command continues a stopped run.
    The page of the document, such as FOLDER/003.md, has tables, charts and the claims that hold.

    Example: [bold]untilt reproduce 003-table-2 --quick[/bold]

    On a public set: [bold]untilt reproduce 003-table-2 --data mq2008 --path MQ2008[/bold]

    On the files of a folder: [bold]untilt reproduce 001-table-2 --data FOLDER[/bold]

    Your own experiment and methods: [bold]untilt reproduce mine.toml --import my_methods[/bold]
    """
    if show_list:
        _list(output)
        return
    for module in imported or ():
        _import(module)
    scale = _scale(quick=quick, full=full)
    what = _plan(name, data, path, out, scale=scale, seeds=seeds, folds=folds, queries=queries)
    refuse_taken(out, _pages(out, what), force=force)
    _run(output, what, out, threads, tuple(each.value for each in chart or [Picture.SVG]))


def _import(module: str) -> None:
    """Import from the current folder, too: the command's own path does not have it."""
    path = Path(module)
    folder = path.parent if path.suffix == ".py" else Path()
    sys.path.insert(0, str(folder.resolve()))
    try:
        import_module(path.stem if path.suffix == ".py" else module)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"--import {module}: {error}. Give a .py file, or a module that Python finds from here."
        ) from error


def _pages(out: Path, what: "ReproductionPlan") -> list[str]:
    """Names of pages that may be somebody's own: results in the folder say that they are ours."""
    if any((out / "results").glob("*.jsonl")):
        return []
    from untilt.papers.page import page_name

    return [page_name(what)]


def _scale(*, quick: bool, full: bool) -> "Scale":
    if quick and full:
        raise OptionError("--quick and --full are two sizes. Give one of them, or none.")
    return "quick" if quick else "full" if full else ""


def _list(output: Output) -> None:
    from untilt.papers.schema import load, names

    known = [load(name) for name in names()]
    output.record(experiments={each.name: each.title for each in known})
    for each in known:
        output.say(f"{each.name:<14}{each.title}")
    output.say("\nRun one: untilt reproduce NAME --quick")


def _plan(
    name: str | None, data: str, path: Path | None, out: Path, *, scale: "Scale", seeds: int | None,
    folds: int | None, queries: int | None,
) -> "ReproductionPlan":  # fmt: skip
    from untilt.papers.cells import plan
    from untilt.papers.datasets import source_of
    from untilt.papers.schema import load

    if name is None:
        raise OptionError("which one? Give a NAME; `untilt reproduce --list` has them.")
    if out.suffix or out.is_file():
        raise OptionError(f"--out is a folder for results, charts and the page. Got {str(out)!r}.")
    experiment, source = load(name), source_of(data, path)
    sizes = {"seeds" if source.folds == 1 else "fold_seeds": seeds, "folds": folds}
    sizes["queries"] = queries
    changes = {key: value for key, value in sizes.items() if value is not None}
    return plan(experiment, source, out, scale=scale, changes=changes)


def _run(
    output: Output, what: "ReproductionPlan", out: Path, threads: int, formats: tuple[str, ...]
) -> None:
    from untilt.papers.cells import run
    from untilt.papers.page import Reproduction, publish

    done, total = len(what.finished()), len(what.cells)
    output.say(f"{what.experiment.name}: {what.experiment.title}")
    if what.source.found:
        output.say(what.source.found)
    went_on = f", {done:,} of them finished before" if done else ""
    output.say(f"{total:,} cells on {what.source.title}{went_on}")
    if damaged := what.results.damaged():
        output.say(LINES_DAMAGED(lines=damaged, file=str(what.results.path)))
    run(
        what,
        n_threads=threads,
        on_result=lambda r: output.detail(f"{r.cell} {r.values} in {r.seconds:.2f} s"),
    )
    files = publish(what, out, formats=formats)
    made = Reproduction(what, tuple(files))
    if not output.as_json:  # not cut to the width of a terminal that is none
        typer.echo(f"\n{made}")
    _record(output, made)
    output.heading("written")
    for path in [what.results.path, *files]:
        output.path("  file", path)


def _record(output: Output, made: "Reproduction") -> None:
    what = made.plan
    output.record(
        experiment=what.experiment.name,
        data=what.source.name,
        quick=what.scale == "quick",
        full=what.scale == "full",
        cells=len(what.cells),
        seconds=made.summary.seconds,
        points=[
            attributes(point, "panel row metric x value")
            | {**_ends(point.interval), "runs": len(point.runs)}
            for point in made.summary.points.values()
        ],
        claims=[
            attributes(each.claim, "text source")
            | attributes(each, "verdict value")
            | _ends(each.interval)
            for each in made.verdicts
        ],
        files=[what.results.path, *made.files],
    )


def _ends(interval: "Interval | None") -> dict[str, float | None]:
    return {end: getattr(interval, end, None) for end in ("low", "high")}
