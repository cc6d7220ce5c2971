"""The same log from an object store, a server and the tables of other libraries.

Each part runs where what it needs is installed: moto and boto3, PostgreSQL and its ADBC driver,
deltalake, pyiceberg.
"""

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import untilt as ut
from untilt.data.read.read_log import read_log, read_log_report
from untilt.errors import ColumnError, FileFormatError, OptionError
from untilt.workflow import stage_read

pytestmark = pytest.mark.slow

TABLE = pa.table(
    {
        "query_id": [1, 1, 1, 1, 2],
        "session_id": [1, 1, 2, 2, 3],
        "doc_id": ["a", "b", "a", "b", "ż"],
        "position": [1, 2, 1, 2, 1],
        "click": [True, False, True, False, False],
        "ranker": ["new", "new", "new", "new", "old"],
        "price": [1.5, 2.5, 1.5, 2.5, 3.0],
    }
)


@pytest.fixture
def same(contents):
    """Whether a source gives the log of the table, with its feature."""
    expected = contents(read_log(TABLE, features=["price"]))

    def check(source, **options):
        assert contents(read_log(source, features=["price"], **options)) == expected

    return check


# ---- an object store


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("boto3")
    moto = pytest.importorskip("moto.server")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    yield "http://{}:{}".format(*running.get_host_and_port())
    running.stop()


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """An empty bucket, and the environment that finds it."""
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    made = boto3.resource("s3", endpoint_url=server, region_name="us-east-1").Bucket(
        tmp_path.name.replace("_", "-")[:50].strip("-").lower()
    )
    made.create()
    return made


def put(bucket, key, table=TABLE):
    sink = pa.BufferOutputStream()
    if key.endswith(".csv"):
        pa.csv.write_csv(table, sink)
    else:
        pq.write_table(table, sink)
    bucket.put_object(Key=key, Body=sink.getvalue().to_pybytes())
    return f"s3://{bucket.name}/{key}"


def test_a_file_a_folder_a_pattern_and_a_list_of_a_store(bucket, same, tmp_path):
    same(put(bucket, "one.parquet"))
    same(put(bucket, "one.csv"))
    parts = [put(bucket, "log/day=1/a.parquet", TABLE[:2]), put(bucket, "log/b.parquet", TABLE[2:])]
    put(bucket, "log/_SUCCESS")
    root = f"s3://{bucket.name}"
    for source in (f"{root}/log", f"{root}/log/", f"{root}/log/**/*.parquet", parts):
        same(source)
    same(f"{root}/one.p[!x]rquet")
    assert read_log(f"{root}/log/*.parquet").n_impressions == len(TABLE) - 2
    read_log(f"{root}/log", temp_directory=tmp_path)
    assert list(tmp_path.iterdir()) == []
    _, report = read_log_report(f"{root}/log")
    assert report.source == f"{root}/log"


def test_a_database_of_a_store(bucket, same, tmp_path):
    with duckdb.connect(str(tmp_path / "log.duckdb")) as connection:
        connection.register("arrow", TABLE)
        connection.execute("CREATE TABLE clicks AS FROM arrow; CREATE TABLE other (x INTEGER)")
    bucket.upload_file(str(tmp_path / "log.duckdb"), "log.duckdb")
    same((f"s3://{bucket.name}/log.duckdb", "clicks"))
    with pytest.raises(OptionError, match=f"which table of 's3://{bucket.name}/log.duckdb'"):
        read_log(f"s3://{bucket.name}/log.duckdb")


