"""From typed views to a `ClickLog`: number the documents, pack the lists, unpack the distinct ones.

This is the fast path. It trusts nothing: whatever a clean log does not have raises `NotCleanError`,
and the reader then takes the slow path, which names the bad rows.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, Missing, identifiers
from untilt._core.progress import progress
from untilt.data.clicklog import ClickLog
from untilt.data.read.collapse import numbering
from untilt.data.read.collapse.numbering import NotCleanError
from untilt.data.read.collapse.packing import (
    MOST_WORDS,
    Packed,
    SessionColumn,
    Unpacker,
    count_filled,
    fill_rows,
    fitting,
    pack,
    unpacker,
)
from untilt.data.read.collapse.runs import RowCode, Seen, pack_runs
from untilt.data.read.columns import PERSON, DocumentFields, Impressions, LogSummary
from untilt.data.read.database import Database
from untilt.data.read.options import Collapse
from untilt.data.read.stream import Pieces

__all__ = ["NotCleanError", "Wanted", "assemble"]

# Rows that are unpacked at a time: some hundred MB, also where lists are very long.
_BATCH_ROWS = 1 << 21
_TURNOVER_ROWS = 1 << 17  # rows of the documents whose positions are followed in time

# What an audit takes for each row beside the log: a log that is refused should not be refused again
# by the next step.
_BYTES_OF_WORK = 96


@dataclass(frozen=True)
class DistinctLists:
    """The lists and rows of a `ClickLog`; `labels` has one row per label."""

    indptr: IntArray
    query: IntArray
    count: IntArray
    ranker: IntArray
    context: IntArray
    time: list[AnyArray]
    document: IntArray
    position: IntArray
    labels: FloatArray


@dataclass(frozen=True)
class ListDecoder:
    """All that is needed to turn words into documents, positions and labels."""

    unpack: Unpacker
    documents: numbering.NumberedDocuments
    code: numbering.DocumentCode
    labels: numbering.LabelCode

    def rows(
        self, words: AnyArray, query: IntArray, n: IntArray, first_row: int, to: DistinctLists
    ) -> None:
        """Write the rows of lists with these words, queries and numbers of rows from `first_row`.

        Raises NotCleanError where a list has fewer slots than rows (two rows stand at one position)
        or shows a document that its query does not have.
        """
        segments = self.unpack.segments(words)
        packing, size = self.unpack.packing, n
        if self.unpack.parts:
            size = count_filled(segments.words, packing)
            if not np.array_equal(np.bincount(segments.owner, size, len(words)), n):
                raise NotCleanError
        misfits = fill_rows(
            len(segments.words),
            segments.words,
            packing.bits,
            packing.per_word,
            self.labels.bits,
            self.labels.values,
            segments.start,
            first_row + ragged.indptr_of(size),
            query[segments.owner],
            self.documents.first,
            *self._lookup(),
            to.document,
            to.position,
            to.labels,
        )
        if any(misfits):
            raise NotCleanError

    def _lookup(self) -> tuple[IntArray, int]:
        """The ids to look codes up in, and the id of code 1; no ids where codes are numbers."""
        if self.code.least is None:
            return np.empty(0, dtype=np.int64), 0
        return self.documents.doc_id, self.code.least


@dataclass(frozen=True)
class Wanted:
    """What is to become of a log: its fields, those of its documents, and whether to collapse."""

    log: Impressions
    documents: DocumentFields
    label_names: tuple[str, ...]
    context: tuple[str, ...]
    collapse: Collapse
    missing: Missing = None

    @property
    def keeps_time(self) -> bool:
        """Whether lists keep their time, or the half of it."""
        return self.log.has("timestamp") and self.collapse is not True


def fetch_lists(database: Database, decoder: ListDecoder, wanted: Wanted) -> DistinctLists:
    """The lists in an order that depends on their content alone."""
    words, n_labels = decoder.unpack.outer.words, len(wanted.label_names)
    known = [
        *(["r_low"] if wanted.log.has("ranker") else []),
        *(["x_low"] if wanted.context else []),
    ]
    columns, order = ["q", "n", "sessions", *words, *known], ["q", *known, *words]
    if not wanted.collapse:
        order = ["session_id", "q"]
    if wanted.keeps_time:
        # Halves last: merged lists then stand in the order that they have without a time.
        columns, order = [*columns, "t"], [*order, "t"] if wanted.collapse else ["t", *order]
    n_lists, n_rows = map(int, database.row("SELECT count(*), coalesce(sum(n), 0) FROM lists"))
    database.make_room(
        32 * n_lists + (8 + 8 * n_labels) * n_rows,
        f"this log ({n_rows:,} rows in {n_lists:,} distinct lists)",
        work=_BYTES_OF_WORK * n_rows,
    )
    lists = _empty(n_lists, n_rows, n_labels)
    numbered = "SELECT lists.*, queries.q FROM lists JOIN queries ON query = query_id"
    if decoder.code.least is None:
        numbered = "SELECT *, query AS q FROM lists"
    sql = f"SELECT {', '.join(columns)} FROM ({numbered}) ORDER BY {', '.join(order)}"
    first_list = 0
    size = max(1, min(1 << 16, _BATCH_ROWS * n_lists // max(1, n_rows)))
    for piece in database.pieces(sql, size=size):
        _write(piece, first_list, lists, decoder)
        first_list += len(piece["n"])
    if first_list < n_lists:
        raise NotCleanError  # a query that the documents do not have
    return lists


def _empty(n_lists: int, n_rows: int, n_labels: int) -> DistinctLists:
    return DistinctLists(
        indptr=np.zeros(n_lists + 1, dtype=np.int64),
        query=np.empty(n_lists, dtype=np.int32),
        count=np.empty(n_lists, dtype=np.int64),
        ranker=np.zeros(n_lists, dtype=np.int32),
        context=np.zeros(n_lists, dtype=np.int64),
        time=[],
        document=np.empty(n_rows, dtype=np.int32),
        position=np.empty(n_rows, dtype=np.int32),
        labels=np.empty((n_labels, n_rows), dtype=np.float64),
    )


def _write(column: Pieces, first_list: int, lists: DistinctLists, decoder: ListDecoder) -> None:
    into = slice(first_list, first_list + len(column["n"]))
    first_row = int(lists.indptr[first_list])
    lists.indptr[into.start + 1 : into.stop + 1] = first_row + np.cumsum(column["n"])
    lists.query[into] = column["q"]
    lists.count[into] = column["sessions"]
    if "r_low" in column:
        lists.ranker[into] = column["r_low"]
    if "x_low" in column:
        lists.context[into] = column["x_low"]
    if "t" in column:
        lists.time.append(column["t"])
    words = np.column_stack([column[word] for word in decoder.unpack.outer.words])
    decoder.rows(words, lists.query[into], column["n"], first_row, lists)


def assemble(
    database: Database, wanted: Wanted, summary: LogSummary, view: str, documents: str | None
) -> tuple[ClickLog, tuple[str, ...]]:
    """The log behind `view`, which has this summary, and the names of features that change.

    Raises NotCleanError where it, or its documents, are not clean.
    """
    if not summary.is_clean:
        raise NotCleanError
    labels = numbering.label_code(database, view, summary.largest_labels)
    rankers = _number_rankers(database, view) if wanted.log.has("ranker") else ()
    contexts = _number_contexts(database, view, wanted)
    code, numbered = numbering.id_code(summary, label_bits=labels.bits), None
    if code is None or documents is not None or wanted.documents.features:
        numbered = numbering.number_documents(
            database, documents or view, wanted.documents, may_change=bool(wanted.log.features)
        )
        if code is None or numbered.has_versions:
            code = numbering.number_code(numbered)
    packed = _pack(database, wanted, view, code, labels, summary)
    _check_lists(database, wanted, summary)
    if numbered is None:
        shown = numbering.shown_sql(database, view, packed.packing, code)
        numbered = numbering.number_documents(database, shown, wanted.documents, may_change=False)
    with progress("unpacking the lists"):
        lists = fetch_lists(
            database, ListDecoder(unpacker(database, packed), numbered, code, labels), wanted
        )
    log = _click_log(wanted, numbered, lists, rankers, contexts)
    if wanted.collapse and wanted.log.has("timestamp"):
        log = log._with(turnover=_turnover(database, view, summary.n_rows))
    changing = wanted.log.features if numbered.item is not None else ()
    return log, tuple(f.column.name for f in changing if f.alias in numbered.key)


def _number_rankers(database: Database, view: str) -> tuple[str, ...]:
    """The rankers' names, 2 before 10; the table `rankers` maps them to numbers."""
    database.run(
        "CREATE OR REPLACE TEMP TABLE rankers AS SELECT ranker, CAST(row_number() OVER "
        "(ORDER BY TRY_CAST(ranker AS BIGINT), ranker) - 1 AS INTEGER) AS r "
        f"FROM (SELECT DISTINCT ranker FROM {view})"
    )
    return tuple(name for (name,) in database.rows("SELECT ranker FROM rankers ORDER BY r"))


