"""The folder of a run: its files, its lock, and the steps that are done once and kept there."""

import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

from untilt._core import codec
from untilt._core.progress import progress
from untilt._version import __version__
from untilt.errors import FileFormatError, OptionError
from untilt.facts import Fact
from untilt.report.step_results import StepTime
from untilt.selection.fitting import key_of

# What people look at lies in the folder, what a run needs to go on in `work/`.
PLACES = {
    "report": "report.html", "figures": "figures.json", "audit": "audit.json",
    "bias": "bias.json", "ranker": "ranker.untilt", "options": "run.toml", "tables": "tables",
    "work": "work", "log": "work/log.parquet", "documents": "work/documents.parquet",
    "candidates": "work/candidates", "steps": "work/steps",
}  # fmt: skip
RESULTS = ("report", "figures", "audit", "bias", "ranker", "options")
# `replacing` names its unfinished files so: a dot, the name, a dash, eight letters or digits.
_UNFINISHED = re.compile(r"\..+-[a-z0-9_]{8}(\..*)?")


@dataclass(frozen=True)
class RunFolder:
    """Where each file of a run lies.

    Parameters
    ----------
    report, figures : the page to look at, and everything in it as JSON
    audit, bias, ranker : what the log tells, the bias that was used, the ranker that was chosen
    options : for `untilt run --config`
    tables : the figures as Parquet
    work : what a run needs to go on; `steps` are their results, `candidates` all trained rankers,
        `log` and `documents` the log as it was read, equal sessions merged
    """

    path: Path
    report: Path = field(init=False)
    figures: Path = field(init=False)
    audit: Path = field(init=False)
    bias: Path = field(init=False)
    ranker: Path = field(init=False)
    options: Path = field(init=False)
    tables: Path = field(init=False)
    work: Path = field(init=False)
    log: Path = field(init=False)
    documents: Path = field(init=False)
    candidates: Path = field(init=False)
    steps: Path = field(init=False)

    def __post_init__(self) -> None:
        for name, place in PLACES.items():
            object.__setattr__(self, name, self.path / place)

    def check(self) -> None:
        """Raise where the folder cannot be used, or holds files of somebody else."""
        if self.path.exists() and not self.path.is_dir():
            raise OptionError(f"{self.path} is a file. The results of a run need a folder.")
        taken = [PLACES[name] for name in RESULTS if (self.path / PLACES[name]).exists()]
        if taken and not self.work.is_dir():
            raise OptionError(
                f"{self.path} holds {taken[0]}, and no run wrote it there. Choose another folder, "
                "so that nothing is overwritten."
            )

    def clear_unfinished(self) -> None:
        """Remove what a killed run left half-written; only the holder of the lock may do it."""
        for place in (self.path, self.tables, self.work, self.steps, self.candidates):
            for name in os.listdir(place) if place.is_dir() else ():
                if _UNFINISHED.fullmatch(name):
                    (place / name).unlink(missing_ok=True)


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
        by = json.loads(path.read_text(encoding="utf-8"))
        return f" (process {by['process']} on {by['machine']} since {by['since']})"
    return ""


def _taken(file: TextIO) -> bool:
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


def _let_go(file: TextIO) -> None:
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)


def _taken_on_windows(file: TextIO) -> bool:
    import msvcrt

    # One byte far behind the text, so that others can still read who holds it.
    file.seek(1 << 20)
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True


# Steps that are done once: each leaves a file with its result and what the result came from.

R = TypeVar("R")
KIND = "untilt step"
VERSION = 2  # of what steps write; a new one makes every step be done again


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of a step; its key, and whether an earlier run had done it."""

    name: str
    key: str
    result: R
    seconds: float
    resumed: bool


@dataclass(frozen=True)
class _Record:
    """What the file of a step holds; the result as plain data, of a class that the step knows."""

    step: str
    key: str
    seconds: float
    result: Any


@dataclass
class Steps:
    """The steps of one folder, in the order they were asked for.

    A step's key is made of its name, of the options that it depends on and of the keys of the steps
    before it that it uses. `NAME.json` holds the key and the result, and is written last, whole or
    not at all: a run that is killed leaves finished steps and nothing else that counts. A changed
    option changes the keys of just those steps that depend on it. A file that was edited or
    damaged does not fit its checksum: `tell` gets a word about it, and the step is done again.

    A result is used as read back from its file in every case, so that a run that goes on sees what
    an undisturbed one sees.
    """

    folder: Path
    tell: Callable[[str], None]
    done: list[Done[Any]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What all steps so far took, those of earlier runs too."""
        return sum(step.seconds for step in self.done)

    @property
    def times(self) -> tuple[StepTime, ...]:
        """The steps so far and what they took."""
        return tuple(StepTime(step.name, step.seconds, step.resumed) for step in self.done)

    def run(
        self,
        name: str,
        kind: type[R],
        compute: Callable[[], R],
        *depends: Any,
        what: str,
        files: Callable[[R], Iterable[Path]] = lambda _: (),
    ) -> Done[R]:
        """The result of a step: from its file where the key still fits, else computed now.

        Parameters
        ----------
        kind : the class of the result
        depends : options and keys of earlier steps
        what : what it does, for people ("estimating the bias")
        files : which further files belong to a result; where one is gone, it is computed again
        """
        key = key_of(VERSION, __version__, name, *depends)
        done = self._stored(name, kind, key, files)
        if done is None:
            start = time.monotonic()
            with progress(what):
                result = codec.to_plain(compute())
            record = _Record(name, key, time.monotonic() - start, result)
            sealed = codec.sealed(record, kind=KIND, version=VERSION)
            codec.write_json(self.folder / f"{name}.json", sealed)
            done = Done(
                name, key, codec.from_plain(kind, result, where=name), record.seconds, False
            )
        self.done.append(done)
        took = "done by an earlier run" if done.resumed else f"{done.seconds:.1f} s"
        self.tell(f"{what} ({took})")
        return done

    def _stored(
        self, name: str, kind: type[R], key: str, files: Callable[[R], Iterable[Path]]
    ) -> Done[R] | None:
        path = self.folder / f"{name}.json"
        if not path.is_file():
            return None
        try:
            plain = codec.read_file(path, again="")
            if isinstance(plain, dict) and plain.get("version") != VERSION:
                return None  # by another version of untilt
            record = codec.unsealed(
                plain, _Record, kind=KIND, version=VERSION, where=path.name, again="", strict=True
            )
            if record.key != key:
                return None
            result = codec.from_plain(kind, record.result, where=path.name)
        except FileFormatError as error:
            self.tell(Fact("run.step-damaged", step=name, error=str(error).strip()))
            return None
        there = all(file.exists() for file in files(result))
        return Done(name, key, result, record.seconds, resumed=True) if there else None
