"""Values that a file gave: of the type that their class declares, of one length, within range.

Compiled kernels do not check indices, and a network of the wrong shape fails far from its cause. So
what was restored from a file is checked once, when it is loaded, and trusted from then on.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from untilt.errors import FileFormatError

# Of the numbers an array holds, by what its hint says; a constructor may convert further.
_KINDS = {np.floating: "biuf", np.signedinteger: "biu", np.bool_: "b"}


def check_types(values: Mapping[str, Any], cls: type) -> None:
    """Raise where a value is not of the type that one of untilt's classes declares for it."""
    if not cls.__module__.startswith("untilt."):
        return  # hints of other people's classes may be wishes
    hints = get_type_hints(cls)
    for name, value in values.items():
        if name in hints and not fits(value, hints[name]):
            raise FileFormatError(
                f"its {name!r} of a {cls.__name__} is {_shown(value)}, which it cannot be."
            )


def fits(value: Any, hint: Any) -> bool:  # noqa: PLR0911  one for each kind
    """Whether a value is of a type; what cannot be known, such as a type variable, is."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in _kinds(parts)
    if origin is tuple:
        sizes_fit = parts[-1] is ... or (isinstance(value, tuple) and len(value) == len(parts))
        kinds = parts if parts[-1] is not ... else (parts[0],) * len(value)
        return isinstance(value, tuple) and sizes_fit and all(map(fits, value, kinds))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, parts[0]) and fits(each, parts[1]) for key, each in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, Sequence) and all(fits(each, parts[0]) for each in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and issubclass(hint, str):
        return isinstance(value, str)  # a fact is text, and older files hold its sentence
    is_class = isinstance(hint, type) and origin is None and not getattr(hint, "_is_protocol", 0)
    return isinstance(value, hint) if is_class and hint is not Any else True


def _kinds(parts: tuple[Any, ...]) -> str:
    (scalar,) = get_args(parts[1])
    scalar = get_origin(scalar) or scalar
    if scalar is Any:
        return "biufUO"
    return next(kinds for kind, kinds in _KINDS.items() if issubclass(scalar, kind))


def check_array(
    name: str,
    value: Any,
    shape: tuple[int | None, ...],
    *,
    low: float = -np.inf,
    high: float = np.inf,
    finite: bool = False,
) -> None:
    """Raise unless it is an array of numbers of this shape (None: any size) within this range.

    NaN lies in every range unless it must be finite.
    """
    wanted = f"({', '.join('any' if n is None else str(n) for n in shape)})"
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise FileFormatError(f"its {name!r} must be an array of numbers, not {_shown(value)}.")
    same = value.ndim == len(shape) and all(
        n in (None, found) for n, found in zip(shape, value.shape, strict=True)
    )
    if not same:
        raise FileFormatError(f"its {name!r} must be of shape {wanted}. Found {value.shape}.")
    if np.any(value < low) or np.any(value > high) or (finite and not np.isfinite(value).all()):
        limits = "finite" if finite else f"from {low:g} to {high:g}"
        raise FileFormatError(f"the numbers in its {name!r} must be {limits}.")


def check_number(name: str, value: Any, *, low: float = -np.inf, high: float = np.inf) -> None:
    """Raise unless it is a number in this range; NaN lies in none."""
    if not fits(value, float) or not low <= value <= high:
        raise FileFormatError(
            f"its {name!r} must be a number from {low:g} to {high:g}, not {_shown(value)}."
        )


def check_whole(name: str, value: Any, *, low: int, high: int) -> None:
    """Raise unless it is a whole number in this range."""
    if not fits(value, int) or not low <= value <= high:
        raise FileFormatError(
            f"its {name!r} must be a whole number from {low:,} to {high:,}, not {_shown(value)}."
        )


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, int | float | str):
        try:
            text = repr(value)
        except ValueError:  # more digits than Python prints
            text = "a long number"
        return text if len(text) <= 40 else f"{text[:37]}..."
    return f"a {type(value).__name__}"
