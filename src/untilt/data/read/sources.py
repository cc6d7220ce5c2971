"""A table that can be read: whatever it comes from, it has columns and can be loaded."""

import glob
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from untilt._core.addresses import Address
from untilt._core.optional import explained_import
from untilt.data.read.arrow_files import arrow_batches, arrow_names, arrow_schema_names
from untilt.data.read.csv_files import distinct, load_csv
from untilt.data.read.database import (
    Database,
    in_short,
    literal,
    quoted,
    translated_errors,
)
from untilt.data.read.files import FileKind, Files
from untilt.data.read.json_files import load_json
from untilt.data.read.postgres import (
    postgres_columns,
    postgres_opened,
    postgres_rows,
    postgres_tables,
)
from untilt.data.read.sqlite_files import (
    explained_sqlite,
    sqlite_columns,
    sqlite_opened,
    sqlite_rows,
    sqlite_tables,
)
from untilt.errors import ColumnError, FileFormatError, OptionError, did_you_mean
from untilt.facts import Fact

if TYPE_CHECKING:
    from untilt.data.read.bad_rows import BadRows

# (n, least, most) of columns of whole numbers, as a file states them; it may be wrong
Stated = dict[str, tuple[int, int, int]]

# columns wanted, and which of them hold ids -> the name of a table that can be read many times
Load = Callable[[Sequence[str], frozenset[str]], str]


@dataclass(frozen=True)
class Source:
    """A table that can be read: what to call it in messages, its columns, and how to load it.

    `given` are the names as they stand in the source. DuckDB does not tell Click from CLICK and
    numbers such columns: where two of them are alike, `columns` does not say which was which.
    """

    what: str
    columns: tuple[str, ...]
    load: Load
    given: tuple[str, ...] = ()
    # What was left out on the way to this table, and what else is to be said of it.
    left_out: "tuple[BadRows, ...]" = ()
    notes: tuple[Fact, ...] = ()
    # What it says of its columns without reading them.
    stated: Callable[[], Stated] = dict

    def has(self, name: str) -> bool:
        """Whether there is a column of exactly this name."""
        return name in self.columns

    def named(self, name: str) -> str | None:
        """The column of this name, or the only one that differs in upper and lower case alone."""
        if self.has(name):
            return name
        like = [each for each in self.columns if each.lower() == name.lower()]
        given = [each for each in self.given if each.lower() == name.lower()]
        if len(like) > 1 or len(given) > 1:
            raise ColumnError(
                f"{self.what} has no column {name!r} alone but {_listed(given or like)}, which "
                "differ in upper and lower case only. Rename all but the one that is meant."
            )
        return like[0] if like else None


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))


def open_source(database: Database, source: Any, name: str) -> Source:
    """Find out what kind of thing `source` is, without importing any library it may come from.

    Files are `located` already: the database was opened for them.
    """
    family = type(source).__module__.partition(".")[0].lstrip("_")
    kind = type(source).__name__
    is_class = isinstance(source, type)
    openers: list[tuple[bool, Callable[[Database, Any, str], Source]]] = [
        (isinstance(source, Files), _from_files),
        (isinstance(source, Address), _from_postgres),
        (family == "duckdb" and hasattr(source, "project"), _from_relation),
        (family == "polars" and kind == "LazyFrame", _from_lazy_frame),
        (family in _COLUMNS and kind == "DataFrame", _from_frame),
        (family == "pyarrow", _from_arrow),
        (family == "deltalake" and hasattr(source, "to_pyarrow_dataset"), _from_delta),
        (family == "pyiceberg" and not is_class, _from_iceberg),
        (not is_class and hasattr(source, "fetch_record_batch"), _from_cursor),
        (not is_class and hasattr(source, "__arrow_c_stream__"), stream_source),
    ]
    shown = source.what if isinstance(source, Files | Address) else f"a {family} {kind}"
    for fits, opener in openers:
        if fits:
            with explained_import(f"reading {shown}"):
                return opener(database, source, name)
    raise OptionError(
        "a table can be read from a path (Parquet, CSV, JSON lines, Arrow, DuckDB or SQLite "
        "database), an address (s3://..., postgresql://...), a list of paths, a pair (database, "
        "table name), a DuckDB relation, a pyarrow, Polars or pandas table, a DeltaTable, an "
        "Iceberg table or scan, an ADBC cursor, an Ibis table, a Spark DataFrame, or a pair "
        f"(PostgreSQL connection, table name). Got {kind} instead."
    )


def _from_files(database: Database, files: Files, name: str) -> Source:
    openers = {
        FileKind.PARQUET: _from_parquet,
        FileKind.CSV: _from_text,
        FileKind.JSON: _from_text,
        FileKind.ARROW: _from_arrow_files,
        FileKind.DUCKDB: _from_duckdb,
        FileKind.SQLITE: _from_sqlite,
    }
    return openers[files.kind](database, files, name)


