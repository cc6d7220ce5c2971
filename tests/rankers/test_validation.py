"""Judging a ranker while it trains: by labels, or by held-out clicks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import (
    PRS,
    ClickLog,
    KnownBias,
    LambdaMART,
    PairwiseDebiasing,
    make_judged,
    parse_metric,
)
from untilt.errors import DepthError, OptionError, ShapeError
from untilt.rankers.validation import held_out_clicks, validation_for

SMALL: dict[str, Any] = {
    "n_trees": 40,
    "n_leaves": 5,
    "min_data_in_leaf": 3,
    "learning_rate": 0.4,
    "n_threads": 1,
}


@pytest.fixture(scope="module")
def parts():
    """Forty judged queries to learn from, twenty to stop by."""
    return make_judged(60, 6, seed=1, mean_docs=8, noise=1.0).split(2 / 3)


# ---- early stopping


def test_labels_decide_when_to_stop(parts):
    train, valid = parts
    ranker = LambdaMART(**SMALL, early_stopping=5).fit(train, valid=valid)
    assert 1 <= ranker.n_trees_ <= 35
    # The trees that are kept are the best of those seen, and five more were tried.
    assert len(ranker.watched_) == ranker.n_trees_ + 5
    assert np.argmax(ranker.watched_) == ranker.n_trees_ - 1
    scores = ranker.predict(valid.features)
    value = parse_metric("ndcg@10").per_list(scores, valid.labels, valid.indptr).mean()
    assert value == pytest.approx(max(ranker.watched_), abs=1e-9)
    assert ranker.summary_["trees"] == ranker.n_trees_


def test_clicks_decide_when_to_stop(pbm_log):
    train, valid = pbm_log(seed=1), pbm_log(seed=2)
    ranker = LambdaMART(PRS(train.theta), **SMALL, early_stopping=4)
    ranker.fit(train.log, valid=valid.log)
    assert ranker.n_trees_ < 36
    assert np.argmax(ranker.watched_) == ranker.n_trees_ - 1
    clicks = held_out_clicks(valid.log, train.theta)
    scores = ranker.predict(clicks.features)
    assert clicks.per_query(scores).sum() / valid.log.n_sessions == pytest.approx(
        max(ranker.watched_), abs=1e-9
    )


def test_stopping_keeps_the_trees_of_a_shorter_training(parts):
    train, valid = parts
    stopped = LambdaMART(**SMALL, early_stopping=5).fit(train, valid=valid)
    short = LambdaMART(**{**SMALL, "n_trees": stopped.n_trees_}).fit(train)
    assert np.array_equal(stopped.predict(valid.features), short.predict(valid.features))
    assert stopped.feature_importances_ == pytest.approx(short.feature_importances_)


def test_without_early_stopping_all_trees_are_kept_and_watched(parts):
    train, valid = parts
    watched = LambdaMART(**SMALL).fit(train, valid=valid)
    assert watched.n_trees_ == len(watched.watched_) == 40
    alone = LambdaMART(**SMALL).fit(train)
    assert alone.watched_ == ()
    assert np.array_equal(alone.predict(valid.features), watched.predict(valid.features))


def test_patience_longer_than_training_keeps_the_best(parts):
    train, valid = parts
    ranker = LambdaMART(**SMALL, early_stopping=1000).fit(train, valid=valid)
    assert len(ranker.watched_) == 40
    assert ranker.n_trees_ == np.argmax(ranker.watched_) + 1


def test_the_bias_of_the_weighting_weighs_the_held_out_clicks(pbm_log):
    """Its own, or the one that is given; raw clicks where there is none."""
    train, valid = pbm_log(seed=1), pbm_log(seed=2)

    def watched(weighting, **options):
        ranker = LambdaMART(weighting, **{**SMALL, "n_trees": 3}, **options)
        return ranker.fit(train.log, valid=valid.log).watched_

    own = watched(PRS(train.theta))
    assert watched(PRS(train.theta), bias=train.theta) == own
    other = watched(PRS(train.theta), bias=np.ones(5))
    assert other != own
    raw = watched(PairwiseDebiasing())
    first = LambdaMART(PairwiseDebiasing(), **{**SMALL, "n_trees": 1}).fit(train.log)
    clicks = held_out_clicks(valid.log, None)
    value = clicks.per_query(first.predict(clicks.features)).sum() / valid.log.n_sessions
    assert raw[0] == pytest.approx(value)


# ---- what held-out clicks are worth, by hand


def test_credit_of_held_out_clicks_by_hand(tiny):
    """Clicks over theta: document 0 twice at 1, document 1 once at 2, document 2 once at 2."""
    clicks = held_out_clicks(tiny, [1.0, 0.5])
    assert clicks.features.tolist() == tiny.features[:4].tolist()
    assert clicks.credit.tolist() == [2 / 1, 1 / 0.5, 1 / 0.5, 0]
    assert clicks.indptr.tolist() == [0, 2, 4]
    assert clicks.sessions.tolist() == [3, 1]


def test_value_of_a_ranking_by_hand(tiny):
    """Document 1 above 0, and 3 above 2: DCG of the credit, per session."""
    validation = validation_for(tiny, [1.0, 0.5], 5)
    second = 1 / np.log2(3)
    expected = (2 + 2 * second) + (0 + 2 * second)
    assert validation.value(np.array([1.0, 2.0, 1.0, 2.0])) == pytest.approx(expected / 4)
    assert validation.name == "propensity-weighted dcg@10"
    assert validation.rounds == 5


def test_a_document_counts_in_the_sessions_that_show_it():
    """Document 1 once at 2, document 2 once at 2 and clicked, of 2 sessions each by itself."""
    log = ClickLog(
        query_id=[0], doc_id=[0, 1, 2], doc_query=[0, 0, 0], indptr=[0, 2, 4], query=[0, 0],
        document=[0, 1, 0, 2], position=[1, 2, 1, 2], label=[1, 0, 0, 1], features=np.eye(3),
    )  # fmt: skip
    assert held_out_clicks(log, [1.0, 0.4]).credit.tolist() == [1.0, 0.0, 1 / 0.4]
    assert held_out_clicks(log, None).credit.tolist() == [1.0, 0.0, 1.0]
    rare = replace(log, count=np.array([99, 1]))
    assert held_out_clicks(rare, [1.0, 0.4]).credit[2] == 1 / 0.4


def test_rankers_fill_the_slots_of_production_lists_by_hand():
    """A gap at 2, a list of one, and a shuffled session that is no list to order.

    Relevance: document 0 has 1 click in 3 sessions at 1, 1, 3; document 1 has 1 in 2 at 3, 1.
    """
    log = ClickLog(
        query_id=[0], doc_id=[0, 1], doc_query=[0, 0], indptr=[0, 2, 3, 5], query=[0, 0, 0],
        document=[0, 1, 0, 1, 0], position=[1, 3, 1, 1, 3], label=[1, 0, 0, 1, 0],
        features=np.eye(2), ranker=[0, 0, 1], ranker_names=("production", "shuffle"),
    )  # fmt: skip
    clicks = held_out_clicks(log, [1.0, 0.7, 0.5])
    relevance = np.array([1 / (1 + 1 + 0.5), 1 / (0.5 + 1)])
    assert clicks.sessions.tolist() == [2]
    assert clicks.credit == pytest.approx(relevance * [2, 1])
    third = 1 / np.log2(4)
    logged = relevance[0] * (1 + 1) + relevance[1] * third
    swapped = relevance[0] * (third + 1) + relevance[1]
    assert clicks.per_query(np.array([1.0, 0.0])) == pytest.approx([logged])
    assert clicks.per_query(np.array([0.0, 1.0])) == pytest.approx([swapped])
    assert clicks.per_query(np.array([1.0, 1.0])) == pytest.approx([(logged + swapped) / 2])


def test_without_a_bias_every_click_counts_the_same(tiny):
    assert held_out_clicks(tiny, None).credit.tolist() == [2, 1, 1, 0]


def test_trust_bias_is_corrected_for(tiny):
    """(c - beta)/alpha summed over sessions, and never below 0."""
    bias = KnownBias([1.0, 0.5], eps_plus=[0.9, 0.8], eps_minus=[0.3, 0.2])
    alpha, beta = [0.6, 0.3], [0.3, 0.1]
    credit = held_out_clicks(tiny, bias).credit
    assert credit == pytest.approx(
        [(2 - 3 * beta[0]) / alpha[0], (1 - 3 * beta[1]) / alpha[1], (1 - beta[1]) / alpha[1], 0]
    )


def test_counts_are_repeats(tiny):
    repeated = tiny.take([0, 0, 1, 2], count=[1, 1, 1, 1])
    one, other = (held_out_clicks(log, [1.0, 0.5]) for log in (tiny, repeated))
    for name in ("features", "credit", "indptr", "sessions"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    scores = np.array([1.0, 2.0, 1.0, 2.0])
    assert one.per_query(scores).tolist() == other.per_query(scores).tolist()


# ---- errors


def test_stopping_without_held_out_data_is_refused(made):
    with pytest.raises(OptionError, match=r"early_stopping needs held-out data: fit\(log, valid="):
        LambdaMART(**SMALL, early_stopping=3).fit(made.log)


def test_held_out_data_of_another_kind_is_refused(made):
    with pytest.raises(OptionError, match=r"valid must be a ClickLog or JudgedLists\. Got float"):
        LambdaMART(**SMALL, early_stopping=3).fit(made.log, valid=0.2)  # type: ignore[arg-type]


def test_held_out_log_without_features_or_sessions_is_refused(made):
    ranker = LambdaMART(**SMALL, early_stopping=3)
    bare = replace(made.log, features=None, feature_names=())
    with pytest.raises(OptionError, match="the held-out log has no features to score"):
        ranker.fit(made.log, valid=bare)
    with pytest.raises(OptionError, match="the held-out log has no sessions to judge by"):
        ranker.fit(made.log, valid=made.log.take(np.zeros(0, dtype=int)))


def test_held_out_data_of_another_width_is_refused(made, parts):
    ranker = LambdaMART(**SMALL, early_stopping=3)
    with pytest.raises(ShapeError, match=r"must have the 4 features .* Got 6 instead"):
        ranker.fit(made.log, valid=parts[1])


def test_held_out_log_deeper_than_the_bias_is_refused(made):
    with pytest.raises(DepthError, match=r"position 5 has no examination estimate"):
        held_out_clicks(made.log, [1.0, 0.5])


def test_nothing_to_validate_on():
    assert validation_for(None, None, None) is None
