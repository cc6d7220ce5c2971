"""Whole numbers for documents and labels, small enough to be packed into words.

Queries count from 0, the documents of each query from 1, both in the order of their ids. Where the
features of a document change from row to row, each set of them is a version with a number of its
own, after the other versions of the document.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.progress import progress
from untilt.data.read.bad_rows import all_present
from untilt.data.read.collapse.packing import Packing, fitting
from untilt.data.read.columns import KEYS, DocumentFields, LogSummary
from untilt.data.read.database import Database
from untilt.data.read.stream import Pieces

_BATCH = 1 << 16
# Features that are fetched at a time: DuckDB hands out up to a million rows, here 256 MB of them.
_COLUMNS = 64


class NotCleanError(Exception):
    """The fast path met something that a clean log does not have. Never leaves the reader."""


@dataclass(frozen=True)
class NumberedDocuments:
    """The documents by query. Document d (from 1) of query q has the index first[q] + d - 1.

    `key` names the columns of a row that tell which document it shows: query_id, doc_id and its
    version or the features that change. `item` (documents,) says which of them are versions of one
    (query, document); None where none has a second version.
    """

    query_id: AnyArray
    doc_id: AnyArray
    first: IntArray
    features: FeatureArray | None
    key: tuple[str, ...]
    item: IntArray | None

    @property
    def has_versions(self) -> bool:
        """Whether an id alone does not say which document it is."""
        return len(self.key) > len(KEYS)

    @property
    def per_query(self) -> IntArray:
        """Number of documents of each query."""
        return np.diff(self.first)

    @property
    def doc_query(self) -> IntArray:
        """(documents,) the number of each document's query."""
        return ragged.list_of_row(self.first)


def number_documents(
    database: Database, rows: str, fields: DocumentFields, *, may_change: bool
) -> NumberedDocuments:
    """Number the documents in `rows`; the table `documents` then maps their keys to q and d.

    Raises NotCleanError where a field is missing, or where a key has two sets of features although
    they may not change.
    """
    with progress("collecting the documents"):
        columns = ", ".join(field.alias for field in fields.fields)
        database.run(f"CREATE OR REPLACE TEMP TABLE pairs AS SELECT DISTINCT {columns} FROM {rows}")
        changing = _check_pairs(database, fields, may_change=may_change)
        key = (*(field.alias for field in fields.key), *changing)
        database.run(
            "CREATE OR REPLACE TEMP TABLE queries AS SELECT query_id, count(*) AS n, "
            "CAST(row_number() OVER (ORDER BY query_id) - 1 AS UINTEGER) AS q "
            "FROM pairs GROUP BY query_id"
        )
        database.run(
            f"CREATE OR REPLACE TEMP TABLE documents AS SELECT {', '.join(key)}, q, CAST("
            f"row_number() OVER (PARTITION BY query_id ORDER BY {', '.join(key[1:])}) AS UINTEGER) "
            f"AS d FROM pairs JOIN queries USING (query_id)"
        )
        return _fetch(database, fields, key)


def _check_pairs(
    database: Database, fields: DocumentFields, *, may_change: bool
) -> tuple[str, ...]:
    """The features that change within a (query, document)."""
    n_rows, n_good = database.row(
        f"SELECT count(*), count(*) FILTER ({all_present(fields.fields)}) FROM pairs"
    )
    n_features, n_pairs = len(fields.features), n_rows
    database.make_room(
        (20 + 4 * n_features) * n_rows,
        f"the documents table ({n_rows:,} documents with {n_features} features each)",
    )
    if fields.features:
        (n_pairs,) = database.row(
            f"SELECT count(*) FROM (SELECT DISTINCT {fields.key_sql} FROM pairs)"
        )
    if n_good < n_rows or (n_pairs < n_rows and not may_change):
        raise NotCleanError
    names = [field.alias for field in fields.features]
    return () if n_pairs == n_rows else _changing(database, names)


