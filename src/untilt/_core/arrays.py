"""Array types, and arrays that cannot be written to."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from untilt.errors import OptionError, ShapeError

# Not NDArray: from NumPy 2.5 on that is a `type` statement, which hides what it stands for.
FloatArray = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
# float32 where a log or judged lists hold them.
FeatureArray = np.ndarray[tuple[Any, ...], np.dtype[np.floating[Any]]]
# int64, and int32 in the columns of a log: positions and indices of 100 million rows.
IntArray = np.ndarray[tuple[Any, ...], np.dtype[np.signedinteger[Any]]]
BoolArray = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
AnyArray = np.ndarray[tuple[Any, ...], np.dtype[Any]]
# What becomes of a missing feature: refused, kept as NaN, or replaced by a number.
Missing = float | Literal["keep"] | None


def frozen(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> AnyArray:
    """A contiguous read-only array that shares no writable memory with its input.

    A writable input is copied: a view of it could change under the owner's feet.
    """
    array = np.ascontiguousarray(_as_array(values, dtype))
    if array.flags.writeable or not _owns_frozen_memory(array):
        if _shares_memory(array, values):
            array = array.copy()
        array.flags.writeable = False
    return array


def _as_array(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> AnyArray:
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "an array" if dtype is None else f"an array of {np.dtype(dtype)}"
        raise ShapeError(f"values cannot become {wanted}: {error}.") from error


def handed_over(values: AnyArray, dtype: npt.DTypeLike | None = None) -> AnyArray:
    """Like `frozen`, without the copy: for arrays that the caller has just made and lets go."""
    array = np.ascontiguousarray(values, dtype=dtype)
    array.flags.writeable = False
    return array


def read_only_view(array: AnyArray) -> AnyArray:
    """The same memory for a kernel that only reads it.

    numba compiles a kernel anew for each mix of arrays that can and cannot be written to.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def identifiers(values: npt.ArrayLike) -> AnyArray:
    """Ids of queries, documents or rankers: int64 where they are whole numbers, else text."""
    array = _as_array(values)
    if array.ndim != 1:
        raise ShapeError(f"ids must be one flat list. Got an array of shape {array.shape} instead.")
    if array.dtype.kind in "iu" and np.can_cast(array.dtype, np.int64):
        return frozen(values, np.int64)
    members = array.tolist()
    if members and all(type(member) is int and abs(member) < 2**63 for member in members):
        return handed_over(np.array(members, dtype=np.int64))
    text = np.empty(array.shape, dtype=object)
    text[:] = [_as_text(member) for member in members]
    return handed_over(text)


def whole_numbers(values: npt.ArrayLike, dtype: npt.DTypeLike, *, what: str) -> AnyArray:
    """Like `frozen`, for indices, positions and counts: raises where a cast would change a value.

    NumPy would cut 1.5 to 1 and wrap 2**32 + 1 to 1 without a word.
    """
    given = _as_array(values)
    if given.dtype == object:
        given = _as_array(given.tolist())
    if given.size == 0 or np.can_cast(given.dtype, dtype):
        return frozen(values, dtype)
    if given.dtype.kind not in "iuf":
        raise ShapeError(f"{what} must hold whole numbers. Got values of type {given.dtype}.")
    with np.errstate(invalid="ignore"):
        array = given.astype(dtype)
    wrong = array != given
    if wrong.any():
        raise ShapeError(
            f"{what} must hold whole numbers that fit {np.dtype(dtype)}. "
            f"Got {given[wrong].flat[0]} instead."
        )
    return handed_over(array)


def check_same_shape(record: object, *names: str, ndim: int = 1) -> None:
    """Raise unless the arrays in these fields have one shape of so many dimensions."""
    shapes = {name: np.shape(getattr(record, name)) for name in names}
    wanted = shapes[names[0]]
    other = [name for name in names if shapes[name] != wanted]
    if len(wanted) != ndim:
        raise ShapeError(f"{names[0]} must have {ndim} dimensions. Got {len(wanted)} instead.")
    if other:
        raise ShapeError(
            f"{other[0]} must be as long as {names[0]}, {wanted}. Got {shapes[other[0]]} instead."
        )


def sum_by(index: npt.ArrayLike, values: npt.ArrayLike, size: int = 0) -> FloatArray:
    """Sum of the values per index: out[i] = sum of values[j] where index[j] = i, at least `size`.

    `np.bincount` with weights; its type says that it returns whole numbers.
    """
    sums: Any = np.bincount(index, weights=values, minlength=size)
    return sums


def _as_text(member: object) -> str:
    return member.decode() if isinstance(member, bytes) else str(member)


def _shares_memory(array: AnyArray, values: npt.ArrayLike) -> bool:
    """Whether the owner of `values` might still write to the array's memory.

    Lists and numbers are copied by NumPy itself; a column of a data frame may be handed out as it
    stands, so anything else that is no NumPy array counts as sharing.
    """
    if isinstance(values, np.ndarray):
        return np.may_share_memory(array, values)
    return not isinstance(values, list | tuple | range | int | float)


def _owns_frozen_memory(array: AnyArray) -> bool:
    """No writable array looks into this memory: every base up to the owner is read-only."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return True


def check_missing(missing: object) -> None:
    """Raise unless it is one of `Missing`, and a number that single precision can hold."""
    number = isinstance(missing, int | float) and not isinstance(missing, bool)
    if missing is None or (isinstance(missing, str) and missing == "keep"):
        return
    if number and abs(missing) <= float(np.finfo(np.float32).max):  # type: ignore[arg-type]
        return
    raise OptionError(
        "missing must be 'keep', for rankers that take missing features, or a finite number to "
        f"put in their place. Got {missing!r} instead."
    )


def varies(features: FeatureArray) -> bool:
    """Whether any column has two values; NaN is a value, equal to itself."""
    if len(features) == 0:
        return False
    first = features[0]
    differs = features != first
    differs &= ~(np.isnan(first) & np.isnan(features))
    return bool(differs.any())