def _number_contexts(database: Database, view: str, wanted: Wanted) -> dict[str, AnyArray]:
    """The columns of the distinct contexts; the table `contexts` maps them to row numbers x."""
    names = ", ".join(field.alias for field in wanted.log.context)
    if not names:
        return {}
    database.run(
        f"CREATE OR REPLACE TEMP TABLE contexts AS SELECT *, row_number() OVER (ORDER BY {names}) "
        f"- 1 AS x FROM (SELECT DISTINCT {names} FROM {view})"
    )
    number = f"dense_rank() OVER (ORDER BY {PERSON}) - 1 AS {PERSON}"
    chosen = ", ".join(number if f.alias == PERSON else f.alias for f in wanted.log.context)
    columns = database.arrays(f"SELECT {chosen} FROM contexts ORDER BY x")
    return dict(zip(wanted.context, columns.values(), strict=True))


def _pack(
    database: Database,
    wanted: Wanted,
    view: str,
    code: numbering.DocumentCode,
    labels: numbering.LabelCode,
    summary: LogSummary,
) -> Packed:
    """Pack the rows as they go by, or else by groups; those only if the summary is sure."""
    columns = ["session_id", f"{code.query} AS query", "position - 1 AS slot"]
    joins, carried = f"{code.join} {labels.join}", []
    if wanted.log.has("ranker"):
        columns.append("r")
        carried += [SessionColumn("r_low", "min", "r"), SessionColumn("r_high", "max", "r")]
        joins += " JOIN rankers USING (ranker)"
    if wanted.context:
        columns.append("x")
        carried += [SessionColumn("x_low", "min", "x"), SessionColumn("x_high", "max", "x")]
        joins += f" JOIN contexts USING ({', '.join(field.alias for field in wanted.log.context)})"
    if wanted.log.has("count"):
        columns.append("count AS counted")
        carried.append(SessionColumn("c_low", "min", "counted"))
        carried.append(SessionColumn("c_high", "max", "counted"))
    if wanted.keeps_time:
        columns.append(f"{_half(database, view) if wanted.collapse else 'timestamp'} AS t")
        carried.append(SessionColumn("t", "min", "t"))
    depth, tables = summary.depth, f"FROM {view} AS i {joins}"
    packing = fitting(code.bits + labels.bits, depth)
    if wanted.collapse and packing.n_words <= MOST_WORDS:
        numbers = [f"{code.number} AS number"]
        numbers += [f"{name} AS label_{j}" for j, name in enumerate(labels.columns)]
        rows = f"(SELECT {', '.join([*columns, *numbers])} {tables})"
        least = 1 if code.least is None else code.least
        most = (1 << code.bits) - 1 if code.most is None else code.most
        row_code = RowCode(least, most, labels.widths)
        with progress("merging sessions that are alike"):
            seen = pack_runs(database, rows, packing, row_code, depth=depth, carried=carried)
        if seen is not None and (not summary.is_stated or _as_stated(seen, summary, code, labels)):
            return Packed(packing, ())
    if summary.is_stated:
        raise NotCleanError
    columns.append(f"({code.sql} << {labels.bits}) | {labels.sql} AS code")
    rows = f"(SELECT {', '.join(columns)} {tables})"
    bits, collapse = packing.bits, bool(wanted.collapse)
    return pack(database, rows, bits=bits, depth=depth, carried=carried, collapse=collapse)


