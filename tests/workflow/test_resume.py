"""Changed options redo just what depends on them, changed input everything; one run at a time."""

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

import untilt as ut
from untilt._core import codec, files
from untilt._core.store import locked
from untilt.errors import OptionError
from untilt.facts import Fact

pytestmark = pytest.mark.usefixtures("no_pages")


@pytest.fixture
def copy(finished, tmp_path):
    """The folder of a finished run, to be changed."""
    return shutil.copytree(finished.folder, tmp_path / "run")


def resumed(made, folder, small_options, **changed):
    options = {**small_options, **changed}
    return ut.run(made.log, folder, documents=made.documents, **options).resumed


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"metric": "arp"}, ("read", "audit", "split", "bias", "plan", "refit")),
        pytest.param({"trees": 9}, ("read", "audit", "split", "bias"), marks=pytest.mark.slow),
        ({"bias": "power-law:1"}, ("read", "audit", "split")),
        pytest.param({"test_share": 0.25}, ("read", "audit"), marks=pytest.mark.slow),
        pytest.param({"folds": 2}, ("read", "audit"), marks=pytest.mark.slow),
        (
            {"title": "another"},
            ("read", "audit", "split", "bias", "plan", "rankers", "refit", "evaluate", "ship"),
        ),
        ({"missing": 0.0}, ()),
    ],
)
def test_a_changed_option(made, copy, small_options, changed, kept):
    assert resumed(made, copy, small_options, **changed) == kept


def test_going_back_to_the_old_options_trains_nothing(made, copy, small_options, monkeypatch):
    assert "rankers" not in resumed(made, copy, small_options, metric="arp")
    monkeypatch.setattr(
        "untilt.selection.fitting._fit_one", lambda *_: pytest.fail("a ranker was trained")
    )
    assert "rankers" not in resumed(made, copy, small_options)


def test_a_touched_file_is_no_changed_file(made, copy, small_options):
    made.log.touch()
    assert "read" in resumed(made, copy, small_options)


def test_a_changed_file_changes_everything(made, copy, small_options, tmp_path):
    other = ut.read_log(made.log, documents=made.documents).take(np.arange(2000))
    ut.write_log(other, tmp_path / "clicks.parquet", documents=tmp_path / "documents.parquet")
    again = ut.run(
        tmp_path / "clicks.parquet",
        copy,
        documents=tmp_path / "documents.parquet",
        **small_options,
    )
    assert again.resumed == ()
    assert again.decision.audit.size.sessions == other.n_sessions


LOST = ("ranker.untilt", "candidate.untilt", "bias.json", "figures.json", "report.html")


@pytest.mark.parametrize("name", LOST)
def test_a_lost_file_is_made_again(made, copy, small_options, name):
    before = (copy / name).read_bytes()
    (copy / name).unlink()
    resumed(made, copy, small_options)
    if name in ("candidate.untilt", "bias.json"):
        assert (copy / name).read_bytes() == before
    assert (copy / name).exists()


def cut_short(text):
    return text[: len(text) // 2]


def other_value(text):
    record = json.loads(text)
    record["result"]["chosen"] = "linear"
    return json.dumps(record)


def unknown_field(text):
    """Under a right checksum, as by a version of untilt with another idea of the result."""
    record = json.loads(text)
    record["result"]["surprise"] = 1
    del record["sha256"]
    return json.dumps({**record, "sha256": codec.checksum(record)})


@pytest.mark.parametrize("damage", [cut_short, other_value, unknown_field, lambda _: "[]"])
def test_a_damaged_step_is_done_again_with_a_word(made, copy, finished, small_options, damage):
    step, told = copy / "work" / "steps" / "evaluate.json", []
    step.write_text(damage(step.read_text()))
    again = ut.run(made.log, copy, documents=made.documents, tell=told.append, **small_options)
    assert "evaluate" not in again.resumed
    assert [(each.code, each.fields["step"]) for each in told if isinstance(each, Fact)] == [
        ("run.step-damaged", "evaluate")
    ]
    assert again.decision.held_out.estimates == finished.decision.held_out.estimates


def test_a_step_of_another_version_is_done_again_without_a_word(made, copy, small_options):
    step, told = copy / "work" / "steps" / "evaluate.json", []
    step.write_text(json.dumps({"step": "judge", "key": "0" * 40, "seconds": 1.0, "result": {}}))
    ut.run(made.log, copy, documents=made.documents, tell=told.append, **small_options)
    assert not [each for each in told if isinstance(each, Fact)]


def test_what_a_kill_left_half_written_is_removed(made, copy, small_options):
    places = {".html": copy, ".untilt": copy / "work" / "candidates"}
    left = [place / files._new_name("unfinished", ending) for ending, place in places.items()]
    for path in left:
        path.write_text("half")
    ours = copy / ".gitignore"
    ours.write_text("*")
    resumed(made, copy, small_options)
    assert not any(path.exists() for path in left)
    assert ours.exists()


# ---- one at a time

HOLD = """
import sys, time
from pathlib import Path
from untilt._core.store import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_and_a_killed_one_leaves_no_lock(tmp_path):
    path = tmp_path / "run" / "work" / "lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        wanted = f"another run works in .*process {holder.pid}"
        with pytest.raises(OptionError, match=wanted), locked(path):
            pass
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    start = time.monotonic()
    with locked(path):
        assert time.monotonic() - start < 5
    with locked(path):
        pass
