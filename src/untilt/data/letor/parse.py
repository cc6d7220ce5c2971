"""One block of LETOR lines into arrays: counted first, then parsed in parallel.

    label qid:ID id:value id:value ... # comment

The kernel never stops at a bad line: it notes a code and a byte, and goes on; `read_letor` says
what a code means to the user.
"""

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.threads import Share, parallel_kernel
from untilt.errors import FileFormatError

PLUS, MINUS, POINT, ZERO = ord("+"), ord("-"), ord("."), ord("0")
BIG_E, SMALL_E = ord("E"), ord("e")

# With mantissas below 1e18, 1e-70 times one is 0 in float32 and 1e41 times one is infinite.
LOWEST, _HIGHEST = -70, 60
POWERS = np.array([float(f"1e{exponent}") for exponent in range(LOWEST, _HIGHEST + 1)])
_EXACT_POWER = 22  # the last power of ten that a double holds exactly
_EXACT_MANTISSA = 2**53
_MANTISSA_ROOM = 10**17  # below this, one more digit fits into 18 digits
_EXPONENT_ROOM = 10**9
# The mantissa, the power and their product each round by at most 2**-53, the digits beyond 18 count
# for less than 2**-56: 2**-49 covers their sum and the half unit between it and the true double.
_SLACK = 2.0**-49

FINE, SLOW = 0, 1
BAD_LABEL, NEGATIVE_LABEL, NO_QID, BAD_FEATURE, ZERO_ID, BIG_ID, TWICE, BAD_VALUE, INFINITE = range(
    2, 11
)

_NEWLINE, _SPACE, _TAB, _RETURN, _HASH = 10, 32, 9, 13, ord("#")
_COLON, _EQUALS = ord(":"), ord("=")
_QID = np.frombuffer(b"qid:", np.uint8)
_DOCID = np.frombuffer(b"docid", np.uint8)
_NAN, _SMALL = np.frombuffer(b"nan", np.uint8), 32  # the bit that tells small letters from large
_FAR = 10**12  # ids stop growing here, so that a thousand digits cannot overflow

# A dense table cannot be wider than memory allows; an id beyond this is surely a slip.
MOST_COLUMNS = 1 << 20
_SLICE_BYTES = 1 << 17

BLOCK_BYTES = 1 << 24
_LONGEST_LINE = 1 << 28
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextBlock:
    """What stood in one block of lines; every array has one entry per row.

    `code` is FINE, SLOW (a number needs more than double precision to be read) or what is wrong at
    byte `byte`. `spans` are the bytes of the query id and of the document id (empty if none).
    `line` counts from the block's first line. `n_columns` is the widest row; where `features` has
    fewer columns, values beyond them were left out.
    """

    features: FeatureArray
    labels: FloatArray
    spans: IntArray
    line: IntArray
    code: IntArray
    byte: IntArray
    n_lines: int
    n_columns: int


@dataclass(frozen=True)
class Slices:
    """A block cut at line ends, for threads to share: where slices, their rows and lines begin."""

    start: IntArray
    row: IntArray
    line: IntArray


def slices_of(data: bytes) -> Slices:
    """Cut lines into slices of about 128 kB and count their rows. `data` must end in a newline."""
    cuts = {data.find(b"\n", at) + 1 for at in range(_SLICE_BYTES, len(data), _SLICE_BYTES)}
    start = np.array(sorted({0, len(data)} | cuts - {0}), dtype=np.int64)
    n_rows, n_lines = np.zeros((2, len(start) - 1), dtype=np.int64)
    _count(len(n_rows), np.frombuffer(data, np.uint8), start, n_rows, n_lines)
    return Slices(start, _starts(n_rows), _starts(n_lines))


def parse(
    data: bytes,
    slices: Slices,
    *,
    n_columns: int,
    first_id: int,
    most_columns: int,
    takes_missing: bool = False,
) -> TextBlock:
    """Parse the rows of these slices into `n_columns` features; ids start at `first_id`.

    An id beyond `most_columns` is an error, and so is the value nan unless `takes_missing`.
    """
    n_rows = int(slices.row[-1])
    features = np.zeros((n_rows, n_columns), dtype=np.float32)
    labels = np.zeros(n_rows)
    spans = np.zeros((n_rows, 4), dtype=np.int64)
    line, place = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    code = np.zeros(n_rows, dtype=np.int8)
    widest = np.zeros(len(slices.start) - 1, dtype=np.int64)
    _parse(
        *(len(widest), np.frombuffer(data, np.uint8)),
        *(slices.start, slices.row, slices.line),
        *(first_id, most_columns, takes_missing),
        *(features, labels, spans, line, code, place, widest),
    )
    n_lines = int(slices.line[-1])
    return TextBlock(
        features, labels, spans, line, code, place, n_lines, int(widest.max(initial=0))
    )


