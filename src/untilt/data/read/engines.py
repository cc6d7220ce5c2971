"""Sessions counted where a log lives: SQL for the engine, and tables of Ibis and Spark.

A session becomes one row with a column for each position (its document and labels there), equal
sessions are grouped and counted, and the smallest session of each group is joined back to its rows:

    session 1: query 7   position 1: a, click   position 2: b          query  session  document ...
    session 2: query 7   position 1: a, click   position 2: b     ->       7        1  a        ...
    session 3: query 7   position 1: b          position 2: a              ...             count 2

The result has the columns of the log and a `count`, and is read as such: `read_log` groups again,
so that a grouping that is too fine costs rows and never changes the log. One that is too coarse
would. So a session that is not clean goes through as it is, with its own number in the key: one
with a position twice, a position that is none or deeper than the columns go, a document or label
that is missing, or rows that differ in what they share. `read_log` then finds in the counted rows
all that is wrong, as it would in the log itself.

An engine gives rows as Arrow. None of the libraries is imported here: whoever has such a table has
imported its library.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add, and_
from typing import Any
from uuid import uuid4

from untilt._core.declared import is_whole
from untilt._core.progress import progress
from untilt.data.clicklog import PROPENSITY
from untilt.data.limits import DEEPEST, MOST_COUNT
from untilt.data.read.columns import (
    FLAG,
    PAGE,
    PERSON,
    REQUIRED,
    VERSION,
    ColumnRoles,
    check_mapping,
    optional_of,
)
from untilt.data.read.database import Database
from untilt.data.read.frames import open_stream
from untilt.data.read.sources import Source
from untilt.errors import ColumnError, FileFormatError, OptionError, check_choice

COUNT = "count"
# Of the rows that may be counted by position; the sessions of the others are not merged.
_SHARE_WITHIN_DEPTH = 0.999
BATCH = 1 << 17
# Text is compared without regard to case there, by default: two lists could be taken for one.
_CASELESS = ("mysql", "mssql", "singlestoredb")


@dataclass(frozen=True)
class Dialect:
    """How an engine writes what differs: names, and what can be compared by MIN and MAX.

    Parameters
    ----------
    quote : the sign around names
    as_text : compare ids and labels as text: PostgreSQL has no MAX of truth values and, before
        version 18, none of UUIDs
    most_columns : that a row may have
    double : its type of double precision that may be NULL. Counts become such numbers where theirs
        may be anything: ClickHouse makes a union of two types, which no Arrow reader takes
    """

    quote: str = '"'
    as_text: bool = False
    most_columns: int = 4000
    double: str = "double"

    def name(self, name: str) -> str:
        """A column's name."""
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def comparable(self, value: str) -> str:
        """A value that MIN and MAX take and that is equal where the value is."""
        return f"CAST({value} AS text)" if self.as_text else value


DIALECTS = {
    "duckdb": Dialect(),
    # 1,664 columns are its limit.
    "postgres": Dialect(as_text=True, most_columns=1500, double="double precision"),
    "clickhouse": Dialect(quote="`", double="Nullable(Float64)"),
    "spark": Dialect(quote="`"),
}


