"""Judged lists made here: their shape, and that learners of different power lie clearly apart."""

import lightgbm as lgb
import numpy as np
import pytest

from untilt import make_judged
from untilt._core import ragged
from untilt.errors import OptionError
from untilt.evaluation.judged import evaluate
from untilt.metrics import parse_metric
from untilt.simulation.production import production_ranker


def ndcg(judged, scores) -> float:
    """Mean NDCG@10 with gains 2^y - 1 over queries with a relevant document."""
    values = []
    for a, b in zip(judged.indptr[:-1], judged.indptr[1:], strict=True):
        gain = 2 ** judged.labels[a:b] - 1
        if gain.max() > 0:
            discount = 1 / np.log2(np.arange(2, 12))[: b - a]
            shown = gain[np.argsort(-scores[a:b], kind="stable")][:10]
            values.append(shown @ discount / (np.sort(gain)[::-1][:10] @ discount))
    return float(np.mean(values))


def trees(judged, n_trees):
    data = lgb.Dataset(judged.features, judged.labels, group=np.diff(judged.indptr))
    parameters = {"objective": "lambdarank", "verbose": -1, "num_threads": 1, "seed": 0}
    return lgb.train(parameters | {"learning_rate": 0.1}, data, n_trees)


def quality(n_queries, n_trees, seed, world):
    """NDCG@10 on held-out queries: chance, linear on 1%, linear on all, trees on all."""
    judged = make_judged(n_queries=n_queries, seed=seed, world=world)
    test = make_judged(n_queries=600, seed=seed + 1000, world=world)
    x = test.features
    return (
        ndcg(test, np.random.default_rng(0).random(len(test))),
        ndcg(test, production_ranker(judged, seed=seed).predict(x)),
        ndcg(test, production_ranker(judged, share=1.0).predict(x)),
        ndcg(test, trees(judged, n_trees).predict(x)),
    )


def test_trees_beat_linear_beats_one_percent_beats_chance():
    chance, production, linear, boosted = quality(800, n_trees=60, seed=0, world=0)
    assert 0.3 < chance < 0.45
    assert production > chance + 0.08
    assert linear > production + 0.03
    assert boosted > linear + 0.08


@pytest.mark.slow
@pytest.mark.parametrize("world", [0, 1, 2])
def test_quality_of_the_usual_size(world):
    found = np.mean([quality(2000, n_trees=150, seed=s, world=world) for s in range(3)], axis=0)
    chance, production, linear, boosted = found
    assert 0.35 < chance < 0.42
    assert 0.45 < production < 0.60
    assert 0.58 < linear < 0.70
    assert 0.75 < boosted < 0.86


def test_shape_and_grades():
    judged = make_judged(n_queries=3000, n_features=12, seed=1)
    assert judged.features.shape == (len(judged), 12)
    assert judged.features.dtype == np.float32
    assert np.all(np.isfinite(judged.features))
    share = np.bincount(judged.labels.astype(int)) / len(judged)
    expected = 0.52 ** np.arange(5)
    assert share == pytest.approx(expected / expected.sum(), abs=0.02)
    lengths = ragged.lengths(judged.indptr)
    assert lengths.mean() == pytest.approx(24, abs=1)
    assert lengths.min() >= 5
    assert lengths.max() > 60
    assert lengths.std() > 8


@pytest.mark.parametrize("mean_docs", [5, 8, 60])
def test_mean_list_length(mean_docs):
    lengths = ragged.lengths(make_judged(2000, 4, mean_docs=mean_docs).indptr)
    assert lengths.mean() == pytest.approx(max(mean_docs, 5.5), rel=0.06)
    assert lengths.min() >= 5
    assert lengths.max() <= 6 * mean_docs


@pytest.mark.parametrize("grades", [2, 3, 7])
def test_any_number_of_grades(grades):
    labels = make_judged(400, 5, grades=grades).labels
    assert np.unique(labels).tolist() == list(range(grades))
    assert np.all(np.diff(np.bincount(labels.astype(int))) < 0)


