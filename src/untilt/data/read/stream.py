"""Rows of a DuckDB relation as NumPy arrays, piece by piece, through Arrow's C interface.

That interface is three structures of C, which `ctypes` reads: pyarrow, 170 MB, would do no more
here. [Arrow C data interface](https://arrow.apache.org/docs/format/CDataInterface.html), and its
stream. What is handed out is copied before its owner releases it.
"""

import ctypes
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from untilt._core.arrays import AnyArray, BoolArray, IntArray

Pieces = dict[str, AnyArray]

# Arrow's names of the types whose values stand in memory as NumPy has them.
_PLAIN = {
    "c": np.int8, "C": np.uint8, "s": np.int16, "S": np.uint16, "i": np.int32, "I": np.uint32,
    "l": np.int64, "L": np.uint64, "f": np.float32, "g": np.float64,
}  # fmt: skip
_TIMES = {"tss": "s", "tsm": "ms", "tsu": "us", "tsn": "ns"}
_TEXT = {"u": np.int32, "U": np.int64}  # and the type of their offsets


class _Schema(ctypes.Structure):
    """ArrowSchema: the type and the name of a column, or of a row with its columns."""


class _Array(ctypes.Structure):
    """ArrowArray: values of a column, or of a row with its columns."""


class _ArrayStream(ctypes.Structure):
    """ArrowArrayStream: hands out arrays of one schema, one after the other."""


_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", _Release),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", _Release),
    ("private_data", ctypes.c_void_p),
]
_Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_ArrayStream._fields_ = [
    ("get_schema", _Get),
    ("get_next", _Get),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)),
    ("release", _Release),
    ("private_data", ctypes.c_void_p),
]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Stream:
    """The pieces of a relation, as DuckDB cuts them: of 131,072 rows, before DuckDB 2 a million."""

    def __init__(self, relation: Any) -> None:
        self._capsule = relation.__arrow_c_stream__()
        address = _pointer(self._capsule, b"arrow_array_stream")
        self._stream = _ArrayStream.from_address(address)
        schema = _Schema()
        self._ask(self._stream.get_schema, schema)
        columns = [schema.children[j].contents for j in range(schema.n_children)]
        kinds = [(column.format.decode(), column.name.decode()) for column in columns]
        schema.release(ctypes.addressof(schema))
        self.names = tuple(name for _, name in kinds)
        self._decoders = [_decoder(kind, name) for kind, name in kinds]

    def next(self) -> Pieces | None:
        """The arrays of the next rows; None after the last ones."""
        piece = _Array()
        self._ask(self._stream.get_next, piece)
        if not piece.release:
            return None
        try:
            columns = (piece.children[j].contents for j in range(piece.n_children))
            decoded = zip(self.names, self._decoders, columns, strict=True)
            return {name: decode(column) for name, decode, column in decoded}
        finally:
            piece.release(ctypes.addressof(piece))

    def close(self) -> None:
        """Give the connection free; what is never closed goes with its capsule."""
        if self._stream.release:
            self._stream.release(ctypes.addressof(self._stream))

    def _ask(self, get: Callable[[int, int], int], into: ctypes.Structure) -> None:
        stream = ctypes.addressof(self._stream)
        if get(stream, ctypes.addressof(into)):
            raise _as_duckdb((self._stream.get_last_error(stream) or b"").decode())


def _as_duckdb(text: str) -> Exception:
    import duckdb

    return (duckdb.OutOfMemoryException if "Out of Memory" in text else duckdb.Error)(text)


def in_short_pieces(piece: Pieces, size: int) -> Iterator[Pieces]:
    """The rows in pieces of at most `size`."""
    n = len(next(iter(piece.values()), ()))
    for start in range(0, n, size):
        yield {name: column[start : start + size] for name, column in piece.items()}


def _decoder(kind: str, name: str) -> Callable[[Any], AnyArray]:
    if kind in _TEXT:
        return lambda column: _texts(column, np.dtype(_TEXT[kind]))
    if kind == "b":
        return _bits
    if kind == "tdD":
        return lambda column: _numbers(column, np.dtype(np.int32)).astype("datetime64[D]")
    unit = _TIMES.get(kind.partition(":")[0])
    dtype = np.dtype(f"datetime64[{unit}]") if unit else _PLAIN.get(kind)
    if dtype is None:
        raise TypeError(f"the column {name!r} has Arrow's type {kind!r}, which is not read here")
    return lambda column: _numbers(column, np.dtype(dtype))


def _values(column: _Array, buffer: int, dtype: "np.dtype[Any]", n: int) -> AnyArray:
    """The first `n` values of a buffer, where they lie: copy what is to stay."""
    address = column.buffers[buffer]
    if not address or n == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * (n * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory).cast("B"), dtype)


def _rows(column: _Array) -> slice:
    return slice(column.offset, column.offset + column.length)


def _bits_of(column: _Array, buffer: int) -> BoolArray:
    n_bytes = (column.offset + column.length + 7) // 8
    bits = np.unpackbits(_values(column, buffer, np.dtype(np.uint8), n_bytes), bitorder="little")
    return bits[_rows(column)].astype(bool)


def _present(column: _Array) -> BoolArray | None:
    """Which values are there; None where all are."""
    if column.null_count == 0 or not column.buffers[0]:
        return None
    return _bits_of(column, 0)


def _numbers(column: _Array, dtype: "np.dtype[Any]") -> AnyArray:
    """A copy of the values. A gap is NaN, or NaT."""
    values = _values(column, 1, dtype, column.offset + column.length)[_rows(column)]
    present = _present(column)
    if present is None:
        return values.copy()
    if dtype.kind == "M":
        return np.where(present, values, np.datetime64("NaT"))
    wide = dtype if dtype.kind == "f" else np.dtype(np.float64)
    return np.where(present, values.astype(wide), np.array(np.nan, wide))


def _bits(column: _Array) -> AnyArray:
    values, present = _bits_of(column, 1), _present(column)
    if present is None:
        return values
    found = values.astype(object)
    found[~present] = None
    return found


def _texts(column: _Array, offset: "np.dtype[Any]") -> AnyArray:
    """Python's strings; None for a gap."""
    ends = _values(column, 1, offset, column.offset + column.length + 1)[column.offset :]
    data = _values(column, 2, np.dtype(np.uint8), int(ends[-1]) if len(ends) else 0)
    texts = np.empty(column.length, dtype=object)
    texts[:] = _cut(data.tobytes(), ends)
    present = _present(column)
    if present is not None:
        texts[~present] = None
    return texts


def _cut(data: bytes, ends: IntArray) -> list[str]:
    at = ends.tolist()
    if data.isascii():  # a letter is a byte: one text cut up, at half of the time
        text = data.decode("ascii")
        return [text[a:b] for a, b in pairwise(at)]
    return [data[a:b].decode() for a, b in pairwise(at)]