@dataclass(frozen=True)
class CollapseColumns:
    """The columns of a log by what they do in the collapse.

    Parameters
    ----------
    cells : columns of which every position has its own value: the document comes first
    needed : those of them that a clean row has (a feature may be missing)
    shared : columns of which a session has one value: ranker, random flag, person, context
    count : the column of counts; None where every row is one impression
    """

    query: str
    session: str
    position: str
    cells: tuple[str, ...]
    needed: tuple[str, ...]
    shared: tuple[str, ...]
    count: str | None

    @classmethod
    def of(cls, layout: ColumnRoles) -> "CollapseColumns":
        """From the roles of columns."""
        roles = layout.roles
        versions = [roles[VERSION]] if VERSION in roles else []
        needed = [roles["doc_id"], *versions, *layout.labels.values()]
        shared = [roles[role] for role in ("ranker", FLAG, PERSON) if role in roles]
        return cls(
            query=roles["query_id"],
            session=roles["session_id"],
            position=roles["position"],
            cells=tuple(dict.fromkeys([*needed, *layout.features])),
            needed=tuple(dict.fromkeys(needed)),
            shared=tuple(dict.fromkeys([*shared, *layout.context.values()])),
            count=roles.get(COUNT),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the result, each once; counts are not among them."""
        keys = (self.query, self.session, self.position)
        return tuple(dict.fromkeys([*keys, *self.cells, *self.shared]))

    def most_depth(self, dialect: Dialect) -> int:
        """How many positions the engine has columns for."""
        return max(1, min(DEEPEST, dialect.most_columns // len(self.cells) - 1))


def slots(depth: int) -> range:
    """The positions that have columns. With 0: a log may count from there, and be told so later."""
    return range(depth + 1)


def collapse_sql(
    table: str,
    depth: int,
    dialect: str = "duckdb",
    *,
    columns: Mapping[str, str | None] | None = None,
    label: str = "click",
    labels: Sequence[str] = (),
    context: Sequence[str] = (),
    features: Sequence[str] = (),
) -> str:
    """The query that counts equal sessions of a click log, for the engine that holds it.

    Its result has the same columns as the log, one session in place of all that are equal to it,
    and their number in `count`. `read_log` gives the same `ClickLog` for it as for the whole log,
    with the same options. Times are not kept: they differ where all else is equal.

    Parameters
    ----------
    table : the log's table as your engine writes it, such as ``shop.clicks``, or a query in
        brackets with a name: ``(SELECT ...) AS clicks``. It goes into the query as it is
    depth : of most lists. Any depth gives the same log: a session with a row deeper than this is
        not merged with others, so that a small depth makes a larger result, and a large one a
        query with more columns (one for each position and each of document, label and feature)
    dialect : "duckdb", "postgres", "clickhouse" or "spark". Other engines: give `read_log` an Ibis
        table
    columns, label, labels, context : as in `read_log`. An optional column (ranker, person, count,
        random, propensity, version) is taken where `columns` names it: {"ranker": "ranker"}
    features : columns of the log that are features, by their names

    Examples
    --------
    >>> import duckdb
    >>> import untilt as ut
    >>> rows = "(VALUES (7, 1, 'a', 1, 1), (7, 2, 'a', 1, 1), (7, 3, 'b', 1, 0))"
    >>> clicks = f"{rows} AS clicks(query_id, session_id, doc_id, position, click)"
    >>> duckdb.sql(ut.collapse_sql(clicks, depth=10)).order("session_id").fetchall()
    [(7, 1, 1, 'a', 1, 2), (7, 3, 1, 'b', 0, 1)]
    """
    check_choice("dialect", dialect, tuple(DIALECTS))
    for option, names in (("labels", labels), ("context", context), ("features", features)):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise OptionError(f"{option} must be a list of names. Got {names!r} instead.")
    named = dict(columns or {})
    check_mapping(named, (label, *labels), context)
    if PAGE in named:
        raise OptionError("number positions over all pages in `table`: `page` is not read.")
    roles = {role: named.get(role) or role for role in REQUIRED}
    for role in (*optional_of(context), FLAG, VERSION):
        theirs = named.get(role)
        if theirs is not None and role not in ("timestamp", PROPENSITY):
            roles[role] = theirs
    more = [] if named.get(PROPENSITY) is None else [PROPENSITY]
    layout = ColumnRoles(
        roles,
        {name: named.get(name) or name for name in (label, *labels, *more)},
        {name: (name,) for name in features},
        {name: named.get(name) or name for name in context},
    )
    key = CollapseColumns.of(layout)
    most = key.most_depth(DIALECTS[dialect])
    if not is_whole(depth, 1, most):
        raise OptionError(
            f"depth must be a whole number from 1 to {most}: {dialect} has no more columns for "
            f"{len(key.cells)} values at each position. Got {depth!r} instead. Sessions that go "
            "deeper are kept one by one."
        )
    return counted_sql(table, key, depth, DIALECTS[dialect])


def counted_sql(
    table: str, key: CollapseColumns, depth: int, dialect: Dialect, count: str = COUNT
) -> str:
    """The collapse of a table; `count` is the name of the counts where the log has none."""
    name = dialect.name
    query, session = name(key.query), name(key.session)
    kept = [name(column) for column in key.columns]
    whole = f"{query} IS NOT NULL AND {session} IS NOT NULL"
    counts, sessions = "CAST(1 AS bigint)", "CAST(u_lists.u_sessions AS bigint)"
    if key.count is not None:
        counts = f"CAST({name(key.count)} AS {dialect.double})"
        summed = f"CAST(u_lists.u_sessions AS {dialect.double})"
        theirs = f"CAST(u_rows.{name(key.count)} AS {dialect.double})"
        sessions = f"CASE WHEN u_lists.u_odd IS NULL THEN {summed} ELSE {theirs} END"
    as_count = name(key.count or count)
    same = f"{dialect.comparable(f'u_rows.{session}')} = u_lists.u_smallest"
    return f"""\
WITH u_pivot AS (
  SELECT {_lines(_pivot(key, depth, dialect))}
  FROM {table}
  WHERE {whole}
  GROUP BY {query}, {dialect.comparable(session)}
), u_marked AS (
  SELECT u_pivot.*, CASE WHEN {_is_clean_sql(key, depth)} THEN NULL ELSE u_session END AS u_odd
  FROM u_pivot
), u_lists AS (
  SELECT u_query, u_odd, MIN(u_session) AS u_smallest,
    {"COUNT(*)" if key.count is None else "SUM(u_count_low)"} AS u_sessions
  FROM u_marked
  GROUP BY {_lines(_group(key, depth))}
)
SELECT {_lines([f"u_rows.{column} AS {column}" for column in kept])},
  {sessions} AS {as_count}
FROM (SELECT * FROM {table}) AS u_rows
JOIN u_lists ON u_rows.{query} = u_lists.u_query AND {same}
UNION ALL
SELECT {_lines(kept)}, {counts} AS {as_count}
FROM {table}
WHERE {query} IS NULL OR {session} IS NULL"""


def _pivot(key: CollapseColumns, depth: int, dialect: Dialect) -> list[str]:
    """A session in one row: how many rows it has, its cells, and what its rows share."""
    name, comparable = dialect.name, dialect.comparable
    present = [f"{name(column)} IS NOT NULL" for column in key.needed[1:]]
    made = [
        f"{name(key.query)} AS u_query",
        f"{comparable(name(key.session))} AS u_session",
        "COUNT(*) AS u_n",
    ]
    for (j, column), k in product(enumerate(key.cells), slots(depth)):
        where = " AND ".join([f"{name(key.position)} = {k}", *(present if j == 0 else [])])
        made.append(f"MAX(CASE WHEN {where} THEN {comparable(name(column))} END) AS u_{j}_{k}")
    for j, column in enumerate(key.shared):
        value = comparable(name(column))
        made.append(f"MIN({value}) AS u_low_{j}, MAX({value}) AS u_high_{j}")
        made.append(f"COUNT({value}) AS u_n_{j}")
    if key.count is not None:
        value = name(key.count)
        made.append(f"MIN({value}) AS u_count_low, MAX({value}) AS u_count_high")
        made.append(f"COUNT({value}) AS u_count_n")
    return made


def _is_clean_sql(key: CollapseColumns, depth: int) -> str:
    """As many rows as positions that are filled, and all rows alike in what they share."""
    filled = " + ".join(f"CASE WHEN u_0_{k} IS NULL THEN 0 ELSE 1 END" for k in slots(depth))
    rules = [f"u_n = {filled}"]
    for j in range(len(key.shared)):
        rules.append(f"u_low_{j} = u_high_{j} AND u_n_{j} = u_n")
    if key.count is not None:
        rules.append("u_count_low = u_count_high AND u_count_n = u_n")
        rules.append(f"u_count_low >= 1 AND u_count_low <= {MOST_COUNT}")
        rules.append("u_count_low = FLOOR(u_count_low)")
    return " AND ".join(rules)


def _group(key: CollapseColumns, depth: int) -> list[str]:
    cells = [f"u_{j}_{k}" for j in range(len(key.cells)) for k in slots(depth)]
    return ["u_query", "u_odd", *cells, *(f"u_low_{j}" for j in range(len(key.shared)))]


def _lines(parts: Sequence[str]) -> str:
    return ",\n    ".join(parts)


class Engine(ABC):
    """A table inside an engine.

    Parameters
    ----------
    what : how messages call it
    """

    what: str

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    @abstractmethod
    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""

    @abstractmethod
    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows, as something that hands out an Arrow stream."""

    @abstractmethod
    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has, of 1 to `DEEPEST`."""

    @abstractmethod
    def counted(self, key: CollapseColumns, depth: int, count: str) -> Any:
        """The rows of the counted log, in the same form as `rows`."""

    @property
    def dialect(self) -> Dialect:
        """How the engine writes SQL; for Ibis it is its business."""
        return DIALECTS["duckdb"]


def engine_source(database: Database, engine: Engine, name: str, rows: Any = None) -> Source:
    """The table of an engine as any other source; `rows` where they are here already."""

    def load(columns: Sequence[str], _ids: frozenset[str]) -> str:
        with translated(engine.what):
            found = engine.rows(columns) if rows is None else rows
        return open_stream(database, found, name, engine.what).load(columns, _ids)

    def counted(layout: ColumnRoles) -> tuple[ColumnRoles, Source]:
        key = CollapseColumns.of(layout)
        count = key.count or free_name(engine.columns)
        with progress("counting sessions in the engine"), translated(engine.what):
            depth = depth_for(engine.rows_at(key.position), key.most_depth(engine.dialect))
            found = engine.counted(key, depth, count)
        layout = layout.with_count(count).without("timestamp")
        return layout, engine_source(database, engine, name, found)

    if rows is not None:
        return Source(engine.what, tuple(rows.schema.names), load)
    import pyarrow  # noqa: F401  its rows come as Arrow

    return Source(engine.what, engine.columns, load, count=counted, numeric=engine.numeric)


def depth_for(rows_at: dict[float, int], most: int) -> int:
    """The depth that all rows have but one in a thousand; any would give the same log."""
    total, seen = sum(rows_at.values()), 0
    for position in sorted(rows_at):
        seen += rows_at[position]
        if seen >= _SHARE_WITHIN_DEPTH * total:
            return max(1, min(most, int(position)))
    return 1


def free_name(columns: Sequence[str]) -> str:
    """A name for the counts of a log that has none."""
    free = (name for name in (COUNT, "u_count") if name not in columns)
    return next(free, f"u_count_{uuid4().hex[:8]}")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the engine as ours; they have no common class."""
    try:
        yield
    except (OptionError, ColumnError):
        raise
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise FileFormatError(
            f"{what} cannot be read: {first[:600]}. Try the same query in the engine."
        ) from error


def open_ibis(database: Database, table: Any, name: str) -> Source:
    """An Ibis table or expression."""
    # Ibis has no Arrow form of UUIDs, and not every backend a least one of them.
    uuids = [each for each, kind in table.schema().items() if kind.is_uuid()]
    if uuids:
        table = table.mutate(**{each: table[each].cast("string") for each in uuids})
    return engine_source(database, IbisTable(table), name)


@dataclass(frozen=True)
class IbisTable(Engine):
    """An Ibis table or expression: one expression, which Ibis writes for its backend."""

    table: Any
    what: str = "the Ibis table"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.table.columns)

    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""
        types = self.table.schema().items()
        return frozenset(name for name, kind in types if kind.is_numeric() or kind.is_boolean())

    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows."""
        return _fetched(self.table.select(*columns))

    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has."""
        at = self.table.filter(self.table[position].between(1, DEEPEST))
        counts = at.group_by(u_position=at[position]).aggregate(u_n=at.count()).to_pyarrow()
        return dict(zip(counts["u_position"].to_pylist(), counts["u_n"].to_pylist(), strict=True))

    def counted(self, key: CollapseColumns, depth: int, count: str) -> Any:
        """The rows of the counted log."""
        backend = self.table.get_backend().name
        schema = self.table.schema()
        if backend in _CASELESS and any(schema[name].is_string() for name in key.columns):
            raise OptionError(
                f"{backend} ignores case when it compares text, so it would merge different lists. "
                "Read the table with collapse=False, or from a copy elsewhere."
            )
        return _fetched(counted_table(self.table, key, depth, count))


