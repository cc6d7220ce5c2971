"""`untilt clickmodels`: the table, the record, the chart and what it advises."""

import json
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from untilt import make_judged, simulate, write_log
from untilt.cli.bias import Unit
from untilt.cli.main import app
from untilt.clickmodels.compare import CURVE_IS_RIGHT, NOT_INSTALLED, UNITS
from untilt.simulation.protocols import Cascade

JUDGED = make_judged(n_queries=30, n_features=5, seed=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("logs")
    for name, protocol in (
        ("pbm", "swap"),
        ("cascade", Cascade(beta=0.95, satisfaction=1.0, epsilon=0.4)),
    ):
        made = simulate(JUDGED, protocol, n_sessions=6000, seed=1, collapse=False)
        write_log(made.log, path / f"{name}.parquet", drop_unshown=True)
    return path


def run(*arguments):
    return CliRunner().invoke(app, ["clickmodels", *map(str, arguments)], env={"COLUMNS": "120"})


def facts(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_table_for_people(folder):
    result = run(folder / "pbm.parquet", "--draws", 20)
    assert result.exit_code == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    names = {"gctr", "rctr", "dctr", "pbm", "cm", "dcm", "sdbn", "dbn", "ccm", "ubm", "ncm"}
    assert names <= {line[0] for line in lines if line}
    assert "4,500 sessions to learn from, 1,500 held out" in result.stdout
    assert "[clickmodels.ruled-out]" in result.stdout
    assert str(CURVE_IS_RIGHT) in " ".join(result.stdout.split())


def test_position_based_clicks_need_no_more_than_pbm(folder):
    record = facts(folder / "pbm.parquet", "--draws", 50)
    assert record["advice"]["pbm_is_enough"]
    assert len(record["models"]) == 11
    pbm = record["models"]["pbm"]
    assert pbm["gain_over_pbm"] is None
    assert pbm["log_likelihood"]["low"] < pbm["log_likelihood"]["value"]
    assert np.mean(pbm["perplexity_at"]["value"]) == pytest.approx(pbm["perplexity"]["value"])


def test_a_cascade_needs_more(folder):
    chosen = [part for name in ("pbm", "dbn", "sdbn") for part in ("--model", name)]
    record = facts(folder / "cascade.parquet", *chosen, "--draws", 50)
    assert record["best"] == "dbn"
    assert not record["advice"]["pbm_is_enough"]
    assert record["advice"]["codes"] == ["clickmodels.ahead", "clickmodels.readers-stop"]


def test_the_latest_sessions_can_be_held_out(folder):
    record = facts(
        folder / "pbm.parquet", "--split", "time", "--train", 0.5, "--model", "pbm", "--draws", 20
    )
    assert record["train_sessions"] == record["test_sessions"] == 3000


def test_a_model_whose_package_is_missing_is_left_out_with_a_note(folder, monkeypatch):
    monkeypatch.setattr("untilt.clickmodels.compare.find_spec", lambda package: None)
    result = run(folder / "pbm.parquet", "--draws", 20)
    assert result.exit_code == 0, result.stderr
    assert str(NOT_INSTALLED(model="ncm")) in " ".join(result.stdout.split())
    record = facts(folder / "pbm.parquet", "--draws", 20)
    assert list(record["left_out"]) == ["ncm"]
    assert len(record["models"]) == 10


def test_a_model_that_would_take_long_is_left_out_unless_named(folder, monkeypatch):
    monkeypatch.setattr("untilt.clickmodels.ncm.NCM.quick_up_to", 3)
    record = facts(folder / "pbm.parquet", "--draws", 20)
    assert list(record["left_out"]) == ["ncm"]
    assert "ncm" not in record["models"]


def test_a_chart(folder, tmp_path):
    path = tmp_path / "models.json"
    result = run(folder / "pbm.parquet", "--draws", 20, "--plot", path)
    assert result.exit_code == 0, result.stderr
    spec = json.loads(path.read_text())
    assert len(spec["vconcat"]) == 2  # as they are, and against PBM


def test_errors_are_told_before_work_starts(folder, tmp_path):
    for arguments, message in (
        (("--plot", tmp_path / "models.gif"), "a chart is written as .html, .png, .svg, .json"),
        (("--train", 1.5), "--train must lie between 0 and 1"),
        (("--model", "umb"), "Did you mean 'ubm'?"),
    ):
        result = run(folder / "pbm.parquet", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr.replace("\n", " ")


def test_the_choices_are_those_of_the_library():
    assert get_args(Unit) == UNITS
