"""Table files written piece by piece: Parquet or CSV, by the ending of the name."""

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from untilt.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

PathLike = str | os.PathLike[str]
Write = Callable[["pa.RecordBatch"], None]

_PARQUET = (".parquet", ".pq", ".parq")
_CSV = (".csv", ".csv.gz")


def check_ending(path: PathLike) -> None:
    """Raise unless the name says what to write."""
    if not os.fspath(path).lower().endswith((*_PARQUET, *_CSV)):
        raise OptionError(
            f"the name must end in {', '.join((*_PARQUET, *_CSV))}. "
            f"Got {os.fspath(path)!r} instead."
        )


def write_table(
    temporary: Path, path: PathLike, schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]
) -> None:
    """Write all batches to `temporary`, in the format that `path` asks for."""
    name = os.fspath(path).lower()
    if name.endswith(_PARQUET):
        opened = _parquet(temporary, schema)
    else:
        opened = _csv(temporary, schema, packed=name.endswith(".gz"))
    with opened as write:
        for batch in batches:
            write(batch)


@contextmanager
def _parquet(path: Path, schema: "pa.Schema") -> Iterator[Write]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        yield writer.write_batch


@contextmanager
def _csv(path: Path, schema: "pa.Schema", *, packed: bool) -> Iterator[Write]:
    from pyarrow import csv

    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("wb"))
        if packed:
            # Neither name nor time in the header: equal logs give equal bytes.
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        writer = stack.enter_context(csv.CSVWriter(file, schema))
        yield writer.write_batch
