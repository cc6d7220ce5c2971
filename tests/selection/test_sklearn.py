"""scikit-learn's own tools with untilt's rankers: grouped cross-validation, grids, pipelines."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import untilt as ut
from untilt.errors import OptionError, ShapeError

NAMES = ["title", "price", "stars", "age"]


@pytest.fixture(scope="module")
def judged():
    return ut.make_judged(n_queries=60, n_features=4, seed=0)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def small(**options):
    return ut.LinearRanker(max_rounds=3, **options)


def mean_ndcg(ranker, train, test):
    """By untilt's own way."""
    return ut.evaluate(test, ranker.fit(train).predict(test), "ndcg@10")["ndcg@10"].value


def test_arrays_with_groups_are_judged_lists(judged):
    shuffled = np.random.default_rng(0).permutation(len(judged))
    X, y, q = judged.features[shuffled], judged.labels[shuffled], judged.groups[shuffled]
    by_rows, by_lists = small().fit(X, y, groups=q), small().fit(judged)
    assert by_rows.predict(X) == pytest.approx(by_lists.predict(X), rel=1e-5)
    assert by_rows.score(X, y, groups=q) == pytest.approx(by_rows.score(judged))
    assert by_rows.score(judged) == ut.evaluate(judged, by_rows, "ndcg@10")["ndcg@10"].value
    assert len(by_rows.trained_on_) == 60


def test_cross_val_score_is_that_of_the_folds(judged, routing):
    cv = ut.QueryKFold(4, seed=1)
    found = cross_val_score(
        small(), judged.features, judged.labels, cv=cv, params={"groups": judged.groups}
    )
    folds = [(judged.take(train), judged.take(test)) for train, test in cv.split(judged)]
    sizes = {len(test) for _, test in cv.split(judged)}
    assert sizes == {15}
    assert len(found) == 4
    # The same folds, since every query lies in one: by hand with the indices of the rows.
    rows = cv.split(judged.features, judged.labels, judged.groups)
    by_hand = []
    for train, test in rows:
        parts = [
            judged.take(np.isin(judged.query_id, judged.groups[each])) for each in (train, test)
        ]
        by_hand.append(mean_ndcg(small(), *parts))
    assert found == pytest.approx(by_hand, rel=1e-6)
    assert all(not set(a.query_id) & set(b.query_id) for a, b in folds)


def test_its_own_group_folds_work_too(judged, routing):
    found = cross_validate(
        small(), judged.features, judged.labels, cv=GroupKFold(3),
        params={"groups": judged.groups}, error_score="raise",
    )  # fmt: skip
    assert np.all(found["test_score"] > 0.3)


def test_grid_search_finds_what_is_better(judged, routing):
    search = GridSearchCV(
        small(), {"l2": [1e-3, 1e6]}, cv=ut.QueryKFold(3), error_score="raise"
    )  # fmt: skip
    frame = pd.DataFrame(judged.features, columns=NAMES)
    search.fit(frame, judged.labels, groups=judged.groups)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_ == {"l2": [1e-3, 1e6][int(np.argmax(scores))]}
    assert search.best_estimator_.feature_names_ == tuple(NAMES)
    assert np.array_equal(search.predict(frame[NAMES[::-1]]), search.predict(frame))
    assert search.score(frame, judged.labels, groups=judged.groups) == pytest.approx(
        search.best_estimator_.score(
            ut.JudgedLists(
                judged.features, judged.labels, judged.indptr, judged.query_id, feature_names=NAMES
            )
        )
    )


def test_a_pipeline_trains(judged, routing):
    pipeline = make_pipeline(StandardScaler(), ut.LambdaMART(n_trees=5, n_threads=1))
    pipeline.fit(judged.features, judged.labels, groups=judged.groups)
    by_hand = ut.LambdaMART(n_trees=5, n_threads=1).fit(
        StandardScaler().fit_transform(judged.features), judged.labels, groups=judged.groups
    )
    expected = by_hand.predict(StandardScaler().fit_transform(judged.features))
    assert np.array_equal(pipeline.predict(judged.features), expected)


