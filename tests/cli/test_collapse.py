"""`untilt collapse`: the counted file is the same log."""

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from untilt.cli.main import app
from untilt.data.read.read_log import read_log


@pytest.fixture
def clicks(tmp_path):
    rng = np.random.default_rng(0)
    rows = ["srch,session_id,doc_id,position,click,booked,device,price"]
    for session in range(200):
        device, order = rng.choice(["phone", "desk"]), rng.permutation(2)
        for k, d in enumerate(order, 1):
            rows.append(f"7,{session},{d},{k},{int(rng.random() < 0.3)},0,{device},{d + 0.5}")
    (tmp_path / "clicks.csv").write_text("\n".join(rows))
    return tmp_path / "clicks.csv"


def run(*words):
    return CliRunner().invoke(app, ["collapse", *map(str, words)])


def test_the_file_is_the_same_log(clicks, tmp_path):
    out, mapping = tmp_path / "counted.parquet", {"query_id": "srch"}
    words = [clicks, "--out", out, "--column", "query_id=srch", "--label", "click"]
    words += ["--label", "booked", "--context", "device", "--features", "price"]
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["sessions"] == 200
    assert told["impressions"] == 400
    assert told["rows"] == pq.read_metadata(out).num_rows < 60
    options: dict[str, Any] = {"labels": ["booked"], "context": ["device"], "features": "price"}
    whole, counted = read_log(clicks, columns=mapping, **options), read_log(out, **options)
    assert whole.n_sessions == counted.n_sessions
    for name in ("query_id", "doc_id", "indptr", "document", "position", "label", "count"):
        np.testing.assert_array_equal(getattr(counted, name), getattr(whole, name))
    np.testing.assert_array_equal(counted.features, whole.features)
    np.testing.assert_array_equal(counted.context["device"], whole.context["device"])


def test_an_ending_that_says_nothing(clicks, tmp_path):
    result = run(clicks, "--out", tmp_path / "counted.txt", "--column", "query_id=srch")
    assert result.exit_code == 2
    assert not (tmp_path / "counted.txt").exists()
