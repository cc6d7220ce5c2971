"""The tail bound of a weighted pair loss: its arithmetic, and that chance stays within it."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from untilt import (
    IPS,
    PNS,
    PRS,
    Balanced,
    ClickLog,
    ExaminationWeights,
    Naive,
    PairwiseDebiasing,
    PowerLaw,
    tail_bound,
)
from untilt.errors import OptionError, ShapeError
from untilt.weighting.tail_bound import proposition_bound

THETA = np.array([1.0, 0.5, 0.25, 0.2])
XI = 0.05
HOEFFDING = math.log(2 / XI) / 2
KINDS = [Naive(), IPS(THETA), PNS(THETA), PRS(THETA), PRS(THETA, clip=np.inf), Balanced(THETA)]


def one_query(clicks, *, count=None, documents=None):
    """Lists of the same documents in the same order; clicks (lists, n)."""
    clicks = np.asarray(clicks, dtype=float)
    lists, n = clicks.shape
    shown = np.tile(np.arange(n), lists) if documents is None else np.asarray(documents).ravel()
    return ClickLog(
        query_id=[0],
        doc_id=np.arange(shown.max() + 1),
        doc_query=np.zeros(shown.max() + 1, dtype=int),
        indptr=np.arange(lists + 1) * n,
        query=np.zeros(lists, dtype=int),
        document=shown,
        position=np.tile(np.arange(1, n + 1), lists),
        label=clicks.ravel(),
        count=count,
    )


def loss_of(weighting, clicks, delta):
    W, n = weighting.table(len(clicks)), len(clicks)
    return sum(
        W[i, j] * delta[i, j]
        for i, j in itertools.permutations(range(n), 2)
        if clicks[i] and (weighting.against == "all" or not clicks[j])
    )


# ---- the proposition


def test_proposition_by_hand():
    """Relevant at 2 and 4, irrelevant at 1 and 3, every pair costs 1."""
    ratio = THETA[None, :] / THETA[:, None]
    rho_2, rho_4 = (1 + 0.25) / 0.5, (1 + 0.25) / 0.2
    expected = math.sqrt(HOEFFDING * (rho_2**2 + rho_4**2)) / 2
    found = proposition_bound(ratio, THETA, [0, 1, 0, 1], np.ones((4, 4)))
    assert found == pytest.approx(expected)


def test_a_document_that_everybody_sees_leaves_nothing_to_chance():
    ratio = THETA[None, :] / THETA[:, None]
    assert proposition_bound(ratio, THETA, [1, 0, 0, 0], np.ones((4, 4))) == 0
    assert proposition_bound(ratio, THETA, [0, 0, 0, 0], np.ones((4, 4))) == 0


@pytest.mark.parametrize("r", list(itertools.product([0, 1], repeat=4)))
def test_prs_has_the_smaller_bound_than_ips(r, rng):
    """0 <= rho_i <= tau_i, as the paper says."""
    delta = rng.random((4, 4))
    prs = proposition_bound(THETA[None, :] / THETA[:, None], THETA, r, delta)
    ips = proposition_bound(np.repeat(1 / THETA[:, None], 4, axis=1), THETA, r, delta)
    assert prs <= ips


def test_the_proposition_is_about_the_mean_over_relevant_documents():
    """Of the sum, which equation 9 is, it says too little by a factor of N.

    Ten relevant documents of examination 1/2 and an irrelevant one that everybody sees.
    """
    N = 10
    theta, r = np.append(np.full(N, 0.5), 1.0), np.append(np.ones(N), 0)
    ratio = theta[None, :] / theta[:, None]
    literal = proposition_bound(ratio, theta, r, np.ones((N + 1, N + 1)))
    assert literal == pytest.approx(math.sqrt(HOEFFDING * N * 2**2) / N)
    # l = 2 x Binomial(N, 1/2): the number of relevant documents seen, over their propensity.
    chance = [math.comb(N, k) / 2**N for k in range(N + 1)]
    off = sum(p for k, p in enumerate(chance) if abs(2 * k - N) > literal)
    off_mean = sum(p for k, p in enumerate(chance) if abs(2 * k - N) / N > literal)
    assert off > 0.3
    assert off_mean <= XI


# ---- of a log


def test_one_list_by_hand():
    """PRS clipped at 1 on three positions, a click at the second; every pair costs 1."""
    W = [[1.0, 0.5, 0.25], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]]  # theta 1, 1/2, 1/4
    found = tail_bound(one_query([[0, 1, 0]]), PRS([1.0, 0.5, 0.25]))
    won = [W[0][1] + W[0][2], W[1][0] + W[1][2], W[2][0] + W[2][1]]
    lost = [W[1][0] + W[2][0], W[0][1] + W[2][1], W[0][2] + W[1][2]]
    b = [max(pair) for pair in zip(won, lost, strict=True)]
    assert b == [2, 1.5, 2]
    assert found.loss == pytest.approx(1 + 0.5)
    assert found.bound == pytest.approx(math.sqrt(HOEFFDING * (4 + 2.25 + 4)))
    assert found.by_position == pytest.approx(np.array([4, 2.25, 4]) / 10.25)
    assert found.relative == pytest.approx(found.bound / 1.5)
    assert "PRS: loss 1.5 per session" in repr(found)


@pytest.mark.parametrize("weighting", KINDS, ids=lambda w: type(w).__name__)
def test_no_click_moves_the_loss_by_more(weighting, rng):
    """b_i is the most that any one click changes, whatever else was clicked."""
    scores = rng.normal(size=4)
    delta = np.log1p(np.exp(-(scores[:, None] - scores[None, :])))
    found = tail_bound(one_query(np.zeros((1, 4))), weighting, scores=scores)
    largest = np.zeros(4)
    for clicks in itertools.product([0, 1], repeat=4):
        for i in range(4):
            other = np.array(clicks)
            other[i] = 1 - other[i]
            moved = abs(loss_of(weighting, clicks, delta) - loss_of(weighting, other, delta))
            largest[i] = max(largest[i], moved)
    assert found.bound == pytest.approx(math.sqrt(HOEFFDING * np.sum(largest**2)))


@pytest.mark.parametrize("weighting", KINDS, ids=lambda w: type(w).__name__)
@pytest.mark.parametrize("relevance", [[0.9, 0.2, 0.5, 0.7], [0.0, 1.0, 0.0, 1.0]])
def test_chance_stays_within_the_bound(weighting, relevance):
    """All 16 outcomes of one session: P(|L - E L| >= t) <= xi for several xi."""
    p, delta = THETA * np.array(relevance), np.ones((4, 4))
    outcomes = list(itertools.product([0, 1], repeat=4))
    chance = np.array([np.prod(np.where(c, p, 1 - p)) for c in outcomes])
    losses = np.array([loss_of(weighting, c, delta) for c in outcomes])
    for level in (0.3, 0.5, 0.8, 0.95):
        bound = tail_bound(
            one_query(np.zeros((1, 4))), weighting, clickable=np.array(relevance) > 0, level=level
        ).bound
        assert chance[np.abs(losses - chance @ losses) >= bound].sum() <= 1 - level


@pytest.mark.parametrize(
    ("weighting", "loose"), [(PRS(PowerLaw(1.0)), 3.7), (IPS(PowerLaw(1.0)), 3.7)]
)
def test_simulated_logs_stay_within_it_and_by_how_much(rng, weighting, loose):
    """400 logs of 200 sessions, ten positions, examination 1/k, relevance 0.1 to 0.9."""
    g = rng.uniform(0.1, 0.9, 10)
    p = g / np.arange(1, 11)
    W = weighting.table(10) * (1 - np.eye(10))
    clicks = (rng.random((400, 200, 10)) < p).astype(float)
    losses = np.einsum("lsi,ij,lsj->l", clicks, W, 1 - clicks) / 200
    expected = p @ W @ (1 - p)  # clicks are independent
    bound = tail_bound(one_query(clicks[0]), weighting)
    assert bound.loss == pytest.approx(losses[0])
    assert losses.mean() == pytest.approx(expected, rel=0.02)
    off = np.abs(losses - expected)
    assert np.all(off < bound.bound)
    assert bound.bound / np.quantile(off, 0.95) == pytest.approx(loose, rel=0.15)


def test_counts_are_repeated_sessions_and_more_sessions_shrink_it(rng):
    clicks = rng.random((6, 4)) < 0.4
    once = tail_bound(one_query(clicks, count=[4, 1, 2, 1, 3, 5]), PRS(THETA))
    again = tail_bound(one_query(np.repeat(clicks, [4, 1, 2, 1, 3, 5], axis=0)), PRS(THETA))
    assert (once.loss, once.bound) == pytest.approx((again.loss, again.bound))
    fourfold = tail_bound(one_query(np.tile(clicks, (4, 1))), PRS(THETA))
    assert fourfold.bound == pytest.approx(tail_bound(one_query(clicks), PRS(THETA)).bound / 2)


def test_documents_that_cannot_be_clicked_add_nothing_but_pairs():
    log = one_query([[0, 0, 1, 0]])
    only = tail_bound(log, IPS(THETA), clickable=[False, False, True, False])
    assert only.by_position == pytest.approx([0, 0, 1, 0])
    assert only.bound == pytest.approx(math.sqrt(HOEFFDING) * 3 / 0.25)


def test_a_large_difference_of_scores_does_not_overflow():
    found = tail_bound(one_query([[1, 0, 0, 0]]), PRS(THETA), scores=[-1e4, 0, 1e4, 0])
    assert found.loss == pytest.approx(0.5 * 1e4 + 0.25 * 2e4 + 0.2 * 1e4)


def test_refusals():
    log = one_query([[0, 1, 0, 0]])
    with pytest.raises(OptionError, match="whose table is known before training"):
        tail_bound(log, PairwiseDebiasing())
    with pytest.raises(OptionError, match="whose table is known before training"):
        tail_bound(log, ExaminationWeights())
    with pytest.raises(OptionError, match="whose table is known before training"):
        tail_bound(log, "prs")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="label is not 0/1"):
        tail_bound(replace(log, label=np.array([0, 0.5, 0, 2])), PRS(THETA))
    with pytest.raises(ShapeError, match="scores must have one entry for each of the 4 documents"):
        tail_bound(log, PRS(THETA), scores=[1, 2])
    with pytest.raises(OptionError, match="level"):
        tail_bound(log, PRS(THETA), level=1)
    with pytest.raises(ShapeError, match="must be square"):
        proposition_bound(np.ones((2, 2)), THETA, [1, 0, 0, 0], np.ones((4, 4)))


def test_no_click_is_no_loss():
    found = tail_bound(one_query(np.zeros((2, 4))), PRS(THETA))
    assert found.loss == 0
    assert found.relative == math.inf
