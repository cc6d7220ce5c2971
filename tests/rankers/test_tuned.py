"""n_trees="auto", and boosters of folds as one."""

from typing import Any

import lightgbm
import numpy as np
import pytest

from untilt import Balanced, EyeTracking, LambdaMART, PairwiseDebiasing, make_judged, simulate
from untilt.errors import OptionError
from untilt.rankers.trees.boosting import merged
from untilt.rankers.trees.crossfit import FoldTraining, folds_of, is_dense
from untilt.rankers.trees.objectives import BoostingOptions

BIAS = EyeTracking(1.0)
QUICK: dict[str, Any] = {"n_threads": 1, "learning_rate": 0.2, "n_leaves": 4}


@pytest.fixture(scope="module")
def judged():
    return make_judged(60, 6, seed=1)


@pytest.fixture(scope="module")
def log(judged):
    return simulate(judged, "dla", sessions_per_query=30, seed=1).log


def a_booster(rng, seed, **params):
    X = rng.normal(size=(300, 4))
    X[::9, 1] = np.nan
    y = X[:, 0] * 2 + np.nan_to_num(X[:, 1]) + rng.normal(size=300)
    data = lightgbm.Dataset(X, y, params={"verbosity": -1})
    options: dict[str, Any] = {
        "objective": "regression",
        "verbosity": -1,
        "num_threads": 1,
        "seed": seed,
    }
    return lightgbm.train({**options, **params}, data, 7), X


# ---- several boosters as one


def test_a_merged_booster_is_the_weighted_sum(rng):
    one, X = a_booster(rng, 0)
    two, _ = a_booster(rng, 1, num_leaves=3)
    sum_of_both = merged([(one, 5, 0.7), (two, 7, -1.3)])
    expected = 0.7 * one.predict(X, num_iteration=5) - 1.3 * two.predict(X)
    np.testing.assert_allclose(sum_of_both.predict(X), expected, atol=1e-12)
    assert sum_of_both.num_trees() == 12
    again = lightgbm.Booster(model_str=sum_of_both.model_to_string())
    np.testing.assert_allclose(again.predict(X), expected, atol=1e-12)


def test_linear_leaves_are_scaled_too(rng):
    one, X = a_booster(rng, 0, linear_tree=True)
    twice = merged([(one, 7, 2.0)])
    np.testing.assert_allclose(twice.predict(X), 2 * one.predict(X), atol=1e-9)


def test_a_part_without_weight_or_trees_is_left_out(rng):
    one, X = a_booster(rng, 0)
    alone = merged([(one, 7, 1.0), (one, 7, 0.0), (one, 0, 3.0)])
    assert alone.num_trees() == 7
    np.testing.assert_allclose(alone.predict(X), one.predict(X), atol=1e-12)


# ---- folds


def test_folds_keep_queries_together_and_depend_on_their_set_alone(rng):
    query = np.repeat(np.arange(30), 3)
    fold = folds_of(query, 4, seed=0)
    assert all(len(np.unique(fold[query == q])) == 1 for q in range(30))
    assert np.bincount(fold[::3]).tolist() == [8, 8, 7, 7]
    mixed = rng.permutation(len(query))
    np.testing.assert_array_equal(folds_of(query[mixed], 4, seed=0), fold[mixed])


@pytest.mark.parametrize(("n_queries", "n_folds"), [(3, 3), (9_999, 4), (10_000, 2)])
def test_many_queries_need_fewer_folds(n_queries, n_folds):
    assert folds_of(np.arange(n_queries), None, seed=0).max() + 1 == n_folds


