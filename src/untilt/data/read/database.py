"""A DuckDB connection of our own: limits, temporary files, and its errors as ours."""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from untilt._core import memory
from untilt._core.arrays import AnyArray
from untilt.errors import FileFormatError, MemoryLimitError, OptionError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")

# Half of the memory for DuckDB: the other half is for the arrays that come out, and for others.
_MEMORY_SHARE = 0.5

# DuckDB does not start with less; where even that is not there, it says so when it runs out.
_LEAST_MEMORY = 32 << 20


@dataclass(frozen=True)
class Database:
    """A connection of our own and a temporary folder that is removed with it.

    Statements run in a thread beside the caller's, which waits and can be interrupted: DuckDB by
    itself looks for Ctrl-C only now and then, and may go on for as long as a statement lasts.
    """

    connection: "duckdb.DuckDBPyConnection"
    scratch: Path
    worker: ThreadPoolExecutor

    def run(self, sql: str) -> None:
        """Execute a statement that returns nothing of interest."""
        self._wait_for(lambda: self.connection.execute(sql))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a small result."""
        return self._wait_for(lambda: list(self.connection.execute(sql).fetchall()))

    def row(self, sql: str) -> tuple[Any, ...]:
        """The only row of a result."""
        (row,) = self.rows(sql)
        return row

    def arrays(self, sql: str) -> dict[str, AnyArray]:
        """A result as one array per column."""
        columns = self._wait_for(lambda: self.connection.execute(sql).fetchnumpy())
        return {name: np.asarray(column) for name, column in columns.items()}

    def batches(self, sql: str, *, size: int) -> "Iterator[pa.RecordBatch]":
        """A large result, in pieces of at most `size` rows; read all of it before the next call."""
        reader = self._wait_for(lambda: arrow_reader(self.connection.sql(sql), size))
        try:
            while (batch := self._wait_for(lambda: next(reader, None))) is not None:
                yield batch
        finally:
            reader.close()

    def columns(self, relation: str) -> dict[str, str]:
        """Column names and DuckDB types of a table, view or table function."""
        return {name: type_ for name, type_, *_ in self.rows(f"DESCRIBE SELECT * FROM {relation}")}

    def _wait_for(self, work: Callable[[], T]) -> T:
        future = self.worker.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._stop(future)
            raise

    def _stop(self, future: "Future[T]") -> None:
        while not future.done():
            try:
                self.connection.interrupt()
                wait([future], timeout=0.1)
            except KeyboardInterrupt:  # pressed again while we wait
                continue


@contextmanager
def open_database(
    *,
    memory_limit: str | int | None,
    temp_directory: str | os.PathLike[str] | None,
    threads: int | None,
) -> Iterator[Database]:
    """A database in memory that spills to a folder inside `temp_directory`, removed at the end."""
    try:
        scratch = tempfile.TemporaryDirectory(
            prefix="untilt-", dir=temp_directory, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise OptionError(
            f"temp_directory must be a folder that can be written to. Got {temp_directory!r} "
            f"instead: {error.strerror}."
        ) from error
    with scratch as folder, ThreadPoolExecutor(1, thread_name_prefix="duckdb") as worker:
        connection = _connect(memory_limit, threads, Path(folder))
        try:
            yield Database(connection, Path(folder), worker)
        finally:
            connection.close()


def _connect(
    memory_limit: str | int | None, threads: int | None, scratch: Path
) -> "duckdb.DuckDBPyConnection":
    import duckdb

    if threads is not None and (isinstance(threads, bool) or threads < 1):
        raise OptionError(f"threads must be at least 1. Got {threads!r} instead.")
    limit = memory_limit or _memory()
    config: dict[str, Any] = {
        "threads": threads or os.cpu_count() or 1,
        "temp_directory": str(scratch / "spill"),
        # The order of rows means nothing in a log, and keeping it would cost memory.
        "preserve_insertion_order": False,
    }
    connection = duckdb.connect(config=config)
    try:
        if limit is not None:
            amount = limit if isinstance(limit, str) else f"{limit}B"
            connection.execute(f"SET memory_limit = {literal(amount)}")
    except duckdb.Error as error:
        connection.close()
        raise OptionError(
            f"memory_limit must be bytes or text such as '4GB'. Got {memory_limit!r} instead."
        ) from error
    # A table name of ours must never fall back to a Python variable of the caller.
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_progress_bar = false")
    return connection


def _memory() -> int | None:
    """A share of the memory that this process may still take; None where unknown."""
    room = memory.room()
    return None if room is None else max(_LEAST_MEMORY, int(room * _MEMORY_SHARE))


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Turn DuckDB's and Arrow's errors about `what` into ours.

    Errors about the SQL itself go through: they would be a bug of ours, not of the data.
    """
    import duckdb
    import pyarrow as pa

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise MemoryLimitError(
            f"{what} did not fit: {_in_short(error)}. Raise memory_limit, or point "
            f"temp_directory to a disk with more room."
        ) from error
    except MemoryError as error:  # of NumPy or Arrow, or already ours
        if isinstance(error, MemoryLimitError):
            raise
        raise MemoryLimitError(
            f"{what} did not fit into the memory of this process. Give it more, or collapse the "
            f"log first: a row per distinct list and position, with a `count` of its sessions."
        ) from error
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException):
        raise
    except (duckdb.Error, pa.ArrowException, UnicodeDecodeError, OSError) as error:
        raise FileFormatError(
            f"{what} cannot be read: {_in_short(error)}. The file may be damaged, cut short or "
            f"of another kind than its name says."
        ) from error


def _in_short(error: BaseException) -> str:
    """What DuckDB says before it goes on to its own options."""
    lines = []
    for line in str(error).strip().splitlines()[:4]:
        if not line.strip() or line.startswith("Possible"):
            break
        lines.append(line.strip().rstrip("."))
    return "; ".join(lines)[:600] or type(error).__name__


def arrow_reader(relation: Any, size: int) -> "pa.RecordBatchReader":
    """A relation's rows as a stream; before DuckDB 2 the method had another name."""
    kind = type(relation)
    method = getattr(kind, "to_arrow_reader", None) or kind.fetch_arrow_reader
    return method(relation, size)


def quoted(name: str) -> str:
    """A column or table name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text value in SQL."""
    return "'" + text.replace("'", "''") + "'"
