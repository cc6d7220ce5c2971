"""`untilt methods`: every method that can be chosen, and what it is."""

from itertools import groupby
from typing import Annotated, get_args

import typer

from untilt import catalog
from untilt.cli.arguments import AsJson, Verbose
from untilt.cli.console import speaking
from untilt.errors import check_choice


def methods(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="weighting, ranker, bias, ...; all where not given."),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the methods with what they are and what they need.

    Example: [bold]untilt methods weighting[/bold]
    """
    with speaking(as_json=as_json, verbose=verbose) as output:
        kinds: tuple[catalog.Kind, ...] = get_args(catalog.Kind)
        if kind is not None:
            check_choice("KIND", kind, kinds)
        records = [each for each in catalog.methods() if kind in (None, each.kind)]
        records.sort(key=lambda each: kinds.index(each.kind))
        for name, group in groupby(records, key=lambda each: each.kind):
            output.heading(name)
            output.table(
                ("name", "what it is", "needs"),
                [(each.name, each.note, ", ".join(each.needs)) for each in group],
            )
        output.record(
            methods=[
                {
                    "kind": each.kind, "name": each.name, "title": each.title, "note": each.note,
                    "needs": each.needs, "rests_on": each.rests_on, "reference": each.reference,
                    "class": f"{each.home}.{each.target}",
                }
                for each in records
            ]
        )  # fmt: skip
