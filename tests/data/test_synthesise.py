"""One label out of several columns."""

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog
from untilt.data.read.read_log import read_log
from untilt.data.transform import synthesise
from untilt.data.write_log import write_log
from untilt.errors import ColumnError, OptionError


@pytest.fixture
def log():
    return ClickLog(
        query_id=[7], doc_id=[1, 2], doc_query=[0, 0], indptr=[0, 2, 4, 6], query=[0, 0, 0],
        document=[0, 1, 1, 0, 0, 1], position=[1, 2, 1, 2, 1, 2], label=[1, 0, 1, 1, 1, 0],
        extra_labels={"dwell": [4.0, 0, 9.0, 16.0, 4.0, 0], "liked": [0, 0, 1, 0, 0, 0]},
        count=[2, 1, 3],
    )  # fmt: skip


def test_sum(log):
    made = synthesise(log, {"click": 1.0, "dwell": 0.5, "liked": 10})
    assert made.label.tolist() == [3, 0, 15.5, 9, 3, 0]
    assert made.label_name == "synthesised"
    assert set(made.extra_labels) == {"click", "dwell", "liked"}
    assert made.with_label("click").label.tolist() == log.label.tolist()


def test_product(log):
    made = synthesise(log, {"click": 1.0, "dwell": 0.5}, combine="product", name="watched")
    assert made.label.tolist() == [2, 0, 3, 4, 2, 0]
    assert made.label_name == "watched"


def test_one_column_is_that_column(log):
    assert synthesise(log, {"dwell": 1.0}).label.tolist() == log.extra_labels["dwell"].tolist()


def test_collapse_is_exact(log):
    """The first and the last list are alike in every column; the second is not."""
    made = synthesise(log, {"click": 1.0, "dwell": 0.5})
    small = made.collapse()
    assert small.sessions.tolist() == [5, 1]
    before = synthesise(log.collapse(), {"click": 1.0, "dwell": 0.5})
    assert before.label.tolist() == small.label.tolist()
    assert float(np.dot(made.label, made.row_count)) == np.dot(small.label, small.row_count)


def test_written_and_read(log, tmp_path):
    made = synthesise(log, {"click": 1.0, "dwell": 0.5})
    write_log(made, tmp_path / "log.parquet")
    again = read_log(
        tmp_path / "log.parquet", label="synthesised", labels=["click", "dwell", "liked"]
    )
    small = made.collapse()
    assert again.sessions.sum() == small.sessions.sum()
    assert sorted(again.label.tolist()) == sorted(small.label.tolist())
    assert sorted(again.extra_labels["dwell"]) == sorted(small.extra_labels["dwell"])
    columns = {"click": 1.0, "dwell": 0.5}
    assert synthesise(again, columns, name="again").label == pytest.approx(again.label)


def test_errors(log):
    with pytest.raises(ColumnError, match=r"no label column 'dwel'.*click, dwell, liked.*'dwell'"):
        synthesise(log, {"dwel": 1.0})
    with pytest.raises(OptionError, match=r"weight of 'dwell' must be a number above 0\. Got -1"):
        synthesise(log, {"dwell": -1})
    with pytest.raises(OptionError, match="combine must be one of 'sum', 'product'"):
        synthesise(log, {"dwell": 1.0}, combine="max")
    with pytest.raises(OptionError, match="weights must name label columns"):
        synthesise(log, {})
    with pytest.raises(OptionError, match="has a label 'dwell' already"):
        synthesise(log, {"click": 1.0}, name="dwell")
