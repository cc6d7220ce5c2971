"""`untilt demo` tells the whole story and its numbers belong together."""

import json
import re

import pytest
from typer.testing import CliRunner

from untilt.cli import demo_steps
from untilt.cli.main import app


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "pictures"
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder), "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), folder


def test_clicks_fall_faster_than_relevance(demo):
    found, _ = demo
    rate, relevance = found["click_rates"]["rate"], found["relevance_by_position"]
    assert rate[0] / rate[-1] > 5 * relevance[0] / relevance[-1]


def test_every_lesson_beats_the_one_before(demo):
    found, _ = demo
    value = {name: entry["value"] for name, entry in found["quality"].items()}
    assert list(value) == [
        *(
            "random order",
            "shown order",
            "raw clicks",
            "clicks, IPS",
            "clicks, PRS",
            "clicks, pairwise debiasing",
            "labels",
        ),
    ]
    assert value["random order"] < value["shown order"] < value["raw clicks"] < value["labels"]
    assert value["clicks, PRS"] > value["raw clicks"]
    assert found["share_of_gap"] == pytest.approx(
        (value["clicks, PRS"] - value["raw clicks"]) / (value["labels"] - value["raw clicks"])
    )


def test_pictures_are_written(demo):
    found, folder = demo
    assert sorted(path.name for path in folder.iterdir()) == [
        *("clicks.png", "demo.html", "quality.png"),
    ]
    assert [str(folder / name) for name in ("clicks.png", "quality.png", "demo.html")] == (
        found["files"]
    )


def test_people_are_led_through_the_steps(tmp_path, monkeypatch):
    tiny = demo_steps.Size(queries=120, features=6, sessions=3000, trees=3)
    monkeypatch.setattr(demo_steps, "QUICK", tiny)
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.stderr
    assert re.findall(r"^(\d)\. ", result.stdout, flags=re.M) == ["1", "2", "3", "4", "5", "6"]
    assert "ndcg@10" in result.stdout
