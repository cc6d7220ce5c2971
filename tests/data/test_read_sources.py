"""The same log from every kind of source."""

import bz2
import gzip
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from untilt.data.read.collapse import assemble as assembly
from untilt.data.read.collapse import packing
from untilt.data.read.read_log import read_log
from untilt.errors import ColumnError, FileFormatError, MemoryLimitError, OptionError

TABLE = pa.table(
    {
        "query_id": [1, 1, 1, 1, 2],
        "session_id": [1, 1, 2, 2, 3],
        "doc_id": ["a", "b", "a", "b", "a"],
        "position": [1, 2, 1, 2, 1],
        "click": [True, False, True, False, False],
        "ranker": ["new", "new", "new", "new", "old"],
    }
)


@pytest.fixture
def expected(contents):
    return contents(read_log(TABLE))


def test_by_hand(contents):
    sessions, documents = contents(read_log(TABLE))
    assert sessions == {
        (1, "new", None, ((1, "a", 1.0), (2, "b", 0.0))): 2,
        (2, "old", None, ((1, "a", 0.0),)): 1,
    }
    assert documents == {(1, "a"): None, (1, "b"): None, (2, "a"): None}


def parquet(folder):
    pq.write_table(TABLE, folder / "log.parquet")
    return folder / "log.parquet"


def csv(folder):
    pa.csv.write_csv(TABLE, folder / "log.csv")
    return str(folder / "log.csv")


def csv_gz(folder):
    text = Path(csv(folder)).read_bytes()
    (folder / "log.csv.gz").write_bytes(gzip.compress(text))
    return folder / "log.csv.gz"


def packed(content, ending):
    """The bytes of a packed file."""
    if ending == ".zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()
    if ending == ".bz2":
        return bz2.compress(content)
    return gzip.compress(content) if ending else content


def text_file(name):
    """A writer of the table as CSV or JSON lines, packed as the name says."""

    def write(folder):
        ending = next((e for e in (".zst", ".bz2", ".gz") if name.endswith(e)), "")
        content = Path(csv(folder)).read_bytes()
        if "csv" not in name:
            lines = [json.dumps(row) for row in TABLE.to_pylist()]
            content = ("\n".join(lines) + "\n").encode()
        if name.endswith(".json"):
            content = json.dumps(TABLE.to_pylist(), indent=1).encode()
        (folder / name).write_bytes(packed(content, ending))
        return folder / name

    return write


def feather(folder):
    pa.feather.write_feather(TABLE, folder / "log.feather", compression="zstd", chunksize=2)
    return folder / "log.feather"


