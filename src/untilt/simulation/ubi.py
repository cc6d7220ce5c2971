"""A simulated log as an export of User Behavior Insights, to try the way from one to a report."""

import os
from pathlib import Path

from untilt._core.files import replacing_all
from untilt._core.progress import progress
from untilt.data.read.database import literal, open_database, translated_errors

QUERIES, EVENTS = "ubi_queries.jsonl", "ubi_events.jsonl"
# Sessions of a simulation are a minute apart, from here on.
_BEGIN = "TIMESTAMP '2026-01-01'"


def write_ubi(
    log: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    impressions: bool = True,
) -> tuple[Path, Path]:
    """Write a log of `simulate_to_parquet` as the documents of UBI 1.3; the two files.

    A session is a request with a query_id of its own, the query's id its user_query. Ordinals count
    from 0. Without `impressions` the hits alone say what was shown.
    """
    path = os.fspath(log)
    with (
        replacing_all(Path(folder), [QUERIES, EVENTS]) as place,
        open_database(memory_limit=None, temp_directory=place, threads=None, files=[path]) as base,
        progress("writing the export"),
        translated_errors(path),
    ):
        base.run(f"CREATE TEMP VIEW log AS SELECT * FROM read_parquet({literal(base.path(path))})")
        written = {QUERIES: _queries(base.columns("log")), EVENTS: _events(impressions)}
        for name, sql in written.items():
            # DuckDB may write into its own folder alone.
            made = base.scratch / name
            base.run(f"COPY ({sql}) TO {literal(str(made))} (FORMAT json)")
            os.replace(made, place / name)
    return Path(folder, QUERIES), Path(folder, EVENTS)


def _time(seconds: str) -> str:
    """SQL of the time in a session, as text."""
    moment = f"{_BEGIN} + to_minutes(session_id) + to_seconds({seconds})"
    return f"strftime({moment}, '%Y-%m-%dT%H:%M:%SZ')"


def _queries(columns: dict[str, str]) -> str:
    about = "{'simulated': true}"
    if "ranker" in columns:
        about = "{'simulated': true, 'ranker': any_value(CAST(ranker AS VARCHAR))}"
    return (
        "SELECT 'session-' || session_id AS query_id, 'response-' || session_id AS "
        f"query_response_id, {_time('0')} AS timestamp, CAST(query_id AS VARCHAR) AS user_query, "
        "'client-' || (session_id % 1000) AS client_id, 'untilt' AS application, "
        "list(CAST(doc_id AS VARCHAR) ORDER BY position) AS query_response_hit_ids, "
        f"{about} AS query_attributes FROM log GROUP BY session_id, query_id ORDER BY session_id"
    )


def _events(impressions: bool) -> str:
    actions = {"click": "position + 1", **({"impression": "1"} if impressions else {})}
    events = [
        f"SELECT '{action}' AS action_name, 'session-' || session_id AS query_id, "
        f"{_time(seconds)} AS timestamp, 'client-' || (session_id % 1000) AS client_id, "
        "'untilt' AS application, {'object': {'object_id': CAST(doc_id AS VARCHAR)}, 'position': "
        "{'ordinal': position - 1}} AS event_attributes FROM log "
        + ("WHERE click > 0" if action == "click" else "")
        for action, seconds in actions.items()
    ]
    return f"SELECT * FROM ({' UNION ALL '.join(events)}) ORDER BY timestamp, query_id"
