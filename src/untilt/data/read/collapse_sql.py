"""The collapse as SQL, for the engine in which a log lives.

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
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from untilt.data.depth import DEEPEST
from untilt.data.read.columns import (
    FLAG,
    OPTIONAL,
    REQUIRED,
    VERSION,
    Layout,
    check_mapping,
)
from untilt.data.read.types import MOST_COUNT
from untilt.errors import OptionError, check_choice

COUNT = "count"


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
class Key:
    """The columns of a log by what they do in the collapse.

    Parameters
    ----------
    cells : columns of which every position has its own value: the document comes first
    needed : those of them that a clean row has (a feature may be missing)
    shared : columns of which a session has one value: ranker, flag for random order, context
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
    def of(cls, layout: Layout) -> "Key":
        """From the roles of columns."""
        roles = layout.roles
        versions = [roles[VERSION]] if VERSION in roles else []
        needed = [roles["doc_id"], *versions, *layout.labels.values()]
        shared = [roles[role] for role in ("ranker", FLAG) if role in roles]
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
    columns, label, labels, context : as in `read_log`. An optional column (ranker, count, random,
        version) is taken where `columns` names it: {"ranker": "ranker"}
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
    roles = {role: named.get(role) or role for role in REQUIRED}
    for role in (*OPTIONAL, FLAG, VERSION):
        theirs = named.get(role)
        if theirs is not None and role != "timestamp":
            roles[role] = theirs
    layout = Layout(
        roles,
        {name: named.get(name) or name for name in (label, *labels)},
        {name: (name,) for name in features},
        {name: named.get(name) or name for name in context},
    )
    key = Key.of(layout)
    most = key.most_depth(DIALECTS[dialect])
    if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= most:
        raise OptionError(
            f"depth must be a whole number from 1 to {most}: {dialect} has no more columns for "
            f"{len(key.cells)} values at each position. Got {depth!r} instead. Sessions that go "
            "deeper are kept, each for itself."
        )
    return counted_sql(table, key, depth, DIALECTS[dialect])


def counted_sql(table: str, key: Key, depth: int, dialect: Dialect, count: str = COUNT) -> str:
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
  SELECT {_listed(_pivot(key, depth, dialect))}
  FROM {table}
  WHERE {whole}
  GROUP BY {query}, {dialect.comparable(session)}
), u_marked AS (
  SELECT u_pivot.*, CASE WHEN {_is_clean(key, depth)} THEN NULL ELSE u_session END AS u_odd
  FROM u_pivot
), u_lists AS (
  SELECT u_query, u_odd, MIN(u_session) AS u_smallest,
    {"COUNT(*)" if key.count is None else "SUM(u_count_low)"} AS u_sessions
  FROM u_marked
  GROUP BY {_listed(_group(key, depth))}
)
SELECT {_listed([f"u_rows.{column} AS {column}" for column in kept])},
  {sessions} AS {as_count}
FROM (SELECT * FROM {table}) AS u_rows
JOIN u_lists ON u_rows.{query} = u_lists.u_query AND {same}
UNION ALL
SELECT {_listed(kept)}, {counts} AS {as_count}
FROM {table}
WHERE {query} IS NULL OR {session} IS NULL"""


def _pivot(key: Key, depth: int, dialect: Dialect) -> list[str]:
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


def _is_clean(key: Key, depth: int) -> str:
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


def _group(key: Key, depth: int) -> list[str]:
    cells = [f"u_{j}_{k}" for j in range(len(key.cells)) for k in slots(depth)]
    return ["u_query", "u_odd", *cells, *(f"u_low_{j}" for j in range(len(key.shared)))]


def _listed(parts: Sequence[str]) -> str:
    return ",\n    ".join(parts)
