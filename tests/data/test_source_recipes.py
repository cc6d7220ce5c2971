"""The recipes of docs/sources.md, run on made samples: each gives the log that was written."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.click_samples import WRITERS, expected, sessions

PAGE = (Path(__file__).parents[2] / "docs/sources.md").read_text(encoding="utf8")
SECTIONS = dict(
    re.findall(r"^#{1,3} ([^\n]+)\n(.*?)(?=^#{1,3} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
)


def code_of(title):
    return "\n".join(
        re.findall(r"^```python\n(.*?)^```$", SECTIONS[title], re.MULTILINE | re.DOTALL)
    )


def lists_of(log):
    found = Counter()
    for i in range(log.n_lists):
        rows = range(log.indptr[i], log.indptr[i + 1])
        shown = tuple(
            (int(log.position[r]), log.doc_id[log.document[r]], int(log.label[r])) for r in rows
        )
        found[log.query_id[log.query[i]], shown] += int(log.count[i])
    return found


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(source, *titles):
        # The page begins with UBI, and its first lines are those of every recipe.
        for each in {"User Behavior Insights", source}:
            WRITERS[each](tmp_path)
        names = {"__name__": "recipe"}
        exec("\n".join(map(code_of, titles)), names)
        if "normalised" in names:
            assert lists_of(names["normalised"]) == expected()
        return names["log"]

    return run


@pytest.mark.parametrize("source", ["Google Analytics 4", "Snowplow", "Segment"])
def test_tools_for_analytics(run, source, capsys):
    log = run(source, "Where your log comes from", "Tools for analytics", source)
    assert lists_of(log) == expected()
    clicks = sum(len(each.clicked) for each in sessions())
    # One click was elsewhere, and one is nobody's.
    assert capsys.readouterr().out == f"{clicks} of {clicks + 2} clicks are on a list\n"


def test_metarank(run):
    log = run("Metarank", "Where your log comes from", "Tools for analytics", "Metarank")
    assert lists_of(log) == expected()


def test_ubi(run):
    log = run("User Behavior Insights", "Where your log comes from")
    assert lists_of(log) == expected()
    assert log.feature_names == ("price",)
    log = run("User Behavior Insights", "Where your log comes from", "What becomes what")
    assert log.ranker_names == ("base",)
    assert set(log.context["device"]) == {"phone", "desk"}
    assert lists_of(log) == expected()
