"""`untilt report`: the page of a run, built again from its figures."""

from pathlib import Path
from typing import Annotated

import typer

from untilt.cli.console import speaking
from untilt.cli.options import AsJson, Verbose
from untilt.errors import OptionError


def report(
    source: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder of a run, or its figures.json."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where the page goes; else beside the figures."
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write the report again from the figures of a run: one HTML file that opens offline.

    Example: [bold]untilt report untilt-run[/bold]
    """
    with speaking(as_json=as_json, verbose=verbose) as output:
        from untilt._core.progress import progress
        from untilt.report.decision import Decision, write_report

        figures = source / "figures.json" if source.is_dir() else source
        if not figures.is_file():
            raise OptionError(
                f"there is no {figures}. Give the folder of `untilt run`, or its figures.json."
            )
        decision = Decision.load(figures)
        with progress("writing the report"):
            page = write_report(decision, out or figures.with_name("report.html"))
        output.record(figures=figures, report=page, title=decision.title)
        output.say(f"Report: {page}")
