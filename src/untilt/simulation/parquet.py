"""Simulated logs that are larger than memory: written to Parquet, chunk by chunk; and as UBI."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import AnyArray
from untilt._core.files import replacing_all
from untilt._core.progress import progress
from untilt._core.random import Seed
from untilt.data.judged import JudgedLists
from untilt.data.read.database import literal, open_database, translated_errors
from untilt.data.write_log import Columns, write_columns
from untilt.errors import OptionError
from untilt.simulation.prepare import MeanExamination, Setting, Truth, prepare
from untilt.simulation.protocols import Protocol
from untilt.simulation.sampler import Sessions, draw_sessions
from untilt.simulation.simulate import DEFAULT, Size, threads


@dataclass(frozen=True, eq=False)
class SimulatedFiles:
    """Where a simulated log lies, how large it is, and what it was made from.

    The truth's documents are in the order of the documents file.
    """

    log: Path
    documents: Path
    n_sessions: int
    n_impressions: int
    n_clicks: int
    truth: Truth


def simulate_to_parquet(
    judged: JudgedLists,
    folder: str | os.PathLike[str],
    protocol: str | Protocol = DEFAULT,
    *,
    n_sessions: int | None = None,
    n_clicks: int | None = None,
    sessions_per_query: int | None = None,
    ranker: Any = None,
    seed: Seed = 0,
    depth: int | None = None,
    query_weights: npt.ArrayLike | None = None,
    max_label: float | None = None,
    chunk_sessions: int = 200_000,
    n_threads: int | None = None,
) -> SimulatedFiles:
    """Write the log of `simulate` as one row per impression, chunk by chunk.

    Memory holds one chunk and up to 1 GB of rows on their way to the file; more are on the disk.

    The folder gets `clicks.parquet` (query_id, session_id, doc_id, position, click, timestamp;
    dwell where the protocol has it; ranker where there are several) and `documents.parquet`
    (query_id, doc_id, features). Session id and timestamp are the session's number. Both files
    appear together, whole or not at all. `read_log(files.log, documents=files.documents)` reads
    them back.

    Options are those of `simulate`; `chunk_sessions` changes neither rows nor their order.
    """
    size = Size(n_sessions, n_clicks, sessions_per_query)
    if chunk_sessions < 1:
        raise OptionError(f"chunk_sessions must be at least 1. Got {chunk_sessions} instead.")
    with threads(n_threads):
        setting = prepare(
            judged,
            protocol,
            ranker=ranker,
            seed=seed,
            depth=depth,
            query_weights=query_weights,
            max_label=max_label,
            in_turn=size.in_turn,
        )
        return _write(setting, Path(folder), size.total(setting), chunk_sessions)


def _write(setting: Setting, folder: Path, total: int, chunk_sessions: int) -> SimulatedFiles:
    columns = _Columns(setting)
    log, documents = folder / "clicks.parquet", folder / "documents.parquet"
    counted = _Counted(MeanExamination(setting.behaviour))

    def impressions() -> Iterator[Columns]:
        yield columns.impressions(draw_sessions(setting.plan, np.empty(0, dtype=np.int64)))
        for made in _chunks(setting, total, chunk_sessions):
            counted.add(made)
            yield columns.impressions(made)

    with replacing_all(folder, [log.name, documents.name]) as place:
        write_columns(place / documents.name, documents, [columns.documents()])
        write_columns(place / log.name, log, impressions())
    truth = setting.truth(counted.examination)
    return SimulatedFiles(log, documents, total, counted.impressions, counted.clicks, truth)


@dataclass
class _Counted:
    """What is counted as sessions are written."""

    examination: MeanExamination
    impressions: int = 0
    clicks: int = 0

    def add(self, made: Sessions) -> None:
        self.examination.add(made.indptr, made.document)
        self.impressions += len(made.document)
        self.clicks += int(made.click.sum())


def _chunks(setting: Setting, total: int, chunk_sessions: int) -> Iterator[Sessions]:
    with progress("simulating", total=total) as advance:
        for begin in range(0, total, chunk_sessions):
            number = np.arange(begin, min(begin + chunk_sessions, total))
            yield draw_sessions(setting.plan, number)
            advance(len(number))


class _Columns:
    """Sessions and documents as columns of a table."""

    def __init__(self, setting: Setting) -> None:
        assert setting.judged.doc_id is not None
        self.judged = setting.judged
        self.query_id, self.doc_id = (
            np.asarray(ids, dtype=object) if ids.dtype.kind == "U" else ids
            for ids in (setting.judged.query_id, setting.judged.doc_id)
        )
        self.rankers = np.array(setting.ranker_names, dtype=object)

    def impressions(self, made: Sessions) -> Columns:
        """One row per document of each session."""
        lengths = ragged.lengths(made.indptr)
        session = np.repeat(made.number, lengths)
        columns: dict[str, AnyArray] = {
            "query_id": self.query_id[np.repeat(made.query, lengths)],
            "session_id": session,
            "doc_id": self.doc_id[made.document],
            "position": (ragged.index_in_list(made.indptr) + 1).astype(np.int32),
            "click": made.click.astype(np.int8),
        }
        if made.dwell is not None:
            columns["dwell"] = made.dwell
        if len(self.rankers):
            columns["ranker"] = self.rankers[np.repeat(made.variant, lengths)]
        return {**columns, "timestamp": session}

    def documents(self) -> Columns:
        """One row per document: its ids and its features."""
        owner = ragged.list_of_row(self.judged.indptr)
        columns = {"query_id": self.query_id[owner], "doc_id": self.doc_id}
        for j, name in enumerate(self.judged.feature_names):
            columns[name] = self.judged.features[:, j]
        return columns


# The same as an export of User Behavior Insights, to try the way from one to a report.

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
