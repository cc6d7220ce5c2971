"""Public learning-to-rank sets in the layout of their releases, checked before they are read."""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

from untilt.errors import FileFormatError, OptionError

MADE = "made"  # the name of data made here
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

    def files(self, folder: Path, fold: int) -> tuple[list[Path], list[Path]]:
        """(training, test) files of one fold, checked to have the right number of features."""
        if not 1 <= fold <= self.folds:
            raise OptionError(f"{self.title} has folds 1..{self.folds}. Got {fold} instead.")
        train, test = (self._files(folder, names, fold) for names in (self.train, self.test))
        for path in (*train, *test):
            self._check_width(path)
        return train, test

    def check(self, folder: Path) -> None:
        """Raise unless all files of all folds are there, with the right number of features."""
        for fold in range(1, self.folds + 1):
            self.files(folder, fold)

    def _files(self, folder: Path, names: tuple[str, ...], fold: int) -> list[Path]:
        # {0}..{4} are LETOR's parts in the usual rotation.
        rotation = [(fold - 1 + offset) % PARTS + 1 for offset in range(PARTS)]
        wanted = [name.format(*rotation, fold=fold) for name in names]
        for root in (folder, *(folder / inside for inside in self.inside)):
            paths = [_plain_or_gzip(root / name) for name in wanted]
            there = [path for path in paths if path is not None]
            if len(there) == len(wanted):
                return there
        raise FileFormatError(self._missing(folder, wanted))

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
_ROTATED = (("S{0}.txt", "S{1}.txt", "S{2}.txt"), ("S{4}.txt",))
_FOLDED = (("Fold{fold}/train.txt",), ("Fold{fold}/test.txt",))
_PLAIN = (("train.txt",), ("test.txt",))

LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("mq2008", "MQ2008", *_ROTATED, folds=5, features=46),
        Layout("ohsumed", "OHSUMED", *_ROTATED, folds=5, features=25),
        Layout("mslr-sample", "the MSLR sample", *_PLAIN, folds=1, features=136),
        Layout(
            "yahoo", "Yahoo set 1", ("set1.train.txt",), ("set1.test.txt",), folds=1, features=700,
            dense=False, inside=("ltrc_yahoo", "set1"),
        ),
        Layout(
            "mslr-web10k", "MSLR-WEB10K", *_FOLDED, folds=5, features=136, inside=("MSLR-WEB10K",)
        ),
        Layout(
            "mslr-web30k", "MSLR-WEB30K", *_FOLDED, folds=5, features=136, inside=("MSLR-WEB30K",)
        ),
        Layout(
            "istella", "Istella LETOR", *_PLAIN, folds=1, features=220, far_away=True,
            inside=("full", "istella-letor/full"),
        ),
        Layout(
            "istella-s", "Istella-S LETOR", *_PLAIN, folds=1, features=220, far_away=True,
            inside=("sample", "istella-s-letor/sample"),
        ),
    )
}  # fmt: skip