def arrow_stream(folder):
    with pa.ipc.new_stream(folder / "log.arrow", TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    return folder / "log.arrow"


def folder_of_feather(folder):
    """Another order of columns, a narrower type, another case, a column less: they go by name."""
    (folder / "log").mkdir()
    pa.feather.write_feather(TABLE[:2].append_column("x", [[1, 2]]), folder / "log" / "a.feather")
    other = TABLE[2:].select(TABLE.column_names[::-1])
    other = other.set_column(2, "POSITION", other["position"].cast(pa.int8()))
    pa.feather.write_feather(other, folder / "log" / "b.feather")
    return folder / "log"


def sqlite(folder, name="log.sqlite"):
    with sqlite3.connect(folder / name) as connection:
        names = ", ".join(TABLE.column_names)
        connection.execute(f"CREATE TABLE clicks ({names})")
        rows = [tuple(row.values()) for row in TABLE.to_pylist()]
        connection.executemany(f"INSERT INTO clicks VALUES ({', '.join('?' * 6)})", rows)
    connection.close()
    return folder / name


def sqlite_table(folder):
    path = sqlite(folder, "log.db")
    with sqlite3.connect(path) as connection:
        connection.execute('ALTER TABLE clicks RENAME TO "the clicks"')
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    return path, "the clicks"


def upper_case(folder):
    pq.write_table(TABLE.rename_columns([n.upper() for n in TABLE.column_names]), folder / "u.pq")
    return folder / "u.pq"


def upper_case_csv(folder):
    names, rest = Path(csv(folder)).read_text().split("\n", 1)
    (folder / "log.csv").write_text(f"{names.upper()}\n{rest}")
    return folder / "log.csv"


def upper_case_database(folder):
    path = database(folder)
    names = ", ".join(f'{name} AS "{name.upper()}"' for name in TABLE.column_names)
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE upper AS SELECT {names} FROM clicks; DROP TABLE clicks")
    return path


def scanner(folder):
    return pa.dataset.dataset(parquet(folder)).scanner(batch_size=2)


class Cursor:
    """What a cursor of ADBC has that matters here."""

    def fetch_record_batch(self):
        return TABLE.to_reader()


def semicolons(folder):
    text = Path(csv(folder)).read_text().replace(",", ";")
    (folder / "log.tsv").write_text(text)
    return folder / "log.tsv"


def folder_of_parquet(folder):
    (folder / "log" / "day=1").mkdir(parents=True)
    pq.write_table(TABLE[:2], folder / "log" / "day=1" / "a.parquet")
    # Another order of columns, a narrower type: columns go by name.
    other = TABLE[2:].select(TABLE.column_names[::-1])
    other = other.set_column(2, "position", other["position"].cast(pa.int8()))
    pq.write_table(other, folder / "log" / "b.parquet")
    (folder / "log" / "_SUCCESS").write_text("")
    (folder / "log" / ".b.parquet-half").write_text("half a file")
    return folder / "log"


def pattern(folder):
    return str(folder_of_parquet(folder)) + "/**/*.parquet"


def several_files(folder):
    pq.write_table(TABLE[:3], folder / "a.parquet")
    pq.write_table(TABLE[3:], folder / "b.parquet")
    return [folder / "a.parquet", folder / "b.parquet"]


def odd_name(folder):
    pq.write_table(TABLE, folder / "lo'g [1]*.parquet")
    return folder / "lo'g [1]*.parquet"


def no_ending(folder):
    pq.write_table(TABLE, folder / "part-00000")
    return folder / "part-00000"


def database(folder):
    with duckdb.connect(str(folder / "log.duckdb")) as connection:
        connection.register("arrow", TABLE)
        connection.execute("CREATE TABLE clicks AS SELECT * FROM arrow")
    return folder / "log.duckdb"


def database_table(folder):
    path = database(folder)
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE SCHEMA web; CREATE TABLE web."the clicks" AS FROM clicks')
        connection.execute("DROP TABLE clicks; CREATE TABLE other (x INTEGER)")
    return (path, "web.the clicks")


def polars_lazy(folder):
    pq.write_table(TABLE, folder / "log.parquet")
    return pl.scan_parquet(folder / "log.parquet").filter(pl.col("position") > 0)


def pandas_floats(folder):
    frame = TABLE.to_pandas()
    frame["query_id"] = frame["query_id"].astype(float)
    frame["position"] = frame["position"].astype(float)
    return frame.set_index(pd.Index(range(5, 10)))


def pandas_objects(folder):
    frame = TABLE.to_pandas().astype(object)
    frame["junk"] = [object(), 1, "x", None, {}]
    return frame


class Stream:
    """Any library's table, as long as it speaks Arrow."""

    def __arrow_c_stream__(self, requested_schema=None):
        return TABLE.__arrow_c_stream__(requested_schema)


SOURCES = {
    "parquet": parquet,
    "csv": csv,
    "csv.gz": csv_gz,
    **{
        name: text_file(name)
        for name in (
            "log.csv.zst",
            "log.csv.bz2",
            "log.jsonl",
            "log.ndjson.gz",
            "log.jsonl.zst",
            "log.jsonl.bz2",
            "log.json",
        )
    },
    "feather": feather,
    "arrow stream": arrow_stream,
    "folder of feather": folder_of_feather,
    "sqlite": sqlite,
    "sqlite table": sqlite_table,
    "upper case": upper_case,
    "upper case CSV": upper_case_csv,
    "upper case database": upper_case_database,
    "upper case frame": lambda _: TABLE.to_pandas().rename(columns=str.title),
    "arrow scanner": scanner,
    "cursor": lambda _: Cursor(),
    "semicolons": semicolons,
    "folder": folder_of_parquet,
    "pattern": pattern,
    "several files": several_files,
    "odd name": odd_name,
    "no ending": no_ending,
    "database": database,
    "database table": database_table,
    "arrow table": lambda _: TABLE,
    "arrow batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "arrow reader": lambda _: TABLE.to_reader(),
    "arrow dataset": lambda folder: pa.dataset.dataset(parquet(folder)),
    "duckdb relation": lambda folder: duckdb.from_parquet(str(parquet(folder))),
    "polars": lambda _: pl.from_arrow(TABLE),
    "polars categories": lambda _: pl.from_arrow(TABLE).with_columns(
        pl.col("doc_id").cast(pl.Categorical)
    ),
    "polars lazy": polars_lazy,
    "pandas": lambda _: TABLE.to_pandas(),
    "pandas floats": pandas_floats,
    "pandas objects": pandas_objects,
    "stream": lambda _: Stream(),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_same_log(tmp_path, expected, contents, checked, name):
    log = checked(read_log(SOURCES[name](tmp_path)))
    assert contents(log) == expected
    assert log.query_id.dtype == np.int64


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_can_hold_the_documents(tmp_path, name):
    shown = {"query_id": [1], "session_id": [1], "doc_id": ["b"], "position": [1], "click": [1]}
    log = read_log(pa.table(shown), documents=SOURCES[name](tmp_path), features=["position"])
    assert log.n_documents == 3  # two of them are shown by no list
    np.testing.assert_array_equal(log.features, [[1], [2], [1]])


def test_nothing_is_left_behind(tmp_path):
    read_log(TABLE, temp_directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_relation_of_an_open_database(tmp_path, expected, contents):
    path = database(tmp_path)
    with duckdb.connect(str(path)) as connection:
        assert contents(read_log(connection.table("clicks"))) == expected


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        ("nowhere.parquet", FileFormatError, "no such file"),
        ("nowhere/*.parquet", FileFormatError, "No file fits"),
        ("zero\0.parquet", OptionError, "zero character"),
        (("nowhere.duckdb", "t"), FileFormatError, "no such file"),
        (("a", "b", "c"), OptionError, "path, table name"),
        (17, OptionError, "Got int instead"),
        ([], OptionError, "Got list instead"),
        (pa.array([1]), OptionError, "is no table"),
    ],
)
def test_sources_that_are_none(source, error, text):
    with pytest.raises(error, match=text):
        read_log(source)


def test_a_folder_without_data(tmp_path):
    with pytest.raises(FileFormatError, match="holds no file of a log"):
        read_log(tmp_path)


def test_a_file_of_an_unknown_kind(tmp_path):
    (tmp_path / "log.txt").write_text("hello")
    with pytest.raises(FileFormatError, match="Known endings are"):
        read_log(tmp_path / "log.txt")


def test_files_of_two_kinds(tmp_path):
    with pytest.raises(OptionError, match="several kinds"):
        read_log([parquet(tmp_path), csv(tmp_path)])


def test_a_database_with_several_tables_asks_which(tmp_path):
    path, _ = database_table(tmp_path)
    with pytest.raises(OptionError, match=r"it holds: other, web.the clicks"):
        read_log(path)
    with pytest.raises(OptionError, match="Did you mean 'other'"):
        read_log((path, "othr"))


def test_a_file_that_is_not_what_its_name_says(tmp_path):
    for name in ("log.parquet", "log.duckdb", "log.csv.gz"):
        (tmp_path / name).write_bytes(b"this is neither of them, but long enough to be looked at")
        with pytest.raises(FileFormatError, match="cannot be read"):
            read_log(tmp_path / name)


def test_a_lazy_frame_that_fails():
    with pytest.raises(FileFormatError, match="LazyFrame cannot be read"):
        read_log(pl.LazyFrame({"a": [1]}).select("b"))


def test_pandas_with_two_columns_of_one_name():
    frame = TABLE.to_pandas()
    frame.columns = ["query_id", "session_id", "doc_id", "position", "click", "click"]
    with pytest.raises(ColumnError, match="same name"):
        read_log(frame)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"memory_limit": "plenty"}, "memory_limit must be"),
        ({"threads": 0}, "threads must be"),
        ({"temp_directory": "/nowhere/at/all"}, "temp_directory must be"),
        ({"on_bad": "error"}, "on_bad must be"),
        ({"missing": float("nan")}, "missing must be"),
        ({"labels": "click"}, "labels must be a list"),
        ({"columns": {"query": "q"}}, "Got the key 'query' instead. Did you mean 'query_id'"),
        ({"columns": {"query_id": None}}, "must be a column's name"),
        ({"label": "position"}, "are taken"),
        ({"labels": ["click"]}, "a name that is not taken"),
    ],
)
def test_options_that_make_no_sense(options, text):
    with pytest.raises(OptionError, match=text):
        read_log(TABLE, **options)


