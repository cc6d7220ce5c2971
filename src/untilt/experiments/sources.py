"""Where an experiment's judged lists come from: made here, or a public set that the user has."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from untilt._core.random import child_generator
from untilt._core.suggest import did_you_mean
from untilt.errors import OptionError
from untilt.experiments.layouts import LAYOUTS, folder_of
from untilt.experiments.schema import Size
from untilt.logs.judged import JudgedLists
from untilt.simulation.synthetic import make_judged

MADE = "made"
TEST_SEED = 10_000  # test sets of data made here; far from every training seed


@dataclass(frozen=True)
class Source:
    """A data set by name, and the folder where it lies (None for data made here)."""

    name: str = MADE
    folder: Path | None = None

    @property
    def title(self) -> str:
        """What people call it."""
        return "make_judged" if self.name == MADE else LAYOUTS[self.name].title

    @property
    def folds(self) -> int:
        """Number of folds, 1 where there are none."""
        return 1 if self.name == MADE else LAYOUTS[self.name].folds

    def runs(self, size: Size) -> list[tuple[int, int]]:
        """(seed, fold) of every run: seeds alone, or some seeds for every fold."""
        if self.folds == 1:
            return [(seed, 1) for seed in range(size.seeds)]
        folds = range(1, min(self.folds, size.folds) + 1)
        return [(seed, fold) for seed in range(size.fold_seeds) for fold in folds]

    def parts(
        self, *, seed: int, fold: int, size: Size, most_queries: int | None
    ) -> tuple[JudgedLists, JudgedLists]:
        """(training, test) lists of one run.

        `most_queries` cuts a public set to so many training queries, drawn by the seed.
        """
        if self.folder is None:
            return _made(seed, size)
        train, test = _read(self.name, self.folder, fold)
        if most_queries is None:
            return train, test
        return _some(train, most_queries, seed), _some(test, most_queries, seed)


def source_of(name: str, path: str | Path | None = None) -> Source:
    """The data set of that name, its files checked."""
    if name in (MADE, "make_judged"):
        if path is not None:
            raise OptionError("--path is for public data sets. Say which with --data.")
        return Source()
    if name not in LAYOUTS:
        known = [MADE, *LAYOUTS]
        raise OptionError(
            f"there is no data set {name!r}.{did_you_mean(name, known)} "
            f"There are: {', '.join(known)}."
        )
    folder = folder_of(name, path)
    LAYOUTS[name].check(folder)
    return Source(name, folder)


def _made(seed: int, size: Size) -> tuple[JudgedLists, JudgedLists]:
    options = {"n_features": size.features, "mean_docs": size.mean_docs}
    return (
        make_judged(size.queries, seed=10 + seed, **options),  # type: ignore[arg-type]
        make_judged(size.test_queries, seed=TEST_SEED + seed, **options),  # type: ignore[arg-type]
    )


@lru_cache(maxsize=1)  # one fold at a time: the largest sets take gigabytes
def _read(name: str, folder: Path, fold: int) -> tuple[JudgedLists, JudgedLists]:
    return LAYOUTS[name].read(folder, fold)


def _some(judged: JudgedLists, n: int, seed: int) -> JudgedLists:
    if judged.n_queries <= n:
        return judged
    drawn = child_generator(seed, 40).permutation(judged.n_queries)[:n]
    return judged.take(np.sort(drawn))
