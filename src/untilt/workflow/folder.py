"""The folder of a run and its files.

Steps that are done once: each leaves a file with its result and what the result came from.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from untilt._core import codec
from untilt._core.files import clear_unfinished, remove_if_nothing, write_text
from untilt._core.progress import progress
from untilt._core.store import Store, key_of
from untilt._version import __version__
from untilt.errors import FileFormatError, OptionError
from untilt.facts import warning
from untilt.report.decision import FIGURES, PROVENANCE
from untilt.report.step_results import StepTime

# In `work/`: says whose folder it is.
CLAIM = "untilt-run.txt"
_CLAIMED = (
    "This folder belongs to `untilt run`, which replaces its own files beside and below this one.\n"
)


class _At:
    """A place in the folder, and in an instance its path."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __get__(self, folder: "RunFolder", _: object = None) -> Path:
        return folder.path / self.place


@dataclass(frozen=True)
class RunFolder:
    """Where each file of a run lies: what people look at in the folder, the rest in `work/`.

    Parameters
    ----------
    report, figures : the page to look at, and everything in it as JSON
    provenance : how and when it was computed: what differs from run to run of the same log
    audit, bias : what the log tells, and the bias that was used
    candidate, ranker : the chosen method, trained again; what of it is shipped, if anything
    order : without features, the documents of each query by their own clicks
    card : of the candidate, for people who get it without its report
    options : for `untilt run --config`
    tables : the figures as Parquet
    work : what a run needs to go on; `steps` are their results, `candidates` all trained rankers,
        `log` and `documents` the log as it was read, equal sessions merged
    """

    path: Path
    report = _At("report.html")
    figures = _At(FIGURES)
    provenance = _At(PROVENANCE)
    audit = _At("audit.json")
    bias = _At("bias.json")
    ranker = _At("ranker.untilt")
    candidate = _At("candidate.untilt")
    order = _At("order.csv")
    card = _At("ranker.md")
    options = _At("run.toml")
    tables = _At("tables")
    work = _At("work")
    log = _At("work/log.parquet")
    documents = _At("work/documents.parquet")
    candidates = _At("work/candidates")
    steps = _At("work/steps")

    @property
    def written(self) -> list[str]:
        """What a run writes: files, and with a slash at the end folders of its own."""
        own = [place for place in PLACES if "/" not in place and place not in ("tables", "work")]
        return [*(str(self.path / place) for place in own), f"{self.tables}/", f"{self.work}/"]

    def check(self, *, force: bool = False) -> None:
        """Raise where the folder cannot be used, or holds files and no run has been there."""
        if self.path.exists() and not self.path.is_dir():
            raise OptionError(f"{self.path} is a file. The results of a run need a folder.")
        clear_unfinished(self.path)
        clear_unfinished(self.work)
        found = _other_files(self.path)
        if found and not force and not self.is_ours:
            named = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise OptionError(
                f"{self.path} holds {named}, and no run has been there. Choose another "
                "folder, or ⟦pass force=True⟧ to replace files with the names of "
                "results, and no others."
            )

    @property
    def is_ours(self) -> bool:
        """Whether a run has been here: by its mark, or by its steps alone."""
        steps = self.steps.glob("*.json") if self.steps.is_dir() else ()
        return (self.work / CLAIM).is_file() or any(map(_is_step, steps))

    def mark_as_run_folder(self) -> None:
        """Note that this is the folder of a run, before anything else is written."""
        if not (self.work / CLAIM).is_file():
            remove_if_nothing(self.work / CLAIM)
            write_text(self.work / CLAIM, _CLAIMED)

    def clear_unfinished(self) -> None:
        """Remove what a killed run left half-written."""
        for place in (self.path, self.tables, self.work, self.steps, self.candidates):
            clear_unfinished(place)

    def remove_blockers(self) -> None:
        """Remove empty folders and links to nowhere that stand where files of a run go.

        What is not empty is somebody's: it stays, and writing there ends with an error.
        """
        places = [self.path / place for place in PLACES]
        for folder in (self.tables, self.work, self.steps, self.candidates):
            places += folder.iterdir() if folder.is_dir() else ()
        for path in places:
            if path.suffix in _SUFFIXES:
                remove_if_nothing(path)


PLACES = [each.place for each in vars(RunFolder).values() if isinstance(each, _At)]
_SUFFIXES = {Path(place).suffix for place in PLACES} - {""} | {".npy"}


def _other_files(folder: Path) -> list[str]:
    """What lies in a folder; an empty `work` is left by a run that was killed at its start."""
    if not folder.is_dir():
        return []
    names = sorted(os.listdir(folder))
    work = RunFolder(folder).work
    return [n for n in names if n != work.name or not work.is_dir() or any(work.iterdir())]


def _is_step(path: Path) -> bool:
    """Whether a file is the step of a run, by its first bytes: the rest may be damaged."""
    try:
        with path.open("rb") as file:
            return b'"untilt step"' in file.read(4096)
    except OSError:
        return False


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
        work: float | None = None,
    ) -> Done[R]:
        """The result of a step: from its file where the key still fits, else computed now.

        Parameters
        ----------
        kind : the class of the result
        depends : options and keys of earlier steps
        what : what it does, for people ("estimating the bias")
        files : which further files belong to a result; where one is not as the step left it, the
            step is done again
        work : how much tasks inside it will count, about; unknown where not given
        """
        key = key_of(VERSION, __version__, name, *depends)
        done = None if self.anew else self._stored(name, kind, key, files)
        if done is None:
            start = time.monotonic()
            with progress(what, total=work, inside=True):
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
