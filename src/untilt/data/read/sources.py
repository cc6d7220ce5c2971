"""Where a table can come from. Only this module knows files, frames and relations apart."""

import glob
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from untilt._core.optional import explained_import
from untilt._core.paths import printable
from untilt.data.read.csv_files import load_csv
from untilt.data.read.database import (
    Database,
    in_short,
    literal,
    quoted,
    translated_errors,
)
from untilt.errors import ColumnError, FileFormatError, OptionError, did_you_mean

PathLike = str | os.PathLike[str]


class FileKind(Enum):
    """What a file holds."""

    PARQUET = "Parquet"
    CSV = "CSV"
    DATABASE = "a DuckDB database"


_ENDINGS = {
    FileKind.PARQUET: (".parquet", ".pq", ".parq"),
    FileKind.CSV: (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    FileKind.DATABASE: (".duckdb", ".ddb", ".db"),
}
_KNOWN = ", ".join(ending for endings in _ENDINGS.values() for ending in endings)


@dataclass(frozen=True)
class Files:
    """Files of one kind, how to call them in a message, and the table wanted of a database."""

    kind: FileKind
    names: tuple[str, ...]
    what: str
    table: object = None


def located(source: Any) -> Any:
    """The `Files` that a path, pattern, folder, list of these or (database, table) stands for.

    Any other source is given back as it is.
    """
    if _is_path(source):
        return _files_of([source])
    if isinstance(source, list) and source and all(map(_is_path, source)):
        return _files_of(source)
    if isinstance(source, tuple) and not hasattr(next(iter(source), None), "cursor"):
        return _database_of(source)
    return source


def stamps(files: Files) -> list[Any]:
    """What changes when a file does: which file it is, its size and when it was written."""
    return [_stamp(name) for name in files.names]


def _stamp(name: str) -> tuple[int, ...]:
    try:
        stat = os.stat(name)
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def refuse_changed(files: Files, before: list[Any]) -> None:
    """Raise where the files are not those that had these stamps."""
    for name, old, new in zip(files.names, before, stamps(files), strict=True):
        if old != new:
            raise FileFormatError(
                f"{name} was changed while it was read, so half of what was read may be old. Read "
                "it again when nobody writes to it, or read a copy."
            )


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _files_of(paths: Sequence[PathLike]) -> Files:
    what = printable(paths[0]) if len(paths) == 1 else f"{printable(paths[0])} and others"
    names = tuple(file for path in paths for file in _expanded(path))
    kinds = {_kind(file) for file in names}
    if len(kinds) > 1 or (kinds == {FileKind.DATABASE} and len(names) > 1):
        raise OptionError(
            f"{what} holds files of several kinds or several databases: "
            f"{', '.join(names[:5])}. Read them one by one, or give a narrower pattern."
        )
    return Files(kinds.pop(), names, what)


def _database_of(source: tuple[Any, ...]) -> Files:
    if len(source) != 2 or not _is_path(source[0]):
        raise OptionError(
            f"a table of a database is given as (path, table name). Got {source!r} instead."
        )
    file = _text(source[0])
    if not os.path.isfile(file):
        raise FileFormatError(f"cannot read {file!r}. There is no such file. Check the path.")
    return Files(FileKind.DATABASE, (file,), printable(file), source[1])


def _text(path: PathLike) -> str:
    text = os.fsdecode(path)
    if "\0" in text:
        raise OptionError(f"a path cannot hold a zero character. Got {text!r} instead.")
    return text


def _expanded(path: PathLike) -> list[str]:
    text = _text(path)
    if os.path.isfile(text):
        return [text]
    if os.path.isdir(text):
        files = _in_folder(text)
        hint = "The folder holds no Parquet and no CSV file"
    else:
        found = sorted(glob.glob(text, recursive=True))
        # A pattern may fit folders, too: date=2026-11-01 and the like.
        parts = [_in_folder(each) if os.path.isdir(each) else [each] for each in found]
        files = list(dict.fromkeys(os.path.normpath(file) for part in parts for file in part))
        hint = "There is no such file" if not glob.has_magic(text) else "No file fits this pattern"
    if not files:
        raise FileFormatError(f"cannot read {text!r}. {hint}. Check the path.")
    for file in files:
        if not os.path.isfile(file):
            raise FileFormatError(
                f"cannot read {file!r}. It is a pipe, a device or a link to nothing, and a log is "
                "read more than once. Write it to a file first."
            )
    return files


_UNKNOWN, _HIDDEN = "of no kind that can be read", "not finished by their names"


def _in_folder(folder: str) -> list[str]:
    """All files at any depth. They must be of one kind: half of a log is another log.

    Names that begin with a dot or an underscore are notes or not finished, by the custom of those
    who write such folders (_SUCCESS, .part-0.crc): they are passed over, unless they end like data.
    """
    groups: dict[str, list[str]] = {}
    for file in _walked(folder):
        if group := _group(file, folder):
            groups.setdefault(group, []).append(file)
    if len(groups) > 1:
        raise OptionError(_several(folder, groups))
    return next(iter(groups.values()), [])


def _walked(folder: str) -> list[str]:
    """The names of all files below a folder, sorted. Linked folders count once, loops end."""
    seen: set[str] = set()
    files: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=_refuse_folder, followlinks=True):
        files += [Path(root, name) for name in names]
        folders[:] = [name for name in sorted(folders) if _is_new(os.path.join(root, name), seen)]
    return [str(file) for file in sorted(files)]


