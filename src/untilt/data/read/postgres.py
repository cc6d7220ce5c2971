"""A table of a PostgreSQL server, by ADBC: rows come as Arrow, piece by piece.

Nothing is written: the transaction is read-only, whatever a view or a function on the server does.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from untilt._core.addresses import Address
from untilt.data.read.database import quoted
from untilt.errors import FileFormatError, OptionError, UntiltError

if TYPE_CHECKING:
    import pyarrow as pa

# Types that arrive as what they are. All others arrive as text; numbers without bounds (numeric)
# do so where they are ids, which must stay exact, and else as floating-point numbers.
_AS_THEY_ARE = {
    "smallint", "integer", "bigint", "real", "double precision", "boolean", "text",
    "character varying", "date", "timestamp without time zone", "timestamp with time zone",
}  # fmt: skip
NUMBERS = {"smallint", "integer", "bigint", "real", "double precision", "numeric"}
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


@contextmanager
def postgres_opened(address: Address) -> Iterator[Any]:
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


def postgres_tables(cursor: Any) -> dict[str, tuple[str, int]]:
    """Tables and views by the name to ask for: how to write each in SQL, and its number."""
    cursor.execute(_TABLES_SQL)
    return {
        (row["name"] if row["schema"] == "public" else f"{row['schema']}.{row['name']}"): (
            f"{quoted(row['schema'])}.{quoted(row['name'])}",
            row["oid"],
        )
        for row in cursor.fetch_arrow_table().to_pylist()
    }


def postgres_columns(cursor: Any, oid: int) -> dict[str, str]:
    """Columns of a table and their types."""
    cursor.execute(_COLUMNS_SQL.format(oid=int(oid)))
    return {row["name"]: row["type"] for row in cursor.fetch_arrow_table().to_pylist()}


def postgres_rows(
    cursor: Any, table: str, types: dict[str, str], columns: Sequence[str], ids: frozenset[str]
) -> "pa.RecordBatchReader":
    """Some columns of all rows, as a stream."""
    cursor.execute(postgres_select(table, types, columns, ids))
    return cursor.fetch_record_batch()


def postgres_select(
    table: str, types: dict[str, str], columns: Sequence[str], ids: frozenset[str]
) -> str:
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
