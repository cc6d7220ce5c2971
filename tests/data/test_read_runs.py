"""Sessions packed as their rows go by: the same log as DuckDB's grouping, whatever the order."""

from dataclasses import fields

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from untilt.data.read import columnar
from untilt.data.read.collapse import assemble, runs
from untilt.data.read.read_log import read_log
from untilt.errors import BadRowsError

# DuckDB 1.5 mixes the rows of a table in memory where it joins: a run is then not found, and DuckDB
# groups the rows.
MIXES = int(duckdb.__version__.split(".")[0]) < 2

DEPTH = 6


def sessions_table(rng, n_sessions=4000, *, least=0, two_queries=False):
    """Sessions of 1 to 6 rows, one after the other; few rankings, so that many are alike."""
    length = rng.integers(1, DEPTH + 1, size=n_sessions)
    session = np.repeat(np.arange(n_sessions), length)
    query = rng.integers(40, size=n_sessions)[session]
    place = np.arange(len(session)) - np.repeat(np.cumsum(length) - length, length)
    if two_queries:
        query = np.where(place % 2 == 1, query + 1, query)
    turn = rng.integers(3, size=n_sessions)[session]
    return pa.table(
        {
            "query_id": query,
            "session_id": session,
            "doc_id": least + query * 10 + (place + turn) % 10,
            "position": place + 1,
            "click": rng.integers(3, size=len(session)),
            "ranker": np.array(["a", "b"])[turn % 2],
            "device": rng.integers(2, size=n_sessions)[session],
            "count": rng.integers(1, 4, size=n_sessions)[session],
        }
    )


def by_duckdb(monkeypatch, table, **options):
    """The log as DuckDB groups it, whatever the order of rows."""
    with monkeypatch.context() as patch:
        patch.setattr(assemble, "pack_runs", lambda *_, **__: None)
        return read_log(table, **options)


def assert_same(one, other):
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, field.name
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        elif field.name == "context":
            assert ours.keys() == theirs.keys()
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.fixture
def packed(monkeypatch):
    """Whether each reading packed the runs."""
    outcomes = []

    def look(*arguments, **options):
        outcomes.append(runs.pack_runs(*arguments, **options))
        return outcomes[-1]

    monkeypatch.setattr(assemble, "pack_runs", look)
    return outcomes


OPTIONS = [
    {},
    {"columns": {"count": None, "ranker": None}},
    {"context": ["device"], "columns": {"ranker": None}},
    {"columns": {"count": None, "timestamp": "session_id"}, "collapse": "halves"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["all", "plain", "context", "halves"])
@pytest.mark.parametrize("piece", [3, 1 << 20])
def test_the_log_is_the_one_of_duckdb(tmp_path, rng, monkeypatch, packed, piece, options):
    """Also where a run is cut by pieces, and where lists do not fit and are merged in the end."""
    table = sessions_table(rng)
    pq.write_table(table, tmp_path / "log.parquet")
    monkeypatch.setattr(runs, "_PIECE", piece)
    monkeypatch.setattr(runs, "_MOST_LISTS", 1 << 10)
    log = read_log(tmp_path / "log.parquet", **options)
    assert packed[0] is not None
    assert log.n_lists > 1 << 10
    assert_same(log, by_duckdb(monkeypatch, table, **options))


@pytest.mark.parametrize("least", [-7, 2**40])
def test_ids_far_from_zero(rng, monkeypatch, packed, least):
    table = sessions_table(rng, 300, least=least)
    log = read_log(table)
    assert packed[0] is not None or MIXES
    assert_same(log, by_duckdb(monkeypatch, table))


def test_sessions_in_no_order(rng, monkeypatch, packed):
    """Then hashes tell that no session has two runs."""
    table = sessions_table(rng)
    order = rng.permutation(4000)[table["session_id"].to_numpy()]
    table = table.take(pa.array(np.argsort(order, kind="stable")))
    log = read_log(table)
    assert packed[0] is not None or MIXES
    assert_same(log, by_duckdb(monkeypatch, table))


@pytest.mark.parametrize("kind", ["one row apart", "no order", "two queries"])
def test_rows_of_a_session_that_stand_apart(rng, monkeypatch, packed, kind):
    """They are noticed, and DuckDB groups them."""
    table = sessions_table(rng, two_queries=kind == "two queries")
    order = np.arange(len(table))
    if kind == "one row apart":
        order = np.roll(order, -1)
    if kind == "no order":
        order = rng.permutation(order)
    moved = table.take(pa.array(order))
    log = read_log(moved)
    assert packed[0] is None
    assert_same(
        log, read_log(table.sort_by([("session_id", "ascending"), ("query_id", "ascending")]))
    )
    assert_same(log, by_duckdb(monkeypatch, moved))


STATED = {
    "too few rows": {"doc_id": (5, 0, 409)},
    "ids beyond": {"doc_id": (None, 3, 20)},
    "ids within": {"doc_id": (None, -(2**30), 2**30)},
    "deeper": {"position": (None, 1, 900)},
    "less deep": {"position": (None, 1, 3)},
    "labels beyond": {"click": (None, 0, 1)},
    "labels within": {"click": (None, 0, 9)},
}


@pytest.mark.parametrize("wrong", STATED.values(), ids=STATED)
def test_a_file_that_states_what_is_not_so(tmp_path, rng, monkeypatch, wrong):
    """What a Parquet file says of itself is believed only as far as the rows bear it out."""
    table = sessions_table(rng, 500)
    pq.write_table(table, tmp_path / "log.parquet")
    true = columnar._stated_by_parquet

    def lie(*arguments):
        found = true(*arguments)
        n = found["doc_id"][0]
        return found | {name: (each[0] or n, *each[1:]) for name, each in wrong.items()}

    monkeypatch.setattr(columnar, "_stated_by_parquet", lie)
    columns = {"count": None}
    log = read_log(tmp_path / "log.parquet", columns=columns)
    assert_same(log, by_duckdb(monkeypatch, table, columns=columns))


def test_a_clean_log_in_parquet_is_not_looked_over(tmp_path, rng, monkeypatch):
    pq.write_table(sessions_table(rng, 50).drop(["count"]), tmp_path / "log.parquet")
    monkeypatch.setattr(read_log_module(), "summarise", None)
    assert read_log(tmp_path / "log.parquet").n_sessions == 50


def read_log_module():
    import importlib

    return importlib.import_module("untilt.data.read.read_log")


BAD = {
    "a position twice": {"position": 1},
    "no position": {"position": None},
    "no click": {"click": None},
    "a click below zero": {"click": -1},
    "no session": {"session_id": None},
    "no document": {"doc_id": None},
    "another ranker": {"ranker": "c"},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_bad_rows_are_found(tmp_path, rng, change):
    rows = sessions_table(rng, 200).drop(["count"]).to_pylist()
    at = next(i for i, row in enumerate(rows) if row["position"] == 2)
    rows[at] |= change
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    with pytest.raises(BadRowsError):
        read_log(tmp_path / "log.parquet")
