"""Options that are declared once: Python, the command line, TOML files and workers follow.

A group of options is a frozen dataclass with keyword-only fields. `Option` stands in the annotation
of a field and holds its help, its check and its form as text:

    top: Annotated[int | None, Option("Positions to read.", metavar="K", least=1)] = None

A field without `Option`, or with one without help, is an option of Python alone. `FIRST` of a group
names fields that come before the others. This module and the groups import neither NumPy nor a
method: `untilt --help` reads every group.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from untilt.errors import OptionError, UnknownOptionError, check_choice

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


_MOST_SHOWN = 200  # characters of a wrong value

# Panels of help texts; options of none of them are the common ones, which come first.
READING, EXPERT = "Reading the log", "Expert options"


@dataclass(frozen=True)
class Option:
    """What is said of an option beside its type and its default.

    Parameters
    ----------
    help, metavar, flag : for the command line; the flag where it is not the name with dashes
    panel : of the help that shows it, such as `READING` or `EXPERT`
    least, most : the range of a number
    must, hint : "NAME must {must}. Got VALUE instead. {hint}", where the type does not say it all
    fits : a further test of the value
    check : raises an error of its own, in place of the test of the type
    plain : turns what may be written in several ways into the value that is used
    typed, parse : type on the command line where it is another, and how its value is read
    more : further keywords of `typer.Option`
    """

    help: str = ""
    _: KW_ONLY
    metavar: str | None = None
    flag: str = ""
    panel: str | None = None
    least: float | None = None
    most: float | None = None
    must: str = ""
    hint: str = ""
    fits: Callable[[Any], bool] | None = None
    check: Callable[[Any], object] | None = None
    plain: Callable[[Any], Any] | None = None
    typed: Any = None
    parse: Callable[[Any], Any] | None = None
    more: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Declared:
    """A field of a group: its type, its default and its `Option`, if it has one.

    marks : whatever else stands in its annotation
    """

    name: str
    kind: Any
    default: Any
    option: Option | None
    marks: tuple[Any, ...]

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that a value may have, None apart."""
        union = get_origin(self.kind) in (Union, UnionType)
        return tuple(each for each in (get_args(self.kind) if union else (self.kind,))
                     if each not in (None, NoneType))  # fmt: skip


def declared(group: Any) -> Mapping[str, Declared]:
    """The fields of a group by name."""
    return _declared(group)


@cache
def _declared(group: Any) -> Mapping[str, Declared]:
    found = {}
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        option = next((each for each in marks if isinstance(each, Option)), None)
        others = tuple(each for each in marks if each is not option)
        default = Parameter.empty if field.default is MISSING else field.default
        found[field.name] = Declared(field.name, kind, default, option, others)
    first = [name for name in getattr(group, "FIRST", ()) if name in found]
    return MappingProxyType({name: found[name] for name in dict.fromkeys([*first, *found])})


def taking(group: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """A decorator: the function of one record becomes one of its fields, which are checked.

    Type checkers, `help` and `inspect` see the fields with their types and defaults. The wrapper is
    one frame of the stack.

    >>> @dataclass(frozen=True)
    ... class Cut:
    ...     text: str
    ...     _: KW_ONLY
    ...     size: Annotated[int, Option(least=1)] = 3
    >>> @taking(Cut)
    ... def cut(asked: Cut) -> str:
    ...     return asked.text[: asked.size]
    >>> cut("abcdef"), cut("abcdef", size=1)
    ('abc', 'a')
    """
    record = cast("type[Any]", group)
    takes, given = declared(record), signature(record).parameters
    parameters = sorted(
        (given[name].replace(annotation=each.kind) for name, each in takes.items()),
        key=lambda each: each.kind,
    )

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        returns = get_type_hints(function).get("return", Signature.empty)
        shown = Signature(parameters, return_annotation=returns)

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            if unknown := [each for each in options if each not in takes]:
                raise UnknownOptionError(function.__name__, unknown[0], takes)
            try:
                values = shown.bind(*args, **options).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}.") from None
            return function(made(record, values))

        call.__signature__ = shown  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        call.__annotations__["return"] = returns
        return call

    return decorate


