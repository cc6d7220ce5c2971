"""`export_model` writes a ranker as the file of another engine; `check_export` compares its scores.

A format is a class with a record of the kind "export" in this folder. It says which forms of
rankers it can hold, under which endings, writes them, and reads the file back the way its engine
does, in `scores`.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt import catalog
from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.feature_table import OLD_RANK, feature_array, of_documents, with_old_rank
from untilt._core.files import replacing, write_text
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import ColumnError, FileFormatError, OptionError, ShapeError, did_you_mean
from untilt.exports.forms import Form, LinearForm, SingleArray, form_of
from untilt.facts import Fact, note
from untilt.rankers.base import Ranker

CONSTANT = note(
    "export.constant",
    "scores differ from those of predict by {constant:+.6g}, the same for every document",
)


READS_OLD_RANK = note(
    "export.reads-old-rank",
    "the model reads {feature:r}, which no document has: the engine must give the rank of each "
    "candidate in the old ranker's order, from 1",
)


@dataclass(frozen=True)
class Target:
    """Where a model goes: its file, and what the engine shall call it."""

    path: Path
    name: str

    def beside(self, ending: str) -> str:
        """The name of a file beside the model: model.json -> model.features.json."""
        return self.path.stem + ending


@dataclass(frozen=True)
class ExportFiles:
    """What a format writes.

    Parameters
    ----------
    model : text, or bytes
    beside : ending -> text of files that are ours
    templates : ending -> text of files that people fill in: one that is there is left as it is
    commands : what to run, in order
    notes : what the engine does otherwise
    """

    model: str | bytes
    beside: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    notes: tuple[Fact, ...] = ()


class Format:
    """Base of all formats.

    endings : form -> the ending of the file of such a ranker
    adds_constant : whether the constant of a linear ranker is part of its scores
    unsigned : whether the engine refuses features below 0
    """

    endings: ClassVar[Mapping[type[Any], str]]
    adds_constant: ClassVar[bool] = True
    unsigned: ClassVar[bool] = False

    @abstractmethod
    def files(self, form: Any, target: Target) -> ExportFiles:
        """The model and what belongs to it; `form` is one that `endings` names."""

    def lacks(self, form: Form) -> float:
        """What must be added to the engine's scores to get those of `predict`."""
        return form.constant if isinstance(form, LinearForm) and not self.adds_constant else 0.0

    @abstractmethod
    def scores(self, path: Path, names: tuple[str, ...], features: SingleArray) -> FloatArray:
        """Scores of rows by the written file, as the engine would give them."""


@dataclass(frozen=True)
class Exported:
    """What was written.

    Parameters
    ----------
    path : of the model
    to : the format
    beside, kept : files beside it that were written, and templates that were there already
    commands : what to run, in order
    notes : what the engine does otherwise
    """

    path: Path
    to: str
    beside: tuple[Path, ...]
    kept: tuple[Path, ...]
    commands: tuple[str, ...]
    notes: tuple[Fact, ...]


def export_model(
    ranker: Ranker, path: str | os.PathLike[str], to: str | None = None, *, name: str | None = None
) -> Path:
    """Write the model for a system that does not run untilt; returns the path.

    The scores there are those of `predict`, to the precision of the engine's numbers, for every
    row: at split values, one step beside them, at 0 and where values are missing. For linear
    rankers they may differ by a constant, which no ranking can see. `check_export` compares.

    Further files that the engine needs (feature definitions to fill in, the query) are written
    beside the model, and the commands to NAME.commands.sh.

    Parameters
    ----------
    ranker : boosted trees, a linear ranker or a network, fitted
    path : the model; its ending must be one of the format
    to : "es-ltr", "opensearch", "solr", "vespa", "onnx", "lightgbm", "xgboost", "linear" or "c";
        by the ending of the path where that is clear (.txt is LightGBM's, .onnx, .c, and .json the
        weights of a linear ranker)
    name : name of the model in the engine (default: the file's name without its ending)
    """
    return write_export(ranker, path, to, name=name).path