def _from_parquet(database: Database, files: Files, name: str) -> Source:
    paths = [database.path(file) for file in files.names]
    listed = ", ".join(literal(glob.escape(path)) for path in paths)
    with translated_errors(files.what):
        database.run(
            f"CREATE TEMP VIEW {name} AS "
            f"SELECT * FROM read_parquet([{listed}], union_by_name = {len(paths) > 1})"
        )
        source = _view(database, files.what, name, lambda: _parquet_names(database, paths))
        return replace(source, stated=lambda: _stated_by_parquet(database, paths))


def _stated_by_parquet(database: Database, paths: Sequence[str]) -> Stated:
    """From the ends of the files. Nothing of a column that some part says nothing of."""
    listed = ", ".join(literal(glob.escape(path)) for path in paths)
    least, most = (
        f"coalesce(TRY_CAST({each} AS BIGINT), CAST(TRY_CAST({each} AS BOOLEAN) AS BIGINT))"
        for each in ("stats_min_value", "stats_max_value")
    )
    found = database.rows(
        "SELECT path_in_schema, CAST(sum(num_values) AS BIGINT), min(least), max(most) FROM "
        f"(SELECT *, {least} AS least, {most} AS most FROM parquet_metadata([{listed}])) "
        "GROUP BY 1 HAVING count(least) = count(*) AND count(most) = count(*)"
    )
    return {name: (n, low, high) for name, n, low, high in found}


def _parquet_names(database: Database, paths: Sequence[str]) -> tuple[str, ...]:
    """Of each file the names of columns that are alike, as they stand there."""
    names: dict[str, None] = {}
    for path in paths:
        schema = f"parquet_schema({literal(glob.escape(path))})"
        own = [each for (each,) in database.rows(f"SELECT name FROM {schema}")]
        # Click in one file and click in another are one column, as in DuckDB.
        names.update((each, None) for each in own if _count(own, each) > 1)
    return tuple(names)


def _count(names: Sequence[str], name: str) -> int:
    return sum(each.lower() == name.lower() for each in names)


def _from_text(database: Database, files: Files, name: str) -> Source:
    paths = [database.path(file) for file in files.names]
    read = load_csv if files.kind is FileKind.CSV else load_json
    columns, given, load = read(database, paths, name, files.what)
    return Source(files.what, columns, load, given)


def _from_arrow_files(database: Database, files: Files, name: str) -> Source:
    own = [arrow_names(file) for file in files.names]
    for each in own:
        _refuse_alike(files.what, each)
    names = distinct_names(each for names in own for each in names)

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        """A table for every file, and all of them under one name: columns go by name."""
        wanted, parts = {each.lower() for each in columns}, []
        for number, (file, have) in enumerate(zip(files.names, own, strict=True)):
            chosen = [each for each in have if each.lower() in wanted]
            part = f"{name}_{number}"
            with translated_errors(files.what):
                _materialise(database, part, arrow_batches(file, chosen))
            parts.append(f"SELECT * FROM {part}")
        union, listed = " UNION ALL BY NAME ".join(parts), ", ".join(map(quoted, columns))
        with translated_errors(files.what):
            database.run(f"CREATE TEMP VIEW {name} AS SELECT {listed} FROM ({union})")
        return name

    return Source(files.what, names, load)


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names, of those that differ in upper and lower case alone the first."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.lower(), name)
    return tuple(first.values())


def _refuse_alike(what: str, names: Sequence[str]) -> None:
    """Raise where DuckDB could not tell two columns apart."""
    alike = set(names) - set(distinct_names(names))
    if alike or len(set(names)) < len(names):
        raise ColumnError(
            f"{what} has columns whose names differ in upper and lower case only, or not at all: "
            f"{', '.join(names[:40])}. Rename them."
        )


def chosen_table(file: str, table: object, names: Iterable[str]) -> str:
    """The table of a database that is asked for, or its only one."""
    known = list(names)
    chosen = known[0] if table is None and len(known) == 1 else table
    if isinstance(chosen, str) and chosen not in known:
        like = [each for each in known if each.lower() == chosen.lower()]
        chosen = like[0] if len(like) == 1 else chosen
    if not isinstance(chosen, str) or chosen not in known:
        listed = ", ".join(known) or "none"
        hint = did_you_mean(chosen, known) if isinstance(chosen, str) else ""
        raise OptionError(
            f"which table of {file!r}? Got {table!r}; it holds: {listed}.{hint} "
            f"Pass ({file!r}, 'table name')."
        )
    return chosen


def _from_duckdb(database: Database, files: Files, name: str) -> Source:
    import duckdb

    what, qualified = _duckdb_table(database, files, alias=f"{name}_database")
    try:
        with translated_errors(what):
            database.run(f"CREATE TEMP VIEW {name} AS SELECT * FROM {qualified}")
            return _view(database, what, name)
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


