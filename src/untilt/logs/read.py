"""Reading click logs from files, tables and frames of any size."""

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from untilt.logs.clicklog import ClickLog
from untilt.logs.duck.columns import Features
from untilt.logs.duck.reader import Request, read
from untilt.logs.read_report import BadRows, DroppedRowsWarning, ReadReport

__all__ = [
    "BadRows",
    "DroppedRowsWarning",
    "ReadOptions",
    "ReadReport",
    "read_log",
    "read_log_report",
]


class ReadOptions(TypedDict, total=False):
    """The options of `read_log`."""

    documents: Any
    columns: Mapping[str, str | None] | None
    label: str
    labels: Sequence[str]
    features: Features
    missing: float | None
    text_ids: bool
    collapse: bool
    on_bad: Literal["raise", "drop"]
    memory_limit: str | int | None
    temp_directory: str | os.PathLike[str] | None
    threads: int | None


def read_log(
    source: Any,
    *,
    documents: Any = None,
    columns: Mapping[str, str | None] | None = None,
    label: str = "click",
    labels: Sequence[str] = (),
    features: Features = None,
    missing: float | None = None,
    text_ids: bool = False,
    collapse: bool = True,
    on_bad: Literal["raise", "drop"] = "raise",
    memory_limit: str | int | None = None,
    temp_directory: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> ClickLog:
    """Read a click log with one row per impression.

    A row has `query_id`, `session_id`, `doc_id`, `position` (from 1) and `click`, and may have
    `ranker` (who made the list), `timestamp` and `count` (sessions that the list stands for). The
    rows of one session and one query are one list; their order means nothing. docs/log-format.md
    tells all of it.

    DuckDB does the work and spills to disk, so the log may be larger than memory. Sessions of a
    query that were alike in all they showed and all that people did become one list with a count;
    this is exact. The result does not depend on the order of rows or the number of threads.

    Parameters
    ----------
    source : a path to Parquet, CSV (also .gz) or a DuckDB database, a folder or pattern of files, a
        list of paths, (database path, table name), a DuckDB relation, or a pyarrow, Polars or
        pandas table
    documents : a table (any kind of source) with one row per (query_id, doc_id); its other columns
        of numbers are the features. Documents that no list shows stay as unshown candidates
    columns : our names to yours, such as {"query_id": "srch_id", "click": "click_bool"}; None in
        place of a name leaves out an optional column
    label, labels : the feedback column that becomes `log.label`, and further ones that become
        `log.extra_labels`; numbers >= 0 or true/false
    features : columns that are features: names, a pattern such as "f_*", or a function of the name;
        in `documents` if given (there all by default), else in the log itself (there none)
    missing : the value for features that are NULL or NaN; without it they are bad rows
    text_ids : read whole numbers as ids of text
    collapse : False keeps every session apart, with its time
    on_bad : "raise" refuses a log with bad rows and names them; "drop" leaves them out with a
        `DroppedRowsWarning` that counts them (`read_log_report` returns the counts instead)
    memory_limit : what DuckDB may use, in bytes or as text ("4GB"); half of the memory by default
    temp_directory : where to spill; the system's temporary folder by default
    threads : at most so many; all cores by default

    Examples
    --------
    >>> log = read_log("clicks.parquet", documents="documents.parquet")    # doctest: +SKIP
    """
    log, report = read_log_report(
        source,
        documents=documents,
        columns=columns,
        label=label,
        labels=labels,
        features=features,
        missing=missing,
        text_ids=text_ids,
        collapse=collapse,
        on_bad=on_bad,
        memory_limit=memory_limit,
        temp_directory=temp_directory,
        threads=threads,
    )
    if report.bad:
        warnings.warn(str(report), DroppedRowsWarning, stacklevel=2)
    return log


def read_log_report(source: Any, **options: Unpack[ReadOptions]) -> tuple[ClickLog, ReadReport]:
    """Like `read_log`, with a report of what was dropped and why in place of a warning."""
    return read(Request(source, **options))
