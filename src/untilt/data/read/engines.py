"""Tables that live in an engine of the user's: Ibis, Spark, PostgreSQL count sessions themselves.

An engine gives rows as Arrow, and can be asked for the counted log, of which far less travels. None
of the libraries is imported here: whoever has such a table has imported its library.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add, and_
from typing import Any
from uuid import uuid4

from untilt._core.addresses import Address
from untilt._core.progress import progress
from untilt.data.depth import DEEPEST
from untilt.data.read.collapse_sql import COUNT, DIALECTS, Dialect, Key, counted_sql, slots
from untilt.data.read.columns import Layout
from untilt.data.read.database import Database
from untilt.data.read.postgres import NUMBERS, postgres_opened, postgres_select
from untilt.data.read.sources import Source, postgres_found, stream_source
from untilt.data.read.types import MOST_COUNT
from untilt.errors import ColumnError, FileFormatError, OptionError

# Of the rows that may be counted by position; the sessions of the others are not merged.
_SHARE_WITHIN_DEPTH = 0.999
_BATCH = 1 << 17
# Text is compared without regard to case there, by default: two lists could be taken for one.
_CASELESS = ("mysql", "mssql", "singlestoredb")


class Engine(ABC):
    """A table inside an engine.

    Parameters
    ----------
    what : how messages call it
    """

    what: str

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    @abstractmethod
    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""

    @abstractmethod
    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows, as something that hands out an Arrow stream."""

    @abstractmethod
    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has, of 1 to `DEEPEST`."""

    @abstractmethod
    def counted(self, key: Key, depth: int, count: str) -> Any:
        """The rows of the counted log, in the same form as `rows`."""

    @property
    def dialect(self) -> Dialect:
        """How the engine writes SQL; for Ibis it is its business."""
        return DIALECTS["duckdb"]


def collapsed(engine: Engine, layout: Layout) -> tuple[Layout, Any]:
    """The counted log, and the layout to read it by."""
    key = Key.of(layout)
    count = key.count or _free_name(engine.columns)
    with progress("counting sessions where they live"), translated(engine.what):
        depth = depth_for(engine.rows_at(key.position), key.most_depth(engine.dialect))
        rows = engine.counted(key, depth, count)
    return layout.with_count(count), rows


def depth_for(rows_at: dict[float, int], most: int) -> int:
    """The depth that all rows have but one in a thousand; any would give the same log."""
    total, seen = sum(rows_at.values()), 0
    for position in sorted(rows_at):
        seen += rows_at[position]
        if seen >= _SHARE_WITHIN_DEPTH * total:
            return max(1, min(most, int(position)))
    return 1


def counted_at(
    database: Database, address: Address, layout: Layout, name: str
) -> tuple[Layout, Source] | None:
    """The table behind postgresql://..., with equal sessions counted by its server; its layout.

    Columns have the types in which rows would come, so that the log is the same; counted rows come
    piece by piece, as rows do. None where the server cannot compare: positions or counts in text.
    """
    key, dialect = Key.of(layout), DIALECTS["postgres"]
    what, in_sql, types = postgres_found(address)
    if not {types[each] for each in (key.position, key.count) if each} <= NUMBERS:
        return None
    count = key.count or _free_name(tuple(types))
    table = f"({postgres_select(in_sql, types, layout.names, layout.ids)}) AS u_log"

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        with postgres_opened(address) as cursor:
            # Labels are compared as text: with all digits, whatever the server is set to.
            cursor.execute("SET LOCAL extra_float_digits = 1")
            with progress("counting sessions where they live"):
                at = PostgresTable(cursor.connection, table, what).rows_at(key.position)
                depth = depth_for(at, key.most_depth(dialect))
                cursor.execute(counted_sql(table, key, depth, dialect, count))
            rows = stream_source(database, cursor.fetch_record_batch(), name, what)
            return rows.load(columns, ids)

    counted = layout.with_count(count)
    return counted, Source(what, tuple(counted.names), load)


def _free_name(columns: Sequence[str]) -> str:
    """A name for the counts of a log that has none."""
    free = (name for name in (COUNT, "u_count") if name not in columns)
    return next(free, f"u_count_{uuid4().hex[:8]}")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the engine as ours; they have no common class."""
    try:
        yield
    except (OptionError, ColumnError):
        raise
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise FileFormatError(
            f"{what} cannot be read: {first[:600]}. Try the same query in the engine itself."
        ) from error