def _from_sqlite(database: Database, files: Files, name: str) -> Source:
    import pyarrow  # noqa: F401  its rows come as Arrow

    (file,) = files.names
    with explained_sqlite(files.what), sqlite_opened(file, database.scratch) as connection:
        tables = sqlite_tables(connection, files.what)
        table = chosen_table(file, files.table, tables)
        names = sqlite_columns(connection, table)
    what = f"{files.what}, table {table}"

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        with (
            explained_sqlite(what),
            translated_errors(what),
            sqlite_opened(file, database.scratch) as connection,
        ):
            return _materialise(database, name, sqlite_rows(connection, table, columns, ids))

    return Source(what, names, load)


def postgres_found(address: Address) -> tuple[str, str, dict[str, str]]:
    """What to call the table behind an address, its name in SQL, its columns and their types."""
    with postgres_opened(address) as cursor:
        tables = postgres_tables(cursor)
        table = chosen_table(address.what, address.table, tables)
        in_sql, oid = tables[table]
        return f"{address.what}, table {table}", in_sql, postgres_columns(cursor, oid)


def _from_postgres(database: Database, address: Address, name: str) -> Source:
    what, in_sql, types = postgres_found(address)
    _refuse_alike(what, list(types))

    def load(columns: Sequence[str], ids: frozenset[str]) -> str:
        with postgres_opened(address) as cursor, translated_errors(what):
            rows = postgres_rows(cursor, in_sql, types, columns, ids)
            return _materialise(database, name, rows)

    return Source(what, tuple(types), load)


def _from_relation(database: Database, relation: Any, name: str) -> Source:
    """A relation lives in another DuckDB, so its rows come over as a stream, once."""
    what = "the DuckDB relation"

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        chosen = relation.project(", ".join(quoted(column) for column in columns))
        with translated_errors(what):
            return _materialise(database, name, _Rows(chosen))

    return Source(what, tuple(relation.columns), load)


class _Rows:
    """The rows of a relation of another DuckDB, by Arrow's C interface; pyarrow is not needed."""

    def __init__(self, relation: Any) -> None:
        self.relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.relation.__arrow_c_stream__(requested_schema)


def _from_lazy_frame(database: Database, frame: Any, name: str) -> Source:
    """A lazy frame may be larger than memory: it runs into a scratch file, piece by piece."""
    from polars.exceptions import PolarsError

    failures = (PolarsError, OSError, ArithmeticError, LookupError, TypeError, ValueError)
    what = "the Polars LazyFrame"
    try:
        given = tuple(frame.collect_schema().names())
    except failures as error:
        raise FileFormatError(f"{what} cannot be read: {error}") from error
    theirs = dict(zip(distinct(given), given, strict=True))

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        file = database.scratch / f"{name}.parquet"
        try:
            chosen = frame.select([theirs[each] for each in columns])
            chosen.rename({theirs[each]: each for each in columns}).sink_parquet(file)
        except failures as error:
            raise FileFormatError(f"{what} cannot be read: {error}") from error
        with translated_errors(what):
            database.run(
                f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet({literal(str(file))})"
            )
        return name

    return Source(what, tuple(theirs), load, given)


def _from_frame(database: Database, frame: Any, name: str) -> Source:
    """A data frame in memory; only the columns asked for are converted, most without a copy."""
    import pyarrow as pa

    family = type(frame).__module__.partition(".")[0]
    what, convert = f"the {family} DataFrame", _COLUMNS[family]
    given = tuple(str(column) for column in frame.columns)
    if len(set(given)) < len(given):
        raise ColumnError(f"{what} has columns of the same name: {', '.join(given)}. Rename them.")
    names = tuple(distinct(given))

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        arrays = {}
        for column in columns:
            try:
                arrays[column] = convert(frame, names.index(column))
            except (pa.ArrowException, TypeError, ValueError, RuntimeError) as error:
                raise ColumnError(
                    f"column {column!r} of {what} holds values that are neither numbers nor text: "
                    f"{error}. Convert it."
                ) from error
        with translated_errors(what):
            database.connection.register(name, pa.table(arrays))
        return name

    return Source(what, names, load, given)


def _polars_column(frame: Any, index: int) -> Any:
    series = frame.to_series(index)
    # Python objects have no Arrow type; as text their bad values can at least be named.
    return _as_text(series) if str(series.dtype) == "Object" else series.to_arrow()


def _pandas_column(frame: Any, index: int) -> Any:
    import pyarrow as pa

    series = frame.iloc[:, index]
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _as_text(series)


def _as_text(values: Any) -> Any:
    """Values of mixed types as text, missing ones as NULL."""
    import pyarrow as pa

    return pa.array([None if _is_missing(value) else str(value) for value in values], pa.string())


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


