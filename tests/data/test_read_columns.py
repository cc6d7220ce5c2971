"""Names mapped, types of every kind, features chosen, ids kept as they are."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from untilt.data.read.read_log import read_log, read_log_report
from untilt.errors import BadRowsError, ColumnError, FileFormatError, OptionError

LOG = {
    "query_id": [1, 1],
    "session_id": [1, 1],
    "doc_id": [5, 6],
    "position": [1, 2],
    "click": [1, 0],
}


def test_columns_under_other_names():
    log = read_log(
        pa.table(
            {
                "srch id": [1, 1],
                "prop": [5, 6],
                'the "rank"': [1, 2],
                "click_bool": [True, False],
                "system": ["a", "a"],
                "n": [3, 3],
            }
        ),
        columns={
            "query_id": "srch id",
            "session_id": "srch id",  # one column may play two roles
            "doc_id": "prop",
            "position": 'the "rank"',
            "click": "click_bool",
            "ranker": "system",
            "count": "n",
        },
    )
    assert (log.n_sessions, log.label_name, log.ranker_names) == (3, "click", ("a",))
    np.testing.assert_array_equal(log.label, [1, 0])


def test_missing_columns_are_named_beside_those_found():
    table = pa.table({"qid": [1], "session_id": [1], "url": ["a"], "rank": [1]})
    with pytest.raises(ColumnError) as caught:
        read_log(table)
    message = str(caught.value)
    assert "the Arrow Table lacks the columns query_id, doc_id, position, click." in message
    assert "Found: qid, session_id, url, rank." in message
    assert "Did you mean query_id = 'qid', doc_id = 'url', position = 'rank'?" in message
    assert "columns={'query_id': 'your column'}" in message


def test_an_optional_column_asked_for_must_be_there():
    with pytest.raises(ColumnError, match="lacks the columns sistem"):
        read_log(pa.table(LOG), columns={"ranker": "sistem"})


def test_an_optional_column_can_be_left_out():
    table = pa.table({**LOG, "ranker": ["a", "b"], "count": [0, 9]})
    log = read_log(table, columns={"ranker": None, "count": None})
    assert (log.n_sessions, log.ranker) == (1, None)


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([True, False]),
        pa.array([1, 0], pa.int8()),
        pa.array([1, 0], pa.uint8()),
        pa.array([1, 0], pa.uint64()),
        pa.array([1, 0], pa.float32()),
        pa.array([Decimal("1.00"), Decimal("0.00")]),
        pa.array(["1", "0"]),
        pa.array(["true", "false"]),
    ],
    ids=lambda labels: str(labels.type) + labels[0].as_py().__class__.__name__,
)
def test_labels_of_any_numeric_or_boolean_type(labels):
    log = read_log(pa.table({**LOG, "click": labels}))
    np.testing.assert_array_equal(log.label, [1.0, 0.0])
    assert log.label.dtype == np.float64


@pytest.mark.parametrize(
    "values",
    [
        pa.array([2.75, 0.1]),
        pa.array([Decimal("2.75"), Decimal("0.10")]),
        pa.array([2**52 + 1, 3]),
        pa.array([1e50, 1e-50]),
    ],
    ids=["float", "decimal", "large", "extreme"],
)
def test_label_values_come_through_exactly(values):
    log = read_log(pa.table({**LOG, "click": values}))
    np.testing.assert_array_equal(log.label, [float(value.as_py()) for value in values])


def test_several_labels():
    table = pa.table({**LOG, "bought": [False, True], "dwell": [12.5, 0.0]})
    log = read_log(table, label="dwell", labels=["bought", "click"])
    assert log.label_name == "dwell"
    assert list(log.extra_labels) == ["bought", "click"]
    np.testing.assert_array_equal(log.label, [12.5, 0])
    np.testing.assert_array_equal(log.extra_labels["bought"], [0, 1])
    np.testing.assert_array_equal(log.extra_labels["click"], [1, 0])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (pa.array([7, 300], pa.uint16()), [7, 300]),
        (pa.array([7, 2**63 - 1], pa.uint64()), [7, 2**63 - 1]),
        (pa.array([7, 2**64 - 1], pa.uint64()), ["18446744073709551615", "7"]),
        (pa.array([7.0, 8.0]), [7, 8]),
        (pa.array([7.5, 8.0]), ["7.5", "8.0"]),
        (pa.array([Decimal("7"), Decimal("8")]), [7, 8]),
        (pa.array(["07", "8"]), ["07", "8"]),
        (pa.array(["", "ä\n'\""]), ["", "ä\n'\""]),
        (pa.array(["b", "a"]).dictionary_encode(), ["a", "b"]),
        (pa.array([True, False]), ["false", "true"]),
    ],
    ids=str,
)
def test_ids_are_whole_numbers_or_text(ids, expected):
    log = read_log(pa.table({**LOG, "doc_id": ids}))
    assert log.doc_id.tolist() == expected


def test_whole_numbers_as_text_where_asked_for():
    log = read_log(pa.table(LOG), text_ids=True)
    assert (log.query_id.tolist(), log.doc_id.tolist()) == (["1"], ["5", "6"])


def test_ids_of_two_types_meet_as_text():
    documents = pa.table({"query_id": ["1", "1"], "doc_id": ["5", "6"], "f": [1.0, 2.0]})
    log = read_log(pa.table(LOG), documents=documents)
    assert log.doc_id.tolist() == ["5", "6"]
    documents = pa.table(
        {"query_id": pa.array([1, 1], pa.int8()), "doc_id": [5.0, 6.0], "f": [1, 2]}
    )
    log = read_log(pa.table(LOG), documents=documents)
    assert log.doc_id.tolist() == [5, 6]


@pytest.mark.parametrize("session", [["x", "y"], [1.5, 2.5], [b"\xff", b"\0"], [[1], [2]]], ids=str)
def test_sessions_may_be_called_anything(session):
    assert read_log(pa.table({**LOG, "session_id": session})).n_sessions == 2


def test_rankers_are_named_in_order():
    table = {name: values * 2 for name, values in LOG.items()}
    log = read_log(pa.table({**table, "session_id": [1, 2, 3, 4], "ranker": [10, 2, 2, 10]}))
    assert log.ranker_names == ("2", "10")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([3, 1], np.array([1, 3])),
        ([0.5, 0.25], np.array([0.25, 0.5])),
        (np.array([3, 1], "datetime64[ns]"), np.array([1, 3], "datetime64[ns]")),
        (np.array([3, 1], "datetime64[s]"), np.array([1, 3], "datetime64[s]")),
        (np.array([3, 1], "datetime64[D]"), np.array([1, 3], "datetime64[D]")),
        (["1970-01-01 00:00:03", "1970-01-01 00:00:01"], np.array([1, 3], "datetime64[s]")),
        (
            ["1970-01-01T01:00:03+01:00", "1969-12-31T19:00:01-0500"],
            np.array([1, 3], "datetime64[s]"),
        ),
        (pa.array([3, 1], pa.timestamp("us", tz="Asia/Tokyo")), np.array([1, 3], "datetime64[us]")),
    ],
    ids=["whole", "float", "ns", "s", "D", "text", "offset", "zone"],
)
def test_times_of_any_type(times, expected):
    table = pa.table({**LOG, "session_id": [1, 2], "timestamp": times})
    log = read_log(table, collapse=False)
    assert log.time.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(log.time, expected)


def test_times_with_an_offset_in_csv(tmp_path):
    rows = ["1,1,a,1,0,2026-03-29T03:00:00+02:00", "1,2,a,1,1,2026-03-29T01:30:00+01:00"]
    head = "query_id,session_id,doc_id,position,click,timestamp"
    (tmp_path / "log.csv").write_text("\n".join([head, *rows, "1,3,a,1,0,2026-03-29T00:00:00"]))
    log = read_log(tmp_path / "log.csv", collapse=False)
    hours = (log.time - np.datetime64("2026-03-29")) / np.timedelta64(1, "h")
    assert hours.tolist() == [0, 0.5, 1]
    assert log.label.tolist() == [0, 1, 0]


# ---- features

WIDE: dict[str, list[Any]] = {
    **LOG,
    "f_1": [0.5, 1.5],
    "f_2": [1, 2],
    "title": ["x", "y"],
    "price": [True, False],
}


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (None, ()),
        ("*", ("f_1", "f_2", "price")),
        ("f_*", ("f_1", "f_2")),
        ("price", ("price",)),
        (["price", "f_1"], ("price", "f_1")),
        (lambda name: name.endswith("2"), ("f_2",)),
        ([], ()),
    ],
    ids=["none", "all", "pattern", "name", "list", "function", "empty list"],
)
def test_features_in_the_log(features, names):
    log, report = read_log_report(pa.table(WIDE), features=features)
    assert log.feature_names == names
    assert report.ignored_columns == (("title",) if features == "*" else ())
    if names:
        expected = np.column_stack([WIDE[name] for name in names])
        np.testing.assert_array_equal(log.features, expected.astype(np.float32))
    else:
        assert log.features is None


def test_features_asked_for_must_be_there_and_be_numbers():
    with pytest.raises(ColumnError, match="lacks the columns f_3"):
        read_log(pa.table(WIDE), features=["f_1", "f_3"])
    dates = np.array(["2024-01-01"] * 2, "datetime64[s]")
    with pytest.raises(ColumnError, match="a feature must be a column of numbers"):
        read_log(pa.table({**WIDE, "f_3": dates}), features=["f_3"])


def test_documents_bring_features_and_unshown_candidates():
    documents = pa.table(
        {
            "query_id": [2, 1, 1, 1],
            "doc_id": [9, 7, 6, 5],
            "f": [9.0, 7.0, 6.0, 5.0],
            "title": ["d", "c", "b", "a"],
        }
    )
    log, report = read_log_report(pa.table(LOG), documents=documents)
    assert (log.query_id.tolist(), log.doc_id.tolist()) == ([1, 2], [5, 6, 7, 9])
    assert log.features.tolist() == [[5], [6], [7], [9]]
    assert log.doc_id[log.document].tolist() == [5, 6]
    assert report.ignored_columns == ("title",)


def test_documents_may_use_the_names_of_the_log_or_ours():
    log = pa.table({"qid": [1], "session_id": [1], "doc_id": [5], "position": [1], "click": [1]})
    for name in ("qid", "query_id"):
        documents = pa.table({name: [1], "doc_id": [5], "f": [2.0]})
        assert read_log(log, documents=documents, columns={"query_id": "qid"}).features == [[2]]


def test_documents_without_features_are_candidates_only():
    documents = pa.table({"query_id": [1, 1, 1], "doc_id": [5, 6, 7]})
    log = read_log(pa.table(LOG), documents=documents)
    assert (log.n_documents, log.features) == (3, None)


# ---- CSV


def test_csv_types_come_from_every_value(tmp_path):
    rows = [f"1,{i},{i},1,0,0.5" for i in range(30_000)]
    rows += ["1,x,007,1,oops,NULL"]
    text = "query_id,session_id,doc_id,position,click,f\n" + "\n".join(rows)
    (tmp_path / "log.csv").write_text(text)
    log, report = read_log_report(tmp_path / "log.csv", features=["f"], missing=0.0, on_bad="drop")
    assert [bad.examples for bad in report.bad] == [
        ("session x, query 1, document 007, position 1: click = oops",)
    ]
    assert log.n_documents == 30_000
    assert log.doc_id.dtype == object  # 007 is no number, so all ids stay text


def test_csv_with_times_and_missing_values(tmp_path):
    (tmp_path / "log.csv").write_text(
        "query_id,session_id,doc_id,position,click,timestamp,f,g\n"
        "1,1,5,1,true,2024-01-01 10:00:00,NA,a\n"
        "1,2,5,1,FALSE,2024-01-02T10:00:00,,b\n"
    )
    log = read_log(tmp_path / "log.csv", features="*", missing=0.0, collapse=False)
    expected = np.array(["2024-01-01T10", "2024-01-02T10"], "datetime64[us]")
    np.testing.assert_array_equal(log.time, expected)
    np.testing.assert_array_equal(log.label, [1, 0])
    assert (log.feature_names, log.features.tolist()) == (("f",), [[0.0]])


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "log.csv").write_text(
        "query_id,session_id,doc_id,position,click\n1,1,5,1,0\n1,1,6,2\n1,1,7,3,0\n"
    )
    with pytest.raises(FileFormatError, match=r"Line: 3.*Expected Number of Columns: 5 Found: 4"):
        read_log(tmp_path / "log.csv")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_they_like(tmp_path, end):
    lines = [
        "\ufeffquery_id\tsession_id\tdoc_id\tposition\tclick",
        "1\t1\t5\t1\t0",
        "1\t1\t6\t2\t1",
    ]
    (tmp_path / "log.tsv").write_bytes(end.join(lines).encode())
    np.testing.assert_array_equal(read_log(tmp_path / "log.tsv").label, [0, 1])


def test_an_index_without_a_name_and_a_name_twice(tmp_path):
    (tmp_path / "log.csv").write_text(
        ",query_id,session_id,doc_id,position,click,f,F\n0,1,1,5,1,0,2,3\n"
    )
    log = read_log(tmp_path / "log.csv", features="*")
    assert log.feature_names == ("column1", "f", "F_")
    np.testing.assert_array_equal(log.features, [[0, 2, 3]])


def test_csv_files_with_columns_in_another_order(tmp_path):
    (tmp_path / "a.csv").write_text("query_id,session_id,doc_id,position,click\n1,1,5,1,0\n")
    (tmp_path / "b.csv").write_text("click;position;doc_id;query_id;session_id\n1;2;6;1;1\n")
    log = read_log(str(tmp_path / "*.csv"))
    assert (log.doc_id.tolist(), log.label.tolist()) == ([5, 6], [0, 1])


def test_real_hotel_searches(data_dir):
    """A thousand searches of the Expedia sample: counts as its README gives them."""
    log = read_log(
        data_dir / "expedia-sample" / "searches.csv.gz",
        columns={
            "query_id": "srch_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "click": "click_bool",
            "ranker": "random_bool",
            "booked": "booking_bool",
        },
        labels=["booked"],
        features=["prop_starrating", "price_usd", "prop_location_score2"],
        missing=0.0,
    )
    assert (log.n_sessions, log.n_impressions) == (1000, 25_149)
    assert log.ranker_names == ("0", "1")
    assert log.is_binary
    # Nothing is booked that was not clicked.
    assert np.all(log.extra_labels["booked"] <= log.label)


# A flag for lists in random order.

FLAGGED: dict[str, list[Any]] = {
    "query_id": [1, 1, 1, 1, 2, 2],
    "session_id": [1, 1, 2, 2, 3, 3],
    "doc_id": [5, 6, 6, 5, 7, 8],
    "position": [1, 2, 1, 2, 1, 2],
    "click": [1, 0, 0, 0, 0, 1],
    "random_bool": [0, 0, 1, 1, 1, 1],
}
FLAG = {"random": "random_bool"}


def by_ranker(log: Any) -> dict[str, int]:
    """Ranker -> sessions."""
    sessions = np.bincount(log.ranker, weights=log.count)
    return dict(zip(log.ranker_names, sessions.astype(int).tolist(), strict=True))


@pytest.mark.parametrize(
    "values",
    [
        [0, 0, 1, 1, 1, 1],
        [False, False, True, True, True, True],
        [0.0, 0.0, 1.0, 1.0, 1.0, 1.0],
        ["no", "no", "yes", "yes", "yes", "yes"],
        ["False", "False", "True", "True", "True", "True"],
    ],
)
@pytest.mark.parametrize("collapse", [True, False])
def test_a_flag_for_random_order_names_the_ranker(values, collapse):
    log = read_log(pa.table({**FLAGGED, "random_bool": values}), columns=FLAG, collapse=collapse)
    assert by_ranker(log) == {"production": 1, "shuffle": 2}


def test_the_flag_stands_before_the_name_of_a_ranker(tmp_path):
    table = pa.table({**FLAGGED, "ranker": ["a", "a", "a", "a", "b", "b"]})
    expected = {"a": 1, "shuffle:a": 1, "shuffle:b": 1}
    assert by_ranker(read_log(table, columns=FLAG)) == expected
    table.to_pandas().to_csv(tmp_path / "log.csv", index=False)
    assert by_ranker(read_log(tmp_path / "log.csv", columns=FLAG)) == expected


def test_a_column_that_happens_to_be_called_random_is_left_alone():
    log = read_log(pa.table({**FLAGGED, "random": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}))
    assert log.ranker is None


@pytest.mark.parametrize(
    ("flag", "code", "lost"),
    [
        ([0, 0, 1, None, 1, 1], "log.bad-random", 1),
        ([0, 0, 1, 2, 1, 1], "log.bad-random", 1),
        ([0, 0, 1, 0, 1, 1], "log.session-differs", 2),
    ],
)
def test_a_bad_flag_is_a_bad_row_and_a_changing_one_a_bad_session(flag, code, lost):
    table = pa.table({**FLAGGED, "random_bool": flag})
    with pytest.raises(BadRowsError, match="random_bool"):
        read_log(table, columns=FLAG)
    _, report = read_log_report(table, columns=FLAG, on_bad="drop")
    assert [each.what.code for each in report.bad] == [code]
    assert report.bad[0].what.fields["column"] == "random_bool"
    assert report.n_dropped == lost


# ---- several patterns, and patterns that fit nothing


@pytest.mark.parametrize(
    ("features", "names"),
    [
        ("f_1,price", ("f_1", "price")),
        ("f_*, pr?ce", ("f_1", "f_2", "price")),
        (["f_2", "f_*"], ("f_2", "f_1")),
        (["price", "*"], ("price", "f_1", "f_2")),
        (["f_[12]", "price"], ("f_1", "f_2", "price")),
    ],
)
def test_several_names_and_patterns_add_up(features, names):
    assert read_log(pa.table(WIDE), features=features).feature_names == names


def test_a_column_that_looks_like_a_pattern_is_that_column():
    table = pa.table({**WIDE, "a,b": [1.0, 2.0], "f_[1]": [3.0, 4.0]})
    log = read_log(table, features=["f_[1]", "a,b"])
    assert log.feature_names == ("f_[1]", "a,b")
    assert log.features.tolist() == [[3, 1], [4, 2]]


@pytest.mark.parametrize(
    ("features", "told"),
    [
        ("g_*", "lacks the columns g_*"),
        (["f_*", "prise"], "Did you mean 'price'"),
        (["f_*", "g_*"], "lacks the columns g_*"),
        ("click*", "Columns that may be features: f_1, f_2, title, price"),
        ("tit*", "holds numbers: title"),
        (["f_1", "tit*"], "holds numbers: title"),
        (lambda name: False, "of the function"),
        (["f_1", "f_1"], "Got 'f_1' twice"),
    ],
)
def test_features_that_fit_nothing_are_an_error(features, told):
    with pytest.raises((ColumnError, OptionError), match=re.escape(told)):
        read_log(pa.table(WIDE), features=features)
    documents = pa.table({k: v for k, v in WIDE.items() if k not in LOG} | {
        "query_id": [1, 1], "doc_id": [5, 6]})  # fmt: skip
    with pytest.raises((ColumnError, OptionError)):
        read_log(pa.table(LOG), documents=documents, features=features)