@dataclass(frozen=True)
class IbisTable(Engine):
    """An Ibis table or expression: one expression, which Ibis writes for its backend."""

    table: Any
    what: str = "the Ibis table"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.table.columns)

    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""
        types = self.table.schema().items()
        return frozenset(name for name, kind in types if kind.is_numeric() or kind.is_boolean())

    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows."""
        return _fetched(self.table.select(*columns))

    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has."""
        at = self.table.filter(self.table[position].between(1, DEEPEST))
        counts = at.group_by(u_position=at[position]).aggregate(u_n=at.count()).to_pyarrow()
        return dict(zip(counts["u_position"].to_pylist(), counts["u_n"].to_pylist(), strict=True))

    def counted(self, key: Key, depth: int, count: str) -> Any:
        """The rows of the counted log."""
        backend = self.table.get_backend().name
        schema = self.table.schema()
        if backend in _CASELESS and any(schema[name].is_string() for name in key.columns):
            raise OptionError(
                f"{backend} compares text without regard to case, so that it would take different "
                "lists for one. Read the table with collapse=False, or from a copy elsewhere."
            )
        return _fetched(counted_table(self.table, key, depth, count))


def _fetched(table: Any) -> Any:
    """The rows of an expression, piece by piece where the backend can."""
    if table.get_backend().name == "duckdb":
        # Ibis 12 asks DuckDB 2 for pieces by a method that it no longer has.
        return table.to_pyarrow()
    return table.to_pyarrow_batches(chunk_size=_BATCH)


def counted_table(table: Any, key: Key, depth: int, count: str) -> Any:
    """`counted_sql` as an Ibis expression."""
    import ibis

    named = [*key.columns, *([] if key.count is None else [key.count])]
    rows = table.select(*named)
    is_whole = rows[key.query].notnull() & rows[key.session].notnull()
    whole = rows.filter(is_whole)
    needed = [whole[column].notnull() for column in key.needed[1:]]
    sums = {"u_n": whole.count()}
    for j, column in enumerate(key.cells):
        for k in slots(depth):
            where = reduce(and_, [whole[key.position] == k, *(needed if j == 0 else [])])
            sums[f"u_{j}_{k}"] = _comparable(whole[column]).max(where=where)
    for j, column in enumerate(key.shared):
        value = _comparable(whole[column])
        sums |= {f"u_low_{j}": value.min(), f"u_high_{j}": value.max(), f"u_n_{j}": value.count()}
    if key.count is not None:
        value = whole[key.count]
        sums |= {"u_count_low": value.min(), "u_count_high": value.max()}
        sums["u_count_n"] = value.count()
    sessions = {"u_query": whole[key.query], "u_session": _comparable(whole[key.session])}
    pivot = whole.group_by(**sessions).aggregate(**sums)
    nothing = ibis.null(pivot["u_session"].type())
    marked = pivot.mutate(
        u_odd=ibis.cases((_is_clean(pivot, key, depth), nothing), else_=pivot["u_session"])
    )
    group = [
        "u_query",
        "u_odd",
        *(f"u_{j}_{k}" for j in range(len(key.cells)) for k in slots(depth)),
    ]
    group += [f"u_low_{j}" for j in range(len(key.shared))]
    total = marked.count() if key.count is None else marked["u_count_low"].sum()
    lists = (
        marked.group_by(group)
        .aggregate(u_smallest=marked["u_session"].min(), u_sessions=total.cast("int64"))
        .select("u_query", "u_odd", "u_smallest", "u_sessions")
    )
    left = rows.mutate(u_session=_comparable(rows[key.session]))
    both = left.join(
        lists, [left[key.query] == lists["u_query"], left["u_session"] == lists["u_smallest"]]
    )
    counts, alone = both["u_sessions"], ibis.literal(1, "int64")
    if key.count is not None:
        theirs = both[key.count]
        summed = counts.cast("float64")
        counts = ibis.cases((both["u_odd"].isnull(), summed), else_=theirs.cast("float64"))
    without = rows.filter(~is_whole)
    if key.count is not None:
        alone = without[key.count].cast("float64")
    return both.select(*key.columns, **{key.count or count: counts}).union(
        without.select(*key.columns, **{key.count or count: alone})
    )


def _with_text_for_uuids(table: Any) -> Any:
    """Ibis has no Arrow form of UUIDs, and not every backend a least one of them."""
    uuids = [name for name, kind in table.schema().items() if kind.is_uuid()]
    return table.mutate(**{name: table[name].cast("string") for name in uuids}) if uuids else table


