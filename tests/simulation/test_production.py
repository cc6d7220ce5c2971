"""The production ranker: its fit by other means, what it has seen, and what it refuses."""

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.linear_model import LogisticRegression

from untilt import JudgedLists
from untilt.errors import OptionError, ShapeError
from untilt.rankers.linear.linear import LinearRanker
from untilt.simulation.production import (
    fit_linear,
    pair_loss,
    production_ranker,
    production_rankers,
)


def differences(judged):
    """Standardised feature differences of all pairs with different labels."""
    x = judged.features.astype(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    pairs = [
        x[i] - x[j]
        for a, b in zip(judged.indptr[:-1], judged.indptr[1:], strict=True)
        for i in range(a, b)
        for j in range(a, b)
        if judged.labels[i] > judged.labels[j]
    ]
    return np.array(pairs)


@pytest.mark.parametrize("hinge", [False, True])
def test_gradient_by_finite_differences(judged, hinge):
    part = judged.take(np.arange(3))
    rng = np.random.default_rng(0)

    def value(s):
        return pair_loss(s, part.labels, part.indptr, hinge)[0]

    def slope(s):
        return pair_loss(s, part.labels, part.indptr, hinge)[2]

    for scale in (0.3, 30.0):
        s = scale * rng.standard_normal(len(part))
        error = check_grad(value, slope, s)
        assert error < 1e-4 * (1 + np.abs(slope(s)).sum())


def test_weights_equal_scikit_learns_on_pair_differences(judged):
    part, l2 = judged.take(np.arange(12)), 1e-2
    d = differences(part)
    rows, target = np.concatenate([d, -d]), np.repeat([1, 0], len(d))
    other = LogisticRegression(C=1 / (l2 * 2 * len(d)), fit_intercept=False, tol=1e-10)
    other.fit(rows, target)
    mine = fit_linear(part.features, part.labels, part.indptr, hinge=False, l2=l2)
    standardised = mine * part.features.std(axis=0, dtype=float)
    assert standardised == pytest.approx(other.coef_[0], abs=2e-4)


def test_weights_equal_those_of_the_linear_ranker(judged):
    """The library's own ranker on the same labels finds the same order."""
    part = judged.take(np.arange(20))
    mine = fit_linear(part.features, part.labels, part.indptr, hinge=False, l2=1e-3)
    other = LinearRanker(l2=1e-3).fit(part)
    assert mine == pytest.approx(other.weights_, rel=0.02, abs=0.02 * np.abs(mine).max())


def test_a_constant_feature_gets_no_weight(judged):
    x = judged.features.copy()
    x[:, 2] = 7
    weights = fit_linear(x, judged.labels, judged.indptr, hinge=False, l2=1e-3)
    assert weights[2] == 0
    assert np.all(np.isfinite(weights))


def test_one_percent_but_at_least_five_queries(judged):
    assert len(production_ranker(judged).training_queries) == 5
    assert len(production_ranker(judged, share=0.25).training_queries) == 30
    assert len(production_ranker(judged, share=1.0).training_queries) == 120
    assert len(production_ranker(judged.take(np.arange(3))).training_queries) == 3


def test_it_learns_from_its_own_queries_alone(judged):
    ranker = production_ranker(judged, seed=3)
    chosen = np.flatnonzero(np.isin(judged.query_id, ranker.training_queries))
    part = judged.take(chosen)
    again = fit_linear(part.features, part.labels, part.indptr, hinge=False, l2=1e-3)
    assert np.array_equal(ranker.weights, again)
    np.testing.assert_allclose(
        ranker.predict(judged.features), judged.features.astype(float) @ again, atol=1e-12
    )


def test_the_same_seed_the_same_ranker(judged):
    one, two, other = (production_ranker(judged, seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.weights, two.weights)
    assert not np.array_equal(one.training_queries, other.training_queries)


def test_a_margin_ranker_orders_much_like_the_logistic_one(judged):
    logistic, margin = (
        production_ranker(judged, share=1.0, kind=kind).predict(judged.features)
        for kind in ("linear", "svm")
    )
    assert np.corrcoef(logistic, margin)[0, 1] > 0.98
    assert not np.array_equal(logistic, margin)


def test_several_rankers_disagree(judged):
    rankers = production_rankers(judged, 4, feature_share=0.3)
    assert [r.name for r in rankers] == [f"production-{i}" for i in (1, 2, 3, 4)]
    assert [np.count_nonzero(r.weights) for r in rankers] == [3, 3, 3, 3]
    used = {tuple(np.flatnonzero(r.weights)) for r in rankers}
    assert len(used) > 1
    assert len({tuple(r.training_queries.tolist()) for r in rankers}) == 4


def test_a_query_with_a_pair_is_always_among_them():
    labels = np.zeros(300)
    labels[298] = 1
    features = np.random.default_rng(0).random((300, 2))
    judged = JudgedLists(features, labels, np.arange(0, 301, 2), np.arange(150))
    for seed in range(10):
        ranker = production_ranker(judged, seed=seed)
        assert 149 in ranker.training_queries
        assert len(ranker.training_queries) == 5
        assert len(set(ranker.training_queries.tolist())) == 5
        assert np.any(ranker.weights != 0)


def test_repr_tells_what_it_is(judged):
    text = repr(production_ranker(judged, feature_share=0.5))
    assert "'production', linear, 5 of 10 features, trained on 5 queries" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0}, "share must lie above 0"),
        ({"share": 1.1}, "share must lie above 0"),
        ({"feature_share": -1}, "feature_share must lie above 0"),
        ({"kind": "tree"}, "kind must be one of 'linear', 'svm'"),
        ({"l2": -1}, "l2 must be at least 0"),
    ],
)
def test_wrong_options_are_refused(judged, options, message):
    with pytest.raises(OptionError, match=message):
        production_ranker(judged, **options)


def test_labels_without_a_pair_are_refused():
    judged = JudgedLists(np.ones((4, 1)), np.ones(4), np.array([0, 2, 4]), np.arange(2))
    with pytest.raises(OptionError, match="no query here has two different labels"):
        production_ranker(judged)


def test_other_features_are_refused(judged):
    with pytest.raises(ShapeError, match=r"shape \(n, 10\)"):
        production_ranker(judged).predict(np.zeros((3, 4)))
    with pytest.raises(OptionError, match="n_rankers must be at least 1"):
        production_rankers(judged, 0)
