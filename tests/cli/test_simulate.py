"""`untilt simulate` writes logs that read back, with the truth beside them."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt import catalog
from untilt.cli.logs import protocol_of
from untilt.cli.main import app
from untilt.errors import OptionError
from untilt.simulation.protocols import DLA, Swap

SMALL = ("--queries", "60", "--features", "6", "--sessions", "2000")


def run(*arguments):
    return CliRunner().invoke(app, ["simulate", *map(str, arguments)])


def made(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated") / "sim"
    made("--out", folder, *SMALL)
    return folder


def test_the_folder_holds_the_log_the_truth_and_the_labels(folder):
    assert sorted(path.name for path in folder.iterdir()) == [
        *("bias.json", "clicks.parquet", "documents.parquet"),
        *("test.txt.gz", "train.txt.gz", "truth.json"),
    ]


def test_the_log_reads_back_as_the_simulation_in_memory(folder):
    log = ut.read_log(folder / "clicks.parquet", documents=folder / "documents.parquet")
    train, _ = ut.make_judged(60, 6, seed=0).split(0.8, seed=0)
    same = ut.simulate(train, "dla", n_sessions=2000, seed=0).log
    assert log.n_sessions == same.n_sessions == 2000
    rates, expected = log.ctr_by_position(), same.ctr_by_position()
    assert rates.clicks.tolist() == expected.clicks.tolist()
    assert rates.impressions.tolist() == expected.impressions.tolist()


def test_labels_of_the_log_and_of_the_test_share_no_query(folder):
    train = ut.read_letor(folder / "train.txt.gz")
    test = ut.read_letor(folder / "test.txt.gz")
    assert test.n_queries == 12  # a fifth of 60
    assert not set(train.query_id.tolist()) & set(test.query_id.tolist())
    log = ut.read_log(folder / "clicks.parquet", documents=folder / "documents.parquet")
    assert set(log.query_id.tolist()) <= set(train.query_id.tolist())


def test_the_truth_tells_how_readers_behaved(folder):
    truth = json.loads((folder / "truth.json").read_text())
    eye_tracking = [0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06]
    assert truth["examination"] == pytest.approx(eye_tracking)
    assert truth["eps_plus"] is None
    bias = ut.PositionBias.load(folder / "bias.json")
    assert bias.at(np.arange(1, 11)) == pytest.approx(eye_tracking)
    assert (truth["sessions"], truth["seed"]) == (2000, 0)
    log = ut.read_log(folder / "clicks.parquet", documents=folder / "documents.parquet")
    assert truth["clicks"] == log.ctr_by_position().clicks.sum()
    assert truth["impressions"] == log.n_impressions
    trained = set(truth["queries_that_trained_the_ranker"])
    assert trained
    assert not trained & set(log.query_id[log.query].tolist())


@pytest.mark.parametrize("protocol", catalog.names("protocol"))
def test_every_protocol_writes_a_log_that_reads_back(tmp_path, protocol):
    found = made("--out", tmp_path / "sim", *SMALL, "--protocol", protocol)
    log = ut.read_log(found["files"]["log"], documents=found["files"]["documents"])
    assert log.n_sessions == found["sessions"] == 2000
    assert log.label.sum() > 0


def test_help_names_every_protocol():
    text = " ".join(run("--help").output.replace("│", " ").split())
    assert all(n in text for n in catalog.names("protocol")) or "untilt methods protocol" in text


def test_one_seed_one_log_another_seed_another(tmp_path):
    logs = [
        (tmp_path / name / "clicks.parquet").read_bytes()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
        if made("--out", tmp_path / name, *SMALL, "--seed", seed)
    ]
    assert logs[0] == logs[1] != logs[2]


def test_clicks_or_sessions_per_query_can_be_asked_for(tmp_path):
    by_clicks = made("--out", tmp_path / "a", *SMALL[:4], "--clicks", "500")
    assert 500 <= by_clicks["clicks"] <= 500 + 10
    each = made("--out", tmp_path / "b", *SMALL[:4], "--sessions-per-query", "3")
    assert each["sessions"] % 3 == 0
    both = run("--out", tmp_path / "c", *SMALL, "--clicks", "500")
    assert both.exit_code == 2
    assert "only one of" in both.stderr


def test_depth_and_parameters_reach_the_protocol(tmp_path):
    found = made("--out", tmp_path / "sim", *SMALL, "--depth", "3", "--parameter", "theta=0")
    truth = json.loads((tmp_path / "sim" / "truth.json").read_text())
    assert truth["examination"] == [1.0, 1.0, 1.0]  # rho^0
    assert "theta=0" in found["protocol"]


def test_own_data_is_read_and_not_made(tmp_path):
    judged = ut.make_judged(50, 5, seed=3)
    ut.write_letor(judged, tmp_path / "mine.txt")
    found = made("--out", tmp_path / "sim", "--data", tmp_path / "mine.txt", "--sessions", "500")
    log = ut.read_log(found["files"]["log"], documents=found["files"]["documents"])
    assert log.n_features == 5
    assert set(log.query_id.tolist()) <= set(judged.query_id.tolist())


def test_people_are_told_what_to_do_next(tmp_path):
    result = run("--out", tmp_path / "sim", *SMALL)
    assert f"untilt audit {tmp_path / 'sim' / 'clicks.parquet'}" in result.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parameter", "thet=1"], "Did you mean 'theta'"),
        (["--parameter", "theta=much"], "must be a number. Got 'much'"),
        (["--parameter", "theta=-1"], "theta must be at least 0"),
        (["--data", "missing.txt"], "missing.txt"),
    ],
)
def test_wrong_options_are_exit_2_and_write_nothing(tmp_path, arguments, message):
    result = run("--out", tmp_path / "sim", *SMALL, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_for_a_folder_is_refused_with_a_name_that_works(tmp_path):
    result = run("--out", tmp_path / "clicks.parquet", *SMALL)
    assert result.exit_code == 2
    assert "--out clicks" in result.stderr


def test_parameters_have_the_type_of_their_protocol():
    assert protocol_of("dla", ["theta=0.5", "depth=20"]) == DLA(theta=0.5, depth=20)
    assert protocol_of("swap", ["adjacent=true", "share=1"]) == Swap(adjacent=True, share=1.0)
    with pytest.raises(OptionError, match=r"must be true or false. Got 'maybe'"):
        protocol_of("swap", ["adjacent=maybe"])
    with pytest.raises(OptionError, match="has no option 'clicks'"):
        protocol_of("swap", ["clicks=dla"])


def test_the_log_can_be_audited(folder):
    paths = [str(folder / "clicks.parquet"), "--documents", str(folder / "documents.parquet")]
    result = CliRunner().invoke(app, ["audit", *paths, "--json"])
    found = json.loads(result.stdout)
    assert found["size"]["sessions"] == 2000
    assert np.argmax(found["click_rates"]["rate"]) == 0


def test_ctrl_c_in_the_middle_leaves_no_file(tmp_path):
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from untilt.cli.main import main; main()"
    )
    folder = tmp_path / "sim"
    arguments = ["simulate", "--out", str(folder), "--queries", "60", "--sessions", "300000000"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True
    )
    begun = False
    for _ in range(1200):  # until the documents are written: sessions are drawn from then on
        begun = any(path.stat().st_size > 10_000 for path in folder.rglob("documents*"))
        if begun:
            break
        time.sleep(0.05)
    assert begun
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr == "stopped: by Ctrl-C. No file was left half-written.\n"
    assert list(folder.iterdir()) == []
