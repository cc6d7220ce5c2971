"""Counterfactual estimates are right in expectation: every outcome of a session is enumerated."""

import itertools

import numpy as np
import pytest

from untilt.bias.given import KnownBias
from untilt.data.clicklog import ClickLog
from untilt.evaluation.estimate import estimate
from untilt.evaluation.slots import RankMetric
from untilt.evaluation.systems import shown

THETA = np.array([0.8, 0.5, 0.25, 0.1])
GAMMA = np.array([0.3, 0.0, 1.0, 0.6])  # of the documents as they were shown
SCORES = np.array([0.1, 0.4, 0.2, 0.9])
RANK = np.array([4, 2, 3, 1])  # by falling score
EPS_PLUS, EPS_MINUS = np.array([0.98, 0.9, 0.8, 0.9]), np.array([0.6, 0.3, 0.2, 0.05])
METRICS = {
    "arp": lambda r: r,
    "dcg": lambda r: 1 / np.log2(1 + r),
    "dcg@2": lambda r: np.where(r <= 2, 1 / np.log2(1 + r), 0),
    "precision@3": lambda r: np.where(r <= 3, 1 / 3, 0),
    "reciprocal": lambda r: 1 / r,
    "reciprocal@2": lambda r: np.where(r <= 2, 1 / r, 0),
    "own": lambda r: np.exp(-r),
}


def session(clicks) -> ClickLog:
    n = len(clicks)
    return ClickLog(
        query_id=[7], doc_id=np.arange(n), doc_query=np.zeros(n, int), indptr=[0, n], query=[0],
        document=np.arange(n), position=np.arange(1, n + 1), label=clicks,
    )  # fmt: skip


def expectation(probability, system, bias, **options) -> float:
    """Sum over all 2^n outcomes of their probability times the estimate from that one session."""
    return sum(
        np.prod(np.where(clicks, probability, 1 - probability))
        * estimate(session(np.array(clicks, float)), system, bias, **options).entries[0].value
        for clicks in itertools.product([False, True], repeat=len(probability))
    )


def metric_of(name):
    return RankMetric("own", METRICS["own"]) if name == "own" else name


@pytest.mark.parametrize("name", METRICS)
def test_ips_is_unbiased_for_every_additive_metric(name):
    found = expectation(THETA * GAMMA, SCORES, KnownBias(THETA), metric=metric_of(name))
    assert found == pytest.approx(np.sum(METRICS[name](RANK) * GAMMA))


@pytest.mark.parametrize("name", METRICS)
def test_the_order_that_was_shown_is_judged_by_its_own_positions(name):
    found = expectation(THETA * GAMMA, shown, KnownBias(THETA), metric=metric_of(name))
    assert found == pytest.approx(np.sum(METRICS[name](np.arange(1, 5)) * GAMMA))


@pytest.mark.parametrize("name", METRICS)
def test_naive_is_biased_by_exactly_the_examination(name):
    """Document 004: E[naive] = sum over relevant documents of P(examined) lambda(rank)."""
    found = expectation(THETA * GAMMA, SCORES, None, metric=metric_of(name), evaluator="naive")
    assert found == pytest.approx(np.sum(METRICS[name](RANK) * THETA * GAMMA))


@pytest.mark.parametrize("clip", [0.2, 0.5, 1.0])
def test_clipping_is_biased_by_exactly_theta_over_the_clip(clip):
    found = expectation(THETA * GAMMA, SCORES, KnownBias(THETA), evaluator="clipped", clip=clip)
    lam = 1 / np.log2(1 + RANK)
    assert found == pytest.approx(np.sum(lam * GAMMA * np.minimum(1, THETA / clip)))


def test_a_clip_of_one_is_naive_and_a_clip_under_all_propensities_is_ips():
    log = session([1.0, 0.0, 1.0, 1.0])
    value = {
        clip: estimate(log, SCORES, KnownBias(THETA), evaluator="clipped", clip=clip).best.value
        for clip in (1.0, 0.1)
    }
    assert value[1.0] == estimate(log, SCORES, evaluator="naive").best.value
    assert value[0.1] == estimate(log, SCORES, KnownBias(THETA), evaluator="ips").best.value


