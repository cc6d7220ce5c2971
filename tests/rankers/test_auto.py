"""weighting="auto": the rule of its choice, and the blend as one booster."""

import numpy as np
import pytest

from untilt.bias.given import EyeTracking
from untilt.errors import OptionError
from untilt.rankers.held_out import HeldOutClicks, held_out_labels
from untilt.rankers.learning_data import training_lists
from untilt.rankers.trees import auto
from untilt.rankers.trees.auto import AutoChoice, _refit, _verdict
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged

BIAS = EyeTracking(1.0)


@pytest.fixture(scope="module")
def judged():
    return make_judged(80, 8, seed=3)


@pytest.fixture(scope="module")
def log(judged):
    return simulate(judged, "dla", sessions_per_query=30, seed=3).log


def mart(**options):
    return LambdaMART("auto", bias=BIAS, n_trees=8, folds=2, n_threads=1, **options)


def two_documents(n_queries: int) -> HeldOutClicks:
    """Each query has a clicked and an unclicked document: on top it is worth 1, below 1/log2(3)."""
    return HeldOutClicks(
        features=np.zeros((2 * n_queries, 1)),
        credit=np.tile([1.0, 0.0], n_queries),
        indptr=np.arange(0, 2 * n_queries + 1, 2),
        sessions=np.ones(n_queries),
    )


def scores(n_queries: int, n_right: int) -> np.ndarray:
    """The clicked document first in the first `n_right` queries."""
    first = np.where(np.arange(n_queries) < n_right, 1.0, -1.0)
    return np.column_stack([first, np.zeros(n_queries)]).ravel()


def test_a_clear_winner_is_picked():
    judge = two_documents(100)
    choice = _verdict({"balanced": scores(100, 90), "blend": scores(100, 50)}, judge, 1.0)
    assert choice.picked == "balanced"
    gain = 0.4 * (1 - 1 / np.log2(3))
    assert f"better than the blend on held-out clicks by {gain:.4f}" in choice.reason
    expected = 0.9 + 0.1 / np.log2(3)
    assert choice.estimates["balanced"].value == pytest.approx(expected)


def test_a_lead_within_noise_keeps_the_blend():
    judge = two_documents(100)
    choice = _verdict({"balanced": scores(100, 52), "blend": scores(100, 51)}, judge, 1.0)
    assert choice.picked == "blend"
    assert "balanced was ahead" in choice.reason
    assert "within noise" in choice.reason


def test_the_blend_wins_when_it_is_best():
    judge = two_documents(20)
    choice = _verdict({"balanced": scores(20, 5), "blend": scores(20, 15)}, judge, 1.0)
    assert choice.picked == "blend"
    assert "did best" in choice.reason
    assert "picked blend" in str(choice)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_one_booster_holds_the_sum_of_both_models(log, scale):
    ranker = mart(bagging_fraction=1.0, feature_fraction=1.0)
    _refit(ranker, training_lists(log), AutoChoice("blend", "", {}, blend_scale=scale))
    options = {"bias": BIAS, "n_trees": 8, "folds": 2, "n_threads": 1}
    options |= {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    parts = [LambdaMART(objective=name, **options).fit(log) for name in auto.BLEND]
    first, second = (part.predict(log.features) for part in parts)
    assert ranker.n_trees_ == 16
    np.testing.assert_allclose(ranker.predict(log.features), first + scale * second, atol=1e-5)


def test_fit_tells_its_choice_and_repeats_itself(log):
    one, two = mart(seed=1).fit(log), mart(seed=1).fit(log)
    assert one.choice_.picked in {*auto.CANDIDATES, "blend"}
    assert set(one.choice_.estimates) == {*auto.CANDIDATES, "blend"}
    assert one.choice_.reason
    np.testing.assert_array_equal(one.predict(log.features), two.predict(log.features))


def test_a_log_or_labels_may_be_the_judge(log, judged):
    train, rest = log.split(0.7)
    by_clicks = mart().fit(train, valid=rest).choice_
    by_labels = mart().fit(train, valid=judged).choice_
    assert by_clicks.estimates["blend"].n == rest.n_queries
    assert by_labels.estimates["blend"].n == judged.n_queries


def test_labels_give_credit_by_grade(judged):
    held = held_out_labels(judged)
    perfect = held.per_query(judged.labels)
    reverse = held.per_query(-judged.labels)
    assert np.all(perfect >= reverse)
    top = np.sort(judged.labels[: judged.indptr[1]])[::-1][:10]
    dcg = np.sum((2**top - 1) / np.log2(np.arange(len(top)) + 2))
    assert perfect[0] == pytest.approx(dcg)


def test_judged_lists_need_no_choice(judged):
    ranker = mart().fit(judged)
    assert ranker.choice_.picked == "labels"
    assert ranker.weighting == "auto"
    plain = LambdaMART(n_trees=8, n_threads=1).fit(judged)
    np.testing.assert_array_equal(ranker.predict(judged.features), plain.predict(judged.features))


def test_early_stopping_is_refused(log):
    with pytest.raises(OptionError, match="early_stopping has no meaning there"):
        mart(early_stopping=5).fit(log, valid=log)
