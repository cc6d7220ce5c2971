"""Estimators of position bias written as text: "shuffled-top:top=10,check=false".

Every option of a constructor can be written so, by the types that the constructor names. Text and
numbers stand as they are, "none" is no value, and what begins with a bracket is JSON:
widths=[64,32], ranker={"treatment": [2, 5], "control": "base"}.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from untilt import catalog
from untilt.bias.curve import PositionBias
from untilt.bias.estimator import BiasEstimator
from untilt.bias.given import Examination, curve_names, parse_curve
from untilt.errors import OptionError, did_you_mean

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
# A comma parts options where no bracket or quote is open around it.
_PART = re.compile(r"""(?:[^,\[{"]|\[[^\]]*\]|\{[^}]*\}|"[^"]*")+""")


class AskedEstimator(NamedTuple):
    """An estimator that was asked for by text, and its options."""

    kind: type[BiasEstimator]
    options: Mapping[str, Any]


def parse_estimator(text: str) -> AskedEstimator:
    """The estimator of "name" or "name:option=value,...".

    >>> asked = parse_estimator("shuffled-top:top=10,check=false")
    >>> asked.kind.__name__, dict(asked.options)
    ('ShuffledTop', {'top': 10, 'check': False})
    """
    name, colon, given = text.partition(":")
    kind: type[BiasEstimator] = catalog.find("bias", name).load()
    return AskedEstimator(kind, estimator_options(kind, _PART.findall(given) if colon else ()))


def estimator_options(kind: type[BiasEstimator], pairs: Iterable[str]) -> dict[str, Any]:
    """The options that "name=value" texts stand for, of the types that the constructor names."""
    hints, name = get_type_hints(kind.__init__), catalog.record_of(kind, "bias").name
    known = [each for each in kind().get_params() if each in hints]
    options: dict[str, Any] = {}
    for pair in pairs:
        option, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or option not in known:
            raise OptionError(
                f"{name} has no option {(option if equals else pair)!r}."
                f"{did_you_mean(option, known)} Options are written name=value: {', '.join(known)}."
            )
        if option in options:
            raise OptionError(f"the option {option!r} of {name} is given twice.")
        options[option] = _typed(value, hints[option], f"{option!r} of {name}")
    return options


def _typed(text: str, hint: Any, what: str) -> Any:
    """The text as one of the types of the hint, the narrowest first."""
    members, lower = _members(hint), text.lower()
    if NoneType in members and lower == "none":
        return None
    if text[:1] in ("{", "["):
        return _from_json(text, members, what)
    if bool in members and lower in _TRUTH:
        return _TRUTH[lower]
    for kind in (int, float):
        if kind in members and bool not in members:
            try:
                return kind(text)
            except ValueError:
                continue
    if Examination in members:
        return _curve(text, what)
    if str in members:
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


def _curve(text: str, what: str) -> Any:
    if text.partition(":")[0] in curve_names():
        return parse_curve(text)
    if Path(text).is_file():
        return PositionBias.load(text)
    raise OptionError(
        f"{what} must be a file of an estimate, or a curve ({', '.join(curve_names())}). "
        f"Got {text!r}, and there is no such file."
    )
