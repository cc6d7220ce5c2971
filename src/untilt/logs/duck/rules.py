"""The slow look at a log that is known to have bad rows: which, how many, and the log without them.

The fast path only notices that something is wrong. Here every rule is taken in turn, each on what
the rules before it left over, so a row counts once.
"""

from dataclasses import dataclass

from untilt.logs.duck.bench import Bench, literal
from untilt.logs.duck.document_rules import document_rules, with_document, without_document
from untilt.logs.duck.examples import N_SHOWN, all_present, examples_of, shown
from untilt.logs.duck.impressions import Field, Impressions
from untilt.logs.read_report import BadRows


@dataclass(frozen=True)
class Examined:
    """What is wrong, and the tables or views that hold only what is right."""

    bad: tuple[BadRows, ...]
    impressions: str
    documents: str | None


@dataclass(frozen=True)
class SessionRule:
    """A session breaks the rule if a group of its rows fulfils the condition."""

    group: str
    condition: str
    example: str
    what: str
    fix: str


def examine(
    bench: Bench, log: Impressions, *, documents: str | None, document_fields: tuple[Field, ...]
) -> Examined:
    """Apply all rules. `documents` is the view of the documents table, None where there is none."""
    bad = bad_values(bench, "impressions", log.fields, "log")
    bench.run(
        f"CREATE TEMP VIEW good_values AS SELECT * FROM impressions WHERE {all_present(log.fields)}"
    )
    rows, kept = "good_values", None
    if documents is not None:
        bad += bad_values(bench, documents, document_fields[:2], "documents table")
        found, kept = document_rules(bench, documents, document_fields, "documents table")
        lost, rows = without_document(bench, rows, kept)
        bad += found + lost
    elif log.features:
        found, kept = document_rules(bench, rows, document_fields, "log")
        rows = with_document(bench, rows, kept, log.features)
        bad += found
    found, rows = _session_rules(bench, log, rows)
    return Examined(tuple(bad + found), rows, kept)


def bad_values(bench: Bench, view: str, fields: tuple[Field, ...], table: str) -> list[BadRows]:
    """Rows with a NULL in a typed column, under the first such column."""
    cases = " ".join(f"WHEN {field.alias} IS NULL THEN {i}" for i, field in enumerate(fields))
    rows = f"(SELECT *, CASE {cases} END AS rule FROM {view})"
    counts = dict(bench.rows(f"SELECT rule, count(*) FROM {rows} GROUP BY rule ORDER BY rule"))
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
            examples = examples_of(bench, broken, fields, value)
            bad.append(BadRows(field.what, count, examples, field.fix, table))
    return bad


def _session_rules(bench: Bench, log: Impressions, rows: str) -> tuple[list[BadRows], str]:
    """Sessions that are not one list. They go as a whole: nobody can say what they showed."""
    bad = []
    for number, rule in enumerate(_rules_for(log)):
        broken = f"broken_sessions_{number}"
        bench.run(
            f"CREATE TEMP TABLE {broken} AS SELECT session_id, query_id, min(example) AS example "
            f"FROM (SELECT session_id, query_id, {rule.example} AS example FROM {rows} "
            f"GROUP BY {rule.group} HAVING {rule.condition}) GROUP BY session_id, query_id"
        )
        (count,) = bench.row(
            f"SELECT count(*) FROM {rows} SEMI JOIN {broken} USING (session_id, query_id)"
        )
        if count == 0:
            continue
        found = bench.rows(
            f"SELECT CAST(session_id AS VARCHAR), query_id, example FROM {broken} "
            f"ORDER BY session_id, query_id LIMIT {N_SHOWN}"
        )
        examples = tuple(f"session {s}, query {q}: {example}" for s, q, example in found)
        bad.append(BadRows(rule.what, count, examples, rule.fix))
        bench.run(
            f"CREATE TEMP VIEW whole_sessions_{number} AS SELECT * FROM {rows} "
            f"ANTI JOIN {broken} USING (session_id, query_id)"
        )
        rows = f"whole_sessions_{number}"
    return bad, rows


def _rules_for(log: Impressions) -> list[SessionRule]:
    rules = [
        SessionRule(
            "session_id, query_id, position",
            "count(*) > 1",
            "'position ' || position || ' shows ' || min(doc_id) || ' and ' || max(doc_id)",
            "in a session where a position stands twice",
            "a session is one list: give each page load its own session_id, number positions "
            "through over all pages, and write each impression once",
        )
    ]
    for alias in ("ranker", "count"):
        if log.has(alias):
            rules.append(
                SessionRule(
                    "session_id, query_id",
                    f"min({alias}) <> max({alias})",
                    f"'{alias} ' || min({alias}) || ' and ' || max({alias})",
                    f"in a session whose rows differ in {alias}",
                    f"a session is one list with one {alias}; an interleaved list needs a name of "
                    f"its own",
                )
            )
    return rules
