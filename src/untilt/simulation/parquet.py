"""Simulated logs that are larger than memory: written to Parquet, chunk by chunk."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import AnyArray, IntArray
from untilt._core.files import replacing_all
from untilt._core.progress import progress
from untilt._core.random import Seed
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.simulation.prepare import MeanExamination, Setting, Truth, prepare
from untilt.simulation.protocols import Protocol
from untilt.simulation.sampler import Sessions, draw_sessions
from untilt.simulation.simulate import DEFAULT, Size, threads

if TYPE_CHECKING:
    import pyarrow as pa


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
    """Write the log of `simulate` as one row per impression, in the memory of one chunk.

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
    from pyarrow import parquet

    columns = _Columns(setting)
    examination = MeanExamination(setting.behaviour)
    n_impressions = n_clicks = 0
    log, documents = folder / "clicks.parquet", folder / "documents.parquet"
    with replacing_all(folder, [log.name, documents.name]) as place:
        # Files, not paths: Arrow takes no path that is not UTF-8.
        with (place / documents.name).open("wb") as file:
            parquet.write_table(columns.documents(), file)
        with (
            (place / log.name).open("wb") as file,
            parquet.ParquetWriter(file, columns.schema()) as writer,
        ):
            for made in _chunks(setting, total, chunk_sessions):
                writer.write_table(columns.impressions(made))
                examination.add(made.indptr, made.document)
                n_impressions += len(made.document)
                n_clicks += int(made.click.sum())
    truth = setting.truth(examination)
    return SimulatedFiles(log, documents, total, n_impressions, n_clicks, truth)


def _chunks(setting: Setting, total: int, chunk_sessions: int) -> Iterator[Sessions]:
    with progress("simulating", total=total) as advance:
        for begin in range(0, total, chunk_sessions):
            number = np.arange(begin, min(begin + chunk_sessions, total))
            yield draw_sessions(setting.plan, number)
            advance(len(number))


class _Columns:
    """Sessions and documents as Arrow tables."""

    def __init__(self, setting: Setting) -> None:
        import pyarrow as pa

        assert setting.judged.doc_id is not None
        self.judged = setting.judged
        self.query_id, self.doc_id = pa.array(self.judged.query_id), pa.array(self.judged.doc_id)
        self.ranker_names = setting.ranker_names
        self.plan = setting.plan

    def schema(self) -> "pa.Schema":
        """Names and types of the impressions."""
        return self.impressions(draw_sessions(self.plan, np.empty(0, dtype=np.int64))).schema

    def impressions(self, made: Sessions) -> "pa.Table":
        """One row per document of each session."""
        import pyarrow as pa

        lengths = ragged.lengths(made.indptr)
        session = np.repeat(made.number, lengths)
        columns = {
            "query_id": self.query_id.take(_indices(np.repeat(made.query, lengths))),
            "session_id": pa.array(session),
            "doc_id": self.doc_id.take(_indices(made.document)),
            "position": pa.array((ragged.index_in_list(made.indptr) + 1).astype(np.int32)),
            "click": pa.array(made.click.astype(np.int8)),
        }
        if made.dwell is not None:
            columns["dwell"] = pa.array(made.dwell)
        if self.ranker_names:
            columns["ranker"] = _named(np.repeat(made.variant, lengths), self.ranker_names)
        return pa.table({**columns, "timestamp": pa.array(session)})

    def documents(self) -> "pa.Table":
        """One row per document: its ids and its features."""
        import pyarrow as pa

        owner = _indices(ragged.list_of_row(self.judged.indptr))
        columns = {"query_id": self.query_id.take(owner), "doc_id": self.doc_id}
        for j, name in enumerate(self.judged.feature_names):
            columns[name] = pa.array(np.ascontiguousarray(self.judged.features[:, j]))
        return pa.table(columns)


def _indices(index: IntArray) -> "pa.Array":
    import pyarrow as pa

    return pa.array(np.ascontiguousarray(index, dtype=np.int64))


def _named(variant: AnyArray, names: tuple[str, ...]) -> "pa.DictionaryArray":
    import pyarrow as pa

    codes = pa.array(np.ascontiguousarray(variant, dtype=np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(names))
