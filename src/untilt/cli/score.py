"""`untilt score`: scores and ranks for a file of documents."""

from pathlib import Path
from typing import Annotated

import typer

from untilt._core.addresses import place
from untilt.cli import arguments, outputs
from untilt.cli.console import speaking
from untilt.data.read.options import columns_of


def score(
    ranker: Annotated[
        Path, typer.Argument(metavar="RANKER", help="A file that `untilt train` wrote.")
    ],
    documents: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Documents with their features: query_id, doc_id, then the columns that the "
            "ranker knows. What a log may be: files, folders, databases, s3:// or postgresql://.",
            parser=place,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Where the scored documents are written."),
        outputs.WRITES,
    ] = Path("scored.parquet"),
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN",
            help="Where a column has another name, as in query_id=srch_id; score=COLUMN and "
            "rank=COLUMN name the new ones. May be repeated.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of a database with several tables, the one to score."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Write only so many of each query, the best ones.")
    ] = None,
    without_features: Annotated[
        bool, typer.Option("--without-features", help="Leave the features out of the new file.")
    ] = False,
    as_json: arguments.AsJson = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Score documents by a saved ranker: the file again, with their score and their rank.

    Rank 1 is the best of its query. The file may be larger than memory.

    Example: [bold]untilt score ranker.untilt documents.parquet --out scored.parquet[/bold]
    """
    from untilt.rankers.base import load
    from untilt.rankers.score_file import score_file

    with speaking(as_json=as_json, verbose=verbose) as output:
        arguments.check_out(out)
        found = score_file(
            load(ranker),
            arguments.with_table(documents, table, "--table"),
            out,
            columns=columns_of(column or ()),
            top=top,
            with_features=not without_features,
        )
        output.record(
            ranker=ranker, documents=documents, scored=found.path, rows=found.n_rows,
            queries=found.n_queries, unused_columns=found.unused,
        )  # fmt: skip
        output.say(f"{found.n_rows:,} documents of {found.n_queries:,} queries scored.")
        if found.unused:
            output.detail(f"columns that the ranker does not use: {', '.join(found.unused)}")
        output.path("Written to", found.path)
