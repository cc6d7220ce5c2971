"""Has the input changed? A fingerprint of files, cheap enough to take at every start."""

import glob
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from untilt._core.files import replacing

WHOLE = 1 << 30  # bytes of a file that are read in full: about a second
BLOCKS, BLOCK = 256, 1 << 20  # of a larger one, evenly spread


class FileDigests:
    """Digests of file contents, remembered by size and time so that each is read once.

    Up to 1 GiB the digest is of all bytes. A larger file is sampled, and its time of change is part
    of the fingerprint then, because a sample can miss an edit.
    """

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._known = self._remembered()

    def of(self, source: Any) -> list[Any] | None:
        """The fingerprint of a source of `read_log`; None where it is no file."""
        files = files_of(source)
        if files is None:
            return None
        found = [[file.name, *self._of_file(file)] for file in files]
        with replacing(self._memory) as temporary:
            temporary.write_text(json.dumps(self._known, indent=1), encoding="utf-8")
        return [*found, *_not_files(source)]

    def _of_file(self, file: Path) -> list[Any]:
        stat, name = file.stat(), os.path.abspath(file)
        seen = [stat.st_size, stat.st_mtime_ns]
        if self._known.get(name, [])[:2] != seen:
            self._known[name] = [*seen, digest_of(file)]
        size, time, digest = self._known[name]
        return [size, digest] if size <= WHOLE else [size, digest, time]

    def _remembered(self) -> dict[str, list[Any]]:
        try:
            known = json.loads(self._memory.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def files_of(source: Any) -> list[Path] | None:
    """The files behind a path, pattern, folder, list of these or (database, table); else None."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str | os.PathLike):
        return files_of(source[0])
    if isinstance(source, list):
        parts = [files_of(each) for each in source]
        return None if None in parts else [file for part in parts for file in part or ()]
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    found = [path] if path.is_file() else [Path(name) for name in sorted(glob.glob(str(path)))]
    return found or None


def _not_files(source: Any) -> list[str]:
    """The name of a table inside a database."""
    return [str(source[1])] if isinstance(source, tuple) else []


def digest_of(file: Path) -> str:
    """32 hexadecimal digits of the content, or of evenly spread blocks of it."""
    digest = hashlib.blake2b(digest_size=16)
    with file.open("rb") as content:
        size = os.fstat(content.fileno()).st_size
        for block in _blocks(content, size):
            digest.update(block)
    return digest.hexdigest()


def _blocks(content: Any, size: int) -> Iterator[bytes]:
    if size <= WHOLE:
        while block := content.read(BLOCK):
            yield block
        return
    for number in range(BLOCKS):
        content.seek((size - BLOCK) * number // (BLOCKS - 1))
        yield content.read(BLOCK)
