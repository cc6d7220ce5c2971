"""Judged lists to LETOR text: rows are formatted in parallel, slice by slice."""

import gzip
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FeatureArray, IntArray
from untilt._core.files import replacing
from untilt._core.paths import is_utf8
from untilt._core.threads import Share, parallel_kernel
from untilt.data.judged import JudgedLists
from untilt.data.letor.parse import LOWEST, MINUS, POINT, POWERS, SMALL_E, ZERO, to_float32
from untilt.errors import BadRowsError, OptionError

PathLike = str | os.PathLike[str]

SMALL_N, SMALL_A = ord("n"), ord("a")
_SMALLEST_NORMAL = 2.0**-126

MOST_VALUE_BYTES = 16  # the longest text of `write_value`, such as -1.17549435e-38

_BATCH_BYTES = 1 << 25
_SLICE_BYTES = 1 << 19
_SPACE, _COLON, _NEWLINE = ord(" "), ord(":"), ord("\n")
_BLANKS = frozenset("\0\t\n\v\f\r ")


def write_letor(judged: JudgedLists, path: PathLike) -> None:
    """Write judged lists as LETOR text, gzip if the name ends in `.gz`, whole or not at all.

    Every feature is written, zeros too, so that any reader finds the same number of them, with the
    fewest digits that read back as the same float32. `read_letor` gives equal lists again, but for
    two things that the format has no room for: feature names, and whether an id such as 12 was
    text. Document ids go into the comment unless they are their index in the query. A missing
    feature is written as nan, which `read_letor(missing="keep")` reads.
    """
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise OptionError(f"path must be one file. Got {path!r} instead.")
    _check(judged)
    begins, ends = _label_and_query(judged), _comments(judged)
    packed = Path(path).suffix == ".gz"
    with replacing(path) as temporary, _opened(temporary, packed) as file:
        for text in _formatted(judged.features, begins, ends):
            file.write(text)


def _check(judged: JudgedLists) -> None:
    if len(judged) == 0 or np.any(ragged.lengths(judged.indptr) == 0):
        raise BadRowsError(
            f"LETOR text cannot hold a query without documents. Got {judged!r} instead. Leave out "
            "empty queries with judged.take(...)."
        )
    bad = np.argwhere(np.isinf(judged.features))
    if len(bad):
        row, column = bad[0]
        raise BadRowsError(
            f"features must be finite to be written as LETOR text. Row {row} has "
            f"{judged.features[row, column]} in {judged.feature_names[column]}. Replace it."
        )


def _refuse_twins(queries: list[str]) -> None:
    """Equal ids would be merged, or be refused as scattered, when the file is read."""
    if len(set(queries)) < len(queries):
        twin = next(query for query, count in Counter(queries).items() if count > 1)
        raise BadRowsError(
            f"query_id must be unique to be written as LETOR text. Got {twin} twice. Rename one."
        )


def _label_and_query(judged: JudgedLists) -> list[bytes]:
    """`label qid:ID` of each row."""
    queries = [_id_text(value, "query_id", "#") for value in judged.query_id.tolist()]
    _refuse_twins(queries)
    labels = judged.labels.tolist()
    owners = ragged.list_of_row(judged.indptr).tolist()
    return [
        f"{_label_text(label)} qid:{queries[owner]}".encode()
        for label, owner in zip(labels, owners, strict=True)
    ]


def _comments(judged: JudgedLists) -> list[bytes]:
    """` #docid = ID` of each row; nothing where ids are the places in the query."""
    if np.array_equal(judged.doc_id, ragged.index_in_list(judged.indptr)):
        return [b""] * len(judged)
    return [f" #docid = {_id_text(value, 'doc_id')}".encode() for value in judged.doc_id.tolist()]


def _label_text(label: float) -> str:
    return f"{label:.0f}" if label.is_integer() and label < 1e15 else repr(label)


def _id_text(value: object, what: str, forbidden: str = "") -> str:
    text = str(value)
    if not text or not _BLANKS.union(forbidden).isdisjoint(text) or not is_utf8(text):
        raise BadRowsError(
            f"{what} must be one word to be written as LETOR text, without blanks"
            f"{' or #' if forbidden else ''}. Got {text!r} instead. Rename it."
        )
    return text


@contextmanager
def _opened(path: Path, packed: bool) -> Iterator[BinaryIO | gzip.GzipFile]:
    """A file to write to. The gzip header holds no name and no time: equal lists, equal bytes."""
    with path.open("wb") as file:
        if packed:
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packer:
                yield packer
        else:
            yield file