def _comparable(value: Any) -> Any:
    """A value that every backend has a least and a greatest of."""
    return value.cast("int8") if value.type().is_boolean() else value


def _is_clean(pivot: Any, key: Key, depth: int) -> Any:
    filled = reduce(add, [pivot[f"u_0_{k}"].notnull().ifelse(1, 0) for k in slots(depth)])
    rules = [pivot["u_n"] == filled]
    for j in range(len(key.shared)):
        rules.append(pivot[f"u_low_{j}"] == pivot[f"u_high_{j}"])
        rules.append(pivot[f"u_n_{j}"] == pivot["u_n"])
    if key.count is not None:
        low = pivot["u_count_low"]
        rules += [low == pivot["u_count_high"], pivot["u_count_n"] == pivot["u_n"]]
        rules += [low.between(1, MOST_COUNT), low == low.floor()]
    return reduce(and_, rules)


@dataclass(frozen=True)
class SparkTable(Engine):
    """A Spark DataFrame; the query runs on its cluster, and the counted rows come to the driver."""

    frame: Any
    what: str = "the Spark DataFrame"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.frame.columns)

    @property
    def dialect(self) -> Dialect:
        """Spark's SQL."""
        return DIALECTS["spark"]

    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""
        kinds = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
        return frozenset(
            name for name, kind in self.frame.dtypes if kind in kinds or kind.startswith("decimal")
        )

    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows."""
        names = [DIALECTS["spark"].name(column) for column in columns]
        return _to_arrow(self.frame.selectExpr(*names))

    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has."""
        at = self.dialect.name(position)
        frame = self.frame.where(f"{at} BETWEEN 1 AND {DEEPEST}")
        return {found[0]: found[1] for found in frame.groupBy(at).count().collect()}

    def counted(self, key: Key, depth: int, count: str) -> Any:
        """The rows of the counted log."""
        view = f"untilt_{uuid4().hex}"
        session = self.frame.sparkSession
        self.frame.createOrReplaceTempView(view)
        try:
            return _to_arrow(session.sql(counted_sql(view, key, depth, self.dialect, count)))
        finally:
            session.catalog.dropTempView(view)


def _to_arrow(frame: Any) -> Any:
    """The rows on the driver; before Spark 4 by way of pandas."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    import pyarrow as pa

    return pa.Table.from_pandas(frame.toPandas(), preserve_index=False)


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

    def counted(self, key: Key, depth: int, count: str) -> Any:
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
    while rows := cursor.fetchmany(_BATCH):
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


def postgres_table(source: tuple[Any, Any]) -> PostgresTable:
    """The table behind (connection, name)."""
    connection, table = source
    if not isinstance(table, str):
        raise OptionError(
            f"a table of a server is given as (connection, table name). Got {table!r} as its name."
        )
    if _vendor(connection) != "postgresql":
        raise OptionError(
            f"a connection of {type(connection).__module__} is none to PostgreSQL. Run "
            "ut.collapse_sql(table, depth, dialect) yourself and read its result, or give an Ibis "
            "table."
        )
    return PostgresTable(connection, table, f"the PostgreSQL table {table}")


def engine_of(source: Any) -> Engine | None:
    """The engine in which a source lives; None for files and tables of this process."""
    module, kind = type(source).__module__, type(source).__name__
    family = module.partition(".")[0]
    if family == "ibis" and kind == "Table":
        return IbisTable(_with_text_for_uuids(source))
    if family == "pyspark" and kind == "DataFrame":
        return SparkTable(source.to_spark() if module.startswith("pyspark.pandas") else source)
    if isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "cursor"):
        return postgres_table(source)
    return None


def engine_source(database: Database, engine: Engine, name: str, rows: Any = None) -> Source:
    """The table of an engine as any other source; `rows` where they are here already."""

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated(engine.what):
            found = engine.rows(columns) if rows is None else rows
        return stream_source(database, found, name, engine.what).load(columns, _ids)

    columns = engine.columns if rows is None else tuple(rows.schema.names)
    return Source(engine.what, columns, load)


def _vendor(connection: Any) -> str:
    if type(connection).__module__.partition(".")[0] in ("psycopg", "psycopg2"):
        return "postgresql"
    info: dict[str, Any] = getattr(connection, "adbc_get_info", dict)()
    return str(info.get("vendor_name", "")).lower()
