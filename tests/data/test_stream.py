"""Rows of DuckDB through Arrow's C interface: the values that DuckDB hands out one by one."""

import duckdb
import numpy as np
import pytest

from untilt.data.read.stream import Stream, in_short_pieces

NUMBERS = [
    "TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER", "BIGINT", "UBIGINT",
    "FLOAT", "DOUBLE",
]  # fmt: skip


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        yield connection


def fetched(connection, sql):
    """All pieces, joined."""
    stream = Stream(connection.sql(sql))
    pieces = []
    while (piece := stream.next()) is not None:
        pieces.append(piece)
    stream.close()
    stream.close()  # twice is once
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in stream.names}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_what_duckdb_says(connection, kind):
    sql = f"SELECT CAST(range AS {kind}) AS a, CAST(nullif(range, 3) AS {kind}) AS b FROM range(20)"
    found, rows = fetched(connection, sql), connection.execute(sql).fetchall()
    assert found["a"].tolist() == [a for a, _ in rows]
    with_gaps = [np.nan if b is None else b for _, b in rows]
    assert np.array_equal(found["b"], with_gaps, equal_nan=True)
    assert found["a"].dtype == connection.execute(sql).fetchnumpy()["a"].dtype


def test_text_truth_and_times_are_what_duckdb_says(connection):
    sql = (
        "SELECT ['plain', 'Länge', '', NULL, '日本'][1 + range % 5] AS text, 'abc' AS plain, "
        "range % 2 = 0 AS even, CASE WHEN range % 3 > 0 THEN range % 2 = 0 END AS gaps, "
        "TIMESTAMP '2026-01-02 03:04:05.678901' + INTERVAL (range) HOUR AS us, "
        "CAST(TIMESTAMP '2026-01-02 03:04:05' AS TIMESTAMP_S) AS s, "
        "CASE WHEN range > 2 THEN DATE '2026-01-02' END AS day FROM range(17)"
    )
    found, rows = fetched(connection, sql), connection.execute(sql).fetchall()
    columns = dict(zip(found, map(list, zip(*rows, strict=True)), strict=True))
    for name in ("text", "plain", "even", "gaps"):
        assert found[name].tolist() == columns[name]
    assert found["us"].tolist() == columns["us"]
    assert found["s"].dtype == np.dtype("datetime64[s]")
    assert found["s"].tolist() == columns["s"]
    assert [None if np.isnat(day) else day.tolist() for day in found["day"]] == columns["day"]


def test_many_pieces_are_all_rows_in_their_order(connection):
    sql = "SELECT range AS a, 'id ' || range AS b FROM range(300000) ORDER BY range DESC"
    found = fetched(connection, sql)
    assert np.array_equal(found["a"], np.arange(300000)[::-1])
    assert found["b"][[0, 131072, -1]].tolist() == ["id 299999", "id 168927", "id 0"]


def test_a_stream_that_is_left_early_gives_the_connection_free(connection):
    stream = Stream(connection.sql("SELECT range AS a FROM range(1000000)"))
    assert len(stream.next()["a"]) > 0
    stream.close()
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_on_the_way_is_duckdb_s(connection):
    sql = (
        "SELECT CASE WHEN range < 400000 THEN 1 ELSE error('a bad row') END AS a FROM range(500000)"
    )
    with pytest.raises(duckdb.Error, match="a bad row"):
        fetched(connection, sql)


def test_other_types_are_refused(connection):
    with pytest.raises(TypeError, match="'a' has Arrow's type"):
        fetched(connection, "SELECT [1, 2] AS a")


def test_short_pieces():
    pieces = list(in_short_pieces({"a": np.arange(5), "b": np.arange(5) * 2}, 2))
    assert [piece["a"].tolist() for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert pieces[2]["b"].tolist() == [8]
    assert list(in_short_pieces({}, 2)) == []
