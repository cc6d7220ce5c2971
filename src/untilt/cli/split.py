"""`untilt split`: a part of a log to train on, and one to evaluate on."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from untilt.cli import arguments
from untilt.cli.console import Output, speaking
from untilt.errors import OptionError


class SplitBy(StrEnum):
    """What is kept together."""

    QUERY = "query"
    SESSION = "session"
    TIME = "time"


def split(
    reading: arguments.LogOptions,
    data: Annotated[
        Path, typer.Argument(metavar="LOG", help="A click log; or a LETOR file, with --letor.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the parts are written.")
    ] = Path("parts"),
    share: Annotated[float, typer.Option(help="Of the first part, the one to train on.")] = 0.8,
    by: Annotated[
        SplitBy,
        typer.Option(
            help="Whole queries, single sessions, or the earliest sessions (needs timestamp)."
        ),
    ] = SplitBy.QUERY,
    letor: Annotated[
        bool, typer.Option("--letor", help="LOG is a LETOR file with labels.")
    ] = False,
    seed: arguments.Seed = 0,
    as_json: arguments.AsJson = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Split a log into train.parquet and test.parquet, so that nothing is judged in sample.

    By query no query stands in both parts. By session or time the same queries come again, with
    other sessions: right where that is what will happen. With --documents, documents.parquet holds
    the documents of both parts.

    Example: [bold]untilt split clicks.parquet --documents documents.parquet --out parts[/bold]

    Human labels: [bold]untilt split judged.txt --letor --out parts[/bold]
    """
    with speaking(as_json=as_json, verbose=verbose) as output:
        arguments.check_out_folder(out)
        arguments.check_share("--share", share)
        output.record(folder=out, by=by.value, share=share, seed=seed)
        if letor:
            _split_labels(output, data, out, share, by, seed)
        else:
            _split_clicks(output, reading, data, out, share, by, seed)


def _split_clicks(
    output: Output, reading: arguments.LogOptions, data: Path, out: Path, share: float,
    by: SplitBy, seed: int,
) -> None:  # fmt: skip
    from untilt.data.seen import overlap_with, seen_in
    from untilt.data.write_log import write_parts

    log = reading.read(output, data, collapse=by is not SplitBy.TIME)
    if by is SplitBy.TIME and log.time is None:
        raise OptionError(
            f"--by time needs to know when sessions were: {data} has no column timestamp. Name it "
            "with --column timestamp=YOUR_COLUMN, or split by query."
        )
    train, test = log.split(share, by=by.value, seed=seed)
    parts = {out / "train.parquet": train, out / "test.parquet": test}
    for path, part in parts.items():
        if part.n_lists == 0:
            raise OptionError(
                f"{path.name} would hold no session: the log has {log.n_queries:,} queries and "
                f"{log.n_sessions:,} sessions. Change --share or --by."
            )
    documents = None if reading.documents is None else out / "documents.parquet"
    # Features inside the log stand in the rows: what a part does not show is shown by the other.
    write_parts(log, parts, documents=documents, drop_unshown=documents is None)
    rows = {
        path: {
            "queries": len(seen_in(part)),
            "sessions": part.n_sessions,
            "impressions": part.n_impressions,
        }
        for path, part in parts.items()
    }
    _report(output, rows, overlap_with(test, seen_in(train)).trained, documents)


def _split_labels(
    output: Output, data: Path, out: Path, share: float, by: SplitBy, seed: int
) -> None:
    from untilt.data.letor.read_letor import read_letor
    from untilt.data.letor.write_letor import write_letor

    if by is not SplitBy.QUERY:
        raise OptionError(f"judged lists have no sessions: --letor is split by query, not {by}.")
    train, test = read_letor(data).split(share, seed=seed)
    parts = {out / "train.txt": train, out / "test.txt": test}
    for path, part in parts.items():
        write_letor(part, path)
    rows = {
        path: {"queries": part.n_queries, "documents": len(part)} for path, part in parts.items()
    }
    _report(output, rows, 0, None)


def _report(
    out: Output, parts: dict[Path, dict[str, int]], shared: int, documents: Path | None
) -> None:
    out.record(
        parts={path.stem: {"file": path, **sizes} for path, sizes in parts.items()},
        queries_in_both=shared,
        documents=documents,
    )
    out.heading("Split")
    columns = list(next(iter(parts.values())))
    rows = [(path.name, *(f"{each:,}" for each in sizes.values())) for path, sizes in parts.items()]
    out.table(("file", *columns), rows)
    out.say(f"Queries in both parts: {shared:,}")
    first, second = parts
    if documents is not None:
        out.path("Documents of both", documents)
    out.path("Train on", first)
    out.path("Evaluate on", second)
