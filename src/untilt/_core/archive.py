"""Zip archives and arrays from files that nobody vouches for: bounded before anything is unpacked.

A few megabytes can unpack to many gigabytes, a header can promise an array of 10^12 entries, and an
archive can name the same bytes a thousand times. So sizes are compared with each other and with the
limits below first, parts are unpacked one by one and each only once, and an array is made only
where its bytes are there.
"""

import io
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from untilt._core.arrays import AnyArray
from untilt._core.memory import allow, gib
from untilt._core.paths import check_name
from untilt.errors import FileFormatError, OptionError

MOST_BYTES = 2 << 30  # of a file, and of all that it unpacks to
MOST_PARTS = 1_000
# Numbers and text rarely shrink to a tenth; what shrinks more is mostly zeros, or an attack.
_RATIO, _ALWAYS_ALLOWED = 100, 64 << 20
_END = struct.Struct("<4s4H2LH")  # of the record at the end of a zip archive
_END_MARK, _END_MARK_64 = b"PK\5\6", b"PK\6\7"
_DATE = (1980, 1, 1, 0, 0, 0)
_LEVEL = 1  # of packing: trees take a quarter of the usual time, for a tenth more bytes
_ENCRYPTED = 1
_NUMBERS = re.compile(r"[<>|=]?[biuf][0-9]{1,2}")
_KEPT_MEMORY = "Load it where there is more, or save a smaller model."


def read_whole(
    path: str | os.PathLike[str],
    *,
    most: int | None = None,
    what: str = "a saved model",
    follow: bool = True,
) -> bytes:
    """All bytes of a regular file of at most `most` (`MOST_BYTES`); links where it is to `follow`.

    A missing file or one without permission is an `OSError`, as everywhere in Python. A pipe does
    not make it wait: what was opened is looked at, not what had the name before.
    """
    check_name(path)
    most = MOST_BYTES if most is None else most
    how = getattr(os, "O_NONBLOCK", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    if not follow and Path(path).is_symlink():
        raise FileFormatError("it is a link. Give the path of a file.")
    with open(path, "rb", opener=lambda name, given: os.open(name, given | how)) as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise FileFormatError("it is a pipe or a device, no file. Give the path of a file.")
        if known.st_size > most:
            raise FileFormatError(
                f"it has {gib(known.st_size)}; more than {gib(most)} are not read. Give another "
                "file, or save a smaller model."
            )
        allow(known.st_size, what, _KEPT_MEMORY)
        return file.read(known.st_size)


def packed(parts: Mapping[str, bytes], *, comment: bytes = b"") -> bytes:
    """A zip archive of these parts that `Archive` reads; the same parts give the same bytes."""
    total = sum(map(len, parts.values()))
    if total > MOST_BYTES or len(parts) > MOST_PARTS:
        raise OptionError(
            f"this model is too large to be saved: {gib(total)} in {len(parts):,} parts, and files "
            f"hold up to {gib(MOST_BYTES)} in {MOST_PARTS:,}. Fit a smaller one."
        )
    data = _zipped(parts, comment, zipfile.ZIP_DEFLATED)
    # Long zeros: packed they would look like an attack.
    return data if total <= _most(len(data)) else _zipped(parts, comment, zipfile.ZIP_STORED)


def _zipped(parts: Mapping[str, bytes], comment: bytes, kind: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in parts.items():
            # A fixed date: the content tells when it was made, and equal content is equal bytes.
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, kind, _LEVEL)
        archive.comment = comment
    return buffer.getvalue()


def _most(size: int) -> int:
    """Bytes that a file of this size may unpack to."""
    return min(MOST_BYTES, _ALWAYS_ALLOWED + _RATIO * size)


class Archive:
    """The parts of a zip archive; each can be read once.

    Raises `FileFormatError` for an archive that `packed` (or `numpy.savez`) would not write.
    """

    def __init__(self, data: bytes, *, comment: bytes = b"") -> None:
        _check_end(data, comment)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            entries = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
            raise FileFormatError(f"its archive is damaged ({error}).") from error
        self._unread = {entry.filename: entry for entry in entries}
        total = sum(entry.file_size for entry in entries)
        if len(self._unread) < len(entries):
            raise FileFormatError("two of its parts have the same name.")
        if total > _most(len(data)):
            raise FileFormatError(
                f"it is no model: its {len(data):,} bytes would unpack to {gib(total)}."
            )
        kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if any(each.compress_type not in kinds or each.flag_bits & _ENCRYPTED for each in entries):
            raise FileFormatError("its parts are encrypted, or packed in a way that is not read.")

    @property
    def unread(self) -> tuple[str, ...]:
        """Names of the parts that were not read yet."""
        return tuple(self._unread)

    def read(self, name: str) -> bytes:
        """The bytes of a part."""
        entry = self._unread.pop(name, None) if isinstance(name, str) else None
        if entry is None:
            raise FileFormatError(f"its part {name!r} is missing, or asked for twice.")
        allow(entry.file_size, f"the part {name!r} of a saved model", _KEPT_MEMORY)
        with self._zip.open(entry) as part:
            # Bounded by the declared size, whatever is packed; the sum of the part is checked.
            data = part.read(entry.file_size)
        if len(data) != entry.file_size:
            raise FileFormatError(f"its part {name!r} is cut short.")
        return data


def _check_end(data: bytes, comment: bytes) -> None:
    """The record at the end counts the parts: asked before a list of them is made."""
    at = len(data) - _END.size - len(comment)
    if at < 0 or data[at + _END.size :] != comment:
        raise FileFormatError("its archive has no end.")
    mark, disk, first_disk, here, parts, size, start, n_comment = _END.unpack_from(data, at)
    whole = (mark, disk, first_disk, n_comment) == (_END_MARK, 0, 0, len(comment))
    if (
        not whole
        or here != parts
        or start + size != at
        or _END_MARK_64 in data[max(0, at - 20) : at]
    ):
        raise FileFormatError("its archive has a wrong end.")
    if parts > MOST_PARTS:
        raise FileFormatError(f"it has {parts:,} parts; at most {MOST_PARTS:,} are read.")


def npy_bytes(array: AnyArray) -> bytes:
    """An array in NumPy's own format."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def from_npy_bytes(data: bytes) -> AnyArray:
    """The array of numbers; its header is compared with its bytes first. Never unpickles."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0,
                  (2, 0): np.lib.format.read_array_header_2_0}.get(version)  # fmt: skip
        if reader is None:
            raise FileFormatError("an array has a header of another version.")
        shape, by_column, dtype = reader(file)
    except FileFormatError:
        raise
    except Exception as error:  # a header is Python's text: parsing it fails in many ways
        raise FileFormatError(f"the header of an array cannot be read ({error}).") from error
    check_numbers(dtype.str)
    body = memoryview(data)[file.tell() :]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(body):
        raise FileFormatError(f"an array of shape {shape} has {len(body):,} bytes.")
    flat = np.frombuffer(body, dtype=dtype)
    try:
        return flat.reshape(shape, order="F" if by_column else "C").copy(order="K")
    except (ValueError, OverflowError) as error:  # no entries, and a size that no machine has
        raise FileFormatError(f"the shape of an array makes no sense ({error}).") from error


def check_numbers(dtype: object) -> None:
    """Raise unless it names a type of numbers, or of true and false, such as "<f8"."""
    if not isinstance(dtype, str) or not _NUMBERS.fullmatch(dtype):
        raise FileFormatError(f"an array is of type {str(dtype)[:40]!r}, which is no number.")
