"""Folders that belong to a table format. Their data files alone are not the table.

Delta, Iceberg and Hudi keep files that a later version has removed or replaced until somebody
cleans up. Read as plain Parquet such a folder counts them again, without an error: after an update
of every row a log has twice its sessions. So every file is checked for a table around it.
"""

import os
from collections.abc import Callable, Iterable, Sequence

from untilt._core.paths import printable
from untilt.errors import OptionError

# How far above a data file the folder of its table may be: data/, partitions, parts of a hash.
_LEVELS = 8

Listing = Callable[[str], Iterable[str]]


def refuse_lake_tables(files: Sequence[str], *folders: str) -> None:
    """Raise where a folder, or one that a file lies in, belongs to a table format."""
    places = dict.fromkeys(_absolute(folder) for folder in folders)
    real = [os.path.realpath(file) if os.path.islink(file) else file for file in files]
    for folder in dict.fromkeys(os.path.dirname(each) for each in (*files, *real)):
        for spelled in {_absolute(folder), os.path.realpath(folder)}:
            places.update(dict.fromkeys(_with_parents(spelled)))
    for place in places:
        _refuse(place, _names_in(place), _names_in)


def refuse_lake_place(place: str, names_in: Listing) -> None:
    """The same for one folder of a store that can be asked what a folder holds."""
    _refuse(place, names_in(place), names_in)


def refuse_lake_listing(names: Iterable[str], *, root: str) -> None:
    """The same for the names of all files below an address, as a store lists them."""
    inside: dict[str, set[str]] = {}
    for name in names:
        parts = name.split("/")
        for level in range(len(parts)):
            inside.setdefault("/".join(parts[:level]), set()).add(parts[level])
    for place, found in inside.items():
        where = f"{root}/{place}".rstrip("/")
        _refuse(where, found, lambda path: inside.get(path.removeprefix(f"{root}/"), ()))


def _refuse(place: str, names: Iterable[str], names_in: Listing) -> None:
    found = set(names)
    shown = printable(place)
    if "_delta_log" in found:
        raise OptionError(
            f"{shown} is a Delta table, and its folder also holds files that a later version has "
            "removed or replaced: read as plain files they would count again. In Python: "
            f"untilt.read_log(deltalake.DeltaTable({shown!r}))."
        )
    if ".hoodie" in found:
        raise OptionError(
            f"{shown} is a Hudi table, and its folder also holds older versions of its files: read "
            "as plain files they would count again. Read it with an engine that knows Hudi and "
            "write the rows to Parquet, or hand them over: untilt.read_log(arrow_table)."
        )
    metadata = f"{place}/metadata"
    if "metadata" in found and (newest := _newest(names_in(metadata))):
        raise OptionError(
            f"{shown} is an Iceberg table, and its folder also holds files that a later version "
            "has removed or replaced: read as plain files they would count again. In Python: "
            "untilt.read_log(pyiceberg.catalog.load_catalog(...).load_table('namespace.name')), or "
            "without a catalogue untilt.read_log(pyiceberg.table.StaticTable.from_metadata("
            f"{f'{printable(metadata)}/{newest}'!r}))."
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
    for _ in range(_LEVELS):
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
    marks = ("_delta_log", ".hoodie", "metadata")
    return [mark for mark in marks if os.path.isdir(os.path.join(folder, mark))]
