"""Array types, and arrays that cannot be written to."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

# The names tell the reader what an array holds. The element type stays open for the type checker:
# NumPy's own signatures widen it at nearly every operation, and casts would drown the formulas.
FloatArray = npt.NDArray[Any]
IntArray = npt.NDArray[Any]
BoolArray = npt.NDArray[Any]
AnyArray = npt.NDArray[Any]


def frozen(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> AnyArray:
    """A contiguous read-only array that shares no writable memory with its input.

    A writable input is copied: a view of it could change under the owner's feet.
    """
    array = np.ascontiguousarray(values, dtype=dtype)
    if array.flags.writeable or not _owns_frozen_memory(array):
        if _shares_memory(array, values):
            array = array.copy()
        array.flags.writeable = False
    return array


def handed_over(values: AnyArray, dtype: npt.DTypeLike | None = None) -> AnyArray:
    """Like `frozen`, without the copy: for arrays that the caller has just made and lets go."""
    array = np.ascontiguousarray(values, dtype=dtype)
    array.flags.writeable = False
    return array


def identifiers(values: npt.ArrayLike) -> AnyArray:
    """Ids of queries, documents or rankers: int64 where they are whole numbers, else text."""
    array = np.asarray(values)
    if array.dtype.kind in "iu":
        return frozen(array, np.int64)
    if array.dtype.kind in "US" or array.dtype == object:
        text = np.empty(array.shape, dtype=object)
        text[:] = [value if isinstance(value, str) else str(value) for value in array.tolist()]
        return handed_over(text)
    return identifiers(array.astype(str))


def frozen_mapping(columns: Mapping[str, npt.ArrayLike], dtype: npt.DTypeLike) -> Mapping[str, Any]:
    """A mapping of names to read-only arrays that itself cannot be changed."""
    return MappingProxyType({name: frozen(column, dtype) for name, column in columns.items()})


def _shares_memory(array: AnyArray, values: npt.ArrayLike) -> bool:
    return isinstance(values, np.ndarray) and np.may_share_memory(array, values)


def _owns_frozen_memory(array: AnyArray) -> bool:
    """No writable array looks into this memory: every base up to the owner is read-only."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return True
