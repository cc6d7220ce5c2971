"""What JSON lines, packed files, SQLite and Arrow files hold, and what is refused in them."""

import json
import os
import sqlite3

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from untilt.data.read.read_log import read_log
from untilt.errors import ColumnError, FileFormatError, OptionError

ROW = {"query_id": 1, "session_id": 1, "doc_id": 1, "position": 1, "click": 1}


def lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---- JSON lines


def test_types_are_those_of_all_values(tmp_path):
    """A whole column decides, not its first lines."""
    rows = [
        {**ROW, "doc_id": 7, "price": 1, "new": True, "note": None},
        {**ROW, "doc_id": "007", "price": 2.5, "new": False, "position": 2, "note": {"a": 1}},
        {**ROW, "doc_id": 8.0, "price": None, "position": 3},
    ]
    path = lines(tmp_path / "log.jsonl", *rows)
    log = read_log(path, features=["price", "new"], missing=-1)
    # A text among the ids makes all of them text, each as it stands there.
    assert log.doc_id.tolist() == ["007", "7", "8.0"]
    np.testing.assert_array_equal(log.features, [[2.5, 0], [1, 1], [-1, -1]])


def test_large_whole_numbers_are_exact(tmp_path):
    path = lines(tmp_path / "log.jsonl", {**ROW, "doc_id": 2**63 - 1})
    assert read_log(path).doc_id.tolist() == [2**63 - 1]
    path = lines(tmp_path / "log.jsonl", {**ROW, "doc_id": 2**70})
    assert read_log(path).doc_id.tolist() == [str(2**70)]


def test_features_stand_in_the_order_of_the_first_line(tmp_path):
    path = lines(tmp_path / "log.jsonl", {"z": 1, **ROW, "b": 2}, {**ROW, "position": 2, "a": 3})
    log = read_log(path, features="*", missing=0)
    assert log.feature_names == ("z", "b", "a")


def test_keys_with_odd_names(tmp_path):
    row = {**ROW, "a/b~c \"d'": 4, "$.x": 5}
    log = read_log(lines(tmp_path / "log.jsonl", row), features=["a/b~c \"d'", "$.x"])
    np.testing.assert_array_equal(log.features, [[4, 5]])


NO_LOGS = {
    "a list a line": ("[1, 2]\n", "no JSON object"),
    "a number": (json.dumps(ROW) + "\n5\n", "no JSON object"),
    "a key twice": ('{"query_id": 1, "query_id": 2}\n', "hold a key twice"),
    "half a line": (json.dumps(ROW) + '\n{"query_id": ', "cannot be read"),
    "no JSON": ("query_id,click\n1,0\n", "cannot be read"),
    "an object as id": (json.dumps({**ROW, "doc_id": {"a": 1}}) + "\n", "whole numbers or text"),
}


@pytest.mark.parametrize("case", NO_LOGS)
def test_json_that_is_no_log(tmp_path, case):
    text, told = NO_LOGS[case]
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises((FileFormatError, ColumnError), match=told):
        read_log(tmp_path / "log.jsonl")


def test_keys_that_hold_values_are_refused(tmp_path):
    path = lines(tmp_path / "log.jsonl", *({f"doc {i}": 1 for i in range(n, n + 100)} for n in range(0, 10_100, 100)))  # fmt: skip  # noqa: E501
    with pytest.raises(FileFormatError, match="more than 10,000 different keys"):
        read_log(path)


# ---- packed files that end too early


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("codec", ["zst", "bz2", "gz"])
def test_a_packed_file_that_was_cut_is_refused(tmp_path, kind, codec):
    """DuckDB reads the first half of a cut .zst and says nothing."""
    n = 30_000
    table = pd.DataFrame({name: np.arange(n) + 1 for name in ROW})
    path = tmp_path / f"log.{kind}.{codec}"
    method = {"zst": "zstd", "bz2": "bz2", "gz": "gzip"}[codec]
    text = table.to_csv(index=False) if kind == "csv" else table.to_json(orient="records", lines=True)  # fmt: skip  # noqa: E501
    with pa.CompressedOutputStream(str(path), method) as stream:
        stream.write(text.encode())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_log(path)


# ---- columns in any case


