"""Which tables order two documents by relevance, by enumeration over their clicks."""

import itertools
from functools import partial

import numpy as np
import pytest

from untilt import (
    IPS,
    PNS,
    PRS,
    AffineIPS,
    Balanced,
    EyeTracking,
    KnownBias,
    Naive,
    PowerLaw,
    catalog,
    is_consistent,
)
from untilt.data.slates import Slates
from untilt.errors import OptionError, ShapeError
from untilt.objectives.pair_slates import sum_pairs
from untilt.objectives.pairs import PairObjective
from untilt.weighting import SessionWeighting
from untilt.workflow.candidates import weighting_of

DEPTH = 4
THETA = np.array([1.0, 0.6, 0.3, 0.15])
GRADES = (0.0, 0.1, 0.25, 0.5, 0.8, 1.0)
PAIRS = [(k, l) for k in range(DEPTH) for l in range(DEPTH) if k != l]
# Every weighting as something that takes a bias; one with eps+ and eps- suits them all.
WEIGHTINGS = {
    record.name: partial(weighting_of, record)
    for record in catalog.methods("weighting")
    if not issubclass(record.load(), SessionWeighting)
} | {
    "prs without a clip": partial(PRS, clip=np.inf),
    "prs clipped at clicks": partial(PRS, clip=0.3, clip_of="clicked"),
}


def noise_free():
    return KnownBias(THETA, eps_plus=np.ones(DEPTH), eps_minus=np.zeros(DEPTH))


def trusting():
    """Trust bias: the top gets clicks whatever stands there."""
    return KnownBias(THETA, eps_plus=[0.95, 0.9, 0.85, 0.8], eps_minus=[0.5, 0.3, 0.2, 0.1])


def directions(weighting, bias, k, l, g_i, g_j):
    """Expected weights of "i above j" and "j above i", i at place k, over all clicks of the two."""
    W, offset = weighting.table(DEPTH), weighting.offset(DEPTH)
    alpha, beta = bias.affine()
    p_i, p_j = alpha[k] * g_i + beta[k], alpha[l] * g_j + beta[l]
    forward = backward = 0.0
    for c_i, c_j in itertools.product([0, 1], repeat=2):
        probability = (p_i if c_i else 1 - p_i) * (p_j if c_j else 1 - p_j)
        both = weighting.against == "all"
        forward += probability * W[k, l] * (c_i and (both or not c_j))
        backward += probability * W[l, k] * (c_j and (both or not c_i))
    if offset is not None:
        forward, backward = forward + offset[k, l], backward + offset[l, k]
    return forward, backward


def orders_by_relevance(weighting, bias):
    """The net preference has the sign of g_i - g_j for all positions and grades."""
    for (k, l), g_i, g_j in itertools.product(PAIRS, GRADES, GRADES):
        forward, backward = directions(weighting, bias, k, l, g_i, g_j)
        net = forward - backward
        if np.sign(np.round(net, 12)) != np.sign(np.round(g_i - g_j, 12)):
            return False
    return True


@pytest.mark.parametrize("curve", [THETA, PowerLaw(1.0), EyeTracking(1.0)], ids=str)
def test_balanced_weighs_both_directions_by_relevance(curve):
    """Forward to backward is g_i to g_j, at every pair of positions."""
    weighting = Balanced(curve)
    theta = weighting.bias.at(np.arange(1, DEPTH + 1))
    for (k, l), g_i, g_j in itertools.product(PAIRS, GRADES, GRADES):
        forward, backward = directions(weighting, KnownBias(theta), k, l, g_i, g_j)
        assert forward == pytest.approx(min(theta[k], theta[l]) * g_i)
        assert backward == pytest.approx(min(theta[k], theta[l]) * g_j)


def test_balanced_corrects_trust_bias_to_the_same_weights():
    """Net preference of min(alpha_k, alpha_l) (g_i - g_j): sign and size."""
    bias = trusting()
    alpha, _ = bias.affine()
    for (k, l), g_i, g_j in itertools.product(PAIRS, GRADES, GRADES):
        forward, backward = directions(Balanced(bias), bias, k, l, g_i, g_j)
        assert forward == pytest.approx(min(alpha[k], alpha[l]) * g_i)
        assert forward - backward == pytest.approx(min(alpha[k], alpha[l]) * (g_i - g_j))


def test_affine_ips_is_unbiased_for_relevance_under_trust_bias():
    bias = trusting()
    for (k, l), g_i, g_j in itertools.product(PAIRS, GRADES, GRADES):
        assert directions(AffineIPS(bias), bias, k, l, g_i, g_j) == pytest.approx((g_i, g_j))


