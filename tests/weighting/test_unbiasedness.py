"""What IPS and PRS estimate, exactly: the expectation over all outcomes of examination.

Setting of [wang2020prs]_ sections 3 and 4: relevance r is 0 or 1, a document is clicked if and
only if it is relevant and examined, and examination o_j ~ Bernoulli(theta_j) independently. The
weighted sums come out of the pair kernel itself: every outcome is a list of its probability.
"""

import itertools

import numpy as np
import pytest

from untilt import IPS, PNS, PRS, Naive
from untilt.data.slates import Slates
from untilt.objectives.pair_slates import sum_pairs
from untilt.objectives.pairs import PairObjective

THETA = {3: np.array([0.9, 0.5, 0.25]), 4: np.array([1.0, 0.6, 0.35, 0.1])}
SCORES = {3: np.array([0.3, -1.0, 0.8]), 4: np.array([0.3, -1.0, 0.8, 0.1])}
CASES = [
    pytest.param(THETA[n], np.array(r), SCORES[n], id="".join(map(str, r)))
    for n in (3, 4)
    for r in itertools.product([0, 1], repeat=n)
]


def outcomes(theta):
    """(examined, probability) of every outcome."""
    for seen in itertools.product([False, True], repeat=len(theta)):
        o = np.array(seen)
        yield o, np.prod(np.where(o, theta, 1 - theta))


def expectation(weighting, theta, relevance, scores):
    """E over examination of the weighted pair sum, with delta the logistic loss of a pair."""
    n = len(theta)
    seen, probability = zip(*outcomes(theta), strict=True)
    clicks = np.array(seen) * relevance
    lists = len(clicks)
    shown = Slates(
        indptr=np.arange(lists + 1) * n,
        query=np.zeros(lists, dtype=np.int64),
        count=np.array(probability),
        document=np.tile(np.arange(n), lists),
        position_index=np.tile(np.arange(n), lists),
        n_documents=n,
    )
    slates = sum_pairs(
        shown,
        shown.query,
        gain=clicks.ravel().astype(float),
        weight=shown.count,
        against_all=weighting.against == "all",
    )
    return PairObjective(slates, metric="none").evaluate(
        scores, weighting.table(n), want_loss=True
    ).loss  # fmt: skip


def pair_sum(scores, weight):
    """sum over ordered pairs i != j of weight[i, j] delta(i, j)."""
    delta = np.log1p(np.exp(-(scores[:, None] - scores[None, :])))
    return np.sum(weight * delta * (1 - np.eye(len(scores))))


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_ips_against_all_equals_equation_5_on_all_relevant(theta, r, scores):
    """Every relevant document against all others, whatever was examined."""
    value = expectation(IPS(theta, against="all"), theta, r, scores)
    assert value == pytest.approx(pair_sum(scores, r[:, None] * np.ones(len(r))), abs=1e-12)


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_ips_equals_equation_7(theta, r, scores):
    """Relevant x irrelevant, *and* relevant x relevant-but-unobserved, which has 1 - theta_j."""
    relevant_irrelevant = np.outer(r, 1 - r)
    relevant_unobserved = np.outer(r, r * (1 - theta))
    value = expectation(IPS(theta), theta, r, scores)
    assert value == pytest.approx(
        pair_sum(scores, relevant_irrelevant) + pair_sum(scores, relevant_unobserved), abs=1e-12
    )


def test_relevant_but_unobserved_pairs_are_there_for_ips():
    """With relevant documents alone nothing is left to learn, yet IPS has a loss."""
    theta, scores = THETA[3], SCORES[3]
    assert expectation(IPS(theta), theta, np.ones(3), scores) > 1


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_equation_10_is_exact_with_the_true_examination(theta, r, scores):
    """Weights o_j/theta_i: relevant documents against examined irrelevant ones, nothing else."""
    oracle = sum(
        probability * pair_sum(scores, np.outer(o * r / theta, (1 - o * r) * o))
        for o, probability in outcomes(theta)
    )
    equation_10 = pair_sum(scores, np.outer(r, (1 - r) * theta))
    assert oracle == pytest.approx(equation_10, abs=1e-12)


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_prs_is_equation_10_plus_what_theta_cannot_see(theta, r, scores):
    """theta_j stands in for o_j, but given no click a relevant document was *not* examined.

    Equation 8 takes the mean of o_j as if it did not depend on the click. Relevant x unobserved
    pairs are therefore damped from IPS's 1 - theta_j to theta_j (1 - theta_j), not gone.
    """
    equation_10 = pair_sum(scores, np.outer(r, (1 - r) * theta))
    left_over = pair_sum(scores, np.outer(r, r * theta * (1 - theta)))
    value = expectation(PRS(theta, clip=np.inf), theta, r, scores)
    assert value == pytest.approx(equation_10 + left_over, abs=1e-12)


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_prs_equals_equation_10_where_all_relevant_documents_are_examined(theta, r, scores):
    """theta_j (1 - theta_j) is 0 at both ends: the equation holds where relevance is in view."""
    theta = np.where(r == 1, 1.0, theta)
    equation_10 = pair_sum(scores, np.outer(r, (1 - r) * theta))
    assert expectation(PRS(theta, clip=np.inf), theta, r, scores) == pytest.approx(equation_10)


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_pns_damps_the_other_side_and_leaves_the_click_biased(theta, r, scores):
    other = theta * np.where(r == 1, 1 - theta, 1.0)
    value = expectation(PNS(theta), theta, r, scores)
    assert value == pytest.approx(pair_sum(scores, np.outer(r * theta, other)), abs=1e-12)


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_naive_sees_relevance_through_examination(theta, r, scores):
    value = expectation(Naive(), theta, r, scores)
    expected = pair_sum(scores, np.outer(r * theta, 1 - r * theta))
    assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("clip", [0.5, 1.0, 2.0])
def test_a_clip_lowers_the_weight_and_nothing_else(clip):
    theta, r, scores = THETA[4], np.array([0, 1, 1, 0]), SCORES[4]
    ratio = np.minimum(clip, theta[None, :] / theta[:, None])
    other = np.where(r == 1, 1 - theta, 1.0)
    expected = pair_sum(scores, ratio * np.outer(r * theta, other))
    assert expectation(PRS(theta, clip=clip), theta, r, scores) == pytest.approx(expected)


@pytest.mark.parametrize("clip", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_a_clip_of_the_clicked_side_damps_deep_clicks_alone(theta, r, scores, clip):
    """A click at k counts theta_k/max(clip, theta_k) of itself; the other side is that of PRS."""
    other = theta * np.where(r == 1, 1 - theta, 1.0)
    expected = pair_sum(scores, np.outer(r * theta / np.maximum(clip, theta), other))
    value = expectation(PRS(theta, clip=clip, clip_of="clicked"), theta, r, scores)
    assert value == pytest.approx(expected, abs=1e-12)
