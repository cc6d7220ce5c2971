"""Several labels on the command line: kept beside the first, or made one by weights."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    path = tmp_path_factory.mktemp("labels") / "clicks.parquet"
    rng = np.random.default_rng(1)
    n = 60
    click = rng.random(2 * n) < 0.5
    table = {
        "query_id": np.repeat(np.arange(n) % 6, 2),
        "session_id": np.repeat(np.arange(n), 2),
        "doc_id": np.tile([1, 2], n),
        "position": np.tile([1, 2], n),
        "click": click.astype(int),
        "dwell": np.where(click, rng.integers(1, 9, 2 * n), 0).astype(float),
        "liked": (click & (rng.random(2 * n) < 0.3)).astype(int),
    }
    pq.write_table(pa.table(table), path)
    return path


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def facts(*words):
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_first_is_the_label_and_the_others_are_kept(clicks, tmp_path):
    facts(
        "split", clicks, "--label", "click", "--label", "dwell", "--label", "liked",
        "--out", tmp_path,
    )  # fmt: skip
    parts = [
        ut.read_log(tmp_path / f"{name}.parquet", labels=["dwell", "liked"])
        for name in ("train", "test")
    ]
    whole = ut.read_log(clicks, labels=["dwell", "liked"])
    for name in ("dwell", "liked"):
        totals = [part.extra_labels[name] @ part.row_count for part in parts]
        assert sum(totals) == whole.extra_labels[name] @ whole.row_count > 0


def test_weights_make_one_label(clicks):
    words = ["audit", clicks, "--label", "click=1", "--label", "dwell=0.5"]
    log = ut.read_log(clicks, labels=["dwell"])
    made = ut.synthesise(log, {"click": 1.0, "dwell": 0.5})
    assert facts(*words)["size"]["clicks"] == pytest.approx(made.label @ made.row_count)


def test_one_label_is_as_it_was(clicks):
    plain, named = facts("audit", clicks), facts("audit", clicks, "--label", "click")
    assert plain["size"] == named["size"]
    assert plain["label_name"] == named["label_name"] == "click"
    assert facts("audit", clicks, "--label", "dwell")["label_name"] == "dwell"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--label", "click", "--label", "click=2"], "names 'click' twice"),
        (["--label", "click=much"], "needs a weight above 0"),
        (["--label", "click=-1"], "needs a weight above 0"),
        (["--label", "=2"], "needs the name of a column"),
        (["--label", "click", "--label", "bought"], "lacks the columns bought"),
    ],
)
def test_wrong_labels_are_told(clicks, words, message):
    result = call("audit", clicks, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
