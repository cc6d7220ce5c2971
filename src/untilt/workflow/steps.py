"""Steps that are done once: each leaves a file that says what it came from."""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt._core.progress import progress
from untilt._version import __version__
from untilt.report.plain import to_plain
from untilt.selection.fitting import key_of

Files = Callable[[dict[str, Any]], Iterable[Path]]
FORMAT = 1  # of what steps write; a new one makes every step be done again


@dataclass(frozen=True)
class Done:
    """What a step found, as plain data; its key, and whether an earlier run had done it."""

    name: str
    key: str
    result: dict[str, Any]
    seconds: float
    resumed: bool


@dataclass
class Steps:
    """The steps of one folder, in the order they were asked for.

    A step's key is made of its name, of the options that it depends on and of the keys of the steps
    before it that it uses. `NAME.json` holds the key and the result, and is written last, whole or
    not at all: a run that is killed leaves finished steps and nothing else that counts. A changed
    option changes the keys of just those steps that depend on it.

    A result is used as read back from its file in every case, so that a run that goes on sees what
    an undisturbed one sees.
    """

    folder: Path
    tell: Callable[[str], None]
    done: list[Done] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What all steps so far took, those of earlier runs too."""
        return sum(step.seconds for step in self.done)

    def run(
        self,
        name: str,
        compute: Callable[[], dict[str, Any]],
        *depends: Any,
        what: str,
        files: Files | None = None,
    ) -> Done:
        """The result of a step: from its file where the key still fits, else computed now.

        Parameters
        ----------
        compute : does the work and returns plain data
        depends : options and keys of earlier steps
        what : what it does, for people ("estimating the bias")
        files : which further files belong to a result; where one is gone, it is computed again
        """
        key = key_of(FORMAT, __version__, name, *depends)
        found = self._stored(name, key, files)
        if found is None:
            start = time.monotonic()
            with progress(what):
                result = to_plain(compute())
            self._write(name, key, result, time.monotonic() - start)
            found = self._stored(name, key, files)
            assert found is not None
            found = Done(name, key, found.result, found.seconds, resumed=False)
        self.done.append(found)
        self._tell(what, found)
        return found

    def _write(self, name: str, key: str, result: Any, seconds: float) -> None:
        with replacing(self.folder / f"{name}.json") as temporary:
            record = {"step": name, "key": key, "seconds": seconds, "result": result}
            temporary.write_text(json.dumps(record, indent=1, allow_nan=False), encoding="utf-8")

    def _stored(self, name: str, key: str, files: Files | None) -> Done | None:
        try:
            found = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
            fits = found["key"] == key
            done = Done(name, key, dict(found["result"]), float(found["seconds"]), resumed=True)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        there = files is None or all(file.exists() for file in files(done.result))
        return done if fits and there else None

    def _tell(self, what: str, step: Done) -> None:
        told = "done by an earlier run" if step.resumed else f"{step.seconds:.1f} s"
        self.tell(f"{what} ({told})")
