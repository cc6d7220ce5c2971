"""`untilt collapse`: a log with equal sessions counted, to keep or send in place of the whole."""

from dataclasses import dataclass
from pathlib import Path

from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import option, out_option
from untilt.data.read.options import FeatureOptions


@dataclass(frozen=True, kw_only=True)
class CollapseOptions(FeatureOptions, arguments.ColumnOptions):
    """Options of a log whose features, if any, stand in its rows."""


def collapse(
    out: Path = out_option(..., "Where it is written: .parquet, .csv or .csv.gz.", "FILE"),
    log: arguments.LogPath = None,
    context: list[str] | None = option(
        None,
        "A column that keeps sessions apart, such as device. May be repeated.",
        metavar="COLUMN",
    ),
    *,
    reading: CollapseOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:
    """Count equal sessions of a log and write each once, with its number in `count`.

    Every command gives the same answer for the file as for the log, but for what needs the time of
    a session. Columns get the names of untilt; a documents table stays as it is. A log that lives
    in a warehouse is counted there: see `ut.collapse_sql`, docs/scale.md.

    Example: [bold]untilt collapse clicks.parquet --out counted.parquet[/bold]
    """
    from untilt.data.write_log import check_ending, write_log

    arguments.check_out(out)
    check_ending(out)
    found = reading.read(output, export.source(log), context=context or ())
    write_log(found, out)
    rows = int(found.indptr[-1])
    output.record(
        counted=out, sessions=found.n_sessions, lists=found.n_lists, rows=rows,
        impressions=found.n_impressions,
    )  # fmt: skip
    output.say(
        f"\n{found.n_sessions:,} sessions in {found.n_lists:,} distinct lists: {rows:,} rows "
        f"in place of {found.n_impressions:,}."
    )
    output.path("Counted log", str(out))
