"""Where an experiment's judged lists come from: made here, or a public set that the user has."""

import gzip
import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.random import child_generator
from untilt.data.judged import JudgedLists
from untilt.data.letor.parse import line_blocks
from untilt.data.letor.read_letor import Collector, read_letor
from untilt.errors import FileFormatError, OptionError, did_you_mean
from untilt.papers.schema import Size
from untilt.simulation.synthetic import make_judged

# Public learning-to-rank sets in the layout of their releases, checked before they are read.

LARGEST_DOUBLE = re.compile(rb":1\.797693134862\d*[eE]\+?308")
FAR = 10**38  # float32 has it; nothing else in these sets comes near
PARTS = 5  # LETOR's own cut: S1..S5, fold k trains on three of them and tests on one


@dataclass(frozen=True)
class Layout:
    """Files of a released data set.

    Parameters
    ----------
    name, title : the word for it on the command line, and what people call it
    train, test : files of a fold below the data's folder; `{fold}` stands for its number. Where
        several are named, they are read as one
    folds : how many there are, 1 where the release has no folds
    features : how many a document has
    dense : whether every line names every feature
    far_away : whether the largest double stands for "infinitely far away"
    inside : folder names that the release's archive may put around the files
    """

    name: str
    title: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    folds: int
    features: int
    dense: bool = True
    far_away: bool = False
    inside: tuple[str, ...] = ()

    def read(self, folder: Path, fold: int) -> tuple[JudgedLists, JudgedLists]:
        """(training, test) lists of one fold."""
        if not 1 <= fold <= self.folds:
            raise OptionError(f"{self.title} has folds 1..{self.folds}. Got {fold} instead.")
        train, test = (self._files(folder, names, fold) for names in (self.train, self.test))
        for path in (*train, *test):
            self._check_width(path)
        return self._read(train), self._read(test)

    def check(self, folder: Path) -> None:
        """Raise unless all files of all folds are there, with the right number of features."""
        for fold in range(1, self.folds + 1):
            for path in self._files(folder, (*self.train, *self.test), fold):
                self._check_width(path)

    def _files(self, folder: Path, names: tuple[str, ...], fold: int) -> list[Path]:
        wanted = [self._named(name, fold) for name in names]
        for root in (folder, *(folder / inside for inside in self.inside)):
            found = [_plain_or_gzip(root / name) for name in wanted]
            if all(path is not None for path in found):
                return [path for path in found if path is not None]
        raise FileFormatError(self._missing(folder, wanted))

    def _named(self, name: str, fold: int) -> str:
        """The file's name; {0}..{4} are LETOR's parts in the usual rotation."""
        rotation = [(fold - 1 + offset) % PARTS + 1 for offset in range(PARTS)]
        return name.format(*rotation, fold=fold)

    def _missing(self, folder: Path, wanted: list[str]) -> str:
        if not folder.is_dir():
            return f"{folder} is no folder. Give --path the folder that holds {self.title}."
        absent = [name for name in wanted if _plain_or_gzip(folder / name) is None]
        there = sorted(entry.name for entry in folder.iterdir())[:8]
        return (
            f"{folder} lacks {', '.join(absent)} of {self.title} (.gz is fine, too). It holds: "
            f"{', '.join(there) or 'nothing'}. Give --path the folder in which {absent[0]} lies."
        )

    def _check_width(self, path: Path) -> None:
        ids = _feature_ids(path)
        right = max(ids) == self.features if self.dense else max(ids) <= self.features
        if not right:
            limit = "" if self.dense else "at most "
            raise FileFormatError(
                f"{path} is not of {self.title}: its first line has features up to {max(ids)}, "
                f"and {self.title} has {limit}{self.features}. Check --data and --path."
            )

    def _read(self, paths: list[Path]) -> JudgedLists:
        if not self.far_away:
            return read_letor(paths, n_features=self.features)
        return _brought_near(_read_far(paths, self.features))


def _plain_or_gzip(path: Path) -> Path | None:
    zipped = path.with_name(f"{path.name}.gz")
    return path if path.is_file() else zipped if zipped.is_file() else None


def _feature_ids(path: Path) -> list[int]:
    """Feature ids of the first line that has any."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            words = line.partition(b"#")[0].split()
            ids = [word.partition(b":")[0] for word in words[1:] if not word.startswith(b"qid")]
            if ids and all(each.isdigit() for each in ids):
                return [int(each) for each in ids]
    raise FileFormatError(f"{path} holds no line with features. It must be LETOR text.")


def _read_far(paths: list[Path], n_features: int) -> JudgedLists:
    """As `read_letor`, with the largest double written as a number that float32 has."""
    collector = Collector(n_features=n_features, first_id=1)
    for path in paths:
        collector.start_file(str(path))
        for data in line_blocks(path):
            collector.add(LARGEST_DOUBLE.sub(b":%d" % FAR, data))
        collector.end_file()
    return collector.judged(None)


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


def folder_of(name: str, path: str | os.PathLike[str] | None) -> Path:
    """Where a data set lies: the folder given, or its own below UNTILT_DATA."""
    if path is not None:
        return Path(path)
    if "UNTILT_DATA" in os.environ:
        return Path(os.environ["UNTILT_DATA"]) / name
    raise OptionError(
        f"--data {name} needs the folder where it lies: --path FOLDER, or the folder above it in "
        "the environment variable UNTILT_DATA."
    )


# Three parts to learn from; {3} is for validation and {4} for the test, as LETOR has it.
_ROTATED: dict[str, Any] = {
    "train": tuple(f"S{{{part}}}.txt" for part in range(3)),
    "test": ("S{4}.txt",),
}
_FOLDED: dict[str, Any] = {"train": ("Fold{fold}/train.txt",), "test": ("Fold{fold}/test.txt",)}

LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("mq2008", "MQ2008", folds=5, features=46, **_ROTATED),
        Layout("ohsumed", "OHSUMED", folds=5, features=25, **_ROTATED),
        Layout(
            "mslr-sample", "the MSLR sample", ("train.txt",), ("test.txt",), folds=1, features=136
        ),
        Layout(
            "yahoo",
            "Yahoo set 1",
            ("set1.train.txt",),
            ("set1.test.txt",),
            folds=1,
            features=700,
            dense=False,
            inside=("ltrc_yahoo", "set1"),
        ),
        Layout(
            "mslr-web10k", "MSLR-WEB10K", folds=5, features=136, inside=("MSLR-WEB10K",), **_FOLDED
        ),
        Layout(
            "mslr-web30k", "MSLR-WEB30K", folds=5, features=136, inside=("MSLR-WEB30K",), **_FOLDED
        ),
        Layout(
            "istella",
            "Istella LETOR",
            ("train.txt",),
            ("test.txt",),
            folds=1,
            features=220,
            far_away=True,
            inside=("full", "istella-letor/full"),
        ),
        Layout(
            "istella-s",
            "Istella-S LETOR",
            ("train.txt",),
            ("test.txt",),
            folds=1,
            features=220,
            far_away=True,
            inside=("sample", "istella-s-letor/sample"),
        ),
    )
}

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
