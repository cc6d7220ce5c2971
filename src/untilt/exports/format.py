"""`export_model`: a ranker as the file that another engine reads, and what is needed beside it.

A format is a class with a record of the kind "export" in this folder. It says which forms of
rankers it can hold, under which endings, writes them, and reads the file back the way its engine
does, in `scores`.
"""

import os
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from untilt import catalog
from untilt._core.arrays import FloatArray
from untilt._core.files import replacing
from untilt.errors import OptionError
from untilt.exports.forms import Form, SingleArray, form_of
from untilt.facts import Fact, note
from untilt.rankers.base import Ranker

CONSTANT = note(
    "export.constant",
    "scores are {constant:+.6g} away from those of predict, the same for every document",
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
    ranker: Ranker,
    path: str | os.PathLike[str],
    to: str | None = None,
    *,
    name: str | None = None,
) -> Path:
    """Write the model alone, for a system that does not run untilt; returns the path.

    The scores there are those of `predict`, to the precision of the engine's numbers, for every
    row: at split values, one step beside them, at 0 and where values are missing. For linear
    rankers they may differ by a constant, which no ranking can see. `check_export` compares.

    Files that the engine needs beside the model (feature definitions to fill in, the query) stand
    beside it, and the commands in NAME.commands.sh.

    Parameters
    ----------
    ranker : boosted trees, a linear ranker or a network, fitted
    path : the model; its ending must be one of the format
    to : "es-ltr", "opensearch", "solr", "vespa", "onnx", "lightgbm", "xgboost", "linear" or "c";
        by the ending of the path where that is clear (.txt is LightGBM's, .onnx, .c, and .json the
        weights of a linear ranker)
    name : what the engine shall call the model; the file's name without its ending where not given
    """
    return write_export(ranker, path, to, name=name).path


def write_export(
    ranker: Ranker,
    path: str | os.PathLike[str],
    to: str | None = None,
    *,
    name: str | None = None,
) -> Exported:
    """Like `export_model`, with all that was written and the commands to use it."""
    place = Path(path)
    ranker._check_fitted()
    record, format, form = chosen(ranker, place, to)
    target = Target(place, name or plain_name(place.stem))
    if target.name != plain_name(target.name):
        raise OptionError(
            "a model's name must be letters, digits, - and _, as it stands in addresses. "
            f"Got {name!r}; {plain_name(target.name)!r} would do."
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
        with replacing(own) as temporary:
            temporary.write_text(text, encoding="utf-8")
        written.append(own)
    with replacing(place) as temporary:
        if isinstance(files.model, bytes):
            temporary.write_bytes(files.model)
        else:
            temporary.write_text(files.model, encoding="utf-8")
    return Exported(place, record.name, tuple(written), tuple(kept), files.commands, files.notes)


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
        f"a {type(ranker).__name__} cannot be written to {path.name!r}: its ending is none of "
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