def test_what_a_store_does_not_have(bucket, server, monkeypatch):
    root = f"s3://{bucket.name}"
    nowhere = "s3://no-bucket-of-this-name/log.parquet"
    for source in (f"{root}/none.parquet", f"{root}/none/*.parquet", f"{root}/none/", nowhere):
        with pytest.raises(FileFormatError, match="There is no such file"):
            read_log(source)
    put(bucket, "mixed/a.parquet")
    put(bucket, "mixed/b.csv")
    with pytest.raises(OptionError, match=f"'{root}/mixed' holds files of several kinds"):
        read_log(f"{root}/mixed")
    with pytest.raises(OptionError, match="must not hold keys") as caught:
        read_log(f"s3://AKIA:secret@{bucket.name}/log.parquet")
    assert "secret" not in str(caught.value)
    with pytest.raises(OptionError, match="parameter 'token'") as caught:
        read_log(f"{root}/log.parquet?token=secret")
    assert "secret" not in str(caught.value)
    bucket.put_object(Key="up/../../../etc/log.parquet", Body=b"PAR1")
    with pytest.raises(FileFormatError):
        read_log(f"{root}/up")


def test_a_table_format_in_a_store_is_refused(bucket):
    root = f"s3://{bucket.name}"
    put(bucket, "delta/_delta_log/00.json.parquet")
    put(bucket, "delta/day=1/a.parquet")
    put(bucket, "ice/metadata/v2.metadata.json")
    put(bucket, "ice/data/a.parquet")
    for way in ("delta", "delta/day=1/a.parquet", "delta/*/*.parquet", "delta/day=1"):
        with pytest.raises(OptionError, match=rf"DeltaTable\('{root}/delta'\)"):
            read_log(f"{root}/{way}")
    for way in ("ice", "ice/data", "ice/data/a.parquet"):
        with pytest.raises(OptionError, match=f"'{root}/ice/metadata/v2.metadata.json'"):
            read_log(f"{root}/{way}")


def test_a_run_on_a_store_notices_other_content(bucket, tmp_path, monkeypatch):
    made = ut.simulate(ut.make_judged(n_queries=30, n_features=4, seed=0), n_sessions=2000, seed=0)
    ut.write_log(made.log, tmp_path / "clicks.parquet", documents=tmp_path / "documents.parquet")
    for name in ("clicks", "documents"):
        bucket.upload_file(str(tmp_path / f"{name}.parquet"), f"{name}.parquet")
    root = f"s3://{bucket.name}"

    def run():
        return ut.run(
            f"{root}/clicks.parquet", tmp_path / "run", documents=f"{root}/documents.parquet",
            method="prs", trees=2, bias="power-law:1", folds=1,
        )  # fmt: skip

    first = run()
    assert first.decision.source.source == f"{root}/clicks.parquet"
    assert f'log = "{root}/clicks.parquet"' in (tmp_path / "run" / "run.toml").read_text()
    assert "read" in run().resumed
    again = made.log.top(5)
    ut.write_log(again, tmp_path / "clicks.parquet", documents=tmp_path / "documents.parquet")
    bucket.upload_file(str(tmp_path / "clicks.parquet"), "clicks.parquet")
    monkeypatch.setattr(stage_read, "_read", lambda *_: pytest.fail("read again"))
    with pytest.raises(pytest.fail.Exception, match="read again"):
        run()


# ---- a PostgreSQL server


def program(name):
    found = shutil.which(name) or next(iter(glob.glob(f"/usr/lib/postgresql/*/bin/{name}")), None)
    return found or pytest.skip(f"PostgreSQL ({name}) is not installed here")


