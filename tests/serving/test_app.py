"""What the server answers: orders, limits, errors with a sentence, reload, shadow, metrics."""

import asyncio
import base64
import errno
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.serving.asking import saved_ranker, with_server
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app as cli
from untilt.errors import OptionError, UntiltError, WriteError
from untilt.serving.collect import collect
from untilt.serving.journal import Journal, JournalFullError
from untilt.serving.options import Settings
from untilt.serving.start import _own_salt, make_server

ROWS = [[0.1, 3.0], [0.9, 1.0], [0.5, 2.0]]
ASKED = {"session": "s1", "query": "shoes", "documents": ["x", "y", "z"], "features": ROWS}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A ranker by feature a, one by feature b, and a table of features."""
    folder = tmp_path_factory.mktemp("rankers")
    saved_ranker(folder / "a.untilt")
    saved_ranker(folder / "b.untilt", weights=(0.0, 1.0))
    table = {"query_id": ["shoes"] * 3, "doc_id": ["x", "y", "z"],
             "b": [3.0, 1.0, 2.0], "a": [0.1, 0.9, 0.5], "title": ["X", "Y", "Z"]}  # fmt: skip
    pq.write_table(pa.table(table), folder / "documents.parquet")
    return folder


@pytest.fixture
def settings(files, tmp_path):
    def make(**more):
        given = {"ranker": str(files / "a.untilt"), "log": str(tmp_path / "log"), "salt": "s",
                 "watch_seconds": 0.0, **more}  # fmt: skip
        return Settings(**given)

    return make


def once(settings, request, **headers):
    async def talk(ask):
        return await ask("POST", "/rank", request)

    return with_server(settings, talk, **headers)


def test_documents_come_in_the_order_of_the_ranker(settings):
    answer = once(settings(), ASKED)
    assert answer.status == 200
    assert answer.json["documents"] == ["y", "z", "x"]
    assert answer.json["ranker"] == "production"
    assert re.fullmatch(r"\d{8}-[0-9a-f]{24}", answer.json["list"])


@pytest.mark.parametrize(
    "features",
    [
        [{"b": 3.0, "a": 0.1}, {"a": 0.9, "b": 1}, {"a": 0.5, "b": 2}],
        base64.b64encode(np.array(ROWS, "<f4").tobytes()).decode(),
    ],
    ids=["by name", "in one piece"],
)
def test_features_in_other_forms_are_the_same(settings, features):
    assert once(settings(), {**ASKED, "features": features}).json["documents"] == ["y", "z", "x"]


def test_names_may_come_in_another_order(settings):
    asked = {**ASKED, "features": [[b, a] for a, b in ROWS], "feature_names": ["b", "a"]}
    assert once(settings(), asked).json["documents"] == ["y", "z", "x"]


def test_msgpack_is_the_same(settings):
    body = msgspec.msgpack.encode({**ASKED, "features": np.array(ROWS, "<f4").tobytes()})

    async def talk(ask):
        return await ask("POST", "/rank", body, content_type="application/msgpack")

    answer = with_server(settings(), talk)
    assert msgspec.msgpack.decode(answer.body)["documents"] == ["y", "z", "x"]


def test_features_are_looked_up_and_unknown_documents_refused_or_last(settings, files):
    asked = {**ASKED, "documents": ["new", "x", "y"]}
    del asked["features"]
    table = str(files / "documents.parquet")
    refused = once(settings(documents=table), asked)
    assert refused.status == 400
    assert "'new'" in refused.error
    last = once(settings(documents=table, unknown="last"), asked)
    assert last.json["documents"] == ["y", "x", "new"]
    assert once(settings(), asked).status == 400  # no table at all


def test_size_cuts_the_list_and_numbers_may_be_ids(settings):
    asked = {**ASKED, "session": 7, "documents": [1, 2, 3], "size": 2}
    assert once(settings(), asked).json["documents"] == [2, 3]


BAD = {
    "no json": (b"{", 400),
    "a list": (b"[]", 400),
    "unknown field": ({**ASKED, "path": "/etc/passwd"}, 400),
    "no documents": ({**ASKED, "documents": [], "features": []}, 400),
    "twice": ({**ASKED, "documents": ["x", "x", "y"]}, 400),
    "twice as number": ({**ASKED, "documents": ["1", 1, "y"]}, 400),
    "too few rows": ({**ASKED, "features": ROWS[:2]}, 400),
    "short row": ({**ASKED, "features": [[1.0], *ROWS[1:]]}, 400),
    "other names": ({**ASKED, "feature_names": ["a", "c"]}, 400),
    "a name twice": ({**ASKED, "features": [[1.0] * 3] * 3, "feature_names": ["a", "b", "b"]}, 400),
    "no name": ({**ASKED, "features": [[1.0] * 3] * 3, "feature_names": ["a", "b", ""]}, 400),
    "name missing": ({**ASKED, "features": [{"a": 1.0}, *ROWS[1:]]}, 400),
    "short piece": ({**ASKED, "features": "AAAA"}, 400),
    "missing value": ({**ASKED, "features": [[None, 1.0], *ROWS[1:]]}, 400),
    "too large a value": ({**ASKED, "features": [[1e300, 1.0], *ROWS[1:]]}, 400),
    "empty document": ({**ASKED, "documents": ["x", "", "z"]}, 400),
    "control in a document": ({**ASKED, "documents": ["x", "y\0", "z"]}, 400),
    "control in a session": ({**ASKED, "session": "s\t"}, 400),
    "control in a query": ({**ASKED, "query": "\x1b[2J"}, 400),
    "control in a name": (
        {**ASKED, "features": [[1.0] * 3] * 3, "feature_names": ["a", "b", "\x9b"]},
        400,
    ),
    "long document": ({**ASKED, "documents": ["x", "y" * 300, "z"]}, 400),
    "half a document": (b'{"session":"s","query":"q","documents":["a","\\udc00"]}', 400),
    "long id": ({**ASKED, "session": "s" * 300}, 400),
    "empty id": ({**ASKED, "query": ""}, 400),
    "half a pair": (b'{"session":"\\ud800","query":"q","documents":["d"]}', 400),
    "size 0": ({**ASKED, "size": 0}, 400),
    "too many": ({**ASKED, "documents": list(range(11)), "features": [[1.0, 1.0]] * 11}, 400),
    "too large": (b" " * 3000, 413),
    "nested": (b"[" * 2000, 400),
}


def test_bad_input_is_refused_with_a_sentence(settings):
    async def talk(ask):
        return {name: await ask("POST", "/rank", body) for name, (body, _) in BAD.items()}

    answers = with_server(settings(most_documents=10, most_body=2048), talk)
    for name, answer in answers.items():
        assert answer.status == BAD[name][1], (name, answer)
        assert len(answer.error) > 20, name
        assert answer.error.rstrip().endswith("."), (name, answer.error)


def test_no_body_however_damaged_is_more_than_bad_input(settings):
    """Anything that is raised and not a `RequestError` comes out of the application, and fails."""
    rng = np.random.default_rng(0)
    event = {"event": "e", "list": f"20261116-{'0' * 24}", "document": "x", "label": "dwell",
             "value": 1.5, "time": "0001-01-01T00:00:00+14:00"}  # fmt: skip
    whole: dict[str, list] = {
        "/rank": [ASKED, {**ASKED, "features": np.array(ROWS, "<f4").tobytes()},
                  {**ASKED, "features": [[float("nan"), float("inf")]] * 3, "size": 2**63 - 1}],
        "/feedback": [{"events": [event] * 3}],
    }  # fmt: skip

    async def talk(ask):
        seen = set()
        for path, bodies in whole.items():
            for kind in ("json", "msgpack"):
                for body in (getattr(msgspec, kind).encode(each) for each in bodies):
                    for _ in range(40):
                        damaged = bytearray(body)
                        for place in rng.integers(0, len(damaged), rng.integers(0, 4)):
                            damaged[place] = rng.integers(256)
                        cut = bytes(damaged[: rng.integers(len(damaged) // 2, len(damaged) + 1)])
                        answer = await ask("POST", path, cut, content_type=f"application/{kind}")
                        seen.add(answer.status)
        return seen

    assert with_server(settings(), talk) == {200, 400}


def test_other_paths_methods_and_types_are_refused(settings):
    async def talk(ask):
        return [
            await ask("GET", "/nowhere"),
            await ask("GET", "/rank"),
            await ask("POST", "/rank", ASKED, content_type="text/plain"),
            await ask("GET", "/../../etc/passwd"),
            await ask("POST", "/rank/", ASKED),  # and no way to another host
            await ask("POST", "/reload", content_type="application/x-www-form-urlencoded"),
        ]

    answers = with_server(settings(), talk)
    assert [each.status for each in answers] == [404, 405, 415, 404, 404, 415]
    assert answers[1].headers["allow"] == "POST"
    assert all(each.error for each in answers)


def test_every_path_says_which_method_it_takes(settings):
    ways = {"POST": ("/rank", "/feedback", "/reload"),
            "GET": ("/model", "/metrics", "/health", "/ready")}  # fmt: skip

    async def talk(ask):
        wrong = {"POST": "GET", "GET": "DELETE"}
        return {
            path: (taken, await ask(wrong[taken], path, ASKED))
            for taken, paths in ways.items()
            for path in paths
        }

    for path, (taken, answer) in with_server(settings(), talk).items():
        assert answer.status == 405, path
        assert taken in answer.headers["allow"].split(", "), path
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_host_does_not_change_the_path_that_is_counted(settings):
    async def talk(ask):
        for host in ("[", "x/metrics?", "@"):
            assert (await ask("POST", "/rank", ASKED, host=host)).status == 200
        return (await ask("GET", "/metrics")).body.decode()

    text = with_server(settings(), talk)
    assert 'untilt_requests_total{path="/rank",status="200"} 3\n' in text
    assert 'path="/metrics"' not in text


def test_servers_that_start_at_once_have_one_salt(settings, tmp_path, monkeypatch):
    """Both look for the file before either has written it."""
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.exists", lambda _: False)
        salts = {_own_salt(tmp_path) for _ in range(2)}
    assert salts == {_own_salt(tmp_path)}
    assert len(salts.pop()) == 32


def test_a_ranker_with_one_name_for_two_features_is_refused(settings, files, tmp_path):
    ranker = ut.load(files / "a.untilt")
    ranker.feature_names_ = ("a", "a")
    ranker.save(tmp_path / "twice.untilt")
    with pytest.raises(OptionError, match="one name"):
        make_server(settings(ranker=str(tmp_path / "twice.untilt")))


def test_a_body_larger_than_it_says_or_too_slow_is_refused(settings):
    async def talk(ask):
        large = await ask("POST", "/rank", parts=[b" " * 1000] * 5)
        slow = await ask("POST", "/rank", parts=[b"{"], never_ends=True)
        return large.status, slow.status

    assert with_server(settings(most_body=2048, timeout=0.05), talk) == (413, 408)


def test_the_token_is_asked_for(settings, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef\n")

    async def talk(ask):
        return [
            (await ask("POST", "/rank", ASKED)).status,
            (await ask("POST", "/rank", ASKED, authorization="Bearer wrong")).status,
            (await ask("POST", "/rank", ASKED, authorization="Bearer 0123456789abcdef")).status,
            (await ask("GET", "/metrics")).status,
            (await ask("GET", "/health")).status,
        ]

    given = settings(token_file=str(tmp_path / "token"))
    assert with_server(given, talk) == [401, 401, 200, 401, 200]
    (tmp_path / "token").write_text("short")
    with pytest.raises(OptionError, match="16 characters"):
        make_server(given)


def test_no_page_of_another_origin_may_call_unless_asked(settings):
    async def talk(ask):
        return (await ask("POST", "/rank", ASKED, origin="http://evil.example")).headers

    assert "access-control-allow-origin" not in with_server(settings(), talk)
    allowed = with_server(settings(cors=("http://shop.example",)), talk)
    assert "access-control-allow-origin" not in allowed

    async def shop(ask):
        return (await ask("POST", "/rank", ASKED, origin="http://shop.example")).headers

    headers = with_server(settings(cors=("http://shop.example",)), shop)
    assert headers["access-control-allow-origin"] == "http://shop.example"


def test_too_many_at_once_are_refused_and_may_come_again(settings):
    async def talk(ask):
        slow = asyncio.create_task(ask("POST", "/rank", parts=[b"{"], never_ends=True))
        await asyncio.sleep(0)
        refused = await ask("POST", "/rank", ASKED)
        health = await ask("GET", "/health")
        await slow
        return refused, health.status, (await ask("POST", "/rank", ASKED)).status

    refused, health, later = with_server(settings(at_once=1, timeout=0.1), talk)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert (health, later) == (200, 200)


def test_neither_a_full_queue_nor_a_full_disk_stops_the_search(settings, monkeypatch):
    async def talk(ask):
        answers = []
        for error in (JournalFullError("too much waits."), WriteError("full.")):

            async def fails(self, *payloads, error=error):
                raise error

            monkeypatch.setattr(Journal, "append", fails)
            answers.append(await ask("POST", "/rank", ASKED))
        event = {"event": 1, "list": f"20261116-{'0' * 24}", "document": "x"}
        answers.append(await ask.feedback(event))
        return answers

    queue, disk, feedback = with_server(settings(), talk)
    assert (queue.status, disk.status, feedback.status) == (200, 200, 503)
    for each in (queue, disk):
        assert each.json["list"] is None
        assert each.json["documents"] == ["y", "z", "x"]


@pytest.mark.parametrize("refuses", [False, True])
def test_on_a_slow_disk_a_list_and_its_clicks_count_or_neither_does(
    settings, monkeypatch, tmp_path, refuses
):
    def slow(handle):
        time.sleep(0.4)
        if refuses:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def talk(ask):
        monkeypatch.setattr("untilt.serving.journal.sync_handle", slow)
        shown = [await ask.rank(**{**ASKED, "session": f"s{i}"}) for i in range(3)]
        ids = [each.json["list"] for each in shown]
        await asyncio.sleep(1.2)
        monkeypatch.undo()
        events = [{"event": i, "list": ids[i], "document": "x"} for i in range(3) if ids[i]]
        told = await ask.feedback(*events)
        late = (await ask("GET", "/metrics")).body.decode()
        return ids, told.status, int(re.search(r"untilt_late_lists_total (\d+)", late)[1])

    ids, status, late = with_server(settings(timeout=0.1), talk)
    assert (status, late) == (200, 3)
    assert None not in ids
    done = collect(tmp_path / "log", tmp_path / "clicks")
    assert (done.lists, done.events, done.orphans) == ((0, 0, 3) if refuses else (3, 3, 0))


def test_a_list_that_is_told_to_be_unlogged_never_counts(settings, monkeypatch, tmp_path):
    """The disk takes the bytes and then refuses to sync them; and refuses to cut them once."""

    def refuses(*_):
        raise OSError(errno.EIO, "Input/output error")

    async def talk(ask):
        ids = [(await ask.rank(**{**ASKED, "session": "first"})).json["list"]]
        for name in ("untilt.serving.journal.sync_handle", "os.ftruncate"):
            monkeypatch.setattr(name, refuses)
            ids.append((await ask.rank(**{**ASKED, "session": name})).json["list"])
        monkeypatch.undo()
        ids.append((await ask.rank(**{**ASKED, "session": "last"})).json["list"])
        return ids

    ids = with_server(settings(), talk)
    assert [each is None for each in ids] == [False, True, True, False]
    done = collect(tmp_path / "log", tmp_path / "clicks")
    found = pq.read_table(tmp_path / "clicks").column("session_id").to_pylist()
    assert set(found) == {ids[0], ids[3]}
    assert (done.cut, done.damaged) == (0, 0)


def test_labels_are_bounded_and_named_by_the_operator(settings):
    def event(label):
        return {"event": label, "list": f"20261116-{'0' * 24}", "document": "x", "label": label}

    async def talk(ask):
        one = [(await ask.feedback(event(label))).status for label in ("click", "dwell")]
        many = await ask.feedback(*(event(f"l{i}") for i in range(100)))
        return one, many.status, (await ask.feedback(event("dwell"))).status

    assert with_server(settings(), talk) == ([200, 200], 400, 200)
    assert with_server(settings(labels=("click",)), talk) == ([200, 400], 400, 400)


def test_names_of_features_do_not_fill_the_memory(settings):
    """Each list of names is kept for every segment: a client that always has new ones is told."""

    async def talk(ask):
        statuses = []
        for i in range(60):
            # The names alone are some 25 kB, so that about forty lists of them may be kept.
            names = ["a", "b", *(f"{i} {'x' * 240} {j}" for j in range(100))]
            rows = [[float(j)] * len(names) for j in range(3)]
            answer = await ask.rank(**{**ASKED, "features": rows, "feature_names": names})
            statuses.append(answer.status)
        usual = await ask("POST", "/rank", {**ASKED, "features": rows, "feature_names": names})
        again = await ask("POST", "/rank", ASKED)
        return statuses, usual, again

    statuses, refused, again = with_server(settings(), talk)
    taken = statuses.index(400)
    assert 20 < taken < 45
    assert set(statuses[taken:]) == {400}
    assert "one order" in refused.error
    assert again.status == 200


def test_bad_feedback_is_refused_with_a_sentence(settings):
    good = {"event": "e", "list": f"20261116-{'0' * 24}", "document": "x"}
    bad = [
        {**good, "list": "../../etc/passwd"},
        {**good, "list": f"20269999-{'0' * 24}"},
        {**good, "label": "Drop table"},
        {**good, "label": "position"},
        {**good, "value": -1},
        {**good, "time": "2026-11-16T12:00:00"},
        {**good, "time": "yesterday"},
        {**good, "event": ""},
        {**good, "other": 1},
    ]

    async def talk(ask):
        answers = [await ask.feedback(each) for each in bad]
        return answers, await ask.feedback(), await ask.feedback(good)

    answers, none, fine = with_server(settings(), talk)
    assert {each.status for each in answers} == {400}
    assert all(each.error for each in answers)
    assert none.status == 400
    assert (fine.status, fine.json) == (200, {"accepted": 1})


def test_exploration_repeats_for_a_session_and_touches_its_first_list_alone(settings):
    given = settings(explore="swap-adjacent:0.5:3")

    async def talk(ask):
        seen = []
        for i in range(60):
            first = await ask.rank(**{**ASKED, "session": f"s{i}"})
            again = await ask.rank(**{**ASKED, "session": f"s{i}"})
            other = await ask.rank(**{**ASKED, "session": f"s{i}", "query": "hats"})
            seen.append((first.json, again.json, other.json))
        return seen

    orders = {"base": ["y", "z", "x"], "swap:1-2": ["z", "y", "x"], "swap:2-3": ["y", "x", "z"]}
    seen = with_server(given, talk)
    for first, again, other in seen:
        assert first == again
        assert first["documents"] == orders[first["ranker"]]
        assert (other["ranker"], other["documents"]) == ("production", orders["base"])
    assert {first["ranker"] for first, _, _ in seen} == set(orders)
    # Another worker, or the next start, does the same: nothing of it is in memory.
    assert [first for first, _, _ in with_server(given, talk)] == [first for first, _, _ in seen]


def test_the_cap_turns_exploration_off_where_it_would_cost_more(settings):
    async def talk(ask):
        arms = {(await ask.rank(**{**ASKED, "session": f"s{i}"})).json["ranker"] for i in range(40)}
        return arms, (await ask("GET", "/metrics")).body.decode()

    # 0.5 of the sessions, at most 0.5 clicks each for power-law:1 and relevance between 0 and 1.
    capped = settings(explore="swaps:1-2=0.5", most_lost=0.24, curve="power-law:1")
    arms, metrics = with_server(capped, talk)
    assert arms == {"production"}
    assert "untilt_capped_total 40" in metrics
    arms, metrics = with_server(
        settings(
            explore="swaps:1-2=0.5", most_lost=0.26, curve="power-law:1", log=capped.log + "2"
        ),
        talk,
    )
    assert arms == {"base", "swap:1-2"}
    assert "untilt_expected_loss_clicks_total 10\n" in metrics  # 40 sessions * 0.5 * 0.5


def test_a_share_of_sessions_gets_the_candidate(settings, files):
    given = settings(candidate=str(files / "b.untilt"), share=0.3, explore="swaps:1-2=0.4")

    async def talk(ask):
        answers = [(await ask.rank(**{**ASKED, "session": f"s{i}"})).json for i in range(400)]
        return answers, (await ask("GET", "/model")).json

    answers, model = with_server(given, talk)
    digests = [model["current"]["model"], model["candidate"]["model"]]
    first = {
        "base": {digests[0]: "y", digests[1]: "x"},
        "swap:1-2": {digests[0]: "z", digests[1]: "z"},
    }
    for each in answers:
        assert each["documents"][0] == first[each["ranker"]][each["model"]]
    by_candidate = [each["model"] == digests[1] for each in answers]
    assert pytest.approx(np.mean(by_candidate), abs=4 * np.sqrt(0.3 * 0.7 / 400)) == 0.3
    swapped = [each["ranker"] == "swap:1-2" for each in answers]
    table = np.histogram2d(by_candidate, swapped, bins=2)[0]
    assert np.corrcoef(by_candidate, swapped)[0, 1] ** 2 * 400 < 12, table  # drawn independently


def test_a_share_of_sessions_gets_a_list_of_both(settings, files, tmp_path):
    given = settings(candidate=str(files / "b.untilt"), share=0.2, interleave=0.5)

    async def talk(ask):
        answers = [(await ask.rank(**{**ASKED, "session": f"s{i}"})).json for i in range(200)]
        again = (await ask.rank(**{**ASKED, "session": "s0"})).json
        return answers, again, (await ask("GET", "/model")).json

    answers, again, model = with_server(given, talk)
    assert again == answers[0]
    digests = [model["current"]["model"], model["candidate"]["model"]]
    made = {digest: sum(each["model"] == digest for each in answers) for digest in digests}
    both = [each for each in answers if each["ranker"] == "interleaved"]
    assert len(both) == pytest.approx(100, abs=4 * np.sqrt(50))
    assert made[digests[1]] == pytest.approx(40, abs=4 * np.sqrt(32))
    assert len(both) + sum(made.values()) == 200
    # By a: y z x. By b: x z y. Whoever begins puts the first document, the other the second.
    assert {tuple(each["documents"]) for each in both} == {("y", "x", "z"), ("x", "y", "z")}
    collect(given.log, tmp_path / "out")
    log = ut.read_log(tmp_path / "out", labels=["team"])
    rows = pq.read_table(tmp_path / "out").to_pylist()
    of = {"x": {1}, "y": {2}, "z": {1, 2}}
    found = [each for each in rows if each["ranker"] == "interleaved"]
    assert len(found) == 3 * len(both)
    assert all(each["team"] in of[each["doc_id"]] for each in found)
    assert {each["team"] for each in rows if each["ranker"] != "interleaved"} == {0}
    assert set(np.unique(log.extra_labels["team"])) == {0, 1, 2}


def test_reload_swaps_the_ranker_and_a_bad_file_leaves_the_old_one(settings, files, tmp_path):
    path = tmp_path / "live.untilt"
    shutil.copy(files / "a.untilt", path)

    async def talk(ask):
        seen = [(await ask.rank(**ASKED)).json["documents"][0]]
        seen.append((await ask("POST", "/reload")).json["changed"])
        path.write_bytes(b"half of a fi")
        bad = await ask("POST", "/reload")
        seen.append((await ask.rank(**ASKED)).json["documents"][0])
        problem = (await ask("GET", "/model")).json["problem"]
        shutil.copy(files / "b.untilt", tmp_path / "new")
        (tmp_path / "new").replace(path)
        seen.append((await ask("POST", "/reload")).json["changed"])
        seen.append((await ask.rank(**ASKED)).json["documents"][0])
        return seen, bad, problem, (await ask("GET", "/metrics")).body.decode()

    seen, bad, problem, metrics = with_server(settings(ranker=str(path)), talk)
    assert seen == ["y", False, "y", True, "x"]
    assert bad.status == 500
    assert "live.untilt" in problem
    assert "untilt_reloads_total 1\n" in metrics
    assert "untilt_reload_failures_total 1\n" in metrics


def test_a_pipe_a_device_or_a_hanging_disk_in_the_place_of_a_ranker(
    settings, files, tmp_path, monkeypatch
):
    path = tmp_path / "live.untilt"
    shutil.copy(files / "a.untilt", path)
    let_go = threading.Event()

    async def talk(ask):
        problems = []
        for make in (os.mkfifo, lambda place: place.symlink_to("/dev/zero"), os.mkdir):
            (tmp_path / "live.untilt").unlink()
            make(path)
            assert (await ask("POST", "/reload")).status == 500
            problems.append((await ask("GET", "/model")).json["problem"])
            path.rmdir() if path.is_dir() else path.unlink()
            shutil.copy(files / "a.untilt", path)
            await ask("POST", "/reload")
        monkeypatch.setattr(
            "untilt.serving.models.load_model", lambda *_: let_go.wait(60) and files["no"]
        )
        shutil.copy(files / "b.untilt", path)
        hanging = [await ask("POST", "/reload") for _ in range(3)]
        assert (await ask.rank(**ASKED)).status == 200
        return problems, [each.status for each in hanging]

    start = time.monotonic()
    problems, hanging = with_server(settings(ranker=str(path), timeout=0.2), talk)
    assert time.monotonic() - start < 20  # the server ended although the disk hangs
    let_go.set()
    assert all("live.untilt" in each for each in problems)
    assert hanging == [409] * 3


def test_a_reload_that_ends_as_the_server_stops_does_not_keep_it(settings, monkeypatch):
    async def talk(ask):
        loop = asyncio.get_running_loop()
        real = loop.call_soon_threadsafe

        def with_the_stop(call, *given):  # both in one turn of the loop
            return real(lambda: (call(*given), ask.server._watching.cancel()))

        monkeypatch.setattr(loop, "call_soon_threadsafe", with_the_stop)
        await asyncio.wait([ask.server._watching], timeout=5)
        return ask.server._watching.done()

    assert with_server(settings(watch_seconds=0.01), talk)


def test_the_watch_goes_on_whatever_a_file_does(settings, files, tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("of a library")

    async def talk(ask):
        monkeypatch.setattr("untilt.serving.models._stamp", fails)
        await asyncio.sleep(0.2)
        problem = (await ask("GET", "/model")).json["problem"]
        monkeypatch.undo()
        shutil.copy(files / "b.untilt", tmp_path / "new")
        (tmp_path / "new").replace(path)
        for _ in range(200):
            if (await ask.rank(**ASKED)).json["documents"][0] == "x":
                return problem
            await asyncio.sleep(0.02)
        return None

    path = tmp_path / "live.untilt"
    shutil.copy(files / "a.untilt", path)
    assert with_server(settings(ranker=str(path), watch_seconds=0.02), talk) == "of a library"


HANGING = """
import asyncio, sys, time
from tests.serving.test_app import ASKED
from tests.serving.asking import with_server
from untilt.serving import app, journal
from untilt.serving.options import Settings
journal.sync_handle = lambda _: time.sleep(600)
app.STOP_SECONDS = 0.1
async def talk(ask):
    return (await ask("POST", "/rank", ASKED)).status
