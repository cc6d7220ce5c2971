"""Every command on a log whose features change from impression to impression."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from untilt.cli.main import app


@pytest.fixture(scope="module")
def folder(shop, tmp_path_factory):
    made = tmp_path_factory.mktemp("shop")
    columns = shop(5000, seed=8)
    del columns["gamma"]
    pq.write_table(pa.table(columns), made / "log.parquet")
    return made


def untilt(*words):
    features = ("--features", "quality", "--features", "price", "--json")
    done = CliRunner().invoke(app, [*map(str, words), *features])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_from_the_audit_to_a_ranker_that_is_found_better(folder):
    log = folder / "log.parquet"
    audit = untilt("audit", log)
    assert audit["versions"]["features"] == ["price"]
    assert audit["size"]["documents"] < audit["versions"]["versions"]
    curve = folder / "bias.json"
    bias = untilt("bias", log, "--out", curve)
    assert bias["examination"] == pytest.approx(1 / np.arange(1, 7), rel=0.12)
    untilt("split", log, "--out", folder)
    ranker = folder / "ranker.untilt"
    train = ("train", folder / "train.parquet", "--bias", curve, "--trees", 20, "--threads", 1)
    untilt(*train, "--out", ranker)
    held_out = ("evaluate", folder / "test.parquet", "--ranker", f"new={ranker}", "--bias", curve)
    found = untilt(*held_out)
    systems = found["systems"]
    assert found["among"] == "list"
    assert systems["new"]["value"] > systems["shown"]["value"] + 0.1
