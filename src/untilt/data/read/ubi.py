"""User Behavior Insights (UBI): an export of what was asked and what people did, as a click log.

UBI 1.3 (https://o19s.github.io/ubi) keeps two tables. `ubi_queries` has one document per request:
query_id, user_query, query_response_hit_ids. `ubi_events` has one per action: action_name,
query_id, event_attributes.object.object_id, event_attributes.position.ordinal. Their query_id is
our session, their user_query our query. This module makes one row per impression of them, in
DuckDB, and `read_log` goes on from there.

What was returned is not what was seen: where there are impression events they say what was shown,
else the hits do, down to a depth. Nothing is left out in silence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from untilt._core.declared import is_whole
from untilt.data.read.bad_rows import N_SHOWN, BadRows, ReadReport
from untilt.data.read.columns import PERSON
from untilt.data.read.database import Database, literal, quoted, translated_errors
from untilt.data.read.files import Files
from untilt.data.read.options import Request
from untilt.data.read.sources import Export, Source
from untilt.data.read.text_files import refuse_missing, texts_of
from untilt.data.read.types import instant_sql
from untilt.errors import BadRowsError, ColumnError, OptionError, did_you_mean
from untilt.facts import Fact, Sentence, note, warning

_MOST_ACTIONS = 8  # named in a note

TWO_BASES = warning(
    "ubi.two-bases",
    "The reader assumes that ordinals count from {base}, but {other:,} of {compared:,} agree "
    "with the order of the hits if they count from {other_base}. If some clients count from "
    "{other_base}, their positions are wrong by one, and each kind of client has to be read "
    "separately (⟦positions_from=0⟧ or 1). If the page shows something else above these results, "
    "positions are right.",
)

ORDER_DIFFERS = warning(
    "ubi.order-differs",
    "Ordinals count from {base}, and only {agree:,} of {compared:,} agree with the order of the "
    "hits. The page may not show results in the order in which they were returned, or may put "
    "others between them: then positions are wrong without impression events with ordinals.",
)

ORDINALS_ALONE = note("ubi.ordinals", "Ordinals count from {base}: no hits to compare them with.")

ORDINALS = note(
    "ubi.ordinals",
    "Ordinals count from {base}: {agree:,} of {compared:,} agree with the order of the hits.",
)

_SHOWN_BY = {
    "impressions": note(
        "ubi.shown-by-impressions",
        "Impression events give the results that were shown: {sessions:,} "
        "{sessions:session|sessions}, down to position {deepest:,}. Other hits that were "
        "returned are not counted.",
    ),
    "hits": note(
        "ubi.shown-by-hits",
        "The export has no impression events. The first hits_shown hits count as shown: "
        "{sessions:,} {sessions:session|sessions}, down to position {deepest:,}.",
    ),
    "all-hits": warning(
        "ubi.shown-by-all-hits",
        "The export has no impression events, so all returned hits count as shown: {sessions:,} "
        "{sessions:session|sessions}, down to position {deepest:,}. If the page shows fewer, "
        "give the number: ⟦hits_shown=10⟧.",
    ),
}

OTHER_ACTIONS = note("ubi.other-actions", "Actions that are not used: {named}.")

_RULES = {
    each.code: each()
    for each in (
        warning("ubi.no-query-id", "a query without a query_id"),
        warning("ubi.no-user-query", "a query without a user_query, or with a blank one"),
        warning("ubi.two-queries", "a query_id of two queries, rankers or contexts"),
        warning("ubi.two-lists", "a query_id with two different lists of hits for the same page"),
        warning("ubi.no-object", "an event without a query_id or an object_id"),
        warning("ubi.unknown-query", "an event whose query is not among the queries"),
        warning("ubi.no-hits", "a query that returned nothing"),
        warning("ubi.no-impressions", "a query without an impression event"),
    )
}

BELOW = warning(
    "ubi.below", "a click on a hit below position {shown}, the end of the page by hits_shown"
)
NO_IMPRESSION = warning("ubi.no-impression", "a click on a hit that has no impression event")()
OUTSIDE = warning("ubi.outside", "a click on an object that the list of its query does not have")()
QUERY_REPEATS = note(
    "ubi.query-repeats", "Queries that were written more than once, and count once: {n:,}."
)
EVENT_REPEATS = note(
    "ubi.event-repeats",
    "Events that repeat another one of the same query, action and object, and count once: {n:,}.",
)
SHOWN_TWICE = note(
    "ubi.shown-twice", "Objects at several places of one list, which count at the highest: {n:,}."
)
NO_ACTION = warning("ubi.no-action", "an event without an action_name")()
NO_POSITION = warning(
    "ubi.no-position", "an impression whose ordinal is missing or no whole number"
)()

# Our name -> where UBI keeps it, the first that is there. `columns` puts another in its place.
_ASKED = {
    "session_id": ("query_id",),
    "query_id": ("user_query",),
    # The plugin's first name for it, and that of Solr, where it is one text with commas.
    "hits": ("query_response_hit_ids", "query_response_object_ids", "doc_ids"),
    "timestamp": ("timestamp",),
    "ranker": (),
    PERSON: (),
    # How many results stood on the pages before; else the request itself says so.
    "offset": (),
}
_DONE = {
    "session_id": ("query_id",),
    "doc_id": ("event_attributes.object.object_id",),
    "position": ("event_attributes.position.ordinal",),
}
_ACTION = {"action": ("action_name",)}
_IMPRESSION = "impression"
_OBJECT = "'query_id ' || session_id || ', object ' || doc_id"
_ACTIONS = {"click": "click,click_through", _IMPRESSION: "impression"}
# Below this share of clicks on objects that the lists know, ids of two kinds are compared.
_LEAST_KNOWN = 0.1
# Above this share of ordinals that agree with the other way of counting, clients of two kinds are
# likely. A few do by chance, where a page shows something that was not returned.
_MOST_OTHERS = 0.05


@dataclass(frozen=True, eq=False)
class Ubi(Export):
    """An export of User Behavior Insights (UBI 1.3), for `read_log`, `run` and all that read a log.

    Parameters
    ----------
    queries, events : the documents of `ubi_queries` and `ubi_events`: a path to JSON lines (also
        .gz), bare or with `_source` around them, a folder or pattern of such files, or any table
        that `read_log` takes
    hits_shown : how many of the returned hits were on the page. Used where the events hold no
        impressions; by default all returned hits count as shown, with a note

    Examples
    --------
    >>> log = ut.read_log(ut.Ubi("queries.jsonl", "events.jsonl"))    # doctest: +SKIP
    """

    queries: Any
    events: Any
    hits_shown: int | None = None

    document_keys = MappingProxyType({"query_id": "user_query", "doc_id": "object_id"})

    def __post_init__(self) -> None:
        shown = self.hits_shown
        if shown is not None and not is_whole(shown, 1):
            raise OptionError(
                f"hits_shown must be a whole number of at least 1. Got {shown!r} instead."
            )

    @property
    def parts(self) -> tuple[Any, ...]:
        """Queries and events."""
        return self.queries, self.events

    def with_parts(self, *parts: Any) -> "Ubi":
        """The same with other queries and events."""
        return replace(self, queries=parts[0], events=parts[1])

    def open(self, database: Database, name: str, request: Request) -> Source:
        """The table of impressions, with what was left out of it and why."""
        labels, context = request.label_names, tuple(request.context)
        wanted = UbiWanted(request.columns or {}, labels, context, request.positions_from)
        wanted.check()
        made = _Making(database, self, wanted)
        made.read_both()
        with translated_errors(made.what):
            made.find_sessions()
            made.leave_out_events()
            made.find_shown()
            made.find_labels()
            columns = made.write(name)
        if request.on_bad == "raise" and made.bad:
            raise BadRowsError(ReadReport(made.what, 0, 0, tuple(made.bad)).error_text())
        return Source(
            made.what,
            columns,
            lambda _columns, _ids: name,
            left_out=(*made.bad, *made.left_out),
            notes=tuple(made.notes),
        )


@dataclass(frozen=True)
class UbiWanted:
    """What `read_log` was asked for, as far as it says how an export is read.

    columns : our name -> path inside the documents; a label or "impression" -> names of actions
    """

    columns: Mapping[str, str | None]
    labels: tuple[str, ...]
    context: Sequence[str]
    positions_from: int | None

    def check(self) -> None:
        """Raise where a name means nothing here, or two things."""
        ours, own = (*_ASKED, *_DONE, _IMPRESSION), (*self.labels, *self.context)
        known = tuple(dict.fromkeys([*ours, *own]))
        if len(known) < len(set(ours)) + len(own):
            raise OptionError(
                "labels and contexts must have names that are not taken. Got "
                f"{', '.join(own)}; the names {', '.join(dict.fromkeys(ours))} are "
                "taken. Map them: ⟦label='bought'⟧, "
                "⟦columns={'bought': 'purchase'}⟧."
            )
        for name, theirs in self.columns.items():
            if name not in known:
                raise OptionError(
                    "⟦columns maps our names|--column maps our names⟧ to those of "
                    f"UBI: {', '.join(known)}. Got the key {name!r} "
                    f"instead.{did_you_mean(str(name), known)}"
                )
            if name in (*self.labels, _IMPRESSION):
                fits = _has_parts(theirs, ",") or (theirs is None and name == _IMPRESSION)
            else:
                fits = _has_parts(theirs, ".")
            if not fits:
                raise OptionError(
                    f"⟦columns[{name!r}]|--column {name}⟧ must be a path such as "
                    "'query_attributes.variant', or the name of an action for a "
                    f"label. Got {theirs!r} instead."
                )
        for name in self.context:
            if name not in self.columns and not _has_parts(name, "."):
                raise OptionError(
                    "a context must be a path such as 'query_attributes.device', or a name that "
                    f"columns maps to one. Got {name!r} instead."
                )

    def paths(self, usual: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Our names with the paths that were asked for, or the usual ones."""
        given = {n: (path,) for n, path in self.columns.items() if n in usual and path}
        return {**usual, **given, **_ACTION}

    def actions(self, name: str) -> tuple[str, ...]:
        """The actions that stand for a label, or for impressions."""
        text = self.columns.get(name, _ACTIONS.get(name, name))
        return () if text is None else tuple(part.strip() for part in text.split(","))

    def is_one(self, name: str) -> str:
        """SQL: whether an action stands for a label, or for an impression."""
        actions = ", ".join(map(literal, self.actions(name)))
        return f"coalesce(action IN ({actions}), false)" if actions else "false"


