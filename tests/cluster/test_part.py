"""Any number of workers trains the same ranker, to the last bit."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xgboost")

from tests.cluster import worker

from untilt._core.saved import load
from untilt.bias.given import PowerLaw
from untilt.cluster.group import tracker
from untilt.cluster.part import train_part
from untilt.data.write_log import write_log
from untilt.errors import OptionError
from untilt.evaluation.judged import evaluate
from untilt.rankers.pooled import PolicyAware
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting.tables import PRS, PairwiseDebiasing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def judged():
    return make_judged(40, 5, seed=0)


@pytest.fixture(scope="module")
def log(judged):
    """Clicks on lists of several lengths, with gaps in one feature."""
    made = simulate(judged, "dla", n_sessions=1_200, seed=0, n_threads=1).log
    features = np.array(made.features)
    features[::7, 1] = np.nan
    return replace(made, features=features, missing="keep")


def parts_of(log, n):
    """Whole queries, unevenly: the packing of a list depends on what else is read."""
    owner = np.arange(log.n_queries) ** 2 % 7 % n
    return [log.take(np.flatnonzero(owner[log.query] == k)) for k in range(n)]


def in_threads(work, parts):
    """What each worker returns or raises; each is a thread of this process."""
    found = {}

    def run(number, workers):
        try:
            found[number] = work(parts[number], {**workers, "dmlc_task_id": str(number)})
        except OptionError as error:
            found[number] = error

    with tracker(len(parts)) as workers:
        threads = [
            threading.Thread(target=run, args=(number, workers)) for number in range(len(parts))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    return [found[number] for number in range(len(parts))]


def text_of(ranker):
    return ranker.booster_.model_to_string()


def test_two_processes_write_the_same_file_as_one(log, tmp_path, monkeypatch):
    """One worker is this process, the other one of its own; a joint weighting ties them."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # a file says when it was written
    write_log(log, tmp_path / "clicks-9.parquet", documents=tmp_path / "documents-9.parquet")
    for number, part in enumerate(parts_of(log, 2)):
        files = (tmp_path / f"{what}-{number}.parquet" for what in ("clicks", "documents"))
        write_log(part, next(files), documents=next(files))
    alone = train_part(worker.ranker(), worker.part(tmp_path, 9))
    alone.save(tmp_path / "alone.untilt")
    with tracker(2) as workers:
        second = [sys.executable, "-m", "tests.cluster.worker", tmp_path, "1"]
        other = subprocess.Popen(
            [*second, json.dumps({**workers, "dmlc_task_id": "1"})],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        mine = {**workers, "dmlc_task_id": "0"}
        train_part(worker.ranker(), worker.part(tmp_path, 0), mine).save(tmp_path / "first.untilt")
        _, told = other.communicate(timeout=240)
    assert other.returncode == 0, told
    expected = (tmp_path / "alone.untilt").read_bytes()
    assert (tmp_path / "first.untilt").read_bytes() == expected
    assert (tmp_path / "ranker-1.untilt").read_bytes() == expected
    # It is a joint training, and no worker's own: the table was learned from both.
    own = train_part(worker.ranker(), worker.part(tmp_path, 0))
    assert not np.array_equal(own.bias_.examination, alone.bias_.examination)
    assert load(tmp_path / "alone.untilt").summary_["queries"] == len(np.unique(log.query))


@pytest.mark.parametrize(
    "ranker",
    [
        LambdaMART(PRS(PowerLaw(1.0)), n_trees=5, query_weight="sqrt", n_threads=1),
        LambdaMART(PairwiseDebiasing(losses="mean"), n_trees=5, metric="arp", n_threads=1, seed=1),
        LambdaMART(n_trees=5, bagging_fraction=0.5, feature_fraction=0.6, n_threads=1),
    ],
    ids=["prs-sqrt", "joint-means", "raw-sampled"],
)
def test_three_workers(log, ranker):
    alone = train_part(ranker, log)
    found = in_threads(lambda part, workers: train_part(ranker, part, workers), parts_of(log, 3))
    assert [text_of(each) for each in found] == [text_of(alone)] * 3
    assert found[0].summary_ == found[2].summary_ == alone.summary_
    if alone.bias_ is not None:
        np.testing.assert_array_equal(found[1].bias_.examination, alone.bias_.examination)


def test_a_query_with_two_workers_is_refused(log):
    parts = parts_of(log, 2)
    torn = log.query_id[parts[0].query[0]]
    rows = np.flatnonzero(log.query == parts[0].query[0])
    parts[1] = log.take(
        np.sort(np.append(rows[:1], np.flatnonzero(np.isin(log.query, parts[1].query))))
    )
    found = in_threads(lambda part, workers: train_part(worker.ranker(), part, workers), parts)
    for error in found:
        assert isinstance(error, OptionError)
        assert "1 queries are with more than one worker" in str(error)
        assert str(torn) in str(error)


def test_one_part_that_is_refused_ends_all_workers(log):
    parts = parts_of(log, 2)
    parts[1] = replace(parts[1], features=None, feature_names=(), missing=None)
    found = in_threads(lambda part, workers: train_part(worker.ranker(), part, workers), parts)
    assert "worker 1 of 2 refused" in str(found[0])
    assert "no features" in str(found[1])


def test_workers_must_have_the_same_features(log):
    parts = parts_of(log, 2)
    renamed = ("other", *log.feature_names[1:])
    parts[1] = replace(parts[1], feature_names=renamed)
    found = in_threads(lambda part, workers: train_part(worker.ranker(), part, workers), parts)
    assert all("different features" in str(error) for error in found)


def test_the_result_is_a_ranker_like_any_other(log, judged, tmp_path):
    found = train_part(LambdaMART(PRS(PowerLaw(1.0)), n_trees=25, n_leaves=8, n_threads=1), log)
    found.save(tmp_path / "ranker.untilt")
    again = load(tmp_path / "ranker.untilt")
    scores = found.predict(judged.features)
    np.testing.assert_array_equal(again.predict(judged.features), scores)
    random = np.random.default_rng(0).random(len(scores))
    learned, by_chance = (evaluate(judged, s, metrics=["ndcg@10"]) for s in (scores, random))
    assert learned["ndcg@10"].value > by_chance["ndcg@10"].value + 0.1
    assert set(found.feature_importances_) == set(log.feature_names)
    assert len(found.trained_on_) == len(np.unique(log.query))


@pytest.mark.parametrize(
    ("ranker", "more", "told"),
    [
        (LambdaMART("auto", bias=PowerLaw(1.0)), {}, "held-out queries"),
        (LambdaMART(n_trees="auto"), {}, "held-out queries"),
        (LambdaMART(objective="pbm-likelihood", bias=PowerLaw(1.0)), {}, "objective"),
        (LambdaMART(lightgbm_params={"max_bin": 3}), {}, "lightgbm_params"),
        (LambdaMART(PolicyAware(PowerLaw(1.0))), {}, "pools"),
        (LambdaMART(PairwiseDebiasing(), metric="map"), {}, "joint"),
        (LambdaMART(), {"max_bin": 1}, "max_bin"),
        (LambdaMART(), {"xgboost_params": {"subsample": 0.5}}, "bagging_fraction"),
        (LambdaMART(n_trees=1), {"xgboost_params": {"gamma": -1}}, "XGBoost refused"),
    ],
)
def test_what_workers_cannot_do(log, ranker, more, told):
    with pytest.raises(OptionError, match=told):
        train_part(ranker, log, **more)
