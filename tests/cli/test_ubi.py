"""From an export of User Behavior Insights to a report in one command, and `--ubi` elsewhere."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app


def invoke(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


def answer(*arguments):
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A simulated log, in its own format and as an export."""
    folder = tmp_path_factory.mktemp("export") / "sim"
    size = ("--queries", 60, "--features", 4, "--sessions", 3000)
    made = answer("simulate", "--out", folder, "--as-ubi", "--protocol", "harvest", *size)
    assert {"ubi_queries", "ubi_events"} < made["files"].keys()
    return folder


@pytest.fixture(scope="module")
def ubi(folder):
    return "--ubi", folder / "ubi_queries.jsonl", folder / "ubi_events.jsonl"


QUICK = ("--trees", 3, "--threads", 1, "--method", "balanced")


def test_one_command_from_an_export_to_a_report(folder, ubi, tmp_path):
    documents = ("--documents", folder / "documents.parquet")
    done = answer("run", *ubi, *documents, "--out", tmp_path / "results", *QUICK)
    page = (tmp_path / "results" / "report.html").read_text()
    assert done["report"] == str(tmp_path / "results" / "report.html")
    assert done["answer"]["verdict"] in ("better", "worse", "undecided", "cannot tell")
    assert done["bias"]["kind"] == "versions"  # an export names no rankers
    assert "Impression events give the results that were shown: 3,000 sessions" in page
    assert "Ordinals count from 0" in page
    # The run's own file of options starts it again: every step is done already.
    config = tmp_path / "results" / "run.toml"
    again = answer("run", "--config", config, "--out", tmp_path / "results")
    assert again["answer"] == done["answer"]
    assert "read" in again["resumed"]


def test_without_features_the_report_says_what_is_missing(ubi, tmp_path):
    done = answer("run", *ubi, "--out", tmp_path / "results", *QUICK)
    assert "This log has no features" in str(done["warnings"])
    assert [each["system"] for each in done["rankers"]][-1] == "corrected clicks"
    assert (tmp_path / "results" / "report.html").exists()


def test_the_same_audit_as_of_the_log_itself(folder, ubi):
    own = answer("audit", folder / "clicks.parquet", "--column", "ranker=")
    found = answer("audit", *ubi)
    assert [note["code"] for note in found["read"]] == ["ubi.ordinals", "ubi.shown-by-impressions"]
    assert found["size"] == own["size"]
    for name in ("impressions", "clicks", "rate", "std_error"):
        assert found["click_rates"][name] == pytest.approx(own["click_rates"][name])


def test_people_read_how_the_export_was_understood(ubi):
    result = invoke("audit", *ubi, "--column", "impression=")
    assert result.exit_code == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "The export has no impression events, so all returned hits count" in said
    assert "--hits-shown 10" in said
    # What to do next can be pasted.
    files = " ".join(map(str, ubi[1:]))
    assert re.search(rf"untilt bias .*--ubi {files} --method all-pairs", said)


def test_the_hint_about_clicks_without_impressions_can_be_typed(ubi, tmp_path):
    _, queries, events = map(str, ubi)
    told = [json.loads(line) for line in Path(events).read_text().splitlines()]
    clicked = next(each for each in told if each["action_name"] == "click")
    key = clicked["query_id"], clicked["event_attributes"]["object"]["object_id"]
    kept = [
        each for each in told
        if each["action_name"] != "impression"
        or (each["query_id"], each["event_attributes"]["object"]["object_id"]) != key
    ]  # fmt: skip
    assert len(kept) < len(told)
    fewer = tmp_path / "events.jsonl"
    fewer.write_text("".join(json.dumps(each) + "\n" for each in kept))
    refused = invoke("audit", "--ubi", queries, fewer)
    assert refused.exit_code == 2
    assert "ignore impressions: --column impression=." in " ".join(refused.stderr.split())
    assert invoke("audit", "--ubi", queries, fewer, "--column", "impression=").exit_code == 0


def test_parts_of_an_export_can_be_trained_on(folder, ubi, tmp_path):
    documents = ("--documents", folder / "documents.parquet")
    answer("split", *ubi, *documents, "--out", tmp_path)
    both = [
        ut.read_log(tmp_path / f"{part}.parquet", documents=tmp_path / f"{part}-documents.parquet")
        for part in ("train", "test")
    ]
    assert sum(part.n_sessions for part in both) == 3000


def test_an_export_as_a_log_of_our_own(folder, ubi, tmp_path):
    counted = tmp_path / "counted.parquet"
    made = answer("collapse", *ubi, "--out", counted)
    assert made["sessions"] == ut.read_log(counted).n_sessions == 3000
    assert made["lists"] == ut.read_log(folder / "clicks.parquet", columns={"ranker": None}).n_lists


def test_bias_and_judgments(ubi, tmp_path):
    curve = tmp_path / "bias.json"
    answer("bias", *ubi, "--column", "ranker=query_attributes.ranker", "--out", curve)
    made = answer("judgments", *ubi, "--bias", curve, "--out", tmp_path / "judgments.csv")
    assert made["queries"] == ut.read_ubi(*map(str, ubi[1:])).n_queries


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("audit",), "neither"),
        (("audit", "clicks.parquet", "--ubi", "q.jsonl", "e.jsonl"), "both"),
        (("audit", "clicks.parquet", "--hits-shown", "3"), "goes with --ubi"),
        (("run", "clicks.parquet", "--ubi", "q.jsonl", "e.jsonl"), "one log"),
        (("run",), "--ubi QUERIES EVENTS"),
        (("split", "--ubi", "q.jsonl", "e.jsonl", "--letor"), "one of the two"),
        (("audit", "--ubi", "nowhere.jsonl", "e.jsonl"), "no such file"),
    ],
)
def test_what_cannot_be_read_is_said(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_messages_speak_of_options(tmp_path):
    queries, events = tmp_path / "q.jsonl", tmp_path / "e.jsonl"
    queries.write_text('{"query_id": "s", "user_query": "q", "query_response_hit_ids": ["a"]}\n')
    events.write_text(
        '{"action_name": "tap", "query_id": "s"}\n'
        '{"event_attributes": {"object": {"object_id": "a"}}}\n'
    )
    result = invoke("audit", "--ubi", queries, events)
    assert result.exit_code == 2
    assert "--column click=tap" in " ".join(result.stderr.split())
