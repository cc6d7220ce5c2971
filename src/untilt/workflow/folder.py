"""The folder of a run: where each file lies."""

import glob
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt.errors import OptionError

RESULTS = ("report.html", "figures.json", "audit.json", "bias.json", "ranker.untilt", "run.toml")
# `replacing` names its unfinished files so: a dot, the name, a dash, eight letters or digits.
_UNFINISHED = re.compile(r"\..+-[a-z0-9_]{8}(\..*)?")


@dataclass(frozen=True)
class RunFolder:
    """What people look at lies in the folder, what a run needs to go on in `work/`."""

    path: Path

    @property
    def report(self) -> Path:
        """The page to look at."""
        return self.path / "report.html"

    @property
    def figures(self) -> Path:
        """Everything in the report, as JSON."""
        return self.path / "figures.json"

    @property
    def audit(self) -> Path:
        """What the log can tell."""
        return self.path / "audit.json"

    @property
    def bias(self) -> Path:
        """The position bias that was used."""
        return self.path / "bias.json"

    @property
    def ranker(self) -> Path:
        """The ranker that was chosen."""
        return self.path / "ranker.untilt"

    @property
    def options(self) -> Path:
        """The options, for `untilt run --config`."""
        return self.path / "run.toml"

    @property
    def tables(self) -> Path:
        """The figures as Parquet."""
        return self.path / "tables"

    @property
    def work(self) -> Path:
        """What a run needs to go on."""
        return self.path / "work"

    @property
    def log(self) -> Path:
        """The log as it was read: equal sessions merged."""
        return self.work / "log.parquet"

    @property
    def documents(self) -> Path:
        """Its documents and features."""
        return self.work / "documents.parquet"

    @property
    def candidates(self) -> Path:
        """Rankers that were trained to choose from."""
        return self.work / "candidates"

    def check(self) -> None:
        """Raise where the folder cannot be used, or holds files of somebody else."""
        if self.path.exists() and not self.path.is_dir():
            raise OptionError(f"{self.path} is a file. The results of a run need a folder.")
        taken = [name for name in RESULTS if (self.path / name).exists()]
        if taken and not self.work.is_dir():
            raise OptionError(
                f"{self.path} holds {taken[0]}, and no run wrote it there. Choose another folder, "
                "so that nothing is overwritten."
            )

    def clear_unfinished(self) -> None:
        """Remove what a killed run left half-written; only the holder of the lock may do it."""
        for place in (self.path, self.tables, self.work, self.work / "steps", self.candidates):
            for name in os.listdir(place) if place.is_dir() else ():
                if _UNFINISHED.fullmatch(name):
                    (place / name).unlink(missing_ok=True)


# One run at a time in a folder.


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder; refuse where another process that is alive holds it.

    The operating system keeps the lock and lets go of it when its process ends, however it ends,
    so a lock is never left over by a kill and no file of a dead process stands in the way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        if not _taken(file):
            raise OptionError(
                f"another run works in {path.parent.parent}{_holder(path)}. Wait for it or stop "
                "it; a second one needs a folder of its own."
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
            _let_go(file)


def _holder(path: Path) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return f" (process {found['process']} on {found['machine']} since {found['since']})"
    return ""


def _taken(file: Any) -> bool:
    """Whether the lock could be had."""
    try:
        import fcntl
    except ImportError:
        return _taken_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _let_go(file: Any) -> None:
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _taken_on_windows(file: Any) -> bool:
    import msvcrt

    # One byte far behind the text, so that others can still read who holds it.
    file.seek(1 << 20)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True


# Has the input changed? A fingerprint of files, cheap enough to take at every start.

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