def _is_new(folder: str, seen: set[str]) -> bool:
    real = os.path.realpath(folder)
    is_new = real not in seen
    seen.add(real)
    return is_new


def _refuse_folder(error: OSError) -> NoReturn:
    raise FileFormatError(
        f"cannot look into the folder {error.filename!r}: {error.strerror}. Check its permissions."
    ) from error


def _group(file: str, folder: str) -> str | None:
    """What a file of a folder counts as; None where it is passed over."""
    parts = Path(os.path.relpath(file, folder)).parts
    if any(part.startswith((".", "_")) for part in parts):
        ends_like_data = file.lower().endswith(tuple(e for es in _ENDINGS.values() for e in es))
        return _HIDDEN if ends_like_data and not parts[-1].startswith("._") else None
    try:
        return _kind(file).value
    except FileFormatError:
        return _UNKNOWN


def _several(folder: str, groups: dict[str, list[str]]) -> str:
    told = []
    for group, files in groups.items():
        names = ", ".join(os.path.relpath(file, folder) for file in files[:3])
        told.append(f"{len(files)} {group} ({names}{', ...' if len(files) > 3 else ''})")
    readable = next((fs for g, fs in groups.items() if g not in (_UNKNOWN, _HIDDEN)), ["*.parquet"])
    pattern = Path(folder, "**", f"*{Path(readable[0]).suffix}")
    return (
        f"the folder {folder!r} holds files of several kinds, and half of a log is another "
        f"log: {'; '.join(told)}. Name those to read by a pattern, such as '{pattern}', or move "
        "the others away."
    )


def _kind(file: str) -> FileKind:
    """By its ending; where that says nothing, by its first bytes."""
    for kind, endings in _ENDINGS.items():
        if file.lower().endswith(endings):
            return kind
    try:
        with Path(file).open("rb") as opened:
            head = opened.read(12)
    except OSError as error:
        raise FileFormatError(f"cannot read {file!r}: {error.strerror}.") from error
    if head[:4] == b"PAR1":
        return FileKind.PARQUET
    if head[8:12] == b"DUCK":
        return FileKind.DATABASE
    raise FileFormatError(
        f"cannot tell what {file!r} holds. Known endings are {_KNOWN}. Rename or convert the file."
    )


def _table_of(database: Database, files: Files, *, alias: str) -> tuple[str, str]:
    """Attach a database file; its one table, or the one asked for, with its full name in SQL."""
    (file,), table = files.names, files.table
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
    chosen = next(iter(names)) if table is None and len(names) == 1 else table
    if not isinstance(chosen, str) or chosen not in names:
        listed = ", ".join(names) or "none"
        hint = did_you_mean(chosen, names) if isinstance(chosen, str) else ""
        raise OptionError(
            f"which table of {file!r}? Got {table!r}; it holds: {listed}.{hint} "
            f"Pass ({file!r}, 'table name')."
        )
    schema, name = names[chosen]
    return f"{files.what}, table {chosen}", f"{alias}.{quoted(schema)}.{quoted(name)}"


# columns wanted, and which of them hold ids -> the name of a table that can be read many times
Load = Callable[[Sequence[str], frozenset[str]], str]


@dataclass(frozen=True)
class Source:
    """A table that can be read: what to call it in messages, its columns, and how to load it."""

    what: str
    columns: tuple[str, ...]
    load: Load

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self.columns


