"""Which column plays which role, and the typed views of a log: NULL where a value is bad."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from untilt._core.arrays import Missing
from untilt.data.clicklog import PROPENSITY
from untilt.data.layout import Grid
from untilt.data.limits import DEEPEST, LEAST_LABEL, MOST_COUNT, MOST_LABEL
from untilt.data.read.database import Database, literal
from untilt.data.read.options import Features
from untilt.data.read.sources import Source, Stated
from untilt.data.read.types import (
    MOST_POSITION,
    Column,
    context_sql,
    feature_sql,
    flag_sql,
    id_sql,
    is_nan_sql,
    label_sql,
    propensity_sql,
    text_sql,
    time_sql,
    whole_sql,
)
from untilt.errors import BadRowsError, ColumnError, OptionError, did_you_mean
from untilt.facts import Fact, listed, note, phrase, warning

UNUSED = note("log.unused-columns", "Columns that are not used: {columns:clauses}.")
BAD_RANDOM = warning("log.bad-random", "{column} is neither 0 nor 1, nor true or false")
BAD_FEATURE = warning(
    "log.bad-feature", "a feature is missing, no number, or not finite in single precision"
)()
BAD_CELL = warning(
    "log.bad-cell",
    "{row} and {column} are no cell: missing, no whole numbers from 1, or outside of {rows} x "
    "{columns}",
)
BAD_PLACE = warning(
    "log.bad-page",
    "{page} is no whole number from {least} to {most:,}, or {column} is not one from {first}",
)
BAD_POSITION = warning("log.bad-position", "{column} is no whole number from {least} to {most:,}")
BAD_LABEL = warning(
    "log.bad-label",
    "{column} is missing, no number, negative, or neither 0 nor between "
    f"{LEAST_LABEL:g} and {MOST_LABEL:g}",
)
BAD_PROPENSITY = warning("log.bad-propensity", "{column} is no probability above 0 and at most 1")
BAD_COUNT = warning("log.bad-count", "{column} is no whole number from 1 to {most:,}")
PERSON_MISSING = warning("log.person-missing", "{column} is missing")
SESSION_MISSING = warning("log.session-missing", "{column} is missing")

REQUIRED = ("query_id", "session_id", "doc_id", "position")
OPTIONAL = ("ranker", "timestamp", "count", "person", PROPENSITY)
PERSON = "person"
# In place of the position, where a page is a grid: asked for by name, or there without a position.
CELL = ("row", "column")
# Taken only where it is asked for by name: a column called random may hold anything.
FLAG = "random"
# So is the version of a document, which the documents table has too.
VERSION = "version"
# And the page of results, whose positions count from 1 again.
PAGE = "page"
# Who made the lists of a log that has a flag for random order and no ranker.
SHUFFLED, PRODUCTION = "shuffle", "production"
KEYS = ("query_id", "doc_id")
# Before the name of a key that the documents table calls otherwise than the log.
OF_DOCUMENTS = "documents."
# Names that logs out there use; a hint is better than a list of columns to stare at.
_OTHER_NAMES = {
    "query_id": ("qid", "query", "srch_id", "search_id", "keyword", "search_term", "search"),
    "session_id": ("session", "sid", "search_id", "srch_id", "request_id", "impression_id",
                   "visit"),
    "doc_id": ("doc", "document", "docid", "url", "item_id", "product_id", "prop_id", "asin",
               "sku"),
    "position": ("rank", "pos", "slot", "place"),
    "click": ("clicked", "clicks", "is_click", "click_bool", "label", "was_clicked"),
}  # fmt: skip


@dataclass(frozen=True)
class ColumnRoles:
    """Their column for each role, label and context, and the columns that are features.

    chosen : what was asked for as features (a name or a pattern) and the columns that it stands for
    """

    roles: Mapping[str, str]
    labels: Mapping[str, str]
    chosen: Mapping[str, tuple[str, ...]]
    context: Mapping[str, str]

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are features, each once."""
        return tuple(dict.fromkeys(name for fits in self.chosen.values() for name in fits))

    def without(self, role: str) -> "ColumnRoles":
        """Without an optional role."""
        return replace(self, roles={k: v for k, v in self.roles.items() if k != role})

    def with_count(self, column: str) -> "ColumnRoles":
        """With the column of counts."""
        return replace(self, roles={**self.roles, "count": column})

    def by_numbers(self, is_number: Callable[[str], bool]) -> "ColumnRoles":
        """Without columns that fit a pattern but hold no numbers; one that is named stays."""
        kept = {
            text: tuple(
                name
                for name in fits
                if name in self.chosen or name.lower() == text.lower() or is_number(name)
            )
            for text, fits in self.chosen.items()
        }
        return replace(self, chosen=kept)

    @property
    def names(self) -> list[str]:
        """Every column that is needed, once."""
        named = (*self.roles.values(), *self.labels.values(), *self.context.values())
        return list(dict.fromkeys([*named, *self.features]))

    @property
    def ids(self) -> frozenset[str]:
        """Columns that hold ids."""
        roles = ("query_id", "session_id", "doc_id", "ranker", VERSION, PERSON)
        return frozenset(self.roles[role] for role in roles if role in self.roles)


