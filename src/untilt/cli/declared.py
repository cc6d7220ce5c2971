"""Options of commands: groups of them, single ones, and those that name a place to write to.

No command writes onto what it reads.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import ParameterInfo

from untilt import catalog
from untilt._core.addresses import without_secrets
from untilt._core.declared import EXPERT, Declared, as_number, declared, made
from untilt._core.places import refuse_inputs
from untilt.cli.console import Output, OutputOptions, speaking
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


# Kinds of methods in help texts: their names are read from the catalogue when help is shown.
KINDS = re.compile(r"\{([^}]+)\}")


@dataclass(frozen=True)
class Given:
    """Marks a dict of those options of a group that were typed, without the others."""

    group: type


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one option per field in place of each parameter that is a group.

    `reading: LogOptions` is written once, and Typer sees --documents, --column, --label and the
    others where it stands; in place of an `Output` it sees --json and --verbose. A command
    does not begin where it would write onto one of its inputs.
    """
    takes: list[Parameter] = []
    groups: dict[str, tuple[type, list[str], bool]] = {}
    out = ""
    for parameter in signature(command).parameters.values():
        if parameter.annotation is Output:
            out = parameter.name
            takes += parameters(OutputOptions)
            continue
        kind, *marks = get_args(parameter.annotation) or (parameter.annotation,)
        given = next((mark for mark in marks if isinstance(mark, Given)), None)
        group = kind if given is None else given.group
        if not (isinstance(group, type) and is_dataclass(group)):
            asked = parameter.default
            plain = asked.parameter(parameter) if isinstance(asked, Asked) else parameter
            takes.append(plain.replace(kind=Parameter.POSITIONAL_OR_KEYWORD))
            continue
        theirs = parameters(group, unset=given is not None)
        groups[parameter.name] = group, [each.name for each in theirs], given is None
        takes += theirs

    @wraps(command)
    def run(**given: Any) -> None:
        check_outputs(takes, given)
        for name, (group, names, whole) in groups.items():
            values = _parsed(group, {each: given.pop(each) for each in names})
            given[name] = made(group, values) if whole else values
        with speaking(as_json=given.pop("as_json"), verbose=given.pop("verbose")) as given[out]:
            command(**given)

    run.__signature__ = Signature(takes)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in takes}
    return run


@dataclass(frozen=True)
class Asked:
    """What stands for the default of an option or argument that one command has."""

    default: Any
    info: Callable[..., ParameterInfo]
    flags: tuple[str, ...] = ()
    writes: Writes | None = None

    def parameter(self, written: Parameter) -> Parameter:
        """The parameter as Typer takes it. A flag has no other half, such as --no-force."""
        name, kind = written.name.replace("_", "-"), written.annotation
        flags = self.flags or ((f"--{name}",) if kind is bool else ())
        marks = () if self.writes is None else (self.writes,)
        default = Parameter.empty if self.default is ... else self.default
        return written.replace(
            default=default, annotation=Annotated[(kind, self.info(*flags), *marks)]
        )


def option(
    default: Any, help: str, *flags: str, writes: Writes | None = None, panel: str | None = None,
    **more: Any,
) -> Any:  # fmt: skip
    """An option of one command, as its default: `top: int = option(3, "Positions.", min=1)`.

    Kinds of methods may stand in the help in braces: "{weighting|objective}" becomes their names
    where help is shown, and the shell completes them. `...` is the default of what must be given.
    """
    if KINDS.search(help):
        more = {"metavar": "NAME", "autocompletion": completion(help), **more}
    made = partial(typer.Option, help=help, rich_help_panel=panel, **more)
    return Asked(default, made, flags, writes)


def out_option(default: Any, help: str, metavar: str, writes: Writes = WRITES) -> Any:
    """The option --out of one command: a file or a folder that it writes."""
    return option(default, help, "--out", "-o", metavar=metavar, writes=writes)


def file_option(help: str, panel: str | None = None) -> Any:
    """An option of one command: a file that it writes as well."""
    return option(None, help, metavar="FILE", writes=WRITES, panel=panel)


GRADES = "Grades and labels"  # a panel of help texts
FORCE = option(False, "Replace files in the folder that have these names.", panel=EXPERT)
CARD = file_option("Also write a model card of the ranker (Markdown, such as README.md).")
PLOT = file_option("Draw the intervals (.html, .png, .svg or .json).")


def argument(default: Any, help: str, metavar: str, **more: Any) -> Any:
    """The same for what a command takes without a name."""
    return Asked(default, partial(typer.Argument, metavar=metavar, help=help, **more))


def completion(help: str) -> Callable[[str], list[str]]:
    """Completes names of methods of the kinds in the help."""
    named = [kinds for kinds in KINDS.findall(help) if not kinds.startswith("default ")]
    kinds = [kind for each in named for kind in each.split("|")]

    def complete(incomplete: str) -> list[str]:
        known = [each.name for each in catalog.methods() if each.kind in kinds]
        return [name for name in known if name.startswith(incomplete)]

    return complete


def parameters(group: type, *, unset: bool = False) -> list[Parameter]:
    """The options of a group that a command line has; `unset`: without their defaults."""
    return [
        Parameter(
            each.name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=_default(each, unset=unset),
            annotation=_annotation(each, optional=unset),
        )
        for each in declared(group).values()
        if (each.option and each.option.help)
        or any(isinstance(mark, ParameterInfo) for mark in each.marks)
    ]


def _parsed(group: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values that were given, as Python takes them."""
    found = {}
    for name, value in given.items():
        if value is not None:
            parse = _parser(declared(group)[name])
            found[name] = value if parse is None else parse(value)
    return found


def _parser(field: Declared) -> Callable[[Any], Any] | None:
    if field.option is None or field.option.parse is not None:
        return None if field.option is None else field.option.parse
    return as_number if _number_or_word(field) else None


def _default(field: Declared, *, unset: bool) -> Any:
    if unset or (field.default == () and field.option is not None):
        return None
    return field.default


def _annotation(field: Declared, *, optional: bool) -> Any:
    option = field.option
    if option is None:
        return Annotated[(field.kind, *field.marks)]
    kind = option.typed or _typed(field)
    ranged = kind in (int, float)
    more: dict[str, Any] = {"min": option.least, "max": option.most} if ranged else {}
    default = "" if field.default is None else str(field.default)
    told = option.help
    if optional and "default:" not in told and isinstance(field.default, str | int | float):
        # Typer tells defaults, but not of what is left out where it was not typed.
        told = f"{told.removesuffix('.')} (default: {default})."
    more |= {"help": told, "metavar": option.metavar, "rich_help_panel": option.panel}
    more |= option.more or {}
    if option.metavar == "NAME":
        more["autocompletion"] = completion(option.help)
    # A flag has no other half, such as --no-shadow.
    flag = option.flag or (f"--{field.name.replace('_', '-')}" if kind is bool else "")
    shown = typer.Option(*([flag] if flag else ()), **more)
    needs_none = optional or _default(field, unset=False) is None
    return Annotated[(kind | None if needs_none else kind, shown, *field.marks)]


def _number_or_word(field: Declared) -> bool:
    """Whether a number or a word such as "auto" is taken."""
    kinds = field.kinds
    return len(kinds) > 1 and any(get_origin(each) is Literal for each in kinds)


def _typed(field: Declared) -> Any:
    """The type on the command line."""
    if _number_or_word(field):
        return str
    several = any(get_origin(each) in (Sequence, tuple) for each in field.kinds)
    return list[str] if several else field.kinds[0]