def write_export(
    ranker: Ranker, path: str | os.PathLike[str], to: str | None = None, *, name: str | None = None
) -> Exported:
    """Like `export_model`, with all that was written and the commands to use it."""
    place = Path(path)
    ranker._check_fitted()
    record, format, form = chosen(ranker, place, to)
    target = Target(place, name or plain_name(place.stem))
    if target.name != plain_name(target.name):
        raise OptionError(
            "a model's name must be letters, digits, - and _, because addresses contain it. Got "
            f"{name!r}; {plain_name(target.name)!r} would do."
        )
    files = format.files(form, target)
    texts = dict(files.beside)
    if files.commands:
        texts[".commands.sh"] = "".join(f"{line}\n" for line in files.commands)
    written, kept = [], []
    for ending, text in {**files.templates, **texts}.items():
        own = place.with_name(target.beside(ending))
        if ending in files.templates and own.exists():
            kept.append(own)
            continue
        write_text(own, text)
        written.append(own)
    model = files.model if isinstance(files.model, bytes) else files.model.encode()
    with replacing(place) as temporary:
        temporary.write_bytes(model)
    notes = [*files.notes]
    if lacks := format.lacks(form):
        notes.append(CONSTANT(constant=-lacks))
    if OLD_RANK in ranker.feature_names_:
        notes.append(READS_OLD_RANK(feature=OLD_RANK))
    return Exported(place, record.name, tuple(written), tuple(kept), files.commands, tuple(notes))


def written_beside(ranker: Ranker, path: Path, to: str | None) -> tuple[Path, ...]:
    """Every file that `write_export` may write, the model first; nothing is written."""
    _, format, form = chosen(ranker, path, to)
    target = Target(path, plain_name(path.stem))
    files = format.files(form, target)
    endings = [*files.templates, *files.beside, *([".commands.sh"] if files.commands else [])]
    return (path, *(path.with_name(target.beside(ending)) for ending in endings))


def chosen(ranker: Ranker, path: Path, to: str | None) -> tuple[catalog.Method, Format, Form]:
    """The format by name or ending, and the ranker in the form that it takes."""
    ranker._check_fitted()
    record = catalog.find("export", to, what="to") if to else _by_ending(ranker, path)
    format = format_of(record)
    form = form_of(ranker)
    ending = format.endings.get(type(form))
    if ending is None:
        raise OptionError(
            f"a {type(ranker).__name__} cannot be written for {record.title}: it is {form.what}. "
            f"Formats that take it: {', '.join(_fitting(form))}."
        )
    if path.suffix.lower() != ending:
        raise OptionError(
            f"the model for {record.title} is a file that ends in {ending}. Got {path.name!r}."
            f"{_other(form, path)}"
        )
    return record, format, form


def format_of(record: catalog.Method) -> Format:
    """The format behind a record."""
    made: Format = record.make()
    return made


def _by_ending(ranker: Ranker, path: Path) -> catalog.Method:
    fitting = _fitting(form_of(ranker))
    ours = [each for each, ending in fitting.items() if ending == path.suffix.lower()]
    records = [catalog.find("export", each) for each in ours]
    plain = [each for each in records if each.default or len(records) == 1]
    if len(plain) == 1:
        return plain[0]
    if ours:
        raise OptionError(
            f"{path.name!r} may be a model for {', '.join(ours)}. Say which: ⟦to={ours[0]!r}⟧."
        )
    known = ", ".join(f"{ending} ({each})" for each, ending in fitting.items())
    raise OptionError(
        f"a {type(ranker).__name__} cannot be written to {path.name!r}: its ending must be one of "
        f"{known}."
    )


def _fitting(form: Form) -> dict[str, str]:
    """Format -> ending, of the formats that take such a form."""
    formats = {record.name: format_of(record) for record in catalog.methods("export")}
    return {
        name: format.endings[type(form)]
        for name, format in formats.items()
        if type(form) in format.endings
    }


def _other(form: Form, path: Path) -> str:
    """The formats whose files have this ending, as a hint."""
    ours = [each for each, ending in _fitting(form).items() if ending == path.suffix.lower()]
    return f" {path.suffix} is for {', '.join(ours)}." if ours else ""


