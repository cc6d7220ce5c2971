"""Which files a path, a folder or a pattern stands for, and of what kind they are.

A kind of file is one line of `FILE_KINDS` and the function that opens it.
"""

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from untilt._core.paths import printable
from untilt.errors import FileFormatError, OptionError

PathLike = str | os.PathLike[str]
PACKED = (".gz", ".zst", ".bz2")


@dataclass(frozen=True)
class FileKind:
    """What a file holds, how that is recognised, and what opens it.

    door : module of `untilt.data.read` and function, called with the database, the `Files` and a
        name for the table
    endings : of the file's name
    magic : where its first bytes stand, and what they are
    changes : endings of the files beside it that hold its last changes
    """

    name: str
    door: str
    endings: tuple[str, ...]
    magic: tuple[int, bytes] | None = None
    changes: tuple[str, ...] = ()
    may_be_packed: bool = False
    has_tables: bool = False

    def fits(self, file: str) -> bool:
        """Whether a file is of this kind by the ending of its name."""
        packed = PACKED if self.may_be_packed else ()
        ends = (*self.endings, *(f"{e}{p}" for e in self.endings for p in packed))
        return file.lower().endswith(ends)


PARQUET = FileKind(
    "Parquet", "columnar:open_parquet", (".parquet", ".pq", ".parq"), magic=(0, b"PAR1")
)
CSV = FileKind("CSV", "text_files:open_csv", (".csv", ".tsv"), may_be_packed=True)
JSON = FileKind("JSON", "text_files:open_json", (".jsonl", ".ndjson", ".json"), may_be_packed=True)
ARROW = FileKind(
    "Arrow", "columnar:open_arrow_files", (".feather", ".arrow", ".ipc"), magic=(0, b"ARROW1")
)
DUCKDB = FileKind(
    "a DuckDB database", "databases:open_duckdb", (".duckdb", ".ddb", ".db"),
    magic=(8, b"DUCK"), changes=(".wal",), has_tables=True,
)  # fmt: skip
SQLITE = FileKind(
    "a SQLite database", "databases:open_sqlite", (".sqlite", ".sqlite3"),
    magic=(0, b"SQLite format 3\0"), changes=("-wal", "-journal"), has_tables=True,
)  # fmt: skip
FILE_KINDS = (PARQUET, CSV, JSON, ARROW, DUCKDB, SQLITE)


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
        return tuple(name + ending for name in self.names for ending in ("", *self.kind.changes))


def located(source: Any) -> Any:
    """The `Files` that a path, pattern, folder, list of these or (database, table) stands for.

    Any other source is given back as it is.
    """
    if _is_path(source):
        return _several_files([source])
    if isinstance(source, list) and source and all(map(_is_path, source)):
        return _several_files(source)
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
                f"{name} changed while it was read, so a part of the data may be old. Read it "
                "again when no program writes to it, or read a copy."
            )


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _several_files(paths: Sequence[PathLike]) -> Files:
    what = printable(paths[0]) if len(paths) == 1 else f"{printable(paths[0])} and others"
    names = tuple(file for path in paths for file in _expanded(path))
    kinds = {_kind(file) for file in names}
    if len(kinds) > 1 or (len(names) > 1 and any(kind.has_tables for kind in kinds)):
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
    if not kind.has_tables:
        raise OptionError(
            f"{file!r} holds {kind.name}, which has no tables in it. Give the path alone."
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
                f"cannot read {file!r}. It is a pipe, a device or a broken link, and untilt reads "
                "a log more than once. Write it to a file first."
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
        f"cannot read the folder {error.filename!r}: {error.strerror}. Check its permissions."
    ) from error


def _group(file: str, folder: str) -> str | None:
    """What a file of a folder counts as; None where it is passed over."""
    parts = Path(os.path.relpath(file, folder)).parts
    if any(part.startswith((".", "_")) for part in parts):
        # A hidden .json is a note on the others: _schema.json.
        ends_like_data = any(kind.fits(file) for kind in FILE_KINDS) and not file.lower().endswith(
            ".json"
        )
        return _HIDDEN if ends_like_data and not parts[-1].startswith("._") else None
    try:
        return _kind(file).name
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
        f"the folder {folder!r} holds files of several kinds, and a part of a log gives other "
        f"results: {'; '.join(told)}. Select the files to read by a pattern, such as '{pattern}', "
        "or move the others away."
    )


