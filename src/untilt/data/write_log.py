"""Writing click logs so that `read_log` gives them back, and other tables of arrays."""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core import memory, ragged
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.files import replacing
from untilt._core.paths import is_utf8
from untilt._core.progress import progress
from untilt.data.clicklog import PROPENSITY, ClickLog
from untilt.data.layout import Grid, Slots
from untilt.data.read.columns import CELL, KEYS, PERSON, REQUIRED, VERSION, optional_of
from untilt.data.read.database import Database, is_plain, literal, local, open_database, quoted
from untilt.data.read.files import PARQUET
from untilt.errors import BadRowsError, MemoryLimitError, OptionError

PathLike = str | os.PathLike[str]
Columns = Mapping[str, AnyArray]

CSV_ENDINGS = (".csv", ".csv.gz")
ENDINGS = (*PARQUET.endings, *CSV_ENDINGS)
# Values per piece and Parquet row group: a few tens of MB, whatever the number of columns.
PIECE = 1 << 22
_MOST_ROWS, _FEWEST_ROWS = 122_880, 2_048  # of a row group, by DuckDB's own customs

_MOST_MEMORY, _LEAST_MEMORY = 1 << 30, 64 << 20

_TYPES = {
    "O": "VARCHAR", "U": "VARCHAR", "b": "BOOLEAN", "i1": "TINYINT", "i2": "SMALLINT",
    "i4": "INTEGER", "i8": "BIGINT", "u1": "UTINYINT", "u2": "USMALLINT", "u4": "UINTEGER",
    "u8": "UBIGINT", "f4": "FLOAT", "f8": "DOUBLE", "D": "DATE", "s": "TIMESTAMP_S",
    "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS",
}  # fmt: skip


def write_log(
    log: ClickLog, path: PathLike, *, documents: PathLike | None = None, drop_unshown: bool = False
) -> None:
    """Write a log with one row per impression, as Parquet or CSV by the ending of the name.

    Lists get the session ids 1, 2, ...; lists that stand for several sessions have their number in
    the column `count`, so a collapsed log stays small. Features stand in the rows of the log
    (`read_log(path, features="*")` finds them) or, with `documents`, in a second file with one row
    per (query, document) pair; only there can documents stand that no list shows. Documents with
    several versions then have a column `version` in both files, to be read with
    columns={"version": "version"}. Files appear whole or not at all, written piece by piece.

    `read_log` with the same names of labels and context gives an equal log: Parquet exactly, CSV
    but for text that looks like numbers (ids: pass text_ids=True) and times finer than a
    microsecond. The names of rankers that made no list are not kept, nor are queries without any
    document.

    Parameters
    ----------
    path : ends in .parquet, .csv or .csv.gz
    documents : the same, for the documents and their features
    drop_unshown : without `documents`, leave out documents that no list shows; an error otherwise
    """
    _check_log(log, path, documents, drop_unshown=drop_unshown)
    inline, versions = documents is None, log.item is not None
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        if documents is not None:
            # Renamed before the log, which must never stand there without its documents.
            second = stack.enter_context(replacing(documents))
            write_columns(second, documents, _documents(log))
        with progress("writing the log"):
            pieces = _impressions(log, with_features=inline, with_version=versions and not inline)
            write_columns(temporary, path, pieces)


def _check_log(
    log: ClickLog, path: PathLike, documents: PathLike | None, *, drop_unshown: bool
) -> None:
    check_ending(path)
    labels = [log.label_name, *log.extra_labels, *log.context]
    features = [] if documents is None else list(log.feature_names)
    if documents is None:
        labels += log.feature_names
    else:
        check_ending(documents)
        if os.path.abspath(os.fspath(documents)) == os.path.abspath(os.fspath(path)):
            raise OptionError(f"the log and its documents need two files. Got {path!r} for both.")
    version = [] if documents is None or log.item is None else [VERSION]
    if not isinstance(log.layout, Grid | Slots | None):
        raise OptionError(
            "the positions of this log are numbered by context, for a bias with a curve for each. "
            "Write the log that it was made of."
        )
    optional = optional_of(log.context if log.person is None else ())
    cell = CELL if isinstance(log.layout, Grid) else ()
    taken = [each for each in optional if each != PROPENSITY or log.propensity is None]
    _check_names([*REQUIRED, *cell, *taken, *version, *labels])
    _check_names([*KEYS, *version, *features])
    if np.any(ragged.lengths(log.indptr) == 0):
        raise BadRowsError(
            "a list that shows nothing has no impression to write. Leave such lists out: "
            "log.take(np.flatnonzero(np.diff(log.indptr)))."
        )
    shown = np.bincount(log.document, minlength=log.n_documents) > 0
    if documents is None and not drop_unshown and not shown.all():
        raise OptionError(
            f"{np.count_nonzero(~shown):,} documents are shown by no list, and impressions cannot "
            "hold them. Write them to a second file with ⟦documents='documents.parquet'⟧, or leave "
            "them out with drop_unshown=True."
        )


