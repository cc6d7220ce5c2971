"""Finished work in a folder, so that what was stopped goes on where it was; keys; locks."""

import hashlib
import json
import os
import platform
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np

from untilt._core import codec
from untilt._core.files import lock, remove_if_nothing, unlock
from untilt.errors import OptionError


def file_digest(path: str | os.PathLike[str], advance: Callable[[int], Any] | None = None) -> str:
    """SHA-256 of a file's content; `advance` is called with the number of bytes read."""
    digest = hashlib.sha256()
    with open(path, "rb") as content:
        while block := content.read(1 << 22):
            digest.update(block)
            if advance is not None:
                advance(len(block))
    return digest.hexdigest()


@dataclass(frozen=True)
class StoredFile:
    """A further file of an entry: its place in the store's folder, and what it held."""

    place: str
    size: int
    sha256: str

    @classmethod
    def at(cls, path: Path, place: str) -> "StoredFile":
        """The file as it is now."""
        return cls(place, path.stat().st_size, file_digest(path))

    def is_whole(self, path: Path) -> bool:
        """Whether the file is what it was: by its size first, which costs nothing."""
        try:
            return path.stat().st_size == self.size and self == StoredFile.at(path, self.place)
        except OSError:
            return False


@dataclass(frozen=True)
class Entry:
    """One finished piece of work; the result as plain data, of a class that its reader knows."""

    name: str
    key: str
    seconds: float
    result: Any
    files: tuple[StoredFile, ...] = ()


@dataclass(frozen=True)
class Store:
    """Finished work of one kind: `NAME.json` for each entry, and the further files of each.

    The JSON holds the key of what the result came from, a checksum of itself and the SHA-256 of
    every further file. It is written last, whole or not at all: a process that is killed leaves
    finished entries and nothing else that counts. What was edited, damaged or removed does not fit
    its checksum, and is not used.

    Parameters
    ----------
    folder : where the entries lie
    kind, version : of what they hold; entries of another version count as not there
    root : what places of further files are relative to; the folder itself by default
    """

    folder: Path
    kind: str
    version: int
    root: Path | None = None

    def path(self, name: str) -> Path:
        """Where the entry of this name lies."""
        return self.folder / f"{name}.json"

    def place(self, file: Path) -> str:
        """A further file as its entry names it."""
        return file.relative_to(self.root or self.folder).as_posix()

    def read(self, name: str, key: str) -> Entry | None:
        """The entry with this key, or None; raises FileFormatError or OSError for a damaged one."""
        path = self.path(name)
        try:
            plain = codec.read_file(path, again="")
        except FileNotFoundError:
            return None
        if isinstance(plain, dict) and plain.get("version") != self.version:
            return None
        entry = codec.unsealed(
            plain, Entry, kind=self.kind, version=self.version, where=path.name, again="",
            strict=True,
        )  # fmt: skip
        return entry if entry.key == key else None

    def damaged(self, entry: Entry, files: Iterable[Path]) -> str | None:
        """The place of the first of these files that is not as the entry says; None without one."""
        known = {each.place: each for each in entry.files}
        for file in files:
            place = self.place(file)
            if place not in known or not known[place].is_whole(file):
                return place
        return None

    def write(
        self, name: str, key: str, result: Any, *, seconds: float, files: Iterable[Path] = ()
    ) -> Entry:
        """Keep a result, once its further files are written."""
        written = tuple(StoredFile.at(path, self.place(path)) for path in files)
        entry = Entry(name, key, seconds, codec.to_plain(result), written)
        sealed = codec.sealed(entry, kind=self.kind, version=self.version)
        codec.write_json(self.path(name), sealed)
        return entry


# Keys.


def key_of(*things: Any) -> str:
    """40 hexadecimal digits that change with any value in the things, down to the last bit.

    The same work has the same key, whatever it is called: parameters and data in, no names.
    """
    digest = hashlib.sha256()
    for thing in things:
        _add(digest, thing)
    return digest.hexdigest()[:40]


def _add(digest: Any, thing: Any) -> None:
    """Feed one value; every kind begins with its name, so that 1 and "1" differ."""
    digest.update(f"<{type(thing).__module__}.{type(thing).__qualname__}>".encode())
    if thing is None or isinstance(thing, bool | int | float | str | bytes | np.generic):
        digest.update(repr(thing).encode())
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        digest.update(f"{thing.dtype.str}{thing.shape}".encode())
        digest.update(np.ascontiguousarray(thing).data)
    elif isinstance(thing, list | tuple | np.ndarray):
        digest.update(f"{len(thing)}:".encode())
        for member in thing:
            _add(digest, member)
    elif isinstance(thing, Mapping):
        for name in sorted(thing, key=str):
            _add(digest, str(name))
            _add(digest, thing[name])
    elif isinstance(thing, type | types.FunctionType):
        # Two lambdas share one name, so a name with <lambda> or <locals> in it identifies nothing.
        if "<" in thing.__qualname__:
            _refuse(thing)
        digest.update(f"{thing.__module__}.{thing.__qualname__}".encode())
    elif hasattr(thing, "get_params"):
        _add(digest, thing.get_params(deep=False))
    elif is_dataclass(thing):
        _add(digest, {field.name: getattr(thing, field.name) for field in fields(thing)})
    elif getattr(thing, "__dict__", None):
        _add(digest, vars(thing))
    else:
        _refuse(thing)


def _refuse(thing: object) -> NoReturn:
    raise OptionError(
        f"a {type(thing).__name__} among a candidate's parameters has no value to compare by, so "
        "results cannot be kept in a folder. Leave folder out, or use plain parameters."
    )


# Locks.


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder above this file; refuse where another process that is alive holds it.

    The operating system keeps the lock and lets go of it when its process ends, however it ends,
    so a lock is never left over by a kill and no file of a dead process stands in the way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()  # what it leads to would be emptied
    remove_if_nothing(path)
    with path.open("a+", encoding="utf-8") as file:
        taken = _taken_on_windows(file) if os.name == "nt" else lock(file.fileno(), wait=False)
        if not taken:
            raise OptionError(
                f"another run works in {path.parent.parent}{_holder(path)}. Wait for it or stop "
                "it; a second one needs its own folder."
            )
        file.truncate(0)
        json.dump(
            {
                "process": os.getpid(),
                "machine": platform.node(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            },
            file,
        )
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            unlock(file.fileno())


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        by = json.loads(path.read_text(encoding="utf-8"))
        return f" (process {by['process']} on {by['machine']} since {by['since']})"
    return ""


def _taken_on_windows(file: TextIO) -> bool:
    import msvcrt

    # One byte far behind the text, so that others can still read who holds it.
    file.seek(1 << 20)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True
