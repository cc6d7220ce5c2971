"""From typed views to a `ClickLog`: number the documents, pack the lists, unpack the distinct ones.

This is the fast path. It trusts nothing: whatever a clean log does not have raises `SuspectError`,
and the reader then looks for the bad rows at leisure.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import AnyArray, identifiers
from untilt._core.progress import progress
from untilt.logs.clicklog import ClickLog
from untilt.logs.duck.bench import Bench
from untilt.logs.duck.coding import DocumentCode, document_code
from untilt.logs.duck.documents import Documents, SuspectError, number_documents
from untilt.logs.duck.impressions import Field, Impressions, Summary, summarise
from untilt.logs.duck.labels import LabelCode, label_code
from untilt.logs.duck.lists import Decoder, Lists, fetch_lists
from untilt.logs.duck.packing import Carried, Packed, pack
from untilt.logs.duck.unpacking import unpacker


@dataclass(frozen=True)
class Wanted:
    """What is to become of a log: its fields, those of its documents, and whether to collapse."""

    log: Impressions
    document_fields: tuple[Field, ...]
    label_names: tuple[str, ...]
    collapse: bool


def assemble(
    bench: Bench, wanted: Wanted, view: str, documents: str | None
) -> tuple[ClickLog, Summary]:
    """The log behind `view`. Raises SuspectError where it, or its documents, are not clean."""
    with progress("looking over the log"):
        summary = summarise(bench, view, wanted.log)
    if not summary.is_clean:
        raise SuspectError
    numbered = number_documents(bench, documents or view, wanted.document_fields)
    labels = label_code(bench, view, summary.largest_labels)
    code = document_code(summary, numbered, label_bits=labels.bits)
    rankers = _number_rankers(bench, view) if wanted.log.has("ranker") else ()
    packed = _pack(bench, wanted, view, code, labels, summary.depth)
    _check_lists(bench, wanted, summary.n_rows)
    with progress("unpacking the lists"):
        lists = fetch_lists(
            bench,
            Decoder(unpacker(bench, packed), numbered, code, labels),
            n_labels=len(wanted.label_names),
            ranker=wanted.log.has("ranker"),
            time=wanted.log.has("timestamp"),
            collapsed=wanted.collapse,
        )
    return _click_log(wanted, numbered, lists, rankers), summary


def _number_rankers(bench: Bench, view: str) -> tuple[str, ...]:
    """The rankers' names, 2 before 10; the table `rankers` maps them to numbers."""
    bench.run(
        "CREATE OR REPLACE TEMP TABLE rankers AS SELECT ranker, CAST(row_number() OVER "
        "(ORDER BY TRY_CAST(ranker AS BIGINT), ranker) - 1 AS INTEGER) AS r "
        f"FROM (SELECT DISTINCT ranker FROM {view})"
    )
    return tuple(name for (name,) in bench.rows("SELECT ranker FROM rankers ORDER BY r"))


def _pack(
    bench: Bench, wanted: Wanted, view: str, code: DocumentCode, labels: LabelCode, depth: int
) -> Packed:
    columns = ["session_id", f"{code.query} AS query", "position - 1 AS place"]
    columns.append(f"({code.sql} << {labels.bits}) | {labels.sql} AS code")
    joins, carried = f"{code.join} {labels.join}", []
    if wanted.log.has("ranker"):
        columns.append("r")
        carried += [Carried("r_low", "min", "r"), Carried("r_high", "max", "r")]
        joins += " JOIN rankers USING (ranker)"
    if wanted.log.has("count"):
        columns.append("count AS c")
        carried += [Carried("c_low", "min", "c"), Carried("c_high", "max", "c")]
    if wanted.log.has("timestamp"):
        columns.append("timestamp AS t")
        carried.append(Carried("t", "min", "t"))
    rows = f"(SELECT {', '.join(columns)} FROM {view} AS i {joins})"
    bits = code.bits + labels.bits
    return pack(bench, rows, bits=bits, depth=depth, carried=carried, collapse=wanted.collapse)


def _check_lists(bench: Bench, wanted: Wanted, n_rows: int) -> None:
    """No row may have lost its document, and the rows of a session must agree on what they share.

    What is left, a position that stands twice, is noticed when the lists are unpacked.
    """
    unequal = "count(*) FILTER (r_low <> r_high)" if wanted.log.has("ranker") else "0"
    packed, spread, rankers = bench.row(
        f"SELECT coalesce(sum(n * copies), 0), coalesce(max(spread), 0), {unequal} FROM lists"
    )
    if packed != n_rows or spread > 0 or rankers > 0:
        raise SuspectError


def _click_log(
    wanted: Wanted, documents: Documents, lists: Lists, rankers: tuple[str, ...]
) -> ClickLog:
    """The log. Its rules hold by construction, so the arrays are handed over as they are."""
    query_id, doc_id = identifiers(documents.query_id), identifiers(documents.doc_id)
    nothing = np.empty(0, dtype=np.int64)
    empty = ClickLog(
        query_id=query_id[:0],
        doc_id=doc_id[:0],
        doc_query=nothing,
        indptr=np.zeros(1, dtype=np.int64),
        query=nothing,
        document=nothing,
        position=nothing,
        label=nothing,
        label_name=wanted.label_names[0],
    )
    return empty._with(
        query_id=query_id,
        doc_id=doc_id,
        doc_query=documents.doc_query.astype(np.int32),
        features=documents.features,
        feature_names=tuple(field.column.name for field in wanted.document_fields[2:]),
        indptr=lists.indptr,
        query=lists.query,
        count=lists.count,
        ranker=lists.ranker if wanted.log.has("ranker") else None,
        ranker_names=rankers,
        time=_times(lists) if wanted.log.has("timestamp") else None,
        document=lists.document,
        position=lists.position,
        label=lists.labels[0],
        extra_labels=dict(zip(wanted.label_names[1:], lists.labels[1:], strict=True)),
    )


def _times(lists: Lists) -> AnyArray:
    return np.concatenate(lists.time) if lists.time else np.empty(0, dtype=np.int64)
