"""A `PositionBias` as JSON: for a file that people can read, and inside a saved ranker."""

import json
import math
from dataclasses import fields
from typing import Any

import numpy as np

from untilt.bias.position_bias import PositionBias
from untilt.errors import FileFormatError, UntiltError

KIND = "untilt position bias"
VERSION = 1


def to_fields(bias: PositionBias) -> dict[str, Any]:
    """The fields as JSON values, arrays as lists; those that are None are left out."""
    values = {field.name: getattr(bias, field.name) for field in fields(bias)}
    return {name: _plain(value) for name, value in values.items() if value is not None}


def from_fields(values: dict[str, Any]) -> PositionBias:
    """The bias with these fields; raises `FileFormatError` where they cannot be one."""
    known = {field.name for field in fields(PositionBias)}
    if not isinstance(values, dict) or "examination" not in values:
        raise FileFormatError("a position bias must have the field 'examination'. It is missing.")
    if unknown := sorted(set(values) - known):
        raise FileFormatError(
            f"a position bias has no field {unknown[0]!r}. Upgrade untilt if a newer one wrote it."
        )
    try:
        return PositionBias(**{name: _restored(name, value) for name, value in values.items()})
    except (UntiltError, TypeError, ValueError) as error:
        raise FileFormatError(f"this is no position bias: {error}") from error


def to_json(bias: PositionBias) -> str:
    """JSON text with the kind and the version of the format."""
    header = {"kind": KIND, "version": VERSION}
    return json.dumps({**header, **to_fields(bias)}, indent=1, allow_nan=False) + "\n"


def from_json(text: str, *, where: str = "this text") -> PositionBias:
    """The bias that `to_json` wrote; `where` names the source in errors."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{where} is no JSON ({error}): it is damaged, cut short or something else. "
            "Write it again with bias.save(path)."
        ) from error
    if not isinstance(values, dict) or values.pop("kind", None) != KIND:
        raise FileFormatError(
            f'{where} is JSON, but no position bias of untilt: it lacks \'"kind": "{KIND}"\'. '
            "A curve of your own goes into ut.KnownBias([...])."
        )
    version = values.pop("version", None)
    if not isinstance(version, int) or version > VERSION:
        raise FileFormatError(
            f"{where} has version {version} of the format; this untilt reads up to {VERSION}. "
            "Upgrade untilt."
        )
    try:
        return from_fields(values)
    except FileFormatError as error:
        raise FileFormatError(f"{where}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()]
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no nan and no infinity
    return value


# Everything else is an array of numbers.
_TYPES: dict[str, type] = {
    "method": str, "status": str, "assumes": list, "relative": bool, "level": float,
    "eta": float, "eta_std_error": float,
}  # fmt: skip


def _restored(name: str, value: Any) -> Any:
    if name not in _TYPES:
        return np.array(value, dtype=float)  # reads "nan" and "inf" too
    if not isinstance(value, _TYPES[name]):
        raise FileFormatError(f"{name} must be {_TYPES[name].__name__}. Got {value!r} instead.")
    return tuple(map(str, value)) if isinstance(value, list) else value
