"""The collapse inside DuckDB against a slow twin in Python: exact, whatever the ids and labels."""

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt.data.limits import DEEPEST
from untilt.data.read.collapse import numbering as coding
from untilt.data.read.collapse import numbering as labels
from untilt.data.read.collapse import packing
from untilt.data.read.read_log import read_log


def slow_sessions(table, *, extra=()):
    """Sessions as a multiset: group rows in dictionaries."""
    rows = table.to_pylist()
    lists = defaultdict(list)
    for row in rows:
        lists[row["session_id"], row["query_id"]].append(row)
    sessions = Counter()
    for (_, query), shown in lists.items():
        shown.sort(key=lambda row: row["position"])
        labels = ("click", *sorted(extra))
        key = tuple(
            (r["position"], r["doc_id"], *(float(r[label]) for label in labels)) for r in shown
        )
        sessions[query, shown[0].get("ranker"), None, key] += shown[0].get("count", 1)
    return sessions


def random_rows(rng, *, n_sessions=300, depth=10, n_docs=6, label="click", text=False, far=0):
    """A log of few queries and documents, so that many lists are alike and more nearly alike."""
    columns = defaultdict(list)
    for session in range(n_sessions):
        query = int(rng.integers(3))
        places = rng.permutation(depth)[: rng.integers(1, depth + 1)] + 1
        ranker, count = str(rng.integers(2)), int(rng.integers(1, 4))
        for place in places:
            doc = int(rng.integers(n_docs)) * (1 if n_docs < 50 else 7919) + far
            value = {
                "click": int(rng.random() < 0.2),
                "grade": int(rng.integers(5)),
                "dwell": float(np.round(rng.random() * 3, 1)),
            }[label]
            for name, cell in {
                "query_id": f"q{query}" if text else query,
                "session_id": f"s{session}" if text else session,
                "doc_id": f"d{doc}" if text else doc,
                "position": int(place),
                "click": value,
                "ranker": ranker,
                "count": count,
                "dwell": float(np.round(rng.random() * 2)) / 2,
            }.items():
                columns[name].append(cell)
    order = rng.permutation(len(columns["click"]))
    return pa.table(dict(columns)).take(pa.array(order))


@pytest.mark.parametrize("label", ["click", "grade", "dwell"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("depth", [1, 3, 10, 65, 300])
def test_collapse_equals_slow_twin(rng, contents, checked, label, text, depth):
    table = random_rows(
        rng, label=label, text=text, depth=depth, n_sessions=60 if depth > 10 else 300
    )
    log = read_log(table, threads=2)
    assert contents(checked(log))[0] == slow_sessions(table)
    assert log.n_sessions == sum(slow_sessions(table).values())
    assert log.n_lists == len(slow_sessions(table))  # nothing left to merge


def test_short_lists_that_differ_in_one_thing_stay_apart(contents, checked, rng):
    table = random_rows(rng, n_sessions=2000, depth=3, n_docs=3)
    log = read_log(table)
    assert contents(checked(log))[0] == slow_sessions(table)
    assert log.collapse().n_lists == log.n_lists


@pytest.mark.parametrize(("most_words", "part_words"), [(1, 1), (1, 2), (2, 1)])
def test_lists_cut_into_parts_several_times(
    monkeypatch, rng, contents, checked, most_words, part_words
):
    """With tiny words every list is cut, the parts are cut again, and so on."""
    monkeypatch.setattr(packing, "MOST_WORDS", most_words)
    monkeypatch.setattr(packing, "PART_WORDS", part_words)
    monkeypatch.setattr(coding, "_MOST_VALUE_WORDS", most_words)
    table = random_rows(rng, depth=150, n_sessions=80)
    log = read_log(table, labels=["dwell"])
    assert contents(checked(log))[0] == slow_sessions(table, extra=["dwell"])


@pytest.mark.parametrize("value_words", [0, 100])
@pytest.mark.parametrize("far", [0, 10**12, -(10**12), 2**63 - 10**5, -(2**63)])
def test_both_codes_for_documents_agree(monkeypatch, rng, contents, checked, value_words, far):
    """Ids packed as they are, or as numbers within the query: the log is the same."""
    monkeypatch.setattr(coding, "_MOST_VALUE_WORDS", value_words)
    table = random_rows(rng, n_docs=7, far=far)
    assert contents(checked(read_log(table)))[0] == slow_sessions(table)


@pytest.mark.parametrize("most_bits", [0, 1, 16])
def test_both_codes_for_labels_agree(monkeypatch, rng, contents, checked, most_bits):
    monkeypatch.setattr(labels, "_MOST_BITS", most_bits)
    table = random_rows(rng, label="grade")
    log = read_log(table, labels=["dwell"])
    assert contents(checked(log))[0] == slow_sessions(table, extra=["dwell"])


def test_ids_that_span_all_whole_numbers(contents):
    """Differences of ids beyond 64 bits must not wrap."""
    table = pa.table(
        {
            "query_id": [1, 1, 1, 1],
            "session_id": [1, 1, 2, 2],
            "doc_id": [-(2**63), 2**63 - 1, 2**63 - 1, -(2**63)],
            "position": [1, 2, 1, 2],
            "click": [0, 1, 0, 1],
        }
    )
    assert contents(read_log(table))[0] == slow_sessions(table)


def test_gaps_and_deep_positions(contents, checked):
    table = pa.table(
        {
            "query_id": [1] * 5,
            "session_id": [1, 1, 1, 2, 2],
            "doc_id": [5, 6, 7, 5, 6],
            "position": [2, 9, 1_000, 2, 9],
            "click": [0, 1, 0, 0, 1],
        }
    )
    log = read_log(table)
    assert contents(checked(log))[0] == slow_sessions(table)
    assert log.depth == 1_000


def test_a_session_id_with_two_queries_is_two_lists(contents):
    table = pa.table(
        {
            "query_id": [1, 2],
            "session_id": [7, 7],
            "doc_id": [5, 5],
            "position": [1, 1],
            "click": [0, 1],
        }
    )
    log = read_log(table)
    assert log.n_sessions == 2
    assert contents(log)[0] == slow_sessions(table)


def test_a_document_may_stand_twice_in_a_list(contents, checked):
    table = pa.table(
        {
            "query_id": [1, 1],
            "session_id": [7, 7],
            "doc_id": [5, 5],
            "position": [1, 2],
            "click": [0, 1],
        }
    )
    log = checked(read_log(table))
    assert log.n_documents == 1
    assert contents(log)[0] == slow_sessions(table)


def test_same_log_whatever_the_row_order_and_threads(rng):
    table = random_rows(rng)
    shuffled = table.take(pa.array(rng.permutation(len(table))))
    one, two = read_log(table, threads=1), read_log(shuffled, threads=2)
    for name in ("query_id", "doc_id", "indptr", "query", "document", "position", "label", "count"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_turnover_is_the_same_to_the_last_bit_and_that_by_hand(rng):
    """How positions of a document change from session to session; fractions of 1/7 and 1/3."""
    n = 30_000
    rows = {
        "query_id": rng.integers(0, 5, n), "session_id": np.arange(n),
        "doc_id": rng.integers(0, 300, n), "position": rng.integers(1, 1 + DEEPEST, n),
        "click": rng.integers(0, 2, n), "timestamp": rng.permutation(n),
    }  # fmt: skip
    steps = squares = 0.0
    key, order = rows["query_id"] * 1000 + rows["doc_id"], np.argsort(rows["timestamp"])
    for document in np.unique(key):
        k = rows["position"][order][key[order] == document]
        steps += np.sum(np.diff(k) ** 2)
        squares += np.sum((k - k.mean()) ** 2)
    table = pa.table(rows)
    found = set()
    for threads in (1, 2, 2):
        shuffled = table.take(pa.array(rng.permutation(n)))
        found.add(read_log(shuffled, threads=threads).turnover)
    assert len(found) == 1
    assert found.pop() == pytest.approx(steps / 2 / squares, rel=1e-9)


def test_sessions_kept_apart_have_their_time(contents, checked):
    table = pa.table(
        {
            "query_id": [1, 1, 1],
            "session_id": [3, 2, 2],
            "doc_id": [5, 5, 6],
            "position": [1, 1, 2],
            "click": [0, 0, 1],
            "timestamp": np.array(["2024-01-02", "2024-01-01", "2024-01-03"], "datetime64[us]"),
        }
    )
    log = checked(read_log(table, collapse=False))
    np.testing.assert_array_equal(
        log.time, np.array(["2024-01-01", "2024-01-02"], "datetime64[us]")
    )
    np.testing.assert_array_equal(log.doc_id[log.document], [5, 6, 5])
    before, after = log.split(0.5, by="time")
    assert (before.n_impressions, after.n_impressions) == (2, 1)
    assert read_log(table).time is None


ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),  # session
        st.sampled_from([0, 1]),  # query
        st.sampled_from([-5, 0, 3, 2**40]),  # document
        st.integers(1, 40),  # position
        st.sampled_from([0.0, 1.0, 0.5, 7.0]),  # label
    ),
    unique_by=lambda row: (row[0], row[1], row[3]),
)


@pytest.mark.parametrize("logs", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_any_small_log(contents, checked, logs):
    @settings(max_examples=logs, deadline=None)
    @given(ROWS)
    def check(rows):
        names = ("session_id", "query_id", "doc_id", "position", "click")
        columns = list(zip(*rows, strict=True)) or [()] * 5
        types = [pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.float64()]
        table = pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)})
        log = checked(read_log(table, threads=1))
        assert contents(log)[0] == slow_sessions(table)
        assert log.n_lists == len(slow_sessions(table))

    check()
