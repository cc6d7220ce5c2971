"""Whole numbers for documents and labels, small enough to be packed into words.

Queries count from 0, the documents of each query from 1, both in the order of their ids.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.progress import progress
from untilt.data.read.bad_rows import all_present
from untilt.data.read.columns import Field, Summary
from untilt.data.read.database import Database
from untilt.data.read.packing import fitting

_BATCH = 1 << 16


class NotCleanError(Exception):
    """The fast path met something that a clean log does not have. Never leaves the reader."""


@dataclass(frozen=True)
class Documents:
    """The documents by query. Document d (from 1) of query q has the index first[q] + d - 1."""

    query_id: AnyArray
    doc_id: AnyArray
    first: IntArray
    features: FeatureArray | None

    @property
    def per_query(self) -> IntArray:
        """Number of documents of each query."""
        return np.diff(self.first)

    @property
    def doc_query(self) -> IntArray:
        """(documents,) the number of each document's query."""
        return ragged.list_of_row(self.first)


def number_documents(database: Database, rows: str, fields: tuple[Field, ...]) -> Documents:
    """Number the pairs in `rows`; the table `documents` then maps ids to numbers q and d.

    The fields are query_id, doc_id and the features. Raises NotCleanError where one of them is
    missing or a pair has two sets of features.
    """
    with progress("collecting the documents"):
        columns = ", ".join(field.alias for field in fields)
        database.run(f"CREATE OR REPLACE TEMP TABLE pairs AS SELECT DISTINCT {columns} FROM {rows}")
        _check_pairs(database, fields)
        database.run(
            "CREATE OR REPLACE TEMP TABLE queries AS SELECT query_id, count(*) AS n, "
            "CAST(row_number() OVER (ORDER BY query_id) - 1 AS UINTEGER) AS q "
            "FROM pairs GROUP BY query_id"
        )
        database.run(
            "CREATE OR REPLACE TEMP TABLE documents AS SELECT query_id, doc_id, q, CAST("
            "row_number() OVER (PARTITION BY query_id ORDER BY doc_id) AS UINTEGER) AS d "
            "FROM pairs JOIN queries USING (query_id)"
        )
        return _fetch(database, fields)


def _check_pairs(database: Database, fields: tuple[Field, ...]) -> None:
    n_rows, n_good = database.row(
        f"SELECT count(*), count(*) FILTER ({all_present(fields)}) FROM pairs"
    )
    n_pairs = n_rows
    if len(fields) > 2:
        (n_pairs,) = database.row(
            "SELECT count(*) FROM (SELECT DISTINCT query_id, doc_id FROM pairs)"
        )
    if n_good < n_rows or n_pairs < n_rows:
        raise NotCleanError


def _fetch(database: Database, fields: tuple[Field, ...]) -> Documents:
    queries = database.arrays("SELECT query_id, n FROM queries ORDER BY q")
    first = ragged.indptr_of(np.asarray(queries["n"], dtype=np.int64))
    doc_id: AnyArray = np.empty(int(first[-1]), dtype=_id_type(database))
    names = [field.alias for field in fields[2:]]
    features = np.empty((len(doc_id), len(names)), dtype=np.float32) if names else None
    chosen = ", ".join(["q", "d", "doc_id", *names])
    source = "pairs JOIN documents USING (query_id, doc_id)" if names else "documents"
    for batch in database.batches(f"SELECT {chosen} FROM {source}", size=_BATCH):
        q, d, ids, *values = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        index = first[q] + d.astype(np.int64) - 1
        doc_id[index] = ids
        if features is not None:
            features[index] = np.column_stack(values)
    return Documents(np.asarray(queries["query_id"]), doc_id, first, features)


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
    looked up.
    """

    bits: int
    sql: str
    join: str
    query: str
    least: int | None = None


def document_code(summary: Summary, documents: Documents, *, label_bits: int) -> DocumentCode:
    """Ids as they are where they are small whole numbers, else numbers within the query."""
    if summary.id_bounds is not None:
        least, most = summary.id_bounds
        bits = (most - least + 1).bit_length()
        if _words(bits + label_bits, summary.depth) <= _MOST_VALUE_WORDS:
            sql = f"CAST(CAST(doc_id AS BIGINT) - ({least}) AS UBIGINT) + 1"
            return DocumentCode(bits, f"({sql})", "", "query_id", least)
    bits = int(documents.per_query.max(initial=1)).bit_length()
    join = "JOIN documents USING (query_id, doc_id)"
    return DocumentCode(bits, "CAST(d AS UBIGINT)", join, "q")


def _words(bits: int, depth: int) -> float:
    return fitting(bits, depth).n_words if bits <= 64 else math.inf


# Up to so many bits whole numbers are packed as they are. A dictionary costs a pass over the log
# and a join, but then labels need no more bits than they have distinct values.
_MOST_BITS = 16


@dataclass(frozen=True)
class LabelCode:
    """How the labels of a row become one number below 2**bits; `values[j, code]` is label j."""

    bits: int
    sql: str
    join: str
    values: FloatArray


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
    terms = [f"(CAST(label_{j} AS UBIGINT) << {shift})" for j, shift in enumerate(shifts)]
    codes = np.arange(1 << bits)
    values = [(codes >> s) & ((1 << width) - 1) for s, width in zip(shifts, widths, strict=True)]
    return LabelCode(bits, " | ".join(terms), "", np.array(values, dtype=np.float64))


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
    return LabelCode(bits, "label_code", f"JOIN label_values AS v ON {on}", values)