def _fetched(table: Any) -> Any:
    """The rows of an expression, piece by piece where the backend can."""
    if table.get_backend().name == "duckdb":
        # Ibis 12 asks DuckDB 2 for pieces by a method that it no longer has.
        return table.to_pyarrow()
    return table.to_pyarrow_batches(chunk_size=BATCH)


def counted_table(table: Any, key: CollapseColumns, depth: int, count: str) -> Any:
    """`counted_sql` as an Ibis expression."""
    import ibis

    named = [*key.columns, *([] if key.count is None else [key.count])]
    rows = table.select(*named)
    is_whole = rows[key.query].notnull() & rows[key.session].notnull()
    whole = rows.filter(is_whole)
    needed = [whole[column].notnull() for column in key.needed[1:]]
    sums = {"u_n": whole.count()}
    for j, column in enumerate(key.cells):
        for k in slots(depth):
            where = reduce(and_, [whole[key.position] == k, *(needed if j == 0 else [])])
            sums[f"u_{j}_{k}"] = _comparable(whole[column]).max(where=where)
    for j, column in enumerate(key.shared):
        value = _comparable(whole[column])
        sums |= {f"u_low_{j}": value.min(), f"u_high_{j}": value.max(), f"u_n_{j}": value.count()}
    if key.count is not None:
        value = whole[key.count]
        sums |= {"u_count_low": value.min(), "u_count_high": value.max()}
        sums["u_count_n"] = value.count()
    sessions = {"u_query": whole[key.query], "u_session": _comparable(whole[key.session])}
    pivot = whole.group_by(**sessions).aggregate(**sums)
    nothing = ibis.null(pivot["u_session"].type())
    marked = pivot.mutate(
        u_odd=ibis.cases((_is_clean(pivot, key, depth), nothing), else_=pivot["u_session"])
    )
    group = [
        "u_query",
        "u_odd",
        *(f"u_{j}_{k}" for j in range(len(key.cells)) for k in slots(depth)),
    ]
    group += [f"u_low_{j}" for j in range(len(key.shared))]
    total = marked.count() if key.count is None else marked["u_count_low"].sum()
    lists = (
        marked.group_by(group)
        .aggregate(u_smallest=marked["u_session"].min(), u_sessions=total.cast("int64"))
        .select("u_query", "u_odd", "u_smallest", "u_sessions")
    )
    left = rows.mutate(u_session=_comparable(rows[key.session]))
    both = left.join(
        lists, [left[key.query] == lists["u_query"], left["u_session"] == lists["u_smallest"]]
    )
    counts, alone = both["u_sessions"], ibis.literal(1, "int64")
    if key.count is not None:
        theirs = both[key.count]
        summed = counts.cast("float64")
        counts = ibis.cases((both["u_odd"].isnull(), summed), else_=theirs.cast("float64"))
    without = rows.filter(~is_whole)
    if key.count is not None:
        alone = without[key.count].cast("float64")
    return both.select(*key.columns, **{key.count or count: counts}).union(
        without.select(*key.columns, **{key.count or count: alone})
    )