@pytest.mark.parametrize("name", METRICS)
def test_affine_is_unbiased_under_trust_bias_and_bayes_ips_is_not(name):
    probability = THETA * (EPS_PLUS * GAMMA + EPS_MINUS * (1 - GAMMA))
    bias = KnownBias(THETA, eps_plus=EPS_PLUS, eps_minus=EPS_MINUS)
    truth = np.sum(METRICS[name](RANK) * GAMMA)
    options = {"metric": metric_of(name)}
    assert expectation(probability, SCORES, bias, evaluator="affine", **options) == pytest.approx(
        truth
    )
    bayes = np.sum(METRICS[name](RANK) * EPS_PLUS / (EPS_PLUS + EPS_MINUS) * probability / THETA)
    assert expectation(
        probability, SCORES, bias, evaluator="bayes-ips", **options
    ) == pytest.approx(bayes)
    assert abs(bayes - truth) > 0.01
    ips = expectation(probability, SCORES, bias, evaluator="ips", **options)
    assert abs(ips - truth) > abs(bayes - truth) * 0.1


def test_without_trust_bias_affine_and_bayes_ips_are_ips():
    log = session([1.0, 0.0, 1.0, 1.0])
    ips = estimate(log, SCORES, KnownBias(THETA)).best.value
    for evaluator in ("affine", "bayes-ips", "policy-aware"):
        assert estimate(
            log, SCORES, KnownBias(THETA), evaluator=evaluator
        ).best.value == pytest.approx(ips)


def test_snips_is_the_share_of_the_weights_and_forgets_the_scale_of_the_curve():
    log = session([1.0, 0.0, 1.0, 1.0])
    lam = 1 / np.log2(1 + RANK)
    weight = np.array([1, 0, 1, 1]) / THETA
    for scale in (1.0, 0.3):
        found = estimate(log, SCORES, KnownBias(scale * THETA), evaluator="snips").best.value
        assert found == pytest.approx(np.sum(weight * lam) / weight.sum())
    average_rank = estimate(
        log, SCORES, KnownBias(THETA), evaluator="snips", metric="arp"
    ).best.value
    assert average_rank == pytest.approx(np.sum(weight * RANK) / weight.sum())


@pytest.mark.parametrize("model", [GAMMA, np.array([0.5, 0.5, 0.2, 0.9])])
@pytest.mark.parametrize("clip", [0.0, 0.4])
def test_doubly_robust_is_unbiased_if_the_model_is_right_or_nothing_is_clipped(model, clip):
    probability = THETA * (EPS_PLUS * GAMMA + EPS_MINUS * (1 - GAMMA))
    bias = KnownBias(THETA, eps_plus=EPS_PLUS, eps_minus=EPS_MINUS)
    found = expectation(
        probability, SCORES, bias, evaluator="doubly-robust", clip=clip, relevance=model
    )
    lam = 1 / np.log2(1 + RANK)
    if clip == 0 or model is GAMMA:
        assert found == pytest.approx(np.sum(lam * GAMMA))
    else:
        alpha = THETA * (EPS_PLUS - EPS_MINUS)
        left = 1 - np.minimum(1, alpha / clip)  # share of the model's error that stays
        assert found == pytest.approx(np.sum(lam * (GAMMA + left * (model - GAMMA))))


def test_direct_is_the_models_value():
    found = estimate(session([0.0, 0, 0, 1]), SCORES, evaluator="direct", relevance=GAMMA)
    assert found.best.value == pytest.approx(np.sum(GAMMA / np.log2(1 + RANK)))


def test_policy_aware_is_right_where_only_some_sessions_show_a_document_and_ips_is_not():
    """One query, 3 documents, two lists of two: (0, 1) in three sessions, (2, 0) in one.

    Document 0 comes last of three, so it is off the page.
    """
    theta, gamma, scores = np.array([1.0, 0.5]), np.array([0.4, 0.2, 0.8]), np.array([1.0, 2, 3])
    lists, lam = [(0, 1), (0, 1), (0, 1), (2, 0)], np.array([0, 1 / np.log2(3), 1])

    def value(clicks, evaluator):
        log = ClickLog(
            query_id=[0], doc_id=[0, 1, 2], doc_query=[0, 0, 0], indptr=[0, 2, 4, 6, 8],
            query=[0] * 4, document=np.ravel(lists), position=[1, 2] * 4, label=clicks,
        )  # fmt: skip
        return estimate(
            log, scores, KnownBias(theta), evaluator=evaluator, among="shown"
        ).best.value

    probability = (theta * gamma[np.array(lists)]).ravel()
    expected = {"policy-aware": 0.0, "ips": 0.0}
    for clicks in itertools.product([False, True], repeat=8):
        chance = np.prod(np.where(clicks, probability, 1 - probability))
        for evaluator in expected:
            expected[evaluator] += chance * value(np.array(clicks, float), evaluator)
    assert expected["policy-aware"] == pytest.approx(np.sum(lam * gamma))
    share_shown = np.array([1.0, 0.75, 0.25])
    assert expected["ips"] == pytest.approx(np.sum(lam * gamma * share_shown))
