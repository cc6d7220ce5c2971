"""Candidates that nobody was shown stay, with their features, on every way through a log."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from untilt import DroppedRowsWarning, read_log, write_log
from untilt.data.transform import restrict_queries, without_features

LOG = {
    "query_id": [1, 1, 1, 2, 2, 2],
    "session_id": [1, 1, 2, 3, 3, 4],
    "doc_id": [5, 6, 6, 9, 8, 8],
    "position": [1, 2, 1, 1, 2, 1],
    "click": [1, 0, 1, 0, 0, 1],
    "timestamp": [1, 1, 2, 3, 3, 4],
}
DOCUMENTS = {
    "query_id": [2, 2, 2, 1, 1, 1, 3],
    "doc_id": [9, 8, 4, 7, 6, 5, 2],
    "f": [9.0, 8.0, 4.0, 7.0, 6.0, 5.0, 2.0],
    "g": [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
}
NEVER = {(1, 7): 7.0, (2, 4): 4.0, (3, 2): 2.0}


def never_shown(log):
    """(query, document) -> its first feature."""
    rest = np.setdiff1d(np.arange(log.n_documents), log.document)
    return {
        (int(log.query_id[log.doc_query[d]]), int(log.doc_id[d])): float(log.features[d, 0])
        for d in rest
    }


def sources(tmp_path):
    """The two tables as every kind of source."""
    import duckdb

    log, documents = pa.table(LOG), pa.table(DOCUMENTS)
    pq.write_table(log, tmp_path / "log.parquet")
    pq.write_table(documents, tmp_path / "documents.parquet")
    pyarrow.csv.write_csv(log, tmp_path / "log.csv")
    pyarrow.csv.write_csv(documents, tmp_path / "documents.csv")
    with duckdb.connect(str(tmp_path / "all.duckdb")) as database:
        database.register("arrow_log", log)
        database.register("arrow_documents", documents)
        database.execute("create table log as select * from arrow_log")
        database.execute("create table documents as select * from arrow_documents")
    path = str(tmp_path / "all.duckdb")
    yield log, documents
    yield log.to_pandas(), documents.to_pandas()
    yield tmp_path / "log.parquet", tmp_path / "documents.parquet"
    yield tmp_path / "log.csv", tmp_path / "documents.csv"
    yield (path, "log"), (path, "documents")


def test_every_kind_of_source_keeps_them(tmp_path):
    for source, documents in sources(tmp_path):
        log = read_log(source, documents=documents)
        assert never_shown(log) == NEVER, source


@pytest.fixture
def log():
    return read_log(pa.table(LOG), documents=pa.table(DOCUMENTS), collapse=False)


@pytest.mark.parametrize("collapse", [False, True, "halves"])
def test_reading_keeps_them_however_sessions_are_merged(collapse):
    found = read_log(pa.table(LOG), documents=pa.table(DOCUMENTS), collapse=collapse)
    assert never_shown(found) == NEVER


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_a_written_log_has_them(tmp_path, log, ending):
    path, documents = tmp_path / f"log.{ending}", tmp_path / f"documents.{ending}"
    write_log(log, path, documents=documents)
    assert never_shown(read_log(path, documents=documents)) == NEVER


def test_a_bad_row_makes_its_document_unshown_not_unknown():
    rows = {**LOG, "position": [1, 2, 1, 0, 2, 1]}
    with pytest.warns(DroppedRowsWarning):
        found = read_log(
            pa.table(rows), documents=pa.table(DOCUMENTS), on_bad="drop", positions_from=1
        )
    assert never_shown(found).keys() >= NEVER.keys()
    assert (2, 9) in {
        (int(found.query_id[q]), int(d)) for q, d in zip(found.doc_query, found.doc_id, strict=True)
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.collapse(),
        lambda log: log.collapse(halves=True),
        lambda log: log.with_label(1 - log.label),
        lambda log: without_features(log, ["g"]),
        lambda log: log.take(np.arange(log.n_lists)),
    ],
)  # fmt: skip
def test_changes_of_the_sessions_keep_them(log, change):
    assert never_shown(change(log)) == NEVER


def test_a_cut_adds_to_them(log):
    assert never_shown(log.top(1)) == NEVER  # each of the others is first in some session
    first = log.take([0, 2])  # documents 5, 6 and 9, 8
    assert set(never_shown(first.top(1))) == NEVER.keys() | {(1, 6), (2, 8)}


def test_parts_have_those_of_their_queries(log):
    part = restrict_queries(log, np.array([1]))
    assert never_shown(part) == {(2, 4): 4.0}
    for by in ("session", "time"):
        for half in log.split(0.5, by=by):
            assert never_shown(half).keys() >= NEVER.keys()
    both = [never_shown(half) for half in log.split(0.5, by="query")]
    assert both[0].keys() | both[1].keys() == NEVER.keys()


def test_a_sample_of_queries_has_them(log):
    found = read_log(pa.table(LOG), documents=pa.table(DOCUMENTS), sample_queries=0.999)
    assert never_shown(found) == NEVER
