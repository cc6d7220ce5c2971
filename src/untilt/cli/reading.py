"""How commands read a click log: one set of options, one place that calls the reader."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from untilt._core.progress import progress
from untilt.cli.console import Output
from untilt.errors import BadRowsError, ColumnError, OptionError

if TYPE_CHECKING:
    from untilt.logs.clicklog import ClickLog


class OnBad(StrEnum):
    """What to do with rows that break the rules of a log."""

    RAISE = "raise"
    DROP = "drop"


LogPath = Annotated[
    Path,
    typer.Argument(
        metavar="LOG", help="The click log: a Parquet file or folder, a CSV, a DuckDB database."
    ),
]
DocumentsPath = Annotated[
    Path | None,
    typer.Option(
        "--documents",
        metavar="TABLE",
        help="A table with the features of each document: query_id, doc_id, then numbers.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=COLUMN",
        help="Where a column has another name, as in query_id=srch_id. May be repeated.",
    ),
]
Label = Annotated[
    str, typer.Option(metavar="NAME", help="The feedback to look at, such as a dwell time.")
]
Features = Annotated[
    str | None,
    typer.Option(metavar="PATTERN", help="Feature columns inside the log, as in 'f_*'."),
]
Missing = Annotated[
    float | None,
    typer.Option(metavar="VALUE", help="What a missing feature counts as; else it is a bad row."),
]
OnBadRows = Annotated[
    OnBad, typer.Option("--on-bad", help="Refuse a log with bad rows, or drop and count them.")
]


def read_click_log(
    out: Output,
    path: Path,
    *,
    documents: Path | None,
    columns: Sequence[str] | None,
    label: str,
    features: str | None,
    missing: float | None,
    on_bad: OnBad,
    collapse: bool = True,
    to_rank: bool = False,
) -> "ClickLog":
    """Read the log; say what was dropped. `to_rank`: a ranker will need its features."""
    from untilt.logs.read import read_log_report

    mapping = parse_columns(columns)
    with hints_for_commands(), progress(f"reading {path.name}"):
        log, report = read_log_report(
            path,
            documents=documents,
            columns=mapping,
            label=label,
            features=features,
            missing=missing,
            on_bad=on_bad.value,
            collapse=collapse,
        )
    _check_content(log, path, to_rank=to_rank)
    out.detail(f"read {log!r}")
    out.record(log=path, rows=report.n_rows, rows_dropped=report.n_dropped)
    out.say(str(report) if report.bad else str(path))
    return log


def _check_content(log: "ClickLog", path: Path, *, to_rank: bool) -> None:
    """What every command needs of a log; the library would say it later, each part in its words."""
    if log.n_sessions == 0:
        raise OptionError(f"{path} holds no session: there is nothing to learn from.")
    if to_rank and log.n_features == 0:
        raise OptionError(
            f"{path} has no features, so no ranker can score its documents. Give them with "
            "--documents TABLE, or name the feature columns of the log: --features 'f_*'."
        )


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


@contextmanager
def hints_for_commands() -> Iterator[None]:
    """The reader's messages name Python arguments; say what they are called here."""
    try:
        yield
    except ColumnError as error:
        raise ColumnError(f"{error} On the command line: --column query_id=YOUR_COLUMN.") from error
    except BadRowsError as error:
        raise BadRowsError(f"{error} On the command line: --on-bad drop.") from error
