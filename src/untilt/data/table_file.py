"""Tables of arrays written as Parquet or CSV, piece by piece, by DuckDB.

Pieces go into a table of DuckDB, which spills to disk where they do not fit, and from there into
the file in their order. Only one piece at a time is held as arrays.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core import memory
from untilt._core.arrays import AnyArray
from untilt._core.paths import is_utf8
from untilt.data.read.database import (
    Database,
    is_plain,
    literal,
    local,
    open_database,
    quoted,
)
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
