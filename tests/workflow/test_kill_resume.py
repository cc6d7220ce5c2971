"""SIGKILL at any moment, then the same command again: the result of an undisturbed run."""

import itertools
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import untilt as ut
from untilt._core.feature_table import with_old_rank
from untilt.report.decision import Decision

PROGRAM = [sys.executable, "-c", "from untilt.cli.main import main; main()"]
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")


def command(made, folder, options):
    """The run that `untilt.run` does with these options."""
    given = [
        (f"--{name}", str(each))
        for name, value in options.items()
        for each in (value if isinstance(value, list) else [value])
    ]
    return [
        *(*PROGRAM, "run", str(made.log), "--documents", str(made.documents), "-o", str(folder)),
        *itertools.chain.from_iterable(given),
    ]


def killed_when(whole, moment) -> bool:
    """Start the command and kill it once `moment()`; False where it ended before that."""
    running = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert running.stderr is not None
    while running.poll() is None and not moment():
        time.sleep(0.002)
    was_running = running.poll() is None
    running.kill()
    _, stderr = running.communicate()
    assert was_running or running.returncode == 0, stderr.decode()
    return was_running


def appears(folder: Path, pattern: str):
    return lambda: any(folder.glob(pattern))


def after(seconds: float):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def check_same(made, folder, whole, finished):
    """End the run and compare everything but times with the undisturbed one."""
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = Decision.load(folder / "figures.json")
    assert found.split.folds == finished.decision.split.folds
    plain = [replace(each, provenance=None) for each in (found, finished.decision)]
    assert plain[0] == plain[1]
    assert (folder / "bias.json").read_bytes() == (finished.folder / "bias.json").read_bytes()
    features = ut.read_log(made.log, documents=made.documents).features
    assert (folder / "ranker.untilt").exists() == (finished.ranker is not None)
    for name in ("candidate.untilt", "ranker.untilt")[: 1 + (finished.ranker is not None)]:
        rankers = [ut.load(place / name) for place in (folder, finished.folder)]
        rows = with_old_rank(features, rankers[0].feature_names_, np.array([0, len(features)]))
        assert np.array_equal(*(each.predict(rows) for each in rankers))
    tables = [
        sorted(p.name for p in (place / "tables").iterdir()) for place in (folder, finished.folder)
    ]
    assert tables[0] == tables[1]
    assert not list(folder.rglob(".untilt-*"))


def test_killed_while_reading_training_and_writing(made, finished, small_options, tmp_path):
    folder = tmp_path / "run"
    whole = command(made, folder, small_options)
    kills = [
        killed_when(whole, appears(folder, "work/.untilt-*")),
        killed_when(whole, appears(folder, "work/candidates/*.untilt")),
        killed_when(whole, appears(folder, "work/steps/evaluate.json")),
    ]
    assert any(kills)
    check_same(made, folder, whole, finished)


@pytest.mark.slow
def test_killed_between_folds_and_between_the_choice_and_the_refit(
    made, crossed, small_options, tmp_path
):
    folder = tmp_path / "run"
    whole = command(made, folder, {**small_options, "folds": 3})
    kills = [
        killed_when(whole, appears(folder, "work/candidates/*.untilt")),
        killed_when(whole, appears(folder, "work/steps/rankers.json")),
    ]
    assert any(kills)
    check_same(made, folder, whole, crossed)


@pytest.mark.slow
def test_killed_at_ten_random_moments(made, finished, small_options, tmp_path):
    """Moments are shares of what an undisturbed run takes here: machines differ."""
    start = time.monotonic()
    undisturbed = command(made, tmp_path / "whole", small_options)
    subprocess.run(undisturbed, capture_output=True, check=True)
    seconds = time.monotonic() - start
    folder, rng = tmp_path / "run", random.Random(0)
    whole = command(made, folder, small_options)
    moments = [seconds * rng.uniform(0.1, 0.6) for _ in range(10)]
    kills = sum(killed_when(whole, after(moment)) for moment in moments)
    assert kills >= 3
    check_same(made, folder, whole, finished)
