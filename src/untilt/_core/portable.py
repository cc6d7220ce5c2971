"""What is known and cannot change stays so in a copy: pickle, copy, joblib, another process."""

from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np


class Portable:
    """Base of frozen dataclasses that hold arrays: they pickle and copy, and stay read-only.

    NumPy gives every array that it unpickles or deep-copies back as writable, and a read-only
    mapping cannot be pickled at all. untilt itself never reads a pickle.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {name: _packed(value) for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, _unpacked(value))


class _ReadOnly(NamedTuple):
    """An array or mapping that is read-only; as a mapping, of packed values."""

    value: Any


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return _ReadOnly(value)
    if isinstance(value, MappingProxyType):
        return _ReadOnly({key: _packed(each) for key, each in value.items()})
    if type(value) is tuple:
        return tuple(_packed(each) for each in value)
    if type(value) is dict:
        return {key: _packed(each) for key, each in value.items()}
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, _ReadOnly) and isinstance(value.value, np.ndarray):
        value.value.flags.writeable = False
        return value.value
    if isinstance(value, _ReadOnly):
        return MappingProxyType(_unpacked(value.value))
    if type(value) is tuple:
        return tuple(_unpacked(each) for each in value)
    if type(value) is dict:
        return {key: _unpacked(each) for key, each in value.items()}
    return value
