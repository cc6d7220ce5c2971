"""Where an experiment's judged lists come from: made here, or a public set that the user has."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from untilt._core.random import child_generator
from untilt.data.judged import JudgedLists
from untilt.data.letor.parse import line_blocks
from untilt.data.letor.read_letor import Collector, read_letor
from untilt.errors import OptionError, did_you_mean
from untilt.papers.layouts import LAYOUTS, MADE, Layout, folder_of
from untilt.papers.schema import Size
from untilt.simulation.synthetic import make_judged

LARGEST_DOUBLE = re.compile(rb":1\.797693134862\d*[eE]\+?308")
FAR = 10**38  # float32 has it; nothing else in these sets comes near
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
    train, test = (
        make_judged(n_queries, size.features, seed=first + seed, mean_docs=size.mean_docs)
        for n_queries, first in ((size.queries, 10), (size.test_queries, TEST_SEED))
    )
    return train, test


@lru_cache(maxsize=1)  # one fold at a time: the largest sets take gigabytes
def _read(name: str, folder: Path, fold: int) -> tuple[JudgedLists, JudgedLists]:
    layout = LAYOUTS[name]
    train, test = (_read_files(paths, layout) for paths in layout.files(folder, fold))
    return train, test


def _read_files(paths: list[Path], layout: Layout) -> JudgedLists:
    """As `read_letor`; the largest double is first written as a number that float32 has."""
    if not layout.far_away:
        return read_letor(paths, n_features=layout.features)
    collector = Collector(n_features=layout.features, first_id=1)
    for path in paths:
        collector.start_file(str(path))
        for data in line_blocks(path):
            collector.add(LARGEST_DOUBLE.sub(b":%d" % FAR, data))
        collector.end_file()
    return _brought_near(collector.judged(None))


def _brought_near(judged: JudgedLists) -> JudgedLists:
    """Features that are infinitely far as far as the farthest other document: linear rankers add
    them up. A column that is far everywhere says nothing, and becomes 0.
    """
    near = judged.features < FAR
    if near.all():
        return judged
    farthest = np.max(judged.features, axis=0, where=near, initial=-np.inf)
    farthest = np.where(np.isfinite(farthest), farthest, 0.0)
    return replace(judged, features=np.where(near, judged.features, farthest))


def _some(judged: JudgedLists, n: int, seed: int) -> JudgedLists:
    if judged.n_queries <= n:
        return judged
    drawn = child_generator(seed, 40).permutation(judged.n_queries)[:n]
    return judged.take(np.sort(drawn))
