"""Missing features: refused, kept or filled, alike by every way into a log and out of it."""

import re

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.data.letor.read_letor import read_letor
from untilt.data.letor.write_letor import write_letor
from untilt.data.read.read_log import read_log, read_log_report
from untilt.data.write_log import write_log
from untilt.errors import BadRowsError, OptionError

LOG = {
    "query_id": [1, 1, 1, 1, 2, 2], "session_id": [1, 1, 2, 2, 3, 3],
    "doc_id": [5, 6, 6, 5, 5, 7], "position": [1, 2, 1, 2, 1, 2], "click": [1, 0, 0, 0, 0, 1],
}  # fmt: skip
NONE, NAN = None, float("nan")
# Of (query 1, documents 5 and 6) and (query 2, documents 5 and 7).
EXPECTED = [[NAN, 1.5], [-0.0, NAN], [NAN, NAN], [3.0, 4.0]]


def in_the_log(first, second):
    """The same gap is NULL in one row and NaN in another."""
    return {**LOG, "f": [first, -0.0, -0.0, second, NONE, 3.0], "g": [1.5, NAN, NONE, 1.5, NAN, 4]}


def sources(tmp_path):
    table = pa.table(in_the_log(NONE, NAN))
    pq.write_table(table, tmp_path / "log.parquet")
    pl.from_arrow(table).write_csv(tmp_path / "log.csv")
    return {
        "Arrow": table, "Polars": pl.from_arrow(table), "pandas": table.to_pandas(),
        "Parquet": tmp_path / "log.parquet", "CSV": tmp_path / "log.csv",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["Arrow", "Polars", "pandas", "Parquet", "CSV"])
def test_kept_from_every_source(tmp_path, kind):
    source = sources(tmp_path)[kind]
    log = read_log(source, features=["f", "g"], missing="keep")
    assert log.missing == "keep"
    np.testing.assert_array_equal(log.features, np.array(EXPECTED, np.float32))
    filled = read_log(source, features=["f", "g"], missing=-2.0)
    np.testing.assert_array_equal(filled.features, np.nan_to_num(EXPECTED, nan=-2.0))
    assert filled.missing == -2.0
    with pytest.raises(BadRowsError, match=r'missing="keep".*missing=0\.0'):
        read_log(source, features=["f", "g"])


def test_kept_in_a_documents_table_and_infinite_ones_are_still_refused():
    documents = {"query_id": [1, 1, 2, 2], "doc_id": [5, 6, 5, 7], "f": [NONE, 1.0, NAN, 2.0]}
    log = read_log(pa.table(LOG), documents=pa.table(documents), missing="keep")
    np.testing.assert_array_equal(log.features, [[np.nan], [1], [np.nan], [2]])
    documents["f"] = [NONE, 1.0, float("inf"), 2.0]
    with pytest.raises(BadRowsError, match="f = inf"):
        read_log(pa.table(LOG), documents=pa.table(documents), missing="keep")


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_written_and_read_again(tmp_path, ending, contents):
    log = read_log(pa.table(in_the_log(NAN, NAN)), features=["f", "g"], missing="keep")
    write_log(log, tmp_path / f"log.{ending}", documents=tmp_path / f"documents.{ending}")
    again = read_log(
        tmp_path / f"log.{ending}", documents=tmp_path / f"documents.{ending}", missing="keep"
    )
    np.testing.assert_array_equal(again.features, log.features)
    assert repr(contents(again)) == repr(contents(log))


def test_parts_of_a_log_keep_gaps_and_know_of_them():
    log = read_log(pa.table(in_the_log(NAN, NAN)), features=["f", "g"], missing="keep")
    parts = [log.collapse(), log.top(1), log.take([0]), *log.split(0.5), *log.split(0.5, "session")]
    assert [part.missing for part in parts] == ["keep"] * 7
    for part in parts:
        rows = [log.doc_id.tolist().index(d) for d in part.doc_id if d != 5]
        kept = [part.doc_id.tolist().index(d) for d in part.doc_id if d != 5]
        np.testing.assert_array_equal(part.features[kept], log.features[rows])
    assert log.collapse().collapse().n_lists == log.n_lists


def test_judged_lists_know_of_them():
    judged = JudgedLists([[np.nan], [1.0]], [0, 1], [0, 1, 2], [1, 2], missing="keep")
    assert judged.take([1]).missing == judged.split(0.5)[0].missing == "keep"


@pytest.mark.parametrize("missing", ["drop", float("nan"), float("inf"), 1e300, True])
def test_wrong_values(missing):
    with pytest.raises(OptionError, match="missing must be 'keep', for rankers that take missing"):
        read_log(pa.table(LOG), missing=missing)
    with pytest.raises(OptionError, match="missing must be 'keep'"):
        ClickLog([1], [1], [0], [0], [], [], [], [], missing=missing)


def test_a_missing_id_or_session_is_seen_in_a_parquet_file(tmp_path):
    """Its notes of least and greatest values leave NaN out; so must nobody who reads them."""
    for name, code in (("session_id", "log.session-missing"), ("doc_id", "log.id-missing")):
        values = np.array(LOG[name], dtype=np.float64)
        values[2] = np.nan
        pq.write_table(pa.table({**LOG, name: values}), tmp_path / "log.parquet")
        log, report = read_log_report(tmp_path / "log.parquet", on_bad="drop")
        assert [(bad.what.code, bad.n_rows) for bad in report.bad] == [(code, 1)]
        assert log.doc_id.dtype == np.int64


def test_letor_text_holds_missing_values(tmp_path):
    features = np.array([[1.5, np.nan], [np.nan, -3], [0, 7]], np.float32)
    judged = JudgedLists(features, [0, 1, 2], [0, 2, 3], [1, 2], missing="keep")
    write_letor(judged, tmp_path / "lists.txt")
    assert "1:1.5 2:nan" in (tmp_path / "lists.txt").read_text(encoding="utf-8")
    again = read_letor(tmp_path / "lists.txt", missing="keep")
    assert again.missing == "keep"
    np.testing.assert_array_equal(again.features, features)
    filled = read_letor(tmp_path / "lists.txt", missing=-1.0)
    np.testing.assert_array_equal(filled.features, np.nan_to_num(features, nan=-1.0))
    with pytest.raises(BadRowsError, match=r"Got '2:nan' instead.*missing='keep' or a number"):
        read_letor(tmp_path / "lists.txt")


@pytest.mark.parametrize("word", ["na", "nano", "+nan", "nan5", "inf"])
def test_other_words_are_no_missing_value_of_letor_text(tmp_path, word):
    (tmp_path / "lists.txt").write_text(f"1 qid:3 1:NaN 2:4\n0 qid:3 1:{word}\n", encoding="utf-8")
    with pytest.raises(BadRowsError, match=f"line 2.*Got '1:{re.escape(word)}'"):
        read_letor(tmp_path / "lists.txt", missing="keep")