def _changing(database: Database, features: Sequence[str]) -> tuple[str, ...]:
    differ = ", ".join(f"min({name}) <> max({name}) AS {name}" for name in features)
    any_of = ", ".join(f"bool_or({name})" for name in features)
    found = database.row(
        f"SELECT {any_of} FROM (SELECT {differ} FROM pairs GROUP BY query_id, doc_id)"
    )
    return tuple(name for name, changes in zip(features, found, strict=True) if changes)


def _fetch(database: Database, fields: DocumentFields, key: tuple[str, ...]) -> NumberedDocuments:
    queries = database.arrays("SELECT query_id, n FROM queries ORDER BY q")
    first = ragged.indptr_of(np.asarray(queries["n"], dtype=np.int64))
    names = [field.alias for field in fields.features]
    by_version, item = len(key) > len(KEYS), None
    doc_id: AnyArray = np.empty(int(first[-1]), dtype=_id_type(database))
    features = np.empty((len(doc_id), len(names)), dtype=np.float32) if names else None
    if by_version:
        doc_id, item = _versions(database)
    else:
        for piece in database.pieces("SELECT q, d, doc_id FROM documents", size=_BATCH):
            doc_id[_index(piece, first)] = piece["doc_id"]
    source = f"pairs JOIN documents USING ({', '.join(key)})"
    for start in range(0, len(names), _COLUMNS):
        group = names[start : start + _COLUMNS]
        sql = f"SELECT q, d, {', '.join(group)} FROM {source}"
        for piece in database.pieces(sql, size=_BATCH):
            assert features is not None
            into = slice(start, start + len(group))
            features[_index(piece, first), into] = np.column_stack([piece[name] for name in group])
    if features is not None and by_version:
        features += 0.0  # -0.0 and 0.0 are one version: make it the same one in every run
    return NumberedDocuments(np.asarray(queries["query_id"]), doc_id, first, features, key, item)


def _index(piece: Pieces, first: IntArray) -> IntArray:
    """Where the documents of a piece stand: number `d` of query `q`."""
    return first[piece["q"]] + piece["d"].astype(np.int64) - 1


def _versions(database: Database) -> tuple[AnyArray, IntArray | None]:
    """(documents,) id and item of each; an id of text is one object for all its versions."""
    items = database.arrays(
        "SELECT doc_id, count(*) AS n FROM documents GROUP BY q, doc_id ORDER BY q, doc_id"
    )
    doc_id: AnyArray = np.asarray(items["doc_id"], dtype=_id_type(database))
    item = np.repeat(np.arange(len(doc_id), dtype=np.int32), items["n"])
    return doc_id[item], item if len(doc_id) < len(item) else None


def _id_type(database: Database) -> type:
    return object if database.columns("documents")["doc_id"] == "VARCHAR" else np.int64


# Ids packed as they are need more words than numbers within the query, but no join. Measured on
# 10 million impressions: the join costs as much time as some eight words. Words also cost memory.
_MOST_VALUE_WORDS = 6


@dataclass(frozen=True)
class DocumentCode:
    """A code from 1 to 2**bits - 1, as SQL over the log.

    Where `least` is None, it is the document's number within its query. Else it is the id, counted
    from the least one; `query` is then the query's id, and only the documents of distinct lists are
    looked up. `number` is the column that the code is made of.
    """

    bits: int
    sql: str
    join: str
    query: str
    number: str
    least: int | None = None
    most: int | None = None


def id_code(summary: LogSummary, *, label_bits: int) -> DocumentCode | None:
    """Ids as they are where they are small whole numbers. They do not tell versions."""
    if summary.id_bounds is None:
        return None
    least, most = summary.id_bounds
    bits = (most - least + 1).bit_length()
    if _words(bits + label_bits, summary.depth) > _MOST_VALUE_WORDS:
        return None
    sql = f"CAST(CAST(doc_id AS BIGINT) - ({least}) AS UBIGINT) + 1"
    return DocumentCode(bits, f"({sql})", "", "query_id", "doc_id", least, most)