def plain_name(text: str) -> str:
    """The text with nothing in it that an address or a shell would take otherwise."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") or "model"


# Of the scores; 300 trees summed in single precision differ by about 1.5e-6.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class ExportCheck:
    """How far the scores of a written model are from those of its ranker.

    Parameters
    ----------
    to : the format
    rows, lists : that were scored
    largest : the largest difference of a score
    beyond : rows that differ by more than `TOLERANCE`, of the largest score where that is above 1
    reordered : lists in which two documents stand the other way round
    tied : lists in which two documents of different scores have equal ones in the engine, or stand
        the other way round though they are closer than the engine's numbers can tell
    closest : how close is too close to tell: 4 steps of a single float at the largest score
    negative : features that are negative somewhere, where the engine's features cannot be
    """

    to: str
    rows: int
    lists: int
    largest: float
    beyond: int
    reordered: int
    tied: int
    closest: float
    negative: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no row differs and no list changes."""
        return self.beyond == 0 and self.reordered == 0

    @property
    def works(self) -> bool:
        """Whether the check holds and the engine takes every value of these features."""
        return self.holds and not self.negative

    def __str__(self) -> str:
        return (
            f"{self.to}: {self.rows:,} rows in {self.lists:,} lists. Largest difference of a score "
            f"{self.largest:.1e}; {self.beyond:,} rows differ by more than {TOLERANCE:g}; "
            f"{self.reordered:,} lists change their order"
            + f"; refused for negative values: {', '.join(self.negative)}"
            * bool(self.negative)
        )


def check_export(
    ranker: Ranker,
    path: str | os.PathLike[str],
    sample: Any,
    to: str | None = None,
    *,
    indptr: Any = None,
) -> ExportCheck:
    """Score a sample by the written file, as its engine would, and compare with the ranker.

    Parameters
    ----------
    ranker, path, to : as given to `export_model`
    sample : a `ClickLog` or `JudgedLists` with features; or features, (rows, d) or a data frame
    indptr : (lists + 1,) where the lists of given features begin; one list where not given
    """
    record, format, form = chosen(ranker, Path(path), to)
    features, bounds = _rows(ranker, sample, indptr)
    wanted = ranker.predict(features)
    try:
        found = format.scores(Path(path), ranker.feature_names_, features)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"{path} is no model that untilt wrote for {record.title}: {error!r}. Export it again."
        ) from error
    negative: tuple[str, ...] = ()
    if format.unsigned:
        below = np.fmin.reduce(features, axis=0) < 0
        negative = tuple(np.array(form.names, object)[below])
    lacks = format.lacks(form)
    return compared(record.name, wanted, found, bounds, lacks=lacks, negative=negative)


def compared(
    to: str,
    wanted: FloatArray,
    found: FloatArray,
    indptr: IntArray,
    *,
    lacks: float = 0.0,
    negative: tuple[str, ...] = (),
) -> ExportCheck:
    """The differences of scores, `lacks` added to those found, and of the order within lists."""
    highest = np.nanmax(np.abs([wanted, found]), initial=0.0)
    found = found + lacks
    difference = np.abs(np.where(wanted == found, 0.0, found - wanted))
    difference[~np.isfinite(difference)] = np.inf
    scale = max(1.0, float(highest) if np.isfinite(highest) else 0.0)
    closest = 4 * float(np.spacing(np.float32(scale)))
    kinds = [_changed(wanted[a:b], found[a:b], closest) for a, b in pairwise(indptr)]
    return ExportCheck(
        to=to, rows=len(wanted), lists=len(indptr) - 1,
        largest=float(np.max(difference, initial=0.0)),
        beyond=int(np.sum(difference > TOLERANCE * scale)),
        reordered=sum(kind == 2 for kind in kinds), tied=sum(kind == 1 for kind in kinds),
        closest=closest, negative=negative,
    )  # fmt: skip


def _changed(wanted: FloatArray, found: FloatArray, closest: float) -> int:
    """0: the same order; 1: but for documents too close to tell; 2: another order.

    In the order of the ranker the engine's scores must fall. Where one is above an earlier one, the
    distance of the two in the ranker's scores says which it is.
    """
    order = np.argsort(-wanted, kind="stable")
    s, e = wanted[order], found[order]
    if len(s) < 2:
        return 0
    worst = 0
    highest = np.maximum.accumulate(e[::-1])[::-1]  # of this document and all that stand below
    for at in np.flatnonzero(highest[1:] >= e[:-1]):
        later = slice(at + 1, None)
        apart = s[at] - s[later][e[later] > e[at]]
        if np.any(apart > closest):
            return 2
        if np.any(apart > 0) or np.any((e[later] == e[at]) & (s[later] < s[at])):
            worst = 1
    return worst


