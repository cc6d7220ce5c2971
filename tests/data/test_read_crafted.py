"""Crafted content: every file here is made by code, and is read or refused in a sentence."""

import datetime
import gzip
import os
import subprocess
import sys
import time
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from untilt.data.read.read_log import read_log, read_log_report
from untilt.errors import BadRowsError, ColumnError, FileFormatError, OptionError, UntiltError

HEADER = "query_id,session_id,doc_id,position,click\n"
GOOD = HEADER + "1,1,1,1,1\n1,1,2,2,0\n"
BASE = {
    "query_id": [1, 1, 2],
    "session_id": [1, 1, 2],
    "doc_id": [1, 2, 1],
    "position": [1, 2, 1],
    "click": [1, 0, 0],
}

# Values of any type that a column may have, three of each.
VALUES = {
    "decimal": pa.array([Decimal(1)] * 3),
    "38 digits": pa.array([Decimal(10) ** 37] * 3, pa.decimal128(38, 0)),
    "70 digits": pa.array([Decimal(10) ** 60] * 3, pa.decimal256(70, 0)),
    "list": pa.array([[1]] * 3),
    "struct": pa.array([{"a": 1}] * 3),
    "bytes": pa.array([b"\xff\x00"] * 3),
    "duration": pa.array([1] * 3, pa.duration("us")),
    "interval": pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval()),
    "far seconds": pa.array([2**62] * 3, pa.timestamp("s")),
    "far days": pa.array([2**60] * 3, pa.date64()),
    "first nanosecond": pa.array([-(2**63)] * 3, pa.timestamp("ns")),
    "unsigned": pa.array([2**64 - 1] * 3, pa.uint64()),
    "least": pa.array([-(2**63), 2**63 - 1, 0]),
    "1e300": pa.array([1e300, 1.0, 1.0]),
    "nan": pa.array([float("nan"), 1.0, 1.0]),
    "-0": pa.array([-0.0, 1.0, 1.0]),
    "infinite": pa.array([float("inf"), 1.0, 1.0]),
    "nothing": pa.nulls(3),
    "long": pa.array(["x" * 3_000_000] * 3),
    "zero characters": pa.array(["a\0b", "a", "a\0"]),
    "numbers as text": pa.array(["1e999", "0x10", "-0"]),
    "no text": pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.array([0, 2, 4, 6], np.int32)),
                         pa.py_buffer(b"\xff\xfe\xff\xfe\xc3(")],
    ),
    "1e18": pa.array([10**18] * 3),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_column_of_any_type_is_read_or_refused(tmp_path, name):
    for role in ("query_id", "position", "click", "count", "timestamp"):
        source = pa.table({**BASE, role: VALUES[name]})
        try:
            pq.write_table(source, tmp_path / "log.parquet")
            source = tmp_path / "log.parquet"
        except pa.ArrowException:
            pass  # no such type in Parquet: the table itself is read
        try:
            log = read_log(source, collapse=role != "timestamp")
        except UntiltError:
            continue
        assert log.n_impressions == 3
        assert log.position.min() >= 1
        assert np.isfinite(log.label).all()


@pytest.mark.parametrize("role", ["position", "count", "click", "query_id", "doc_id"])
def test_nan_in_parquet_is_a_bad_row_of_that_column(tmp_path, role):
    """The least and greatest value that the file notes leave NaN out, and DuckDB believes them."""
    table = pa.table({**BASE, role: pa.array([float("nan"), 1.0, 1.0])})
    pq.write_table(table, tmp_path / "log.parquet")
    _, report = read_log_report(tmp_path / "log.parquet", on_bad="drop")
    (bad,) = report.bad
    assert bad.n_rows == 1
    assert bad.what.fields["column"] == role


