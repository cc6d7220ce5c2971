"""Steps that are done once: each leaves a file with its result and what the result came from."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from untilt._core import codec
from untilt._core.progress import progress
from untilt._core.store import Store, key_of
from untilt._version import __version__
from untilt.errors import FileFormatError
from untilt.facts import warning
from untilt.report.step_results import StepTime
from untilt.workflow.folder import RunFolder

FILE_DAMAGED = warning(
    "run.file-damaged",
    "{step}: {file} is gone, or was changed after this step wrote it, so the step is done again",
)
STEP_DAMAGED = warning(
    "run.step-damaged",
    "{step}: the file of this step cannot be used, so it is done again ({error})",
)

R = TypeVar("R")
KIND = "untilt step"
VERSION = 4  # of what steps write; a new one makes every step be done again


@dataclass(frozen=True)
class Done(Generic[R]):
    """The result of a step; its key, and whether an earlier run had done it."""

    name: str
    key: str
    result: R
    seconds: float
    resumed: bool


@dataclass
class Steps:
    """The steps of one folder, in the order they were asked for.

    A step's key is made of its name, of the options that it depends on and of the keys of the steps
    before it that it uses: a changed option changes the keys of just those steps that depend on it.
    Where an entry or a file of it is damaged, `tell` gets a word about it, and the step is done
    again.

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
            self._store.write(name, key, plain, seconds=seconds, files=files(result))
            done = Done(name, key, result, seconds, resumed=False)
        self.done.append(done)
        took = "done by an earlier run" if done.resumed else f"{done.seconds:.1f} s"
        self.tell(f"{what} ({took})")
        return done

    @property
    def _store(self) -> Store:
        return Store(self.folder.steps, KIND, VERSION, root=self.folder.path)

    def _stored(
        self, name: str, kind: type[R], key: str, files: Callable[[R], Iterable[Path]]
    ) -> Done[R] | None:
        try:
            entry = self._store.read(name, key)
            if entry is None:
                return None
            result = codec.from_plain(kind, entry.result, where=f"{name}.json")
        except (FileFormatError, OSError) as error:
            self.tell(STEP_DAMAGED(step=name, error=str(error).strip()))
            return None
        damaged = self._store.damaged(entry, files(result))
        if damaged is not None:
            self.tell(FILE_DAMAGED(step=name, file=damaged))
            return None
        return Done(name, key, result, entry.seconds, resumed=True)