def read_slowly(block: TextBlock, data: bytes, *, first_id: int) -> None:
    """Read the SLOW rows again with Python's own float, which is right for any number of digits."""
    for row in np.flatnonzero(block.code == SLOW):
        begin = data.rfind(b"\n", 0, block.spans[row, 0]) + 1
        words = re.finditer(rb"[^\s#]+", data[begin : data.index(b"\n", begin)].partition(b"#")[0])
        label, _, *features = words
        block.code[row] = FINE
        block.labels[row] = float(label[0])
        if np.isinf(block.labels[row]):
            block.code[row], block.byte[row] = BAD_LABEL, begin + label.start()
        for word in features:
            number, _, text = word[0].partition(b":")
            with np.errstate(over="ignore"):
                value = np.float32(float(text))
            if np.isinf(value):
                block.code[row], block.byte[row] = INFINITE, begin + word.start()
            block.features[row, int(number) - first_id] = value


def query_starts(data: bytes, spans: IntArray) -> IntArray:
    """The rows whose query id differs from that of the row before; row 0 always."""
    return np.flatnonzero(_query_changes(np.frombuffer(data, np.uint8), spans))


def _starts(lengths: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(lengths)])


@nb.njit(cache=True)
def _is_blank(c: int) -> bool:
    return c == _SPACE or (_TAB <= c <= _RETURN and c != _NEWLINE)


@nb.njit(cache=True)
def _is_end(c: int) -> bool:
    """Whether a token ends before this byte."""
    return c in (_SPACE, _HASH) or _TAB <= c <= _RETURN


@nb.njit(cache=True)
def _skip_blanks(buffer: AnyArray, at: int) -> int:
    while _is_blank(buffer[at]):
        at += 1
    return at


@nb.njit(cache=True)
def _skip_token(buffer: AnyArray, at: int) -> int:
    while not _is_end(buffer[at]):
        at += 1
    return at


@nb.njit(cache=True)
def _starts_with(buffer: AnyArray, at: int, word: AnyArray) -> bool:
    # A newline stops the comparison before the buffer's end: no word holds one.
    for offset in range(len(word)):  # noqa: SIM110 - compiled
        if buffer[at + offset] != word[offset]:
            return False
    return True


@nb.njit(cache=True)
def _is_nan(buffer: AnyArray, at: int) -> bool:
    """Whether `nan` stands here, in small letters or large; a newline ends the comparison."""
    for offset in range(len(_NAN)):  # noqa: SIM110 - compiled
        if buffer[at + offset] | _SMALL != _NAN[offset]:
            return False
    return True


@parallel_kernel()
def _count(
    mine: Share, buffer: AnyArray, start: IntArray, n_rows: IntArray, n_lines: IntArray
) -> None:
    """Rows and lines of each slice; a line that is blank or holds a comment alone is no row."""
    for s in range(mine[0], mine[1]):
        at, rows, lines = start[s], 0, 0
        while at < start[s + 1]:
            at = _skip_blanks(buffer, at)
            if buffer[at] not in (_NEWLINE, _HASH):
                rows += 1
            while buffer[at] != _NEWLINE:
                at += 1
            at += 1
            lines += 1
        n_rows[s], n_lines[s] = rows, lines


@nb.njit(cache=True)
def _document_span(buffer: AnyArray, at: int) -> tuple[int, int]:
    """Bytes of the document id in the comment that starts at `at` (a hash).

    The word after `docid =` (or `docid:`, or without blanks), else the first word.
    """
    begin = _skip_blanks(buffer, at + 1)
    if _starts_with(buffer, begin, _DOCID):
        after = _skip_blanks(buffer, begin + len(_DOCID))
        if buffer[after] in (_EQUALS, _COLON):
            begin = _skip_blanks(buffer, after + 1)
    end = begin
    while buffer[end] != _NEWLINE and not _is_blank(buffer[end]):
        end += 1
    return begin, end