def _check_names(names: Sequence[str]) -> None:
    """Names that differ in case alone are one name to SQL."""
    seen: set[str] = set()
    for name in names:
        if not name or name.lower() in seen:
            raise OptionError(
                f"columns need names that differ, not in case alone: {', '.join(map(repr, names))} "
                f"holds {name!r} twice or is without a name. Rename labels or features, or write "
                f"features to a separate file with documents=."
            )
        seen.add(name.lower())


def _versions(log: ClickLog) -> IntArray:
    """(documents,) the number of each among the versions of its document, from 1."""
    if log.item is None:
        return np.ones(log.n_documents, dtype=np.int64)
    starts = np.flatnonzero(np.diff(log.item, prepend=-1))
    return np.arange(1, log.n_documents + 1) - starts[log.item]


def _places(log: ClickLog) -> dict[str, IntArray]:
    """Where the rows stand: their position, or row and column of a grid."""
    if not isinstance(log.layout, Grid):
        return {"position": log.position}
    index = log.position - 1
    return {"row": log.layout.row[index], "column": log.layout.column[index]}


def _impressions(log: ClickLog, *, with_features: bool, with_version: bool) -> Iterator[Columns]:
    """The pieces of the log, the first one empty; a list is never cut."""
    labels = {log.label_name: log.label, **log.extra_labels}
    whole = {name for name, column in labels.items() if _is_whole(column)}
    query_id, doc_id = text_ids(log.query_id), text_ids(log.doc_id)
    rankers = np.array(log.ranker_names, dtype=object)
    version = _versions(log) if with_version else np.empty(0)
    contexts = {name: text_ids(column) for name, column in log.context.items()}
    places = _places(log)

    def piece(lists: slice) -> Columns:
        rows = slice(int(log.indptr[lists.start]), int(log.indptr[lists.stop]))
        owner = lists.start + np.repeat(
            np.arange(lists.stop - lists.start), np.diff(log.indptr[lists.start : lists.stop + 1])
        )
        columns: dict[str, AnyArray] = {
            "query_id": query_id[log.query[owner]],
            "session_id": owner + 1,
            "doc_id": doc_id[log.document[rows]],
            **{name: each[rows] for name, each in places.items()},
        }
        if with_version:
            columns[VERSION] = version[log.document[rows]]
        for name, column in labels.items():
            columns[name] = column[rows].astype(np.int64) if name in whole else column[rows]
        for name, column in contexts.items():
            columns[name] = column[owner]
        if log.ranker is not None:
            columns["ranker"] = rankers[log.ranker[owner]]
        if log.time is not None:
            columns["timestamp"] = log.time[owner]
        if log.person is not None:
            columns[PERSON] = log.person[owner]
        if np.any(log.count > 1):
            columns["count"] = log.count[owner]
        if with_features and log.features is not None:
            columns |= _feature_columns(log, log.features[log.document[rows]])
        return columns

    width = 8 + (log.n_features if with_features else 0)
    return map(piece, chain([slice(0, 0)], _slices(log.indptr, width)))


def _documents(log: ClickLog) -> Iterator[Columns]:
    query_id, doc_id = text_ids(log.query_id), text_ids(log.doc_id)
    version = np.empty(0) if log.item is None else _versions(log)

    def piece(rows: slice) -> Columns:
        columns = {"query_id": query_id[log.doc_query[rows]], "doc_id": doc_id[rows]}
        if log.item is not None:
            columns[VERSION] = version[rows]
        if log.features is not None:
            columns |= _feature_columns(log, log.features[rows])
        return columns

    places = np.arange(log.n_documents + 1)
    return map(piece, chain([slice(0, 0)], _slices(places, 2 + log.n_features)))


def _feature_columns(log: ClickLog, features: FeatureArray) -> dict[str, AnyArray]:
    return {name: features[:, j] for j, name in enumerate(log.feature_names)}