print(with_server(Settings(sys.argv[1], sys.argv[2], timeout=0.1, watch_seconds=0.0), talk))
"""


def test_the_process_ends_although_the_disk_hangs(files, tmp_path):
    words = [sys.executable, "-c", HANGING, str(files / "a.untilt"), str(tmp_path / "log")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "200\n"


def test_a_host_that_others_reach_needs_a_token_or_a_word(files, tmp_path, monkeypatch):
    monkeypatch.setattr("untilt.serving.start.run", lambda *_, **__: None)
    words = ["serve", str(files / "a.untilt"), "--log", str(tmp_path / "log"), "--host", "0.0.0.0"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "--no-token" in done.output
    assert CliRunner().invoke(cli, [*words, "--no-token"]).exit_code == 0
    assert CliRunner().invoke(cli, words, env={"UNTILT_TOKEN": "0" * 32}).exit_code == 0


def test_on_loopback_no_other_name_leads_here_unless_there_is_a_token(settings, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef\n")
    hosts = ["localhost:8080", "127.0.0.1", "[::1]:80",
             "rebind.evil.com", "[", "localhost.evil.com", "127.0.0.1:80@evil.com"]  # fmt: skip

    async def talk(ask):
        return [(await ask("POST", "/rank", ASKED, host=host)).status for host in hosts]

    assert with_server(settings(loopback=True), talk) == [200] * 3 + [403] * 4
    assert with_server(settings(), talk) == [200] * 7
    given = settings(loopback=True, token_file=str(tmp_path / "token"))
    assert with_server(given, talk, authorization="Bearer 0123456789abcdef") == [200] * 7


def test_the_file_is_watched(settings, files, tmp_path):
    path = tmp_path / "live.untilt"
    shutil.copy(files / "a.untilt", path)

    async def talk(ask):
        shutil.copy(files / "b.untilt", tmp_path / "new")
        (tmp_path / "new").replace(path)
        for _ in range(200):
            if (await ask.rank(**ASKED)).json["documents"][0] == "x":
                return True
            await asyncio.sleep(0.02)
        return False

    assert with_server(settings(ranker=str(path), watch_seconds=0.02), talk)


def test_metrics_are_what_prometheus_reads_and_sum_over_workers(settings):
    given = settings(explore="swaps:1-2=0.4")

    async def talk(ask):
        for i in range(10):
            await ask.rank(**{**ASKED, "session": f"s{i}"})
        await ask("POST", "/rank", b"{")
        other = make_server(given)  # a second worker on the same folder
        other.counters.ranked(0.5, "production", 3)
        other.counters.request("/rank", 200)
        text = (await ask("GET", "/metrics")).body.decode()
        other.counters.close()
        return text

    text = with_server(given, talk)
    line = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [-+0-9.e]+)')
    assert all(line.fullmatch(each) for each in text.strip().split("\n"))
    assert 'untilt_requests_total{path="/rank",status="200"} 11' in text
    assert 'untilt_requests_total{path="/rank",status="400"} 1' in text
    assert "untilt_rank_seconds_count 11" in text
    assert 'untilt_rank_seconds_bucket{le="+Inf"} 11' in text
    counts = [float(each) for each in re.findall(r"_bucket\{.*\} (.+)", text)]
    assert counts == sorted(counts)
    assert len(set(re.findall(r"# TYPE (\w+)", text))) == text.count("# TYPE")


def test_memory_does_not_grow_with_requests(settings):
    """The short form of `make soak`."""
    given = settings(explore="swaps:1-2=0.4", at_once=2)

    async def talk(ask):
        async def some(numbers):
            for i in numbers:
                shown = await ask.rank(**{**ASKED, "session": f"s{i}", "query": f"q{i}"})
                event = {"event": i, "list": shown.json["list"], "document": "x"}
                assert (await ask.feedback(event)).status == 200

        await some(range(50))
        tracemalloc.start()
        await some(range(50, 70))
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        await some(range(70, 190))
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return after - before

    assert with_server(given, talk) < 12_000  # 100 bytes a session would be 12,000


@pytest.mark.parametrize(
    "more",
    [{"explore": "nonsense"}, {"ranker": "lost.untilt"}, {"documents": __file__},
     {"calibrate": "log.parquet"}, {"explore": "pivot:0.1", "most_lost": -1.0}],
    ids=lambda more: next(iter(more)),
)  # fmt: skip
def test_a_server_that_cannot_start_says_why(settings, more):
    with pytest.raises((UntiltError, OSError)):
        make_server(settings(**more))
