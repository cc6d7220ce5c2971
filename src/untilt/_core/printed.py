"""How values print: as `name:option=value,...` that reads back, and as tables of text."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from untilt.errors import OptionError, did_you_mean


def options_text(value: Any, *, without: Collection[str] = ()) -> str:
    """`:option=value,...` for the fields of a dataclass that differ from their defaults.

    Only numbers and text have a spelling; other fields (an array, a model) are left out.
    """
    shown = [field for field in fields(value) if field.name not in without]
    spelled = [
        f"{field.name}={_text(option)}"
        for field, option in zip(shown, (getattr(value, each.name) for each in shown), strict=True)
        if isinstance(option, str | int | float)
        and (field.default is MISSING or option != field.default)
    ]
    return ":" + ",".join(spelled) if spelled else ""


def parse_options(
    pairs: Iterable[str],
    kinds: Mapping[str, Any],
    what: str,
    *,
    others: Mapping[Any, Callable[[str, str], Any]] | None = None,
) -> dict[str, Any]:
    """The options of `option=value` texts, of the types that `kinds` names.

    Text and numbers stand as they are, "none" is no value, and what begins with a bracket is JSON.
    `others` read texts of further types: text and name of the option -> value.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        option, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or option not in kinds:
            raise OptionError(
                f"{what} has no option {(option if equals else pair)!r}."
                f"{did_you_mean(option, kinds)} Its options, written name=value: "
                f"{', '.join(kinds) or 'none'}."
            )
        if option in options:
            raise OptionError(f"the option {option!r} of {what} is given twice.")
        options[option] = _typed(value, kinds[option], f"{option!r} of {what}", others or {})
    return options


def option_pairs(text: str) -> list[str]:
    """The parts of "option=value,option=value"; commas in brackets and quotes part nothing."""
    return _PART.findall(text) or [text]


def option_kinds(kind: type, *, without: Collection[str] = ()) -> dict[str, Any]:
    """Types of the fields of a dataclass, by name."""
    hints = get_type_hints(kind)
    return {each.name: hints[each.name] for each in fields(kind) if each.name not in without}


_PART = re.compile(r"""(?:[^,\[{"]|\[[^\]]*\]|\{[^}]*\}|"[^"]*")+""")
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _typed(text: str, hint: Any, what: str, others: Mapping[Any, Callable[[str, str], Any]]) -> Any:
    """The text as one of the types of the hint, the narrowest first."""
    members, lower = _members(hint), text.lower()
    if NoneType in members and lower == "none":
        return None
    if text[:1] in ("{", "["):
        return _from_json(text, members, what)
    if bool in members:
        if lower in _TRUTH:
            return _TRUTH[lower]
    else:
        for kind in (int, float):
            if kind in members or (Any in members and kind is float):
                with suppress(ValueError):
                    return kind(text)
    for kind, read in others.items():
        if kind in members:
            return read(text, what)
    if any(each in (str, Any) or get_origin(each) is Literal for each in members):
        return text
    wanted = [_WORDS[each] for each in members if each in _WORDS]
    in_brackets = any(get_origin(each) or is_dataclass(each) for each in members)
    wanted += ["JSON in brackets"] if in_brackets else []
    raise OptionError(f"{what} must be {' or '.join(wanted)}. Got {text!r} instead.")


def _members(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(member for each in get_args(hint) for member in _members(each))
    return (hint,)


def _from_json(text: str, members: tuple[Any, ...], what: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"{what} is no JSON: {error}. Got {text!r}.") from error
    if isinstance(value, list):
        return tuple(value)
    record: Any = next((each for each in members if is_dataclass(each)), None)
    return value if record is None else record(**value)


def _text(value: str | float) -> str:
    """As short as it can be and still read back as the same value."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)