def _rows(ranker: Ranker, sample: Any, indptr: Any) -> tuple[SingleArray, IntArray]:
    """Features as single floats in the order of training, and where lists begin."""
    names = ranker.feature_names_
    if isinstance(sample, ClickLog):
        if sample.features is None:
            raise OptionError("the sample has no features to score.")
        order = np.argsort(sample.doc_query, kind="stable")
        _, sizes = np.unique(sample.doc_query, return_counts=True)
        features = feature_array(sample, of_documents(names))[order]
        return _ranked(features, names, ragged.indptr_of(sizes))
    if isinstance(sample, JudgedLists):
        return _ranked(feature_array(sample, of_documents(names)), names, sample.indptr)
    features = feature_array(sample, names)
    if len(features) == 0:
        raise OptionError("the sample has no rows. Give some to compare scores on.")
    bounds = np.array([0, len(features)]) if indptr is None else np.asarray(indptr, np.int64)
    if bounds[0] != 0 or bounds[-1] != len(features) or np.any(np.diff(bounds) < 0):
        raise ShapeError(f"indptr must go from 0 to {len(features)}, without falling.")
    return features.astype(np.float32, copy=False), bounds


def _ranked(
    features: Any, names: tuple[str, ...], indptr: IntArray
) -> tuple[SingleArray, IntArray]:
    """The features with the old rank where it is one of the names, and where lists begin."""
    return with_old_rank(features, names, indptr).astype(np.float32, copy=False), indptr


def read_sample(
    path: Path, names: tuple[str, ...], columns: Mapping[str, str | None] | None = None
) -> tuple[SingleArray, IntArray]:
    """(features, indptr) of a file: a table with query_id and these columns, or LETOR text.

    columns : our names to theirs, such as {"query_id": "srch_id"}
    """
    if path.suffix == ".txt" or path.name.endswith(".txt.gz"):
        from untilt.data.letor.read_letor import read_letor

        judged = read_letor(path, missing="keep")
        return _ranked(feature_array(judged, of_documents(names)), names, judged.indptr)
    from untilt.data.read.database import open_database, quoted, translated_errors
    from untilt.data.read.files import located
    from untilt.data.read.sources import open_source

    files = located(path)
    with open_database(
        memory_limit=None, temp_directory=None, threads=None, files=files.names
    ) as database:
        source = open_source(database, files, "sample")
        known = names if source.has(OLD_RANK) else of_documents(names)
        theirs = {name: (columns or {}).get(name) or name for name in ("query_id", *known)}
        if unknown := sorted(set(columns or {}) - set(theirs)):
            raise OptionError(
                f"columns maps query_id and the features of the ranker. Got {unknown[0]!r}."
                f"{did_you_mean(unknown[0], list(theirs))}"
            )
        lost = [name for name in theirs if not source.has(theirs[name])]
        if lost:
            raise ColumnError(
                f"{source.what} has no column "
                f"{theirs[lost[0]]!r}{', a feature of the ranker' * (lost[0] != 'query_id')}"
                f".{did_you_mean(theirs[lost[0]], source.columns)} "
                f"Give a table with query_id, which groups rows into lists, and the {len(known)} "
                f"features. Map other names with ⟦columns={{{lost[0]!r}: ...}}⟧."
            )
        query, *own = theirs.values()
        table = source.load(tuple(theirs.values()), frozenset({query}))
        values = [
            f"coalesce(CAST({quoted(name)} AS FLOAT), 'nan'::FLOAT) AS f{n}"
            for n, name in enumerate(own)
        ]
        key = f"dense_rank() OVER (ORDER BY {quoted(query)}) AS list"
        with translated_errors(source.what):
            found = database.arrays(f"SELECT {', '.join([key, *values])} FROM {table}")
    order = np.argsort(found["list"], kind="stable")
    bounds = ragged.indptr_of(np.unique(found["list"], return_counts=True)[1])
    rows = np.column_stack([found[f"f{n}"][order] for n in range(len(own))])
    return _ranked(rows, names[len(known) :], bounds)
