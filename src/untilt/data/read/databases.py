"""Tables of DuckDB and SQLite files.

A file may come from a stranger. SQLite's are read by Python's own SQLite, opened read-only: no
statement but SELECT over one table is allowed, views and virtual tables are not read, functions
that reach outside are off, and values are bounded in size. Nothing is written beside a file: not
even the index of a write-ahead log.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from untilt._core.paths import printable
from untilt.data.read.database import Database, in_short, link, literal, quoted, translated_errors
from untilt.data.read.files import Files
from untilt.data.read.sources import Source, chosen_table, materialised, viewed
from untilt.errors import FileFormatError, OptionError

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 16
_LONGEST = 1 << 24  # bytes of a value
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # begins the journal of an unfinished change
_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_TRANSACTION,
}


def open_duckdb(database: Database, files: Files, name: str) -> Source:
    """A table or view of a DuckDB file."""
    import duckdb

    what, qualified = _duckdb_table(database, files, alias=f"{name}_database")
    try:
        with translated_errors(what):
            database.run(f"CREATE TEMP VIEW {name} AS SELECT * FROM {qualified}")
            return viewed(database, what, name)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise FileFormatError(
            f"{what} is a view that cannot be read from its file alone: {in_short(error)}. Write "
            "its rows to a table: CREATE TABLE clicks AS SELECT * FROM the_view."
        ) from error


def _duckdb_table(database: Database, files: Files, *, alias: str) -> tuple[str, str]:
    """Attach a database file; what to call its table, and the full name of it in SQL."""
    (file,) = files.names
    path = database.path(file)
    with translated_errors(files.what):
        database.run(f"ATTACH {literal(path)} AS {alias} (READ_ONLY, TYPE duckdb)")
        tables = database.rows(
            f"SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '{alias}' "
            f"UNION ALL SELECT schema_name, view_name FROM duckdb_views() "
            f"WHERE database_name = '{alias}' AND NOT internal ORDER BY ALL"
        )
    names = {
        name if schema == "main" else f"{schema}.{name}": (schema, name) for schema, name in tables
    }
    chosen = chosen_table(file, files.table, names)
    schema, name = names[chosen]
    return f"{files.what}, table {chosen}", f"{alias}.{quoted(schema)}.{quoted(name)}"


def open_sqlite(database: Database, files: Files, name: str) -> Source:
    """A table of a SQLite file."""
    import pyarrow  # noqa: F401  its rows come as Arrow

    (file,) = files.names
    with _explained_sqlite(files.what), _sqlite_opened(file, database.scratch) as connection:
        tables = _sqlite_tables(connection, files.what)
        table = chosen_table(file, files.table, tables)
        names = _sqlite_columns(connection, table)
    what = f"{files.what}, table {table}"

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        with (
            _explained_sqlite(what),
            translated_errors(what),
            _sqlite_opened(file, database.scratch) as connection,
        ):
            return materialised(database, name, _sqlite_rows(connection, table, columns, ids))

    return Source(what, names, load)


@contextmanager
def _explained_sqlite(what: str) -> Iterator[None]:
    """SQLite's errors about `what` as ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{what} cannot be read: {error}. The file may be damaged or in use, or its ending may "
            "be wrong."
        ) from error


@contextmanager
def _sqlite_opened(file: str, scratch: Path) -> Iterator[sqlite3.Connection]:
    """The file, read-only, as it was at one moment."""
    uri = _address(file, scratch)
    with closing(
        sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    ) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN")
        yield connection


def _address(file: str, scratch: Path) -> str:
    """How SQLite opens a file such that it writes nothing beside it and sees its last changes.

    A database with a write-ahead log needs an index of the log, a file of its own: it gets a second
    name in our folder. A journal is there while a change is under way, or after a crash: only a
    writer can undo the half of it that is in the file.
    """
    if _begins(file + "-journal", _JOURNAL):
        raise FileFormatError(
            f"{printable(file)} has an unfinished change in {printable(file)}-journal. Wait until "
            "it is written or, after a crash, repair the file: open it once with sqlite3."
        )
    if not (os.path.isfile(file + "-wal") and os.path.getsize(file + "-wal")):
        with open(file, "rb") as content:
            has_log = content.read(20)[18:] != b"\1\1"
        return f"file:{quote(os.fsencode(os.path.abspath(file)))}?mode=ro" + (
            "&immutable=1" if has_log else ""
        )
    second = scratch / "sqlite"
    second.mkdir(exist_ok=True)
    name = str(second / f"{os.stat(file).st_ino}.sqlite")
    for ending in ("", "-wal"):
        if not os.path.exists(name + ending):
            link(file + ending, name + ending)
    return f"file:{quote(name)}?mode=ro"


