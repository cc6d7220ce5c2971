"""A run, and the commands around it, on a log whose readers differ by device."""

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app
from untilt.facts import codes

ETA = {"desktop": 0.3, "phone": 1.5}
SMALL: dict[str, Any] = {"method": ["balanced"], "trees": 5, "threads": 1, "folds": 1}
DEPTH = 4


def write(folder, eta, seed=0, n_queries=50, sessions=60):
    """A log of lists in random order, read by device, with one feature that tells relevance."""
    rng = np.random.default_rng(seed)
    n, gamma = n_queries * sessions, np.linspace(0.15, 0.85, DEPTH)
    device = np.where(rng.random(n) < 0.5, "phone", "desktop").astype(object)
    order = np.argsort(rng.random((n, DEPTH)), axis=1)
    theta = np.array([np.arange(1.0, DEPTH + 1) ** -eta[each] for each in device])
    query = np.arange(n) % n_queries
    log = ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(DEPTH), n_queries),
        doc_query=np.repeat(np.arange(n_queries), DEPTH),
        indptr=np.arange(n + 1) * DEPTH,
        query=query,
        document=(query[:, None] * DEPTH + order).ravel(),
        position=np.tile(np.arange(1, DEPTH + 1), n),
        label=(rng.random((n, DEPTH)) < theta * gamma[order]).ravel().astype(float),
        features=np.tile(gamma, n_queries)[:, None] + 0.2 * rng.normal(size=(n_queries * DEPTH, 1)),
        context={"device": device},
    )
    ut.write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    return folder


@pytest.fixture(scope="module")
def differ(tmp_path_factory):
    return write(tmp_path_factory.mktemp("differ"), ETA)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def facts(*words):
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def source(folder):
    return {"log": folder / "clicks.parquet", "documents": folder / "documents.parquet"}


def test_a_run_uses_a_curve_for_each_context_where_they_differ(differ, tmp_path):
    found = ut.run(**source(differ), folder=tmp_path / "run", context=["device"], **SMALL)
    used = found.decision.bias
    assert used.kind == "harvested"
    assert used.context.code == "run.context-differs"
    for device, eta in ETA.items():
        curve = found.bias.contexts[f"device = {device}"]
        off = np.abs(curve.examination - np.arange(1.0, DEPTH + 1) ** -eta)
        assert np.all(off[1:] < 4 * curve.std_error[1:])
    assert found.ranker.weighting.bias.layout == found.bias.layout
    assert ut.PositionBias.load(tmp_path / "run" / "bias.json").layout == found.bias.layout
    page = found.report.read_text()
    for text in ("device = phone", "device = desktop", "People read differently by device"):
        assert text in page
    moved = next(iter(found.decision.held_out.new_positions.values()))
    assert moved.position.tolist() == [1, 2, 3, 4]
    again = ut.run(**source(differ), folder=tmp_path / "run", context=["device"], **SMALL)
    assert "evaluate" in again.resumed
    # Without the context the curve is one, and the log is read as ever.
    plain = ut.run(**source(differ), folder=tmp_path / "plain", **SMALL)
    assert plain.bias.layout is None
    assert plain.decision.bias.context is None


def test_a_context_that_does_not_matter_leaves_one_curve(tmp_path):
    folder = write(tmp_path, {"desktop": 1.0, "phone": 1.0}, seed=5)
    with_context = ut.run(**source(folder), folder=tmp_path / "run", context="device", **SMALL)
    used = with_context.decision.bias
    assert used.context.code == "run.context-alike"
    assert used.bias.layout is None
    plain = ut.run(**source(folder), folder=tmp_path / "plain", **SMALL)
    assert used.bias.examination == pytest.approx(plain.bias.examination, rel=1e-9)


def test_a_log_that_cannot_tell_says_so_and_goes_on(tmp_path, differ):
    given = ut.run(
        **source(differ), folder=tmp_path / "a", context="device", bias="power-law:1", **SMALL
    )
    assert given.decision.bias.context is None
    assert not codes(given.decision.bias.warnings)


def test_from_the_bias_of_the_command_line_to_train_and_evaluate(differ, tmp_path):
    log, documents = differ / "clicks.parquet", differ / "documents.parquet"
    bias, ranker = tmp_path / "bias.json", tmp_path / "ranker.untilt"
    told = facts("bias", log, "--context", "device", "--out", bias, "--plot", tmp_path / "b.json")
    assert told["context"]["code"] == "run.context-differs"
    assert [each["name"] for each in told["contexts"]] == ["device = desktop", "device = phone"]
    assert ut.PositionBias.load(bias).contexts
    facts(
        "train", log, "--documents", documents, "--method", "prs", "--bias", bias, "--trees", 5,
        "--out", ranker,
    )  # fmt: skip
    assert ut.load(ranker).weighting.bias.contexts
    shown = facts("evaluate", log, "--documents", documents, "--bias", bias, "--ranker", ranker)
    clicks = ut.read_log(log, documents=documents, context=["device"])
    systems = {"shown": ut.shown, "ranker": ut.load(ranker)}
    own = ut.estimate(clicks, systems, ut.PositionBias.load(bias))
    for each in own:
        assert shown["systems"][each.system]["value"] == pytest.approx(each.value)
    parts = facts("split", log, "--context", "device", "--out", tmp_path / "parts")
    part = ut.read_log(parts["parts"]["train"]["file"], context=["device"])
    assert set(part.context["device"]) == set(ETA)


def test_a_bias_by_context_needs_the_context(differ, tmp_path):
    bias = tmp_path / "bias.json"
    facts("bias", differ / "clicks.parquet", "--context", "device", "--out", bias)
    without = ut.read_log(differ / "clicks.parquet", documents=differ / "documents.parquet")
    with pytest.raises(ut.errors.OptionError, match="no context 'device'"):
        ut.run(without, tmp_path / "run", bias=str(bias), **SMALL)