def _comparable(value: Any) -> Any:
    """A value that every backend has a least and a greatest of."""
    return value.cast("int8") if value.type().is_boolean() else value


def _is_clean(pivot: Any, key: CollapseColumns, depth: int) -> Any:
    filled = reduce(add, [pivot[f"u_0_{k}"].notnull().ifelse(1, 0) for k in slots(depth)])
    rules = [pivot["u_n"] == filled]
    for j in range(len(key.shared)):
        rules.append(pivot[f"u_low_{j}"] == pivot[f"u_high_{j}"])
        rules.append(pivot[f"u_n_{j}"] == pivot["u_n"])
    if key.count is not None:
        low = pivot["u_count_low"]
        rules += [low == pivot["u_count_high"], pivot["u_count_n"] == pivot["u_n"]]
        rules += [low.between(1, MOST_COUNT), low == low.floor()]
    return reduce(and_, rules)


def open_spark(database: Database, frame: Any, name: str) -> Source:
    """A Spark DataFrame, or one of the pandas API on Spark."""
    is_pandas = type(frame).__module__.startswith("pyspark.pandas")
    return engine_source(database, SparkTable(frame.to_spark() if is_pandas else frame), name)


@dataclass(frozen=True)
class SparkTable(Engine):
    """A Spark DataFrame; the query runs on its cluster, and the counted rows come to the driver."""

    frame: Any
    what: str = "the Spark DataFrame"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self.frame.columns)

    @property
    def dialect(self) -> Dialect:
        """Spark's SQL."""
        return DIALECTS["spark"]

    def numeric(self) -> frozenset[str]:
        """The columns that hold numbers or truth values."""
        kinds = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")
        return frozenset(
            name for name, kind in self.frame.dtypes if kind in kinds or kind.startswith("decimal")
        )

    def rows(self, columns: Sequence[str]) -> Any:
        """These columns of all rows."""
        names = [DIALECTS["spark"].name(column) for column in columns]
        return _to_arrow(self.frame.selectExpr(*names))

    def rows_at(self, position: str) -> dict[float, int]:
        """How many rows each position has."""
        at = self.dialect.name(position)
        frame = self.frame.where(f"{at} BETWEEN 1 AND {DEEPEST}")
        return {found[0]: found[1] for found in frame.groupBy(at).count().collect()}

    def counted(self, key: CollapseColumns, depth: int, count: str) -> Any:
        """The rows of the counted log."""
        view = f"untilt_{uuid4().hex}"
        session = self.frame.sparkSession
        self.frame.createOrReplaceTempView(view)
        try:
            return _to_arrow(session.sql(counted_sql(view, key, depth, self.dialect, count)))
        finally:
            session.catalog.dropTempView(view)


def _to_arrow(frame: Any) -> Any:
    """The rows on the driver; before Spark 4 by way of pandas."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    import pyarrow as pa

    return pa.Table.from_pandas(frame.toPandas(), preserve_index=False)