def test_prs_without_a_clip_reverses_the_shown_order():
    """Two equally relevant documents: the lower one is preferred at every pair of positions."""
    weighting = PRS(THETA, clip=np.inf)
    for k, l in itertools.combinations(range(DEPTH), 2):
        for g in (0.1, 0.25, 0.5):
            forward, backward = directions(weighting, KnownBias(THETA), k, l, g, g)
            assert forward < backward


def test_prs_without_a_clip_can_prefer_the_less_relevant():
    bias = KnownBias(THETA)
    forward, backward = directions(PRS(THETA, clip=np.inf), bias, 0, 3, 0.5, 0.25)
    assert forward < backward


@pytest.mark.parametrize(
    ("weighting", "s"),
    [
        (IPS(THETA), lambda k, l: 1.0),
        (PNS(THETA), lambda k, l: THETA[k] * THETA[l]),
        (PRS(THETA), lambda k, l: min(THETA[k], THETA[l])),
    ],
    ids=["ips", "pns", "prs"],
)
def test_symmetric_tables_leave_a_pull_towards_the_shown_order(weighting, s):
    """Of size s g^2 (theta_k - theta_l) between equally relevant documents."""
    for (k, l), g in itertools.product(PAIRS, GRADES):
        forward, backward = directions(weighting, KnownBias(THETA), k, l, g, g)
        assert forward - backward == pytest.approx(s(k, l) * g**2 * (THETA[k] - THETA[l]))


@pytest.mark.parametrize("make_bias", [noise_free, trusting])
@pytest.mark.parametrize("make", WEIGHTINGS.values(), ids=WEIGHTINGS)
def test_is_consistent_agrees_with_enumeration(make, make_bias):
    bias = make_bias()
    weighting = make(bias)
    verdict = is_consistent(weighting, bias)
    assert bool(verdict) == orders_by_relevance(weighting, bias)
    k, l = (position - 1 for position in verdict.positions)
    forward, backward = directions(weighting, bias, k, l, 0.5, 0.5)
    assert verdict.worst_pull == pytest.approx((forward - backward) / (forward + backward))
    for other in itertools.combinations(range(DEPTH), 2):
        forward, backward = directions(weighting, bias, *other, 0.5, 0.5)
        pull = abs(forward - backward) / (forward + backward)
        assert pull <= abs(verdict.worst_pull) + 1e-9


def test_the_verdicts_of_the_known_tables():
    """Which are exact, nearly so, and which keep or reverse the shown order."""
    verdicts = {
        name: is_consistent(make(noise_free()), noise_free()).verdict.code.removeprefix("training.")
        for name, make in WEIGHTINGS.items()
    }
    assert verdicts == {
        "clicks": "not-consistent",
        "ips": "nearly-consistent",
        "ips-all": "consistent",
        "pns": "nearly-consistent",
        "prs": "nearly-consistent",
        "prs without a clip": "not-consistent",
        "prs clipped at clicks": "not-consistent",
        "bayes-ips": "nearly-consistent",
        "balanced": "consistent",
        "affine-ips": "consistent",
        "policy-aware": "consistent",
        "doubly-robust": "consistent",
        "pairwise-debiasing": "not-consistent",
    }
    assert is_consistent(PRS(THETA, clip=np.inf), THETA).verdict.fields["pull"] < 0
    assert is_consistent(Naive(), THETA).verdict.fields["pull"] > 0


def test_the_worst_pull_by_hand():
    """theta 1 and 1/2, relevance 1/2: forward 1 (1 - 1/4) = 3/4, backward 1/2 (1 - 1/2) = 1/4."""
    verdict = is_consistent(np.ones((2, 2)), [1.0, 0.5])
    assert verdict.worst_pull == pytest.approx((3 / 4 - 1 / 4) / (3 / 4 + 1 / 4))
    assert verdict.positions == (1, 2)
    assert str(verdict) == (
        "not consistent: of two equally relevant documents at positions 1 and 2 it prefers one by "
        "50.0% and so keeps the shown order"
    )


def test_a_table_that_balances_one_grade_only_is_not_exact():
    """W = 1/(theta_k (1 - theta_l/2)) has no pull at relevance 1/2, and one everywhere else."""
    theta = np.array([1.0, 0.5])
    W = 1 / (theta[:, None] * (1 - theta[None, :] / 2))
    assert is_consistent(W, theta).worst_pull == pytest.approx(0, abs=1e-12)
    assert not is_consistent(W, theta)
    assert is_consistent(W, theta, relevance=0.9).worst_pull != pytest.approx(0, abs=1e-3)


