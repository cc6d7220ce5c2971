"""A run and the commands on a log of a grid."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app

GRID = ut.Grid(2, 4)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    judged = ut.make_judged(160, 5, seed=1)
    made = ut.simulate_grid(judged, GRID, "columns", n_sessions=8000, seed=1, n_threads=1)
    ut.write_log(made.log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    return folder


def facts(*words):
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_run_over_cells(files, tmp_path):
    found = ut.run(
        files / "clicks.parquet", tmp_path / "run", documents=files / "documents.parquet",
        metric="examination", method=["balanced"], trees=5, threads=1, folds=1,
    )  # fmt: skip
    layout = found.bias.layout
    assert isinstance(layout, ut.Grid)
    assert (layout.rows, layout.columns) == (2, 4)
    assert np.all(np.diff(found.bias.examination) <= 0)
    truth = ut.grid_examination(GRID, "columns")[layout.number - 1]
    off = np.log(found.bias.examination / truth)[1:]
    assert np.all(np.abs(off) < 4 * (found.bias.std_error / found.bias.examination)[1:])
    page = found.report.read_text()
    assert "Clicks and examination by cell" in page
    assert "Row 1, column 1 is looked at" in page
    ranker = found.candidate
    assert ranker.weighting.bias.layout == layout
    again = ut.run(
        files / "clicks.parquet", tmp_path / "run", documents=files / "documents.parquet",
        metric="examination", method=["balanced"], trees=5, threads=1, folds=1,
    )  # fmt: skip
    assert "evaluate" in again.resumed
    assert again.bias.layout == layout


def test_the_commands_over_cells(files, tmp_path):
    log, documents = files / "clicks.parquet", files / "documents.parquet"
    bias, ranker = tmp_path / "bias.json", tmp_path / "ranker.untilt"
    told = facts("bias", log, "--out", bias, "--plot", tmp_path / "map.json")
    assert len(told["examination"]) == GRID.size
    assert ut.PositionBias.load(bias).layout == GRID
    words = ("--documents", documents, "--bias", bias)
    facts("train", log, *words, "--method", "prs", "--trees", 5, "--out", ranker)
    shown = facts("evaluate", log, *words, "--ranker", ranker, "--metric", "examination")
    own = ut.estimate(
        ut.read_log(log, documents=documents),
        {"shown": ut.shown, "ranker": ut.load(ranker)},
        ut.PositionBias.load(bias),
        metric="examination",
    )
    for each in own:
        assert shown["systems"][each.system]["value"] == pytest.approx(each.value)