def test_more_data_than_memory(tmp_path, rng, monkeypatch):
    """Groups that do not fit into the limit go to disk and come back whole."""
    n_files = []

    def pack_and_look(bench, *arguments, **options):
        packed = packing.pack(bench, *arguments, **options)
        n_files.append(bench.row("SELECT count(*) FROM duckdb_temporary_files()")[0])
        return packed

    monkeypatch.setattr(assembly, "pack", pack_and_look)
    n_sessions = 300_000
    session = np.repeat(np.arange(n_sessions), 5)
    place = np.tile(np.arange(5), n_sessions)
    query = rng.integers(1000, size=n_sessions)[session]
    table = pa.table(
        {
            "query_id": query,
            "session_id": session * 7919,
            "doc_id": (query * 10 + place).astype(str),
            "position": place + 1,
            "click": rng.random(len(place)) < 0.3,
        }
    ).take(pa.array(rng.permutation(len(place))))
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=50_000)
    small = read_log(
        tmp_path / "log.parquet", memory_limit="40MB", temp_directory=tmp_path, threads=1
    )
    large = read_log(table)
    assert n_files[0] > 0 == n_files[1]
    assert small.n_sessions == n_sessions
    np.testing.assert_array_equal(small.document, large.document)
    np.testing.assert_array_equal(small.label, large.label)
    np.testing.assert_array_equal(small.count, large.count)