def shown_sql(database: Database, view: str, packing: Packing, code: DocumentCode) -> str:
    """The ids of queries and documents in the table `lists`, of the types that they have in `view`.

    Lists that were packed by ids hold all pairs of the log, in far fewer rows.
    """
    slots = [
        f"({word} >> {number * packing.bits + packing.bits - code.bits}) & {(1 << code.bits) - 1}"
        for word in packing.words
        for number in range(packing.per_word)
    ]
    types = database.columns(view)
    doc_id = f"CAST(code AS BIGINT) - 1 + ({code.least})"
    return (
        f"(SELECT CAST(query AS {types['query_id']}) AS query_id, "
        f"CAST({doc_id} AS {types['doc_id']}) AS doc_id "
        f"FROM (SELECT query, unnest([{', '.join(slots)}]) AS code FROM lists) WHERE code > 0)"
    )


def number_code(documents: NumberedDocuments) -> DocumentCode:
    """Numbers within the query."""
    bits = int(documents.per_query.max(initial=1)).bit_length()
    join = f"JOIN documents USING ({', '.join(documents.key)})"
    return DocumentCode(bits, "CAST(d AS UBIGINT)", join, "q", "d")


def _words(bits: int, depth: int) -> float:
    return fitting(bits, depth).n_words if bits <= 64 else math.inf


# Up to so many bits whole numbers are packed as they are. A dictionary costs a pass over the log
# and a join, but then labels need no more bits than they have distinct values.
_MOST_BITS = 16


@dataclass(frozen=True)
class LabelCode:
    """How the labels of a row become one number below 2**bits; `values[j, code]` is label j.

    The whole numbers `columns` have `widths` bits each, side by side, the first one lowest.
    """

    columns: tuple[str, ...]
    widths: tuple[int, ...]
    join: str
    values: FloatArray

    @property
    def bits(self) -> int:
        """Bits of all of them."""
        return sum(self.widths)

    @property
    def sql(self) -> str:
        """The number."""
        shifts = np.cumsum([0, *self.widths[:-1]])
        terms = zip(self.columns, shifts, strict=True)
        return " | ".join(f"(CAST({name} AS UBIGINT) << {shift})" for name, shift in terms)


def label_code(database: Database, view: str, largest: Sequence[int | None]) -> LabelCode:
    """The code for labels whose largest values are known; None for labels with fractions."""
    if all(value is not None for value in largest):
        widths = [max(1, int(value or 0).bit_length()) for value in largest]
        if sum(widths) <= _MOST_BITS:
            return _side_by_side(widths)
    return _by_dictionary(database, view, len(largest))


def _side_by_side(widths: Sequence[int]) -> LabelCode:
    """Every label has bits of its own."""
    shifts, bits = np.cumsum([0, *widths[:-1]]), sum(widths)
    codes = np.arange(1 << bits)
    values = [(codes >> s) & ((1 << width) - 1) for s, width in zip(shifts, widths, strict=True)]
    names = tuple(f"label_{j}" for j in range(len(widths)))
    return LabelCode(names, tuple(widths), "", np.array(values, dtype=np.float64))


def _by_dictionary(database: Database, view: str, n_labels: int) -> LabelCode:
    """Every distinct combination of labels has a number."""
    names = [f"label_{j}" for j in range(n_labels)]
    doubles = ", ".join(f"CAST({name} AS DOUBLE) AS {name}" for name in names)
    database.run(
        f"CREATE OR REPLACE TEMP TABLE label_values AS SELECT *, "
        f"CAST(row_number() OVER (ORDER BY {', '.join(names)}) - 1 AS UBIGINT) AS label_code "
        f"FROM (SELECT DISTINCT {doubles} FROM {view})"
    )
    columns = database.arrays("SELECT * FROM label_values ORDER BY label_code")
    values = np.array([columns[name] for name in names], dtype=np.float64)
    on = " AND ".join(f"CAST(i.{name} AS DOUBLE) = v.{name}" for name in names)
    bits = max(1, (values.shape[1] - 1).bit_length())
    return LabelCode(("label_code",), (bits,), f"JOIN label_values AS v ON {on}", values)