@parallel_kernel()
def _parse(
    mine: Share, buffer: AnyArray, start: IntArray, first_row: IntArray, first_line: IntArray,
    first_id: int, most_columns: int, takes_missing: bool, features: FeatureArray,
    labels: FloatArray, spans: IntArray, line_of_row: IntArray, code_of_row: IntArray,
    place_of_row: IntArray, widest: IntArray,
) -> None:  # fmt: skip
    n_columns = features.shape[1]
    for s in range(mine[0], mine[1]):
        at, row, line, most = start[s], first_row[s], first_line[s], 0
        seen = np.zeros(n_columns, dtype=np.int64)  # the last row (counted from 1) with this column
        while at < start[s + 1]:
            at = _skip_blanks(buffer, at)
            if buffer[at] not in (_NEWLINE, _HASH):
                code, place, slow = FINE, at, False

                at, negative, mantissa, exponent = read_number(buffer, at)
                label, exact = to_double(mantissa, exponent)
                labels[row] = -label if negative else label
                if at == place or not _is_end(buffer[at]):
                    code = BAD_LABEL
                elif negative and mantissa > 0:
                    code = NEGATIVE_LABEL
                else:
                    slow = not exact
                    at = _skip_blanks(buffer, at)
                    place = at
                    at = _skip_token(buffer, at)
                    if not _starts_with(buffer, place, _QID) or at == place + len(_QID):
                        code = NO_QID
                    else:
                        spans[row, 0], spans[row, 1] = place + len(_QID), at
                        at = _skip_blanks(buffer, at)

                while code == FINE and buffer[at] not in (_NEWLINE, _HASH):
                    place = at
                    number = 0
                    while ZERO <= buffer[at] <= ZERO + 9:
                        if number < _FAR:
                            number = number * 10 + (buffer[at] - ZERO)
                        at += 1
                    if at == place or buffer[at] != _COLON:
                        code = BAD_FEATURE
                        break
                    column = number - first_id
                    if column < 0:
                        code = ZERO_ID
                        break
                    if column >= most_columns:
                        code = BIG_ID
                        break
                    begin = at + 1
                    at, negative, mantissa, exponent = read_number(buffer, begin)
                    missing = takes_missing and at == begin and _is_nan(buffer, begin)
                    at += 3 * missing
                    if at == begin or not _is_end(buffer[at]):
                        code = BAD_VALUE
                        break
                    value, certain = to_float32(mantissa, exponent)
                    if missing:
                        value, certain = np.float32(np.nan), True
                    slow |= not certain
                    if certain and np.isinf(value):
                        code = INFINITE
                        break
                    if column < n_columns:
                        if seen[column] == row + 1:
                            code = TWICE
                            break
                        seen[column] = row + 1
                        features[row, column] = -value if negative else value
                    most = max(most, column + 1)
                    at = _skip_blanks(buffer, at)

                if code == FINE:
                    code = SLOW if slow else FINE
                    if buffer[at] == _HASH:
                        spans[row, 2], spans[row, 3] = _document_span(buffer, at)
                line_of_row[row], code_of_row[row], place_of_row[row] = line, code, place
                row += 1
            while buffer[at] != _NEWLINE:
                at += 1
            at += 1
            line += 1
        widest[s] = most


@nb.njit(cache=True)
def _query_changes(buffer: AnyArray, spans: IntArray) -> AnyArray:
    changes = np.ones(len(spans), dtype=np.bool_)
    for row in range(1, len(spans)):
        begin, end = spans[row, 0], spans[row, 1]
        before, before_end = spans[row - 1, 0], spans[row - 1, 1]
        if end - begin == before_end - before:
            changes[row] = False
            for offset in range(end - begin):
                if buffer[begin + offset] != buffer[before + offset]:
                    changes[row] = True
                    break
    return changes


