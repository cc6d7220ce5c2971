"""The collapse by other engines gives the very log that `read_log` makes of all rows."""

import uuid
import warnings
from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.data import engines

from untilt.data.read.engines import collapse_sql, depth_for
from untilt.data.read.postgres import PostgresTable
from untilt.data.read.read_log import read_log, read_log_report
from untilt.errors import BadRowsError, FileFormatError, OptionError

COLUMNS = {"ranker": "ranker", "count": "n"}
OPTIONS: dict[str, Any] = {"labels": ["dwell"], "context": ["device"], "columns": COLUMNS}


def sessions(seed: int, n: int = 300) -> pd.DataFrame:
    """Sessions of few queries, most of them alike; no row is bad."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(n):
        query, ranker = int(rng.integers(3)), "new" if rng.random() < 0.5 else "old"
        device, count = int(rng.integers(2)), int(rng.integers(1, 3))
        for k, doc in enumerate(rng.permutation(3)[: rng.integers(1, 4)], 1):
            click = int(rng.random() < 0.3)
            rows.append(
                (query, f"s{session}", f"d{doc}", k, click, click * 0.5, ranker, device, count)
            )
    names = [
        "query_id",
        "session_id",
        "doc_id",
        "position",
        "click",
        "dwell",
        "ranker",
        "device",
        "n",
    ]
    return pd.DataFrame(rows, columns=names)


def spoiled(seed: int) -> pd.DataFrame:
    """The same with all that may be wrong with a row, and positions far down."""
    rng = np.random.default_rng(seed)
    frame = sessions(seed).astype(object)
    bad: dict[str, list[Any]] = {
        "query_id": [None], "session_id": [None], "doc_id": [None], "ranker": [None, "third"],
        "position": [None, 0, -1, 1, 2, 7, 40, 2000, 1.5], "click": [None, -1, float("inf")],
        "device": [None, 5], "n": [None, 0, 7, 1.5], "dwell": [None],
    }  # fmt: skip
    for column, values in bad.items():
        for value in values:
            for row in rng.choice(len(frame), size=3, replace=False):
                frame.loc[row, column] = value
    for column in ("query_id", "position", "click", "dwell", "device", "n"):
        frame[column] = pd.to_numeric(frame[column])
    return frame


def read(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_log(source, on_bad="drop", **{**OPTIONS, **options})


def assert_same(found, expected):
    for name in expected.__dataclass_fields__:
        theirs, ours = getattr(found, name), getattr(expected, name)
        if isinstance(ours, np.ndarray):
            assert theirs.dtype == ours.dtype, name
            np.testing.assert_array_equal(theirs, ours, err_msg=name)
        elif isinstance(ours, Mapping):
            assert theirs.keys() == ours.keys()
            for key in ours:
                np.testing.assert_array_equal(theirs[key], ours[key], err_msg=key)
        else:
            assert theirs == ours, name


# ---- DuckDB


@pytest.mark.parametrize("depth", [1, 2, 3, 12])
@pytest.mark.parametrize("made", [sessions, spoiled])
def test_any_depth_gives_the_same_log(made, depth):
    frame = made(depth)  # noqa: F841  DuckDB finds it by its name
    counted = duckdb.sql(collapse_sql("frame", depth, **OPTIONS)).to_arrow_table()
    assert_same(read(counted), read(made(depth)))


def test_equal_sessions_are_one():
    frame = sessions(0, n=2000)
    counted = duckdb.sql(collapse_sql("frame", 3, **OPTIONS)).df()
    log = read(frame)
    assert len(counted) == log.indptr[-1] < len(frame) / 2
    assert counted.drop_duplicates(["session_id", "query_id"])["n"].sum() == log.n_sessions
    # The smallest session stands for the others.
    first = frame.groupby("session_id").size().index.min()
    assert first in set(counted["session_id"])


def test_bad_rows_are_still_refused():
    twice = pa.table(
        {
            "query_id": [1, 1, 1, 1],
            "session_id": [1, 1, 2, 2],
            "doc_id": [1, 2, 1, 2],
            "position": [1, 1, 1, 1],
            "click": [0, 0, 0, 0],
        }
    )
    counted = duckdb.sql(collapse_sql("twice", 5)).to_arrow_table()
    assert counted.num_rows == 4
    with pytest.raises(BadRowsError, match="shows a position twice"):
        read_log(counted)
    lost = twice.set_column(1, "session_id", pa.array([1, None, 2, 3]))  # noqa: F841
    counted = duckdb.sql(collapse_sql("lost", 5)).to_arrow_table()
    with pytest.raises(BadRowsError, match="session_id is missing"):
        read_log(counted)


def test_positions_from_0_are_found_out_by_sessions_and_not_by_lists():
    """99 equal sessions that begin at 1 and become one list outweigh 10 that begin at 0."""
    rows = [(1, s, 1, 1, 0) for s in range(99)]
    rows += [(1, 100 + s, s, 0, 0) for s in range(10)]
    names = ["query_id", "session_id", "doc_id", "position", "click"]
    frame = pd.DataFrame(rows, columns=names)
    counted = duckdb.sql(collapse_sql("frame", 2)).df()
    _, report = read_log_report(counted, on_bad="drop")
    assert not report.counts_from_zero
    assert_same(read_log(frame.loc[:98]), read_log_report(counted, on_bad="drop")[0])
    shifted = frame.assign(position=frame["position"] - 1).loc[:98]  # noqa: F841
    counted = duckdb.sql(collapse_sql("shifted", 2)).df()
    assert len(counted) == 1
    assert_same(read_log(counted, positions_from=0), read_log(frame.loc[:98]))


def test_features_in_the_rows_are_part_of_the_list():
    frame = sessions(1)
    rng = np.random.default_rng(1)
    frame["price"] = rng.choice([1.5, 2.5, np.nan], size=len(frame))
    sql = collapse_sql("frame", 3, features=["price"], **OPTIONS)
    counted = duckdb.sql(sql).to_arrow_table()
    options: dict[str, Any] = {"features": ["price"], "missing": "keep"}
    assert_same(read(counted, **options), read(frame, **options))
    assert read(frame, **options).item is not None


def test_their_names_stay():
    frame = sessions(2).rename(columns={"query_id": "srch id", "click": 'the "click"'})
    mapping = {"query_id": "srch id", "click": 'the "click"', **COLUMNS}
    options: dict[str, Any] = {**OPTIONS, "columns": mapping}
    counted = duckdb.sql(collapse_sql("frame", 3, **options)).to_arrow_table()
    assert {"srch id", 'the "click"', "n"} < set(counted.column_names)
    assert_same(read_log(counted, **options), read_log(frame, **options))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"depth": 0}, "from 1 to"),
        ({"depth": True}, "from 1 to"),
        ({"depth": 1000, "dialect": "postgres"}, "from 1 to 749"),
        ({"dialect": "duckbd"}, "Did you mean 'duckdb'"),
        ({"labels": "dwell"}, "list of names"),
        ({"columns": {"sesion_id": "s"}}, "Did you mean 'session_id'"),
    ],
)
def test_options_that_make_no_sense(given, told):
    with pytest.raises(OptionError, match=told):
        collapse_sql(**{"table": "clicks", "depth": 5, **given})


def test_the_depth_that_most_rows_have():
    assert depth_for({1: 500, 2: 499, 30: 1}, most=749) == 2
    assert depth_for({1: 10, 2: 10, 30: 1}, most=749) == 30
    assert depth_for({1: 10, 2: 10, 30: 10}, most=5) == 5
    assert depth_for({}, most=5) == 1


def test_a_connection_to_something_else():
    with pytest.raises(OptionError, match="is no PostgreSQL connection"):
        read_log((duckdb.connect(), "clicks"))


# ---- engines of others


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """The logs as files, by name."""
    folder = tmp_path_factory.mktemp("logs")
    made = {"clean": sessions(5), "bad": spoiled(6)}
    for name, frame in made.items():
        pq.write_table(
            pa.Table.from_pandas(frame, preserve_index=False), folder / f"{name}.parquet"
        )
    return {name: folder / f"{name}.parquet" for name in made}


@pytest.mark.slow
def test_clickhouse(parquet):
    chdb = pytest.importorskip("chdb", reason="needs ClickHouse as a library: pip install chdb")
    for file in parquet.values():
        sql = collapse_sql(f"file('{file}', Parquet)", 3, "clickhouse", **OPTIONS)
        counted = chdb.query(sql, "ArrowTable")
        assert counted.num_rows < pq.read_table(file).num_rows
        assert_same(read(counted), read(file))


# Ibis 12 calls methods of DuckDB 2 under their old names.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_ibis_on_duckdb(parquet):
    ibis = pytest.importorskip("ibis", reason="needs the extra ibis")
    connection = ibis.duckdb.connect()
    for name, file in parquet.items():
        connection.raw_sql(f"CREATE TABLE {name} AS FROM read_parquet('{file}')")
        assert_same(read(connection.table(name)), read(file))
        assert_same(read(connection.table(name), collapse=False), read(file, collapse=False))
        _, report = read_log_report(connection.table(name), on_bad="drop", **OPTIONS)
        assert report.n_rows < pq.read_table(file).num_rows


@pytest.fixture(scope="module")
def server():
    with engines.postgres() as address:
        yield address


def filled(connection, parquet):
    """The logs as tables: labels that are truth values and NUMERIC, ids that are UUIDs."""
    kinds = {
        "query_id": "bigint", "session_id": "uuid", "doc_id": "text", "click": "double precision",
        "position": "double precision", "dwell": "numeric", "ranker": "text",
        "device": "double precision", "n": "double precision",
    }  # fmt: skip
    for name, file in parquet.items():
        rows = pq.read_table(file).to_pandas().astype(object)
        rows["session_id"] = [
            None if pd.isna(s) else str(uuid.uuid5(uuid.NAMESPACE_OID, s))
            for s in rows["session_id"]
        ]
        values = [[None if pd.isna(v) else v for v in row] for row in rows[list(kinds)].to_numpy()]
        with connection.cursor() as cursor:
            columns = ", ".join(f"{column} {kind}" for column, kind in kinds.items())
            cursor.execute(f"CREATE TABLE {name} ({columns}, seen boolean)")
            marks = ", ".join(["%s"] * len(kinds))
            cursor.executemany(f"INSERT INTO {name} VALUES ({marks}, true)", values)
            cursor.execute(f"UPDATE {name} SET seen = click > 0")
    connection.commit()


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_postgres(server, parquet, contents):
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install psycopg[binary]")
    adbc = pytest.importorskip(
        "adbc_driver_postgresql.dbapi", reason="needs adbc-driver-postgresql"
    )
    ibis = pytest.importorskip("ibis", reason="needs the extra ibis")
    seen = {**COLUMNS, "click": "seen"}
    with psycopg.connect(server) as connection:
        filled(connection, parquet)
    with psycopg.connect(server) as plain, adbc.connect(server) as fast:
        for name, file in parquet.items():
            whole = PostgresTable(fast, name, name)
            expected = read(whole.rows(whole.columns))
            assert contents(expected) == contents(read(file))
            for source in ((plain, name), (fast, f"public.{name}")):
                assert_same(read(source), expected)
                _, report = read_log_report(source, on_bad="drop", **OPTIONS)
                assert report.n_rows < pq.read_table(file).num_rows
            backend = ibis.connect(server)
            assert contents(read(backend.table(name))) == contents(expected)
            backend.disconnect()
        expected = read(whole.rows(whole.columns), columns=seen)
        assert_same(read((plain, name), columns=seen), expected)
        assert_same(read((fast, name), columns=seen), expected)
    with adbc.connect(server) as fast, pytest.raises(FileFormatError, match="no_such"):
        read((fast, "no_such"))


@pytest.mark.slow
def test_an_address_of_postgres_is_counted_there(server, parquet, contents, monkeypatch):
    """By rows and counted by the server: the same arrays, from fewer rows."""
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg: pip install psycopg[binary]")
    pytest.importorskip("adbc_driver_postgresql", reason="needs adbc-driver-postgresql")
    with psycopg.connect(server) as connection:
        connection.execute("CREATE SCHEMA counted; SET search_path TO counted")
        filled(connection, parquet)
        connection.execute("ALTER ROLE untilt SET extra_float_digits = -15")
        connection.execute(
            "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', "
            "deterministic = false)"
        )
        for name in parquet:
            connection.execute(
                f"ALTER TABLE {name} ADD at timestamptz DEFAULT now(), ADD x real, "
                "ALTER doc_id TYPE text COLLATE caseless"
            )
            connection.execute(
                f"UPDATE {name} SET doc_id = upper(doc_id) WHERE random() < 0.5; "
                f"UPDATE {name} SET click = click + 1e-14 WHERE click = 1 AND random() < 0.5; "
                f"UPDATE {name} SET x = CASE WHEN random() < 0.5 THEN 0.1 ELSE 'NaN' END"
            )

    def both(name, **options):
        """The log and its rows, counted by the server and not."""
        source = (server, f"counted.{name}")
        found, report = read_log_report(source, on_bad="drop", **{**OPTIONS, **options})
        with monkeypatch.context() as patched:
            patched.setattr("untilt.data.read.read_log._may_be_counted", lambda *_: False)
            expected, whole = read_log_report(source, on_bad="drop", **{**OPTIONS, **options})
        assert_same(found, expected)
        assert report.source == whole.source
        return report.n_rows, whole.n_rows

    for name, file in parquet.items():
        n = pq.read_table(file).num_rows
        counted, whole = both(name)
        assert counted < whole == n
        for more in (
            {"features": ["x"], "missing": "keep"},
            {"columns": {**COLUMNS, "click": "seen"}},
            {"collapse": "halves"},
            {"sample_queries": 0.9},
            {"text_ids": True},
        ):
            counted, whole = both(name, **more)
            assert counted < whole
        timed = {**COLUMNS, "timestamp": "at"}
        # Times differ where all else is equal, so that these are read by rows.
        assert both(name, columns=timed, collapse="halves") == (n, n)
        assert both(name, collapse=False) == (n, n)
    with psycopg.connect(server) as connection:
        connection.execute(
            "CREATE TABLE counted.words AS SELECT query_id, session_id, doc_id, click, "
            "position::text AS position FROM counted.clean; CREATE TABLE counted.cells AS SELECT "
            "query_id, session_id, doc_id, click, position AS row, 1 AS column FROM counted.clean"
        )
    n = pq.read_table(parquet["clean"]).num_rows
    plain: dict[str, Any] = {"labels": (), "context": (), "columns": None}
    # A server does not compare text with numbers; cells of a grid are numbered by `read_log`.
    assert both("words", **plain) == both("cells", **plain) == (n, n)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_spark(parquet, tmp_path, contents):
    with engines.spark(tmp_path) as session:
        for file in parquet.values():
            frame = session.read.parquet(str(file))
            assert_same(read(frame), read(file))
            _, report = read_log_report(frame, on_bad="drop", **OPTIONS)
            assert report.n_rows < pq.read_table(file).num_rows
            assert contents(read(frame, collapse=False)) == contents(read(file))
            ibis = pytest.importorskip("ibis", reason="needs the extra ibis")
            frame.createOrReplaceTempView(f"v_{file.stem}")
            table = ibis.pyspark.connect(session).table(f"v_{file.stem}")
            assert_same(read(table), read(file))