def _has_parts(theirs: object, separator: str) -> bool:
    """Whether it is text with something between the separators, as paths and actions are.

    A star alone is none: DuckDB takes it for every key, even in quotes.
    """
    if not isinstance(theirs, str) or '"' in theirs or "\0" in theirs:
        return False
    return all(part.strip() not in ("", "*") for part in theirs.split(separator))


def _not_blank(name: str) -> str:
    """SQL of a text, NULL where it is blank: nothing was asked, and pages of categories say so."""
    return f"CASE WHEN trim({name}) <> '' THEN {name} END"


@dataclass
class _Making:
    """The export on its way to a table of impressions, and what is found out on it.

    Tables: `ubi_asked` has the requests, `ubi_done` the actions (one row per session, action and
    object), `ubi_sessions` the sessions, `ubi_hits` what was returned, `ubi_shown` what was shown.

    bad : what makes an export unfit, unless it may be dropped; left_out : what any export may have
    """

    database: Database
    export: Ubi
    wanted: UbiWanted
    bad: list[BadRows] = field(default_factory=list)
    left_out: list[BadRows] = field(default_factory=list)
    notes: list[Fact] = field(default_factory=list)
    by_impressions: bool = False

    @property
    def what(self) -> str:
        """What to call it in messages."""
        parts = (self.export.queries, self.export.events)
        return " and ".join(
            part.what if isinstance(part, Files) else f"the {type(part).__name__}" for part in parts
        )

    @property
    def shared(self) -> tuple[str, ...]:
        """What all requests of a session have in common, beside its query."""
        return ("ranker", PERSON, *(f"context_{i}" for i in range(len(self.wanted.context))))

    def read_both(self) -> None:
        """`ubi_asked` and `ubi_done`."""
        context = {
            name: (self.wanted.columns.get(theirs) or theirs,)
            for name, theirs in zip(self.shared[2:], self.wanted.context, strict=True)
        }
        asked = {**self.wanted.paths(_ASKED), **context, "request": ("query",)}
        done = self.wanted.paths(_DONE)
        queries, events = self.export.queries, self.export.events
        self._read(queries, "ubi_asked", asked, ("session_id", "query_id"), self._asked_sql)
        self._read(events, "ubi_done", done, ("session_id", "action", "doc_id"), self._done_sql)
        self._check_actions()

    def _read(
        self,
        part: Any,
        name: str,
        paths: Mapping[str, tuple[str, ...]],
        needed: tuple[str, ...],
        sql: Callable[[str], str],
    ) -> None:
        texts = f"{name}_text"
        what = texts_of(self.database, part, texts, paths)
        counts = ", ".join(f"count({each})" for each in needed)
        with translated_errors(what):
            self.database.run(f"CREATE TEMP TABLE {name} AS {sql(texts)}")
            is_there = all(self.database.row(f"SELECT {counts} FROM {name}"))
        if not is_there:
            refuse_missing(self.database, part, texts, paths, needed, what)

    def _asked_sql(self, texts: str) -> str:
        """Requests that were written twice are one row. Theirs may be events: they are none."""
        shared = ", ".join(self.shared)
        # Search engines keep a time as text, or as milliseconds since 1970.
        number = "CASE WHEN regexp_full_match(timestamp, '[0-9]{11,14}') THEN timestamp END"
        time = f"coalesce(epoch_ms(CAST({number} AS BIGINT)), {instant_sql('timestamp')})"
        hits = (
            "CASE WHEN hits LIKE '[%' THEN from_json(TRY_CAST(hits AS JSON), '[\"VARCHAR\"]') ELSE "
            "[trim(hit) for hit in string_split(hits, ',') if trim(hit) <> ''] END"
        )
        first = "coalesce(\"offset\", TRY_CAST(request AS JSON) ->> '$.from')"
        ids = ", ".join(f"{_not_blank(name)} AS {name}" for name in ("session_id", "query_id"))
        return (
            f"SELECT {ids}, {time} AS timestamp, {shared}, "
            f"coalesce(TRY_CAST({first} AS BIGINT), 0) AS first, {hits} AS hits, count(*) AS n "
            f"FROM {texts} WHERE action IS NULL GROUP BY ALL"
        )

    def _done_sql(self, texts: str) -> str:
        """What was done twice is one row; actions that nobody asked for are one row each."""
        asked_for = " OR ".join(map(self.wanted.is_one, (*self.wanted.labels, _IMPRESSION)))
        ids = [
            f"CASE WHEN {asked_for} THEN {_not_blank(name)} END AS {name}"
            for name in ("session_id", "doc_id")
        ]
        number = "TRY_CAST(position AS DOUBLE)"
        ordinal = f"CASE WHEN {number} = trunc({number}) THEN TRY_CAST({number} AS BIGINT) END"
        return (
            f"SELECT {', '.join(ids)}, action, count(*) AS n, min({ordinal}) AS ordinal, "
            f"max({ordinal}) AS lowest FROM {texts} GROUP BY ALL"
        )

    def _check_actions(self) -> None:
        """Raise where no event is what was asked for; say which were not asked for."""
        counts = dict(
            self.database.rows(
                "SELECT action, CAST(sum(n) AS BIGINT) FROM ubi_done WHERE action IS NOT NULL "
                "GROUP BY action ORDER BY 2 DESC, 1"
            )
        )
        asked = [
            *self.wanted.labels,
            *([_IMPRESSION] if _IMPRESSION in self.wanted.columns else []),
        ]
        for name in asked:
            actions = self.wanted.actions(name)
            if actions and not counts.keys() & set(actions):
                found = ", ".join(f"{action} ({n:,})" for action, n in list(counts.items())[:12])
                seen = self.wanted.actions(_IMPRESSION)
                meant = next((each for each in counts if each not in seen), "your action")
                raise ColumnError(
                    f"{self.what}: no event has the action {' or '.join(actions)}. "
                    f"Found: {found}. Name the action that is meant: "
                    f"⟦columns={{{name!r}: {meant!r}}}⟧."
                )
        used = {a for name in (*self.wanted.labels, _IMPRESSION) for a in self.wanted.actions(name)}
        if others := {action: n for action, n in counts.items() if action not in used}:
            named = [f"{action} ({n:,})" for action, n in list(others.items())[:_MOST_ACTIONS]]
            more = f" and {len(others) - len(named)} more" if len(others) > len(named) else ""
            self.notes.append(OTHER_ACTIONS(actions=others, named=", ".join(named) + more))
        self.by_impressions = bool(counts.keys() & set(self.wanted.actions(_IMPRESSION)))

    # ---- sessions

    def find_sessions(self) -> None:
        """`ubi_sessions`: those whose requests agree on what they share."""
        asked = "ubi_asked WHERE {} IS NULL"
        user_query, query_id = "'user_query ' || query_id", "'query_id ' || session_id"
        self._leave(asked.format("session_id"), _RULES["ubi.no-query-id"], user_query)
        self._leave(asked.format("query_id"), _RULES["ubi.no-user-query"], query_id)
        if not self._one("SELECT count(*) FROM ubi_asked"):
            raise ColumnError(f"{self.what}: no query has a query_id and a user_query.")
        shared = ", ".join(f"min({name}) AS {name}" for name in self.shared)
        differ = " OR ".join(f"count(DISTINCT {name}) > 1" for name in ("query_id", *self.shared))
        self.database.run(
            "CREATE TEMP TABLE ubi_sessions AS SELECT session_id, min(query_id) AS query_id, "
            f"min(timestamp) AS timestamp, {shared}, {differ} AS differs, sum(n) AS n, "
            "min(query_id) || ' and ' || max(query_id) AS either FROM ubi_asked GROUP BY session_id"
        )
        self._note_repeats("ubi_asked", QUERY_REPEATS)
        self._leave_sessions("differs", "ubi.two-queries", "|| ': ' || either")

    def _leave_sessions(
        self, condition: str, code: str, more: str = "", *, is_bad: bool = True
    ) -> None:
        """Sessions that are no list, or none that anybody could tell. They go as a whole."""
        rows, example = f"ubi_sessions WHERE {condition}", f"'query_id ' || session_id {more}"
        self._leave(rows, _RULES[code], example, is_bad=is_bad)

    def _leave(
        self, rows: str, what: Fact, example: str, *, is_bad: bool = True, n: str = "sum(n)"
    ) -> None:
        """Rows of one of the tables that cannot be used, or are left out of any export."""
        count = self._one(f"SELECT coalesce({n}, 0) FROM {rows}")
        if count:
            table = "queries" if rows.startswith(("ubi_asked", "ubi_sessions")) else "events"
            found = BadRows(what, count, self._examples(rows, example), table)
            (self.bad if is_bad else self.left_out).append(found)
            self.database.run(f"DELETE FROM {rows}")

    def _note_repeats(self, table: str, told: Sentence) -> None:
        repeats = self._one(f"SELECT coalesce(sum(n - 1), 0) FROM {table}")
        if repeats:
            self.notes.append(told(n=repeats))

    # ---- events

    def leave_out_events(self) -> None:
        """Events of no request and of no object; of repeated ones one is left."""
        nameless = self._one("SELECT coalesce(sum(n), 0) FROM ubi_done WHERE action IS NULL")
        if nameless and self.export.queries != self.export.events:
            self.left_out.append(BadRows(NO_ACTION, nameless, (), "events"))
        kinds = " OR ".join(map(self.wanted.is_one, (*self.wanted.labels, _IMPRESSION)))
        self.database.run(f"DELETE FROM ubi_done WHERE NOT ({kinds})")
        nobody = "ubi_done WHERE session_id IS NULL OR doc_id IS NULL"
        self._leave(nobody, _RULES["ubi.no-object"], "action", is_bad=False)
        unknown = "ubi_done WHERE session_id NOT IN (SELECT session_id FROM ubi_asked)"
        example = "action || ' of query_id ' || session_id"
        self._leave(unknown, _RULES["ubi.unknown-query"], example, is_bad=False)
        self._note_repeats("ubi_done", EVENT_REPEATS)

    # ---- what was shown

    def find_shown(self) -> None:
        """`ubi_shown`: a row per session and object that it showed, with its position from 1."""
        self.database.run(
            "CREATE TEMP TABLE ubi_hits AS SELECT session_id, doc_id, min(first) AS first, "
            "min(first + i) AS position, max(first + i) AS lowest FROM (SELECT session_id, first, "
            "unnest(hits) AS doc_id, generate_subscripts(hits, 1) AS i FROM (SELECT DISTINCT "
            "session_id, first, hits FROM ubi_asked SEMI JOIN ubi_sessions USING (session_id))) "
            "WHERE doc_id IS NOT NULL GROUP BY session_id, doc_id"
        )
        base, in_page = self._ordinals()
        if self.by_impressions:
            self._from_impressions(base, in_page)
        else:
            self._from_hits()
        deepest, sessions, twice = self.database.row(
            "SELECT coalesce(max(position), 0), count(DISTINCT session_id), "
            "count(*) FILTER (twice) FROM ubi_shown"
        )
        if twice:
            self.notes.append(SHOWN_TWICE(n=twice))
        stated = "hits" if self.export.hits_shown else "all-hits"
        by = "impressions" if self.by_impressions else stated
        self.notes.append(_SHOWN_BY[by](deepest=deepest, sessions=sessions))

    def _ordinals(self) -> tuple[int, bool]:
        """Whether ordinals count from 0 or 1, and whether they begin anew on every page.

        What was returned tells: the ordinal of an object is compared with its place in the hits,
        on first pages, and on later ones where there are no others.
        """
        (least,) = self.database.row("SELECT min(ordinal) FROM ubi_done")
        pages = self._agreeing("first = 0", "position") or self._agreeing(
            "first > 0", "position", "position - first"
        )
        zero, one, compared = pages or (0, 0, 0)
        base = self.wanted.positions_from
        if base is None:
            base = int(zero < one) if zero + one else int((least or 0) > 0)
        rank = f"ordinal - {base} + 1"
        in_page, through = self.database.row(
            f"SELECT count(*) FILTER ({rank} = position - first), count(*) FILTER ({rank} = "
            "position) FROM ubi_done JOIN ubi_hits USING (session_id, doc_id) WHERE first > 0"
        )
        if least is not None:
            agree, other = (one, zero) if base else (zero, one)
            agrees = ORDINALS if compared else ORDINALS_ALONE
            told = agrees if agree >= compared / 2 else ORDER_DIFFERS
            self.notes.append(told(base=base, agree=agree, compared=compared))
            if self.by_impressions and agree >= compared / 2 and other > _MOST_OTHERS * compared:
                bases = {"base": base, "other_base": 1 - base}
                self.notes.append(TWO_BASES(**bases, other=other, compared=compared))
        return base, in_page > through

    def _agreeing(self, pages: str, *places: str) -> tuple[int, int, int] | None:
        """Ordinals that agree with a place when counted from 0, and from 1; of how many.

        None where none is compared.
        """
        zero, one = (
            " OR ".join(f"ordinal = {place} - {less}" for place in places) for less in (1, 0)
        )
        zero, one, compared = self.database.row(
            f"SELECT count(*) FILTER ({zero}), count(*) FILTER ({one}), count(*) FROM ubi_done "
            f"JOIN ubi_hits USING (session_id, doc_id) WHERE ordinal IS NOT NULL AND {pages}"
        )
        return (zero, one, compared) if compared else None

    def _from_impressions(self, base: int, in_page: bool) -> None:
        self.database.run(
            "CREATE TEMP TABLE ubi_shown AS SELECT session_id, doc_id, min(ordinal) AS ordinal, "
            "min(position) AS position, coalesce(min(first), 0) AS first, "
            "max(ubi_done.lowest) > min(ordinal) AS twice FROM ubi_done "
            "LEFT JOIN ubi_hits USING (session_id, doc_id) SEMI JOIN ubi_sessions "
            f"USING (session_id) WHERE {self.wanted.is_one(_IMPRESSION)} "
            "GROUP BY session_id, doc_id"
        )
        if self._one("SELECT count(ordinal) FROM ubi_shown"):
            page = "first" if in_page else "0"
            self.database.run(f"UPDATE ubi_shown SET position = ordinal - {base} + 1 + {page}")
        else:
            self._refuse_two_lists()
        self._leave("ubi_shown WHERE position IS NULL", NO_POSITION, _OBJECT, n="count(*)")
        unshown = "session_id NOT IN (SELECT session_id FROM ubi_shown)"
        self._leave_sessions(unshown, "ubi.no-impressions", is_bad=False)

    def _from_hits(self) -> None:
        if not self._one("SELECT count(*) FROM ubi_hits"):
            raise ColumnError(
                f"{self.what}: the export does not hold the results that were shown. No event has "
                f"the action {' or '.join(self.wanted.actions(_IMPRESSION)) or 'of an impression'}"
                f", and no query has {' or '.join(_ASKED['hits'])}. Name your action or field: "
                "⟦columns={'impression': 'your action'}⟧ or "
                "⟦columns={'hits': 'your field'}⟧."
            )
        self._refuse_two_lists()
        unshown = "session_id NOT IN (SELECT session_id FROM ubi_hits)"
        self._leave_sessions(unshown, "ubi.no-hits", is_bad=False)
        self.database.run(
            "CREATE TEMP TABLE ubi_shown AS SELECT session_id, doc_id, position, "
            "lowest > position AS twice FROM ubi_hits "
            f"SEMI JOIN ubi_sessions USING (session_id) WHERE NOT {self._below}"
        )

    @property
    def _below(self) -> str:
        """SQL: whether a hit was returned below the end of its page."""
        most = self.export.hits_shown
        if most is None or self.by_impressions:
            return "false"
        return f"coalesce(position - first > {most}, false)"

    def _refuse_two_lists(self) -> None:
        """Sessions with two answers for the same page: nobody can say which was clicked."""
        self._leave_sessions(
            "session_id IN (SELECT session_id FROM (SELECT DISTINCT session_id, first, hits FROM "
            "ubi_asked) GROUP BY session_id, first HAVING count(*) > 1)",
            "ubi.two-lists",
        )
        for table in ("ubi_hits", *(["ubi_shown"] if self.by_impressions else [])):
            self.database.run(
                f"DELETE FROM {table} WHERE session_id NOT IN (SELECT session_id FROM ubi_sessions)"
            )

    # ---- what people did

    def find_labels(self) -> None:
        """`ubi_labels`: what was done to each object; clicks elsewhere than on the list go."""
        labels = ", ".join(
            f"CAST(max(CAST({self.wanted.is_one(name)} AS INTEGER)) AS UTINYINT) AS label_{i}"
            for i, name in enumerate(self.wanted.labels)
        )
        is_label = " OR ".join(map(self.wanted.is_one, self.wanted.labels))
        self.database.run(
            f"CREATE TEMP TABLE ubi_labels AS SELECT session_id, doc_id, {labels}, sum(n) AS n "
            f"FROM ubi_done SEMI JOIN ubi_sessions USING (session_id) WHERE {is_label} GROUP BY ALL"
        )
        self.database.run(
            "CREATE TEMP TABLE ubi_elsewhere AS SELECT session_id, doc_id, n, position, first FROM "
            "ubi_labels ANTI JOIN ubi_shown USING (session_id, doc_id) "
            "LEFT JOIN ubi_hits USING (session_id, doc_id)"
        )
        self._refuse_other_ids()
        below, elsewhere = BELOW(shown=self.export.hits_shown), "ubi_elsewhere WHERE"
        self._leave(f"{elsewhere} {self._below}", below, _OBJECT, is_bad=False)
        self._leave(f"{elsewhere} position IS NOT NULL", NO_IMPRESSION, _OBJECT)
        self._leave(f"{elsewhere} true", OUTSIDE, _OBJECT)

    def _refuse_other_ids(self) -> None:
        """Raise where hardly any object of an event is on its list: ids of two kinds."""
        done, lost = (
            self._one(f"SELECT count(*) FROM {table}") for table in ("ubi_labels", "ubi_elsewhere")
        )
        if done == 0 or done - lost >= _LEAST_KNOWN * done:
            return
        (event,) = self._examples("ubi_elsewhere", "doc_id")[:1]
        known = self._examples("ubi_shown", "doc_id")[:3]
        raise ColumnError(
            f"{self.what}: of {done:,} objects that people clicked, the lists of their "
            f"queries show {done - lost:,}. Events name objects like {event!r}, lists "
            f"like {', '.join(map(repr, known))}: these seem to be ids of two kinds. "
            "Set object_id_field so that both are the same, or name the field of the "
            "events that holds the other id: "
            "⟦columns={'doc_id': 'event_attributes.object.internal_id'}⟧."
        )

    def write(self, name: str) -> tuple[str, ...]:
        """The table of impressions; its columns."""
        optional = ("timestamp", "ranker", PERSON)
        counts = ", ".join(f"count({each})" for each in optional)
        known = self.database.row(f"SELECT {counts} FROM ubi_sessions")
        columns = {"query_id": "query_id", "session_id": "session_id", "doc_id": "doc_id"}
        columns["position"] = "position"
        columns |= {n: f"coalesce(label_{i}, 0)" for i, n in enumerate(self.wanted.labels)}
        columns |= {n: f"context_{i}" for i, n in enumerate(self.wanted.context)}
        columns |= {each: each for each, n in zip(optional, known, strict=True) if n}
        chosen = ", ".join(f"{sql} AS {quoted(ours)}" for ours, sql in columns.items())
        self.database.run(
            f"CREATE TEMP TABLE {name} AS SELECT {chosen} FROM ubi_shown JOIN ubi_sessions "
            "USING (session_id) LEFT JOIN ubi_labels USING (session_id, doc_id)"
        )
        for table in ("asked", "done", "sessions", "hits", "shown", "labels", "elsewhere"):
            self.database.run(f"DROP TABLE ubi_{table}")
        return tuple(columns)

    def _one(self, sql: str) -> int:
        (value,) = self.database.row(sql)
        return int(value)

    def _examples(self, rows: str, example: str) -> tuple[str, ...]:
        found = self.database.rows(
            f"SELECT DISTINCT left({example}, 120) FROM {rows} ORDER BY 1 LIMIT {N_SHOWN}"
        )
        return tuple(str(text) for (text,) in found if text is not None)
