"""Frozen dataclasses to plain JSON and back, by their own type hints.

Numbers that are not finite become null, because JSON has no other word for them. Reading checks
types and names: a file that was edited by hand gives an error that says where, not a broken page.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from untilt.errors import FileFormatError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dictionaries, lists, text, numbers, true, false and null."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str | int | NoneType):
        return value
    # NumPy's numbers and arrays know how to become Python's.
    items = value.tolist() if hasattr(value, "tolist") else list(value)
    return [to_plain(each) for each in items] if isinstance(items, list) else to_plain(items)


def from_plain(kind: type[T], plain: Any, *, where: str) -> T:
    """The dataclass `kind` that `to_plain` wrote; `where` begins the message of an error."""
    if not isinstance(plain, Mapping):
        raise FileFormatError(f"{where} must be an object. Found {_kind(plain)} instead.")
    hints = get_type_hints(kind)
    named = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(plain) - set(named))
    missing = sorted(
        name
        for name, field in named.items()
        if name not in plain and field.default is MISSING and field.default_factory is MISSING
    )
    if unknown or missing:
        raise FileFormatError(_names_message(where, kind, unknown, missing))
    return kind(**{name: _read(hints[name], plain[name], f"{where}.{name}") for name in plain})


def _read(hint: Any, plain: Any, where: str) -> Any:
    """One value of the type `hint`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = next(part for part in parts if part is not NoneType)
        return None if plain is None else _read(inner, plain, where)
    if origin is Literal:
        return plain if plain in parts else _refuse(where, f"one of {', '.join(parts)}", plain)
    if origin is tuple:
        items = plain if isinstance(plain, list | tuple) else _refuse(where, "a list", plain)
        return tuple(_read(parts[0], each, f"{where}[{i}]") for i, each in enumerate(items))
    if origin is not None:  # Mapping[str, ...]
        found = plain if isinstance(plain, Mapping) else _refuse(where, "an object", plain)
        return {str(key): _read(parts[1], each, f"{where}.{key}") for key, each in found.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return from_plain(hint, plain, where=where)
    return _scalar(hint, plain, where)


def _scalar(hint: Any, plain: Any, where: str) -> Any:
    if hint is float and isinstance(plain, int | float) and not isinstance(plain, bool):
        return float(plain)
    if hint is int and isinstance(plain, int) and not isinstance(plain, bool):
        return plain
    if hint in (str, bool) and isinstance(plain, hint):
        return plain
    names = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    return _refuse(where, names[hint], plain)


def _refuse(where: str, wanted: str, plain: Any) -> Any:
    raise FileFormatError(f"{where} must be {wanted}. Found {_kind(plain)} instead.")


def _kind(plain: Any) -> str:
    shown = repr(plain)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def _names_message(where: str, kind: type, unknown: list[str], missing: list[str]) -> str:
    parts = [f"{where} is no {kind.__name__} that this version of untilt knows."]
    if missing:
        parts.append(f"Missing: {', '.join(missing)}.")
    if unknown:
        parts.append(f"Unknown: {', '.join(unknown)}.")
    return " ".join([*parts, "Write it again with untilt run, or update untilt."])
