"""weighting="auto": the rule of its choice, and the blend as one booster."""

from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone

from untilt import EyeTracking, LambdaMART, make_judged, simulate
from untilt.errors import OptionError
from untilt.facts import as_fact
from untilt.rankers.learning_data import training_lists
from untilt.rankers.trees.auto import AutoChoice, candidates, train_choice, verdict
from untilt.rankers.validation import HeldOutClicks, held_out_labels

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
    choice = verdict({"balanced": scores(100, 90), "blend": scores(100, 50)}, judge, 1.0)
    assert choice.picked == "balanced"
    gain = 0.4 * (1 - 1 / np.log2(3))
    assert as_fact(choice.reason).code == "training.better-than-blend"
    assert as_fact(choice.reason).fields["gain"] == pytest.approx(gain)
    expected = 0.9 + 0.1 / np.log2(3)
    assert choice.estimates["balanced"].value == pytest.approx(expected)


def test_a_lead_within_noise_keeps_the_blend():
    judge = two_documents(100)
    choice = verdict({"balanced": scores(100, 52), "blend": scores(100, 51)}, judge, 1.0)
    assert choice.picked == "blend"
    assert as_fact(choice.reason).code == "training.ahead-within-noise"
    assert as_fact(choice.reason).fields["candidate"] == "balanced"


def test_the_blend_wins_when_it_is_best():
    judge = two_documents(20)
    choice = verdict({"balanced": scores(20, 5), "blend": scores(20, 15)}, judge, 1.0)
    assert choice.picked == "blend"
    assert as_fact(choice.reason).code == "training.blend-best"
    assert "picked blend" in str(choice)


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_one_booster_holds_the_sum_of_both_models(log, scale):
    training = mart(bagging_fraction=1.0, feature_fraction=1.0)._training()
    choice = AutoChoice("blend", "", {}, blend_scale=scale)
    boosted = train_choice(training_lists(log), training, choice)
    options: dict[str, Any] = {"bias": BIAS, "n_trees": 8, "folds": 2, "n_threads": 1}
    options |= {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    parts = [LambdaMART(objective=name, **options).fit(log) for name in list(candidates())[:2]]
    first, second = (part.predict(log.features) for part in parts)
    assert boosted.n_trees == 16
    blend = boosted.booster.predict(log.features)
    np.testing.assert_allclose(blend, first + scale * second, atol=1e-5)


def test_fit_tells_its_choice_and_repeats_itself(log):
    one, two = mart(seed=1).fit(log), mart(seed=1).fit(log)
    assert one.choice_.picked in {*candidates(), "blend"}
    assert set(one.choice_.estimates) == {*candidates(), "blend"}
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
    assert ranker.choice_.reason.code == "training.labels"
    plain = LambdaMART(n_trees=8, n_threads=1).fit(judged)
    np.testing.assert_array_equal(ranker.predict(judged.features), plain.predict(judged.features))


@pytest.mark.parametrize("kind", ["log", "judged"])
def test_fit_changes_no_parameter(kind, log, judged, monkeypatch):
    """Not even while it trains: another thread may read or clone the ranker meanwhile."""
    ranker, seen = mart(), []
    before = ranker.get_params()
    boost = lightgbm.train

    def train(*args, **options):
        seen.append(ranker.get_params())
        return boost(*args, **options)

    monkeypatch.setattr(lightgbm, "train", train)
    ranker.fit(log if kind == "log" else judged)
    assert len(seen) >= 1
    assert all(params == before for params in [*seen, ranker.get_params()])
    assert clone(ranker).get_params() == before


def test_early_stopping_is_refused(log):
    with pytest.raises(OptionError, match="early_stopping has no meaning there"):
        mart(early_stopping=5).fit(log, valid=log)