def _begins(file: str, magic: bytes) -> bool:
    try:
        with open(file, "rb") as content:
            return content.read(len(magic)) == magic
    except OSError:
        return False


def _sqlite_tables(connection: sqlite3.Connection, what: str) -> list[str]:
    """The tables that can be read. From here on nothing but SELECT is allowed."""
    found = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name"
    ).fetchall()
    virtual = [name for kind, name, sql in found if kind == "table" and _is_virtual(sql)]
    views = [name for kind, name, _ in found if kind == "view"]
    tables = [name for kind, name, _ in found if kind == "table" and name not in virtual]
    if not tables and (views or virtual):
        raise OptionError(
            f"{what} holds only views and virtual tables ({', '.join([*views, *virtual][:5])}), "
            "which are not read. Write the rows to a table: CREATE TABLE clicks AS SELECT * FROM "
            "the_view."
        )
    return tables


def _is_virtual(sql: object) -> bool:
    return not isinstance(sql, str) or sql.upper().split()[1:2] != ["TABLE"]


def _sqlite_columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """The names of its columns."""
    _allow_reading_alone(connection)
    cursor = connection.execute(f"SELECT * FROM main.{quoted(table)} LIMIT 0")
    return tuple(name for name, *_ in cursor.description)


def _sqlite_rows(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], ids: frozenset[str]
) -> "pa.RecordBatchReader":
    """Some columns of all rows.

    A column of SQLite may hold anything in any row, so all values are looked at first: whole
    numbers, numbers, or else text.
    """
    import pyarrow as pa

    _allow_reading_alone(connection)
    types = _types(connection, table, columns, ids)
    schema = pa.schema(list(zip(columns, (kind for _, kind in types), strict=True)))
    chosen = ", ".join(
        sql.format(quoted(name)) for name, (sql, _) in zip(columns, types, strict=True)
    )

    def pieces() -> Iterator["pa.RecordBatch"]:
        cursor = connection.execute(f"SELECT {chosen} FROM main.{quoted(table)}")
        while rows := cursor.fetchmany(_ROWS):
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, pieces())


def _types(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], ids: frozenset[str]
) -> list[tuple[str, Any]]:
    """For each column an expression over it, and the type of what that gives."""
    import pyarrow as pa

    kinds = ("real", "text", "blob")
    asked = [f"max(typeof({quoted(name)}) = '{kind}')" for name in columns for kind in kinds]
    exact = f"BETWEEN {-(2**53)} AND {2**53}"
    wide = [
        f"max(typeof({name}) = 'integer' AND {name} NOT {exact})" for name in map(quoted, columns)
    ]
    found = []
    for start in range(0, len(columns), 200):  # SQLite takes 2,000 columns of a result
        some = slice(start, start + 200)
        sql = ", ".join([*asked[3 * start : 3 * some.stop], *wide[some]])
        row = connection.execute(f"SELECT {sql} FROM main.{quoted(table)}").fetchone()
        n = len(columns[some])
        found += [(*row[3 * i : 3 * i + 3], row[3 * n + i]) for i in range(n)]
    types: list[tuple[str, Any]] = []
    for name, (real, text, blob, is_wide) in zip(columns, found, strict=True):
        if blob:
            types.append(("CAST({} AS BLOB)", pa.binary()))
        elif text or (real and is_wide and name in ids):  # as a float it would be another id
            types.append(("CAST({} AS TEXT)", pa.string()))
        else:
            types.append(("CAST({} AS REAL)", pa.float64()) if real else ("{}", pa.int64()))
    return types


def _allow_reading_alone(connection: sqlite3.Connection) -> None:
    """Whatever the file makes of a SELECT: no other file, no setting, no recursion."""
    connection.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
    )
