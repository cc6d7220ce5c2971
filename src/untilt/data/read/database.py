"""A DuckDB connection of our own: limits, temporary files, and its errors as ours.

It can open the files that were asked for and nothing else: neither a view inside a database that
somebody sent nor a name that looks like an address reaches other files or the network.
"""

import glob
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from untilt._core import memory
from untilt._core.arrays import AnyArray
from untilt._core.declared import is_whole
from untilt._core.files import scratch_folder
from untilt._core.paths import is_utf8
from untilt._core.threads import cores
from untilt.data.limits import remedy
from untilt.data.read.stream import Pieces, Stream, in_short_pieces
from untilt.errors import FileFormatError, MemoryLimitError, OptionError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")

# Half of the memory for DuckDB: the other half is for the arrays that come out, and for others.
_MEMORY_SHARE = 0.5
_MOST_THREADS = 1024

# DuckDB does not start with less; where even that is not there, it says so when it runs out.
_LEAST_MEMORY = 32 << 20

# Enough to sort on two threads, spilling.
_LITTLE_MEMORY = 256 << 20


@dataclass(frozen=True)
class Database:
    """A connection of our own and a temporary folder that is removed with it.

    Statements run in a thread beside the caller's, which waits and can be interrupted: DuckDB by
    itself looks for Ctrl-C only now and then, and may go on for as long as a statement lasts.
    """

    connection: "duckdb.DuckDBPyConnection"
    scratch: Path
    tasks: "Statements"

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

    def pieces(self, sql: str, *, size: int) -> Iterator[Pieces]:
        """A large result as one array per column, at most `size` rows at a time.

        Read all of it before the next call.
        """
        stream = self._wait_for(lambda: Stream(self.connection.sql(sql)))
        try:
            while (piece := self._wait_for(stream.next)) is not None:
                yield from in_short_pieces(piece, size)
        finally:
            stream.close()

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Rows come in the order of the source inside the block; an older DuckDB stays as it is."""
        import duckdb

        with suppress(duckdb.InvalidInputException):
            self.run("SET preserve_insertion_order = true")
        try:
            yield
        finally:
            with suppress(duckdb.InvalidInputException):
                self.run("SET preserve_insertion_order = false")

    def append(self, table: str, columns: dict[str, AnyArray]) -> None:
        """Append to a table, made with the first rows; also while `pieces` is being read."""

        def work() -> None:
            with closing(self.connection.cursor()) as beside:
                beside.register("appended", columns)
                beside.execute(f"CREATE TABLE IF NOT EXISTS {table} AS FROM appended LIMIT 0")
                beside.execute(f"INSERT INTO {table} BY NAME FROM appended")
                beside.unregister("appended")

        self._wait_for(work)

    def batches(self, sql: str, *, size: int) -> "Iterator[pa.RecordBatch]":
        """A large result in Arrow's own pieces, of columns of any type; needs pyarrow."""
        reader = self._wait_for(lambda: arrow_reader(self.connection.sql(sql), size))
        try:
            while (batch := self._wait_for(lambda: next(reader, None))) is not None:
                yield batch
        finally:
            reader.close()

    def make_room(self, size: int, what: str, *, work: int = 0) -> None:
        """Raise unless arrays of `size` bytes fit; if need be, DuckDB gives memory up and spills.

        From here on it may take a share of what the arrays leave: with more it would fill, while
        they are written, the room that was counted for them. `work` is what the next steps will
        take: a share of the queries is advised that fits then.
        """
        room = memory.room()
        if room is None or memory.fits(size):
            if room is not None:
                (held,) = self.row(
                    "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory()"
                )
                self._limit(int(held + _MEMORY_SHARE * (room - size)))
            return
        self._limit(_LITTLE_MEMORY)
        memory.allow(size, what, remedy(size + work))

    def _limit(self, size: int) -> None:
        """Less memory for DuckDB. What is in use stays so; an older DuckDB keeps its limit."""
        import duckdb

        (now,) = self.row("SELECT current_setting('memory_limit')")
        if size < memory.parse_size(now, "DuckDB's memory_limit"):
            with suppress(duckdb.OutOfMemoryException, duckdb.InvalidInputException):
                self.run(f"SET memory_limit = '{max(size, _LITTLE_MEMORY)}B'")

    def columns(self, relation: str) -> dict[str, str]:
        """Column names and DuckDB types of a table, view or table function.

        Not by DESCRIBE, which in DuckDB 2.0 names a column of a view as the table below it does:
        QUERY_ID for `"QUERY_ID" AS query_id`.
        """
        import duckdb

        def described() -> dict[str, str]:
            try:
                chosen = self.connection.sql(f"SELECT * FROM {relation}")
                return dict(zip(chosen.columns, map(str, chosen.types), strict=True))
            except RuntimeError as error:  # of its bindings: bytes that are no text
                raise duckdb.InvalidInputException("the name of a column is no UTF-8") from error

        return self._wait_for(described)

    def path(self, file: str) -> str:
        """A file's name as DuckDB takes it; a second name where it would take it for another."""
        if is_plain(file):
            return local(file)
        name = self.scratch_file("".join(filter(is_utf8, Path(file).suffixes[-2:])))
        for ending in ("", ".wal"):  # the last changes of a database
            if os.path.isfile(file + ending):
                link(file + ending, f"{name}{ending}")
        return name

    def scratch_file(self, ending: str) -> str:
        """A name for a new file in our own folder."""
        return str(self.scratch / f"{sum(1 for _ in self.scratch.iterdir())}{ending}")

    def end(self) -> None:
        """End what still runs: Ctrl-C as a statement was handed over has left it to itself."""
        self._wait_for(lambda: None, interrupting=True)

    def _wait_for(self, work: Callable[[], T], *, interrupting: bool = False) -> T:
        """The result. Ctrl-C ends the statement first, however often it is pressed."""
        task = Statement(work)
        self.tasks.put(task)
        pressed = False
        while True:
            try:
                while not task.outcome:
                    if pressed or interrupting:
                        self.connection.interrupt()
                    task.over.acquire(timeout=0.1 if pressed or interrupting else -1)
                break
            except KeyboardInterrupt:
                pressed = True
        if pressed:
            raise KeyboardInterrupt
        result, error = task.outcome[0]
        if error is not None:
            raise error
        return cast("T", result)


