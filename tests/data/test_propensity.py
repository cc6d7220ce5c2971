"""Logged propensities: a column with a role of its own, kept row by row through every collapse."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import untilt as ut

ROWS = pd.DataFrame({
    "query_id": 1,
    "session_id": np.repeat(np.arange(4), 2),
    "doc_id": [1, 2, 1, 2, 2, 1, 1, 2],
    "position": [1, 2] * 4,
    "click": [1, 0, 1, 0, 0, 0, 1, 0],
    "propensity": [0.75, 0.75, 0.75, 0.75, 0.25, 0.25, 0.5, 0.5],
})  # fmt: skip


def rows_of(log: ut.ClickLog) -> list[tuple[float, ...]]:
    """Document, position, click, propensity and sessions of each row."""
    assert log.propensity is not None
    columns = (log.doc_id[log.document], log.position, log.label, log.propensity, log.row_count)
    return sorted(zip(*(each.tolist() for each in columns), strict=True))


def test_equal_lists_merge_where_their_propensities_are_equal(tmp_path) -> None:
    log = ut.read_log(ROWS)
    assert sorted(log.count.tolist()) == [1, 1, 2]
    assert rows_of(log) == [
        (1, 1, 1.0, 0.5, 1), (1, 1, 1.0, 0.75, 2), (1, 2, 0.0, 0.25, 1),
        (2, 1, 0.0, 0.25, 1), (2, 2, 0.0, 0.5, 1), (2, 2, 0.0, 0.75, 2),
    ]  # fmt: skip
    apart = ut.read_log(ROWS, collapse=False)
    assert rows_of(apart.collapse()) == rows_of(log)
    assert len(np.unique(apart.take([0, 3]).propensity)) == 2
    ut.write_log(log, tmp_path / "log.parquet")
    assert rows_of(ut.read_log(tmp_path / "log.parquet")) == rows_of(log)


def test_a_warehouse_keeps_them_apart_too() -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("clicks", ROWS)
    named = {"propensity": "propensity"}
    counted = connection.sql(ut.collapse_sql("clicks", depth=3, columns=named))
    assert rows_of(ut.read_log(counted)) == rows_of(ut.read_log(ROWS))
    assert len(counted.fetchall()) == 6


def test_the_column_may_have_another_name_or_be_left_out() -> None:
    other = ROWS.rename(columns={"propensity": "pscore"})
    assert ut.read_log(other).propensity is None
    named = ut.read_log(other, columns={"propensity": "pscore"})
    assert rows_of(named) == rows_of(ut.read_log(ROWS))
    without = ut.read_log(ROWS, columns={"propensity": None})
    assert without.propensity is None
    assert sorted(without.count.tolist()) == [1, 3]
    extra = ut.read_log(ROWS.assign(buy=ROWS.click), labels=["buy"])
    assert list(extra.extra_labels) == ["buy", "propensity"]


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.01, np.nan, np.inf])
def test_what_is_no_probability_is_refused_with_its_row(bad: float) -> None:
    rows = ROWS.copy()
    rows.loc[4, "propensity"] = bad
    with pytest.raises(ut.UntiltError, match="no probability above 0 and at most 1") as found:
        ut.read_log(rows)
    assert "session 2, query 1, document 2, position 1: propensity = " in str(found.value)
    with pytest.warns(ut.DroppedRowsWarning):
        assert ut.read_log(rows, on_bad="drop").n_impressions == 7
    log = ut.read_log(ROWS)
    with pytest.raises(ut.UntiltError):
        replace(log, extra_labels={"propensity": np.full(len(log.label), bad)})
