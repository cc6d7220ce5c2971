"""A source is recognised once, by its type or its name, and opened by the door of its kind.

A new kind is a module with a function that opens it and one line: of `KINDS`, of `FILE_KINDS` for
a kind of file. Until a source of its kind is met, its module is not imported. Whatever a table
comes from, it then is a `Source`: it has columns and can be loaded.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from untilt._core.optional import explained_import
from untilt.data.read.database import Database, quoted
from untilt.data.read.files import Files, located
from untilt.errors import ColumnError, OptionError, did_you_mean
from untilt.facts import Fact

if TYPE_CHECKING:
    from untilt.data.read.bad_rows import BadRows
    from untilt.data.read.columns import ColumnRoles
    from untilt.data.read.options import Request

# (n, least, most) of columns of whole numbers, as a file states them; it may be wrong
Stated = dict[str, tuple[int, int, int]]

# columns wanted, and which of them hold ids -> the name of a table that can be read many times
Load = Callable[[Sequence[str], frozenset[str]], str]


@dataclass(frozen=True)
class Source:
    """A table that can be read: what to call it in messages, its columns, and how to load it.

    `given` are the names as they stand in the source. DuckDB does not tell Click from CLICK and
    numbers such columns: where two of them are alike, `columns` does not say which was which.
    """

    what: str
    columns: tuple[str, ...]
    load: Load
    given: tuple[str, ...] = ()
    # What was left out on the way to this table, and what else is to be said of it.
    left_out: "tuple[BadRows, ...]" = ()
    notes: tuple[Fact, ...] = ()
    # What it says of its columns without reading them.
    stated: Callable[[], Stated] = dict
    # Where an engine can count equal sessions itself: the counted log of a layout, which is None
    # where it cannot, and the columns of numbers, where they are known before loading.
    count: "Callable[[ColumnRoles], tuple[ColumnRoles, Source] | None] | None" = None
    numeric: Callable[[], frozenset[str]] | None = None

    def has(self, name: str) -> bool:
        """Whether there is a column of exactly this name."""
        return name in self.columns

    def named(self, name: str) -> str | None:
        """The column of this name, or the only one that differs in upper and lower case alone."""
        if self.has(name):
            return name
        like = [each for each in self.columns if each.lower() == name.lower()]
        given = [each for each in self.given if each.lower() == name.lower()]
        if len(like) > 1 or len(given) > 1:
            raise ColumnError(
                f"{self.what} has no column {name!r} alone but "
                f"{' and '.join(map(repr, given or like))}, which differ in upper and lower case "
                "only. Rename all but one of them."
            )
        return like[0] if like else None


class Export(ABC):
    """Several tables of another system that are one log together.

    document_keys : names that a table of documents may have for its keys, beside ours
    """

    document_keys: Mapping[str, str | None] = {}

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """The tables, each a source by itself."""

    @abstractmethod
    def with_parts(self, *parts: Any) -> Self:
        """The same with other tables."""

    @abstractmethod
    def open(self, database: Database, name: str, request: "Request") -> Source:
        """The log under our names, with positions from 1, as it was asked for."""


@contextmanager
def at_hand(
    sources: Sequence[Any], temp_directory: str | os.PathLike[str] | None = None
) -> Iterator[list[Any]]:
    """Each source as `open_source` takes it: paths are `located`, files of a store copied here.

    The copies are gone when the block ends. Errors inside it name the address, not the copy.
    """
    with ExitStack() as stack:

        def found(source: Any) -> Any:
            if isinstance(source, Export):
                return source.with_parts(*map(found, source.parts))
            if not _may_be_address(source):
                return located(source)
            from untilt.data.read.remote import fetched

            return stack.enter_context(fetched(source, temp_directory))

        yield [found(source) for source in sources]


def _may_be_address(source: Any) -> bool:
    """Whether some text in it looks like an address: then `remote` is asked."""
    several = source if isinstance(source, list | tuple) else (source,)
    return any(isinstance(e, str | os.PathLike) and "://" in os.fsdecode(e) for e in several)


def files_of(source: Any) -> list[Files]:
    """The files behind a source that is at hand."""
    parts = source.parts if isinstance(source, Export) else (source,)
    return [part for part in parts if isinstance(part, Files)]


@dataclass(frozen=True)
class Kind:
    """A kind of source: how messages call it, whether something is one, and what opens it.

    door : module of `untilt.data.read` and function, called with the database, the source and a
        name for the table. None for files, whose kinds have doors of their own
    """

    title: str
    door: str | None
    accepts: Callable[[Any], bool]


def _typed(family: str, *kinds: str) -> Callable[[Any], bool]:
    """Whether it is an object of a library, of one of these types; no library is imported."""

    def accepts(source: Any) -> bool:
        own, name = type(source).__module__.partition(".")[0].lstrip("_"), type(source).__name__
        return own == family and name in (kinds or (name,)) and not isinstance(source, type)

    return accepts


def _with(attribute: str, accepts: Callable[[Any], bool] | None = None) -> Callable[[Any], bool]:
    """Whether it is an object with an attribute, and what else is asked for."""
    return lambda source: (
        not isinstance(source, type)
        and hasattr(source, attribute)
        and (accepts is None or accepts(source))
    )


def _is_pair(source: Any) -> bool:
    return isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "cursor")


KINDS = (
    Kind(
        "a path (Parquet, CSV, JSON lines, Arrow, DuckDB or SQLite database), an address "
        "(s3://..., postgresql://...), a list of paths, a pair (database, table name)",
        None,
        lambda source: isinstance(source, Files),
    ),
    Kind("", "postgres:open_address", _typed("untilt", "Address")),
    Kind("a DuckDB relation", "frames:open_relation", _with("project", _typed("duckdb"))),
    Kind("a pyarrow", "frames:open_arrow", _typed("pyarrow")),
    Kind("", "frames:open_lazy_frame", _typed("polars", "LazyFrame")),
    Kind("Polars", "frames:open_frame", _typed("polars", "DataFrame")),
    Kind("or pandas table", "frames:open_frame", _typed("pandas", "DataFrame")),
    Kind("a DeltaTable", "frames:open_delta", _with("to_pyarrow_dataset", _typed("deltalake"))),
    Kind("an Iceberg table or scan", "frames:open_iceberg", _typed("pyiceberg")),
    Kind("an Ibis table", "engines:open_ibis", _typed("ibis", "Table")),
    Kind("a Spark DataFrame", "engines:open_spark", _typed("pyspark", "DataFrame")),
    Kind("a pair (PostgreSQL connection, table name)", "postgres:open_connection", _is_pair),
    Kind("an ADBC cursor", "frames:open_cursor", _with("fetch_record_batch")),
    Kind("", "frames:open_stream", _with("__arrow_c_stream__")),
)


def open_source(database: Database, source: Any, name: str) -> Source:
    """Open what is `at_hand`, as a table of this name."""
    kind = next((kind for kind in KINDS if kind.accepts(source)), None)
    if kind is None:
        titles = ", ".join(kind.title for kind in KINDS if kind.title)
        raise OptionError(
            f"a table can be read from {titles}. Got {type(source).__name__} instead."
        )
    module, _, function = (kind.door or source.kind.door).partition(":")
    family = type(source).__module__.partition(".")[0].lstrip("_")
    what = getattr(source, "what", f"a {family} {type(source).__name__}")
    with explained_import(f"reading {what}"):
        door = getattr(import_module(f"untilt.data.read.{module}"), function)
        opened: Source = door(database, source, name)
        return opened


# ---- what several doors need


def alike(names: Sequence[str]) -> list[str]:
    """Names that are there more than once, but for upper and lower case."""
    lower = [name.lower() for name in names]
    return [name for name in dict.fromkeys(names) if lower.count(name.lower()) > 1]


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names, of those that differ in upper and lower case alone the first."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.lower(), name)
    return tuple(first.values())


def refuse_alike(what: str, names: Sequence[str]) -> None:
    """Raise where DuckDB could not tell two columns apart."""
    if alike(names):
        raise ColumnError(
            f"{what} has columns whose names differ in upper and lower case only, or not at all: "
            f"{', '.join(names[:40])}. Rename them."
        )


def chosen_table(file: str, table: object, names: Iterable[str]) -> str:
    """The table of a database that is asked for, or its only one."""
    known = list(names)
    chosen = known[0] if table is None and len(known) == 1 else table
    if isinstance(chosen, str) and chosen not in known:
        like = [each for each in known if each.lower() == chosen.lower()]
        chosen = like[0] if len(like) == 1 else chosen
    if not isinstance(chosen, str) or chosen not in known:
        listed = ", ".join(known) or "none"
        hint = did_you_mean(chosen, known) if isinstance(chosen, str) else ""
        raise OptionError(
            f"which table of {file!r}? Got {table!r}; it holds: {listed}.{hint} "
            f"⟦Pass ({file!r}, 'table name')|Name it: --table NAME, or --table "
            "documents=NAME for --documents⟧."
        )
    return chosen


def viewed(
    database: Database, what: str, name: str, given: Callable[[], tuple[str, ...]] = tuple
) -> Source:
    """A view that is there already. `given` is asked for only where names look numbered."""
    columns = tuple(database.columns(name))
    lower = {each.lower() for each in columns}
    numbered = any(_NUMBERED.sub("", each.lower()) in lower - {each.lower()} for each in columns)
    return Source(what, columns, lambda _columns, _ids: name, given() if numbered else ())


_NUMBERED = re.compile(r"_\d+$")


def materialised(
    database: Database, name: str, reader: Any, columns: Sequence[str] = ("*",)
) -> str:
    """A table of ours with some columns of a stream."""
    chosen = ", ".join("*" if column == "*" else quoted(column) for column in columns)
    stream = f"{name}_stream"
    database.connection.register(stream, reader)
    database.run(f"CREATE TEMP TABLE {name} AS SELECT {chosen} FROM {stream}")
    database.connection.unregister(stream)
    return name


def arrow_schema_names(schema: Any, what: str) -> list[str]:
    """The names of the columns of a schema, which Arrow keeps as any bytes."""
    try:
        return list(schema.names)
    except UnicodeDecodeError as error:
        raise ColumnError(
            f"{what} has a column whose name is no UTF-8: {error.object[:40]!r}. Rename it, or "
            "write the file again where it is damaged."
        ) from error


def distinct(names: Sequence[str]) -> list[str]:
    """Names as SQL needs them: none empty (pandas writes its index so), none twice."""
    taken: set[str] = set()
    distinct = []
    for number, given in enumerate(names, start=1):
        name = given or f"column{number}"
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        distinct.append(name)
    return distinct
