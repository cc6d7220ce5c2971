"""Files that somebody else made, and names that nobody expects: read, or refused in a sentence."""

import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from untilt.data.read.read_log import read_log
from untilt.errors import ColumnError, FileFormatError, OptionError

TABLE = pa.table(
    {
        "query_id": [1, 1, 2],
        "session_id": [1, 1, 2],
        "doc_id": ["a", "b", "a"],
        "position": [1, 2, 1],
        "click": [1, 0, 0],
    }
)
NAMES = ", ".join(TABLE.column_names)


def made_database(path: Path, *statements: str) -> Path:
    """A database with the table `clicks`, and whatever else these statements make."""
    with duckdb.connect(str(path)) as connection:
        rows = TABLE.to_pylist()
        connection.execute(
            "CREATE TABLE clicks "
            "(query_id INT, session_id INT, doc_id TEXT, position INT, click INT)"
        )
        connection.executemany(
            "INSERT INTO clicks VALUES (?, ?, ?, ?, ?)", [list(row.values()) for row in rows]
        )
        for statement in statements:
            connection.execute(statement)
    return path


@pytest.fixture
def secret(tmp_path):
    """A log in a file that the database must not reach."""
    pa.csv.write_csv(TABLE, tmp_path / "secret.csv")
    pq.write_table(TABLE, tmp_path / "secret.parquet")
    with duckdb.connect(str(tmp_path / "secret.duckdb")) as connection:
        connection.execute("CREATE TABLE clicks AS SELECT 1 AS query_id")
    return tmp_path


READS = {
    "read_csv": "SELECT * FROM read_csv('{secret}.csv')",
    "replacement scan": "SELECT * FROM '{secret}.parquet'",
    "read_parquet": "SELECT * FROM read_parquet('{secret}.parquet')",
    "read_text": "SELECT c.* FROM clicks c, read_text('{secret}.csv') WHERE content <> ''",
    "glob": "SELECT c.* FROM clicks c, glob('/*') LIMIT 3",
    "subquery": f"SELECT {NAMES} FROM clicks WHERE (SELECT count(*) FROM '{{secret}}.csv') > 0",
    "query": "SELECT * FROM query('SELECT * FROM ''{secret}.csv''')",
    "query_table": "SELECT * FROM query_table('{secret}.csv')",
    "macro": "SELECT * FROM stolen()",
    "view of a view": "SELECT * FROM inner_view",
}


@pytest.mark.parametrize("name", READS)
def test_a_database_cannot_read_another_file(secret, name):
    source = f"read_csv('{secret}/secret.csv')"
    path = made_database(
        secret / "log.duckdb",
        f"CREATE MACRO stolen() AS TABLE SELECT * FROM {source}",
        f"CREATE VIEW inner_view AS SELECT * FROM {source}",
        f"CREATE VIEW stolen_view AS {READS[name].format(secret=secret / 'secret')}",
    )
    with pytest.raises(FileFormatError, match="CREATE TABLE"):
        read_log((path, "stolen_view"))
    with pytest.raises(FileFormatError, match="CREATE TABLE"):
        read_log(TABLE, documents=(path, "stolen_view"))
    assert read_log((path, "clicks")).n_sessions == 2


def test_a_view_of_tables_in_its_own_file_is_read(tmp_path):
    path = made_database(
        tmp_path / "log.duckdb",
        "CREATE MACRO doubled(x) AS 2 * x",
        f"CREATE VIEW seen AS SELECT {NAMES.replace('query_id', 'doubled(query_id) AS query_id')} "
        "FROM clicks",
    )
    assert read_log((path, "seen")).query_id.tolist() == [2, 4]


def test_a_view_of_nothing_is_refused(tmp_path):
    path = made_database(
        tmp_path / "log.duckdb",
        "CREATE TABLE gone AS FROM clicks",
        "CREATE VIEW lost AS FROM gone",
        "DROP TABLE gone",
    )
    with pytest.raises(FileFormatError, match="lost is a view that cannot be read"):
        read_log((path, "lost"))


def test_a_database_is_not_written_to(tmp_path):
    path = made_database(tmp_path / "log.duckdb")
    before = path.read_bytes()
    read_log((path, "clicks"))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["log.duckdb"]


def test_changes_that_stand_beside_a_database_are_read(tmp_path):
    """A writer that was killed leaves its last rows in a file of its own."""
    path = made_database(tmp_path / "log.duckdb")
    killed = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]);"
        "c.execute(\"SET wal_autocheckpoint = '1TB'\");"
        "c.execute(\"INSERT INTO clicks VALUES (3, 3, 'a', 1, 1)\"); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", killed, str(path)], check=True)
    assert (tmp_path / "log.duckdb.wal").stat().st_size > 0
    assert read_log((path, "clicks")).n_sessions == 3