def test_counts_that_cannot_be_added_up_are_refused():
    most = 2**53
    fine = pa.table({**BASE, "count": [most // 4] * 3})
    assert read_log(fine).n_sessions == most // 2
    for collapse in (True, False):
        with pytest.raises(BadRowsError, match="add up to 27,021,597,764,222,976 impressions"):
            read_log(pa.table({**BASE, "count": [most] * 3}), collapse=collapse)


DAMAGED = {
    "junk": os.urandom(5000),
    "zero bytes": bytes(5000),
    "UTF-16": GOOD.encode("utf-16"),
    "Latin-1": GOOD.encode() + b"\xe9,1,1,1,1\n",
    "too few": GOOD.encode() + b"1,2\n",
    "too many": GOOD.encode() + b"1,2,3,4,5,6,7\n",
    "no end of a quote": GOOD.encode() + b'"1,2,3,4,5\n' * 3,
    "a long line in the middle": GOOD.encode() + b"1" * 5_000_000 + b",9,9,1,1\n" + b"3,3,3,1,1\n",
    "a long first line": b"a" * 3_000_000,
    "a quote over many lines": b'"' + b"a\n" * 1_000_000,
    "nothing": b"",
    "a 400-digit position": GOOD.encode() + b"3,3,3," + b"9" * 400 + b",1\n",
    "1e400": GOOD.encode() + b"3,3,3,1,1e400\n",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_csv_is_refused(tmp_path, name):
    path, start = tmp_path / "log.csv", time.process_time()
    path.write_bytes(DAMAGED[name])
    with pytest.raises(UntiltError):
        read_log(path)
    assert time.process_time() - start < 5


def test_a_last_line_that_is_longer_than_the_reader_is_not_left_out(tmp_path):
    """DuckDB 2.0 leaves such a line out without a word."""
    for path in (tmp_path / "log.csv", tmp_path / "log.csv.gz"):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "wb") as file:
            file.write(GOOD.encode() + b"7" * (40 << 20) + b",9,9,1,1\n")
        with pytest.raises(FileFormatError, match=r"a line of more than 2,097,152 bytes"):
            read_log(path)


def test_gzip_with_another_checksum_is_refused(tmp_path):
    path, packed = tmp_path / "log.csv.gz", gzip.compress(GOOD.encode())
    path.write_bytes(packed + gzip.compress(b"2,2,1,1,1\n"))
    assert read_log(path).n_sessions == 2
    for damaged in (
        packed[:-8] + bytes(4) + packed[-4:],
        packed[:-4] + bytes(4),
        packed[:-9],
        packed + b"junk",
        GOOD.encode(),
        b"",
    ):
        path.write_bytes(damaged)
        with pytest.raises(UntiltError):
            read_log(path)


@pytest.mark.parametrize("n", [250_000, pytest.param(5_000_000, marks=pytest.mark.slow)])
def test_many_equal_rows_in_a_small_file_take_no_memory(tmp_path, n):
    """Twenty million rows in 320 kB, all of one session at one position."""
    path = tmp_path / "log.parquet"
    piece = pa.table(
        {name: pa.array(np.ones(n, np.int8)) for name in BASE}, schema=pa.schema(
            [(name, pa.int8()) for name in BASE])
    )  # fmt: skip
    with pq.ParquetWriter(path, piece.schema) as writer:
        for _ in range(4):
            writer.write_table(piece, row_group_size=n)
    assert path.stat().st_size < 400_000
    with pytest.warns(UserWarning, match=f"{4 * n - 1:,} rows repeat other rows"):
        assert read_log(path).n_impressions == 1


def test_names_of_columns_that_sql_knows_otherwise(tmp_path):
    table = pa.table({**BASE, 'a"; DROP TABLE x; --': [1.0, 2.0, 3.0], "Click": [5, 5, 5]})
    pq.write_table(table, tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet", features='a"*')
    assert log.feature_names == ('a"; DROP TABLE x; --',)
    assert log.label.sum() == 1
    with pytest.raises(ColumnError, match="Rename that column"):
        read_log(pd.DataFrame({**BASE, "a\0b": [1.0, 2.0, 3.0]}), features="a*")


class Wordless:
    """An object without text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class NoStream:
    """What claims to be a table and is none."""

    def __arrow_c_stream__(self, _schema: object = None) -> object:
        return 5


def test_values_of_frames_without_text():
    for value in (Wordless(), 10**5000):
        with pytest.raises(ColumnError, match="column 'click' of the pandas DataFrame"):
            read_log(pd.DataFrame({**BASE, "click": pd.Series([value, 1, 0], dtype=object)}))
    with pytest.raises(FileFormatError):
        read_log(pl.scan_parquet("no-such-file.parquet"))
    with pytest.raises(FileFormatError, match="no Arrow stream"):
        read_log(NoStream())
    with pytest.raises(OptionError):
        read_log(pd.DataFrame)


@pytest.mark.parametrize(
    "options",
    [
        {"columns": "x"},
        {"columns": [1]},
        {"columns": {1: 2}},
        {"label": None},
        {"labels": [1]},
        {"labels": 5},
        {"context": [None]},
        {"features": 5},
        {"features": [5]},
        {"threads": 10**9},
        {"threads": "2"},
        {"threads": 1.5},
        {"temp_directory": "\0"},
        {"temp_directory": 5},
        {"memory_limit": "much"},
        {"memory_limit": 10**30},
    ],
)
def test_options_of_other_types(options):
    with pytest.raises(OptionError):
        read_log(pa.table(BASE), **options)


def test_times_before_and_after_all_calendars():
    far = datetime.date.max
    log = read_log(pa.table({**BASE, "timestamp": [far] * 3}), collapse=False)
    assert log.time is not None
    with pytest.raises(UntiltError):
        read_log(pa.table({**BASE, "timestamp": VALUES["far days"]}), collapse=False)


STATED = {"query_id": 1_000_003, "session_id": 2_000_003, "doc_id": 3_000_017, "position": 997}


def test_statistics_that_lie(tmp_path):
    """A file may state any least and largest value: DuckDB would size its tables by them."""
    rows = {
        "query_id": np.repeat(np.arange(20), 10),
        "session_id": np.repeat(np.arange(100), 2),
        "doc_id": np.tile(np.arange(10), 20),
        "position": np.tile([1, 2], 100),
        "click": np.tile([0, 1], 100),
    }
    for name, largest in STATED.items():
        rows[name][-1] = largest
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(rows), path, use_dictionary=False, compression="none")
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for name, largest in STATED.items():
        lie = data[footer:].replace(largest.to_bytes(8, "little"), bytes(8))
        assert lie != data[footer:]
        (tmp_path / f"{name}.parquet").write_bytes(data[:footer] + lie)
    code = (
        "import sys; from untilt.data.read.read_log import read_log\n"
        "for path in sys.argv[1:]: print(read_log(path))"
    )
    paths = [str(path), *(str(tmp_path / f"{name}.parquet") for name in STATED)]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {str(read_log(pa.table(rows)))}


def test_a_name_of_a_parquet_column_that_is_no_text_is_refused(tmp_path):
    names = ("query_id", "session_id", "doc_id", "position", "click", "damaged")
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({name: [1] for name in names}), path)
    path.write_bytes(path.read_bytes().replace(b"damaged", b"dam\xffged"))
    with pytest.raises(UntiltError):
        read_log(path)
