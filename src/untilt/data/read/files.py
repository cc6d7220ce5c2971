"""Which files a path, a folder or a pattern stands for, and of what kind they are."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from untilt._core.paths import printable
from untilt.data.read.lake_tables import refuse_lake_tables
from untilt.data.read.packed import PACKED
from untilt.errors import FileFormatError, OptionError

PathLike = str | os.PathLike[str]


class FileKind(Enum):
    """What a file holds."""

    PARQUET = "Parquet"
    CSV = "CSV"
    JSON = "JSON"
    ARROW = "Arrow"
    DUCKDB = "a DuckDB database"
    SQLITE = "a SQLite database"


DATABASES = (FileKind.DUCKDB, FileKind.SQLITE)
_ENDINGS = {
    FileKind.PARQUET: (".parquet", ".pq", ".parq"),
    FileKind.CSV: (".csv", ".tsv"),
    FileKind.JSON: (".jsonl", ".ndjson", ".json"),
    FileKind.ARROW: (".feather", ".arrow", ".ipc"),
    FileKind.DUCKDB: (".duckdb", ".ddb", ".db"),
    FileKind.SQLITE: (".sqlite", ".sqlite3"),
}
_PACKED_KINDS = (FileKind.CSV, FileKind.JSON)
_KNOWN = ", ".join(
    f"{', '.join(endings)}{' (also .gz, .zst, .bz2)' if kind in _PACKED_KINDS else ''}"
    for kind, endings in _ENDINGS.items()
)


def _by_ending(file: str) -> FileKind | None:
    name = file.lower()
    for kind, endings in _ENDINGS.items():
        packed = PACKED if kind in _PACKED_KINDS else ()
        if name.endswith((*endings, *(f"{e}{p}" for e in endings for p in packed))):
            return kind
    return None


@dataclass(frozen=True)
class Files:
    """Files of one kind, how to call them in a message, and the table wanted of a database."""

    kind: FileKind
    names: tuple[str, ...]
    what: str
    table: object = None

    @property
    def with_changes(self) -> tuple[str, ...]:
        """The files, and beside a database the file of its last changes, whether it is there."""
        beside = {FileKind.DUCKDB: (".wal",), FileKind.SQLITE: ("-wal", "-journal")}
        endings = ("", *beside.get(self.kind, ()))
        return tuple(name + ending for name in self.names for ending in endings)


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
    return [_stamp(name) for name in files.with_changes]


def _stamp(name: str) -> tuple[int, ...]:
    try:
        stat = os.stat(name)
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def refuse_changed(files: Files, before: list[Any]) -> None:
    """Raise where the files are not those that had these stamps."""
    for name, old, new in zip(files.with_changes, before, stamps(files), strict=True):
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
    if len(kinds) > 1 or (len(names) > 1 and kinds & set(DATABASES)):
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
    kind = _kind(file)
    if kind not in DATABASES:
        raise OptionError(
            f"{file!r} holds {kind.value}, which has no tables in it. Give the path alone."
        )
    return Files(kind, (file,), printable(file), source[1])


def _text(path: PathLike) -> str:
    text = os.fsdecode(path)
    if "\0" in text:
        raise OptionError(f"a path cannot hold a zero character. Got {text!r} instead.")
    return text


def _expanded(path: PathLike) -> list[str]:
    text = _text(path)
    if os.path.isfile(text):
        refuse_lake_tables([text])
        return [text]
    if os.path.isdir(text):
        files = _in_folder(text)
        hint = "The folder holds no file of a log (Parquet, CSV, JSON lines, Arrow)"
    else:
        found = sorted(glob.glob(text, recursive=True))
        # A pattern may fit folders, too: date=2026-11-01 and the like.
        parts = [_in_folder(each) if os.path.isdir(each) else [each] for each in found]
        files = list(dict.fromkeys(os.path.normpath(file) for part in parts for file in part))
        refuse_lake_tables(files)
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
    walked = _walked(folder)
    refuse_lake_tables(walked, folder)
    for file in walked:
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
        # A hidden .json is a note on the others: _schema.json.
        ends_like_data = _by_ending(file) is not None and not file.lower().endswith(".json")
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
    """By its ending; where that says nothing, or only that it is a database, by its first bytes."""
    kind = _by_ending(file)
    if kind is not None and kind not in DATABASES:
        return kind
    try:
        with Path(file).open("rb") as opened:
            head = opened.read(16)
    except OSError as error:
        raise FileFormatError(f"cannot read {file!r}: {error.strerror}.") from error
    for known, at, magic in _FIRST_BYTES:
        if head[at:].startswith(magic):
            return known
    if kind is not None:
        return kind
    raise FileFormatError(
        f"cannot tell what {file!r} holds. Known endings are {_KNOWN}. Rename or convert the file."
    )


_FIRST_BYTES = (
    (FileKind.PARQUET, 0, b"PAR1"),
    (FileKind.ARROW, 0, b"ARROW1"),
    (FileKind.SQLITE, 0, b"SQLite format 3\0"),
    (FileKind.DUCKDB, 8, b"DUCK"),
)
