"""Trust bias, exactly: expectations over examination, relevance and clicks of every outcome.

P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma)) with the values of protocol `trust`. The
affine label (c - beta_k) / alpha_k has the mean gamma; IPS and Bayes-IPS have not
([vardasbi2020affine]_), however well they know theta, eps+ and eps-.
"""

import itertools

import numpy as np
import pytest

from untilt import (
    IPS,
    AffineIPS,
    Balanced,
    BayesIPS,
    ClickLog,
    KnownBias,
    TrustAnchor,
    estimate,
    is_consistent,
)
from untilt.bias.em.trust_em import re_anchored
from untilt.simulation.protocols import Trust

DEPTH = 4
BEHAVIOUR = Trust().behaviour(np.array([0.0, 1.0]), depth=DEPTH, max_label=1)
THETA, PLUS, MINUS = BEHAVIOUR.examination, BEHAVIOUR.eps_plus, BEHAVIOUR.eps_minus
TRUTH = KnownBias(THETA, eps_plus=PLUS, eps_minus=MINUS, absolute=True)
GAMMA = np.array([0.3, 0.5, 0.0, 1.0])


def expectation(label):
    """E[label] at each place, over the eight outcomes of (examined, relevant, clicked) there."""
    mean = np.zeros(DEPTH)
    for k in range(DEPTH):
        for e, r, c in itertools.product((0, 1), repeat=3):
            click = e * (PLUS[k] if r else MINUS[k])
            probability = (
                (THETA[k] if e else 1 - THETA[k])
                * (GAMMA[k] if r else 1 - GAMMA[k])
                * (click if c else 1 - click)
            )
            mean[k] += probability * label(c)[k]
    return mean


def affine_label(bias):
    alpha, beta = bias.affine()
    return lambda c: (c - beta) / alpha


def bayes_label(c):
    return PLUS / (PLUS + MINUS) * c / THETA


def test_the_affine_label_is_relevance():
    assert expectation(affine_label(TRUTH)) == pytest.approx(GAMMA, abs=1e-12)


def test_ips_is_not():
    """Even an irrelevant document has c / theta of eps-: 0.65, 0.325, ... by its place."""
    mean = expectation(lambda c: c / THETA)
    assert mean == pytest.approx(PLUS * GAMMA + MINUS * (1 - GAMMA))
    assert mean[2] == pytest.approx(0.65 / 3)
    assert np.abs(mean - GAMMA)[:3].min() > 0.02


def test_bayes_ips_is_not_either():
    """Irrelevant at place 3: 0.96 / (0.96 + 0.65/3) of a weight that should be 0."""
    mean = expectation(bayes_label)
    assert mean[2] == pytest.approx(0.96 / (0.96 + 0.65 / 3) * 0.65 / 3)
    assert np.abs(mean - GAMMA)[[0, 2, 3]].min() > 0.1


def test_bayes_ips_can_turn_two_documents_round():
    """Irrelevant on top against a quarter relevant at place 4: the wrong one gets more."""
    on_top = PLUS[0] / (PLUS[0] + MINUS[0]) * MINUS[0]
    below = PLUS[3] / (PLUS[3] + MINUS[3]) * (0.25 * PLUS[3] + 0.75 * MINUS[3])
    assert on_top > below


# ---- on every scale of relevance


def on_another_scale(anchor):
    """A bias with the same clicks: what TrustEM finds without an anchor."""
    alpha, beta = re_anchored(*TRUTH.affine(), anchor)
    relevant = alpha + beta
    return KnownBias(relevant, eps_plus=np.ones(DEPTH), eps_minus=beta / relevant)


SCALES = [TrustAnchor(0.9, 0.43), TrustAnchor(0.6, 0.4), TrustAnchor(0.25, 0.03, position=4)]


@pytest.mark.parametrize("anchor", SCALES)
def test_on_another_scale_the_label_is_a_straight_line_of_relevance(anchor):
    mean = expectation(affine_label(on_another_scale(anchor)))
    slope, at_zero = np.polyfit(GAMMA, mean, 1)
    assert slope > 0
    assert mean == pytest.approx(slope * GAMMA + at_zero, abs=1e-12)


@pytest.mark.parametrize("anchor", SCALES)
@pytest.mark.parametrize("weighting", [AffineIPS, Balanced])
def test_on_another_scale_pairs_are_still_ordered_by_relevance(weighting, anchor):
    assert is_consistent(weighting(on_another_scale(anchor)), TRUTH).exact


@pytest.mark.parametrize("weighting", [IPS(TRUTH, against="all"), IPS(TRUTH), BayesIPS(TRUTH)])
def test_tables_without_the_affine_correction_are_not(weighting):
    """They prefer the upper one of two equal documents, by how much trust there is."""
    verdict = is_consistent(weighting, TRUTH)
    assert not verdict.exact
    assert verdict.worst_pull > 0.1


# ---- the evaluation of a new ranker, on a log that *is* the expectation


def expected_log(click, scale):
    """Every pattern of clicks on one list, as often as its probability says: no noise at all."""
    patterns = np.array(list(itertools.product((0.0, 1.0), repeat=len(click))))
    counts = scale * np.prod(np.where(patterns > 0, click, 1 - click), axis=1)
    assert counts == pytest.approx(np.round(counts))
    return ClickLog(
        query_id=np.array([0]),
        doc_id=np.arange(len(click)),
        doc_query=np.zeros(len(click), dtype=int),
        indptr=np.arange(0, patterns.size + 1, len(click)),
        query=np.zeros(len(patterns), dtype=int),
        document=np.tile(np.arange(len(click)), len(patterns)),
        position=np.tile(np.arange(1, len(click) + 1), len(patterns)),
        label=patterns.ravel(),
        count=np.round(counts).astype(int),
    )


def test_evaluation_is_exact_with_the_affine_correction_only():
    """theta = 1, 1/2, 1/2; eps+ = 0.9, 0.8, 0.8; eps- = 0.5, 0.2, 0; gamma = 0, 1, 1/2.

    Clicks 0.5, 0.4, 0.2. A ranker that puts them 2, 3, 1 has DCG 1 + (1/2) / log2(3).
    """
    bias = KnownBias(
        [1, 0.5, 0.5], eps_plus=[0.9, 0.8, 0.8], eps_minus=[0.5, 0.2, 0.0], absolute=True
    )
    log = expected_log(np.array([0.5, 0.4, 0.2]), 1000)
    systems = {"new": np.array([0.0, 2.0, 1.0])}
    value = {
        method: estimate(log, systems, bias, metric="dcg", evaluator=method)["new"].value
        for method in ("affine", "ips", "bayes-ips", "naive")
    }
    truth = 1 + 0.5 / np.log2(3)
    assert value["affine"] == pytest.approx(truth, abs=1e-12)
    assert value["ips"] == pytest.approx(0.8 + 0.4 / np.log2(3) + 0.5 / 2)
    share = np.array([0.9 / 1.4, 0.8 / 1.0, 1.0])
    assert value["bayes-ips"] == pytest.approx(
        share[1] * 0.8 + share[2] * 0.4 / np.log2(3) + share[0] * 0.5 / 2
    )
    assert min(abs(value[m] - truth) for m in ("ips", "bayes-ips", "naive")) > 0.01
