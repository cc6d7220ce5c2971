"""Values of any kind as JSON that describes itself, and back: no type hints are needed.

What JSON has no word for stands in an object with one key that starts with "$":

    {"$float": "nan"}    {"$tuple": [...]}    {"$dict": [[key, value], ...]}
    {"$array": [...], "dtype": "<f8", "shape": [...]}      exact
    {"$fact": "area.code", "severity": "note", "template": "...", "fields": {...}}

A saved ranker or click model adds marks of its own (`untilt._core.saved`). Where the class of a
value is known beforehand, `untilt._core.codec` writes plainer JSON.
"""

import math
import os
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import AnyArray
from untilt.errors import FileFormatError, OptionError
from untilt.facts import Command, Fact, stored

_DTYPE = re.compile(r"[<>|=]?([biuf][0-9]{1,2}|U[0-9]{1,8})")  # numbers, and text of one width
_MOST_TEXT = 1 << 28  # bytes: each entry takes the width of the longest
_SIMPLE = (str, bool, int, type(None))


class TaggedEncoder:
    """Numbers, text, arrays, facts, lists, tuples and mappings; subclasses add objects.

    `said` words commands among the fields of facts.
    """

    def __init__(self, said: Callable[[str], str] = str) -> None:
        self.said = said

    def encode(self, value: Any, where: str) -> Any:  # noqa: PLR0911  one for each kind
        """The value as JSON; `where` names it in errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, Fact):
            record = value.record(self.said)
            del record["code"], record["template" if not value.template else "text"]
            return {"$fact": value.code, **record, "fields": self.encode(record["fields"], where)}
        if isinstance(value, Command):
            return self.said(value)
        if isinstance(value, _SIMPLE):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, Mapping):
            return self._mapping(value, where)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            entries = [self.encode(entry, f"{where}.{i}") for i, entry in enumerate(value)]
            return entries if isinstance(value, list) else {"$tuple": entries}
        return self.object(value, where)

    def array(self, value: AnyArray, where: str) -> Any:
        """An array of numbers, entry by entry."""
        if value.dtype.kind not in "biuf":
            raise cannot_save(value, where)
        if value.dtype.kind == "f":
            # A float32 or float16 is a double without loss; JSON prints doubles exactly.
            entries = [e if math.isfinite(e) else str(e) for e in value.astype(float).flat]
        else:
            entries = value.ravel().tolist()
        return {"$array": entries, "dtype": value.dtype.str, "shape": list(value.shape)}

    def object(self, value: Any, where: str) -> Any:
        """Anything else; none here."""
        raise cannot_save(value, where)

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self.encode(entry, f"{where}.{key}") for key, entry in value.items()}
        pairs = enumerate(value.items())
        return {"$dict": [self.encode(list(pair), f"{where}.{i}") for i, pair in pairs]}


class TaggedDecoder:
    """The way back. Raises `FileFormatError` for a mark that it does not know."""

    def decode(self, value: Any) -> Any:
        """The value that was encoded."""
        if isinstance(value, list):
            return [self.decode(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        marks = [key for key in value if key.startswith("$")]
        if not marks:
            return {key: self.decode(entry) for key, entry in value.items()}
        reader = self.READERS.get(marks[0])
        if reader is None:
            raise FileFormatError(f"it holds {marks[0]!r}, which this untilt cannot read.")
        return reader(self, value)

    def _array(self, value: dict[str, Any]) -> AnyArray:
        entries, shape, dtype = value["$array"], value["shape"], value["dtype"]
        sizes = shape if isinstance(shape, list) else [-1]
        if not isinstance(entries, list) or not all(type(n) is int and n >= 0 for n in sizes):
            raise FileFormatError("an array is no list of entries with a shape.")
        if math.prod(sizes) != len(entries):
            raise FileFormatError(f"an array of shape {sizes} has {len(entries):,} entries.")
        if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
            raise FileFormatError(f"an array is of type {str(dtype)[:40]!r}, which is not read.")
        kind = np.dtype(dtype)
        if kind.itemsize * len(entries) > _MOST_TEXT and kind.kind == "U":
            raise FileFormatError("an array of text is too wide.")
        return np.array(entries, dtype=kind).reshape(sizes)

    def _fact(self, value: dict[str, Any]) -> Fact:
        return fact_of(value["$fact"], self.decode(value["fields"]), value)

    READERS: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], Any]]] = {
        "$float": lambda _, value: float(value["$float"]),
        "$tuple": lambda self, value: tuple(self.decode(value["$tuple"])),
        "$dict": lambda self, value: dict(self.decode(value["$dict"])),
        "$array": _array,
        "$fact": _fact,
    }


def fact_of(code: Any, fields: Any, record: Mapping[str, Any]) -> Fact:
    """The fact of a record in a file: by its template, its text, or in old files by its code."""
    template, text = record.get("template", ""), record.get("text", "")
    texts = (code, template, text)
    whole = isinstance(fields, dict) and all(isinstance(t, str) for t in (*texts, *fields))
    parts = fields.get("parts", ()) if whole else ()
    if (
        not whole
        or not isinstance(parts, list | tuple)
        or not all(isinstance(part, Fact) for part in parts)
    ):
        raise FileFormatError(f"a fact is no code with fields and text: {reprlib.repr(code)}.")
    return stored(code, fields, severity=record.get("severity"), template=template, text=text)


def cannot_save(value: Any, where: str) -> OptionError:
    """The error for a value that no file can hold."""
    return OptionError(
        f"{where} is a {type(value).__name__}, which cannot be saved. Make it a dataclass and pass "
        "its class to untilt.register, or leave it out with set_params."
    )