def optional_of(context: Collection[str]) -> tuple[str, ...]:
    """The optional roles; a context may be called `person`, and is then no role."""
    return tuple(role for role in OPTIONAL if role != PERSON or role not in context)


def log_layout(
    source: Source,
    *,
    columns: Mapping[str, str | None],
    labels: Sequence[str],
    context: Sequence[str],
    features: Features,
) -> ColumnRoles:
    """The layout of an impressions table."""
    check_mapping(columns, labels, context)
    wanted = [*_place(source, columns), *labels, *context]
    roles = {role: _source_column(source, columns.get(role) or role) for role in wanted}
    optional = optional_of(context)
    page = () if PAGE in (*labels, *context) else (PAGE,)
    for role in (*optional, FLAG, VERSION, *page):
        theirs = columns.get(role, role if role in optional else None)
        # Asked for by name it must be there; under our own name it may be.
        if theirs is not None and (role in columns or source.named(theirs)):
            roles[role] = _source_column(source, theirs)
    _refuse_missing(source, roles)
    used = {*roles.values(), _source_column(source, columns.get("timestamp") or "timestamp")}
    chosen = {label: roles.pop(label) for label in (*labels, PROPENSITY) if label in roles}
    known = {name: roles.pop(name) for name in context}
    return ColumnRoles(roles, chosen, choose_features(source, features, used), known)


# What an unused column may be, by its name: role, words, pattern.
_LOOKS_LIKE = (
    ("timestamp", "the time", r"(ts|(date)?time|date|day|hour)|.*_(ts|time|at|date|day)|time_?.*"),
    ("ranker", "the ranker", r".*(variant|bucket|experiment|treatment|ranker|algorithm).*|ab_.*"),
    (PAGE, "the page of results", r"page(_?(no|nr|num|number|index))?"),
    ("", "a context", r".*(device|platform|browser|user_agent|country|language|locale).*"),
)
_MAPPED = "{column} looks like {words} (⟦columns={{{role:r}: {column:r}}}⟧)"
_CONTEXT = "{column} looks like {words} (⟦context=[{column:r}]|--context {column}⟧)"


def unused_columns(source: Source, layout: ColumnRoles) -> tuple[Fact, ...]:
    """The columns that nothing was made of though their names say what they may be."""
    likely = [
        phrase(_MAPPED if role else _CONTEXT, column=column, words=words, role=role)
        for column in source.columns
        if column not in layout.names
        for role, words, pattern in _LOOKS_LIKE
        if role not in layout.roles and re.fullmatch(pattern, column.lower())
    ]
    return (UNUSED(columns=likely),) if likely else ()