def _formatted(
    features: FeatureArray, begins: list[bytes], ends: list[bytes]
) -> Iterator[memoryview]:
    """The text, in pieces; never more than about 32 MB of it at a time."""
    n_rows, n_columns = features.shape
    per_value = len(f" {n_columns}:") + MOST_VALUE_BYTES
    row_bytes = n_columns * per_value + max(map(len, begins)) + max(map(len, ends)) + 1
    batch = max(1, _BATCH_BYTES // row_bytes)
    buffer = np.empty(min(batch, n_rows) * row_bytes, dtype=np.uint8)
    for first in range(0, n_rows, batch):
        rows = slice(first, first + batch)
        n_slices = 1 + len(begins[rows]) * row_bytes // _SLICE_BYTES
        start = np.linspace(0, len(begins[rows]), n_slices + 1).astype(np.int64)
        end = np.empty(n_slices, dtype=np.int64)
        _format(
            *(n_slices, buffer, row_bytes, start, features[rows]),
            *_joined(begins[rows]),
            *_joined(ends[rows]),
            end,
        )
        for begin, finish in zip((start * row_bytes).tolist(), end.tolist(), strict=False):
            yield buffer[begin:finish].data


def _joined(texts: list[bytes]) -> tuple[AnyArray, IntArray]:
    return np.frombuffer(b"".join(texts), np.uint8), ragged.indptr_of(np.array([*map(len, texts)]))


@nb.njit(cache=True)
def _copy(buffer: AnyArray, at: int, text: AnyArray) -> int:
    for offset in range(len(text)):
        buffer[at + offset] = text[offset]
    return at + len(text)


@parallel_kernel()
def _format(
    mine: Share, buffer: AnyArray, row_bytes: int, start: IntArray, features: FeatureArray,
    begins: AnyArray, begin_start: IntArray, ends: AnyArray, end_start: IntArray, end: IntArray,
) -> None:  # fmt: skip
    """Write each slice of rows from its own place in the buffer; `end` is where each ends."""
    for s in range(mine[0], mine[1]):
        at = start[s] * row_bytes
        for row in range(start[s], start[s + 1]):
            at = _copy(buffer, at, begins[begin_start[row] : begin_start[row + 1]])
            for column in range(features.shape[1]):
                buffer[at] = _SPACE
                at = write_whole(buffer, at + 1, column + 1)
                buffer[at] = _COLON
                at = write_value(buffer, at + 1, features[row, column])
            at = _copy(buffer, at, ends[end_start[row] : end_start[row + 1]])
            buffer[at] = _NEWLINE
            at += 1
        end[s] = at


# A float32 as the shortest decimal text that reads back as it.


@nb.njit(cache=True)
def shortest_digits(value: float) -> tuple[int, int]:
    """(mantissa, exponent) with the fewest digits that read back as the float32 `value` > 0.

    Six digits are tried first: a shorter decimal that reads back equal lies within 2**-24 of the
    value, closer than any other six digits, so it appears there with zeros at its end. Nine always
    do. Below the normal floats precision falls, and one digit may do.
    """
    power = int(np.floor(np.log10(value)))
    if POWERS[power - LOWEST] > value:  # log10 rounded up to a whole number
        power -= 1
    mantissa, exponent = 0, 0
    for n_digits in range(6 if value >= _SMALLEST_NORMAL else 1, 10):
        exponent = power + 1 - n_digits
        if exponent < 0:
            mantissa = int(np.rint(value * POWERS[-exponent - LOWEST]))
        else:
            mantissa = int(np.rint(value / POWERS[exponent - LOWEST]))
        back, certain = to_float32(mantissa, exponent)
        if certain and back == np.float32(value):
            break
    while mantissa % 10 == 0:
        mantissa //= 10
        exponent += 1
    return mantissa, exponent


@nb.njit(cache=True)
def write_whole(buffer: AnyArray, at: int, number: int) -> int:
    """Write a whole number >= 0 in decimal and return where it ends."""
    end, rest = at + 1, number // 10
    while rest > 0:
        end += 1
        rest //= 10
    place, rest = end, number
    while place > at:
        place -= 1
        buffer[place] = ZERO + rest % 10
        rest //= 10
    return end


@nb.njit(cache=True)
def write_value(buffer: AnyArray, at: int, value: np.float32) -> int:
    """Write a float32 with the fewest digits that read back equal; return where it ends.

    NaN is written as nan; infinite values cannot be written.
    """
    if np.isnan(value):
        buffer[at], buffer[at + 1], buffer[at + 2] = SMALL_N, SMALL_A, SMALL_N
        return at + 3
    if np.signbit(value):
        buffer[at] = MINUS
        at += 1
    if value == 0:
        buffer[at] = ZERO
        return at + 1
    mantissa, exponent = shortest_digits(abs(np.float64(value)))
    digits_end = write_whole(buffer, at, mantissa)
    n_digits = digits_end - at
    point = n_digits + exponent  # digits before the decimal point
    if 0 < point <= 9:
        return _write_plain(buffer, at, digits_end, point)
    if -4 < point <= 0:
        return _write_small(buffer, at, digits_end, -point)
    if n_digits > 1:
        _shift(buffer, at + 1, digits_end, 1)
        buffer[at + 1] = POINT
        digits_end += 1
    buffer[digits_end] = SMALL_E
    if point < 1:
        buffer[digits_end + 1] = MINUS
        digits_end += 1
    return write_whole(buffer, digits_end + 1, abs(point - 1))


@nb.njit(cache=True)
def _write_plain(buffer: AnyArray, at: int, end: int, point: int) -> int:
    """Digits at:end with the decimal point after the first `point` of them: 1234, 12.34, 1200."""
    if at + point >= end:
        buffer[end : at + point] = ZERO
        return at + point
    _shift(buffer, at + point, end, 1)
    buffer[at + point] = POINT
    return end + 1


@nb.njit(cache=True)
def _write_small(buffer: AnyArray, at: int, end: int, zeros: int) -> int:
    """Digits at:end as 0.00digits, with this many zeros after the point."""
    shift = 2 + zeros
    _shift(buffer, at, end, shift)
    buffer[at : at + shift] = ZERO
    buffer[at + 1] = POINT
    return end + shift


@nb.njit(cache=True)
def _shift(buffer: AnyArray, begin: int, end: int, by: int) -> None:
    """Move bytes begin:end to the right, last byte first."""
    for place in range(end - 1, begin - 1, -1):
        buffer[place + by] = buffer[place]