@pytest.mark.skipif(
    tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8),
    reason="before scikit-learn 1.8 pipelines do not hand groups on to score",
)
def test_a_pipeline_is_searched(judged, routing):
    pipeline = make_pipeline(StandardScaler(), ut.LambdaMART(n_trees=5, n_threads=1))
    found = cross_val_score(
        pipeline, judged.features, judged.labels, cv=ut.QueryKFold(3),
        params={"groups": judged.groups}, error_score="raise",
    )  # fmt: skip
    assert np.all(found > 0.3)
    search = GridSearchCV(pipeline, {"lambdamart__n_trees": [1, 5]}, cv=ut.QueryKFold(2))
    search.fit(judged.features, judged.labels, groups=judged.groups)
    assert len(search.cv_results_["mean_test_score"]) == 2


def test_a_pipeline_without_routing(judged):
    pipeline = Pipeline([("scale", StandardScaler()), ("rank", small())])
    pipeline.fit(judged.features, judged.labels, rank__groups=judged.groups)
    assert pipeline.predict(judged.features).shape == (len(judged),)
    assert ut.evaluate(judged, pipeline, "ndcg@10")["ndcg@10"].value > 0.3


def test_clone_keeps_parameters_and_forgets_the_training(judged):
    fresh = clone(small(l2=0.5).fit(judged))
    assert fresh.l2 == 0.5
    assert not hasattr(fresh, "trained_on_")


# ---- folds of logs


def test_folds_of_a_log_share_no_query(judged):
    log = ut.simulate(judged, protocol="dla", n_sessions=600, seed=0, n_threads=1).log
    taken = np.zeros(log.n_lists, dtype=int)
    for train, test in ut.QueryKFold(3).split(log):
        assert not set(log.take(train).query) & set(log.take(test).query)
        taken[test] += 1
    assert np.all(taken == 1)
    with pytest.raises(OptionError, match="90 folds need at least as many queries"):
        list(ut.QueryKFold(90).split(log))


def test_the_seed_of_the_folds(judged):
    def folds(**options):
        return [tuple(test) for _, test in ut.QueryKFold(3, **options).split(judged)]

    assert folds(seed=1) == folds(seed=1) != folds(seed=2)
    assert ut.QueryKFold(3).get_n_splits() == 3
    assert "QueryKFold" in repr(ut.QueryKFold(3, seed=1))


# ---- what cannot work says so


def test_a_log_in_scikit_learns_tools_is_told_of_select(judged):
    log = ut.simulate(judged, protocol="dla", n_sessions=600, seed=0, n_threads=1).log
    with pytest.raises(OptionError, match=r"Use ut\.select"):
        GridSearchCV(small(), {"l2": [1.0]}).fit(log)
    with pytest.raises(OptionError, match=r"Use ut\.select"):
        cross_val_score(small(), log)
    with pytest.raises(OptionError, match=r"judged\.groups"):
        cross_val_score(small(), judged)


def test_groups_that_did_not_arrive_are_told(judged):
    with pytest.raises(OptionError, match=r"Got no groups\. .*enable_metadata_routing=True"):
        cross_val_score(
            small(), judged.features, judged.labels, groups=judged.groups, cv=GroupKFold(3),
            error_score="raise",
        )  # fmt: skip
    with pytest.raises(OptionError, match="Got no labels and groups"):
        small().fit(judged.features)
    with pytest.raises(ShapeError, match="groups must have one entry for each"):
        small().fit(judged.features, judged.labels, groups=np.diff(judged.indptr))
    with pytest.raises(OptionError, match="holds its labels and queries"):
        small().fit(judged, judged.labels)


def test_the_score_on_clicks_needs_the_bias(judged):
    log = ut.simulate(judged, protocol="dla", n_sessions=2_000, seed=0, n_threads=1).log
    ranker = small().fit(judged)
    with pytest.raises(OptionError, match=r"score\(log, bias=...\)"):
        ranker.score(log)
    worse = ut.LinearRanker(max_rounds=3).fit(
        judged.features, judged.labels.max() - judged.labels, groups=judged.groups
    )
    assert ranker.score(log, bias=ut.EyeTracking()) > worse.score(log, bias=ut.EyeTracking())


def test_held_out_data_for_a_ranker_that_has_no_use_for_it(judged):
    with pytest.raises(OptionError, match="LinearRanker takes no held-out data"):
        small().fit(judged, valid=judged)