def somebody():
    """PostgreSQL does not run as root."""
    if os.getuid() != 0:
        return {}
    names = {each.pw_name for each in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    return {"user": user, "group": pwd.getpwnam(user).pw_gid}


@pytest.fixture(scope="module")
def postgres():
    """The address of a server of its own, on a socket in a folder of its own."""
    pytest.importorskip("adbc_driver_postgresql")
    initdb, server = program("initdb"), program("postgres")
    folder = tempfile.mkdtemp(prefix="pg")
    who = somebody()
    Path(folder, "password").write_text("s3cret-password")
    if who:
        for place in (folder, f"{folder}/password"):
            shutil.chown(place, who["user"], who["group"])
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **who}
    subprocess.run(
        [initdb, "-D", f"{folder}/data", "-U", "ann", "-E", "UTF8", "--locale=C", "--no-sync",
         "--auth=scram-sha-256", f"--pwfile={folder}/password"],
        check=True, **quiet,
    )  # fmt: skip
    options = ["-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    running = subprocess.Popen([server, "-D", f"{folder}/data", *options], **quiet)
    try:
        yield _ready(f"postgresql://ann:s3cret-password@/postgres?host={folder}")
    finally:
        running.terminate()
        running.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _ready(address):
    for _ in range(240):
        try:
            execute(address, "SELECT 1")
        except Exception:
            time.sleep(0.5)
        else:
            return address
    raise AssertionError("PostgreSQL did not start")


def execute(address, *statements):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


@pytest.fixture(scope="module")
def clicks(postgres):
    """Tables on the server: every type that a column of a log may have there."""
    rows = ", ".join(
        "({query_id}, {session_id}, '{doc_id}', {position}, {click}, '{ranker}', {price}, "
        "'2026-01-01 00:00+02', NULL, 'x')".format(**row)
        for row in TABLE.to_pylist()
    )
    execute(
        postgres,
        "CREATE TABLE clicks (query_id int, session_id bigint, doc_id varchar(9), "
        "position smallint, click boolean, ranker char(3), price numeric(9, 2), "
        "timestamp timestamptz, note jsonb, kind name)",
        f"INSERT INTO clicks VALUES {rows}",
        "CREATE SCHEMA web",
        'CREATE TABLE web."The Clicks" AS SELECT * FROM clicks',
        'CREATE VIEW upper_case AS SELECT query_id AS "QUERY_ID", session_id, doc_id, position, '
        'click AS "Click", ranker, price FROM clicks',
        "CREATE TABLE other (x int)",
    )
    return postgres


def test_tables_and_views_of_a_server(clicks, same):
    same((clicks, "clicks"))
    same((clicks, "web.The Clicks"))
    same((clicks, "upper_case"))
    _, report = read_log_report((clicks, "clicks"))
    assert report.source.endswith("table clicks")
    assert "s3cret" not in report.source
    assert read_log((clicks, "clicks"), collapse=False).time is not None


def test_the_documents_may_stand_there_too(clicks, contents):
    documents = (clicks, "clicks")
    execute(
        clicks,
        "CREATE TABLE documents AS SELECT DISTINCT query_id, doc_id, price FROM clicks",
    )
    log = read_log((clicks, "clicks"), documents=(clicks, "documents"))
    assert contents(log) == contents(read_log(documents, features=["price"]))


def test_an_adbc_cursor_with_a_query(clicks, same, contents):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(clicks) as connection, connection.cursor() as cursor:
        with pytest.raises(OptionError, match="Run a query first"):
            read_log(cursor)
        cursor.execute("SELECT query_id, session_id, doc_id, position, click FROM clicks")
        log = read_log(cursor)
    assert contents(log) == contents(read_log(TABLE.drop_columns(["ranker"])))


def test_more_rows_than_a_piece(clicks):
    """The driver hands out 16 MiB at a time."""
    execute(
        clicks,
        "CREATE TABLE many AS SELECT i % 100 AS query_id, i / 5 AS session_id, repeat('d', 60) || "
        "i % 7 AS doc_id, i % 5 + 1 AS position, i % 3 AS click FROM generate_series(0, 399999) i",
    )
    log = read_log((clicks, "many"))
    assert log.n_impressions == 400_000


def test_nothing_secret_is_told(clicks, postgres):
    wrong = postgres.replace("s3cret-password", "wr0ng-password")
    with pytest.raises(FileFormatError, match="cannot be read") as caught:
        read_log((wrong, "clicks"))
    error = caught.value
    assert "password" in str(error)
    assert "wr0ng" not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__
    with pytest.raises(OptionError, match="it holds: clicks") as which:
        read_log(clicks)
    assert "s3cret" not in str(which.value)
    with pytest.raises(ColumnError, match="lacks the columns") as lacking:
        read_log((clicks, "other"))
    assert "s3cret" not in str(lacking.value)


def test_a_run_on_a_server(clicks, tmp_path):
    """Steps are used again where the rows are the same; no file has the password."""
    made = ut.simulate(ut.make_judged(n_queries=30, n_features=4, seed=0), n_sessions=500, seed=0)
    ut.write_log(made.log, tmp_path / "clicks.csv", documents=tmp_path / "documents.parquet")
    rows = pa.csv.read_csv(tmp_path / "clicks.csv")
    names = rows.column_names
    values = ", ".join(str(tuple(row.values())) for row in rows.to_pylist())
    kinds = ", ".join(
        f"{n} {'text' if pa.types.is_string(rows[n].type) else 'bigint'}" for n in names
    )
    execute(clicks, f"CREATE TABLE made ({kinds})", f"INSERT INTO made VALUES {values}")

    def run():
        return ut.run(
            (clicks, "made"), tmp_path / "run", documents=tmp_path / "documents.parquet",
            command=f"untilt run {clicks} --table made",
            method="prs", trees=2, bias="power-law:1", folds=1,
        )  # fmt: skip

    run()
    assert "audit" in run().resumed
    execute(clicks, "UPDATE made SET click = 1 - click WHERE position = 1")
    assert "audit" not in run().resumed
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"s3cret" not in path.read_bytes(), path


# ---- tables of other libraries


def test_a_delta_table_without_the_files_that_were_removed(tmp_path, same):
    """Read as plain Parquet the folder has every session twice."""
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "log", TABLE[:3])
    deltalake.write_deltalake(tmp_path / "log", TABLE[3:], mode="append")
    deltalake.write_deltalake(tmp_path / "log", TABLE, mode="overwrite", partition_by=None)
    files = list((tmp_path / "log").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == 2 * len(TABLE)
    table = deltalake.DeltaTable(tmp_path / "log")
    same(table)
    old = deltalake.DeltaTable(tmp_path / "log", version=0)
    assert read_log(old).n_impressions == 3
    table.delete("position > 1")
    assert read_log(deltalake.DeltaTable(tmp_path / "log")).n_impressions == 3
    with pytest.raises(OptionError, match=r"deltalake\.DeltaTable"):
        read_log(tmp_path / "log")


def test_iceberg_tables_and_scans(tmp_path, same):
    catalog = pytest.importorskip("pyiceberg.catalog")
    pytest.importorskip("sqlalchemy")
    (tmp_path / "house").mkdir()
    found = catalog.load_catalog(
        "local", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/house"
    )
    found.create_namespace("web")
    table = found.create_table("web.clicks", schema=TABLE.schema)
    table.append(TABLE[:2])
    table.append(TABLE[2:])
    same(table)
    same(table.scan())
    table.overwrite(TABLE)
    same(table)
    assert read_log(table.scan(row_filter="position > 1")).n_impressions == 2
    (data,) = {file.parent for file in (tmp_path / "house").rglob("*.parquet")}
    with pytest.raises(OptionError, match=r"StaticTable\.from_metadata"):
        read_log(data)
    with pytest.raises(OptionError, match="is no table"):
        read_log(table.schema())


def test_memory_does_not_grow_with_what_a_stream_holds(tmp_path):
    """A reader of many pieces: each is gone before the next comes."""
    alive = []

    def pieces():
        for number in range(40):
            n = 50_000
            columns = [
                np.full(n, number),
                np.arange(n) // 5,
                np.arange(n) % 5,
                np.arange(n) % 5 + 1,
            ]
            batch = pa.record_batch([*columns, np.zeros(n)], names=TABLE.column_names[:5])
            alive.append(pa.total_allocated_bytes())
            yield batch

    reader = pa.RecordBatchReader.from_batches(next(pieces()).schema, pieces())
    assert read_log(reader, memory_limit="200MB").n_sessions == 40 * 10_000
    assert max(alive) < 40 * 50_000 * 8 * 5 / 2