def _source_column(source: Source, name: str) -> str:
    """The column of this name, in whatever case; the name itself where there is none."""
    return source.named(name) or name


def _place(source: Source, columns: Mapping[str, str | None]) -> tuple[str, ...]:
    """The required roles: a position, or the row and the column of a grid."""
    named = [role for role in CELL if role in columns]
    if len(named) == 1:
        other = next(role for role in CELL if role not in named)
        raise OptionError(
            f"a cell of a grid has a row and a column. columns names only {named[0]!r}; "
            f"name {other!r} too, or a position."
        )
    without = "position" not in columns and source.named("position") is None
    if named or (without and all(source.named(role) for role in CELL)):
        return (*REQUIRED[:-1], *CELL)
    return REQUIRED


def documents_layout(
    source: Source, *, columns: Mapping[str, str | None], features: Features
) -> ColumnRoles:
    """The layout of a documents table: its own names for the keys, the log's, or ours.

    A table without a query, and without a column that may be one, is about documents alone.
    """
    roles = {}
    for role in KEYS if columns.get(VERSION) is None else (*KEYS, VERSION):
        own, theirs = columns.get(OF_DOCUMENTS + role), columns.get(role) or role
        roles[role] = own or source.named(theirs) or _source_column(source, role)
    if not source.has(roles["query_id"]) and not _hint("query_id", "query_id", source.columns):
        del roles["query_id"]
    _refuse_missing(source, roles, OF_DOCUMENTS)
    used = set(roles.values())
    if features is None:
        features = [name for name in source.columns if name not in used]
        return ColumnRoles(roles, {}, {"*": tuple(features)}, {})
    return ColumnRoles(roles, {}, choose_features(source, features, used), {})


def choose_features(
    source: Source, features: Features, used: set[str]
) -> dict[str, tuple[str, ...]]:
    """The columns that each name, pattern such as 'f_*' or function of the name stands for.

    One text may hold several names and patterns with commas between them. Whatever fits no column
    is an error: a log without the features that were asked for would be another log.
    """
    others = [name for name in source.columns if name not in used]
    if features is None:
        return {}
    if callable(features):
        chosen = {"of the function": tuple(name for name in others if features(name))}
    else:
        texts = (features,) if isinstance(features, str) else features
        chosen = {}
        for text in (part for each in texts for part in _parts(source, each)):
            if text in chosen:
                raise OptionError(f"features must name each column once. Got {text!r} twice.")
            chosen[text] = _fitting(source, text, others)
    if empty := [text for text, fits in chosen.items() if not fits]:
        raise ColumnError(
            f"{source.what} lacks the columns {listed(empty, most=40)}, which were asked for as "
            "features. "
            f"Columns that may be features: {listed(others, most=40) or 'none'}."
            f"{did_you_mean(empty[0].strip('*?'), others)}"
        )
    return chosen


def _fitting(source: Source, text: str, others: Sequence[str]) -> tuple[str, ...]:
    """The columns of a name or a pattern; in any case, where none fits as it is written."""
    if source.has(text):
        return (text,)
    fits = [name for name in others if fnmatchcase(name, text)]
    if not fits and (theirs := source.named(text)):
        return (theirs,)
    return tuple(fits or (name for name in others if fnmatchcase(name.lower(), text.lower())))


def named_features(features: Features) -> frozenset[str]:
    """The names in such a choice: what stands there itself and not by a pattern or a function."""
    if features is None or callable(features):
        return frozenset()
    texts = [features] if isinstance(features, str) else list(features)
    return frozenset([*texts, *(part.strip() for text in texts for part in text.split(","))])


def _parts(source: Source, text: str) -> list[str]:
    """The names and patterns of a text; a column that is called so comes first."""
    return [text] if source.has(text) else [part for p in text.split(",") if (part := p.strip())]


