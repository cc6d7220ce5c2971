"""The rules for documents and their features."""

from untilt.logs.duck.bench import Bench, literal
from untilt.logs.duck.examples import N_SHOWN, all_present, examples_of, shown
from untilt.logs.duck.impressions import Field
from untilt.logs.read_report import BadRows


def document_rules(
    bench: Bench, view: str, fields: tuple[Field, ...], table: str
) -> tuple[list[BadRows], str]:
    """Documents with a bad feature or with two sets of features; a view of the good ones."""
    keys, features = fields[:2], fields[2:]
    bad = _bad_features(bench, view, keys, features, table)
    columns = ", ".join(["query_id", "doc_id", *(field.alias for field in features)])
    bench.run(
        f"CREATE TEMP TABLE candidates AS SELECT DISTINCT {columns} FROM {view} "
        f"WHERE {all_present(fields)}"
    )
    bench.run(
        "CREATE TEMP TABLE disputed AS SELECT query_id, doc_id FROM candidates "
        "GROUP BY query_id, doc_id HAVING count(*) > 1"
    )
    bad += _disputed(bench, view, fields, table)
    bench.run(
        "CREATE TEMP VIEW kept_documents AS SELECT * FROM candidates "
        "ANTI JOIN disputed USING (query_id, doc_id)"
    )
    return bad, "kept_documents"


def without_document(bench: Bench, rows: str, documents: str) -> tuple[list[BadRows], str]:
    """Impressions of documents that have no features; a view of the other ones."""
    lost = f"(SELECT * FROM {rows} ANTI JOIN {documents} USING (query_id, doc_id))"
    (count,) = bench.row(f"SELECT count(*) FROM {lost}")
    if count == 0:
        return [], rows
    found = bench.rows(
        f"SELECT CAST(session_id AS VARCHAR), query_id, doc_id, position FROM {lost} "
        f"ORDER BY session_id, query_id, position LIMIT {N_SHOWN}"
    )
    examples = tuple(
        f"session {session}, query {query}, document {document}, position {position}"
        for session, query, document, position in found
    )
    what, fix = (
        "a document without features",
        ("add its (query_id, doc_id) with features to the documents, or take it out of the log"),
    )
    return [BadRows(what, count, examples, fix)], with_document(bench, rows, documents, ())


def with_document(bench: Bench, rows: str, documents: str, features: tuple[Field, ...]) -> str:
    """A view of the impressions whose document is known and whose own features are good."""
    bench.run(
        f"CREATE TEMP VIEW with_document AS SELECT * FROM {rows} "
        f"SEMI JOIN {documents} USING (query_id, doc_id) WHERE {all_present(features)}"
    )
    return "with_document"


def _bad_features(
    bench: Bench, view: str, keys: tuple[Field, ...], features: tuple[Field, ...], table: str
) -> list[BadRows]:
    if not features:
        return []
    rows = f"SELECT * FROM {view} WHERE {all_present(keys)} AND NOT ({all_present(features)})"
    (count,) = bench.row(f"SELECT count(*) FROM ({rows})")
    if count == 0:
        return []
    cases = " ".join(
        f"WHEN {field.alias} IS NULL THEN {literal(field.column.name + ' = ')} || "
        f"{shown(f'raw_{field.alias}')}"
        for field in features
    )
    examples = examples_of(bench, rows, keys, f"CASE {cases} END")
    return [BadRows(features[0].what, count, examples, features[0].fix, table)]


def _disputed(bench: Bench, view: str, fields: tuple[Field, ...], table: str) -> list[BadRows]:
    features = fields[2:]
    (count,) = bench.row(
        f"SELECT count(*) FROM {view} SEMI JOIN disputed USING (query_id, doc_id) "
        f"WHERE {all_present(fields)}"
    )
    if count == 0:
        return []
    values = ", ".join(f"array_agg(DISTINCT {field.alias})" for field in features)
    found = bench.rows(
        f"SELECT query_id, doc_id, {values} FROM candidates SEMI JOIN disputed "
        f"USING (query_id, doc_id) GROUP BY query_id, doc_id ORDER BY ALL LIMIT {N_SHOWN}"
    )
    return [
        BadRows(
            "a document of a query has different features in different rows",
            count,
            tuple(_dispute(*row, features=features) for row in found),
            "features belong to the pair of query and document: keep one row of them for each pair",
            table,
        )
    ]


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
