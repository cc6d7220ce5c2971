"""Parquet, which DuckDB reads, and Arrow IPC (Feather), piece by piece.

Arrow believes what a file says of itself: offsets, lengths, indices into a dictionary. A crafted
one would make a reader look outside its memory. So every piece is checked in full before DuckDB
sees it.
"""

import glob
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from untilt._core.paths import printable
from untilt.data.read.database import Database, literal, quoted, translated_errors
from untilt.data.read.files import Files
from untilt.data.read.sources import (
    Source,
    Stated,
    alike,
    arrow_schema_names,
    distinct_names,
    materialised,
    refuse_alike,
    viewed,
)
from untilt.errors import FileFormatError

if TYPE_CHECKING:
    import pyarrow as pa


def open_parquet(database: Database, files: Files, name: str) -> Source:
    """Parquet files, their columns matched by name."""
    paths = [database.path(file) for file in files.names]
    listed = ", ".join(literal(glob.escape(path)) for path in paths)
    with translated_errors(files.what):
        database.run(
            f"CREATE TEMP VIEW {name} AS "
            f"SELECT * FROM read_parquet([{listed}], union_by_name = {len(paths) > 1})"
        )
        source = viewed(database, files.what, name, lambda: _parquet_names(database, paths))
        return replace(source, stated=lambda: _stated_by_parquet(database, paths))


def _stated_by_parquet(database: Database, paths: Sequence[str]) -> Stated:
    """From the ends of the files. Nothing of a column that some part says nothing of."""
    listed = ", ".join(literal(glob.escape(path)) for path in paths)
    least, most = (
        f"coalesce(TRY_CAST({each} AS BIGINT), CAST(TRY_CAST({each} AS BOOLEAN) AS BIGINT))"
        for each in ("stats_min_value", "stats_max_value")
    )
    found = database.rows(
        "SELECT path_in_schema, CAST(sum(num_values) AS BIGINT), min(least), max(most) FROM "
        f"(SELECT *, {least} AS least, {most} AS most FROM parquet_metadata([{listed}])) "
        "GROUP BY 1 HAVING count(least) = count(*) AND count(most) = count(*)"
    )
    return {name: (n, low, high) for name, n, low, high in found}


def _parquet_names(database: Database, paths: Sequence[str]) -> tuple[str, ...]:
    """Of each file the names of columns that are alike, as they stand there."""
    names: dict[str, None] = {}
    for path in paths:
        schema = f"parquet_schema({literal(glob.escape(path))})"
        own = [each for (each,) in database.rows(f"SELECT name FROM {schema}")]
        # Click in one file and click in another are one column, as in DuckDB.
        names.update(dict.fromkeys(alike(own)))
    return tuple(names)


def open_arrow_files(database: Database, files: Files, name: str) -> Source:
    """Arrow files, their columns matched by name."""
    own = [_arrow_names(file) for file in files.names]
    for each in own:
        refuse_alike(files.what, each)
    names = distinct_names(each for names in own for each in names)

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        """A table for every file, and all of them under one name: columns go by name."""
        wanted, parts = {each.lower() for each in columns}, []
        for number, (file, have) in enumerate(zip(files.names, own, strict=True)):
            chosen = [each for each in have if each.lower() in wanted]
            part = f"{name}_{number}"
            with translated_errors(files.what):
                materialised(database, part, _checked_batches(file, chosen))
            parts.append(f"SELECT * FROM {part}")
        union, listed = " UNION ALL BY NAME ".join(parts), ", ".join(map(quoted, columns))
        with translated_errors(files.what):
            database.run(f"CREATE TEMP VIEW {name} AS SELECT {listed} FROM ({union})")
        return name

    return Source(files.what, names, load)


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
                f"{printable(file)} is Feather of version 1, which untilt does not read. Write it "
                "again: pyarrow.feather.write_feather(table, path)."
            )
        try:
            opened = pa.ipc.open_file if head == b"ARROW1" else pa.ipc.open_stream
            reader = opened(content)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise FileFormatError(
                f"{printable(file)} cannot be read: {error}. The file may be damaged or cut short, "
                "or its ending may be wrong."
            ) from error
        with reader:
            yield reader


def _arrow_names(file: str) -> list[str]:
    """The names of its columns."""
    with _opened(file) as reader:
        return arrow_schema_names(reader.schema, printable(file))


def _checked_batches(file: str, columns: Sequence[str]) -> "pa.RecordBatchReader":
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
