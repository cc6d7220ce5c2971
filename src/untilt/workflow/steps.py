"""Steps that are done once: each leaves a file with its result and what the result came from."""

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
