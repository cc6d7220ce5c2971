"""The folder of a run: where each file lies."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

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