# In a process of its own: a real interrupt would also reach the test runner.
PRESSED = """
import os, signal, sys, threading, time
from dataclasses import replace
import pyarrow as pa
from untilt.data.read.collapse import assemble as assembly
from untilt.data.read.read_log import read_log

# What a shell starts in the background ignores SIGINT, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

class HardOfHearing:
    # Ends the statement at the fifth call: both presses come while it runs, none afterwards.
    def __init__(self, connection):
        self.connection, self.calls = connection, 0
    def __getattr__(self, name):
        return getattr(self.connection, name)
    def interrupt(self):
        self.calls += 1
        if self.calls > 4:
            self.connection.interrupt()

def press():
    for pause in (0.5, 0.1):
        time.sleep(pause)
        os.kill(os.getpid(), signal.SIGINT)

def pack_for_ages(database, *arguments, **options):
    database = replace(database, connection=HardOfHearing(database.connection))
    threading.Thread(target=press).start()
    database.rows("SELECT max(hash(range)) FROM range(1000000000000000)")

assembly.pack_runs = pack_for_ages
names = ["query_id", "session_id", "doc_id", "position", "click"]
try:
    read_log(pa.table({name: [1] for name in names}), temp_directory=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


# Pressed once, after the statement was handed over and before anybody waits for it.
PRESSED_BETWEEN = """
import sys, time
from dataclasses import replace
import pyarrow as pa
from untilt.data.read.collapse import assemble as assembly
from untilt.data.read.read_log import read_log

class Interrupted:
    def __init__(self, tasks):
        self.tasks = tasks
    def put(self, task):
        self.tasks.put(task)
        time.sleep(0.5)
        raise KeyboardInterrupt