class Statement:
    """A statement, and what came of it.

    With a bare lock and a list in place of a `Future`: Ctrl-C may come between any two steps of the
    caller, and where a `Future` has just taken its own lock then, its worker waits for ever.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work, self.over = work, threading.Lock()
        self.outcome: list[tuple[Any, BaseException | None]] = []
        self.over.acquire()

    def run(self) -> None:
        """Do the work, and let whoever waits know."""
        try:
            self.outcome.append((self.work(), None))
        except BaseException as error:
            self.outcome.append((None, error))
        self.over.release()


Statements = SimpleQueue[Statement | None]  # its `put` and `get` are one step each


@contextmanager
def _worker() -> Iterator[Statements]:
    """A thread that runs what is put, in order, and ends after what was put in the block."""
    tasks: Statements = SimpleQueue()

    def work() -> None:
        while (task := tasks.get()) is not None:
            task.run()

    thread = threading.Thread(target=work, name="duckdb")
    thread.start()
    try:
        yield tasks
    finally:
        tasks.put(None)
        thread.join()


@contextmanager
def own_folder(temp_directory: str | os.PathLike[str] | None) -> Iterator[Path]:
    """A folder inside `temp_directory`, removed at the end."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder(temp_directory))
            str(folder).encode()  # DuckDB takes names that are text alone
        except (OSError, TypeError, ValueError) as error:
            raise OptionError(
                f"temp_directory must be a folder that can be written to. Got {temp_directory!r} "
                f"instead: {getattr(error, 'strerror', error)}."
            ) from error
        yield folder


