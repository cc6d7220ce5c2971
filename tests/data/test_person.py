"""Whose session it is: a column of the log, kept apart where equal sessions are merged."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt.errors import BadRowsError


def _rows(rng: np.random.Generator) -> list[dict[str, object]]:
    """500 sessions of 20 people on three queries of two documents."""
    rows = []
    for session in range(500):
        query, person = int(rng.integers(3)), f"u{rng.integers(20)}"
        for k, document in enumerate(rng.permutation(2).tolist()):
            click = int(rng.random() < 0.3)
            own = {"query_id": query, "session_id": session, "person": person}
            rows.append({**own, "doc_id": document, "position": k + 1, "click": click})
    return rows


@pytest.fixture
def table(rng) -> pa.Table:
    return pa.Table.from_pylist(_rows(rng))


def _counted(log: ut.ClickLog) -> dict[tuple[int, ...], int]:
    """(query, person, documents, clicks) -> sessions."""
    found: dict[tuple[int, ...], int] = {}
    for i in range(log.n_lists):
        rows = slice(log.indptr[i], log.indptr[i + 1])
        shown = (*log.document[rows].tolist(), *log.label[rows].astype(int).tolist())
        key = (int(log.query[i]), int(log.person[i]), *shown)
        found[key] = found.get(key, 0) + int(log.count[i])
    return found


def test_sessions_of_different_people_stay_apart(table):
    apart, merged = ut.read_log(table, collapse=False), ut.read_log(table)
    assert merged.n_lists < apart.n_lists == 500
    assert _counted(merged) == _counted(apart) == _counted(apart.collapse())
    ids = sorted(set(table["person"].to_pylist()))
    first = [ids.index(each) for each in table["person"].to_pylist()[::2]]
    assert apart.person.tolist() == first


def test_the_column_can_have_another_name_or_be_left_out(table):
    renamed = table.rename_columns(
        [name if name != "person" else "user" for name in table.column_names]
    )
    assert ut.read_log(renamed).person is None
    found = ut.read_log(renamed, columns={"person": "user"})
    assert np.array_equal(found.person, ut.read_log(table).person)
    without = ut.read_log(table, columns={"person": None})
    assert without.person is None
    assert without.n_lists == ut.read_log(renamed).n_lists < found.n_lists


def test_a_context_of_this_name_is_a_context(table, tmp_path):
    log = ut.read_log(table, context=["person"])
    assert log.person is None
    assert set(log.context["person"]) == set(table["person"].to_pylist())
    ut.write_log(log, tmp_path / "log.parquet")
    assert ut.read_log(tmp_path / "log.parquet", context=["person"]).n_lists == log.n_lists


def test_written_and_read_again(table, tmp_path):
    log = ut.read_log(table)
    ut.write_log(log, tmp_path / "log.parquet")
    again = ut.read_log(tmp_path / "log.parquet")
    for name in ("person", "count", "query", "document", "label"):
        assert np.array_equal(getattr(again, name), getattr(log, name))


def test_an_engine_counts_by_person(table):
    database = duckdb.connect()
    database.register("clicks", table)
    counted = database.sql(ut.collapse_sql("clicks", 5, columns={"person": "person"}))
    assert _counted(ut.read_log(counted)) == _counted(ut.read_log(table))


def test_a_missing_person_is_a_bad_row(rng):
    rows = _rows(rng)
    rows[5]["person"] = None
    with pytest.raises(BadRowsError, match="person is missing"):
        ut.read_log(pa.Table.from_pylist(rows))
    rows[5]["person"] = "u99"
    with pytest.raises(BadRowsError, match="rows differ in person"):
        ut.read_log(pa.Table.from_pylist(rows))


def test_parts_of_a_log_keep_their_people(table):
    log = ut.read_log(table)
    part = log.take(np.arange(5))
    assert np.array_equal(part.person, log.person[:5])
    left, right = log.split(0.5, by="session")
    both = _counted(left)
    for key, n in _counted(right).items():
        both[key] = both.get(key, 0) + n
    assert both == _counted(log)
