"""Text files that may be packed: gzip, bzip2, Zstandard.

DuckDB unpacks gzip and Zstandard by itself, and passes over damage in both: of a .zst that was cut
in two it reads the first half. So a packed file is read to its end by another reader first. bzip2
it does not know: such a file is unpacked into the scratch folder.
"""

import bz2
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from untilt.data.read.database import Database
from untilt.errors import FileFormatError

PACKED = (".gz", ".zst", ".bz2")
_BLOCK = 1 << 21


@contextmanager
def unpacking(file: str) -> Iterator[IO[bytes]]:
    """The content of a file, unpacked as it is read."""
    with explained(file), open(file, "rb") as content:
        ending = os.path.splitext(file)[1].lower()
        if ending == ".gz":
            with gzip.open(content) as opened:
                yield cast("IO[bytes]", opened)
        elif ending == ".bz2":
            with bz2.open(content) as opened:
                yield opened
        elif ending == ".zst":
            import pyarrow as pa

            with pa.CompressedInputStream(content, "zstd") as opened:
                yield opened
        else:
            yield content


@contextmanager
def explained(file: str) -> Iterator[None]:
    """What goes wrong with a file as an error of ours."""
    try:
        yield
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{os.path.normpath(file)} cannot be read: {error}. The file may be damaged or not in "
            "UTF-8."
        ) from error


@contextmanager
def as_text(file: str) -> Iterator[IO[str]]:
    """The content of a file as text; a byte order mark is no part of it."""
    with unpacking(file) as content, io.TextIOWrapper(content, encoding="utf-8-sig") as text:
        yield text


def sound(database: Database, file: str, *, has_lines: bool = True) -> str:
    """The file as DuckDB can read it; raises at what DuckDB passes over in silence.

    It does not look at the checksum of gzip, takes a cut .zst for a whole one, and leaves out a
    last line of CSV that is longer than its buffer of 32 MB (DuckDB 2.0). One more pass that looks
    at no value: 0.1 s per GiB, 5 s per GiB of text in gzip, a quarter of what DuckDB takes for it.
    """
    ending = os.path.splitext(file)[1].lower()
    if ending not in PACKED and not has_lines:
        return file
    target = database.scratch_file(os.path.splitext(file[: -len(ending)])[1])
    with unpacking(file) as content:
        if ending != ".bz2":
            _look_through(file, content, None, has_lines=has_lines)
            return file
        with open(target, "wb") as copy:
            _look_through(file, content, copy, has_lines=has_lines)
    return target


def _look_through(
    file: str, content: IO[bytes], copy: IO[bytes] | None, *, has_lines: bool
) -> None:
    while block := content.read(_BLOCK):
        if copy is not None:
            copy.write(block)
        if has_lines and len(block) == _BLOCK and b"\n" not in block and b"\r" not in block:
            raise FileFormatError(
                f"{os.path.normpath(file)} has a line of more than {_BLOCK:,} bytes, which no log "
                "has. It is of another kind than its name says, or lacks ends of lines."
            )