@contextmanager
def open_database(
    *,
    memory_limit: str | int | None,
    temp_directory: str | os.PathLike[str] | None,
    threads: int | None,
    files: Sequence[str] = (),
    keep_order: bool = False,
) -> Iterator[Database]:
    """A database in memory that spills to a folder inside `temp_directory`, removed at the end.

    It can open `files` and what stands in its own folder. With `keep_order` rows stay in the order
    in which they were put in.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(own_folder(temp_directory))
        tasks = stack.enter_context(_worker())
        connection = stack.enter_context(
            closing(_connect(memory_limit, threads, folder, keep_order=keep_order))
        )
        _close_off(connection, files, str(folder))
        database = Database(connection, folder, tasks)
        stack.callback(database.end)
        yield database


def _connect(
    memory_limit: str | int | None, threads: int | None, scratch: Path, *, keep_order: bool
) -> "duckdb.DuckDBPyConnection":
    import duckdb

    if threads is not None and not is_whole(threads, 1, _MOST_THREADS):
        raise OptionError(
            f"threads must be a whole number from 1 to {_MOST_THREADS:,}. Got {threads!r} instead."
        )
    limit = memory_limit or _memory()
    config: dict[str, Any] = {
        "threads": int(threads or cores()),
        "temp_directory": str(scratch / "spill"),
        # The order of rows means nothing in a log, and keeping it would cost memory.
        "preserve_insertion_order": keep_order,
        # Nothing that we read needs an extension; a file must not make DuckDB fetch one.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_persistent_secrets": False,
        # DuckDB believes the least and the largest value that a Parquet file states, and sizes
        # tables by them: a file that lies crashes it. Without them reading takes 7% longer.
        "disabled_optimizers": "statistics_propagation",
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
    # Asked first: in a Jupyter kernel without ipywidgets it is off, and every change is refused.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()[0][0]:
        connection.execute("SET enable_progress_bar = false")
    return connection


def _close_off(connection: "duckdb.DuckDBPyConnection", files: Sequence[str], folder: str) -> None:
    """From here on only these files and this folder can be opened; no statement can undo it."""
    names = [name for file in files if is_plain(file) for name in _spellings(file)]
    allowed = ", ".join(map(literal, dict.fromkeys(names)))
    folders = ", ".join(map(literal, {folder, os.path.realpath(folder)}))
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute(f"SET allowed_directories = [{folders}]")
    connection.execute("SET enable_external_access = false")
    import duckdb

    with suppress(duckdb.CatalogException):  # an older DuckDB, in which memory cannot be given back
        connection.execute("SET allowed_configs = ['memory_limit', 'preserve_insertion_order']")
    connection.execute("SET lock_configuration = true")


def _spellings(file: str) -> Iterator[str]:
    """The names under which DuckDB asks for a file, as a pattern too, and what comes with it."""
    for name in (local(file), os.path.realpath(file)):
        if is_utf8(name):
            yield from (name, glob.escape(name), name + ".wal")


def local(file: str | os.PathLike[str]) -> str:
    """The name such that it begins like no option and no address."""
    file = os.fspath(file)
    return file if os.path.isabs(file) else os.path.join(os.curdir, file)


def is_plain(file: str) -> bool:
    """Whether DuckDB takes this for the name of a file, and no address, home or its parameters."""
    return is_utf8(file) and not any(sign in file for sign in ("?", "~", "://"))


def link(file: str, name: str) -> None:
    """A second name for a file, or a copy of it."""
    try:
        os.link(os.path.realpath(file), name)
    except OSError:  # on another disk, or somebody else's
        shutil.copyfile(file, name)


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

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise MemoryLimitError(
            f"{what} did not fit: {in_short(error)}. Raise memory_limit, or point "
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
    except duckdb.PermissionException as error:
        raise FileFormatError(
            f"{what} refers to another file, which untilt does not open: {in_short(error)}. Read "
            "that file directly or, if this is a view, write its rows to a table: CREATE TABLE "
            "clicks AS SELECT * FROM the_view."
        ) from error
    except (duckdb.Error, *_arrow_errors(), UnicodeDecodeError, OSError) as error:
        raise FileFormatError(
            f"{what} cannot be read: {in_short(error)}. The file may be damaged or cut short, or "
            "its ending may be wrong."
        ) from error


def _arrow_errors() -> tuple[type[Exception], ...]:
    """What Arrow raises; nothing where it takes no part. Called when something was raised."""
    if sys.modules.get("pyarrow") is None:
        return ()
    import pyarrow as pa

    return (pa.ArrowException,)


def in_short(error: BaseException) -> str:
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
