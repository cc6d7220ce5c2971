"""`untilt demo` tells the whole story and its numbers belong together."""

import json
import re

import pytest
from typer.testing import CliRunner

from untilt.cli import demo as steps
from untilt.cli.main import app
from untilt.report.decision import Decision

SMALL = steps.DemoSize(queries=300, features=8, sessions=25_000, trees=20)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "QUICK", SMALL)
        result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder), "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), folder


def test_clicks_fall_faster_than_relevance(demo):
    found, _ = demo
    rate, relevance = found["click_rates"]["rate"], found["relevance_by_position"]
    assert rate[0] / rate[-1] > 5 * relevance[0] / relevance[-1]


def test_the_bias_is_measured_and_near_the_truth(demo):
    found, _ = demo
    assert found["bias_kind"] == "randomised"
    for estimated, true in zip(*found["examination"].values(), strict=True):
        assert estimated == pytest.approx(true, rel=0.5)


def test_what_clicks_promise_labels_confirm(demo):
    found, _ = demo
    value = {name: entry["value"] for name, entry in found["quality"].items()}
    assert list(value) == [
        *("random order", "a logged order", "raw clicks"),
        *("auto", "labels"),
    ]
    assert found["verdict"] == "better"
    assert found["answer"]["interval"]["low"] > 0
    assert max(value["random order"], value["a logged order"]) < value[found["chosen"]]
    assert value["raw clicks"] < value["labels"]
    assert found["share_of_gap"] == pytest.approx(
        (value[found["chosen"]] - value["raw clicks"]) / (value["labels"] - value["raw clicks"])
    )


def test_the_report_is_written(demo):
    found, folder = demo
    assert found["report"] == str(folder / "report.html")
    assert "untilt demo" in (folder / "report.html").read_text(encoding="utf8")
    assert Decision.load(folder / "figures.json").answer.new.system == found["chosen"]


def test_people_are_led_through_the_steps_to_the_report(tmp_path, monkeypatch):
    tiny = steps.DemoSize(queries=200, features=6, sessions=6000, trees=3)
    monkeypatch.setattr(steps, "QUICK", tiny)
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    assert re.findall(r"^(\d)\. ", result.stdout, flags=re.M) == ["1", "2", "3", "4", "5", "6"]
    assert "ndcg@10" in result.stdout
    assert "report.html" in result.stdout.splitlines()[-1] + result.stdout.splitlines()[-2]


@pytest.mark.parametrize("out", ["taken.txt", "taken.txt/folder"])
def test_a_file_in_the_way_is_told_before_anything_is_computed(tmp_path, monkeypatch, out):
    (tmp_path / "taken.txt").write_text("mine")
    monkeypatch.setattr(steps, "run", lambda *_, **__: pytest.fail("data were made"))
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path / out)])
    assert result.exit_code == 2
    assert "is a file" in " ".join(result.stderr.split())
    assert (tmp_path / "taken.txt").read_text() == "mine"