def test_the_best_prefix_is_kept_and_scores_are_of_trees_that_did_not_see_the_row(rng):
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = X[:, 0] + 0.5 * rng.normal(size=400)
    fold = folds_of(np.arange(400) // 4, 4, seed=0)
    options = BoostingOptions({"num_leaves": 15, "learning_rate": 0.3, "min_data_in_leaf": 5}, 200)
    training = FoldTraining(X, fold, options)
    grown = training.grow(
        "regression", lambda scores: -float(np.mean((y - scores) ** 2)), what="test", label=y
    )
    tried = grown.tried
    assert tried.best == tried.trees[int(np.argmax(tried.values))]
    assert tried.best < 100  # it would overfit
    assert tried.trees[-1] < 200  # and stops when it does
    for k, booster in enumerate(grown.boosters):
        own = booster.predict(X[fold == k], num_iteration=tried.best)
        np.testing.assert_allclose(grown.scores[fold == k], own, atol=1e-6)
    mean = np.mean([b.predict(X, num_iteration=tried.best) for b in grown.boosters], axis=0)
    np.testing.assert_allclose(grown.booster().predict(X), mean, atol=1e-9)


@pytest.mark.parametrize(("fewest", "best"), [(0, 0), (1, 10), (30, 30), (500, 50)])
def test_the_fewest_trees_hold_where_there_is_nothing_to_learn(rng, fewest, best):
    """Every tree is worse than none; 50 are the most."""
    training = FoldTraining(
        rng.normal(size=(200, 2)), np.arange(200) % 4, BoostingOptions({"num_leaves": 4}, 50)
    )
    values = iter(-np.arange(10.0))
    grown = training.grow(
        "regression", lambda _: next(values), what="test", label=rng.normal(size=200), fewest=fewest
    )
    assert grown.tried.best == best
    assert (grown.tried.trees[0] == 0) == (fewest == 0)
    assert grown.scores.any() == (best > 0)


def test_small_trees_have_one_thread_whatever_was_asked_for(rng, monkeypatch):
    """Threads beyond that are for parts at the same time; large trees have what was asked for."""
    monkeypatch.setattr("untilt._core.threads.cores", lambda: 8)
    fold = np.arange(400) % 2
    X = rng.normal(size=(400, 5))
    options = BoostingOptions({}, 1, n_threads=6)
    assert FoldTraining(X, fold, options).n_threads == 1
    monkeypatch.setattr("untilt._core.threads.TREE_VALUES", 250)
    large = FoldTraining(X, fold, options)
    assert (large.n_threads, large.params["num_threads"]) == (6, 3)
    assert FoldTraining(X, fold, BoostingOptions({}, 1)).n_threads == 8


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_rows_that_are_denser_than_the_others_are_trained_on(rng, seed):
    """LightGBM's table by rows overran its memory where it expected a quarter of the values."""
    X = rng.normal(size=(6000, 100)).astype(np.float32)
    dense = np.arange(6000) < 1200
    X *= rng.random(X.shape) < np.where(dense, 0.8, 0.2)[:, None]
    y = X[:, 0] + X[:, 1] ** 2
    params = {"num_leaves": 31, "bagging_fraction": 0.9, "bagging_freq": 1, "feature_fraction": 0.9}
    training = FoldTraining(X, np.arange(6000) % 4, BoostingOptions(params, 60))
    grown = training.grow(
        "regression", None, what="test", among=np.flatnonzero(dense), label=y,
        params={"seed": seed},
    )  # fmt: skip
    assert np.corrcoef(grown.scores[dense], y[dense])[0, 1] > 0.9


@pytest.mark.parametrize(
    ("make", "max_bin", "dense"),
    [
        (lambda rng: rng.normal(size=(5000, 3)), 255, True),
        (lambda rng: rng.normal(size=(5000, 3)), 8, False),  # few bins, each of them full
        (lambda rng: rng.integers(0, 3, (5000, 3)), 255, False),
        (lambda rng: np.full((5000, 3), np.nan), 255, False),
        (lambda rng: np.column_stack([rng.normal(size=(90, 9)), np.zeros(90)]), 255, True),
    ],
)
def test_dense_features_are_known(rng, make, max_bin, dense):
    assert is_dense(make(rng).astype(np.float32), max_bin) == dense


# ---- the number of trees


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weighting": Balanced(BIAS)},
        {"objective": "pbm-likelihood", "bias": BIAS},
        {"objective": "ips-label", "bias": BIAS},
    ],
    ids=["raw", "balanced", "pbm-likelihood", "ips-label"],
)
def test_every_objective_finds_its_number(log, options):
    ranker = LambdaMART(n_trees="auto", **QUICK, **options).fit(log)
    best = 10 * (1 + int(np.argmax(ranker.watched_)))
    assert ranker.n_trees_ == ranker.booster_.num_trees() <= 4 * best
    curve = "a curve of ones" if not options else "the given bias"
    assert curve in ranker.summary_["trees_chosen_by"]
    again = LambdaMART(n_trees="auto", **{**QUICK, "n_threads": 2}, **options).fit(log)
    np.testing.assert_array_equal(ranker.predict(log.features), again.predict(log.features))


def test_a_learned_table_is_trained_once_more(log):
    ranker = LambdaMART(PairwiseDebiasing(p=0), n_trees="auto", **QUICK).fit(log)
    assert ranker.n_trees_ == 10 * (1 + int(np.argmax(ranker.watched_)))
    assert ranker.bias_ is not None
    plain = LambdaMART(PairwiseDebiasing(p=0), n_trees=ranker.n_trees_, **QUICK).fit(log)
    np.testing.assert_array_equal(ranker.predict(log.features), plain.predict(log.features))


def test_labels_judge_judged_lists(judged):
    ranker = LambdaMART(n_trees="auto", **QUICK).fit(judged)
    assert ranker.summary_["trees_chosen_by"] == "ndcg@10 of held-out queries"


def test_held_out_data_of_the_user_decides(log):
    train, valid = log.split(0.7)
    ranker = LambdaMART(Balanced(BIAS), n_trees="auto", **QUICK).fit(train, valid=valid)
    assert ranker.n_trees_ == 1 + int(np.argmax(ranker.watched_))


def test_what_makes_no_sense_is_refused(log):
    with pytest.raises(OptionError, match="must be a number or 'auto'"):
        LambdaMART(n_trees="many").fit(log)
    with pytest.raises(OptionError, match="finds the number of trees itself"):
        LambdaMART(n_trees="auto", early_stopping=5).fit(log, valid=log)
    one = log.take(np.flatnonzero(log.query == 0))
    with pytest.raises(OptionError, match="there is a single one"):
        LambdaMART(n_trees="auto").fit(one)
