"""Options that name a place to write to. No command writes onto what it reads."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from untilt._core.addresses import without_secrets
from untilt._core.places import refuse_inputs
from untilt.errors import OptionError


@dataclass(frozen=True)
class Writes:
    """Stands in the annotation of an option whose path is written to.

    Parameters
    ----------
    names : what is written, where the path is a folder; with a slash at the end, folders in which
        everything may be
    beside_input : whether it may lie in a folder that the command is given
    """

    names: tuple[str, ...] = ()
    beside_input: bool = False


WRITES = Writes()

Force = Annotated[
    bool, typer.Option("--force", help="Replace files of these names that lie in the folder.")
]
Card = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Also write a model card of the ranker: Markdown, such as README.md."
    ),
    WRITES,
]
PlotIntervals = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw the intervals: .html, .png, .svg or .json."),
    WRITES,
]


def writes(parameter: Parameter) -> Writes | None:
    """What an option writes; None where it is no output."""
    marks = getattr(parameter.annotation, "__metadata__", ())
    return next((mark for mark in marks if isinstance(mark, Writes)), None)


def check_outputs(parameters: Iterable[Parameter], given: Mapping[str, Any]) -> None:
    """Raise where a command would write onto one of its inputs.

    An input is every other path that was given: there is no list of inputs to be forgotten in.
    """
    parameters = list(parameters)
    outputs = {p.name: mark for p in parameters if (mark := writes(p))}
    read = [given.get(p.name) for p in parameters if p.name not in outputs and _is_path(p)]
    files = [part for value in read for part in _parts(value)]
    places = {
        place: mark.beside_input
        for name, mark in outputs.items()
        if given.get(name) is not None
        for place in _places(given[name], mark)
    }
    for each in places:
        if re.match(r"(s3|postgres(ql)?):/", each):
            raise OptionError(
                f"results are written to this machine, and {without_secrets(each)} is no file of "
                "it. Choose a folder here, and copy them from there."
            )
    refuse_inputs([p for p, beside in places.items() if not beside], files)
    refuse_inputs(places, [each for each in files if not os.path.isdir(each)])


def _is_path(parameter: Parameter) -> bool:
    """By its type, or where it is a text by what stands for it in the help: FILE|CURVE."""
    kind, *marks = get_args(parameter.annotation) or (parameter.annotation,)
    named = next((str(mark.metavar) for mark in marks if hasattr(mark, "metavar")), "")
    return "Path" in str(kind) or any(word in named for word in ("FILE", "LOG", "TABLE", "PATH"))


def _places(path: Path, mark: Writes) -> list[str]:
    # A text: a Path has no slash at its end.
    return [os.path.join(path, name) for name in mark.names] or [os.fspath(path)]


def _parts(value: Any) -> Iterator[str]:
    """What may be a path in a value; of NAME=FILE the whole and the file.

    A text that names a folder may mean something else: a method, an experiment.
    """
    if isinstance(value, list | tuple):
        for each in value:
            yield from _parts(each)
    elif isinstance(value, Path):
        yield str(value)
    elif isinstance(value, str):
        yield from (each for each in (value, value.partition("=")[2]) if not os.path.isdir(each))