def _as_stated(
    seen: Seen, summary: LogSummary, code: numbering.DocumentCode, labels: numbering.LabelCode
) -> bool:
    """Whether the rows pack as what was stated of them: the order of lists goes by that."""
    bits = code.bits if code.least is None else (seen.most - seen.least + 1).bit_length()
    return (bits, seen.depth, seen.widths) == (code.bits, summary.depth, labels.widths)


def _half(database: Database, view: str) -> str:
    """SQL that is 0 in the first half of the time, by rows, and 1 in the second."""
    database.run(
        "CREATE OR REPLACE TEMP TABLE middle AS SELECT "
        "CASE WHEN middle < most THEN middle END AS last_of_first, "
        "CASE WHEN middle = most AND least < most THEN most END AS first_of_second "
        "FROM (SELECT min(timestamp) AS least, max(timestamp) AS most, "
        f"quantile_disc(timestamp, 0.5) AS middle FROM {view})"
    )
    # A last time that is the middle too is the second half, however long it is.
    later = (
        "timestamp > (SELECT last_of_first FROM middle) OR "
        "timestamp >= (SELECT first_of_second FROM middle)"
    )
    return f"CAST(coalesce({later}, false) AS BIGINT)"


def _turnover(database: Database, view: str, n_rows: int) -> float | None:
    """`ClickLog.turnover`, of a sample of the documents where there are many rows.

    Sums of whole numbers, in millionths: those of fractions depend on the order of their parts.
    """
    every = 1 + n_rows // _TURNOVER_ROWS
    before = "lag(position) OVER (PARTITION BY query_id, doc_id ORDER BY timestamp, session_id)"
    (found,) = database.row(
        "SELECT sum(steps) * 5e5 / nullif(sum(squares), 0) FROM (SELECT sum((k - before) ** 2) AS "
        "steps, CAST(round(1e6 * (count(*) * sum(k * k) - sum(k) * sum(k)) / count(*)) AS HUGEINT) "
        "AS squares FROM (SELECT query_id, doc_id, "
        f"CAST(position AS BIGINT) AS k, {before} AS before FROM {view} "
        f"WHERE hash(query_id, doc_id) % {every} = 0) GROUP BY query_id, doc_id)"
    )
    return None if found is None else float(found)


