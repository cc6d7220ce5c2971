"""`untilt score`: scores and ranks for a file of documents."""

from pathlib import Path

from untilt._core.addresses import place
from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import argument, option, out_option
from untilt.data.read.options import columns_of


def score(
    ranker: Path = argument(..., "A file that `untilt train` wrote.", "RANKER"),
    documents: Path = argument(
        ...,
        "Documents with their features: query_id, doc_id, then the columns that the "
        "ranker knows. What a log may be: files, folders, databases, s3:// or postgresql://.",
        "TABLE",
        parser=place,
    ),
    out: Path = out_option(
        Path("scored.parquet"), "Where the scored documents are written.", "FILE"
    ),
    column: list[str] | None = option(
        None,
        "Where a column has another name, as in query_id=srch_id; score=COLUMN and "
        "rank=COLUMN name the new ones. May be repeated.",
        metavar="NAME=COLUMN",
    ),
    table: str | None = option(
        None, "Of a database with several tables, the one to score.", metavar="NAME"
    ),
    top: int | None = option(None, "Write only so many of each query, the best ones.", min=1),
    without_features: bool = option(False, "Leave the features out of the new file."),
    *,
    output: Output,
) -> None:
    """Score documents by a saved ranker: the file again, with their score and their rank.

    Rank 1 is the best of its query. The file may be larger than memory.

    Example: [bold]untilt score ranker.untilt documents.parquet --out scored.parquet[/bold]
    """
    from untilt.rankers.base import load
    from untilt.rankers.score_file import score_file

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
