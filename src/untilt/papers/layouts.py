"""Public learning-to-rank sets in the layout of their releases, checked before they are read.

LETOR ([qin2013letor]_, with OHSUMED, [hersh1994ohsumed]_), MSLR, Yahoo ([chapelle2011yahoo]_) and
Istella. A folder of somebody's own is read, too, if its files have the names of one of them.
"""

import gzip
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from untilt.errors import FileFormatError, OptionError

MADE = "made"  # the name of data made here
PARTS = 5  # LETOR's own cut: S1..S5, fold k trains on three of them and tests on one


@dataclass(frozen=True)
class Form:
    """Names of the files of a fold below the data's folder.

    `{fold}` stands for its number, `{0}`..`{4}` for LETOR's parts in the usual rotation. Where
    several are named, they are read as one. `folds` is 1 where the release has none.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    folds: int = 1

    def names(self, fold: int) -> tuple[list[str], list[str]]:
        """(training, test) files of one fold."""
        rotation = [(fold - 1 + offset) % PARTS + 1 for offset in range(PARTS)]
        train, test = (
            [name.format(*rotation, fold=fold) for name in names]
            for names in (self.train, self.test)
        )
        return train, test

    def __str__(self) -> str:
        train, test = self.names(1)
        last = f" ... {self.names(self.folds)[1][-1]}" if self.folds > 1 else ""
        return ", ".join((*train, *test)) + last

    def missing(self, root: Path, fold: int) -> list[str]:
        """Files of the fold that are not below this folder, neither plain nor gzip."""
        train, test = self.names(fold)
        return [name for name in (*train, *test) if _plain_or_gzip(root / name) is None]

    def files(self, root: Path, fold: int) -> tuple[list[Path], list[Path]]:
        """(training, test) files that are there."""
        train, test = ([_plain_or_gzip(root / name) for name in part] for part in self.names(fold))
        return [path for path in train if path], [path for path in test if path]


@dataclass(frozen=True)
class FileLayout:
    """Files of a released data set.

    Parameters
    ----------
    name, title : the word for it on the command line, and what people call it
    forms : how its files may be called; the first that is there counts
    features : how many a document has, by version of the release; empty for any number
    dense : whether every line names every feature
    far_away : whether the largest double stands for "infinitely far away"
    inside : folder names that the release's archive may put around the files
    called : what a folder with it is called, where its files have names that others have, too
    """

    name: str
    title: str
    forms: tuple[Form, ...]
    features: tuple[int, ...] = ()
    dense: bool = True
    far_away: bool = False
    inside: tuple[str, ...] = ()
    called: tuple[str, ...] = ()

    @property
    def folds(self) -> int:
        """Number of folds, 1 where there are none."""
        return self.forms[0].folds

    def files(self, folder: Path, fold: int) -> tuple[list[Path], list[Path]]:
        """(training, test) files of one fold, checked to have the right number of features."""
        if not 1 <= fold <= self.folds:
            raise OptionError(f"{self.title} has folds 1..{self.folds}. Got {fold} instead.")
        train, test = self._files(folder, fold)
        for path in (*train, *test):
            self._check_width(path)
        return train, test

    def check(self, folder: Path) -> None:
        """Raise unless all files of all folds are there, with the right number of features."""
        for fold in range(1, self.folds + 1):
            self.files(folder, fold)

    def width(self, path: Path) -> int | None:
        """Number of features of a document; None where only the whole file can tell."""
        if not self.features:
            return None
        return max(_feature_ids(path)) if self.dense else max(self.features)

    def fits(self, path: Path) -> bool:
        """Whether the first line of a file has as many features as this set."""
        last = max(_feature_ids(path))
        fits = last in self.features if self.dense else last <= max(self.features, default=last)
        return not self.features or fits

    def _files(self, folder: Path, fold: int) -> tuple[list[Path], list[Path]]:
        roots = (folder, *(folder / inside for inside in self.inside))
        lacking = {(form, root): form.missing(root, fold) for form in self.forms for root in roots}
        (form, root), missing = min(lacking.items(), key=lambda each: len(each[1]))
        if missing:
            raise FileFormatError(self._missing(folder, missing))
        return form.files(root, fold)

    def _missing(self, folder: Path, absent: list[str]) -> str:
        if not folder.is_dir():
            return f"{folder} is no folder. Give --path the folder that holds {self.title}."
        return (
            f"{folder} lacks {', '.join(absent)} of {self.title} (.gz is fine, too). It holds: "
            f"{_entries(folder)}. Give the folder in which {absent[0]} lies."
        )

    def _check_width(self, path: Path) -> None:
        if not self.fits(path):
            limit = "" if self.dense else "at most "
            raise FileFormatError(
                f"{path} is not of {self.title}: its first line has features up to "
                f"{max(_feature_ids(path))}, and {self.title} has {limit}"
                f"{' or '.join(map(str, self.features))}. Check --data and --path."
            )


def _plain_or_gzip(path: Path) -> Path | None:
    zipped = path.with_name(f"{path.name}.gz")
    return path if path.is_file() else zipped if zipped.is_file() else None


def _entries(folder: Path) -> str:
    return ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"


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


def recognised(folder: Path) -> tuple[FileLayout, Path]:
    """Which data set a folder holds, by the names of its files, and the folder they lie in.

    Files such as train.txt and test.txt are those of several releases. Which one is decided by the
    number of features and by what the folders are called; where that does not tell, the data set
    is one of the user's own, named after the folder, with as many features as its files have.
    """
    form, root = _form_in(folder)
    first = form.files(root, 1)[0][0]
    words = [re.sub(r"\W|_", "", part.lower()) for part in root.resolve().parts[-3:]]
    fitting = [each for each in LAYOUTS.values() if form in each.forms and each.fits(first)]
    # The longest name that is there: "istellas" holds "istella", too.
    marks = {
        mark: each
        for each in fitting
        for mark in each.called or ("",)
        if any(mark in word for word in words)
    }
    own = FileLayout(_own_name(form, root), root.resolve().name, (form,), far_away=True)
    layout = marks[max(marks, key=len)] if marks else own
    layout.check(root)
    return layout, root


def _form_in(folder: Path) -> tuple[Form, Path]:
    """The form whose first fold is there, in the folder itself or in one up to two levels below."""
    if not folder.is_dir():
        raise FileFormatError(f"{folder} is no folder. Give --data a folder, or one of: {_names()}")
    levels = ([folder], sorted(folder.glob("*/")), sorted(folder.glob("*/*/")))
    for roots in levels:
        there = [(form, root) for root in roots for form in FORMS if not form.missing(root, 1)]
        others = {root for _, root in there[1:]} - {root for _, root in there[:1]}
        if others:
            both = ", ".join(sorted(str(root) for root in (*others, there[0][1])))
            raise FileFormatError(f"{folder} holds several data sets: {both}. Give one of them.")
        if there:
            return there[0]
    known = "; ".join(f"{form} ({', '.join(_with(form))})" for form in FORMS)
    raise FileFormatError(
        f"{folder} has no files of a known layout. It holds: {_entries(folder)}. Known are, plain "
        f"or with .gz: {known}."
    )


def _with(form: Form) -> list[str]:
    return [layout.title for layout in LAYOUTS.values() if form in layout.forms]


def _names() -> str:
    return ", ".join((MADE, *LAYOUTS))


def _own_name(form: Form, root: Path) -> str:
    """The folder's name with eight letters of its files' names and sizes.

    Results are kept under it: those of another folder with the same name are not mixed up with it.
    """
    folds = range(1, form.folds + 1)
    paths = sorted({path for fold in folds for part in form.files(root, fold) for path in part})
    sizes = "\n".join(f"{path.relative_to(root)} {path.stat().st_size}" for path in paths)
    word = re.sub(r"[^a-z0-9]+", "-", root.resolve().name.lower()).strip("-") or "data"
    return f"{word}-{hashlib.sha256(sizes.encode()).hexdigest()[:8]}"


# Three parts to learn from; {3} is for validation and {4} for the test, as LETOR has it.
_ROTATED = Form(("S{0}.txt", "S{1}.txt", "S{2}.txt"), ("S{4}.txt",), folds=5)
_FOLDED = Form(("Fold{fold}/train.txt",), ("Fold{fold}/test.txt",), folds=5)
_FOLDED_3 = Form(("Fold{fold}/trainingset.txt",), ("Fold{fold}/testset.txt",), folds=5)
_PLAIN = Form(("train.txt",), ("test.txt",))
_YAHOO = Form(("set1.train.txt",), ("set1.test.txt",))
_YAHOO_2 = Form(("set2.train.txt",), ("set2.test.txt",))
FORMS = (_YAHOO, _YAHOO_2, _FOLDED, _FOLDED_3, _ROTATED, _PLAIN)
_LETOR = (_ROTATED, _FOLDED, _FOLDED_3)

LAYOUTS = {
    layout.name: layout
    for layout in (
        FileLayout("mq2007", "MQ2007", _LETOR, (46,), inside=("MQ2007",), called=("mq2007",)),
        FileLayout(
            "mq2008", "MQ2008", _LETOR, (46,), inside=("MQ2008",), called=("mq2008",)
        ),
        # 25 features in LETOR 2.0 and 45 in LETOR 3.0.
        FileLayout(
            "ohsumed", "OHSUMED", _LETOR, (25, 45), inside=("OHSUMED",), called=("ohsumed",)
        ),
        FileLayout("mslr-sample", "the MSLR sample", (_PLAIN,), (136,), called=("mslrsample",)),
        FileLayout(
            "yahoo", "Yahoo set 1", (_YAHOO,), (700,), dense=False, inside=("ltrc_yahoo", "set1")
        ),
        FileLayout(
            "yahoo-2", "Yahoo set 2", (_YAHOO_2,), (700,), dense=False,
            inside=("ltrc_yahoo", "set2"),
        ),
        FileLayout(
            "mslr-web10k", "MSLR-WEB10K", (_FOLDED,), (136,), inside=("MSLR-WEB10K",),
            called=("web10k",),
        ),
        FileLayout(
            "mslr-web30k", "MSLR-WEB30K", (_FOLDED,), (136,), inside=("MSLR-WEB30K",),
            called=("web30k",),
        ),
        FileLayout(
            "istella", "Istella LETOR", (_PLAIN,), (220,), far_away=True,
            inside=("full", "istella-letor/full"), called=("istella",),
        ),
        FileLayout(
            "istella-s", "Istella-S LETOR", (_PLAIN,), (220,), far_away=True,
            inside=("sample", "istella-s-letor/sample"), called=("istellas",),
        ),
    )
}  # fmt: skip
