"""Tables that are in this process, or that a library of Python hands out: frames, Arrow, scans."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from untilt.data.read.database import Database, in_short, literal, quoted, translated_errors
from untilt.data.read.sources import (
    Source,
    arrow_schema_names,
    distinct,
    materialised,
    refuse_alike,
    viewed,
)
from untilt.errors import ColumnError, FileFormatError, OptionError


def open_relation(database: Database, relation: Any, name: str) -> Source:
    """A relation lives in another DuckDB, so its rows come over as a stream, once."""
    what = "the DuckDB relation"

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        chosen = relation.project(", ".join(quoted(column) for column in columns))
        with translated_errors(what):
            return materialised(database, name, _Rows(chosen))

    return Source(what, tuple(relation.columns), load)


class _Rows:
    """The rows of a relation of another DuckDB, by Arrow's C interface; pyarrow is not needed."""

    def __init__(self, relation: Any) -> None:
        self.relation = relation

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.relation.__arrow_c_stream__(requested_schema)


def open_lazy_frame(database: Database, frame: Any, name: str) -> Source:
    """A lazy frame may be larger than memory: it runs into a scratch file, piece by piece."""
    from polars.exceptions import PolarsError

    failures = (PolarsError, OSError, ArithmeticError, LookupError, TypeError, ValueError)
    what = "the Polars LazyFrame"
    try:
        given = tuple(frame.collect_schema().names())
    except failures as error:
        raise FileFormatError(f"{what} cannot be read: {error}") from error
    source_column = dict(zip(distinct(given), given, strict=True))

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        file = database.scratch / f"{name}.parquet"
        try:
            chosen = frame.select([source_column[each] for each in columns])
            chosen.rename({source_column[each]: each for each in columns}).sink_parquet(file)
        except failures as error:
            raise FileFormatError(f"{what} cannot be read: {error}") from error
        with translated_errors(what):
            database.run(
                f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet({literal(str(file))})"
            )
        return name

    return Source(what, tuple(source_column), load, given)


def open_frame(database: Database, frame: Any, name: str) -> Source:
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


def open_arrow(database: Database, source: Any, name: str) -> Source:
    """A pyarrow table, batch, dataset, scanner or reader."""
    import pyarrow as pa

    what = f"the Arrow {type(source).__name__}"
    if isinstance(source, pa.RecordBatchReader):
        return open_stream(database, source, name)
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
        return viewed(database, what, name, lambda: tuple(names))


def open_delta(database: Database, table: Any, name: str) -> Source:
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


def open_iceberg(database: Database, source: Any, name: str) -> Source:
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
    refuse_alike(what, names)

    def rows(columns: Sequence[str]) -> Any:
        try:
            return source.select(*columns).to_arrow_batch_reader()
        except Exception as error:
            raise FileFormatError(f"{what} cannot be read: {error}") from error

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated_errors(what):
            return materialised(database, name, rows(columns), columns)

    return Source(what, tuple(names), load)


def open_cursor(database: Database, cursor: Any, name: str) -> Source:
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


def open_stream(database: Database, source: Any, name: str, what: str | None = None) -> Source:
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
    refuse_alike(what, names)

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated_errors(what):
            return materialised(database, name, rows(), columns)

    return Source(what, tuple(names), load)