def check_mapping(
    columns: Mapping[str, str | None], labels: Sequence[str], context: Sequence[str]
) -> None:
    """Raise where a name of ours is taken twice or is none, or one of theirs is no name."""
    taken = (*REQUIRED, *optional_of(context), FLAG, VERSION)
    own = tuple(OF_DOCUMENTS + role for role in (*KEYS, VERSION))
    known = (*taken, *CELL, *labels, *context, *own)
    known = known if PAGE in known else (*known, PAGE)
    if len(set(known)) < len(known):
        given = f"{list(labels)}" + (f" and context={list(context)}" if context else "")
        raise OptionError(
            f"a label must have a name that is not taken. Got {given}; the names "
            f"{', '.join(taken)} are taken. Map a column of that name: "
            "⟦label='click'⟧, ⟦columns={'click': 'count'}⟧."
        )
    for ours, theirs in columns.items():
        if ours not in known:
            raise OptionError(
                "⟦columns maps our names|--column maps our names⟧ to yours: "
                f"{', '.join(known)}. Got the key {ours!r} "
                f"instead.{did_you_mean(str(ours), known)}"
            )
        if not isinstance(theirs, str) and not (theirs is None and ours in taken[len(REQUIRED) :]):
            raise OptionError(
                f"⟦columns[{ours!r}]|--column {ours}⟧ must be a column's name. Got "
                f"⟦{theirs!r}|{'nothing' if theirs is None else repr(theirs)}⟧ "
                "instead."
            )


def _refuse_missing(source: Source, roles: Mapping[str, str], of: str = "") -> None:
    missing = {role: name for role, name in roles.items() if not source.has(name)}
    if not missing:
        return
    hints = [hint for role, name in missing.items() if (hint := _hint(role, name, source.columns))]
    example = next(iter(missing))
    raise ColumnError(
        phrase(
            "{what} lacks the columns {missing}. Found: {found}.{hint} Map names with "
            "⟦columns={{{example:r}: 'your column'}}⟧.",
            what=source.what,
            missing=listed(missing.values(), most=40),
            found=listed(source.columns, most=40) or "none",
            hint=f" Did you mean {', '.join(hints)}?" if hints else "",
            example=of + example,
        )
    )


def _hint(role: str, name: str, columns: Sequence[str]) -> str:
    by_lower = {column.lower(): column for column in columns}
    known = [by_lower[other] for other in _OTHER_NAMES.get(role, ()) if other in by_lower]
    near = [by_lower[close] for close in get_close_matches(name.lower(), list(by_lower), n=1)]
    return f"{role} = {(near or known)[0]!r}" if near or known else ""


Types = Mapping[str, Column]


