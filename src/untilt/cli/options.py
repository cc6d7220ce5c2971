"""Options that several commands share, and how they are read."""

from collections.abc import Sequence
from typing import Annotated

import typer

from untilt.errors import OptionError

Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=COLUMN",
        help="Where a column has another name: --column query_id=srch_id. May be repeated.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]


def parse_columns(pairs: Sequence[str] | None) -> dict[str, str]:
    """NAME=COLUMN pairs as the mapping that `read_log` takes."""
    mapping: dict[str, str] = {}
    for pair in pairs or ():
        name, equals, column = pair.partition("=")
        if not (name and equals and column):
            raise OptionError(
                f"--column needs NAME=COLUMN, such as query_id=srch_id. Got {pair!r} instead."
            )
        if name in mapping:
            raise OptionError(f"--column names {name!r} twice: {mapping[name]!r} and {column!r}.")
        mapping[name] = column
    return mapping
