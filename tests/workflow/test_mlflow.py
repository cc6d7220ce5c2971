"""Runs and rankers in MLflow, in a store of files; `make test-slow` where MLflow is installed."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import untilt as ut
from untilt._core.statistics import Interval
from untilt.errors import MissingExtraError

# A plain interpreter that reads a model with untilt forbidden.
WITHOUT_UNTILT = """
import sys
sys.modules["untilt"] = None
import json, mlflow.pyfunc, numpy
model = mlflow.pyfunc.load_model(sys.argv[1])
print(json.dumps(model.predict(numpy.array(json.loads(sys.argv[2]))).tolist()))
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    return mlflow


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    log = ut.simulate(ut.make_judged(120, 5, seed=0), "harvest", n_sessions=6000, seed=0).log
    folder = tmp_path_factory.mktemp("runs") / "run"
    return ut.run(log, folder, method=["balanced"], trees=4, threads=1, folds=1)


def test_metrics_have_the_ends_of_their_intervals():
    estimate = SimpleNamespace(
        metric="dcg@10", value=1.2, interval=Interval(1.1, 1.3), n_sessions=40, n_queries=4
    )
    shown = SimpleNamespace(value=1.0, interval=Interval(0.9, float("inf")))
    gap = SimpleNamespace(value=0.2, interval=Interval(0.1, 0.3))
    answer = SimpleNamespace(new=estimate, shown=shown, difference=gap)
    found = SimpleNamespace(decision=SimpleNamespace(answer=answer))
    assert ut.mlflow.metrics_of(cast(ut.RunResult, found)) == {
        "dcg_at_10": 1.2, "dcg_at_10_low": 1.1, "dcg_at_10_high": 1.3,
        "dcg_at_10_shown": 1.0, "dcg_at_10_shown_low": 0.9,
        "dcg_at_10_difference": 0.2, "dcg_at_10_difference_low": 0.1,
        "dcg_at_10_difference_high": 0.3, "held_out_sessions": 40, "held_out_queries": 4,
    }  # fmt: skip


def test_without_mlflow_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    with pytest.raises(MissingExtraError, match=r"untilt\[mlflow\]"):
        ut.mlflow.save_ranker(ut.LinearRanker(), tmp_path / "model")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_run_is_logged_whole(store, result):
    found = store.get_run(ut.mlflow.log_run(result))
    difference = result.decision.answer.difference
    metrics = found.data.metrics
    assert metrics["dcg_at_10_difference"] == difference.value
    assert metrics["dcg_at_10_difference_low"] == difference.interval.low
    assert metrics["dcg_at_10_difference_high"] == difference.interval.high
    assert found.data.params["trees"] == "4"
    assert found.data.tags["untilt.verdict"] == result.decision.answer.verdict
    client = store.MlflowClient()
    curve = client.get_metric_history(found.info.run_id, "examination")
    assert {each.step: each.value for each in curve} == pytest.approx(
        dict(enumerate(result.bias.examination[: result.bias.known_depth], start=1))
    )
    files = {each.path for each in client.list_artifacts(found.info.run_id)}
    assert {"report.html", "figures.json", "bias.json", "candidate.untilt", "ranker.md"} <= files
    assert store.active_run() is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_active_run_stays_active(store, result):
    with store.start_run() as run:
        assert ut.mlflow.log_run(result) == run.info.run_id
        assert store.active_run().info.run_id == run.info.run_id


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["trees", "linear", "network"])
def test_a_logged_ranker_scores_without_untilt(store, kind, tmp_path):
    if kind == "network":
        pytest.importorskip("jax")
        pytest.importorskip("onnxruntime")
    log = ut.simulate(ut.make_judged(60, 4, seed=1), "dla", n_sessions=800, seed=1).log
    made = {
        "trees": lambda: ut.LambdaMART(n_trees=5, seed=0),
        "linear": ut.LinearRanker,
        "network": lambda: ut.NeuralRanker(widths=(4,), epochs=1, seed=0),
    }
    ranker = made[kind]().fit(log)
    path = ut.mlflow.save_ranker(ranker, tmp_path / "model")
    rows = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    words = [sys.executable, "-c", WITHOUT_UNTILT, str(path), json.dumps(rows.tolist())]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scores, own = np.array(json.loads(done.stdout)), ranker.predict(rows)
    # A constant, which no ranking can see, is left out of linear scores.
    assert scores - scores.mean() == pytest.approx(own - own.mean(), abs=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_data_frame_is_read_by_its_names(store, tmp_path):
    pandas = pytest.importorskip("pandas")
    log = ut.simulate(ut.make_judged(60, 4, seed=1), "dla", n_sessions=800, seed=1).log
    ranker = ut.LambdaMART(n_trees=5, seed=0).fit(log)
    model = store.pyfunc.load_model(str(ut.mlflow.save_ranker(ranker, tmp_path / "model")))
    frame = pandas.DataFrame(log.features, columns=list(log.feature_names))
    turned = frame[frame.columns[::-1]].assign(more=1.0)
    assert np.array_equal(model.predict(turned), ranker.predict(log.features))
    with pytest.raises(ValueError, match=f"features are missing: {log.feature_names[0]}"):
        model.predict(frame.drop(columns=log.feature_names[0]))
