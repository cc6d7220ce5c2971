"""Values as JSON and parts, and back: numbers, text, arrays, and objects of known classes.

What JSON has no word for stands in an object with one key that starts with "$":

    {"$float": "nan"}    {"$tuple": [...]}    {"$dict": [[key, value], ...]}
    {"$array": [...], "dtype": "<f8", "shape": [...]}    small arrays, exact
    {"$part": "arrays/weights.npy"}                      large ones, in a file of their own
    {"$booster": "model.txt"}                            LightGBM's text
    {"$type": "IPS", "fields": {...}}                    an object of a known class
    {"$gone": "Generator"}                               had a state worth nothing later; None
"""

import io
import math
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from untilt._core.arrays import AnyArray
from untilt.bias.bias_json import from_fields, to_fields
from untilt.bias.position_bias import PositionBias
from untilt.errors import FileFormatError, OptionError
from untilt.rankers.base import Ranker
from untilt.rankers.persist_types import is_known, is_named_tuple, is_storable, known_class

Parts = dict[str, bytes]

_SMALL = 1000  # entries; larger arrays get a part of their own
_SIMPLE = (str, bool, int, type(None))


class Encoder:
    """Encodes values; arrays and models that get a file of their own are collected in `parts`."""

    def __init__(self) -> None:
        self.parts: Parts = {}

    def encode(self, value: Any, where: str) -> Any:
        """The value as JSON; `where` names it in errors and in the names of parts."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, _SIMPLE):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, Mapping):
            return self._mapping(value, where)
        if isinstance(value, (list, tuple)) and not is_named_tuple(type(value)):
            entries = [self.encode(entry, f"{where}.{i}") for i, entry in enumerate(value)]
            return entries if isinstance(value, list) else {"$tuple": entries}
        return self._object(value, where)

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self.encode(entry, f"{where}.{key}") for key, entry in value.items()}
        pairs = enumerate(value.items())
        return {"$dict": [self.encode(list(pair), f"{where}.{i}") for i, pair in pairs]}

    def _array(self, value: AnyArray, where: str) -> Any:
        if value.dtype.kind not in "biuf":
            raise _cannot_save(value, where)
        if value.size > _SMALL:
            return {"$part": self._part(f"arrays/{where}.npy", npy_bytes(value))}
        if value.dtype.kind == "f":
            # A float32 or float16 is a double without loss; JSON prints doubles exactly.
            entries = [e if math.isfinite(e) else str(e) for e in value.astype(float).flat]
        else:
            entries = value.ravel().tolist()
        return {"$array": entries, "dtype": value.dtype.str, "shape": list(value.shape)}

    def _object(self, value: Any, where: str) -> Any:
        if isinstance(value, PositionBias) and type(value) is PositionBias:
            return {"$type": "PositionBias", "fields": to_fields(value)}
        if is_known(value) and is_storable(type(value)):
            named = {name: getattr(value, name) for name in _field_names(type(value))}
            encoded = {name: self.encode(v, f"{where}.{name}") for name, v in named.items()}
            return {"$type": type(value).__name__, "fields": encoded}
        if type(value).__name__ == "Booster" and hasattr(value, "model_to_string"):
            return {"$booster": self._part("model.txt", value.model_to_string().encode())}
        if isinstance(value, (np.random.Generator, np.random.SeedSequence)):
            return {"$gone": type(value).__name__}
        raise _cannot_save(value, where)

    def _part(self, name: str, data: bytes) -> str:
        assert name not in self.parts
        self.parts[name] = data
        return name


class Decoder:
    """The way back. Raises `FileFormatError` for anything that `Encoder` does not write."""

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self._parts = parts

    def decode(self, value: Any) -> Any:
        """The value that was encoded."""
        if isinstance(value, list):
            return [self.decode(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        marks = [key for key in value if key.startswith("$")]
        if not marks:
            return {key: self.decode(entry) for key, entry in value.items()}
        reader = self._READERS.get(marks[0])
        if reader is None:
            raise FileFormatError(f"it holds {marks[0]!r}, which this untilt cannot read.")
        return reader(self, value)

    def _type(self, value: dict[str, Any]) -> Any:
        cls = known_class(value["$type"])
        if issubclass(cls, Ranker) or not is_storable(cls):
            raise FileFormatError(f"a {cls.__name__} cannot stand inside a saved ranker.")
        if cls is PositionBias:
            return from_fields(value["fields"])
        return cls(**{name: self.decode(entry) for name, entry in value["fields"].items()})

    def _array(self, value: dict[str, Any]) -> AnyArray:
        array = np.array(value["$array"], dtype=np.dtype(value["dtype"]))
        return array.reshape(value["shape"])

    def _part(self, name: str) -> bytes:
        if name not in self._parts:
            raise FileFormatError(f"its part {name!r} is missing.")
        return self._parts[name]

    def _booster(self, value: dict[str, Any]) -> Any:
        import lightgbm

        text = self._part(value["$booster"]).decode()
        try:
            return lightgbm.Booster(model_str=text)
        except lightgbm.basic.LightGBMError as error:
            raise FileFormatError(
                f"its tree model cannot be read by LightGBM {lightgbm.__version__} ({error}). "
                "The version that wrote it stands in untilt.json inside the file."
            ) from error

    _READERS: Mapping[str, Any] = {
        "$float": lambda _, value: float(value["$float"]),
        "$tuple": lambda self, value: tuple(self.decode(value["$tuple"])),
        "$dict": lambda self, value: dict(self.decode(value["$dict"])),
        "$array": _array,
        "$part": lambda self, value: from_npy_bytes(self._part(value["$part"])),
        "$booster": _booster,
        "$type": _type,
        "$gone": lambda _, __: None,
    }


def npy_bytes(array: AnyArray) -> bytes:
    """An array in NumPy's own format."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def from_npy_bytes(data: bytes) -> AnyArray:
    """The array; never unpickles."""
    array = np.load(io.BytesIO(data), allow_pickle=False)
    assert isinstance(array, np.ndarray)
    return array


def _field_names(cls: type) -> list[str]:
    if is_named_tuple(cls):
        return list(cls._fields)  # type: ignore[attr-defined]
    return [field.name for field in fields(cls) if field.init]


def _cannot_save(value: Any, where: str) -> OptionError:
    return OptionError(
        f"{where} is a {type(value).__name__}, which cannot be saved. Make it a dataclass and pass "
        "its class to untilt.rankers.persist.register, or leave it out with set_params."
    )
