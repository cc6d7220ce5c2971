"""Estimators that disagree beyond their errors: a finding, and the recommendation that follows."""

from dataclasses import replace

import numpy as np
import pytest
from tests.bias.moving_documents import three_rankers

import untilt as ut
from untilt.auditing.estimators import EstimatorTest, estimator_test
from untilt.bias.harvesting.harvesting import AllPairs


@pytest.fixture(scope="module")
def trusting():
    return three_rankers(n_queries=120, sessions=200, trust=True)


def test_trust_makes_estimators_disagree(trusting):
    test = estimator_test(trusting, trusting.depth)
    assert test.rejects
    assert test.first_slope > test.second_slope  # the less a document is worth, the faster it falls


def test_without_trust_they_agree():
    log = three_rankers(n_queries=120, sessions=200)
    assert not estimator_test(log, log.depth).rejects


def test_the_slope_is_that_of_the_curve():
    log = three_rankers(n_queries=60)
    curve = AllPairs().fit(log).bias_.examination
    x, c = np.log(np.arange(1, log.depth + 1)), log.ctr_by_position().clicks
    slope = -np.sum(c * x * np.log(curve)) / np.sum(c * x**2)
    assert estimator_test(log, log.depth).first_slope == pytest.approx(slope)


def test_counts_equal_repeated_sessions(trusting):
    ours, again = (estimator_test(log, log.depth) for log in (trusting, trusting.collapse()))
    assert again.p_value == pytest.approx(ours.p_value, rel=1e-6)


def test_one_recommendation_follows():
    found = ut.audit(replace(three_rankers(n_queries=40, sessions=40), features=None))
    assert found.estimators is not None
    test = EstimatorTest("AllPairs", "TrustEM", 1.0, 0.5, 0.001)
    step = replace(found, estimators=test).next_step
    assert (step.rule, step.method) == ("estimators-disagree", "TrustEM")
    assert [each.code for each in step.reasons] == ["audit.estimators-disagree"]
    assert replace(found, estimators=replace(test, p_value=0.2)).next_step.rule == "least-belief"