def _check_lists(database: Database, wanted: Wanted, summary: LogSummary) -> None:
    """No row may have lost its document, and the rows of a session must agree on what they share.

    A list with more rows than positions has one of them twice: a small file can hold a billion such
    rows, and no memory is taken for them. Others are noticed when the lists are unpacked.
    """
    differ = ["r_low <> r_high"] if wanted.log.has("ranker") else []
    differ += ["x_low <> x_high"] if wanted.context else []
    packed, longest, spread, unequal = database.row(
        f"SELECT coalesce(sum(n * copies), 0), coalesce(max(n), 0), coalesce(max(spread), 0), "
        f"count(*) FILTER ({' OR '.join(differ) or 'false'}) FROM lists"
    )
    if packed != summary.n_rows or longest > summary.depth or spread > 0 or unequal > 0:
        raise NotCleanError


def _click_log(
    wanted: Wanted,
    documents: numbering.NumberedDocuments,
    lists: DistinctLists,
    rankers: tuple[str, ...],
    contexts: dict[str, AnyArray],
) -> ClickLog:
    """The log. Its rules hold by construction, so the arrays are handed over as they are."""
    query_id, doc_id = identifiers(documents.query_id), identifiers(documents.doc_id)
    nothing = np.empty(0, dtype=np.int64)
    person = contexts.pop(PERSON) if wanted.log.has(PERSON) else None
    empty = ClickLog(
        query_id=query_id[:0],
        doc_id=doc_id[:0],
        doc_query=nothing,
        indptr=np.zeros(1, dtype=np.int64),
        query=nothing,
        document=nothing,
        position=nothing,
        label=np.empty(0),
        label_name=wanted.label_names[0],
    )
    return empty._with(
        query_id=query_id,
        doc_id=doc_id,
        doc_query=documents.doc_query.astype(np.int32),
        features=documents.features,
        feature_names=tuple(field.column.name for field in wanted.documents.features),
        item=documents.item,
        indptr=lists.indptr,
        query=lists.query,
        count=lists.count,
        ranker=lists.ranker if wanted.log.has("ranker") else None,
        ranker_names=rankers,
        time=_times(lists) if wanted.keeps_time else None,
        person=None if person is None else person.astype(np.int32)[lists.context],
        document=lists.document,
        position=lists.position,
        label=lists.labels[0],
        extra_labels=dict(zip(wanted.label_names[1:], lists.labels[1:], strict=True)),
        context={name: column[lists.context] for name, column in contexts.items()},
        missing=wanted.missing,
    )


def _times(lists: DistinctLists) -> AnyArray:
    return np.concatenate(lists.time) if lists.time else np.empty(0, dtype=np.int64)
