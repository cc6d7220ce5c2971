"""Options that several commands share."""

from typing import Annotated

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for machines, and nothing else.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also say on stderr what is done, and when.")
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
