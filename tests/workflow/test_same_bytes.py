"""The same log, options and seed give the same bytes, whenever and wherever they are computed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import untilt as ut
from untilt.errors import FileFormatError
from untilt.report.decision import Decision

EPOCH = "1700000000"
OPTIONS: dict[str, Any] = {"trees": 3, "threads": 1, "method": ["balanced"]}
PROGRAM = f"""
import sys
import untilt as ut
log, documents, out = sys.argv[1:]
ut.run(log, out, documents=documents, **{OPTIONS})
"""


def files_of(folder: Path) -> dict[str, bytes]:
    found = [each for each in folder.rglob("*") if each.is_file()]
    named = {str(each.relative_to(folder)): each.read_bytes() for each in found}
    return {name: data for name, data in named.items() if not name.startswith("work/")}


@pytest.fixture(scope="module")
def runs(made, tmp_path_factory):
    """Another process with another order of sets, and here; both at a fixed time, then at none."""
    place = tmp_path_factory.mktemp("same")
    files = [str(made.log), str(made.documents)]
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *files, str(place / "elsewhere")],
        env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PYTHONHASHSEED": "7"},
        check=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        ut.run(files[0], place / "here", documents=files[1], **OPTIONS)
    ut.run(files[0], place / "now", documents=files[1], **OPTIONS)
    return place


def differing(runs: Path, one: str, other: str) -> set[str]:
    first, second = files_of(runs / one), files_of(runs / other)
    assert set(first) == set(second)
    return {name for name in first if first[name] != second[name]}


def test_nothing_differs_where_the_time_is_fixed(runs):
    assert differing(runs, "elsewhere", "here") == set()


def test_times_are_in_one_place(runs):
    """A ranker's file has the time of its training in it, and the page that of the run."""
    timed = {"provenance.json", "report.html", "candidate.untilt"}
    assert differing(runs, "here", "now") - {"ranker.untilt"} == timed


def test_figures_know_their_provenance(runs):
    fixed, now = (Decision.load(runs / name / "figures.json") for name in ("here", "now"))
    assert fixed.provenance.finished == "2023-11-14T22:13:20+00:00"
    assert now.provenance.finished > fixed.provenance.finished
    assert [bool(each.provenance.steps) for each in (fixed, now)] == [False, True]
    assert "provenance" not in json.loads((runs / "now" / "figures.json").read_text())


def test_a_provenance_of_other_figures_is_left_out(runs, tmp_path):
    (tmp_path / "provenance.json").write_bytes((runs / "now" / "provenance.json").read_bytes())
    ut.Decision(title="another").save(tmp_path / "figures.json")
    assert Decision.load(tmp_path / "figures.json").provenance is None
    (tmp_path / "provenance.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"provenance\.json"):
        Decision.load(tmp_path / "figures.json")