@dataclass(frozen=True)
class Field:
    """One role: `sql` over their table is NULL where the value is `bad`.

    raw : SQL of what their table has, where that is not one column
    """

    alias: str
    column: Column
    sql: str
    bad: Fact
    is_number: bool = False
    raw: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the type of the typed column leaves no room for fractions."""
        return self.column.kind in ("whole", "boolean") or not self.alias.startswith("label_")


@dataclass(frozen=True)
class DocumentFields:
    """The fields of the documents: those that tell a row from others, and the features."""

    key: tuple[Field, ...]
    features: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """All of them."""
        return (*self.key, *self.features)

    @property
    def key_sql(self) -> str:
        """The columns of the key, with commas between them."""
        return ", ".join(field.alias for field in self.key)


@dataclass(frozen=True)
class Impressions:
    """The fields of a log. The view `impressions` shows them, with raw_* for messages."""

    fields: tuple[Field, ...]
    features: tuple[Field, ...]

    @property
    def labels(self) -> list[Field]:
        """The fields of the labels, the main one first."""
        return [field for field in self.fields if field.alias.startswith("label_")]

    @property
    def context(self) -> list[Field]:
        """The fields of the context, and that of the person, by which sessions stay apart too."""
        return [f for f in self.fields if f.alias.startswith("context_") or f.alias == PERSON]

    @property
    def has_number_ids(self) -> bool:
        """Whether queries and documents have ids of a type of whole numbers."""
        return all(field.sql == field.column.raw for field in self.fields[:2])

    def has(self, alias: str) -> bool:
        """Whether the log has this role."""
        return any(field.alias == alias for field in self.fields)


@dataclass(frozen=True)
class LogSummary:
    """What the fast path must know before it packs the log."""

    n_rows: int
    is_clean: bool
    depth: int
    # The largest value of each label, or None where some are no whole numbers.
    largest_labels: tuple[int | None, ...]
    # The least and the greatest document id, None where ids are text or there are no rows.
    id_bounds: tuple[int, int] | None
    # Whether that is what a file says of itself, which packing must check.
    is_stated: bool = False


def id_fields(layout: ColumnRoles, types: Types, text_ids: frozenset[str]) -> list[Field]:
    """The key columns of a table."""
    return [
        Field(
            role,
            types[layout.roles[role]],
            id_sql(types[layout.roles[role]], as_text=role in text_ids),
            warning("log.id-missing", "{column} is missing")(column=role),
        )
        for role in (*KEYS, VERSION)
        if role in layout.roles
    ]


def cell_sql(layout: ColumnRoles, types: Types, *, positions_from: int) -> tuple[str, str]:
    """Row and column of a grid, from 1; NULL where they are none."""
    row, column = (
        whole_sql(types[layout.roles[role]], role, most=DEEPEST, least=positions_from)
        for role in CELL
    )
    return row, column


MOST_PAGES = 100_000


@dataclass(frozen=True)
class Pages:
    """Pages of results: the number of the first, and the positions that a page has."""

    first: int
    size: int


def _place_field(
    layout: ColumnRoles, types: Types, positions_from: int, grid: Grid | None, pages: Pages | None
) -> Field:
    """The position, counted through over all pages, or the number of the cell of a grid."""
    if grid is not None:
        row, column = cell_sql(layout, types, positions_from=positions_from)
        inside = f"{row} <= {grid.rows} AND {column} <= {grid.columns}"
        names = [layout.roles[role] for role in CELL]
        bad = BAD_CELL(row=names[0], column=names[1], rows=grid.rows,
                   columns=grid.columns)  # fmt: skip
        sql = f"CASE WHEN {inside} THEN ({row} - 1) * {grid.columns} + {column} END"
        both = [f"coalesce(CAST({types[name].raw} AS VARCHAR), 'NULL')" for name in names]
        cell = replace(types[names[0]], name=", ".join(names))
        raw = " || ', ' || ".join(both)
        return Field("position", cell, sql, bad, is_number=True, raw=raw)
    position = types[layout.roles["position"]]
    sql = whole_sql(position, "position", most=MOST_POSITION, least=positions_from)
    bad = BAD_POSITION(
        column=position.name, least=positions_from, most=MOST_POSITION + positions_from - 1
    )
    if pages is None:
        return Field("position", position, sql, bad, is_number=True)
    page = types[layout.roles[PAGE]]
    number = whole_sql(page, PAGE, most=MOST_PAGES, least=pages.first)
    return Field(
        "position",
        replace(position, name=f"{page.name}, {position.name}"),
        f"({number} - 1) * {pages.size} + {sql}",
        BAD_PLACE(page=page.name, least=pages.first, most=MOST_PAGES, column=position.name,
                  first=positions_from),
        is_number=True,
        raw=f"coalesce(CAST({page.raw} AS VARCHAR), 'NULL') || ', ' || "
        f"coalesce(CAST({position.raw} AS VARCHAR), 'NULL')",
    )  # fmt: skip


def log_fields(
    layout: ColumnRoles,
    types: Types,
    text_ids: frozenset[str],
    *,
    positions_from: int = 1,
    grid: Grid | None = None,
    pages: Pages | None = None,
) -> tuple[Field, ...]:
    """The roles of an impressions table."""
    fields = id_fields(layout, types, text_ids)
    session = types[layout.roles["session_id"]]
    missing = session.raw
    if session.kind == "float":
        missing = f"CASE WHEN NOT {is_nan_sql(session.raw)} THEN {session.raw} END"
    fields.append(Field("session_id", session, missing, SESSION_MISSING(column="session_id")))
    fields.append(_place_field(layout, types, positions_from, grid, pages))
    for index, (name, theirs) in enumerate(layout.labels.items()):
        bad = (BAD_PROPENSITY if name == PROPENSITY else BAD_LABEL)(column=theirs)
        sql = (propensity_sql if name == PROPENSITY else label_sql)(types[theirs], name)
        fields.append(Field(f"label_{index}", types[theirs], sql, bad, is_number=True))
    for index, (name, theirs) in enumerate(layout.context.items()):
        bad = warning("log.bad-context", "{column} is missing or not finite")(column=theirs)
        sql = context_sql(types[theirs], name)
        fields.append(Field(f"context_{index}", types[theirs], sql, bad))
    if PERSON in layout.roles:
        column = types[layout.roles[PERSON]]
        sql = column.raw if column.kind == "whole" else text_sql(column)
        fields.append(Field(PERSON, column, sql, PERSON_MISSING(column=column.name)))
    return (*fields, *_optional_fields(layout, types))


def _optional_fields(layout: ColumnRoles, types: Types) -> list[Field]:
    fields = _ranker_fields(layout, types)
    if "count" in layout.roles:
        column = types[layout.roles["count"]]
        sql = whole_sql(column, "count", most=MOST_COUNT)
        bad = BAD_COUNT(column=column.name, most=MOST_COUNT)
        fields.append(Field("count", column, sql, bad, is_number=True))
    if "timestamp" in layout.roles:
        column = types[layout.roles["timestamp"]]
        bad = warning("log.bad-time", "{column} is missing or no time")(column=column.name)
        fields.append(Field("timestamp", column, time_sql(column), bad))
    return fields


def _ranker_fields(layout: ColumnRoles, types: Types) -> list[Field]:
    """The ranker: a column, a flag for random order, or both ("shuffle:" before the name)."""
    flag = types[layout.roles[FLAG]] if FLAG in layout.roles else None
    column = types[layout.roles["ranker"]] if "ranker" in layout.roles else flag
    if column is None:
        return []
    missing = warning("log.ranker-missing", "{column} is missing")(column=column.name)
    if flag is None:
        return [Field("ranker", column, id_sql(column, as_text=True), missing)]
    is_random, named = flag_sql(flag, FLAG), id_sql(column, as_text=True)
    names = literal(SHUFFLED), literal(PRODUCTION)
    if column is not flag:
        names = f"{literal(f'{SHUFFLED}:')} || {named}", named
    # Where the flag is bad the row is bad by the first field already.
    ranker = f"CASE WHEN coalesce({is_random}, 0) = 1 THEN {names[0]} ELSE {names[1]} END"
    bad = BAD_RANDOM(column=flag.name)
    return [Field(FLAG, flag, is_random, bad), Field("ranker", column, ranker, missing)]


def feature_fields(names: tuple[str, ...], types: Types, missing: Missing) -> tuple[Field, ...]:
    """The features of a table."""
    bad = BAD_FEATURE
    return tuple(
        Field(f"feature_{index}", types[name], feature_sql(types[name], missing), bad)
        for index, name in enumerate(names)
    )


def create_view(
    database: Database,
    name: str,
    table: str,
    fields: tuple[Field, ...],
    sample_queries: float | None = None,
) -> None:
    """A view with every field typed and raw; what a query does not use costs nothing."""
    shown = [f"{field.sql} AS {field.alias}" for field in fields]
    raw = [f"{field.raw or field.column.raw} AS raw_{field.alias}" for field in fields]
    chosen = f"SELECT {', '.join([*shown, *raw])} FROM {table}"
    if sample_queries is not None:
        chosen = f"SELECT * FROM ({chosen}) WHERE {_sampled_sql(sample_queries)}"
    database.run(f"CREATE TEMP VIEW {name} AS {chosen}")


def _sampled_sql(share: float) -> str:
    """Whether a query belongs to the sample: by the first 32 bits of the MD5 of its id.

    MD5 and not DuckDB's own hash, which may change with its version. A row without a query id stays
    in, so that it is found to be bad.
    """
    digits, below = "left(md5(CAST(query_id AS VARCHAR)), 8)", round(share * 2**32)
    return "true" if below >= 2**32 else f"coalesce({digits} < '{below:08x}', true)"


def _refuse_many(database: Database, view: str) -> None:
    """Raise where the counts add up to more impressions than floats can count one by one."""
    (total,) = database.row(f"SELECT coalesce(sum(count), 0) FROM {view}")
    if total > MOST_COUNT:
        raise BadRowsError(
            f"the counts add up to {int(total):,} impressions, and at most {MOST_COUNT:,} (2**53) "
            "can be counted exactly. Mend the column `count`, or divide it by a common factor."
        )


def stated_summary(log: Impressions, stated: Stated) -> LogSummary | None:
    """The summary that a clean log has if its file is right; None where that says too little."""
    known = {field.alias: stated.get(field.column.name) for field in log.fields}
    numbers = [known[field.alias] for field in log.fields if field.is_number]
    if not log.has_number_ids or log.has("count") or not all((*numbers, known["doc_id"])):
        return None
    session = next(field for field in log.fields if field.alias == "session_id")
    if session.column.kind != "whole" or not all(field.is_whole for field in log.labels):
        return None
    assert known["doc_id"] is not None
    (n_rows, *bounds), (_, first, depth) = known["doc_id"], known["position"] or (0, 0, 0)
    labels = [known[field.alias] or (0, 0, 0) for field in log.labels]
    if first < 1 or depth > DEEPEST or any(least < 0 for _, least, _ in labels):
        return None
    most = tuple(most for _, _, most in labels)
    return LogSummary(n_rows, True, depth, most, (bounds[0], bounds[1]), is_stated=True)


def summarise(database: Database, view: str, log: Impressions) -> LogSummary:
    """One look over the log: whether any row is bad, how deep it goes, how large values get.

    Parquet files store least and greatest values, but a damaged file may lie there. The typed
    columns make DuckDB look at the values themselves; packing relies on them.
    """
    numbers = [field for field in log.fields if field.is_number]
    asked = [f"count({field.alias})" for field in log.fields]
    for field in numbers:
        broken = f"count(*) FILTER ({field.alias} <> floor({field.alias}))"
        asked += [f"max({field.alias})", "0" if field.is_whole else broken]
    if log.has("count"):
        _refuse_many(database, view)
    asked += ["min(doc_id)", "max(doc_id)"] if log.has_number_ids else ["NULL", "NULL"]
    n_rows, *answers = database.row(f"SELECT count(*), {', '.join(asked)} FROM {view}")
    present, bounds = answers[: len(log.fields)], answers[-2:]
    largest_and_broken = answers[len(log.fields) : -2]
    largest = {
        field.alias: None if broken else int(most or 0)
        for field, most, broken in zip(
            numbers, largest_and_broken[::2], largest_and_broken[1::2], strict=True
        )
    }
    return LogSummary(
        n_rows=n_rows,
        is_clean=all(count == n_rows for count in present),
        depth=largest["position"] or 0,
        largest_labels=tuple(largest[field.alias] for field in log.labels),
        id_bounds=None if bounds[0] is None else (bounds[0], bounds[1]),
    )