def made(group: type[T], given: Mapping[str, Any]) -> T:
    """The record of these values, each in the form that is used and checked."""
    takes = declared(group)
    values = dict(given)
    for name, value in given.items():
        option = takes[name].option
        if option is not None and option.plain is not None and value is not None:
            values[name] = option.plain(value)
    options = group(**values)
    check(options)
    return options


def by_name(group: type, given: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Options whose names may be written with dashes; `where` begins the error of an unknown."""
    known = declared(group)
    named = {str(name).replace("-", "_"): value for name, value in given.items()}
    if unknown := [each for each in named if each not in known]:
        raise UnknownOptionError(where, unknown[0], known)
    return named


def check(options: Any) -> None:
    """Raise where an option of a record makes no sense."""
    for name, each in declared(type(options)).items():
        if each.option is not None:
            check_value(name, getattr(options, name), each.kind, each.option)


def check_value(name: str, value: Any, kind: Any, option: Option) -> None:
    """Raise unless a value is of this type and passes the tests of the option."""
    field = Declared(name, kind, None, option, ())
    if option.check is not None:
        option.check(value)
    elif value is None and NoneType in get_args(kind):
        return
    elif all(map(_is_choice, field.kinds)) and not option.must:
        check_choice(name, value, tuple(c for each in field.kinds for c in get_args(each)))
    elif not (_is(value, kind, option) and (option.fits is None or option.fits(value))):
        hint = f" {option.hint}" if option.hint else ""
        raise OptionError(f"{name} must {_must(field, option)}. Got {_short(value)} instead.{hint}")


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) <= _MOST_SHOWN else reprlib.repr(value)


def is_whole(value: object, least: float | None = None, most: float | None = None) -> bool:
    """Whether it is a whole number, of NumPy too, within a range. True and False are none."""
    return isinstance(value, Integral) and _is_within(value, least, most)


def _is_within(value: Any, least: float | None, most: float | None) -> bool:
    if isinstance(value, bool):
        return False
    return not (value != value or (least is not None and value < least)  # noqa: PLR0124  NaN
                or (most is not None and value > most))  # fmt: skip


def _is(value: Any, kind: Any, option: Option) -> bool:
    """Whether a value is of a type as annotations name them."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is(value, each, option) for each in args)
    if origin is Literal:
        return isinstance(value, str | Integral) and any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in args
        )
    if origin is tuple:
        sizes = ... in args or (isinstance(value, tuple) and len(value) == len(args))
        return isinstance(value, tuple) and sizes and all(_is(v, args[0], option) for v in value)
    if origin is Sequence:
        several = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return several and all(_is(each, args[0], option) for each in value)
    if kind in (int, float):
        number = isinstance(value, Integral if kind is int else Real)
        # A whole number of any size is no float.
        fits = kind is int or not isinstance(value, Integral) or abs(int(value)) < 2**63
        return number and fits and _is_within(value, option.least, option.most)
    return kind is Any or isinstance(value, origin or kind)


def _is_choice(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _must(field: Declared, option: Option) -> str:
    """What a value must be, by the types: "be 'auto' or a whole number of at least 1"."""
    if option.must:
        return option.must
    least, most = option.least, option.most
    within = "" if least is None else f" of at least {least:,}" if most is None else (
        f" from {least:,} to {most:,}"
    )  # fmt: skip
    number, whole = f"a number{within}", f"a whole number{within}"
    names = {str: "text", int: whole, float: number, bool: "true or false"}
    choices = [
        repr(choice) for each in field.kinds if _is_choice(each) for choice in get_args(each)
    ]
    others = [each for each in field.kinds if not _is_choice(each)]
    words = [*choices, *(names.get(each, "a list of names") for each in others)]
    return f"be {' or '.join(words)}"


def as_number(text: Any) -> Any:
    """The number that a text on the command line is, else the text, which the check may refuse."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def changed(options: Any, group: type) -> dict[str, Any]:
    """The options of a group that differ from their defaults, as a plain dict: for workers.

    A dict and no record: workers may have another version, which knows further options.
    """
    values = {name: getattr(options, name) for name in declared(group)}
    return {
        name: value for name, value in values.items() if value is not declared(group)[name].default
    }
