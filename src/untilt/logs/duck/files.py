"""Paths to what lies there: Parquet, CSV or a DuckDB database; a file, a folder or a pattern."""

import glob
import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from untilt._core.suggest import did_you_mean
from untilt.errors import FileFormatError, OptionError
from untilt.logs.duck.bench import Bench, in_our_words, literal, quoted

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


def files_of(paths: Sequence[PathLike]) -> tuple[FileKind, list[str], str]:
    """All files behind these paths, their one kind, and how to call them in a message."""
    what = os.fspath(paths[0]) if len(paths) == 1 else f"{os.fspath(paths[0])} and others"
    if any("\0" in os.fspath(path) for path in paths):
        raise OptionError(f"a path cannot hold a zero character. Got {what!r} instead.")
    files = [file for path in paths for file in _expanded(path)]
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1 or (kinds == {FileKind.DATABASE} and len(files) > 1):
        raise OptionError(
            f"{what} holds files of several kinds or several databases: "
            f"{', '.join(files[:5])}. Read them one by one, or give a narrower pattern."
        )
    return kinds.pop(), files, what


def _expanded(path: PathLike) -> list[str]:
    text = os.fspath(path)
    if os.path.isfile(text):
        return [text]
    if os.path.isdir(text):
        found = _in_folder(Path(text))
        hint = "The folder holds no Parquet and no CSV file"
    else:
        found = sorted(file for file in glob.glob(text, recursive=True) if os.path.isfile(file))
        hint = "There is no such file" if not glob.has_magic(text) else "No file fits this pattern"
    if not found:
        raise FileFormatError(f"cannot read {text!r}. {hint}. Check the path.")
    return found


def _in_folder(folder: Path) -> list[str]:
    """Parquet files at any depth, else CSV files; hidden ones are half-written or notes."""
    for kind in (FileKind.PARQUET, FileKind.CSV):
        found = [
            str(file)
            for file in sorted(folder.rglob("*"))
            if file.is_file()
            and file.name.lower().endswith(_ENDINGS[kind])
            and not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        ]
        if found:
            return found
    return []


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


def database_table(bench: Bench, path: PathLike, table: object, *, alias: str) -> tuple[str, str]:
    """Attach a database file; its one table, or the one asked for, with its full name in SQL."""
    file = os.fspath(path)
    if not os.path.isfile(file):
        raise FileFormatError(f"cannot read {file!r}. There is no such file. Check the path.")
    with in_our_words(file):
        bench.run(f"ATTACH {literal(file)} AS {alias} (READ_ONLY, TYPE duckdb)")
        found = bench.rows(
            f"SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = '{alias}' "
            f"UNION ALL SELECT schema_name, view_name FROM duckdb_views() "
            f"WHERE database_name = '{alias}' AND NOT internal ORDER BY ALL"
        )
    names = {
        name if schema == "main" else f"{schema}.{name}": (schema, name) for schema, name in found
    }
    chosen = next(iter(names)) if table is None and len(names) == 1 else table
    if chosen not in names:
        listed = ", ".join(names) or "none"
        hint = did_you_mean(chosen, names) if isinstance(chosen, str) else ""
        raise OptionError(
            f"which table of {file!r}? Got {table!r}; it holds: {listed}.{hint} "
            f"Pass ({file!r}, 'table name')."
        )
    schema, name = names[str(chosen)]
    return f"{file}, table {chosen}", f"{alias}.{quoted(schema)}.{quoted(name)}"