def test_a_wrong_curve_makes_a_good_table_inconsistent():
    assert not is_consistent(Balanced(PowerLaw(2.0)), PowerLaw(1.0))
    assert not is_consistent(Balanced(noise_free()), trusting())


def test_no_position_bias_makes_every_table_of_ones_exact():
    assert is_consistent(Naive(), np.ones(5))
    assert not is_consistent(Naive(), [1.0, 1.0, 0.9])


def test_a_table_of_a_users_own_is_judged_as_given():
    W = Balanced(THETA).table(DEPTH)
    assert is_consistent(W, THETA, against="all")
    assert is_consistent(W, THETA).symmetric
    assert not is_consistent(W, THETA)


def test_a_pair_that_never_counts_pulls_nowhere():
    assert is_consistent(np.diag([1.0, 1.0]), [1.0, 0.5])


def test_the_depth_is_that_of_the_curves_where_none_is_given():
    assert is_consistent(Naive(), [1.0, 1.0, 0.5]).positions == (1, 3)
    assert is_consistent(Naive(), PowerLaw(1.0)).positions == (1, 10)
    assert is_consistent(Naive(), PowerLaw(1.0), depth=20).positions == (1, 20)
    assert is_consistent(PRS([1.0, 0.5], clip=np.inf), PowerLaw(1.0)).positions == (1, 2)


@pytest.mark.parametrize("table", [np.ones((2, 3)), np.ones(3), np.ones((0, 0))])
def test_a_table_is_square(table):
    with pytest.raises(ShapeError, match=r"a table of pair weights must be square\. Got shape"):
        is_consistent(table, PowerLaw(1.0))


def test_against_and_relevance_are_checked():
    with pytest.raises(
        OptionError, match=r"against must be one of 'unclicked', 'all'\. Got 'both'"
    ):
        is_consistent(np.ones((2, 2)), PowerLaw(1.0), against="both")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"relevance must lie above 0 and up to 1\. Got 0"):
        is_consistent(np.ones((2, 2)), PowerLaw(1.0), relevance=0)


def session_slates(clicks, probability):
    """The sessions of one slate, each weighing its probability, as the objective sees them."""
    lists, n = clicks.shape
    shown = Slates(
        indptr=np.arange(lists + 1) * n,
        query=np.zeros(lists, dtype=np.int64),
        count=probability,
        document=np.tile(np.arange(n), lists),
        position_index=np.tile(np.arange(n), lists),
        n_documents=n,
    )
    gain = clicks.ravel().astype(float)
    return sum_pairs(
        shown, shown.query, gain=gain, weight=probability, against_all=True, dense=True
    )


@pytest.mark.parametrize("kind", [Balanced, AffineIPS])
def test_weighted_pairs_hold_the_affine_expectation(kind):
    """Over all clicks of three documents, the stored weights are W alpha_k g_i."""
    bias, g = trusting(), np.array([0.2, 0.9, 0.5])
    alpha, beta = (curve[:3] for curve in bias.affine())
    p = alpha * g + beta
    clicks = np.array(list(itertools.product([0, 1], repeat=3)))
    slates = session_slates(clicks, np.prod(np.where(clicks == 1, p, 1 - p), axis=1))
    weighting = kind(bias)
    W = weighting.table(3)
    weighted = PairObjective(slates, metric="none").with_table(W, weighting.offset(3)).slates
    i, j = np.tril_indices(3, -1)
    assert weighted.above == pytest.approx(W[i, j] * alpha[i] * g[i])
    assert weighted.below == pytest.approx(W[j, i] * alpha[j] * g[j])


@pytest.mark.parametrize("clicks", list(itertools.product([0, 1], repeat=3)))
def test_moving_negative_weights_keeps_the_net_preference(clicks):
    """One session: c - beta is negative where there was no click; the loss stays bounded."""
    bias, c = trusting(), np.array(clicks)
    weighting = Balanced(bias)
    W, offset = weighting.table(3), weighting.offset(3)
    _, beta = bias.affine()
    slates = session_slates(c[None, :], np.ones(1))
    weighted = PairObjective(slates, metric="none").with_table(W, offset).slates
    i, j = np.tril_indices(3, -1)
    net = W[i, j] * (c - beta[:3])[i] - W[j, i] * (c - beta[:3])[j]
    assert weighted.above - weighted.below == pytest.approx(net)
    assert np.all(weighted.above >= 0)
    assert np.all(weighted.below >= 0)
