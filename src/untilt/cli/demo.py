"""`untilt demo`: every step, on data made here."""

from pathlib import Path
from typing import Annotated

import typer

from untilt.cli.arguments import AsJson, Seed, Verbose, check_out_folder
from untilt.cli.console import speaking
from untilt.cli.outputs import WRITES, Force


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Less data: seconds, rougher.")] = False,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Where the results go."),
        WRITES,
    ] = Path("untilt-demo"),
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show every step on data made here: clicks, their tilt, a ranker without it, and a report.

    Nothing is needed and nothing is fetched. Takes about half a minute.

    Example: [bold]untilt demo --quick[/bold]
    """
    from untilt.cli.demo_steps import FULL, QUICK, run

    with speaking(as_json=as_json, verbose=verbose) as output:
        check_out_folder(out)
        run(output, QUICK if quick else FULL, out, seed=seed, force=force)
