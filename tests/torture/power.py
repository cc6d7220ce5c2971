"""Disks that forget and disks that fail, inside this process.

A power cut leaves of a file the bytes of its last sync, and of a folder the names of its last sync;
or the names of now, which many file systems write earlier than the bytes. `Forgetful` remembers
both, by watching `os.fsync`, and shows at every step what would be left. `lies`: a sync does
nothing, and every promise must then be seen to break.

`failing` lets the n-th call that reaches a folder fail: once, as a bad sector or a full disk does.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

CALLS = ("write", "fsync", "replace", "rename", "unlink", "ftruncate", "open", "link", "mkdir")
Look = Callable[[Path], None]


@dataclass
class Forgetful:
    """What a power cut would leave of a folder.

    look : asked at every step with a folder as it would be, in both worlds
    """

    root: Path
    scratch: Path
    look: Look
    lies: bool = False
    steps: int = 0
    _files: dict[int, bytes] = field(default_factory=dict)
    _folders: dict[int, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    _kept: list[int] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within, every step is looked at; what lay there before is on the disk."""
        for folder, _, names in os.walk(self.root):
            self._sync(folder)
            for name in names:
                self._sync(os.path.join(folder, name))
        calls: dict[str, Any] = {name: self._stepping(name) for name in CALLS[1:6]}
        with mock.patch.multiple(os, **calls):
            try:
                yield
                self._step()
            finally:
                for handle in self._kept:
                    os.close(handle)

    def _sync(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY)
        self._remember(handle)
        os.close(handle)

    def _remember(self, handle: int) -> None:
        # Open, so that no other file gets its number; by itself, so that it holds no lock.
        self._kept.append(_REAL["open"](f"/proc/self/fd/{handle}", os.O_RDONLY))
        known = os.fstat(handle)
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            with os.scandir(handle) as entries:
                self._folders[known.st_ino] = {
                    each.name: (each.inode(), each.is_dir(follow_symlinks=False))
                    for each in entries
                }
        else:
            self._files[known.st_ino] = os.pread(handle, known.st_size, 0)

    def _stepping(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*given: Any, **more: Any) -> Any:
            if name == "fsync":
                self._step()  # before it, all since the last one is at risk
            found = real(*given, **more)
            if name == "fsync" and not self.lies:
                self._remember(given[0])
            self._step()
            return found

        return call

    def _step(self) -> None:
        self.steps += 1
        for world in ("synced", "now"):
            place = self.scratch / f"{self.steps}-{world}"
            with mock.patch.multiple(os, **_REAL):
                place.mkdir(parents=True)
                self._leave(os.stat(self.root).st_ino, self.root, place, world)
                self.look(place)
                shutil.rmtree(place)

    def _leave(self, folder: int, path: Path | None, place: Path, world: str) -> None:
        entries = self._folders.get(folder, {})
        if world == "now" and path is not None:
            with os.scandir(path) as found:
                entries = {e.name: (e.inode(), e.is_dir(follow_symlinks=False)) for e in found}
        for name, (inode, is_folder) in entries.items():
            if is_folder:
                (place / name).mkdir()
                below = None if path is None else path / name
                self._leave(inode, below, place / name, world)
            else:
                (place / name).write_bytes(self._files.get(inode, b""))


_REAL: dict[str, Any] = {name: getattr(os, name) for name in CALLS}


@contextmanager
def failing(root: Path, number: int, error: int) -> Iterator[list[str]]:
    """The call of this number that reaches the folder fails; the calls that did, by name."""
    seen: list[str] = []

    def about(given: tuple[Any, ...]) -> bool:
        first = given[0]
        path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
        return path.startswith(str(root))

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if about(given):
                seen.append(name)
                if len(seen) == number:
                    raise OSError(error, os.strerror(error))
            return _REAL[name](*given, **more)

        return call

    calls: dict[str, Any] = {name: wrapped(name) for name in CALLS}
    with mock.patch.multiple(os, **calls):
        yield seen