def open_source(database: Database, source: Any, name: str) -> Source:
    """Find out what kind of thing `source` is, without importing any library it may come from.

    Files are `located` already: the database was opened for them.
    """
    family = type(source).__module__.partition(".")[0].lstrip("_")
    kind = type(source).__name__
    is_class = isinstance(source, type)
    openers: list[tuple[bool, Callable[[Database, Any, str], Source]]] = [
        (isinstance(source, Files), _from_files),
        (family == "duckdb" and hasattr(source, "project"), _from_relation),
        (family == "polars" and kind == "LazyFrame", _from_lazy_frame),
        (family in _COLUMNS and kind == "DataFrame", _from_frame),
        (family == "pyarrow", _from_arrow),
        (not is_class and hasattr(source, "__arrow_c_stream__"), stream_source),
    ]
    for fits, opener in openers:
        if fits:
            with explained_import(f"reading a {family} {kind}"):
                return opener(database, source, name)
    raise OptionError(
        "a table can be read from a path (Parquet, CSV, DuckDB database), a list of paths, a pair "
        "(database path, table name), a DuckDB relation, a pyarrow, Polars or pandas table, an "
        "Ibis table, a Spark DataFrame, or a pair (PostgreSQL connection, table name). "
        f"Got {kind} instead."
    )


def _from_files(database: Database, files: Files, name: str) -> Source:
    if files.kind is FileKind.DATABASE:
        return _from_database(database, files, name)
    paths = [database.path(file) for file in files.names]
    if files.kind is FileKind.CSV:
        columns, load = load_csv(database, paths, name, files.what)
        return Source(files.what, columns, load)
    listed = ", ".join(literal(glob.escape(path)) for path in paths)
    with translated_errors(files.what):
        database.run(
            f"CREATE TEMP VIEW {name} AS "
            f"SELECT * FROM read_parquet([{listed}], union_by_name = {len(paths) > 1})"
        )
        return _view(database, files.what, name)


def _from_database(database: Database, files: Files, name: str) -> Source:
    import duckdb

    what, qualified = _table_of(database, files, alias=f"{name}_database")
    try:
        with translated_errors(what):
            database.run(f"CREATE TEMP VIEW {name} AS SELECT * FROM {qualified}")
            return _view(database, what, name)
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise FileFormatError(
            f"{what} is a view that cannot be read from its file alone: {in_short(error)}. Write "
            "its rows to a table: CREATE TABLE clicks AS SELECT * FROM the_view."
        ) from error


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
        names = tuple(frame.collect_schema().names())
    except failures as error:
        raise FileFormatError(f"{what} cannot be read: {error}") from error

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        file = database.scratch / f"{name}.parquet"
        try:
            frame.select(list(columns)).sink_parquet(file)
        except failures as error:
            raise FileFormatError(f"{what} cannot be read: {error}") from error
        with translated_errors(what):
            database.run(
                f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet({literal(str(file))})"
            )
        return name

    return Source(what, names, load)


def _from_frame(database: Database, frame: Any, name: str) -> Source:
    """A data frame in memory; only the columns asked for are converted, most without a copy."""
    import pyarrow as pa

    family = type(frame).__module__.partition(".")[0]
    what, convert = f"the {family} DataFrame", _COLUMNS[family]
    names = tuple(str(column) for column in frame.columns)
    if len(set(names)) < len(names):
        raise ColumnError(f"{what} has columns of the same name: {', '.join(names)}. Rename them.")

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

    return Source(what, names, load)


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
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if not isinstance(source, pa.Table) and not hasattr(source, "get_fragments"):
        raise OptionError(
            f"a pyarrow {type(source).__name__} is no table. Pass a Table, RecordBatch, "
            f"RecordBatchReader or Dataset."
        )
    with translated_errors(what):
        database.connection.register(name, source)
        return _view(database, what, name)


def stream_source(database: Database, source: Any, name: str, what: str | None = None) -> Source:
    """Anything that hands out an Arrow stream. It can be read once, so it is copied."""
    import pyarrow as pa

    what = what or f"the {type(source).__name__}"
    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, OSError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"{what} gives no Arrow stream: {error}") from error
    names = tuple(reader.schema.names)

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated_errors(what):
            return _materialise(database, name, reader, columns)

    return Source(what, names, load)


def _view(database: Database, what: str, name: str) -> Source:
    return Source(what, tuple(database.columns(name)), lambda _columns, _ids: name)


def _materialise(
    database: Database, name: str, reader: Any, columns: Sequence[str] = ("*",)
) -> str:
    chosen = ", ".join("*" if column == "*" else quoted(column) for column in columns)
    stream = f"{name}_stream"
    database.connection.register(stream, reader)
    database.run(f"CREATE TEMP TABLE {name} AS SELECT {chosen} FROM {stream}")
    database.connection.unregister(stream)
    return name
