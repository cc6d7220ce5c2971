"""`untilt export`: the model alone, for a system that does not run untilt."""

from pathlib import Path
from typing import Annotated

import typer

from untilt.cli.console import speaking
from untilt.cli.options import AsJson, Verbose, check_out


def export(
    ranker: Annotated[
        Path, typer.Argument(metavar="RANKER", help="A file that `untilt train` wrote.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where the model is written.")
    ],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write a ranker's model for other systems: LightGBM's text, or a JSON of linear weights.

    Example: [bold]untilt export ranker.untilt --out model.txt[/bold]
    """
    from untilt.rankers.export import export_model
    from untilt.rankers.persist import load

    with speaking(as_json=as_json, verbose=verbose) as output:
        check_out(out)
        model = load(ranker)
        export_model(model, out)
        output.record(ranker=ranker, model=out, kind=type(model).__name__)
        output.say(f"{type(model).__name__} written to {out}.")