def test_features_are_of_many_kinds():
    judged = make_judged(n_queries=500, n_features=50)
    x = judged.features
    whole = np.all(x == np.round(x), axis=0)
    unit = (x.min(axis=0) >= 0) & (x.max(axis=0) <= 1)
    skew = np.mean((x - x.mean(axis=0)) ** 3, axis=0) / x.std(axis=0) ** 3
    owner = ragged.list_of_row(judged.indptr)
    first = judged.indptr[:-1][owner]
    of_query = np.all(x == x[first], axis=0)
    assert whole.sum() >= 2
    assert unit.sum() >= 4
    assert (skew > 2).sum() >= 3
    assert of_query.sum() >= 2
    assert np.ptp(np.log10(x.std(axis=0))) > 1.5
    assert np.all(x.std(axis=0) > 0)


def test_some_features_show_nothing():
    """Within-query rank correlation with the label: some features have none, some have a lot."""
    judged = make_judged(n_queries=1500, n_features=50)
    owner = ragged.list_of_row(judged.indptr)
    n = np.diff(judged.indptr)[owner]

    def centred(v):
        return v - (np.bincount(owner, v) / np.diff(judged.indptr))[owner]

    y = centred(judged.labels)
    x = judged.features.astype(float)
    r = []
    for j in range(50):
        own = centred(np.argsort(np.argsort(x[:, j])).astype(float))
        spread = np.sqrt((own @ own) * (y @ y))
        r.append(abs(own @ y) / spread if spread > 1e-6 else 0.0)
    assert np.sum(np.array(r) < 4 / np.sqrt(len(n))) >= 8
    assert max(r) > 0.15


def test_the_same_seed_the_same_data():
    one, two, other = (make_judged(50, 6, seed=s) for s in (4, 4, 5))
    assert np.array_equal(one.features, two.features)
    assert np.array_equal(one.labels, two.labels)
    assert not np.array_equal(one.features[:100], other.features[:100])


def test_another_world_is_another_problem():
    """A ranker learned in one world is of no use in the next."""
    here, there = make_judged(400, 30, world=1), make_judged(400, 30, world=2)
    ranker = production_ranker(here, share=1.0)
    assert ndcg(there, ranker.predict(there.features)) < 0.5
    again = make_judged(400, 30, world=1, seed=9)
    assert ndcg(again, ranker.predict(again.features)) > 0.55


def test_noise_makes_labels_harder():
    clear, noisy = (make_judged(600, 20, noise=noise) for noise in (0.0, 2.0))
    for judged in (clear, noisy):
        assert np.mean(judged.labels == 0) == pytest.approx(0.5, abs=0.05)
    ranker = {noise: production_ranker(j, share=1.0) for noise, j in (("c", clear), ("n", noisy))}
    assert ndcg(clear, ranker["c"].predict(clear.features)) > 0.1 + ndcg(
        noisy, ranker["n"].predict(noisy.features)
    )


def test_a_split_keeps_the_distribution():
    judged = make_judged(1000, 8)
    train, test = judged.split(0.7)
    assert (train.n_queries, test.n_queries) == (700, 300)
    assert train.labels.mean() == pytest.approx(test.labels.mean(), abs=0.1)


def test_this_ndcg_is_the_librarys():
    """The measure used in this file agrees with the package's own where all queries count."""
    judged = make_judged(60, 5, seed=2)
    lively = judged.take(np.flatnonzero(np.maximum.reduceat(judged.labels, judged.indptr[:-1]) > 0))
    scores = np.random.default_rng(1).random(len(lively))
    found = evaluate(lively, scores, metrics=[parse_metric("ndcg@10")])
    assert f"{ndcg(lively, scores):.4f}"[:5] in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_queries": 0}, "n_queries must be at least 1. Got 0"),
        ({"n_features": 3}, "n_features must be at least 4"),
        ({"mean_docs": 2}, "mean_docs must be at least 5"),
        ({"noise": -0.1}, "noise must be at least 0"),
        ({"noise": float("nan")}, "noise must be at least 0"),
        ({"grades": 1}, "grades must be at least 2"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        make_judged(**options)


def test_sets_of_different_seeds_share_no_query_id():
    ids = [make_judged(30, 5, seed=seed).query_id.tolist() for seed in (0, 1, 2)]
    assert ids[0] == list(range(30))
    assert len({each for of in ids for each in of}) == 90