def test_a_mapped_name_a_label_and_features_in_any_case(tmp_path):
    row = {"SRCH_ID": 1, "SESSION_ID": 1, "Doc_Id": 5, "POSITION": 1, "CLICK": 0, "BOOKED": 1, "F_1": 2.0, "F_2": 3.0}  # fmt: skip  # noqa: E501
    frame = pd.DataFrame([row])
    log = read_log(frame, columns={"query_id": "srch_id"}, labels=["booked"], features="f_*")
    assert log.extra_labels["booked"].tolist() == [1.0]
    assert log.feature_names == ("F_1", "F_2")
    assert read_log(frame, columns={"query_id": "srch_id"}, features=["f_2"]).features[0, 0] == 3
    documents = pd.DataFrame([{"QUERY_ID": 1, "DOC_ID": 5, "PRICE": 9.0}])
    log = read_log(frame, columns={"query_id": "srch_id"}, documents=documents)
    assert log.feature_names == ("PRICE",)


def two_clicks(exact):
    """A log with two columns of clicks that differ in case alone."""
    names = ["click", "CLICK"] if exact else ["CLICK", "Click"]
    return pa.table({**{name: [1, 1] for name in list(ROW)[:3]}, "position": [1, 2], names[0]: [1, 0], names[1]: [0, 0]})  # fmt: skip  # noqa: E501


def as_parquet(table, folder):
    pq.write_table(table, folder / "log.parquet")
    return folder / "log.parquet"


def as_csv(table, folder):
    table.to_pandas().to_csv(folder / "log.csv", index=False)
    return folder / "log.csv"


def as_json(table, folder):
    return lines(folder / "log.jsonl", *table.to_pylist())


def as_feather(table, folder):
    pa.feather.write_feather(table, folder / "log.feather")
    return folder / "log.feather"


ROUTES = {
    "parquet": as_parquet,
    "csv": as_csv,
    "json": as_json,
    "arrow": lambda table, _: table,
    "dataset": lambda table, _: pa.dataset.dataset(table),
    "polars": lambda table, _: pl.from_arrow(table),
    "lazy": lambda table, _: pl.from_arrow(table).lazy(),
    "pandas": lambda table, _: table.to_pandas(),
}


@pytest.mark.parametrize("route", ROUTES)
def test_two_columns_that_differ_in_case_alone(tmp_path, route):
    with pytest.raises(ColumnError, match=r"(?i)differ in upper and lower case only"):
        read_log(ROUTES[route](two_clicks(exact=False), tmp_path))
    # The one that is written as asked for is the one that is meant.
    assert read_log(ROUTES[route](two_clicks(exact=True), tmp_path)).label.tolist() == [1, 0]


@pytest.mark.parametrize("route", [as_feather, lambda table, _: table.to_reader()])
def test_streams_with_such_columns_are_refused(tmp_path, route):
    for exact in (True, False):
        with pytest.raises(ColumnError, match="differ in upper and lower case only"):
            read_log(route(two_clicks(exact), tmp_path))


def test_a_column_that_looks_numbered_is_none(tmp_path):
    table = pa.table({**{name: [1] for name in ROW}, "F": [1.0], "f_1": [2.0]})
    table = table.rename_columns([*(n.upper() for n in ROW), "F", "f_1"])
    log = read_log(as_parquet(table, tmp_path), features=["f", "F_1"])
    np.testing.assert_array_equal(log.features, [[1, 2]])


# ---- SQLite


def made_sqlite(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


CLICKS = "CREATE TABLE clicks (query_id, session_id, doc_id, position, click, price)"


def test_values_of_any_type_in_a_column_of_sqlite(tmp_path):
    path = made_sqlite(
        tmp_path / "log.sqlite",
        CLICKS,
        f"INSERT INTO clicks VALUES (1, 's', {2**60}, 1, '1', 1), (1, 's', 5.0, '2', 0, 2.5)",
    )
    log = read_log(path, features=["price"])
    # As a float 2**60 would still be whole, but 2**60 + 1 would be the same: the ids are text.
    assert sorted(log.doc_id) == [str(2**60), "5.0"]
    assert sorted(log.features[:, 0]) == [1, 2.5]
    assert log.label.tolist() == [1, 0]


def test_a_view_and_a_virtual_table_of_sqlite_are_not_read(tmp_path):
    path = made_sqlite(tmp_path / "log.sqlite", CLICKS, "CREATE VIEW v AS SELECT * FROM clicks")
    with pytest.raises(OptionError, match="it holds: clicks"):
        read_log((path, "v"))
    path = made_sqlite(tmp_path / "v.sqlite", "CREATE VIEW v AS SELECT 1 AS query_id")
    with pytest.raises(OptionError, match="only views"):
        read_log(path)


def test_nothing_is_written_beside_a_sqlite_file_and_its_last_changes_count(tmp_path):
    """A writer that is still there has a write-ahead log with the last rows."""
    path = tmp_path / "log.sqlite"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute(CLICKS)
    writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    writer.execute("INSERT INTO clicks VALUES (1, 1, 1, 1, 1, 1)")
    assert os.path.getsize(f"{path}-wal") > 0
    before = sorted(os.listdir(tmp_path))
    assert read_log(path).n_sessions == 1
    assert sorted(os.listdir(tmp_path)) == before
    writer.close()
    before = path.read_bytes()
    assert read_log(path).n_sessions == 1
    assert os.listdir(tmp_path) == ["log.sqlite"]
    assert path.read_bytes() == before


def test_a_sqlite_file_with_an_unfinished_change_is_refused(tmp_path):
    path = made_sqlite(tmp_path / "log.sqlite", CLICKS)
    (tmp_path / "log.sqlite-journal").write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504))
    with pytest.raises(FileFormatError, match="an unfinished change"):
        read_log(path)


