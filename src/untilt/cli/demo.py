"""`untilt demo`: every step, on data made here."""

from pathlib import Path

from untilt.cli.arguments import Seed, check_out_folder
from untilt.cli.console import Output
from untilt.cli.declared import option, out_option
from untilt.cli.outputs import Force


def demo(
    quick: bool = option(False, "Less data: seconds, rougher."),
    out: Path = out_option(Path("untilt-demo"), "Where the results go.", "FOLDER"),
    seed: Seed = 0,
    force: Force = False,
    *,
    output: Output,
) -> None:
    """Show every step on data made here: clicks, their tilt, a ranker without it, and a report.

    Nothing is needed and nothing is fetched. Takes about half a minute.

    Example: [bold]untilt demo --quick[/bold]
    """
    from untilt.cli.demo_steps import FULL, QUICK, run

    check_out_folder(out)
    run(output, QUICK if quick else FULL, out, seed=seed, force=force)