def _slices(indptr: IntArray, width: int) -> Iterator[slice]:
    """Slices of lists with about `PIECE` values each, at least one list."""
    start, last = 0, len(indptr) - 1
    while start < last:
        until = indptr[start] + max(1, PIECE // width)
        stop = max(start + 1, int(np.searchsorted(indptr, until, side="right")) - 1)
        yield slice(start, min(stop, last))
        start = stop


def _is_whole(column: FloatArray) -> bool:
    return bool(np.all((column == np.floor(column)) & (column < 2**53)))


# Tables of arrays written as Parquet or CSV, piece by piece, by DuckDB.
#
# Pieces go into a table of DuckDB, which spills to disk where they do not fit, and from there into
# the file in their order. Only one piece at a time is held as arrays.


def check_ending(path: PathLike) -> None:
    """Raise unless the name says what to write."""
    if not os.fspath(path).lower().endswith(ENDINGS):
        raise OptionError(
            f"the name must end in {', '.join(ENDINGS)}. Got {os.fspath(path)!r} instead."
        )


def write_columns(temporary: Path, path: PathLike, pieces: Iterable[Columns]) -> None:
    """Write all pieces to `temporary`, in the format that `path` asks for.

    The first piece says the names and types, and may be empty. An array of objects holds text, with
    None for a gap; NaN is a gap too.
    """
    with (
        _explained(),
        open_database(
            memory_limit=_memory(),
            temp_directory=None,
            threads=None,
            files=[str(temporary)],
            keep_order=True,
        ) as database,
    ):
        types: dict[str, str] = {}
        for piece in pieces:
            if not types:
                types = {name: _sql_type(column) for name, column in piece.items()}
                columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
                database.run(f"CREATE TEMP TABLE written ({columns})")
            _insert(database, piece)
        _copy(database, temporary, os.fspath(path).lower(), types)


def _memory() -> int:
    """What the table may take before it spills: half of what there is, and no more than 1 GB."""
    room = memory.room()
    return _MOST_MEMORY if room is None else min(_MOST_MEMORY, max(_LEAST_MEMORY, room // 2))


def text_ids(ids: AnyArray) -> AnyArray:
    """The ids as they are; raises where one is no valid text."""
    if ids.dtype == object:
        for each in ids:
            if not is_utf8(each):
                raise BadRowsError(
                    f"an id is no valid text: {each!r} holds half of a character pair. Rename it."
                )
    return ids


def _sql_type(column: AnyArray) -> str:
    kind, size = column.dtype.kind, column.dtype.itemsize
    if kind == "M":
        return _TYPES[np.datetime_data(column.dtype)[0]]
    return _TYPES[kind if kind in "OUb" else f"{kind}{size}"]


def _insert(database: Database, piece: Columns) -> None:
    given = {f"c{j}": _as_taken(column) for j, column in enumerate(piece.values())}
    if not len(next(iter(given.values()), ())):
        return
    database.connection.register("piece", given)
    database.run("INSERT INTO written SELECT * FROM piece")
    database.connection.unregister("piece")


def _as_taken(column: AnyArray) -> AnyArray:
    """The column as DuckDB takes it: in one stretch, text as objects, days as seconds."""
    if column.dtype.kind == "U":
        return column.astype(object)
    if column.dtype.kind == "M" and np.datetime_data(column.dtype)[0] == "D":
        return column.astype("datetime64[s]")
    return np.ascontiguousarray(column)


def _copy(database: Database, temporary: Path, name: str, types: Mapping[str, str]) -> None:
    written = temporary if is_plain(str(temporary)) else database.scratch / "written"
    if name.endswith(PARQUET.endings):
        rows = max(_FEWEST_ROWS, min(_MOST_ROWS, PIECE // max(len(types), 1)))
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {rows}"
    else:
        # Text stands in quotes, whatever it looks like: an empty one is no gap, and 007 no number.
        texts = ", ".join(quoted(column) for column, kind in types.items() if kind == "VARCHAR")
        options = "FORMAT csv, HEADER" + (f", FORCE_QUOTE ({texts})" if texts else "")
        options += f", COMPRESSION {'gzip' if name.endswith('.gz') else 'none'}"
    database.run(f"COPY written TO {literal(local(written))} ({options}, USE_TMP_FILE false)")
    if written != temporary:
        shutil.copyfile(written, temporary)


@contextmanager
def _explained() -> Iterator[None]:
    """What DuckDB says of a disk as Python says it, so that the caller tells what to do."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise MemoryLimitError(f"the table did not fit while it was written: {error}") from error
    except duckdb.IOException as error:
        full = "No space left" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error


def column_of(values: Iterable[Any]) -> AnyArray:
    """Python's values as a column: text, truth values, or numbers with NaN for a gap."""
    found = list(values)
    known = [value for value in found if value is not None]
    if known and all(isinstance(value, str) for value in known):
        return np.array(found, dtype=object)
    if len(known) == len(found) and known:
        return np.array(found)
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)