_COLUMNS = {"polars": _polars_column, "pandas": _pandas_column}


def _from_arrow(database: Database, source: Any, name: str) -> Source:
    import pyarrow as pa

    what = f"the Arrow {type(source).__name__}"
    if isinstance(source, pa.RecordBatchReader):
        return stream_source(database, source, name)
    if hasattr(source, "projected_schema") and hasattr(source, "to_reader"):  # a Scanner
        names = arrow_schema_names(source.projected_schema, what)
        return _streamed(database, what, name, names, source.to_reader)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if not isinstance(source, pa.Table) and not hasattr(source, "get_fragments"):
        raise OptionError(
            f"a pyarrow {type(source).__name__} is no table. Pass a Table, RecordBatch, "
            f"RecordBatchReader, Dataset or Scanner."
        )
    return _from_dataset(database, source, name, what)


def _from_dataset(database: Database, source: Any, name: str, what: str) -> Source:
    """What can be scanned many times: an Arrow table or dataset."""
    names = arrow_schema_names(source.schema, what)
    with translated_errors(what):
        database.connection.register(name, source)
        return _view(database, what, name, lambda: tuple(names))


def _from_delta(database: Database, table: Any, name: str) -> Source:
    """The files of one version of a Delta table, without those that were removed."""
    what = f"the Delta table (version {table.version()})"
    try:
        dataset = table.to_pyarrow_dataset()
    except Exception as error:
        raise FileFormatError(
            f"{what} cannot be read: {error}. An engine that knows its features can write it to "
            "Parquet."
        ) from error
    return _from_dataset(database, dataset, name, what)


def _from_iceberg(database: Database, source: Any, name: str) -> Source:
    """A table of Iceberg as it is now, or a scan: its snapshot, its filter, its columns."""
    if hasattr(source, "scan") and not hasattr(source, "to_arrow_batch_reader"):
        source = source.scan()
    if not hasattr(source, "to_arrow_batch_reader"):
        raise OptionError(
            f"a pyiceberg {type(source).__name__} is no table. Pass a Table or a scan of one."
        )
    what = "the Iceberg table"
    try:
        names = [field.name for field in source.projection().fields]
    except Exception as error:
        raise FileFormatError(f"{what} cannot be read: {error}") from error
    _refuse_alike(what, names)

    def rows(columns: Sequence[str]) -> Any:
        try:
            return source.select(*columns).to_arrow_batch_reader()
        except Exception as error:
            raise FileFormatError(f"{what} cannot be read: {error}") from error

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated_errors(what):
            return _materialise(database, name, rows(columns), columns)

    return Source(what, tuple(names), load)


def _from_cursor(database: Database, cursor: Any, name: str) -> Source:
    """A cursor of ADBC with a result that nobody has fetched yet."""
    what = "the result of the cursor"
    try:
        reader = cursor.fetch_record_batch()
    except Exception as error:
        raise OptionError(
            f"the cursor has no result to read: {in_short(error)}. Run a query first: "
            'cursor.execute("SELECT ... FROM clicks").'
        ) from error
    return _streamed(database, what, name, arrow_schema_names(reader.schema, what), lambda: reader)


def stream_source(database: Database, source: Any, name: str, what: str | None = None) -> Source:
    """Anything that hands out an Arrow stream. It can be read once, so it is copied."""
    import pyarrow as pa

    what = what or f"the {type(source).__name__}"
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, OSError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"{what} gives no Arrow stream: {error}") from error
    return _streamed(database, what, name, arrow_schema_names(reader.schema, what), lambda: reader)


def _streamed(
    database: Database, what: str, name: str, names: Sequence[str], rows: Callable[[], Any]
) -> Source:
    """What can be read once: the columns that are wanted go to a table of ours."""
    _refuse_alike(what, names)

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated_errors(what):
            return _materialise(database, name, rows(), columns)

    return Source(what, tuple(names), load)


def _view(
    database: Database, what: str, name: str, given: Callable[[], tuple[str, ...]] = tuple
) -> Source:
    """A view that is there already. `given` is asked for only where names look numbered."""
    columns = tuple(database.columns(name))
    lower = {each.lower() for each in columns}
    numbered = any(_NUMBERED.sub("", each.lower()) in lower - {each.lower()} for each in columns)
    return Source(what, columns, lambda _columns, _ids: name, given() if numbered else ())


_NUMBERED = re.compile(r"_\d+$")


def _materialise(
    database: Database, name: str, reader: Any, columns: Sequence[str] = ("*",)
) -> str:
    chosen = ", ".join("*" if column == "*" else quoted(column) for column in columns)
    stream = f"{name}_stream"
    database.connection.register(stream, reader)
    database.run(f"CREATE TEMP TABLE {name} AS SELECT {chosen} FROM {stream}")
    database.connection.unregister(stream)
    return name