def test_a_damaged_sqlite_file(tmp_path):
    path = made_sqlite(
        tmp_path / "log.sqlite", CLICKS, "INSERT INTO clicks VALUES (1, 1, 1, 1, 1, 1)"
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b"\xa5" * (len(content) - len(content) // 2)
    path.write_bytes(content)
    with pytest.raises((FileFormatError, OptionError)):
        read_log(path)


# ---- Arrow files


def test_a_crafted_arrow_file_is_checked_before_it_is_used(tmp_path):
    """Indices beyond a dictionary: unchecked, they are read from foreign memory."""
    index = np.array([3, 4, 3, 4], np.int32)
    lies = pa.DictionaryArray.from_arrays(pa.array(index), pa.array(["a", "b", "c", "d", "e"]))
    table = pa.table({**{name: [1] * 4 for name in ROW}, "doc_id": lies})
    path = tmp_path / "log.feather"
    pa.feather.write_feather(table, path, compression="uncompressed")
    content = path.read_bytes()
    assert content.count(index.tobytes()) == 1
    path.write_bytes(content.replace(index.tobytes(), np.full(4, 10**6, np.int32).tobytes()))
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_log(path)


def test_an_old_feather_file_says_so(tmp_path):
    (tmp_path / "log.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    with pytest.raises(FileFormatError, match="version 1"):
        read_log(tmp_path / "log.feather")


def test_a_table_of_a_file_that_has_none(tmp_path):
    with pytest.raises(OptionError, match="has no tables in it"):
        read_log((as_parquet(two_clicks(exact=True), tmp_path), "clicks"))


# ---- folders of table formats


def delta(folder):
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / "00000000000000000000.json").write_text("{}")


def iceberg(folder):
    (folder / "metadata").mkdir(parents=True)
    for name in ("00000-a.metadata.json", "00010-b.metadata.json", "00009-c.metadata.json"):
        (folder / "metadata" / name).write_text("{}")


def hudi(folder):
    (folder / ".hoodie").mkdir(parents=True)
    (folder / ".hoodie" / "hoodie.properties").write_text("")


FORMATS = {
    "Delta": (delta, r"deltalake\.DeltaTable\('[^']*log'\)"),
    "Iceberg": (iceberg, r"from_metadata\('[^']*log/metadata/00010-b.metadata.json'\)"),
    "Hudi": (hudi, "engine that knows Hudi"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_of_a_table_format_is_never_read_as_plain_files(tmp_path, name):
    """Nor a pattern for its files, a folder inside it, one file of it, or a folder of such."""
    make, told = FORMATS[name]
    log = tmp_path / "tables" / "log"
    make(log)
    part = log / "data" / "day=1" / "part-0.parquet"
    part.parent.mkdir(parents=True)
    pq.write_table(two_clicks(exact=True), part)
    link = tmp_path / "link.parquet"
    link.symlink_to(part)
    ways = [log, str(log / "**" / "*.parquet"), log / "data", part, [part], log.parent, link]
    for way in ways:
        with pytest.raises(OptionError, match=told):
            read_log(way)
    with pytest.raises(OptionError, match=f"is an? {name} table"):
        read_log(log)


def test_a_folder_that_is_merely_called_metadata(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "notes.json").write_text("{}")
    (tmp_path / "log").mkdir()
    assert read_log(as_parquet(two_clicks(exact=True), tmp_path / "log")).n_sessions == 1


# ---- objects of other libraries


def test_a_cursor_without_a_result():
    class Closed:
        def fetch_record_batch(self):
            raise RuntimeError("nothing was executed")

    with pytest.raises(OptionError, match="Run a query first"):
        read_log(Closed())
