"""Steps that are done once: each leaves a file with its result and what the result came from."""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from untilt._core import codec
from untilt._core.progress import progress
from untilt._version import __version__
from untilt.errors import FileFormatError
from untilt.facts import Fact
from untilt.report.step_results import StepTime
from untilt.selection.fitting import key_of
from untilt.workflow.folder import RunFolder

R = TypeVar("R")
KIND = "untilt step"
VERSION = 3  # of what steps write; a new one makes every step be done again


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of a step; its key, and whether an earlier run had done it."""

    name: str
    key: str
    result: R
    seconds: float
    resumed: bool


@dataclass(frozen=True)
class _File:
    """A further file that belongs to a result: its place in the folder, and what it held."""

    place: str
    size: int
    sha256: str

    @classmethod
    def at(cls, path: Path, place: str) -> "_File":
        """The file as it is now."""
        with path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
        return cls(place, path.stat().st_size, digest.hexdigest())

    def is_whole(self, path: Path) -> bool:
        """Whether the file is what it was: by its size first, which costs nothing."""
        try:
            return path.stat().st_size == self.size and self == _File.at(path, self.place)
        except OSError:
            return False


@dataclass(frozen=True)
class _Record:
    """What the file of a step holds; the result as plain data, of a class that the step knows."""

    step: str
    key: str
    seconds: float
    result: Any
    files: tuple[_File, ...] = ()


@dataclass
class Steps:
    """The steps of one folder, in the order they were asked for.

    A step's key is made of its name, of the options that it depends on and of the keys of the steps
    before it that it uses. `NAME.json` holds the key, the result and the SHA-256 of every further
    file that the step wrote. It is written last, whole or not at all: a run that is killed leaves
    finished steps and nothing else that counts. A changed option changes the keys of just those
    steps that depend on it. A file that was edited, damaged or removed does not fit its checksum:
    `tell` gets a word about it, and the step is done again.

    With `anew` every step is done again, whatever is there.

    A result is used as read back from its file in every case, so that a run that goes on sees what
    an undisturbed one sees.
    """

    folder: RunFolder
    tell: Callable[[str], None]
    anew: bool = False
    done: list[Done[Any]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What all steps so far took, those of earlier runs too."""
        return sum(step.seconds for step in self.done)

    @property
    def resumed(self) -> tuple[str, ...]:
        """The steps that an earlier run had done."""
        return tuple(step.name for step in self.done if step.resumed)

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
        files : which further files belong to a result; where one is not as the step left it, the
            step is done again
        """
        key = key_of(VERSION, __version__, name, *depends)
        done = None if self.anew else self._stored(name, kind, key, files)
        if done is None:
            start = time.monotonic()
            with progress(what):
                plain = codec.to_plain(compute())
            seconds = time.monotonic() - start
            result = codec.from_plain(kind, plain, where=name)
            written = tuple(_File.at(path, self._place(path)) for path in files(result))
            record = _Record(name, key, seconds, plain, written)
            sealed = codec.sealed(record, kind=KIND, version=VERSION)
            codec.write_json(self._path(name), sealed)
            done = Done(name, key, result, seconds, resumed=False)
        self.done.append(done)
        took = "done by an earlier run" if done.resumed else f"{done.seconds:.1f} s"
        self.tell(f"{what} ({took})")
        return done

    def _path(self, name: str) -> Path:
        return self.folder.steps / f"{name}.json"

    def _place(self, path: Path) -> str:
        return path.relative_to(self.folder.path).as_posix()

    def _stored(
        self, name: str, kind: type[R], key: str, files: Callable[[R], Iterable[Path]]
    ) -> Done[R] | None:
        path = self._path(name)
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
        except FileNotFoundError:
            return None
        except (FileFormatError, OSError) as error:
            self.tell(Fact("run.step-damaged", step=name, error=str(error).strip()))
            return None
        known = {each.place: each for each in record.files}
        for file in files(result):
            place = self._place(file)
            if place not in known or not known[place].is_whole(file):
                self.tell(Fact("run.file-damaged", step=name, file=place))
                return None
        return Done(name, key, result, record.seconds, resumed=True)