def _kind(file: str) -> FileKind:
    """By its ending; where that says nothing, or only that it is a database, by its first bytes."""
    by_name = next((kind for kind in FILE_KINDS if kind.fits(file)), None)
    if by_name is not None and not by_name.has_tables:
        return by_name
    try:
        with Path(file).open("rb") as opened:
            head = opened.read(16)
    except OSError as error:
        raise FileFormatError(f"cannot read {file!r}: {error.strerror}.") from error
    for kind in FILE_KINDS:
        if kind.magic is not None and head[kind.magic[0] :].startswith(kind.magic[1]):
            return kind
    if by_name is not None:
        return by_name
    known = ", ".join(
        f"{', '.join(kind.endings)}{' (also .gz, .zst, .bz2)' if kind.may_be_packed else ''}"
        for kind in FILE_KINDS
    )
    raise FileFormatError(
        f"cannot tell what {file!r} holds. Known endings are {known}. Rename or convert the file."
    )


# Folders that belong to a table format. Their data files alone are not the table.
#
# Delta, Iceberg and Hudi keep files that a later version has removed or replaced until somebody
# cleans up. Read as plain Parquet such a folder counts them again, without an error: after an
# update of every row a log has twice its sessions. So every file is checked for a table around it.

# How far above a data file the folder of its table may be: data/, partitions, parts of a hash.
LEVELS_ABOVE = 8
LAKE_MARKS = ("_delta_log", ".hoodie", "metadata")

Listing = Callable[[str], Iterable[str]]


def refuse_lake_tables(files: Sequence[str], *folders: str) -> None:
    """Raise where a folder, or one that a file lies in, belongs to a table format."""
    places = dict.fromkeys(_absolute(folder) for folder in folders)
    real = [os.path.realpath(file) if os.path.islink(file) else file for file in files]
    for folder in dict.fromkeys(os.path.dirname(each) for each in (*files, *real)):
        for spelled in {_absolute(folder), os.path.realpath(folder)}:
            places.update(dict.fromkeys(_with_parents(spelled)))
    for place in places:
        _refuse_lake(place, _names_in(place), _names_in)


def refuse_lake_place(place: str, names_in: Listing) -> None:
    """The same for one folder of a store that can be asked what a folder holds."""
    _refuse_lake(place, names_in(place), names_in)


def refuse_lake_listing(names: Iterable[str], *, root: str) -> None:
    """The same for the names of all files below an address, as a store lists them."""
    inside: dict[str, set[str]] = {}
    for name in names:
        parts = name.split("/")
        for level in range(len(parts)):
            inside.setdefault("/".join(parts[:level]), set()).add(parts[level])
    for place, found in inside.items():
        where = f"{root}/{place}".rstrip("/")
        _refuse_lake(where, found, lambda path: inside.get(path.removeprefix(f"{root}/"), ()))


def _refuse_lake(place: str, names: Iterable[str], names_in: Listing) -> None:
    found = set(names)
    shown = printable(place)
    if "_delta_log" in found:
        raise OptionError(
            f"{shown} is a Delta table, and its folder also holds files that a later version has "
            "removed or replaced: a reader of plain files would count them again. In Python: "
            f"untilt.read_log(deltalake.DeltaTable({shown!r}))."
        )
    if ".hoodie" in found:
        raise OptionError(
            f"{shown} is a Hudi table, and its folder also holds older versions of its files: a "
            "reader of plain files would count them again. Read it with an engine that knows Hudi "
            "and write the rows to Parquet, or pass an Arrow table: untilt.read_log(arrow_table)."
        )
    metadata = f"{place}/metadata"
    if "metadata" in found and (newest := _newest(names_in(metadata))):
        raise OptionError(
            f"{shown} is an Iceberg table, and its folder also holds files that a later version "
            "has removed or replaced: a reader of plain files would count them again. In Python: "
            "untilt.read_log(pyiceberg.catalog.load_catalog(...).load_table('namespace.name')), "
            "or without a catalogue "
            f"untilt.read_log(pyiceberg.table.StaticTable.from_metadata({f'{printable(metadata)}/{newest}'!r}))."
        )


def _newest(names: Iterable[str]) -> str:
    """The latest of an Iceberg table's descriptions by its number; "" where there is none."""
    described = [name for name in names if name.endswith(".metadata.json")]
    return max(described, key=lambda name: (_number(name), name), default="")


def _number(name: str) -> int:
    """Of 00012-1f2e.metadata.json or v12.metadata.json; -1 without one."""
    digits = name.removeprefix("v").partition("-")[0].partition(".")[0]
    return int(digits) if digits.isdecimal() and digits.isascii() else -1


def _absolute(folder: str) -> str:
    return os.path.abspath(folder or os.curdir)


def _with_parents(folder: str) -> Iterable[str]:
    for _ in range(LEVELS_ABOVE):
        yield folder
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _names_in(folder: str) -> Iterable[str]:
    """Of a folder the signs that count, without listing what may be a million files."""
    if os.path.basename(folder) == "metadata":
        try:
            return os.listdir(folder)
        except OSError:
            return ()
    return [mark for mark in LAKE_MARKS if os.path.isdir(os.path.join(folder, mark))]
