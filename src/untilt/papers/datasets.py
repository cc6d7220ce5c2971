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
from untilt.papers.layouts import LAYOUTS, MADE, FileLayout, folder_of, recognised
from untilt.papers.schema import ExperimentSize
from untilt.simulation.synthetic import make_judged

LARGEST_DOUBLE = re.compile(rb":1\.797693134862\d*[eE]\+?308")
FAR = 10**38  # float32 has it; nothing else in these sets comes near
TEST_SEED = 10_000  # test sets of data made here; far from every training seed


@dataclass(frozen=True)
class JudgedSource:
    """A data set by name, and the folder where it lies (None for generated data).

    `own` is the layout of a folder that is none of the known sets.
    """

    name: str = MADE
    folder: Path | None = None
    own: FileLayout | None = None

    @property
    def layout(self) -> FileLayout:
        """How its files are called."""
        return self.own or LAYOUTS[self.name]

    @property
    def title(self) -> str:
        """What people call it."""
        return "make_judged" if self.name == MADE else self.layout.title

    @property
    def folds(self) -> int:
        """Number of folds, 1 where there are none."""
        return 1 if self.name == MADE else self.layout.folds

    @property
    def found(self) -> str:
        """What was found in the folder, in a sentence; nothing for generated data."""
        if self.folder is None:
            return ""
        train, test = self.layout.files(self.folder, 1)
        files = ", ".join(str(path.relative_to(self.folder)) for path in (*train, *test))
        folds = f" and so on for {self.folds} folds" if self.folds > 1 else ""
        what = "data of your own" if self.own else self.title
        return f"{self.folder} holds {what}: {files}{folds}"

    def runs(self, size: ExperimentSize) -> list[tuple[int, int]]:
        """(seed, fold) of every run: seeds alone, or some seeds for every fold."""
        if self.folds == 1:
            return [(seed, 1) for seed in range(size.seeds)]
        folds = range(1, min(self.folds, size.folds) + 1)
        return [(seed, fold) for seed in range(size.fold_seeds) for fold in folds]

    def parts(
        self, *, seed: int, fold: int, size: ExperimentSize, most_queries: int | None
    ) -> tuple[JudgedLists, JudgedLists]:
        """(training, test) lists of one run.

        `most_queries` cuts a public set to so many training queries, drawn by the seed. Only what
        is drawn is ever held in memory.
        """
        if self.folder is None:
            return _made(seed, size)
        if most_queries is None:
            seed = 0  # nothing is drawn: all seeds share what was read
        return _read(self.layout, self.folder, fold, most_queries, seed)


def source_of(name: str, path: str | Path | None = None) -> JudgedSource:
    """The data set of that name, or the one that a folder holds; its files checked."""
    if name in (MADE, "make_judged"):
        if path is not None:
            raise OptionError("--path is for public data sets. Say which with --data.")
        return JudgedSource()
    if name in LAYOUTS:
        folder = folder_of(name, path)
        LAYOUTS[name].check(folder)
        return JudgedSource(name, folder)
    if path is not None:
        raise OptionError(
            f"--path is the folder of a public data set, and --data {name} names no public data "
            f"set. Give --data alone a folder, or one of: {', '.join(LAYOUTS)}."
        )
    if not Path(name).is_dir() and not re.search(r"[/\\.]", name):
        known = [MADE, *LAYOUTS]
        raise OptionError(
            f"there is no data set {name!r}, nor a folder.{did_you_mean(name, known)} "
            f"There are: {', '.join(known)}."
        )
    layout, folder = recognised(Path(name))
    return JudgedSource(layout.name, folder, None if layout.name in LAYOUTS else layout)


def _made(seed: int, size: ExperimentSize) -> tuple[JudgedLists, JudgedLists]:
    train, test = (
        make_judged(n_queries, size.features, seed=first + seed, mean_docs=size.mean_docs)
        for n_queries, first in ((size.queries, 10), (size.test_queries, TEST_SEED))
    )
    return train, test


@lru_cache(maxsize=1)  # one fold at a time: the largest sets take gigabytes
def _read(
    layout: FileLayout, folder: Path, fold: int, most: int | None, seed: int
) -> tuple[JudgedLists, JudgedLists]:
    train, test = (
        _read_files(tuple(paths), layout, most, seed) for paths in layout.files(folder, fold)
    )
    n_features = max(train.n_features, test.n_features)
    return _widened(train, n_features), _widened(test, n_features)


def _widened(judged: JudgedLists, n_features: int) -> JudgedLists:
    """Columns of zeros for features that no line of these files names."""
    missing = n_features - judged.n_features
    if missing == 0:
        return judged
    features = np.pad(judged.features, ((0, 0), (0, missing)))
    return replace(judged, features=features, feature_names=())


def _read_files(
    paths: tuple[Path, ...], layout: FileLayout, most: int | None, seed: int
) -> JudgedLists:
    """As `read_letor`, block by block; of `most` queries where a number is given.

    The largest double is first written as a number that float32 has.
    """
    width = layout.width(paths[0])
    drawn = None if most is None else _drawn(_n_queries(paths), most, seed)
    if drawn is None and not layout.far_away:
        return read_letor(paths, n_features=width)
    collector = Collector(n_features=width, first_id=1)
    seen: dict[bytes, int] = {}
    for path in paths:
        collector.start_file(str(path))
        for block in line_blocks(path):
            data = block if drawn is None else _only(block, drawn, seen)
            collector.add(LARGEST_DOUBLE.sub(b":%d" % FAR, data) if layout.far_away else data)
        if drawn is None:
            collector.end_file()
    judged = collector.judged(None)
    return _brought_near(judged) if layout.far_away else judged


def _drawn(n_queries: int, most: int, seed: int) -> frozenset[int] | None:
    """Which queries to read, by their place; None for all of them."""
    if n_queries <= most:
        return None
    return frozenset(child_generator(seed, 40).permutation(n_queries)[:most].tolist())


@lru_cache(maxsize=4)
def _n_queries(paths: tuple[Path, ...]) -> int:
    seen: dict[bytes, int] = {}
    for path in paths:
        for block in line_blocks(path):
            for line in block.split(b"\n"):
                _place(line, seen)
    return len(seen)


def _only(block: bytes, drawn: frozenset[int], seen: dict[bytes, int]) -> bytes:
    """The lines of drawn queries; the others are left blank, so that lines keep their numbers.

    A line without a query is kept: the parser says what is wrong with it.
    """
    lines = block.split(b"\n")
    places = (_place(line, seen) for line in lines)
    kept = (place is None or place in drawn for place in places)
    return b"\n".join(line if keep else b"" for line, keep in zip(lines, kept, strict=True))


def _place(line: bytes, seen: dict[bytes, int]) -> int | None:
    """Which query of the files a line belongs to, counted from 0 as they come."""
    words = line.split(None, 2)
    if len(words) < 2 or not words[1].startswith(b"qid:"):
        return None
    return seen.setdefault(words[1], len(seen))


def _brought_near(judged: JudgedLists) -> JudgedLists:
    """Features that are infinitely far as far as the farthest other document: linear rankers add
    them up. A column that is far everywhere says nothing, and becomes 0.
    """
    near = judged.features < np.float32(FAR)
    if near.all():
        return judged
    farthest = np.max(judged.features, axis=0, where=near, initial=-np.inf)
    farthest = np.where(np.isfinite(farthest), farthest, 0.0)
    return replace(judged, features=np.where(near, judged.features, farthest))