def line_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a plain or gzip file in blocks of whole lines, one block at a time in memory."""
    try:
        with path.open("rb") as file:
            if file.peek(2)[:2] == _GZIP_MAGIC:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield from _whole_lines(unpacked, path)
            else:
                yield from _whole_lines(file, path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileFormatError(
            f"{path}: the gzip data is damaged or cut off ({error}). Fetch or pack the file again."
        ) from error
    except OSError as error:
        raise FileFormatError(
            f"{path}: the file cannot be read ({error.strerror or error}). Check the path."
        ) from error


def _whole_lines(stream: BinaryIO | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    rest = b""
    first = True
    while block := stream.read(BLOCK_BYTES):
        if first:
            block = block.removeprefix(_BYTE_ORDER_MARK)
            first = False
        _refuse_binary(block, path)
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join((rest, memoryview(block)[:cut]))
            rest = block[cut:]
        else:
            rest += block
        if len(rest) > _LONGEST_LINE:
            raise FileFormatError(
                f"{path}: a line is longer than {_LONGEST_LINE >> 20} MiB: this is no LETOR text."
            )
    if rest:
        yield rest + b"\n"


def _refuse_binary(block: bytes, path: Path) -> None:
    if b"\0" in block:
        raise FileFormatError(
            f"{path}: the file holds zero bytes, so it is no LETOR text. If it is text in UTF-16, "
            "convert it to UTF-8."
        )


def physical_memory() -> int | None:
    """Bytes of memory in this machine, where the system says."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


# Decimal text to float32: exactly float32(float(text)).


@nb.njit(cache=True)
def read_number(buffer: AnyArray, at: int) -> tuple[int, bool, int, int]:
    """(end, negative, mantissa, exponent) of the number at `at`; end = `at` if there is none.

    Digits beyond the 18th are dropped, so the number is then known to 2**-56 of itself.
    """
    begin = at
    c = buffer[at]
    negative = c == MINUS
    if negative or c == PLUS:
        at += 1
        c = buffer[at]
    mantissa, exponent, first = 0, 0, at
    while ZERO <= c <= ZERO + 9:
        if mantissa < _MANTISSA_ROOM:
            mantissa = mantissa * 10 + (c - ZERO)
        else:
            exponent += 1
        at += 1
        c = buffer[at]
    n_digits = at - first
    if c == POINT:
        at += 1
        c = buffer[at]
        first = at
        while ZERO <= c <= ZERO + 9:
            if mantissa < _MANTISSA_ROOM:
                mantissa = mantissa * 10 + (c - ZERO)
                exponent -= 1
            at += 1
            c = buffer[at]
        n_digits += at - first
    if n_digits == 0:
        return begin, False, 0, 0
    if c in (SMALL_E, BIG_E):
        at += 1
        c = buffer[at]
        sign = -1 if c == MINUS else 1
        if c in (MINUS, PLUS):
            at += 1
            c = buffer[at]
        first, power = at, 0
        while ZERO <= c <= ZERO + 9:
            if power < _EXPONENT_ROOM:
                power = power * 10 + (c - ZERO)
            at += 1
            c = buffer[at]
        if at == first:
            return begin, False, 0, 0
        exponent += sign * power
    return at, negative, mantissa, exponent


@nb.njit(cache=True)
def to_double(mantissa: int, exponent: int) -> tuple[float, bool]:
    """mantissa * 10**exponent rounded once, or (something, False) where that takes more care."""
    if mantissa == 0:
        return 0.0, True
    if mantissa > _EXACT_MANTISSA or exponent < -_EXACT_POWER or exponent > _EXACT_POWER:
        return 0.0, False
    # Both operands are exact, so one multiplication or division rounds correctly.
    if exponent < 0:
        return mantissa / POWERS[-exponent - LOWEST], True
    return mantissa * POWERS[exponent - LOWEST], True


@nb.njit(cache=True)
def to_float32(mantissa: int, exponent: int) -> tuple[np.float32, bool]:
    """mantissa * 10**exponent as float32, and whether it is certainly float32(float(text)).

    Where the double is not exact, it is known within a slack; if both ends of the slack round to
    the same float32, so does the true double. Only values next to a midpoint stay uncertain.
    """
    exact, known = to_double(mantissa, exponent)
    if known:
        return np.float32(exact), True
    if exponent < LOWEST:
        return np.float32(0.0), True
    if exponent > _HIGHEST:
        return np.float32(np.inf), True
    near = mantissa * POWERS[exponent - LOWEST]
    low, high = np.float32(near - near * _SLACK), np.float32(near + near * _SLACK)
    return low, low == high
