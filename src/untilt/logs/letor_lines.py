"""Blocks of whole lines from a plain or gzip file, never more than one block in memory."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from untilt.errors import FileFormatError

BLOCK_BYTES = 1 << 24
_LONGEST_LINE = 1 << 28
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def line_blocks(path: Path) -> Iterator[bytes]:
    """The file's bytes in blocks of whole lines, each ending in a newline."""
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
