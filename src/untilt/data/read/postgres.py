"""A table of a PostgreSQL server, which counts sessions itself: by its address, or a connection.

Behind an address rows come by ADBC as Arrow, piece by piece. Nothing is written: the transaction is
read-only, whatever a view or a function on the server does.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from untilt._core.addresses import Address
from untilt._core.progress import progress
from untilt.data.limits import DEEPEST
from untilt.data.read.columns import ColumnRoles
from untilt.data.read.database import Database, quoted, translated_errors
from untilt.data.read.engines import (
    BATCH,
    DIALECTS,
    CollapseColumns,
    Dialect,
    Engine,
    counted_sql,
    depth_for,
    engine_source,
    free_name,
    translated,
)
from untilt.data.read.frames import open_stream
from untilt.data.read.sources import Source, chosen_table, materialised, refuse_alike
from untilt.errors import FileFormatError, OptionError, UntiltError

# Types that arrive as what they are. All others arrive as text; numbers without bounds (numeric)
# do so where they are ids, which must stay exact, and else as floating-point numbers.
_AS_THEY_ARE = {
    "smallint", "integer", "bigint", "real", "double precision", "boolean", "text",
    "character varying", "date", "timestamp without time zone", "timestamp with time zone",
}  # fmt: skip
_NUMBERS = {"smallint", "integer", "bigint", "real", "double precision", "numeric"}
_TABLES_SQL = """
SELECT n.nspname AS schema, c.relname AS name, c.oid::bigint AS oid
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p') AND NOT c.relispartition
AND n.nspname <> 'information_schema' AND left(n.nspname, 3) <> 'pg_' ORDER BY 1, 2
"""
_COLUMNS_SQL = """
SELECT attname AS name, format_type(atttypid, NULL) AS type FROM pg_attribute
WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def open_address(database: Database, address: Address, name: str) -> Source:
    """The table behind postgresql://..."""
    what, in_sql, types = _found(address)
    refuse_alike(what, list(types))

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        with _opened(address) as cursor, translated_errors(what):
            cursor.execute(_select(in_sql, types, columns, ids))
            return materialised(database, name, cursor.fetch_record_batch())

    def counted(layout: ColumnRoles) -> tuple[ColumnRoles, Source] | None:
        """Equal sessions counted by the server; None where it cannot compare: text for numbers.

        Columns have the types in which rows would come, so that the log is the same; counted rows
        come piece by piece, as rows do.
        """
        key, dialect = CollapseColumns.of(layout), DIALECTS["postgres"]
        if not {types[each] for each in (key.position, key.count) if each} <= _NUMBERS:
            return None
        count = key.count or free_name(tuple(types))
        table = f"({_select(in_sql, types, layout.names, layout.ids)}) AS u_log"

        def load(columns: Sequence[str], ids: frozenset[str]) -> str:
            with _opened(address) as cursor:
                # Labels are compared as text: with all digits, whatever the server is set to.
                cursor.execute("SET LOCAL extra_float_digits = 1")
                with progress("counting sessions on the server"):
                    at = PostgresTable(cursor.connection, table, what).rows_at(key.position)
                    depth = depth_for(at, key.most_depth(dialect))
                    cursor.execute(counted_sql(table, key, depth, dialect, count))
                rows = open_stream(database, cursor.fetch_record_batch(), name, what)
                return rows.load(columns, ids)

        with_count = layout.with_count(count)
        return with_count, Source(what, tuple(with_count.names), load)

    return Source(what, tuple(types), load, count=counted)


def _found(address: Address) -> tuple[str, str, dict[str, str]]:
    """What to call the table behind an address, its name in SQL, its columns and their types."""
    with _opened(address) as cursor:
        tables = _tables(cursor)
        table = chosen_table(address.what, address.table, tables)
        in_sql, oid = tables[table]
        cursor.execute(_COLUMNS_SQL.format(oid=int(oid)))
        columns = {row["name"]: row["type"] for row in cursor.fetch_arrow_table().to_pylist()}
        return f"{address.what}, table {table}", in_sql, columns


