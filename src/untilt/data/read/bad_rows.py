"""The slow look at a log that is known to have bad rows: which, how many, and the log without them.

The fast path only notices that something is wrong. Here every rule is taken in turn, each on what
the rules before it left over, so a row counts once.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from untilt.data.limits import DEEPEST, too_deep
from untilt.data.read.columns import FLAG, DocumentFields, Field, Impressions
from untilt.data.read.database import Database, literal
from untilt.data.read.types import number_sql
from untilt.facts import Fact, phrase, serious, warning

FEATURES_DIFFER = warning(
    "log.features-differ", "a document of a query has different features in different rows"
)()
POSITIONS_FROM_0 = serious(
    "log.positions-from-0",
    "{column} counts from 0: it is 0 at the top of {sessions:,} of {n_sessions:,} lists, and never "
    "below 0",
)
NO_DOCUMENT = warning("log.no-document", "a document without features")()
SESSION_DIFFERS = warning("log.session-differs", "in a session whose rows differ in {column}")

SESSION_REUSED = warning(
    "log.session-reused",
    "in a session that shows a position twice and lasts longer than {hours} hours: its id is "
    "reused",
)
PAGES_RESTART = warning(
    "log.pages-restart",
    "in a session that shows other documents at position 1 again: each page counts from 1",
)
REPEATED = warning(
    "log.rows-repeated",
    "{n:,} {n:row repeats another row|rows repeat other rows} exactly and {n:counts|count} once.",
)
NOT_RANDOM = serious(
    "log.dropped-not-random",
    "The rest is no random sample: {head:.0%} of the sessions of the most frequent queries "
    "(half of the traffic) were left out, and {tail:.0%} of the others. Repair the rows instead.",
)

N_SHOWN = 5
LONGEST = 6  # hours that the rows of one list may lie apart
# Shares of sessions that were left out differ: of so many, by a factor, and by so many errors.
LEAST_DROPPED, RATIO, ERRORS = 0.01, 1.5, 5.0
# What the person who made the log or the export can do, by the code of the rule.
_FIXES = {
    "log.id-missing": "give every row its ids",
    "log.session-missing": "give every row its session",
    "log.bad-position": "positions count from 1 at the top of the page",
    "log.too-deep": (
        "correct positions that no reader can reach; if lists really are so long, do nothing: "
        "results hold for the positions above"
    ),
    "log.positions-from-0": (
        "read them as 1, 2, 3, ... with ⟦positions_from=0⟧; without these rows every page would "
        "lose its top result (if they are no results: ⟦positions_from=1⟧)"
    ),
    "log.bad-label": (
        "feedback is a number of at least 0; write 0 for no action, and leave out rows that the "
        "person could not see"
    ),
    "log.bad-cell": (
        "rows and columns count from 1 (⟦positions_from=0⟧ where yours count from 0), and "
        "grid=(rows, columns) is the size of the grid"
    ),
    "log.bad-context": (
        "context is a number or text: fill the gaps with a value such as 'unknown'"
    ),
    "log.person-missing": "give it another id, or ⟦pass columns={{'person': None}}⟧",
    "log.ranker-missing": "name the system that made the list, or "
    "⟦pass columns={{'ranker': None}}⟧",
    "log.bad-random": (
        "the flag for random order is 1 or true where the list was shown in random order, else 0"
    ),
    "log.bad-propensity": "write 1 where none was drawn, or ⟦pass columns={{'propensity': None}}⟧",
    "log.bad-count": (
        "count is the number of sessions of the row; if not, ⟦pass columns={{'count': None}}⟧"
    ),
    "log.bad-time": "give a timestamp or a number, or ⟦pass columns={{'timestamp': None}}⟧",
    "log.bad-feature": (
        'keep a missing feature for boosted trees with ⟦missing="keep"⟧, or get a value with '
        "⟦missing=0.0⟧, which rankers then use too; correct values that are infinite or no numbers"
    ),
    "log.no-document": (
        "add its (query_id, doc_id) with features to the documents, or take it out of the log"
    ),
    "log.features-differ": (
        "keep one row per (query_id, doc_id); put features that change over time into the rows of "
        "the log (⟦features=|--features⟧), one value for each impression"
    ),
    "log.position-twice": (
        "a session is one list: give each page load its own session_id, and write each impression "
        "once"
    ),
    "log.session-reused": (
        "make session_id of the id and the day or the hour, such as 'a17-2026-11-18'"
    ),
    "log.pages-restart": (
        "name the column of the page, ⟦columns={{'page': ...}}⟧, or number positions continuously "
        "over all pages"
    ),
    "log.bad-page": (
        "pages count from 1 or 0, and positions from 1 on each page (⟦positions_from=0⟧ where "
        "yours count from 0)"
    ),
    "log.session-differs": "a session is one list: give all its rows the same value",
    "ubi.no-query-id": "give every request a query_id, and its events the same one",
    "ubi.no-user-query": (
        "write the text of the query, or name the field that holds it: "
        "⟦columns={{'query_id': 'query_attributes.category'}}⟧"
    ),
    "ubi.two-queries": "give every request a different query_id",
    "ubi.two-lists": (
        "give every request a different query_id; for pages of one list, give where each page "
        "begins (`from` in `query`, or ⟦columns={{'offset': 'query_attributes.offset'}}⟧)"
    ),
    "ubi.no-position": (
        "send event_attributes.position.ordinal with every impression; if no impression has one, "
        "the order of the hits is used"
    ),
    "ubi.no-impression": (
        "nothing if few events are lost: the object is left out of this list, clicked or not. If "
        "most impressions are missing, ignore impressions: ⟦columns={{'impression': None}}⟧"
    ),
    "ubi.outside": (
        "clicks beside the list (an advertisement, a recommendation) need a different action; if "
        "events hold two kinds of ids, name the right field: "
        "⟦columns={{'doc_id': 'event_attributes.object.internal_id'}}⟧"
    ),
    "ubi.below": "raise hits_shown where the page shows more",
    "ubi.no-object": "nothing, if these are actions beside the list",
    "ubi.no-action": "send action_name with every event",
    "ubi.unknown-query": "export the queries of the same time; events of other searches count here",
    "ubi.no-hits": "nothing: there is no list to learn from",
    "ubi.no-impressions": (
        "nothing, if the list was not seen; if only a part of the traffic sends impressions, the "
        "log holds that part"
    ),
}
_NAMES = {
    "session_id": "session",
    "query_id": "query",
    "doc_id": "document",
    "position": "position",
}


def all_present(fields: tuple[Field, ...]) -> str:
    """The condition that a row is good in all these fields."""
    return " AND ".join(f"{field.alias} IS NOT NULL" for field in fields) or "true"


def shown(value: str) -> str:
    """A value as short text, whatever its type."""
    return f"coalesce(left(CAST({value} AS VARCHAR), 60), 'NULL')"


def examples_of(
    database: Database, rows: str, fields: tuple[Field, ...], value: str
) -> tuple[str, ...]:
    """Up to five rows: who they are, and the value in question."""
    have = {field.alias for field in fields}
    keys = [alias for alias in _NAMES if alias in have]
    who = " || ', ' || ".join(f"'{_NAMES[key]} ' || {shown(f'raw_{key}')}" for key in keys)
    order = ", ".join(f"raw_{key}" for key in keys)
    texts = database.rows(
        f"SELECT {who} || ': ' || {value} FROM ({rows}) ORDER BY {order} LIMIT {N_SHOWN}"
    )
    return tuple(text for (text,) in texts)


@dataclass(frozen=True)
class BadRows:
    """Rows that break one rule (`what.code` names it): how many, and up to five of them."""

    what: Fact
    n_rows: int
    examples: tuple[str, ...]
    table: str = "log"

    @property
    def fix(self) -> Fact:
        """What to do about it."""
        return phrase(_FIXES[self.what.code])

    @property
    def told(self) -> Fact:
        """The rule, the rows and what to do, on lines of their own."""
        shown = "".join(f"\n    {example}" for example in self.examples)
        more = "\n    ..." if self.n_rows > len(self.examples) else ""
        return phrase(
            "  {n:,} {n:row|rows} of the {table}: {what}{shown}\n    Fix: {fix}.",
            n=self.n_rows, table=self.table, what=self.what, shown=shown + more, fix=self.fix,
        )  # fmt: skip

    def __str__(self) -> str:
        return str(self.told)


@dataclass(frozen=True)
class ReadReport:
    """The rows that were read and left out, with the reasons.

    `bad` holds one entry per broken rule. A row counts once, under the first rule that it breaks;
    `n_dropped` counts only rows of the log, not those of the documents table nor of an export that
    the log was made of. Features in the rows that change within a (query, document) are
    `changing_features`: it then has versions. `notes` say how the log was understood.
    """

    source: str
    n_rows: int
    n_dropped: int
    bad: tuple[BadRows, ...] = ()
    ignored_columns: tuple[str, ...] = ()
    changing_features: tuple[str, ...] = ()
    notes: tuple[Fact, ...] = ()

    @property
    def counts_from_zero(self) -> bool:
        """Whether the positions of the log seem to count from 0."""
        return any(bad.what.code == "log.positions-from-0" for bad in self.bad)

    def with_more(self, dropped: BadRows) -> "ReadReport":
        """The same with rows that were left out before any rule was looked at."""
        n = dropped.n_rows
        return replace(
            self, n_rows=self.n_rows + n, n_dropped=self.n_dropped + n, bad=(dropped, *self.bad)
        )

    @property
    def told(self) -> Fact:
        """How many rows there are, the notes, and the rules that rows break, a line each."""
        head = f"{self.source}: {self.n_rows:,} rows, {self.n_dropped:,} dropped"
        bad = [bad.told for bad in self.bad]
        return phrase("{lines:lines}", lines=[head, *self._understood, *bad])

    @property
    def _understood(self) -> list[Fact]:
        return [phrase("  {note}", note=note) for note in self.notes]

    def __str__(self) -> str:
        return str(self.told)

    def error_text(self) -> Fact:
        """The same as a refusal."""
        drop = [phrase('To leave them out and count them, ⟦pass on_bad="drop"⟧.')]
        if self.counts_from_zero:
            drop = []
        return phrase(
            "{source} has rows that cannot be used.\n{lines:lines}",
            source=self.source, lines=[*(bad.told for bad in self.bad), *self._understood, *drop],
        )  # fmt: skip


def document_rules(
    database: Database, view: str, documents: DocumentFields
) -> tuple[list[BadRows], str]:
    """Documents of the table that have a bad feature or two sets; a view of the good ones."""
    table, key = "documents table", documents.key_sql
    bad = _bad_features(database, view, documents.key, documents.features, table)
    columns = ", ".join(field.alias for field in documents.fields)
    database.run(
        f"CREATE TEMP TABLE candidates AS SELECT DISTINCT {columns} FROM {view} "
        f"WHERE {all_present(documents.fields)}"
    )
    database.run(
        f"CREATE TEMP TABLE disputed AS SELECT {key} FROM candidates "
        f"GROUP BY {key} HAVING count(*) > 1"
    )
    bad += _disputed(database, view, documents, table)
    database.run(
        "CREATE TEMP VIEW kept_documents AS SELECT * FROM candidates "
        f"ANTI JOIN disputed USING ({key})"
    )
    return bad, "kept_documents"


def without_document(
    database: Database, rows: str, documents: str, key: str
) -> tuple[list[BadRows], str]:
    """Impressions of documents that have no features; a view of the other ones."""
    lost = f"(SELECT * FROM {rows} ANTI JOIN {documents} USING ({key}))"
    (count,) = database.row(f"SELECT count(*) FROM {lost}")
    if count == 0:
        return [], rows
    examples = database.rows(
        f"SELECT CAST(session_id AS VARCHAR), query_id, doc_id, position FROM {lost} "
        f"ORDER BY session_id, query_id, position LIMIT {N_SHOWN}"
    )
    shown_rows = tuple(
        f"session {session}, query {query}, document {document}, position {position}"
        for session, query, document, position in examples
    )
    database.run(
        f"CREATE TEMP VIEW with_document AS SELECT * FROM {rows} "
        f"SEMI JOIN {documents} USING ({key})"
    )
    return [BadRows(NO_DOCUMENT, count, shown_rows)], "with_document"


def _bad_features(
    database: Database, view: str, keys: tuple[Field, ...], features: tuple[Field, ...], table: str
) -> list[BadRows]:
    if not features:
        return []
    rows = f"SELECT * FROM {view} WHERE {all_present(keys)} AND NOT ({all_present(features)})"
    (count,) = database.row(f"SELECT count(*) FROM ({rows})")
    if count == 0:
        return []
    cases = " ".join(
        f"WHEN {field.alias} IS NULL THEN {literal(field.column.name + ' = ')} || "
        f"{shown(f'raw_{field.alias}')}"
        for field in features
    )
    examples = examples_of(database, rows, keys, f"CASE {cases} END")
    return [BadRows(features[0].bad, count, examples, table)]


def _disputed(
    database: Database, view: str, documents: DocumentFields, table: str
) -> list[BadRows]:
    features, key = documents.features, documents.key_sql
    (count,) = database.row(
        f"SELECT count(*) FROM {view} SEMI JOIN disputed USING ({key}) "
        f"WHERE {all_present(documents.fields)}"
    )
    if count == 0:
        return []
    values = ", ".join(f"array_agg(DISTINCT {field.alias})" for field in features)
    disputes = database.rows(
        f"SELECT query_id, doc_id, {values} FROM candidates SEMI JOIN disputed "
        f"USING ({key}) GROUP BY {key} ORDER BY ALL LIMIT {N_SHOWN}"
    )
    examples = tuple(_dispute(*row, features=features) for row in disputes)
    return [BadRows(FEATURES_DIFFER, count, examples, table)]


def _dispute(
    query: object, document: object, *seen: list[float], features: tuple[Field, ...]
) -> str:
    """The first feature with two values."""
    name, values = next(
        (field.column.name, values)
        for field, values in zip(features, seen, strict=True)
        if len(values) > 1
    )
    shown_values = " and ".join(f"{value:g}" for value in sorted(values)[:3])
    return f"query {query}, document {document}: {name} = {shown_values}"


@dataclass(frozen=True)
class RowExamination:
    """What is wrong, and the tables or views that hold only what is right."""

    bad: tuple[BadRows, ...]
    impressions: str
    documents: str | None
    notes: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class SessionRule:
    """A session breaks the rule if a group of its rows fulfils the condition."""

    condition: str
    example: str
    bad: Fact
    group: str = "session_id, query_id"


def examine(
    database: Database, log: Impressions, *, documents: str | None, document_fields: DocumentFields
) -> RowExamination:
    """Apply all rules. `documents` is the view of the documents table, None where there is none."""
    bad = bad_values(database, "impressions", log.fields, "log")
    bad = [_from_zero(database, log, each) for each in bad]
    database.run(
        f"CREATE TEMP VIEW good_values AS SELECT * FROM impressions WHERE {all_present(log.fields)}"
    )
    rows, kept = "good_values", None
    if documents is not None:
        bad += bad_values(database, documents, document_fields.key, "documents table")
        of_documents, kept = document_rules(database, documents, document_fields)
        lost, rows = without_document(database, rows, kept, document_fields.key_sql)
        bad += of_documents + lost
    elif log.features:
        # Features that change are versions of their documents: nothing in them can differ.
        bad += _bad_features(database, rows, document_fields.key, log.features, "log")
        database.run(
            f"CREATE TEMP VIEW with_features AS SELECT * FROM {rows} "
            f"WHERE {all_present(log.features)}"
        )
        rows = kept = "with_features"
    repeated, rows = _rows_once(database, log, rows)
    of_sessions, rows = _session_rules(database, log, rows)
    notes = (REPEATED(n=repeated),) if repeated else ()
    return RowExamination(tuple(bad + of_sessions), rows, kept, notes)


def _rows_once(database: Database, log: Impressions, rows: str) -> tuple[int, str]:
    """How many rows repeat another one in every column that is read; a view without them."""
    columns = ", ".join(field.alias for field in (*log.fields, *log.features))
    once = f"SELECT DISTINCT {columns} FROM {rows}"
    (count,) = database.row(
        f"SELECT (SELECT count(*) FROM {rows}) - (SELECT count(*) FROM ({once}))"
    )
    if not count:
        return 0, rows
    database.run(f"CREATE TEMP VIEW rows_once AS {once}")
    return count, "rows_once"


def dropped_unevenly(database: Database, kept: str) -> Fact | None:
    """Whether frequent queries lost another share of their sessions than rare ones, by far."""
    sessions = "SELECT DISTINCT query_id, session_id FROM"
    found = database.rows(
        "SELECT count(*), count(*) FILTER (there IS NULL) FROM "
        f"({sessions} impressions WHERE query_id IS NOT NULL AND session_id IS NOT NULL) "
        f"LEFT JOIN (SELECT *, true AS there FROM ({sessions} {kept})) "
        "USING (query_id, session_id) GROUP BY query_id ORDER BY 1 DESC, query_id"
    )
    n, lost = np.array(found, float).reshape(-1, 2).T
    head = np.cumsum(n) - n < n.sum() / 2
    parts = np.array([n[head].sum(), n[~head].sum()])
    if not parts.all():
        return None
    share, shares = lost.sum() / n.sum(), np.array([lost[head].sum(), lost[~head].sum()]) / parts
    least, most = sorted(shares)
    far = most - least > ERRORS * math.sqrt(share * (1 - share) * np.sum(1 / parts))
    apart = far and most > RATIO * least and share >= LEAST_DROPPED
    return NOT_RANDOM(head=float(shares[0]), tail=float(shares[1])) if apart else None


def cut_lists(database: Database, log: Impressions) -> BadRows:
    """Take the rows that lie too deep out of `impressions`, before any rule looks at them.

    All else is read as if they were not there.
    """
    database.run(
        f"CREATE TEMP TABLE deep_rows AS SELECT * FROM impressions WHERE position > {DEEPEST}"
    )
    n = "count" if log.has("count") else "1"
    total = f"SELECT count(*), sum({n}), sum({n} * label_0), max(position) FROM"
    _, _, all_labels, _ = database.row(f"{total} impressions")
    rows, impressions, labels, deepest = database.row(f"{total} deep_rows")
    database.run("ALTER VIEW impressions RENAME TO all_impressions")
    database.run(
        "CREATE TEMP VIEW impressions AS SELECT * FROM all_impressions "
        f"WHERE (position > {DEEPEST}) IS NOT TRUE"
    )
    (sessions,) = database.row(
        f"SELECT sum(n) FROM (SELECT session_id, query_id, max({n}) AS n FROM deep_rows "
        "GROUP BY ALL) ANTI JOIN impressions USING (session_id, query_id)"
    )
    fact = too_deep(
        deepest=deepest,
        impressions=impressions or rows,
        labels=labels or 0,
        all_labels=all_labels or 0,
        sessions=sessions or 0,
    )
    column = next(field.column.name for field in log.fields if field.alias == "position")
    value = f"{literal(column)} || ' = ' || {shown('raw_position')}"
    examples = examples_of(database, "SELECT * FROM deep_rows", log.fields, value)
    return BadRows(fact, rows, examples)


def bad_values(
    database: Database, view: str, fields: tuple[Field, ...], table: str
) -> list[BadRows]:
    """Rows with a NULL in a typed column, under the first such column."""
    cases = " ".join(f"WHEN {field.alias} IS NULL THEN {i}" for i, field in enumerate(fields))
    rows = f"(SELECT *, CASE {cases} END AS rule FROM {view})"
    counts = dict(database.rows(f"SELECT rule, count(*) FROM {rows} GROUP BY rule ORDER BY rule"))
    n_rows = sum(counts.values())
    bad = []
    for index, field in enumerate(fields):
        count = counts.get(index, 0)
        if count == n_rows and field.column.kind == "text" and field.is_number and count:
            # Not one number: this is the wrong column rather than a column with bad rows.
            raise field.column.refused(field.alias, "numbers or true/false")
        if count:
            value = f"{literal(field.column.name)} || ' = ' || {shown(f'raw_{field.alias}')}"
            broken = f"SELECT * FROM {rows} WHERE rule = {index}"
            examples = examples_of(database, broken, fields, value)
            bad.append(BadRows(field.bad, count, examples, table))
    return bad


# Share of the lists that begin at position 0, from which on the log counts from 0. Where rows are
# lost at random or a feature above the results is logged as position 0, it is far lower.
FROM_ZERO = 0.9


def _from_zero(database: Database, log: Impressions, bad: BadRows) -> BadRows:
    """Bad positions under another rule where nearly every list begins at position 0."""
    if bad.what.code != "log.bad-position" or bad.what.fields["least"] == 0:
        return bad
    column = next(field.column for field in log.fields if field.alias == "position")
    number = number_sql(replace(column, name="raw_position"), "position")
    n = "coalesce(max(count), 1)" if log.has("count") else "1"
    lists, from_zero, below = database.row(
        "SELECT sum(n), coalesce(sum(n) FILTER (least = 0 AND zeros = 1), 0), "
        f"count(*) FILTER (least < 0) FROM (SELECT {n} AS n, min({number}) AS least, "
        f"count(*) FILTER ({number} = 0) AS zeros "
        "FROM impressions GROUP BY raw_session_id, raw_query_id)"
    )
    if below or from_zero < FROM_ZERO * lists:
        return bad
    found = {"column": column.name, "sessions": int(from_zero), "n_sessions": int(lists)}
    return replace(bad, what=POSITIONS_FROM_0(**found))


def _session_rules(database: Database, log: Impressions, rows: str) -> tuple[list[BadRows], str]:
    """Sessions that are not one list. They go as a whole: nobody can say what they showed."""
    bad = []
    for number, rule in enumerate(_rules_for(log)):
        broken = f"broken_sessions_{number}"
        database.run(
            f"CREATE TEMP TABLE {broken} AS SELECT session_id, query_id, min(example) AS example "
            f"FROM (SELECT session_id, query_id, {rule.example} AS example FROM {rows} "
            f"GROUP BY {rule.group} HAVING {rule.condition}) GROUP BY session_id, query_id"
        )
        (count,) = database.row(
            f"SELECT count(*) FROM {rows} SEMI JOIN {broken} USING (session_id, query_id)"
        )
        if count == 0:
            continue
        broken_sessions = database.rows(
            f"SELECT CAST(session_id AS VARCHAR), query_id, example FROM {broken} "
            f"ORDER BY session_id, query_id LIMIT {N_SHOWN}"
        )
        examples = tuple(f"session {s}, query {q}: {example}" for s, q, example in broken_sessions)
        bad.append(BadRows(rule.bad, count, examples))
        database.run(
            f"CREATE TEMP VIEW whole_sessions_{number} AS SELECT * FROM {rows} "
            f"ANTI JOIN {broken} USING (session_id, query_id)"
        )
        rows = f"whole_sessions_{number}"
    return bad, rows


def _hours(time: Field) -> str:
    """How long a session lasts; numbers are seconds, or the thousandths that their size tells."""
    if not time.column.is_numeric:
        return "date_diff('minute', min(timestamp), max(timestamp)) / 60"
    units = "WHEN max(timestamp) > 1e17 THEN 1e9 WHEN max(timestamp) > 1e14 THEN 1e6 WHEN "
    unit = f"CASE {units} max(timestamp) > 1e11 THEN 1e3 ELSE 1 END"
    return f"(CAST(max(timestamp) AS DOUBLE) - min(timestamp)) / ({unit}) / 3600"


def _rules_for(log: Impressions) -> list[SessionRule]:
    twice = "count(*) > count(DISTINCT position)"
    rules = []
    time = next((field for field in log.fields if field.alias == "timestamp"), None)
    if time is not None:
        rules.append(
            SessionRule(
                f"{twice} AND {_hours(time)} > {LONGEST}",
                "'from ' || min(timestamp) || ' to ' || max(timestamp)",
                SESSION_REUSED(hours=LONGEST),
            )
        )
    rules += [
        SessionRule(
            "count(*) - count(DISTINCT position) > 1 AND count(*) FILTER (position = 1) > 1 "
            "AND count(*) = count(DISTINCT doc_id)",
            "count(*) FILTER (position = 1) || ' pages with ' || count(*) || ' documents'",
            PAGES_RESTART(),
        ),
        SessionRule(
            "count(*) > 1",
            "'position ' || position || ' shows ' || min(doc_id) || ' and ' || max(doc_id)",
            warning("log.position-twice", "in a session that shows a position twice")(),
            "session_id, query_id, position",
        ),
    ]
    # The flag before the ranker, whose name it is part of.
    flag = [(field.alias, field.column.name) for field in log.fields if field.alias == FLAG]
    shared = [(alias, alias) for alias in ("ranker", "count") if log.has(alias)]
    context = [(field.alias, field.column.name) for field in log.context]
    for alias, name in [*flag, *shared, *context]:
        rules.append(
            SessionRule(
                f"min({alias}) <> max({alias})",
                f"{literal(name + ' ')} || min({alias}) || ' and ' || max({alias})",
                SESSION_DIFFERS(column=name),
            )
        )
    return rules
