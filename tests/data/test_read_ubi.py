"""Exports of User Behavior Insights: the same log by every way, and nothing left out in silence."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import untilt as ut
from untilt.errors import BadRowsError, ColumnError, FileFormatError, OptionError
from untilt.facts import codes
from untilt.simulation.simulate import write_ubi

HITS = {"shoe": ["a", "b", "c", "d"], "hat": ["x", "y", "z"]}


def asked(session, query="shoe", hits=None, **more):
    hits = HITS[query] if hits is None else hits
    time = "2026-01-01T10:00:00Z"
    return {"query_id": session, "user_query": query, "query_response_hit_ids": hits,
            "timestamp": time, "client_id": "c1"} | more  # fmt: skip


def done(action, session, document, ordinal=None, **more):
    attributes = {"object": {"object_id": document, "object_id_field": "sku"}}
    if ordinal is not None:
        attributes["position"] = {"ordinal": ordinal}
    return {"action_name": action, "query_id": session, "timestamp": "2026-01-01T10:00:09Z",
            "event_attributes": attributes} | more  # fmt: skip


QUERIES = [asked("s1"), asked("s2", "hat"), asked("s3")]
EVENTS = [
    done("click", "s1", "b", 1),
    done("click_through", "s2", "x", 0),
    done("add_to_cart", "s2", "x", 0),
    done("product_hover", "s2", "y", 1),
]


def lines(path, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    data = gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode()
    path.write_bytes(data)
    return str(path)


@pytest.fixture
def export(tmp_path):
    """Writes an export, and gives the two paths."""

    def write(queries=QUERIES, events=EVENTS, ending=".jsonl"):
        return (
            lines(tmp_path / f"queries{ending}", queries),
            lines(tmp_path / f"events{ending}", events),
        )

    return write


def read(paths, **options):
    shown = options.pop("hits_shown", None)
    return ut.read_log_report(ut.Ubi(paths[0], paths[1], shown), **options)


def rows(log):
    """(query, document, position, label) -> how often."""
    found = Counter()
    for i in range(log.n_lists):
        for r in range(log.indptr[i], log.indptr[i + 1]):
            document = log.doc_id[log.document[r]]
            key = (log.query_id[log.query[i]], document, int(log.position[r]), int(log.label[r]))
            found[key] += int(log.count[i])
    return found


def left_out(report):
    return {bad.what.code: bad.n_rows for bad in report.bad}


# ---- one log, every way to it


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    judged = ut.make_judged(n_queries=25, n_features=4, seed=3)
    files = ut.simulate_to_parquet(judged, folder, "harvest", n_sessions=400, seed=3, n_threads=1)
    return files, write_ubi(files.log, folder)


def test_the_same_log_as_from_its_own_format(simulated, contents, checked):
    files, export = simulated
    own = ut.read_log(files.log, documents=files.documents, text_ids=True, columns={"ranker": None})
    log = checked(ut.read_ubi(*export, documents=files.documents))
    assert contents(log) == contents(own)
    for name in ("query_id", "doc_id", "indptr", "query", "count", "document", "position", "label"):
        np.testing.assert_array_equal(getattr(log, name), getattr(own, name))
    np.testing.assert_array_equal(log.features, own.features)


def test_rankers_and_times_come_along(simulated, contents):
    files, export = simulated
    ranker = {"ranker": "query_attributes.ranker"}
    log = ut.read_ubi(*export, collapse=False, columns=ranker)
    own = ut.read_log(files.log, text_ids=True, collapse=False)
    assert log.ranker_names == own.ranker_names
    minutes = (log.time - np.datetime64("2026-01-01")) / np.timedelta64(1, "m")
    np.testing.assert_array_equal(minutes, own.time)
    strip = (contents(each._with(time=None))[0] for each in (log, own))
    assert next(strip) == next(strip)


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json", ".jsonl.gz"])
def test_files_by_their_endings(export, ending):
    assert rows(read(export(ending=ending))[0]) == rows(read(export())[0])


def bulk(kind, documents):
    return [line for each in documents for line in ({"index": {"_index": kind}}, each)]


def flattened(document):
    (flat,) = pd.json_normalize([document]).to_dict("records")
    return flat


def test_documents_as_search_engines_give_them(export):
    expected = rows(read(export())[0])
    wrapped = [[{"_index": "i", "_id": str(n), "_score": 1.0, "_source": each}
                for n, each in enumerate(part)] for part in (QUERIES, EVENTS)]  # fmt: skip
    assert rows(read(export(*wrapped))[0]) == expected
    assert (
        rows(read(export(bulk("ubi_queries", QUERIES), bulk("ubi_events", EVENTS)))[0]) == expected
    )
    flat = [list(map(flattened, part)) for part in (QUERIES, EVENTS)]
    assert rows(read(export(*flat))[0]) == expected
    both = export([*QUERIES, *EVENTS])[0]
    assert rows(read((both, both))[0]) == expected


def test_a_folder_of_parts(tmp_path, export):
    expected = rows(read(export())[0])
    for name, part in (("q", QUERIES), ("e", EVENTS)):
        (tmp_path / name).mkdir()
        for n, row in enumerate(part):
            lines(tmp_path / name / f"part-{n}.jsonl", [row])
    assert rows(read((str(tmp_path / "q"), str(tmp_path / "e")))[0]) == expected


@pytest.mark.parametrize(
    "table",
    [
        pa.Table.from_pylist,
        pl.DataFrame,
        pd.DataFrame,
        pd.json_normalize,
        lambda documents: pa.table({"_source": documents}),
    ],
    ids=["arrow", "polars", "pandas", "pandas-flat", "wrapped"],
)
def test_tables_in_memory(export, table):
    made = [table(part) for part in (QUERIES, EVENTS)]
    assert rows(read(made)[0]) == rows(read(export())[0])


def test_csv_as_a_dashboard_writes_it(tmp_path, export):
    queries, events = pd.json_normalize(QUERIES), pd.json_normalize(EVENTS)
    queries["query_response_hit_ids"] = queries["query_response_hit_ids"].map(json.dumps)
    paths = tmp_path / "queries.csv", tmp_path / "events.csv"
    for frame, path in zip((queries, events), paths, strict=True):
        frame.to_csv(path, index=False)
    assert rows(read(paths)[0]) == rows(read(export())[0])


def test_ids_that_are_numbers(export):
    """pandas makes floats of whole numbers where one is missing."""
    queries = [asked("s1", hits=[7, 8]), asked("s2", hits=["9"])]
    events = [done("click", "s1", 8, 1), {"action_name": "click", "query_id": "s1"}]
    expected = {("shoe", "7", 1, 0): 1, ("shoe", "8", 2, 1): 1, ("shoe", "9", 1, 0): 1}
    assert rows(read(export(queries, events))[0]) == expected
    frames = pd.json_normalize([asked("s1", hits=[7, 8])]), pd.json_normalize(events)
    assert frames[1]["event_attributes.object.object_id"].dtype == float
    assert rows(read(frames)[0]) == {("shoe", "7", 1, 0): 1, ("shoe", "8", 2, 1): 1}


def test_solr_writes_hits_as_one_text(export):
    queries = [asked("s1", query_response_hit_ids=None, doc_ids="a, b,c")]
    log, _ = read(export(queries, EVENTS[:1]))
    assert rows(log) == {("shoe", "a", 1, 0): 1, ("shoe", "b", 2, 1): 1, ("shoe", "c", 3, 0): 1}


# ---- what was shown


def test_all_hits_are_taken_for_shown_and_it_is_said(export):
    log, report = read(export())
    assert log.n_sessions == 3
    assert rows(log)["shoe", "b", 2, 1] == 1
    assert rows(log)["shoe", "d", 4, 0] == 2
    assert "ubi.shown-by-all-hits" in codes(report.notes)
    with pytest.warns(UserWarning, match="hits_shown=10"):
        ut.read_ubi(*export())


def test_a_stated_number_of_hits(export):
    events = [*EVENTS, done("click", "s3", "c", 2)]
    log, report = read(export(events=events), hits_shown=2)
    assert log.depth == 2
    assert log.n_impressions == 6
    assert left_out(report) == {"ubi.below": 1}
    assert "ubi.shown-by-hits" in codes(report.notes)


def test_impressions_say_what_was_seen(export):
    seen = [done("impression", "s1", d, o) for o, d in enumerate("ab")]
    seen += [done("impression", "s2", "x", 0)]
    log, report = read(export(events=[*EVENTS, *seen]))
    assert rows(log) == {
        ("shoe", "a", 1, 0): 1, ("shoe", "b", 2, 1): 1, ("hat", "x", 1, 1): 1,
    }  # fmt: skip
    assert left_out(report) == {"ubi.no-impressions": 1}  # s3: nobody saw it
    assert "ubi.shown-by-impressions" in codes(report.notes)


def test_impressions_without_hits(export):
    queries = [asked("s1", query_response_hit_ids=None)]
    seen = [done("impression", "s1", d, o) for o, d in enumerate("ba")]
    log, _ = read(export(queries, [*seen, done("click", "s1", "a")]))
    assert rows(log) == {("shoe", "b", 1, 0): 1, ("shoe", "a", 2, 1): 1}


def test_impressions_without_ordinals_stand_where_they_were_returned(export):
    seen = [done("impression", "s1", "c"), done("impression", "s1", "zz")]
    paths = export(QUERIES[:1], [*seen, done("click", "s1", "c")])
    log, report = read(paths, on_bad="drop")
    assert rows(log) == {("shoe", "c", 3, 1): 1}
    assert left_out(report) == {"ubi.no-position": 1}
    with pytest.raises(BadRowsError, match="whose ordinal is missing or no whole number"):
        read(paths)


def test_impressions_win_over_the_order_of_the_hits(export):
    """An advertisement stands first: what people saw counts."""
    seen = [done("impression", "s1", d, o) for o, d in enumerate(["ad", "b", "a"])]
    log, report = read(export(QUERIES[:1], [*seen, done("click", "s1", "a", 2)]))
    assert rows(log) == {
        ("shoe", "ad", 1, 0): 1, ("shoe", "b", 2, 0): 1, ("shoe", "a", 3, 1): 1,
    }  # fmt: skip
    assert "ubi.order-differs" in codes(report.notes)


def test_impressions_can_be_left_aside(export):
    seen = [done("impression", "s1", "a", 0)]
    log, _ = read(export(events=[*EVENTS, *seen]), columns={"impression": None})
    assert log.n_sessions == 3


@pytest.mark.parametrize("base", [0, 1])
def test_ordinals_from_0_and_from_1_are_told_apart(export, base):
    seen = [done("impression", "s1", d, o) for o, d in enumerate("abcd", start=base)]
    for queries in ([asked("s1")], [asked("s1", query_response_hit_ids=None)]):
        log, report = read(export(queries, [*seen, done("click", "s1", "b", 1 + base)]))
        assert rows(log)["shoe", "b", 2, 1] == 1
        assert log.position.tolist() == [1, 2, 3, 4]
        (fact,) = (note for note in report.notes if note.code == "ubi.ordinals")
        assert fact.fields["base"] == base


def test_clients_that_count_differently_are_a_warning(export):
    """Of the sessions of a second client, every position is one too far down."""
    seen = [done("impression", "s1", d, o) for o, d in enumerate("abcd")]
    seen += [done("impression", "s3", d, o) for o, d in enumerate("abcd", start=1)]
    _, report = read(export([QUERIES[0], QUERIES[2]], [*seen, done("click", "s1", "b", 1)]))
    (fact,) = (note for note in report.notes if note.code == "ubi.two-bases")
    assert fact.fields == {"base": 0, "other_base": 1, "other": 4, "compared": 9}
    assert fact.severity == "warning"


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("start", [0, 10])
def test_ordinals_of_later_pages_alone(export, base, start):
    """Nobody looked at a first page; ordinals begin anew on this one, or go on."""
    queries = [asked("s1") | {"query": {"from": 10}}]
    seen = [done("impression", "s1", d, o) for o, d in enumerate("abcd", start=base + start)]
    log, _ = read(export(queries, [*seen, done("click", "s1", "b", 1 + base + start)]))
    assert log.position.tolist() == [11, 12, 13, 14]


def test_an_ordinal_between_two_places_is_none(export):
    seen = [done("impression", "s1", d, o) for d, o in (("a", 0), ("b", 1.0), ("c", 1.5))]
    _, report = read(export(QUERIES[:1], [*seen, done("click", "s1", "a", 0)]), on_bad="drop")
    assert left_out(report) == {"ubi.no-position": 1}


def test_ordinals_can_be_said_to_count_from_1(export):
    """Nobody saw the top of this list: only the user knows."""
    queries = [asked("s1", query_response_hit_ids=None)]
    events = [done("impression", "s1", d, o) for d, o in (("a", 1), ("b", 2))]
    events += [done("click", "s1", "a", 1)]
    assert read(export(queries, events), positions_from=1)[0].position.tolist() == [1, 2]
    assert read(export(queries, events), positions_from=0)[0].position.tolist() == [2, 3]


def test_pages_further_down_have_their_positions(export):
    """Page 2 has a request of its own: its `from` says where it begins."""
    queries = [
        asked("s1", query=None, user_query="shoe", hits=["a", "b"]) | {"query": '{"size": 2}'},
        asked("s1", hits=["c", "d"]) | {"query": '{"from": 2, "size": 2}'},
        asked("s2", "hat") | {"query_attributes": {"skip": 10}},
    ]
    events = [done("click", "s1", "d", 1), done("click", "s1", "a", 0)]
    log, _ = read(export(queries, events), columns={"offset": "query_attributes.skip"})
    assert [key[2] for key in rows(log) if key[0] == "hat"] == [11, 12, 13]
    log, _ = read(export(queries[:2], events))
    assert rows(log) == {
        ("shoe", "a", 1, 1): 1, ("shoe", "b", 2, 0): 1, ("shoe", "c", 3, 0): 1,
        ("shoe", "d", 4, 1): 1,
    }  # fmt: skip


def test_ordinals_that_begin_anew_on_every_page(export):
    queries = [asked("s1", hits=["a", "b"]), asked("s1", hits=["c", "d"]) | {"query": {"from": 2}}]
    seen = [done("impression", "s1", d, o) for d, o in (("a", 0), ("b", 1), ("c", 0), ("d", 1))]
    log, _ = read(export(queries, [*seen, done("click", "s1", "d", 1)]))
    assert [key[1:] for key in rows(log)] == [("a", 1, 0), ("b", 2, 0), ("c", 3, 0), ("d", 4, 1)]


def test_an_object_at_two_places_counts_at_the_highest(export):
    queries, click = [asked("s1", hits=["a", "b", "a"])], done("click", "s1", "a")
    log, report = read(export(queries, [click]))
    assert rows(log) == {("shoe", "a", 1, 1): 1, ("shoe", "b", 2, 0): 1}
    assert "ubi.shown-twice" in codes(report.notes)
    seen = [done("impression", "s1", d, o) for d, o in (("a", 4), ("b", 1), ("a", 0))]
    log, report = read(export(queries, [click, *seen]))
    assert rows(log) == {("shoe", "a", 1, 1): 1, ("shoe", "b", 2, 0): 1}
    assert "ubi.shown-twice" in codes(report.notes)


# ---- what cannot be used is counted


def test_what_is_left_out_without_asking(export):
    queries = [*QUERIES, asked("s4", hits=[]), asked("s1")]
    events = [
        *EVENTS,
        done("click", "s1", "b", 1),
        done("click", "another search", "b", 1),
        {"action_name": "click", "query_id": "s1"},
        {"client_id": "c1"},
    ]
    log, report = read(export(queries, events))
    assert rows(log) == rows(read(export())[0])
    assert left_out(report) == {
        "ubi.unknown-query": 1, "ubi.no-object": 1, "ubi.no-action": 1, "ubi.no-hits": 1,
    }  # fmt: skip
    said = {note.code: note.fields for note in report.notes}
    assert said["ubi.event-repeats"]["n"] == 1
    assert said["ubi.query-repeats"]["n"] == 1
    assert dict(said["ubi.other-actions"]["actions"]) == {"add_to_cart": 1, "product_hover": 1}
    with pytest.warns(ut.DroppedRowsWarning, match="another search"):
        ut.read_ubi(*export(queries, events))


@pytest.mark.parametrize(
    ("queries", "events", "code", "sessions"),
    [
        ([asked(None)], [], "ubi.no-query-id", 3),
        ([asked("s4") | {"user_query": None}], [], "ubi.no-user-query", 3),
        ([asked("s4") | {"user_query": " "}], [], "ubi.no-user-query", 3),
        ([asked("s1", "hat")], [], "ubi.two-queries", 2),
        ([asked("s1", hits=["q", "b"])], [], "ubi.two-lists", 2),
        ([], [done("click", "s1", "elsewhere")], "ubi.outside", 3),
        (
            [],
            [done("impression", s, d, o) for s, d, o in (("s1", "a", 0), ("s2", "x", 0))],
            "ubi.no-impression",
            2,
        ),
    ],
)
def test_what_makes_an_export_unfit(export, queries, events, code, sessions):
    paths = export([*QUERIES, *queries], [*EVENTS, *events])
    with pytest.raises(BadRowsError, match='on_bad="drop"'):
        read(paths)
    log, report = read(paths, on_bad="drop")
    assert left_out(report)[code] >= 1
    assert log.n_sessions == sessions


def test_ids_of_two_kinds_are_refused_whatever_may_be_dropped(export):
    events = [done("click", "s1", f"sku-{n}") for n in range(20)]
    with pytest.raises(ColumnError, match=re.escape("'sku-0'")):
        read(export(events=events), on_bad="drop")


def test_another_id_can_be_named(export):
    events = [done("click", "s1", "sku-1")]
    events[0]["event_attributes"]["object"]["internal_id"] = "b"
    path = {"doc_id": "event_attributes.object.internal_id"}
    assert rows(read(export(QUERIES[:1], events), columns=path)[0])["shoe", "b", 2, 1] == 1


def test_clicks_that_disagree_with_the_order_of_the_hits_are_a_warning(export):
    events = [done("click", "s1", "a", 3), done("click", "s3", "d", 0)]
    _, report = read(export(events=events))
    (fact,) = (note for note in report.notes if note.code == "ubi.order-differs")
    assert (fact.fields["agree"], fact.fields["compared"]) == (0, 2)
    assert fact.severity == "warning"


# ---- labels, contexts, times


def test_other_actions_as_labels(export):
    log, report = read(export(), label="add_to_cart", labels=["click"])
    assert log.label_name == "add_to_cart"
    assert (log.label.sum(), log.extra_labels["click"].sum()) == (1, 2)
    assert "ubi.other-actions" in codes(report.notes)


def test_an_action_can_be_named(export):
    log, _ = read(export(), columns={"click": "product_hover, add_to_cart"})
    assert {key[:2] for key in rows(log) if key[3]} == {("hat", "x"), ("hat", "y")}


def test_an_action_that_nobody_did_is_refused(export):
    with pytest.raises(ColumnError, match=r"no event has the action buy\. Found: .*click \(1\)"):
        read(export(), label="buy")


def test_impressions_are_never_offered_as_clicks(export):
    seen = [done("impression", "s1", "a", 0)] * 2
    with pytest.raises(ColumnError, match=r"columns=\{'click': 'your action'\}"):
        read(export(events=seen))
    with pytest.raises(ColumnError, match=r"columns=\{'click': 'open'\}"):
        read(export(events=[*seen, done("open", "s1", "a", 0)]))


def test_context_by_its_path(export):
    queries = [q | {"query_attributes": {"device": d}} for q, d in zip(QUERIES, "ppd", strict=True)]
    options = {"context": ["device"], "columns": {"device": "query_attributes.device"}}
    log, _ = read(export(queries), **options)
    assert sorted(log.context["device"]) == ["d", "p", "p"]


@pytest.mark.parametrize(
    "time",
    ["2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00Z", "2026-01-01T10:00:00", 1767261600000],
)
def test_times_are_instants(export, time):
    log, _ = read(export([asked("s1", timestamp=time)], EVENTS[:1]), collapse=False)
    assert log.time.tolist() == [np.datetime64("2026-01-01T10:00:00.000000").item()]


def test_a_time_that_is_none_is_a_bad_row_where_times_count(export):
    paths = export([*QUERIES, asked("s4", timestamp="yesterday")])
    assert read(paths)[0].n_sessions == 4
    with pytest.raises(BadRowsError, match="timestamp is missing or no time"):
        read(paths, collapse=False)


# ---- features


FEATURES = [{"doc_id": d, "price": float(n), "name": d} for n, d in enumerate("abcdxyz")]


def test_features_of_objects_alone(export):
    log, report = read(export(), documents=pl.DataFrame(FEATURES))
    assert log.feature_names == ("price",)
    price = {log.doc_id[j]: log.features[j, 0] for j in range(log.n_documents)}
    assert price == {d: n for n, d in enumerate("abcdxyz")}
    assert "log.features-by-document" in codes(report.notes)


def test_features_of_queries_and_objects_by_their_names(export):
    table = [{"user_query": q, "object_id": d, "bm25": len(q) + n}
             for q, hits in HITS.items() for n, d in enumerate(hits)]  # fmt: skip
    log, _ = read(export(), documents=pa.Table.from_pylist(table))
    assert log.feature_names == ("bm25",)
    assert log.features[:, 0].tolist() == [3, 4, 5, 4, 5, 6, 7]


def test_an_object_without_features_is_a_bad_row(export):
    with pytest.raises(BadRowsError, match="a document without features"):
        read(export(), documents=pl.DataFrame(FEATURES[1:]))


def test_a_share_of_the_queries(export):
    queries = [asked(f"s{n}", query=None, user_query=f"q{n}", hits=["a"]) for n in range(40)]
    log, _ = read(export(queries, [done("click", "s1", "a")]), sample_queries=0.5)
    assert 8 < log.n_queries < 32


# ---- what cannot be read


def test_what_is_no_json_lines(tmp_path, export):
    _, events = export()
    (tmp_path / "array.json").write_text(json.dumps(QUERIES))
    (tmp_path / "answer.json").write_text(json.dumps({"took": 1, "hits": {"hits": []}}))
    (tmp_path / "pretty.json").write_text(json.dumps(QUERIES[0], indent=2))
    (tmp_path / "empty.json").write_text("")
    for name, said in (
        ("array.json", r"'\.\[\]'"),
        ("answer.json", r"'\.hits\.hits\[\]'"),
        ("pretty.json", "one document a line"),
        ("empty.json", "empty"),
    ):
        with pytest.raises(FileFormatError, match=said):
            read((str(tmp_path / name), events))
    damaged = gzip.compress(json.dumps(QUERIES[0]).encode())[:-6]
    (tmp_path / "cut.jsonl.gz").write_bytes(damaged)
    with pytest.raises(FileFormatError, match="damaged"):
        read((str(tmp_path / "cut.jsonl.gz"), events))
    (tmp_path / "bad.jsonl").write_text(json.dumps(QUERIES[0]) + '\n{"query_id": \n')
    with pytest.raises(FileFormatError, match="Malformed JSON"):
        read((str(tmp_path / "bad.jsonl"), events))


def test_swapped_files_and_foreign_ones(tmp_path, export):
    queries, events = export()
    with pytest.raises(ColumnError, match=r"user_query.*The first one has action_name, query_id"):
        read((events, queries))
    foreign = lines(tmp_path / "foreign.jsonl", [{"user_query": "shoe", "id": 1}])
    with pytest.raises(ColumnError, match="no document has query_id"):
        read((foreign, events))
    with pytest.raises(ColumnError, match="Found: a"):
        read((pa.table({"a": [1]}), events))


def test_nothing_says_what_was_shown(export):
    queries = [each | {"query_response_hit_ids": None} for each in QUERIES]
    with pytest.raises(ColumnError, match="does not hold the results"):
        read(export(queries))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": {"clck": "x"}}, "Did you mean 'click'"),
        ({"columns": {"ranker": None}}, "must be a path"),
        ({"columns": {"ranker": 'a"b'}}, "must be a path"),
        ({"columns": {"hits": "."}}, "must be a path"),
        ({"columns": {"offset": "query..from"}}, "must be a path"),
        ({"columns": {"query_id": ""}}, "must be a path"),
        ({"columns": {"doc_id": "event_attributes.*"}}, "must be a path"),
        ({"columns": {"click": "click,"}}, "must be a path"),
        ({"context": ["query_attributes."]}, "a context must be a path"),
        ({"label": "hits"}, "names that are not taken"),
        ({"context": ["click"]}, "names that are not taken"),
        ({"hits_shown": 0}, "at least 1"),
    ],
)
def test_options_that_make_no_sense(export, options, said):
    with pytest.raises(OptionError, match=said):
        read(export(), **options)


def test_a_file_that_changes_meanwhile_is_refused(export, monkeypatch):
    paths = export()

    opened = ut.Ubi.open

    def and_change(*arguments, **options):
        source = opened(*arguments, **options)
        lines(Path(paths[1]), EVENTS[:1])
        return source

    monkeypatch.setattr(ut.Ubi, "open", and_change)
    with pytest.raises(FileFormatError, match="changed while it was read"):
        read(paths)