@contextmanager
def _opened(address: Address) -> Iterator[Any]:
    """A cursor in a read-only transaction; errors of the driver are ours, without the password."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise OptionError(
            f"reading {address.what} needs the ADBC driver of PostgreSQL: pip install "
            "'untilt[postgres]'."
        ) from error
    try:
        with closing(dbapi.connect(address.uris[0])) as connection:
            with closing(connection.cursor()) as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                yield cursor
            connection.rollback()
    except UntiltError:
        raise
    except Exception as error:
        told = " ".join(address.scrubbed(str(error)).split())[:600]
        # Not chained: the driver's error may hold the whole address.
        raise FileFormatError(
            f"{address.what} cannot be read: {told}. Check the address, and the password in "
            "PGPASSWORD or ~/.pgpass."
        ) from None


def _tables(cursor: Any) -> dict[str, tuple[str, int]]:
    """Tables and views by the name to ask for: how to write each in SQL, and its number."""
    cursor.execute(_TABLES_SQL)
    return {
        (row["name"] if row["schema"] == "public" else f"{row['schema']}.{row['name']}"): (
            f"{quoted(row['schema'])}.{quoted(row['name'])}",
            row["oid"],
        )
        for row in cursor.fetch_arrow_table().to_pylist()
    }


def _select(table: str, types: dict[str, str], columns: Sequence[str], ids: frozenset[str]) -> str:
    """The query for some columns of all rows, in types that Arrow has."""
    return f"SELECT {', '.join(_column(c, types[c], c in ids) for c in columns)} FROM {table}"


def _column(name: str, kind: str, is_id: bool) -> str:
    column = quoted(name)
    if kind in ("text", "character varying"):
        # By bytes: there are collations by which two different texts are equal.
        return f'{column} COLLATE "C" AS {column}'
    if kind in _AS_THEY_ARE:
        return column
    cast = "double precision" if kind == "numeric" and not is_id else "text"
    return f"CAST({column} AS {cast}) AS {column}"


def open_connection(database: Database, source: tuple[Any, Any], name: str) -> Source:
    """The table behind (connection, name)."""
    connection, table = source
    if not isinstance(table, str):
        raise OptionError(
            f"a table of a server is given as (connection, table name). Got {table!r} as its name."
        )
    if _vendor(connection) != "postgresql":
        raise OptionError(
            f"a connection of {type(connection).__module__} is no PostgreSQL connection. Run "
            "ut.collapse_sql(table, depth, dialect) yourself and read its result, or give an Ibis "
            "table."
        )
    engine = PostgresTable(connection, table, f"the PostgreSQL table {table}")
    return engine_source(database, engine, name)


def _vendor(connection: Any) -> str:
    if type(connection).__module__.partition(".")[0] in ("psycopg", "psycopg2"):
        return "postgresql"
    info: dict[str, Any] = getattr(connection, "adbc_get_info", dict)()
    return str(info.get("vendor_name", "")).lower()


@dataclass(frozen=True)
class PostgresTable(Engine):
    """A table of a PostgreSQL server, behind an ADBC or psycopg connection."""

    connection: Any
    table: str
    what: str

    @property
    def dialect(self) -> Dialect:
        """PostgreSQL's SQL."""
        return DIALECTS["postgres"]

    @cached_property
    def _head(self) -> Any:
        with translated(self.what):
            return self._fetched(f"SELECT * FROM {self.table} LIMIT 0")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self._head.schema.names)

    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""
        import pyarrow.types as kinds

        tests = (kinds.is_integer, kinds.is_floating, kinds.is_decimal, kinds.is_boolean)
        fields = self._head.schema
        return frozenset(field.name for field in fields if any(is_(field.type) for is_ in tests))

    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows."""
        names = ", ".join(self.dialect.name(column) for column in columns)
        return self._fetched(f"SELECT {names} FROM {self.table}")

    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has."""
        at = self.dialect.name(position)
        counts = self._fetched(
            f"SELECT CAST({at} AS double precision) AS u_position, COUNT(*) AS u_n "
            f"FROM {self.table} WHERE {at} BETWEEN 1 AND {DEEPEST} GROUP BY {at}"
        )
        return dict(zip(counts["u_position"].to_pylist(), counts["u_n"].to_pylist(), strict=True))

    def counted(self, key: CollapseColumns, depth: int, count: str) -> Any:
        """The rows of the counted log."""
        return self._fetched(counted_sql(self.table, key, depth, self.dialect, count))

    def _fetched(self, sql: str) -> Any:
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(sql)
            if hasattr(cursor, "fetch_arrow_table"):
                return _without_numeric(cursor.fetch_arrow_table())
            return _from_cursor(cursor)


# PostgreSQL's own numbers of its types, for cursors that know no Arrow.
_NUMERIC = 1700
_TYPES = {
    16: "bool", 20: "int64", 21: "int16", 23: "int32", 700: "float32", 701: "float64",
    1082: "date32", 1114: "timestamp[us]",
}  # fmt: skip


def _from_cursor(cursor: Any) -> Any:
    """All rows of a cursor, column by column."""
    import pyarrow as pa

    kinds = [(column[0], column[1]) for column in cursor.description]
    columns: list[list[Any]] = [[] for _ in kinds]
    while rows := cursor.fetchmany(BATCH):
        for into, more in zip(columns, zip(*rows, strict=True), strict=True):
            into.extend(more)
    arrays = {}
    for (name, kind), values in zip(kinds, columns, strict=True):
        if kind in _TYPES:
            arrays[name] = pa.array(values, pa.type_for_alias(_TYPES[kind]))
        else:
            texts = pa.array([None if v is None else str(v) for v in values], pa.string())
            arrays[name] = _as_numbers(texts) if kind == _NUMERIC else texts
    return pa.table(arrays)


def _without_numeric(table: Any) -> Any:
    """The table with NUMERIC as numbers: ADBC hands it over as text, with a mark."""
    for j, field in enumerate(table.schema):
        marks = b" ".join((field.metadata or {}).values())
        if b"numeric" in marks or "numeric" in str(field.type):
            column = table.column(j).cast("string")
            table = table.set_column(j, field.name, _as_numbers(column))
    return table


def _as_numbers(texts: Any) -> Any:
    """Whole numbers stay whole, whatever their size; fractions are doubles, as everywhere here."""
    import pyarrow as pa

    with suppress(pa.ArrowInvalid):
        return texts.cast(pa.int64())
    return texts.cast(pa.float64())
