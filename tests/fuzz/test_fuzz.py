"""A short part of `make fuzz`, and that the fuzzer itself sees crashes, hangs and wrong errors."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fuzz import corpus, mutations
from tests.fuzz.doors_runs import SMALL_COMMANDS
from tests.fuzz.runner import Worker, cases, fuzz
from tests.fuzz.targets import all_targets

from untilt.cli.main import app

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "corpus"
    corpus.build(folder, quick=True)
    return folder


@pytest.mark.parametrize("inputs", [75, pytest.param(300, marks=pytest.mark.slow)])
def test_damaged_inputs_are_read_or_refused(good, tmp_path, inputs):
    work = list(cases(inputs, quick=True))
    counts = fuzz(work, seed=16, corpus=good, out=tmp_path)
    assert {name: c.failures for name, c in counts.items() if c.failed} == {}
    assert sum(c.inputs for c in counts.values()) >= 0.9 * inputs
    # Both ways out are walked: damage that is all refused, or all accepted, tests one half.
    assert sum(c.accepted for c in counts.values()) > 0.13 * inputs
    assert sum(c.refused for c in counts.values()) > 0.4 * inputs


def test_the_fuzzer_sees_what_goes_wrong(good, tmp_path, monkeypatch):
    """A worker that dies, one that is silent, an error that is no refusal: each is a failure."""
    played = [
        ("failed", "KeyError", 1), ("accepted", None, 5000), ("refused", "OptionError", 1),
    ]  # fmt: skip
    answers = iter(
        [None, *({"outcome": o, "error": e, "seconds": 0, "peak_mb": mb} for o, e, mb in played)]
    )

    class Played:
        def __init__(self, corpus):
            pass

        def ask(self, case):
            pass

        def answer(self, seconds):
            return next(answers)

        def stderr(self):
            return ""

        def end(self):
            return "the process died (SIGSEGV)"

    monkeypatch.setattr("tests.fuzz.runner.Worker", Played)
    work = [("csv", number) for number in range(4)]
    count = fuzz(work, seed=0, corpus=good, out=tmp_path)["csv"]
    assert (count.inputs, count.failed, count.refused) == (4, 3, 1)
    told = [each["error"] for each in count.failures]
    assert told == ["the process died (SIGSEGV)", "KeyError", "5000 MB of memory"]
    assert "--only 'csv' --case 0" in count.failures[0]["again"]


def test_a_worker_that_dies_is_told_by_its_signal():
    """Any process will do: one of ours takes seconds to start."""
    worker, pipe = Worker.__new__(Worker), subprocess.PIPE
    worker.process = subprocess.Popen(
        ["sleep", "60"], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    worker.process.kill()
    assert worker.answer(1.0) is None
    assert "SIGKILL" in worker.end()


@pytest.mark.parametrize(("starved", "silent"), [(False, 60), (True, 2)])
def test_waiting_for_a_processor_is_no_hang(monkeypatch, starved, silent):
    """0.6 seconds by the clock are allowed, six times 0.1; a process that waits has longer."""
    worker = Worker.__new__(Worker)
    began = time.monotonic()
    if starved:
        monkeypatch.setattr(Worker, "_waited", lambda self: time.monotonic() - began)
    with subprocess.Popen(["sleep", str(silent)], stdout=subprocess.PIPE, text=True) as process:
        worker.process = process
        assert worker.answer(0.1) is None
        took = time.monotonic() - began
        process.kill()
    assert took > 1.9 if starved else took < 50


def test_damage_repeats_and_differs(good):
    """The same seed, the same damage; most damages are damage."""
    data = (good / "log.parquet").read_bytes()
    made = [mutations.damaged(data, random.Random(number)) for number in range(50)]
    assert made == [mutations.damaged(data, random.Random(number)) for number in range(50)]
    assert sum(each != data for each in made) > 45
    record = json.loads((good / "bias.json").read_text())
    changed = [mutations.changed(record, random.Random(number)) for number in range(50)]
    assert sum(each != record for each in changed) > 45


def test_resealed_files_pass_the_checksum(good):
    """Without a change inside, a file that was sealed again loads: mutations get past the seal."""
    import untilt as ut

    file = next(Path(good / "models" / "ranker").glob("lambda*"))
    data = file.read_bytes()
    again = good / "again.untilt"
    again.write_bytes(mutations.resealed(data, mutations.parts_of(data)))
    assert ut.load(again).get_params() == ut.load(file).get_params()
    record = json.loads((good / "bias.json").read_text())
    seal = record.pop("sha256")
    assert mutations.checksum(record) == seal


def test_every_command_has_a_door():
    """Those that serve, and the demo, have tests of their own: they do not end by themselves."""
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert known - {"demo", "serve", "collect"} == set(SMALL_COMMANDS)


def test_every_saved_kind_has_a_door():
    doors = {"ranker, resealed", "click model, resealed", "bias.json", "figures.json"}
    doors |= {"run folder", "run.toml", "results of reproduce", "checkpoint"}
    assert doors <= set(all_targets())