ODD_NAMES = {
    "an address": "s3://bucket/log",
    "another address": "http://127.0.0.1:9/log",
    "home": "~/log",
    "a pattern": "log[1]*?",
    "quotes": "l'o\"g; DROP TABLE x --",
    "an option": "--log",
    "blanks and lines": " l\no\tg ",
    "no text": os.fsdecode(b"l\xff\xfeg"),
    "a folder that is no text": os.fsdecode(b"d\xff/log"),
    "long": "l" * 240,
    "letters": "żółć-ログ",
}


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".duckdb"])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(tmp_path, monkeypatch, name, ending, contents):
    """Given relative to the working folder, where an address is most like one."""
    monkeypatch.chdir(tmp_path)
    path = ODD_NAMES[name] + ending
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    if ending == ".parquet":
        pq.write_table(TABLE, "plain")
    elif ending == ".csv":
        pa.csv.write_csv(TABLE, "plain")
    else:
        made_database(Path("plain"))
    os.rename("plain", path)
    expected = contents(read_log(TABLE))
    assert contents(read_log(path)) == expected
    assert contents(read_log(TABLE, documents=path))[0] == expected[0]
    if not name.startswith("a pattern") and ending != ".duckdb":
        assert contents(read_log([os.path.abspath(path)])) == expected


@pytest.mark.parametrize("name", ["no text", "a folder that is no text"])
def test_messages_about_odd_names_can_be_printed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for ending, content in ((".csv", b"a,b\n1,2\n"), (".parquet", b"junk"), (".duckdb", b"junk")):
        path = ODD_NAMES[name] + ending
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        Path(path).write_bytes(content)
        with pytest.raises((FileFormatError, ValueError)) as caught:
            read_log(path)
        assert "udcff" in str(caught.value).encode().decode()
    with pytest.raises(FileFormatError) as caught:
        read_log(os.fsdecode(b"none\xff.csv"))
    assert str(caught.value).encode()


def test_an_address_without_a_file_is_no_address():
    for address in ("gs://bucket/log.parquet", "http://127.0.0.1:9/log.csv", "hf://datasets/x.csv"):
        with pytest.raises(FileFormatError, match="no such file"):
            read_log(address)


def test_what_can_be_read_once_is_refused(tmp_path):
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(FileFormatError, match="a pipe, a device"):
        read_log(tmp_path / "log.csv")
    with pytest.raises(FileFormatError, match="a pipe, a device"):
        read_log("/dev/null")


def test_a_link_to_nothing_is_not_passed_over(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    pq.write_table(TABLE, folder / "a.parquet")
    (folder / "b.parquet").symlink_to(tmp_path / "nothing.parquet")
    with pytest.raises(FileFormatError, match="a broken link"):
        read_log(folder)


def test_linked_folders_count_once_and_loops_end(tmp_path, contents):
    folder, other = tmp_path / "log", tmp_path / "other"
    (folder / "day").mkdir(parents=True)
    other.mkdir()
    pq.write_table(TABLE[:2], folder / "day" / "a.parquet")
    pq.write_table(TABLE[2:], other / "b.parquet")
    (folder / "linked").symlink_to(other)
    (folder / "linked-again").symlink_to(other)
    (folder / "day" / "loop").symlink_to(folder / "day")
    (folder / "up").symlink_to(tmp_path / "log")
    assert contents(read_log(folder)) == contents(read_log(TABLE))


def test_a_linked_file_is_read(tmp_path, contents):
    pq.write_table(TABLE, tmp_path / "there.parquet")
    (tmp_path / "here.parquet").symlink_to(tmp_path / "there.parquet")
    assert contents(read_log(tmp_path / "here.parquet")) == contents(read_log(TABLE))
    (tmp_path / "round.parquet").symlink_to(tmp_path / "round.parquet")
    with pytest.raises(FileFormatError):
        read_log(tmp_path / "round.parquet")


@pytest.mark.parametrize("path", ["", "a\0b.csv", "x" * 5000 + ".csv", "a/" * 3000, "\ud800.csv"])
def test_names_of_no_file(path):
    with pytest.raises((FileFormatError, OptionError)) as caught:
        read_log(path)
    assert str(caught.value).encode()


def test_a_length_that_a_damaged_arrow_file_names_makes_no_room_for_it(tmp_path):
    """Eleven bytes that say: 1.4 GB of metadata follow."""
    file = tmp_path / "log.arrow"
    file.write_bytes(b"\xff" * 4 + struct.pack("<i", 1_415_455_203) + b"abc")
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="cannot be read"):
            read_log(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 << 20


def arrow_file(table, folder):
    with pa.ipc.new_stream(folder / "log.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "log.arrow"


@pytest.mark.parametrize(
    "given",
    [
        arrow_file,
        lambda table, _: table,
        lambda table, _: table.to_reader(),
        lambda table, _: pa.dataset.Scanner.from_batches(table.to_reader()),
    ],
    ids=["file", "table", "reader", "scanner"],
)
def test_names_of_arrow_columns_that_are_no_text(tmp_path, given):
    table = TABLE.append_column(pa.field(b"\xc4\xff", pa.int64()), pa.array([1, 2, 3]))
    with pytest.raises(ColumnError, match="no UTF-8"):
        read_log(given(table, tmp_path))