def pack_for_ages(database, *arguments, **options):
    database = replace(database, tasks=Interrupted(database.tasks))
    database.rows("SELECT max(hash(range)) FROM range(1000000000000000)")

assembly.pack_runs = pack_for_ages
names = ["query_id", "session_id", "doc_id", "position", "click"]
try:
    read_log(pa.table({name: [1] for name in names}), temp_directory=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("program", [PRESSED, PRESSED_BETWEEN], ids=["often", "between"])
def test_ctrl_c_is_ctrl_c_and_leaves_nothing(tmp_path, program):
    """Also in the midst of a statement that would take a year."""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_our_error(tmp_path, rng):
    pq.write_table(
        pa.table({n: rng.integers(9, size=10**6) for n in "abcde"}), tmp_path / "l.parquet"
    )
    with pytest.raises(MemoryLimitError, match="Raise memory_limit"):
        read_log(
            tmp_path / "l.parquet",
            columns=dict(zip(TABLE.column_names[:5], "abcde", strict=True)),
            memory_limit="1MB",
        )


# ---- folders whose files are not all of one kind: what is not read is named


def write_as(path, table=TABLE):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet" or not path.suffix:
        pq.write_table(table, path)
    else:
        separator = "\t" if ".tsv" in path.name else ","
        frame = table.to_pandas()
        frame.to_csv(path, index=False, sep=separator)


MIXED = {
    "csv beside parquet": ("b.csv", "1 CSV (b.csv)"),
    "csv in a folder below": ("old/b.csv", "1 CSV (old/b.csv)"),
    "compressed": ("b.tsv.gz", "1 CSV (b.tsv.gz)"),
    "a database": ("b.duckdb", "1 a DuckDB database (b.duckdb)"),
    "json lines": ("b.jsonl", "1 JSON (b.jsonl)"),
    "another kind": ("b.avro", "1 of no kind that can be read (b.avro)"),
    "a note": ("README.md", "1 of no kind that can be read (README.md)"),
    "hidden": (".b.parquet", "1 not finished by their names (.b.parquet)"),
    "half-written": (
        "_temporary/b.parquet",
        "1 not finished by their names (_temporary/b.parquet)",
    ),
}


@pytest.mark.parametrize("case", MIXED)
def test_a_folder_of_several_kinds_names_what_it_would_not_read(tmp_path, case):
    name, told = MIXED[case]
    write_as(tmp_path / "log" / "a.parquet")
    (tmp_path / "log" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "log" / name).write_text("anything")
    with pytest.raises(OptionError) as caught:
        read_log(tmp_path / "log")
    assert told in str(caught.value)
    assert "1 Parquet (a.parquet)" in str(caught.value)
    pattern = str(caught.value).split("such as '")[1].split("'")[0]
    (tmp_path / "log" / "_temporary" / "b.parquet").unlink(missing_ok=True)  # no pattern hides it
    assert read_log(pattern).n_sessions == read_log(TABLE).n_sessions


def test_a_folder_of_one_kind_is_read_whole(tmp_path):
    """By what files are, not by what their names end in: .csv and .tsv.gz, and no ending at all."""
    for name in ("a.csv", "below/b.tsv.gz"):
        write_as(tmp_path / "text" / name, TABLE[:2] if name == "a.csv" else TABLE[2:])
    for name in ("part-0", "below/part-1.parquet", "_SUCCESS", ".part-0.crc", "._a.csv"):
        write_as(tmp_path / "parts" / name, TABLE[:2] if name == "part-0" else TABLE[2:])
    whole = read_log(TABLE)
    for folder in ("text", "parts"):
        assert read_log(tmp_path / folder).n_impressions == whole.n_impressions


def test_a_pattern_may_fit_folders(tmp_path):
    write_as(tmp_path / "day=1" / "a.parquet", TABLE[:2])
    write_as(tmp_path / "day=2" / "a.parquet", TABLE[2:])
    for pattern in ("day=*", "**", "day=*/*"):
        assert read_log(str(tmp_path / pattern)).n_impressions == read_log(TABLE).n_impressions
