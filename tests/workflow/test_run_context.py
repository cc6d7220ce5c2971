"""A run, and the commands around it, on a log whose readers differ by device."""

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.auditing.next_step import lists_by_context
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
    assert found.candidate.weighting.bias.layout == found.bias.layout
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


def stock_log(folder, seed=0, n_queries=100, sessions=60):
    """Production demotes what is out of stock, which the log does not say; a quarter is shuffled.

    Lists of "shuffle-top-4" are in random order down to 4, and in production's order below.
    """
    rng = np.random.default_rng(seed)
    n, k = n_queries * sessions, np.arange(1, 7)
    query, worth = np.repeat(np.arange(n_queries), sessions), rng.normal(size=(n_queries, 6))
    device = np.where(rng.random(n) < 0.5, "phone", "desktop").astype(object)
    now = worth[query] - 1.5 * (rng.random((n, 6)) < 0.3)
    order = np.argsort(-now - 0.3 * rng.normal(size=now.shape), axis=1)
    ranker = rng.choice(3, size=n, p=[0.7, 0.25, 0.05])
    order[ranker == 1] = rng.permuted(order[ranker == 1], axis=1)
    order[ranker == 2, :4] = rng.permuted(order[ranker == 2, :4], axis=1)
    eta = np.array([ETA[each] for each in device])[:, None]
    gamma = 0.05 + 0.6 / (1 + np.exp(1.0 - 1.5 * np.take_along_axis(now, order, axis=1)))
    log = ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(6 * n_queries),
        doc_query=np.repeat(np.arange(n_queries), 6),
        indptr=np.arange(n + 1) * 6,
        query=query,
        document=(6 * query[:, None] + order).ravel(),
        position=np.tile(k, n),
        label=(rng.random((n, 6)) < k**-eta * gamma).ravel().astype(float),
        features=(worth + 0.5 * rng.normal(size=worth.shape)).reshape(-1, 1),
        ranker=ranker,
        ranker_names=("production", "shuffle", "shuffle-top-4"),
        context={"device": device},
    )
    ut.write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    return folder


def test_curves_by_context_of_an_experiment_stay_those_of_the_experiment(tmp_path):
    """Of all lists they would be off by a factor of 2: ranks follow stock, and so do clicks."""
    folder = stock_log(tmp_path)
    found = ut.run(**source(folder), folder=tmp_path / "run", context=["device"], **SMALL)
    used = found.decision.bias
    assert (used.kind, used.bias.rests_on) == ("experiment", "experiment")
    assert used.context.code == "run.context-differs"
    assert found.bias.assumes[1].code == "bias.random-order"
    for device, eta in ETA.items():
        curve = found.bias.contexts[f"device = {device}"]
        off = np.log(curve.examination / np.arange(1.0, 7.0) ** -eta)
        assert np.all(np.abs(off)[1:] < 4 * (curve.std_error / curve.examination)[1:])


def test_lists_of_an_experiment_end_where_it_shuffled(tmp_path):
    folder = stock_log(tmp_path, n_queries=20)
    log = ut.read_log(folder / "clicks.parquet", context=["device"])
    lists = lists_by_context(log, "ShuffledTop")
    names = np.array(lists.ranker_names)[lists.ranker]
    assert set(names) == {"shuffle", "shuffle-top-4"}
    assert set(np.diff(lists.indptr)[names == "shuffle"]) == {6}
    assert set(np.diff(lists.indptr)[names == "shuffle-top-4"]) == {4}
    named = lists_by_context(log, "ShuffledTop", ranker="shuffle")
    assert named.n_sessions == log.sessions[log.ranker == 1].sum()
    assert lists_by_context(log, "RegressionEM") is None
