"""Documents get numbers: queries from 0, the documents of each query from 1, both in id order."""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.progress import progress
from untilt.logs.duck.bench import Bench
from untilt.logs.duck.examples import all_present
from untilt.logs.duck.impressions import Field

_BATCH = 1 << 16


class SuspectError(Exception):
    """The fast path met something that a clean log does not have. Never leaves the reader."""


@dataclass(frozen=True)
class Documents:
    """The documents by query. Document d (from 1) of query q has the index first[q] + d - 1."""

    query_id: AnyArray
    doc_id: AnyArray
    first: IntArray
    features: FloatArray | None

    @property
    def per_query(self) -> IntArray:
        """Number of documents of each query."""
        return np.diff(self.first)

    @property
    def doc_query(self) -> IntArray:
        """(documents,) the number of each document's query."""
        return ragged.list_of_row(self.first)


def number_documents(bench: Bench, rows: str, fields: tuple[Field, ...]) -> Documents:
    """Number the pairs in `rows`; the table `documents` then maps ids to numbers q and d.

    The fields are query_id, doc_id and the features. Raises SuspectError where one of them is
    missing or a pair has two sets of features.
    """
    with progress("collecting the documents"):
        columns = ", ".join(field.alias for field in fields)
        bench.run(f"CREATE OR REPLACE TEMP TABLE pairs AS SELECT DISTINCT {columns} FROM {rows}")
        _check_pairs(bench, fields)
        bench.run(
            "CREATE OR REPLACE TEMP TABLE queries AS SELECT query_id, count(*) AS n, "
            "CAST(row_number() OVER (ORDER BY query_id) - 1 AS UINTEGER) AS q "
            "FROM pairs GROUP BY query_id"
        )
        bench.run(
            "CREATE OR REPLACE TEMP TABLE documents AS SELECT query_id, doc_id, q, CAST("
            "row_number() OVER (PARTITION BY query_id ORDER BY doc_id) AS UINTEGER) AS d "
            "FROM pairs JOIN queries USING (query_id)"
        )
        return _fetch(bench, fields)


def _check_pairs(bench: Bench, fields: tuple[Field, ...]) -> None:
    n_rows, n_good = bench.row(
        f"SELECT count(*), count(*) FILTER ({all_present(fields)}) FROM pairs"
    )
    n_pairs = n_rows
    if len(fields) > 2:
        (n_pairs,) = bench.row("SELECT count(*) FROM (SELECT DISTINCT query_id, doc_id FROM pairs)")
    if n_good < n_rows or n_pairs < n_rows:
        raise SuspectError


def _fetch(bench: Bench, fields: tuple[Field, ...]) -> Documents:
    queries = bench.arrays("SELECT query_id, n FROM queries ORDER BY q")
    first = ragged.indptr_of(np.asarray(queries["n"], dtype=np.int64))
    doc_id: AnyArray = np.empty(int(first[-1]), dtype=_id_type(bench))
    names = [field.alias for field in fields[2:]]
    features = np.empty((len(doc_id), len(names)), dtype=np.float32) if names else None
    chosen = ", ".join(["q", "d", "doc_id", *names])
    source = "pairs JOIN documents USING (query_id, doc_id)" if names else "documents"
    for batch in bench.batches(f"SELECT {chosen} FROM {source}", size=_BATCH):
        q, d, ids, *values = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        index = first[q] + d.astype(np.int64) - 1
        doc_id[index] = ids
        if features is not None:
            features[index] = np.column_stack(values)
    return Documents(np.asarray(queries["query_id"]), doc_id, first, features)


def _id_type(bench: Bench) -> type:
    return object if bench.columns("documents")["doc_id"] == "VARCHAR" else np.int64
