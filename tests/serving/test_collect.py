"""Lists and feedback become the log that they are: joined, once, by UTC's days, again and again."""

import asyncio
import json
import os
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.serving.asking import saved_ranker, with_server
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app
from untilt.errors import FileFormatError, OptionError
from untilt.serving import collect as collect_module
from untilt.serving.collect import collect
from untilt.serving.explore import NOT_DRAWN, parse_exploration
from untilt.serving.journal import Journal, segments
from untilt.serving.options import Settings
from untilt.serving.wire import Feedback, Names, Shown, hashed, pack

DAY = 86_400_000_000
MONDAY = 20_000 * DAY  # 2024-10-04, at midnight of UTC
MONDAY_NAME, TUESDAY_NAME = "2024-10-04", "2024-10-05"


def list_id(time, name):
    day = datetime.fromtimestamp(time // 1_000_000, UTC).strftime("%Y%m%d")
    return f"{day}-{hashed(name)}"


def shown(name, *documents, time=MONDAY, **more):
    given = {"session": f"session of {name}", "query": "q", "ranker": "production", "model": "m"}
    return Shown(
        list_id=list_id(time, name), time=time, documents=list(documents), **{**given, **more}
    )


def clicked(event, name, document, *, time=MONDAY, received=None, day=None, **more):
    day = time if day is None else day
    return Feedback(
        event=event, list_id=list_id(day, name), document=document, time=time,
        received=time if received is None else received, **more,
    )  # fmt: skip


def replace_id(record, day):
    record.list_id = f"{day}{record.list_id[8:]}"
    return record


def write(folder, *records):
    write_raw(folder, *map(pack, records))


def write_raw(folder, *payloads):
    async def work():
        journal = Journal(folder)
        await journal.append(*payloads)
        await journal.close()

    asyncio.run(work())


def rows(out, day=MONDAY_NAME):
    return pq.read_table(out / f"clicks-{day}.parquet").to_pylist()


def test_lists_and_feedback_are_joined_whatever_comes_first_or_twice(tmp_path):
    write(tmp_path / "log", clicked("e1", "one", "b", time=MONDAY + 5))
    write(
        tmp_path / "log",
        shown("one", "a", "b", "c"),
        shown("one", "a", "b", "c", time=MONDAY + 7),  # the page was loaded again
        shown("two", "a", time=MONDAY + 1),
        clicked("e1", "one", "b", time=MONDAY + 6),  # sent again
        clicked("e2", "one", "b", time=MONDAY + 8),  # clicked again
        clicked("e3", "two", "zzz"),  # was not shown
        clicked("e4", "three", "a"),  # no such list
    )
    done = collect(tmp_path / "log", tmp_path / "out")
    assert (done.lists, done.impressions, done.reloads) == (2, 4, 1)
    assert (done.events, done.duplicates, done.orphans) == (2, 1, 2)
    found = rows(tmp_path / "out")
    assert [(each["doc_id"], each["position"], each["click"]) for each in found] == [
        ("a", 1, 0), ("b", 2, 1), ("c", 3, 0), ("a", 1, 0),
    ]  # fmt: skip
    assert found[0]["timestamp"] == datetime(2024, 10, 4, tzinfo=UTC)
    assert found[0]["session"] == "session of one"
    log = ut.read_log(tmp_path / "out")
    assert log.n_sessions == 2


def test_collecting_again_gives_the_same_bytes_and_takes_what_is_new(tmp_path):
    write(tmp_path / "log", shown("one", "a", "b"), clicked("e1", "one", "a"))
    collect(tmp_path / "log", tmp_path / "out")
    path = tmp_path / "out" / f"clicks-{MONDAY_NAME}.parquet"
    before = path.read_bytes()
    collect(tmp_path / "log", tmp_path / "out")
    assert path.read_bytes() == before
    write(tmp_path / "log", clicked("e2", "one", "b", time=MONDAY + 3 * DAY, day=MONDAY))
    collect(tmp_path / "log", tmp_path / "out")
    assert [each["click"] for each in rows(tmp_path / "out")] == [1, 1]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [path.name]


def test_days_are_days_of_utc_whatever_the_machine_says(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    write(
        tmp_path / "log",
        shown("one", "a", time=MONDAY + DAY - 1),
        shown("two", "a", time=MONDAY + DAY),
    )
    done = collect(tmp_path / "log", tmp_path / "out")
    assert done.days == {MONDAY_NAME: 1, TUESDAY_NAME: 1}
    last = datetime(2024, 10, 4, 23, 59, 59, 999_999, tzinfo=UTC)
    assert rows(tmp_path / "out")[0]["timestamp"] == last


def test_labels_follow_their_rules(tmp_path):
    write(
        tmp_path / "log",
        shown("one", "a", "b"),
        clicked("1", "one", "a", label="dwell", value=2.5),
        clicked("2", "one", "a", label="dwell", value=4.0, time=MONDAY + 2),
        clicked("3", "one", "b", label="rating", value=5.0, time=MONDAY + 3),
        clicked("4", "one", "b", label="rating", value=3.0, time=MONDAY + 2),
        clicked("5", "one", "b", value=7.0),
    )
    collect(tmp_path / "log", tmp_path / "out", labels={"rating": "last"})
    first, second = rows(tmp_path / "out")
    assert (first["click"], first["dwell"], first["rating"]) == (0, 6.5, 0)
    assert (second["click"], second["dwell"], second["rating"]) == (1, 0, 5)
    for rules in ({"rating": "mean"}, {"position": "sum"}):
        with pytest.raises(OptionError):
            collect(tmp_path / "log", tmp_path / "out", labels=rules)


def test_closed_days_are_final_and_their_segments_may_go(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, shown("one", "a", "b"))
    write(log, shown("two", "a", time=MONDAY + 5 * DAY))
    at = datetime(2024, 10, 8, tzinfo=UTC)
    done = collect(log, out, close_after=2, remove_closed=True, now=at)
    assert (done.closed, done.removed) == ([MONDAY_NAME], 1)
    assert len(segments(log)) == 1
    late = MONDAY + 6 * DAY
    write(log, clicked("e1", "one", "a", time=late, day=MONDAY))
    done = collect(log, out, close_after=2, now=at)
    assert (done.late, done.orphans) == (1, 0)
    assert [each["click"] for each in rows(out)] == [0, 0]
    assert list(done.days) == ["2024-10-09"]


def test_features_of_requests_become_columns(tmp_path):
    values = np.array([[1.5, 2.5], [3.5, 4.5]], "<f4")
    other = np.array([[9.0]], "<f4")
    write(
        tmp_path / "log",
        Names("n1", ["x", "y"]),
        Names("n2", ["z"]),
        shown("one", "a", "b", features=values.tobytes(), names="n1"),
        shown("two", "a", features=other.tobytes(), names="n2", time=MONDAY + 1),
    )
    collect(tmp_path / "log", tmp_path / "out")
    found = rows(tmp_path / "out")
    assert [(each["x"], each["y"], each["z"]) for each in found] == [
        (1.5, 2.5, None), (3.5, 4.5, None), (None, None, 9.0),
    ]  # fmt: skip


def test_no_feature_takes_the_place_of_a_column(tmp_path):
    """Names that a request may send: the position of another list, a label, two that differ in
    case."""
    names = ["position", "dwell", "Price", "price", "feature_dwell"]
    values = np.arange(1, 6, dtype="<f4")
    write(
        tmp_path / "log",
        Names("n", names),
        shown("one", "a", features=values.tobytes(), names="n"),
        clicked("e", "one", "a", label="dwell", value=30.0),
    )
    done = collect(tmp_path / "log", tmp_path / "out")
    columns = ["feature_position", "feature_dwell", "Price", "feature_price",
               "feature_feature_dwell"]  # fmt: skip
    assert done.features == tuple(columns)
    assert done.renamed == {n: c for n, c in zip(names, columns, strict=True) if n != c}
    (found,) = rows(tmp_path / "out")
    assert (found["position"], found["dwell"]) == (1, 30.0)
    assert [found[each] for each in columns] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert ut.read_log(tmp_path / "out", features=columns).n_features == 5


def test_a_disk_that_lost_the_names_of_features_keeps_the_lists(tmp_path):
    write(tmp_path / "log", Names("n", ["x"]), shown("one", "a", features=b"\0\0\0\0", names="n"))
    (path,) = segments(tmp_path / "log")
    path.write_bytes(path.read_bytes().replace(b"\xa5names\x91", b"\xa5nam\0s\x91"))
    done = collect(tmp_path / "log", tmp_path / "out")
    assert (done.lists, done.without_features, done.features) == (1, 1, ())
    assert done.damaged > 0
    assert [each["doc_id"] for each in rows(tmp_path / "out")] == ["a"]


def test_arms_are_compared_with_their_probabilities(tmp_path):
    def lists(n_swapped, n_base):
        arms = ["swap:1-2"] * n_swapped + ["base"] * n_base
        return [
            shown(f"{i}", "a", "b", ranker=arm, experiment="swaps:1-2=0.1", time=MONDAY + i)
            for i, arm in enumerate(arms)
        ]

    write(tmp_path / "fair", *lists(100, 900))
    fair = collect(tmp_path / "fair", tmp_path / "out")
    assert fair.arms == {"base": 900, "swap:1-2": 100}
    assert fair.expected == {"base": 900.0, "swap:1-2": 100.0}
    assert fair.arms_p_value == pytest.approx(1)
    assert fair.experiments == ["swaps:1-2=0.1"]
    write(tmp_path / "lost", *lists(50, 900))
    assert collect(tmp_path / "lost", tmp_path / "out2").arms_p_value < 1e-4


def test_what_a_server_logged_is_collected(tmp_path):
    settings = Settings(
        ranker=str(saved_ranker(tmp_path / "a.untilt")), log=str(tmp_path / "log"),
        explore="swap-adjacent:0.5:3", shadow=True, watch_seconds=0.0,
        candidate=str(saved_ranker(tmp_path / "b.untilt", weights=(0.0, 1.0))),
    )  # fmt: skip

    async def talk(ask):
        shown = {}
        for i in range(30):
            answer = (
                await ask.rank(
                    session=f"s{i}", query=f"q{i % 3}", documents=["x", "y", "z"],
                    features=[[0.1, 3.0], [0.9, 1.0], [0.5, 2.0]],
                )
            ).json  # fmt: skip
            shown[answer["list"]] = answer
            event = {"event": f"e{i}", "list": answer["list"], "document": "y"}
            await ask.feedback(event)
            await ask.feedback({**event, "time": "2026-11-16T12:00:00+02:00"})
        # While the server runs: the segment that it writes to is read as far as it goes.
        done = await asyncio.to_thread(collect, tmp_path / "log", tmp_path / "out")
        return shown, done

    answers, done = with_server(settings, talk)
    assert (done.lists, done.events, done.duplicates, done.cut) == (30, 30, 30, 0)
    found = pq.read_table(tmp_path / "out").to_pylist()
    for list_id, answer in answers.items():
        mine = [each for each in found if each["session_id"] == list_id]
        assert [each["doc_id"] for each in mine] == answer["documents"]
        named = f"{answer['ranker']}@swap-adjacent:0.5:3"
        assert {each["ranker"] for each in mine} == {named}
        assert {each["doc_id"]: each["click"] for each in mine} == {"x": 0, "y": 1, "z": 0}
        # The ranker in shadow goes by the second feature.
        assert {each["doc_id"]: each["shadow_position"] for each in mine} == {
            "x": 1,
            "z": 2,
            "y": 3,
        }
        assert len({each["shadow_model"] for each in mine} - {"", mine[0]["model"]}) == 1
        assert {each["doc_id"]: each["b"] for each in mine} == {"x": 3.0, "y": 1.0, "z": 2.0}
        p = 0.5 if answer["ranker"] == "base" else 0.25
        assert {each["probability"] for each in mine} == {p}
    log = ut.read_log(tmp_path / "out", features=["a", "b"])
    assert log.n_sessions == 30
    arms = ("base", "swap:1-2", "swap:2-3")
    assert set(log.ranker_names) == {f"{arm}@swap-adjacent:0.5:3" for arm in arms}


def test_a_rate_that_was_changed_is_not_pooled(tmp_path):
    """Few swaps while everybody clicks, many when hardly anybody does; commands know of neither."""
    theta, relevance = np.array([1.0, 0.6, 0.3]), {"a": 0.9, "b": 0.6, "c": 0.8}
    orders = {"base": "abc", "swap:1-2": "bac", "swap:2-3": "acb"}
    rng, records = np.random.default_rng(0), []
    for season, (share, clicks) in enumerate([(0.05, 1.0), (0.5, 0.25)]):
        experiment = f"swap-adjacent:{share}:3"
        arms = [("base", 1 - share), ("swap:1-2", share / 2), ("swap:2-3", share / 2)]
        for arm, probability in arms:
            for i in range(round(8000 * probability)):
                name = f"{season} {arm} {i}"
                time = MONDAY + season * DAY + i
                documents = orders[arm]
                records.append(
                    shown(name, *documents, time=time, query=f"q{i % 30}", ranker=arm,
                          experiment=experiment, probability=probability)
                )  # fmt: skip
                chance = clicks * theta * [relevance[each] for each in documents]
                records += [
                    clicked(f"{name} {k}", name, documents[k], time=time)
                    for k in np.flatnonzero(rng.random(3) < chance)
                ]
    write(tmp_path / "log", *records)
    done = collect(tmp_path / "log", tmp_path / "out")
    assert done.experiments == ["swap-adjacent:0.05:3", "swap-adjacent:0.5:3"]
    assert done.arms_p_value > 0.99
    log = ut.read_log(tmp_path / "out")
    advice = ut.audit(log).advice
    # Both swaps have position 2 in common.
    assert (advice.estimator, advice.options) == ("PivotSwap", {"pivot": 2})
    told = CliRunner().invoke(app, ["bias", str(tmp_path / "out"), "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["method"] == "PivotSwap"
    assert np.all((found["low"] <= theta) & (theta <= found["high"]))
    # The arms alone, as if there had been one experiment: the swapped positions seem to be hidden.
    pooled = replace(log, ranker_names=tuple(n.partition("@")[0] for n in log.ranker_names))
    wrong = ut.PivotSwap(2, check=False).fit(pooled).bias_
    assert np.any((wrong.high < theta) | (wrong.low > theta))


def test_swaps_of_position_1_within_their_cost_test_a_harvested_curve(tmp_path):
    """Lists that would lose more than the cap stay as they are; the rest is read by its names."""
    theta, rng, records = np.array([1.0, 0.6, 0.4, 0.3]), np.random.default_rng(0), []
    exploration = parse_exploration("pivot:0.3:4", salt="s", most_lost=0.04)
    worth = rng.uniform(0.05, 0.9, size=(30, 4))
    for i in range(6000):
        q = int(rng.integers(30))
        order = np.argsort(-worth[q] - 0.3 * rng.normal(size=4))
        takes_part = exploration.is_affordable(4, theta, worth[q][order])
        drawn = exploration.draw(f"visit {i}", 4) if takes_part else NOT_DRAWN
        order = order if drawn.order is None else order[list(drawn.order)]
        names, time = [f"{q} {d}" for d in order], MONDAY + i
        text = exploration.text if takes_part else ""
        records.append(shown(f"{i}", *names, time=time, query=f"q{q}", ranker=drawn.ranker,
                             experiment=text, probability=drawn.probability))  # fmt: skip
        records += [clicked(f"{i} {k}", f"{i}", names[k], time=time)
                    for k in np.flatnonzero(rng.random(4) < theta * worth[q][order])]  # fmt: skip
    write(tmp_path / "log", *records)
    collect(tmp_path / "log", tmp_path / "out")
    log = ut.read_log(tmp_path / "out", features=[])
    arms = {"base", *(f"swap:1-{k}" for k in (2, 3, 4))}
    assert set(log.ranker_names) == {"production", *(f"{arm}@pivot:0.3:4" for arm in arms)}
    found = ut.audit(log)
    assert found.advice.estimator == "PivotSwap"
    bias = ut.PivotSwap().fit(log).bias_
    assert np.all((bias.low <= theta) & (theta <= bias.high))
    assert 0.7 < found.harvested.low < 1 < found.harvested.high < 1.4
    assert found.harvested.sessions == sum(found.interventions.swapped.values())


def crafted(**changes):
    """A list as bytes, with parts that no server writes."""
    record = {"type": "shown", **msgspec.to_builtins(shown("bad", "a", "b"))}
    return msgspec.msgpack.encode({**record, **changes})


BAD = {
    "unknown type": b"\x81\xa4type\xa5novel",
    "no map": b"\xc1",
    "nested": b"\x91" * 10_000,
    "a document twice": crafted(documents=["a", "a"]),
    "no document": crafted(documents=[]),
    "another day": crafted(time=MONDAY + DAY),
    "too late a time": crafted(time=2**62),
    "an empty id": crafted(session=""),
    "a long id": crafted(query="q" * 300),
    "few teams": crafted(teams=[1]),
    "large teams": crafted(teams=[1, 2**31]),
    "few shadows": crafted(shadow=[1]),
    "no experiment": crafted(experiment="nonsense"),
    "no probability": crafted(probability=float("nan")),
    "names": pack(Names("n", ["x", "x"])),
    "control": pack(Names("n", ["x\0y"])),
    **{f"label {label!r}": pack(clicked("e", "one", "a", label=label))
       for label in ("' ), 0) AS a FROM known; DROP TABLE known; --", '"', "", "CLICK", "ranker")},
    "value": pack(clicked("e", "one", "a", value=float("nan"))),
    "day": pack(replace_id(clicked("e", "one", "a"), "20249999")),
}  # fmt: skip


def test_bad_records_are_left_out_and_counted(tmp_path):
    good = [pack(shown("one", "a", "b")), pack(clicked("e", "one", "a"))]
    write_raw(tmp_path / "log", *BAD.values(), *good)
    done = collect(tmp_path / "log", tmp_path / "out")
    assert (done.lists, done.events, done.bad, done.damaged) == (1, 1, len(BAD), 0)
    assert [each["click"] for each in rows(tmp_path / "out")] == [1, 0]
    # What cannot be counted as read is not removed, until it is set aside.
    later = datetime(2024, 12, 1, tzinfo=UTC)
    options: dict[str, Any] = {"close_after": 1, "remove_closed": True, "now": later}
    assert collect(tmp_path / "log", tmp_path / "out2", **options).removed == 0
    done = collect(tmp_path / "log", tmp_path / "out3", set_aside=True, **options)
    assert (len(done.set_aside), done.removed) == (1, 0)
    done = collect(tmp_path / "log", tmp_path / "out4", **options)
    assert (done.lists, done.events, done.bad, done.removed) == (1, 1, 0, 1)


@pytest.mark.parametrize("width", [4, 15, 17, 0])
def test_features_of_another_width_are_left_out(tmp_path, width):
    names, features = Names("n", ["x", "y"]), b"\0" * width
    write(tmp_path / "log", names, shown("one", "a", "b", features=features, names="n"))
    done = collect(tmp_path / "log", tmp_path / "out")
    assert (done.lists, done.without_features) == (1, 1)


def test_what_is_no_segment_is_named_and_stops_no_other(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, shown("one", "a"))
    os.mkfifo(log / "pipe.journal")
    (log / "link.journal").symlink_to("/dev/zero")
    (log / "other.journal").write_bytes(b"something else entirely")
    later: dict[str, Any] = {"close_after": 1, "now": datetime(2024, 12, 1, tzinfo=UTC)}
    done = collect(log, out, remove_closed=True, **later)
    assert sorted(done.refused) == ["link.journal", "other.journal", "pipe.journal"]
    # There may be lists of any day in them: no day is final.
    assert (done.lists, done.closed, done.removed) == (1, [], 0)
    done = collect(log, out, set_aside=True)
    assert sorted(p.name for p in (log / "damaged").iterdir()) == sorted(done.refused)
    assert collect(log, out, **later).closed == [MONDAY_NAME]
    with pytest.raises(OptionError, match="no folder"):
        collect(tmp_path / "nothing", out)


def test_a_damaged_segment_is_set_aside_and_its_whole_records_stay(tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    write(
        log,
        Names("n", ["x"]),
        shown("one", "a", features=b"\0\0\0\0", names="n"),
        shown("two", "a"),
    )
    (path,) = segments(log)
    before = path.read_bytes().replace(b"session of two", b"session of TWO")
    path.write_bytes(before)
    done = collect(log, out, set_aside=True)
    assert done.damaged == 0  # it was the last record: taken for a torn tail
    (old,) = segments(log)
    write(log, shown("three", "a"), shown("four", "a"))
    (path,) = {*segments(log)} - {old}
    path.write_bytes(before := path.read_bytes().replace(b"session of three", b"session of THREE"))
    first = collect(log, out, set_aside=True)
    assert (first.lists, first.set_aside) == (2, [path.name])
    assert (log / "damaged" / path.name).read_bytes() == before
    again = collect(log, out)
    assert (again.lists, again.damaged, again.without_features) == (2, 0, 0)


def test_an_event_is_one_of_its_document_and_nobody_takes_its_id(tmp_path):
    write(
        tmp_path / "log",
        shown("one", "a", "b"),
        clicked("e-1", "nowhere", "a", received=MONDAY + 1),  # a stranger was first
        clicked("e-1", "one", "a", received=MONDAY + 2),
        clicked("e-1", "one", "b", received=MONDAY + 3),  # another front end counts from 1 too
        clicked("e-1", "one", "b", received=MONDAY + 4),  # sent again
        clicked("e-1", "one", "b", received=MONDAY + 5, label="dwell", value=3.0),
    )
    done = collect(tmp_path / "log", tmp_path / "out")
    assert (done.events, done.duplicates, done.orphans) == (3, 1, 1)
    found = [(each["click"], each["dwell"]) for each in rows(tmp_path / "out")]
    assert found == [(1, 0), (1, 3)]


@pytest.mark.parametrize("day", ["20200101", "99991231"])
def test_events_of_unknown_lists_do_not_hold_up_removal(tmp_path, day):
    orphan = replace_id(clicked("e", "none", "a", received=MONDAY + DAY), day)
    write(tmp_path / "log", shown("one", "a"), orphan)
    options: dict[str, Any] = {"close_after": 1, "remove_closed": True}
    early = datetime(2024, 10, 6, 12, tzinfo=UTC)
    done = collect(tmp_path / "log", tmp_path / "out", now=early, **options)
    # It came on the 5th: its list may still come.
    assert done.removed == (day == "20200101")
    later = datetime(2024, 10, 7, 12, tzinfo=UTC)
    collect(tmp_path / "log", tmp_path / "out", now=later, **options)
    assert segments(tmp_path / "log") == []


def test_a_segment_that_grew_after_it_was_read_stays(tmp_path, monkeypatch):
    """A server writes acknowledged lists of the next day into it, and stops."""
    log, out = tmp_path / "log", tmp_path / "out"

    async def work():
        journal = Journal(log)
        await journal.append(pack(shown("one", "a")))
        joined = collect_module._join

        def then_grows(*given):
            joined(*given)
            # In the other thread, as a server beside us does.
            asyncio.run_coroutine_threadsafe(
                journal.append(pack(shown("two", "a", time=MONDAY + DAY))), loop
            ).result()
            asyncio.run_coroutine_threadsafe(journal.close(), loop).result()

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(collect_module, "_join", then_grows)
        options: dict[str, Any] = {"close_after": 0, "remove_closed": True}
        return await asyncio.to_thread(
            collect, log, out, now=datetime(2024, 10, 5, tzinfo=UTC), **options
        )

    done = asyncio.run(work())
    assert (done.closed, done.removed) == ([MONDAY_NAME], 0)
    monkeypatch.undo()
    done = collect(log, out)
    assert done.days == {TUESDAY_NAME: 1}


def test_a_second_collect_is_refused_and_the_final_day_stays(tmp_path, monkeypatch):
    log, out = tmp_path / "log", tmp_path / "out"
    write(log, shown("one", "a"), clicked("e", "one", "a"))
    joined, refused = collect_module._join, []

    def meanwhile(*given):
        monkeypatch.undo()
        for other in ((log, tmp_path / "elsewhere"), (tmp_path / "log2", out)):
            with pytest.raises(OptionError, match="another `untilt collect`"):
                collect(*other, close_after=1, remove_closed=True)
            refused.append(other)
        joined(*given)

    write(tmp_path / "log2", shown("two", "a"))
    monkeypatch.setattr(collect_module, "_join", meanwhile)
    collect(log, out)
    assert len(refused) == 2
    # A final day is never replaced.
    later = datetime(2024, 12, 1, tzinfo=UTC)
    assert collect(log, out, close_after=1, remove_closed=True, now=later).removed == 1
    before = (out / f"clicks-{MONDAY_NAME}.parquet").read_bytes()
    write(log, shown("one", "a"))
    collect(log, out)
    assert (out / f"clicks-{MONDAY_NAME}.parquet").read_bytes() == before


def test_names_and_labels_that_a_client_invents_are_bounded(tmp_path):
    """The most frequent stay: those of the rankers, and the labels that people use."""
    many = [f"n{i}" for i in range(100_000)]
    write(
        tmp_path / "log",
        Names("own", ["x"]),
        Names("many", many),
        shown("many", "a", features=bytes(400_000), names="many"),
        *(shown(f"{i}", "a", features=b"\0\0\x80?", names="own") for i in range(50)),
        *(clicked("e", "1", "a", label=f"l{i}") for i in range(1000)),
        *(clicked("f", f"{i}", "a", label="dwell") for i in range(5)),
        clicked("e", "1", "a"),
    )
    tracemalloc.start()
    done = collect(tmp_path / "log", tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(done.features), len(done.labels)) == (4096, 64)
    assert {"click", "dwell"} <= set(done.labels)
    assert len(done.left_out) == 100_001 - 4096 + 1002 - 64
    found = rows(tmp_path / "out")
    assert [each["x"] for each in found if each["x"] is not None] == [1.0] * 50
    assert sum(each["dwell"] for each in found) == 5
    assert peak < 200 << 20


def test_a_file_that_is_none_of_a_day_is_told(tmp_path):
    write(tmp_path / "log", shown("one", "a"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "clicks-2026-01-01.parquet").write_bytes(b"no parquet")
    with pytest.raises(FileFormatError, match="no file of a day"):
        collect(tmp_path / "log", tmp_path / "out")
