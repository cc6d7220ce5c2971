"""A click rate of the past among the features: one fixed ranker, readers exactly by position."""

import numpy as np
import pytest

from untilt import ClickLog, RegressionEM, TrustEM
from untilt.facts import codes

K = 10
THETA = np.arange(1, K + 1) ** -0.8


def log_of(seed, *, n_queries=200, sessions=30, strong=False, rates=(), theta=THETA):
    """Production knows a part of worth; `rates` are impressions behind rates of past clicks.

    `strong` : production goes by one feature, which tells nearly all of worth. Else two tell some.
    """
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=(n_queries, K))
    gamma = 0.05 + 0.65 / (1 + np.exp(1.5 - 1.5 * worth))
    columns = [rng.normal(size=worth.shape)]
    if strong:
        columns.append(worth + 0.3 * rng.normal(size=worth.shape))
        score = columns[1] + 0.7 * rng.normal(size=worth.shape)
    else:
        columns += [worth + rng.normal(size=worth.shape) for _ in range(2)]
        score = 0.6 * worth + 0.8 * rng.normal(size=worth.shape)
    order = np.argsort(-score, axis=1)
    shown = theta * np.take_along_axis(gamma, order, axis=1)
    for impressions in rates:
        past = np.empty_like(worth)
        np.put_along_axis(past, order, rng.binomial(impressions, shown) / impressions, axis=1)
        columns.append(past)
    query = np.repeat(np.arange(n_queries), sessions)
    return ClickLog(
        np.arange(n_queries),
        np.arange(worth.size),
        np.repeat(np.arange(n_queries), K),
        np.arange(len(query) + 1) * K,
        query,
        (K * query[:, None] + order[query]).ravel(),
        np.tile(np.arange(1, K + 1), len(query)),
        (rng.random((len(query), K)) < shown[query]).ravel().astype(float),
        features=np.stack(columns, axis=-1).reshape(worth.size, -1),
        feature_names=[*(f"signal{j}" for j in range(len(columns) - len(rates))),
                       *(f"rate{j}" for j in range(len(rates)))],
    ).collapse()  # fmt: skip


@pytest.mark.parametrize("estimator", [RegressionEM(), TrustEM()], ids=["position", "trust"])
def test_rates_of_past_clicks_are_named_and_take_the_interval(estimator):
    """Two of them: without one alone the other would keep the curve flat."""
    bias = estimator.fit(log_of(0, rates=(300, 100))).bias_
    assert not bias.has_interval
    (fact,) = (part for part in bias.status.parts if part.code == "bias.made-of-clicks")
    assert fact.fields["features"] == ["rate0", "rate1"]
    assert fact.fields["without"] < 0.5 * fact.fields["here"]


def test_nothing_else_than_past_clicks():
    log = log_of(1, n_queries=120, rates=(300,))
    log = ClickLog(
        log.query_id, log.doc_id, log.doc_query, log.indptr, log.query, log.document,
        log.position, log.label, count=log.count, features=log.features[:, -1:],
    )  # fmt: skip
    bias = RegressionEM().fit(log).bias_
    assert not bias.has_interval
    assert "bias.made-of-clicks" in codes(bias.status.parts)


@pytest.mark.slow
def test_an_interval_holds_or_is_not_given():
    """Rates of 50 to 1000 impressions: without the finding no position was covered in 8 of 8."""
    for seed, impressions in enumerate((50, 100, 300, 1000) * 3):
        assert not RegressionEM().fit(log_of(seed, rates=(impressions,))).bias_.has_interval


@pytest.mark.slow
def test_strong_features_of_worth_are_no_past_clicks():
    """Without the one feature that tells relevance the curve moves by a factor of 3, rightly."""
    held = []
    for seed in range(12):
        bias = RegressionEM().fit(log_of(seed, strong=True)).bias_
        assert bias.has_interval
        held.append((bias.low <= THETA) & (bias.high >= THETA))
    assert np.mean(held) > 0.85
