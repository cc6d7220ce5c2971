"""Every bad row is named with its fix, and can be dropped and counted."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from untilt.data.read.bad_rows import _FIXES
from untilt.data.read.collapse import assemble as lists
from untilt.data.read.read_log import DroppedRowsWarning, read_log, read_log_report
from untilt.errors import BadRowsError, ColumnError, OptionError
from untilt.facts import codes, phrase

GOOD: dict[str, list[Any]] = {
    "query_id": [1, 1, 1, 1],
    "session_id": [10, 10, 11, 11],
    "doc_id": [5, 6, 5, 6],
    "position": [1, 2, 1, 2],
    "click": [1.0, 0.0, 1.0, 0.0],
    "ranker": ["a", "a", "a", "a"],
    "count": [2, 2, 1, 1],
    "timestamp": [100, 100, 200, 200],
}


def broken(column, row, value, **more):
    """The good log with one value exchanged."""
    table = {**{name: list(values) for name, values in GOOD.items()}, **more}
    table[column][row] = value
    return table


# the log, the code of the rule, what the message shows, rows that "drop" drops
BAD_VALUES = {
    "query missing": (broken("query_id", 1, None), "log.id-missing", "query NULL", 1),
    "session missing": (broken("session_id", 1, None), "log.session-missing", "session NULL", 1),
    "document missing": (broken("doc_id", 1, None), "log.id-missing", "document NULL", 1),
    "position missing": (broken("position", 1, None), "log.bad-position", "position = NULL", 1),
    "position 0": (broken("position", 1, 0), "log.bad-position", "position = 0", 1),
    "position negative": (broken("position", 1, -3), "log.bad-position", "position = -3", 1),
    "position broken": (broken("position", 1, 1.5), "log.bad-position", "position = 1.5", 1),
    "position infinite": (broken("position", 1, np.inf), "log.bad-position", "position = inf", 1),
    "position huge": (broken("position", 1, 2**31), "log.bad-position", "position = 2147483648", 1),
    "click missing": (broken("click", 1, None), "log.bad-label", "click = NULL", 1),
    "click NaN": (broken("click", 1, np.nan), "log.bad-label", "click = nan", 1),
    "click negative": (broken("click", 1, -1.0), "log.bad-label", "click = -1.0", 1),
    "click infinite": (broken("click", 1, np.inf), "log.bad-label", "click = inf", 1),
    "ranker missing": (broken("ranker", 1, None), "log.ranker-missing", "session 10", 1),
    "count 0": (broken("count", 1, 0), "log.bad-count", "count = 0", 1),
    "position twice": (
        broken("position", 1, 1),
        "log.position-twice",
        "session 10, query 1: position 1 shows 5 and 6",
        2,
    ),
    "two rankers": (
        broken("ranker", 1, "b"),
        "log.session-differs",
        "session 10, query 1: ranker a and b",
        2,
    ),
    "two counts": (
        broken("count", 1, 7),
        "log.session-differs",
        "session 10, query 1: count 2 and 7",
        2,
    ),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_rows_are_refused_and_named(name):
    columns, code, example, _ = BAD_VALUES[name]
    with pytest.raises(BadRowsError) as caught:
        read_log(pa.table(columns))
    message = str(caught.value)
    assert example in message
    assert f"Fix: {phrase(_FIXES[code])}." in message
    assert 'on_bad="drop"' in message


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_rows_are_dropped_and_counted(name, contents, checked):
    columns, code, _, n_dropped = BAD_VALUES[name]
    log, report = read_log_report(pa.table(columns), on_bad="drop")
    assert (report.n_rows, report.n_dropped) == (4, n_dropped)
    assert [bad.n_rows for bad in report.bad] == [n_dropped]
    assert codes(bad.what for bad in report.bad) == [code]
    kept = pa.table({k: v[:1] + v[2:] if n_dropped == 1 else v[2:] for k, v in columns.items()})
    assert contents(checked(log)) == contents(read_log(kept))


def test_dropping_warns_with_the_counts():
    columns, *_ = BAD_VALUES["click NaN"]
    with pytest.warns(DroppedRowsWarning, match="4 rows, 1 dropped\n  1 row of the log: click is"):
        read_log(pa.table(columns), on_bad="drop")


def test_clean_logs_are_silent():
    _, report = read_log_report(pa.table(GOOD), on_bad="drop")
    assert (report.n_dropped, report.bad) == (0, ())
    assert str(report) == "the Arrow Table: 4 rows, 0 dropped"


def test_all_kinds_are_told_at_once_and_a_row_counts_once():
    columns = broken("position", 3, 1)  # session 11: position 1 twice
    columns["click"][0] = np.nan
    columns["position"][0] = 0  # this row breaks two rules, the first one counts
    log, report = read_log_report(pa.table(columns), on_bad="drop")
    assert [bad.n_rows for bad in report.bad] == [1, 2]
    assert report.n_dropped == 3
    assert log.n_impressions == 2  # what is left: one row that stands for two sessions
    with pytest.raises(BadRowsError, match=r"(?s)position is no whole.*shows a position twice"):
        read_log(pa.table(columns))


def test_at_most_five_examples():
    table = {name: values * 5 for name, values in GOOD.items()}
    table["session_id"] = list(range(20))
    table["position"] = [0] * 20
    with pytest.raises(BadRowsError) as caught:
        read_log(pa.table(table))
    message = str(caught.value)
    assert "20 rows of the log" in message
    assert [f"session {i}," in message for i in range(6)] == [True] * 5 + [False]


def test_a_bad_list_among_many_batches(monkeypatch):
    """The fast path stops in the midst of its result, and the connection is used again."""
    monkeypatch.setattr(lists, "_BATCH_ROWS", 4)
    n = 200
    table = {
        "query_id": list(range(n)) * 2,
        "session_id": list(range(n)) * 2,
        "doc_id": [1] * n + [2] * n,
        "position": [1] * n + [2] * (n // 2) + [1] + [2] * (n - n // 2 - 1),
        "click": [0] * 2 * n,
    }
    log, report = read_log_report(pa.table(table), on_bad="drop")
    assert (report.n_dropped, log.n_sessions) == (2, n - 1)
    with pytest.raises(BadRowsError, match=f"session {n // 2}, query {n // 2}: position 1"):
        read_log(pa.table(table))


def test_a_bad_time_matters_only_where_time_is_kept():
    table = pa.table(broken("timestamp", 1, None))
    assert read_log(table).n_sessions == 3
    with pytest.raises(BadRowsError, match="timestamp is missing or no time"):
        read_log(table, collapse=False)
    assert read_log(table, collapse=False, columns={"timestamp": None}).time is None


def test_text_labels_name_the_values_that_are_no_numbers():
    table = pa.table({**GOOD, "click": ["1", "true", "yes?", "0.5"]})
    with pytest.raises(BadRowsError, match=r"1 row of the log: click.*\n.*click = yes\?"):
        read_log(table)
    log, _ = read_log_report(table, on_bad="drop")
    np.testing.assert_array_equal(np.sort(log.label), [0.5, 1, 1])


@pytest.mark.parametrize(
    "values",
    [
        ["none", "one", "none", "two"],
        np.array(["2024-01-01"] * 4, "datetime64[us]"),
        [[1], [0], [1], [0]],
    ],
    ids=["text", "dates", "lists"],
)
def test_a_column_that_cannot_be_a_label(values):
    with pytest.raises(ColumnError, match="numbers or true/false"):
        read_log(pa.table({**GOOD, "click": values}))


def test_a_column_that_cannot_be_an_id():
    with pytest.raises(ColumnError, match="doc_id must be a column of whole numbers or text"):
        read_log(pa.table({**GOOD, "doc_id": [[1], [2], [3], [4]]}))


def test_everything_dropped_is_an_empty_log():
    table = pa.table({**GOOD, "position": [0, 0, 0, 0]})
    log, report = read_log_report(table, on_bad="drop")
    assert (log.n_lists, log.n_documents, report.n_dropped) == (0, 0, 4)


# ---- documents

DOCUMENTS: dict[str, list[Any]] = {
    "query_id": [1, 1, 1],
    "doc_id": [5, 6, 7],
    "f": [0.5, 1.5, 2.5],
    "g": [1, 2, 3],
}


def test_a_document_without_features():
    documents = pa.table({name: values[:1] for name, values in DOCUMENTS.items()})
    with pytest.raises(BadRowsError) as caught:
        read_log(pa.table(GOOD), documents=documents)
    message = str(caught.value)
    assert "2 rows of the log: a document without features" in message
    assert "session 10, query 1, document 6, position 2" in message
    log, report = read_log_report(pa.table(GOOD), documents=documents, on_bad="drop")
    assert report.n_dropped == 2
    assert (log.n_documents, log.n_impressions) == (1, 3)


@pytest.mark.parametrize("value", [None, np.nan, np.inf, 1e300])
def test_a_bad_feature(value):
    documents = pa.table({**DOCUMENTS, "f": [0.5, value, 2.5]})
    with pytest.raises(BadRowsError) as caught:
        read_log(pa.table(GOOD), documents=documents)
    message = str(caught.value)
    assert "1 row of the documents table: a feature is missing, no number, or not" in message
    assert "query 1, document 6: f = " in message
    _, report = read_log_report(pa.table(GOOD), documents=documents, on_bad="drop")
    # The document goes, and with it the two impressions that show it.
    assert report.n_dropped == 2
    assert [(bad.table, bad.n_rows) for bad in report.bad] == [("documents table", 1), ("log", 2)]


def test_a_missing_feature_can_be_given_a_value():
    documents = pa.table({**DOCUMENTS, "f": [None, np.nan, 2.5]})
    log = read_log(pa.table(GOOD), documents=documents, missing=-1.0)
    np.testing.assert_array_equal(log.features, [[-1, 1], [-1, 2], [2.5, 3]])
    with pytest.raises(BadRowsError, match="f = inf"):
        read_log(
            pa.table(GOOD), documents=pa.table({**DOCUMENTS, "f": [0, np.inf, 1]}), missing=0.0
        )


def test_a_document_with_two_sets_of_features():
    rows = {name: [*values, values[0]] for name, values in DOCUMENTS.items()}
    same = read_log(pa.table(GOOD), documents=pa.table(rows))
    assert same.n_documents == 3  # the same row twice does no harm
    rows["g"] = [1, 2, 3, 9]
    with pytest.raises(BadRowsError, match="query 1, document 5: g = 1 and 9"):
        read_log(pa.table(GOOD), documents=pa.table(rows))
    log, report = read_log_report(pa.table(GOOD), documents=pa.table(rows), on_bad="drop")
    assert log.doc_id.tolist() == [6, 7]
    assert [(bad.table, bad.n_rows) for bad in report.bad] == [("documents table", 2), ("log", 2)]


def test_long_lists_of_which_no_document_is_in_the_table():
    rows = {"query_id": ["a"], "session_id": [1], "doc_id": ["x"], "position": [900], "click": [0]}
    documents = pa.table({"query_id": ["a"], "doc_id": ["y"], "g": [1.0]})
    with pytest.raises(BadRowsError, match="a document without features"):
        read_log(pa.table(rows), documents=documents)


def test_a_document_row_without_an_id():
    documents = pa.table({**DOCUMENTS, "doc_id": [5, 6, None]})
    with pytest.raises(BadRowsError, match="1 row of the documents table: doc_id is missing"):
        read_log(pa.table(GOOD), documents=documents)
    log, report = read_log_report(pa.table(GOOD), documents=documents, on_bad="drop")
    assert (log.n_documents, report.n_dropped) == (2, 0)


def test_features_in_the_log_that_differ_between_impressions_are_versions():
    table = pa.table({**GOOD, "f": [1.0, 2.0, 1.0, 3.0]})
    log, report = read_log_report(table, features=["f"])
    assert (report.n_dropped, report.bad, report.changing_features) == (0, (), ("f",))
    assert log.features.tolist() == [[1.0], [2.0], [3.0]]
    assert (log.doc_id.tolist(), log.item.tolist()) == ([5, 6, 6], [0, 1, 1])


def test_rows_are_dropped_also_where_features_change():
    table = pa.table({**GOOD, "f": [1.0, 2.0, np.nan, 3.0]})
    log, report = read_log_report(table, features=["f"], on_bad="drop")
    assert [(bad.what.code, bad.n_rows) for bad in report.bad] == [("log.bad-feature", 1)]
    assert (log.features.tolist(), report.changing_features) == ([[1.0], [2.0], [3.0]], ("f",))


def test_a_bad_feature_in_the_log():
    table = pa.table({**GOOD, "f": [1.0, 2.0, 1.0, np.nan]})
    with pytest.raises(BadRowsError, match="1 row of the log: a feature is missing"):
        read_log(table, features=["f"])
    log, report = read_log_report(table, features=["f"], on_bad="drop")
    assert (report.n_dropped, log.doc_id.tolist()) == (1, [5, 6])
    assert log.n_impressions == 5


# ---- positions that count from 0


def counted_from(start, n_sessions=40, lost=()):
    """Lists of three documents; sessions in `lost` lack their top row."""
    rows = [
        (session % 4, session, document, start + k, int(document == session % 3))
        for session in range(n_sessions)
        for k, document in enumerate((0, 1, 2))
        if not (k == 0 and session in lost)
    ]
    columns = zip(*rows, strict=True)
    names = ("query_id", "session_id", "doc_id", "position", "click")
    return pa.table(dict(zip(names, map(list, columns), strict=True)))


def test_a_log_that_counts_from_0_is_refused_whatever_is_to_be_dropped():
    for on_bad in ("raise", "drop"):
        with pytest.raises(BadRowsError) as caught:
            read_log(counted_from(0, lost={5}), on_bad=on_bad)
        told = str(caught.value)
        assert "position counts from 0: it is 0 at the top of 39 of 40 lists" in told
        assert "positions_from=0" in told
        assert "on_bad" not in told


@pytest.mark.parametrize("kind", ["whole", "float", "text", "csv", "parquet"])
def test_positions_from_0_are_read_from_1(tmp_path, kind):
    table, expected = counted_from(0), read_log(counted_from(1))
    if kind in ("float", "text"):
        type_ = pa.float64() if kind == "float" else pa.string()
        table = table.set_column(3, "position", table["position"].cast(type_))
    source = table
    if kind == "csv":
        source = tmp_path / "log.csv"
        table.to_pandas().to_csv(source, index=False)
    elif kind == "parquet":
        source = tmp_path / "log.parquet"
        pq.write_table(table, source)
    for collapse in (True, False):
        log = read_log(source, positions_from=0, collapse=collapse)
        assert log.position.min() == 1
        assert log.n_impressions == expected.n_impressions
        assert log.ctr_by_position().rate.tolist() == expected.ctr_by_position().rate.tolist()


def test_positions_from_0_must_be_true():
    with pytest.raises(OptionError, match=r"no row of .* has position 0: the smallest is 1"):
        read_log(counted_from(1), positions_from=0)
    with pytest.raises(OptionError, match="positions_from must be 0 or 1"):
        read_log(counted_from(5), positions_from=5)  # type: ignore[arg-type]
    with pytest.raises(BadRowsError, match="no whole number from 0 to"):
        read_log(counted_from(-1), positions_from=0)


@pytest.mark.parametrize("start", [-1, 0])
def test_rows_at_0_may_still_be_dropped_where_the_log_counts_from_1(start):
    """A banner above the results in some lists; lists below 0 do not count from 0 either."""
    with_banner = pa.concat_tables(
        [counted_from(1), counted_from(start)[:9].set_column(1, "session_id", pa.array([99] * 9))]
    )
    log, report = read_log_report(with_banner, on_bad="drop")
    assert "log.bad-position" in [bad.what.code for bad in report.bad]
    assert log.n_sessions == 40 + 3  # of queries 0, 1, 2
    # And whoever says that positions count from 1 is believed.
    kept = read_log_report(counted_from(0), on_bad="drop", positions_from=1)[0]
    assert kept.n_impressions == 80
