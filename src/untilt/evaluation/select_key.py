"""A key of parameters and data: the same work has the same key, whatever it is called."""

import hashlib
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from untilt.errors import OptionError


def key_of(*things: Any) -> str:
    """40 hexadecimal digits that change with any value in the things, down to the last bit."""
    digest = hashlib.sha256()
    for thing in things:
        _add(digest, thing)
    return digest.hexdigest()[:40]


def _add(digest: Any, thing: Any) -> None:
    """Feed one value; every kind begins with its name, so that 1 and "1" differ."""
    digest.update(f"<{type(thing).__module__}.{type(thing).__qualname__}>".encode())
    if thing is None or isinstance(thing, bool | int | float | str | bytes | np.generic):
        digest.update(repr(thing).encode())
    elif isinstance(thing, np.ndarray) and thing.dtype != object:
        digest.update(f"{thing.dtype.str}{thing.shape}".encode())
        digest.update(np.ascontiguousarray(thing).data)
    elif isinstance(thing, list | tuple | np.ndarray):
        digest.update(f"{len(thing)}:".encode())
        for member in thing:
            _add(digest, member)
    elif isinstance(thing, Mapping):
        for name in sorted(thing, key=str):
            _add(digest, str(name))
            _add(digest, thing[name])
    else:
        _add_object(digest, thing)


def _add_object(digest: Any, thing: Any) -> None:
    # Two lambdas share one name, so a name with <lambda> or <locals> in it tells nothing.
    named = isinstance(thing, type | types.FunctionType) and "<" not in thing.__qualname__
    if named:
        digest.update(f"{thing.__module__}.{thing.__qualname__}".encode())
    elif isinstance(thing, type | types.FunctionType):
        _refuse(thing)
    elif hasattr(thing, "get_params"):
        _add(digest, thing.get_params(deep=False))
    elif is_dataclass(thing):
        _add(digest, {field.name: getattr(thing, field.name) for field in fields(thing)})
    elif getattr(thing, "__dict__", None):
        _add(digest, vars(thing))
    else:
        _refuse(thing)


def _refuse(thing: Any) -> None:
    raise OptionError(
        f"a {type(thing).__name__} among a candidate's parameters cannot be told from another, so "
        "results cannot be kept in a folder. Leave folder out, or use plain parameters."
    )
