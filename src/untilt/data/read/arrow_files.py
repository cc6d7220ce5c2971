"""Arrow IPC files (Feather), piece by piece.

Arrow believes what such a file says of itself: offsets, lengths, indices into a dictionary. A
crafted one would make a reader look outside its memory. So every piece is checked in full before
DuckDB sees it.
"""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from untilt._core.paths import printable
from untilt.errors import ColumnError, FileFormatError

if TYPE_CHECKING:
    import pyarrow as pa


class _Content(io.BufferedReader):
    """A file that reads no further than its end.

    Python makes room for all that is asked for before it reads. A damaged file of a few bytes asks
    for 1.4 GB.
    """

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def _opened(file: str) -> Iterator[Any]:
    """A reader of the file format or, where the file is one, of the stream format."""
    import pyarrow as pa

    with _Content(io.FileIO(file)) as content:  # Arrow takes no path that is not UTF-8
        head = content.read(6)
        content.seek(0)
        if head[:4] == b"FEA1":
            raise FileFormatError(
                f"{printable(file)} is Feather of version 1, which is no longer read. Write it "
                "again: pyarrow.feather.write_feather(table, path)."
            )
        try:
            opened = pa.ipc.open_file if head == b"ARROW1" else pa.ipc.open_stream
            reader = opened(content)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise FileFormatError(
                f"{printable(file)} cannot be read: {error}. The file may be damaged, cut short or "
                "of another kind than its name says."
            ) from error
        with reader:
            yield reader


def arrow_names(file: str) -> list[str]:
    """The names of its columns."""
    with _opened(file) as reader:
        return arrow_schema_names(reader.schema, printable(file))


def arrow_schema_names(schema: Any, what: str) -> list[str]:
    """The names of the columns of a schema, which Arrow keeps as any bytes."""
    try:
        return list(schema.names)
    except UnicodeDecodeError as error:
        raise ColumnError(
            f"{what} has a column whose name is no UTF-8: {error.object[:40]!r}. Rename it, or "
            "write the file again where it is damaged."
        ) from error


def arrow_batches(file: str, columns: Sequence[str]) -> "pa.RecordBatchReader":
    """Some columns of a file as a stream of checked pieces; all rows where there are none."""
    import pyarrow as pa

    with _opened(file) as reader:
        fields = [reader.schema.field(name) for name in columns]
    schema = pa.schema(fields or [pa.field("no column of these", pa.null())])

    def pieces() -> Iterator["pa.RecordBatch"]:
        with _opened(file) as reader:
            for batch in _batches(reader):
                arrays = [batch.column(name) for name in columns] or [pa.nulls(len(batch))]
                piece = pa.RecordBatch.from_arrays(arrays, schema=schema)
                piece.validate(full=True)
                yield piece

    return pa.RecordBatchReader.from_batches(schema, pieces())


def _batches(reader: Any) -> Iterator["pa.RecordBatch"]:
    if hasattr(reader, "num_record_batches"):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader
