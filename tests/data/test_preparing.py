"""What real logs do: rows twice, sessions reused, pages that restart, names of two tables."""

import warnings

import numpy as np
import pandas as pd
import pytest

import untilt as ut
from untilt.data.read.options import WorkerOptions
from untilt.data.read.read_log import read_log_report
from untilt.errors import BadRowsError, ColumnError, OptionError
from untilt.facts import codes

DAY = 86_400.0


def clicks(n=120, k=5, seed=0, queries=6):
    """Sessions of a few queries, each document clicked by chance."""
    rng = np.random.default_rng(seed)
    rows = [
        (s % queries, s, 100 * (s % queries) + d, at, int(rng.random() < 0.3), 1.7e9 + 60.0 * s)
        for s in range(n)
        for at, d in enumerate(rng.permutation(k), 1)
    ]
    return pd.DataFrame(
        rows, columns=["query_id", "session_id", "doc_id", "position", "click", "timestamp"]
    )


def codes_of(report):
    return codes(each.what for each in report.bad), codes(report.notes)


# ---- rows twice


def test_rows_that_repeat_others_exactly_count_once(contents):
    log = clicks()
    twice = pd.concat([log, log.iloc[7:60], log.iloc[7:20]])
    with pytest.warns(UserWarning, match="66 rows repeat other rows exactly and count once"):
        found = ut.read_log(twice)
    assert contents(found) == contents(ut.read_log(log))
    _, report = read_log_report(twice)
    assert codes_of(report) == ([], ["log.rows-repeated"])
    assert (report.n_rows, report.n_dropped) == (666, 0)


def test_rows_that_differ_in_anything_read_are_not_merged():
    log = clicks()
    changed = log.iloc[:1].assign(click=1 - log.click[0])
    with pytest.raises(BadRowsError, match="shows a position twice"):
        ut.read_log(pd.concat([log, changed]))
    unread = log.iloc[:1].assign(event_id=7)
    _, report = read_log_report(pd.concat([log.assign(event_id=1), unread]))
    assert codes(report.notes) == ["log.rows-repeated"]


def test_repeated_rows_beside_bad_ones_are_no_dropped_rows(contents):
    log = clicks()
    bad = log.copy()
    bad.loc[3, "position"] = 0
    found, report = read_log_report(pd.concat([bad, log.iloc[50:60]]), on_bad="drop")
    assert (report.n_rows, report.n_dropped) == (610, 1)
    assert contents(found) == contents(read_log_report(bad, on_bad="drop")[0])


# ---- sessions and pages


@pytest.mark.parametrize("unit", [1, 1_000, "timestamp"])
def test_a_session_id_of_two_days_is_named(unit):
    log = clicks()
    again = log.assign(timestamp=log.timestamp + DAY)
    both = pd.concat([log, again])
    times = both.timestamp
    both["timestamp"] = pd.to_datetime(times, unit="s") if unit == "timestamp" else times * unit
    with pytest.raises(BadRowsError, match=r"(?s)its id is reused.*Fix: make session_id of"):
        ut.read_log(both)
    _, report = read_log_report(both, on_bad="drop")
    assert codes_of(report)[0] == ["log.session-reused"]
    day = both.timestamp.rank(method="dense") > log.timestamp.nunique()
    mended = both.assign(session_id=both.session_id.astype(str) + "-" + day.astype(str))
    assert ut.read_log(mended).n_sessions == 240


def paged(log, size, first):
    """Positions 1..k as pages of a few, each from 1."""
    at = log.position - 1
    return log.assign(page=at // size + first, position=at % size + 1)


@pytest.mark.parametrize(("first", "positions_from"), [(1, None), (0, None), (1, 0), (0, 0)])
def test_pages_are_counted_through(contents, first, positions_from):
    log = clicks(k=7)
    short = log[(log.session_id % 3 == 0) | (log.position <= 3)]  # most see the first page alone
    pages = paged(short, 3, first)
    pages["position"] -= positions_from == 0
    found = ut.read_log(pages, columns={"page": "page"}, positions_from=positions_from)
    assert contents(found) == contents(ut.read_log(short))


def test_pages_that_restart_are_named():
    pages = paged(clicks(k=6), 3, 1)
    with pytest.raises(BadRowsError, match=r"each page counts from 1") as caught:
        ut.read_log(pages)
    assert "columns={'page': ...}" in str(caught.value)
    assert "page looks like the page of results (columns={'page': 'page'})" in str(caught.value)
    broken = pages.assign(page=np.where(pages.index == 4, -1, pages.page))
    with pytest.raises(BadRowsError, match="page is no whole number"):
        ut.read_log(broken, columns={"page": "page"})
    # A column of this name may be a context, as any other.
    assert ut.read_log(clicks().assign(page="a"), context=["page"]).context["page"][0] == "a"


def test_pages_are_refused_where_parts_are_read():
    page = {"page": "page"}
    with pytest.raises(OptionError, match="number positions over all pages"):
        ut.collapse_sql("clicks", 10, columns=page)
    with pytest.raises(OptionError, match="the page size needs the whole log"):
        WorkerOptions(columns=page)


# ---- what is left is a sample of the traffic, or not


def dropped(log, rows):
    log = log.copy()
    log.loc[rows, "position"] = 0
    log.loc[rows, "session_id"] += 100_000  # whole sessions go
    return read_log_report(log, on_bad="drop")[1]


def test_sessions_that_go_by_query_are_no_sample():
    rng = np.random.default_rng(1)
    query = np.minimum(rng.zipf(1.7, 3_000), 40)
    log = pd.DataFrame({
        "query_id": query, "session_id": np.arange(3_000), "doc_id": 1, "position": 1, "click": 0,
    })  # fmt: skip
    frequent = (query == 1) & (rng.random(3_000) < 0.4)
    assert codes(dropped(log, frequent).notes) == ["log.dropped-not-random"]
    assert codes(dropped(log, rng.random(3_000) < 0.2).notes) == []
    assert codes(dropped(log, (query == 1) & (rng.random(3_000) < 0.005)).notes) == []
    # Queries of the same size are not sorted by what they lost.
    even = log.assign(query_id=np.arange(3_000) // 30)
    assert codes(dropped(even, rng.random(3_000) < 0.3).notes) == []


# ---- columns


def test_the_documents_name_their_own_columns(contents):
    log, documents = clicks(), None
    documents = log[["query_id", "doc_id"]].drop_duplicates().assign(f=1.5)
    expected = ut.read_log(log, documents=documents)
    theirs = documents.rename(columns={"query_id": "search_term", "doc_id": "sku"})
    with pytest.raises(ColumnError, match=r"columns=\{'documents.query_id': 'your column'\}"):
        ut.read_log(log, documents=theirs)
    own = {"documents.query_id": "search_term", "documents.doc_id": "sku"}
    assert contents(ut.read_log(log, documents=theirs, columns=own)) == contents(expected)
    # And the log's, at the same time.
    named = log.rename(columns={"query_id": "q"})
    both = own | {"query_id": "q"}
    assert contents(ut.read_log(named, documents=theirs, columns=both)) == contents(expected)
    queries = pd.DataFrame(
        {"query_id": ["a"], "user_query": ["q"], "query_response_hit_ids": [["x"]]}
    )
    events = pd.DataFrame({
        "query_id": ["a"], "action_name": ["click"],
        "event_attributes": [{"object": {"object_id": "x"}, "position": {"ordinal": 0}}],
    })  # fmt: skip
    features = pd.DataFrame({"term": ["q"], "sku": ["x"], "f": [2.0]})
    own = {"documents.query_id": "term", "documents.doc_id": "sku"}
    found = ut.read_log_report(ut.Ubi(queries, events), documents=features, columns=own)[0]
    assert found.features.tolist() == [[2.0]]
    with pytest.raises(OptionError, match=r"Did you mean 'documents.query_id'"):
        ut.read_log(log, documents=theirs, columns={"documents.query": "search_term"})


def test_columns_that_may_say_more_are_named():
    log = clicks().rename(columns={"timestamp": "event_time"})
    log = log.assign(device="pc", variant="b", page_number=1, price=2.5, title="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ut.read_log(log)  # a note, no warning
    _, report = read_log_report(log)
    assert codes(report.notes) == ["log.unused-columns"]
    told = str(report.notes[0])
    for words in (
        "event_time looks like the time (columns={'timestamp': 'event_time'})",
        "variant looks like the ranker",
        "page_number looks like the page of results",
        "device looks like a context (context=['device'])",
    ):
        assert words in told
    assert "price" not in told
    used = {"timestamp": "event_time", "ranker": "variant", "page": "page_number"}
    assert codes(read_log_report(log, columns=used, context=["device"])[1].notes) == []
