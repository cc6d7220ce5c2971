"""Losses by document and by list, with weights for clicks and no-clicks: their expectation."""

import itertools
from functools import partial

import numpy as np
import pytest

from untilt import IPS, PNS, PRS, JudgedLists, LinearRanker, Naive
from untilt.data.counts import counts_from_rows
from untilt.data.slates import Slates
from untilt.errors import OptionError
from untilt.objectives.losses import SidedListwise, SidedPointwise
from untilt.rankers.learning_data import click_counts, sided_listwise, training_lists

THETA = {3: np.array([0.9, 0.5, 0.25]), 4: np.array([1.0, 0.6, 0.35, 0.1])}
SCORES = {3: np.array([0.3, -1.0, 0.8]), 4: np.array([0.3, -1.0, 0.8, 0.1])}
CASES = [
    pytest.param(THETA[n], np.array(r), SCORES[n], id="".join(map(str, r)))
    for n in (3, 4)
    for r in itertools.product([0, 1], repeat=n)
]
prs_itself = partial(PRS, clip=0.0, clip_of="clicked")


def outcomes(theta):
    """(examined, probability) of every outcome."""
    for seen in itertools.product([False, True], repeat=len(theta)):
        o = np.array(seen)
        yield o, np.prod(np.where(o, theta, 1 - theta))


def one_list(clicks, weighting):
    n = len(clicks)
    shown = Slates(
        indptr=np.array([0, n]),
        query=np.zeros(1, dtype=np.int64),
        count=np.ones(1),
        document=np.arange(n),
        position_index=np.arange(n),
        n_documents=n,
    )
    return SidedListwise(shown, np.asarray(clicks, dtype=float), *weighting.sides(n))


def pointwise_of(theta, r, weighting):
    """All outcomes as impressions of their probability."""
    n = len(theta)
    seen, probability = zip(*outcomes(theta), strict=True)
    clicks = np.array(seen) * r
    place = np.tile(np.arange(n), len(clicks))
    counts = counts_from_rows(
        place, place + 1, np.repeat(probability, n), clicks.ravel().astype(float), n, n
    )
    return SidedPointwise.of(counts, *weighting.sides(n))


def softplus(x):
    return np.log1p(np.exp(x))


def against(scores, i, weight):
    """log(1 + sum_j weight_j exp(s_j - s_i))."""
    return np.log1p(np.sum(weight * np.exp(scores - scores[i])))


# ---- expectations


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_pointwise_prs_is_unbiased_on_relevant_and_examined_irrelevant_documents(theta, r, scores):
    """And leaves theta (1 - theta) on relevant ones that were not examined, as pairs do."""
    if not r.any():
        return
    sums = pointwise_of(theta, r, prs_itself(theta))
    assert sums.won == pytest.approx(r)
    assert sums.lost == pytest.approx(np.where(r == 1, theta * (1 - theta), theta))
    loss, _ = sums.evaluate(scores)
    at = scores + sums._constant(scores)
    wanted = r @ softplus(-at) + ((1 - r) * theta) @ softplus(at)
    left = (r * theta * (1 - theta)) @ softplus(at)
    assert loss == pytest.approx(wanted + left, abs=1e-12)


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_pointwise_ips_corrects_clicks_alone(theta, r, scores):
    sums = pointwise_of(theta, r, IPS(theta))
    assert sums.won == pytest.approx(r)
    assert sums.lost == pytest.approx(1 - r * theta)


def test_equal_relevance_far_down_gets_the_higher_score():
    """The best score is log(g / (theta (1 - theta g))): PRS reverses the shown order."""
    theta, g = np.array([1.0, 0.2]), 0.5
    sums = SidedPointwise(won=np.full(2, g), lost=theta * (1 - theta * g))
    best = np.log(sums.won / sums.lost)
    assert np.abs(sums.evaluate(best)[1]).max() < 1e-9
    assert best[1] - best[0] == pytest.approx(np.log((1 - 0.5) / (0.2 * (1 - 0.1))))
    assert best[1] > best[0] + 1


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_listwise_with_true_examination_sees_examined_irrelevant_documents_alone(theta, r, scores):
    """Weights 1/theta_i and o_j, in expectation: each relevant document against what was seen."""
    oracle = sum(
        probability
        * sum(o[i] / theta[i] * against(scores, i, (1 - o * r) * o) for i in np.flatnonzero(r))
        for o, probability in outcomes(theta)
    )
    wanted = sum(
        probability * sum(against(scores, i, (1 - r) * o) for i in np.flatnonzero(r))
        for o, probability in outcomes(theta)
    )
    assert oracle == pytest.approx(wanted, abs=1e-12)
    prs = sum(
        probability * one_list(o * r, prs_itself(theta)).evaluate(scores)[0]
        for o, probability in outcomes(theta)
    )
    # log(1 + x) is concave and relevant unseen documents are left: PRS is never below.
    assert prs >= wanted - 1e-12


@pytest.mark.parametrize(("theta", "r", "scores"), CASES)
def test_listwise_ips_sees_relevant_unseen_documents(theta, r, scores):
    ips = sum(
        probability * one_list(o * r, IPS(theta)).evaluate(scores)[0]
        for o, probability in outcomes(theta)
    )
    expected = sum(
        probability * o[i] / theta[i] * against(scores, i, 1 - o * r)
        for o, probability in outcomes(theta)
        for i in np.flatnonzero(r)
    )
    assert ips == pytest.approx(expected, abs=1e-12)


# ---- kernels


@pytest.fixture
def lists(pbm_log):
    return training_lists(pbm_log().log)


def slow_listwise(lists, weighting, scores):
    up, down = weighting.sides(5)
    weight, total = lists.list_weights("sessions"), 0.0
    for u in range(len(lists.query)):
        rows = np.arange(lists.indptr[u], lists.indptr[u + 1])
        k, s, c = lists.position_index[rows], scores[lists.document[rows]], lists.label[rows]
        for i in np.flatnonzero(c):
            others = np.sum(down[k] * (1 - c) * np.exp(s))
            total += weight[u] * up[k[i]] * np.log(1 + others / np.exp(s[i]))
    return total


THETA_5 = 1 / np.arange(1.0, 6)
KINDS = [Naive(), IPS(THETA_5, clip=0.3), PNS(THETA_5), PRS(THETA_5, clip=0.3, clip_of="clicked")]


@pytest.mark.parametrize("weighting", KINDS, ids=lambda w: type(w).__name__)
def test_listwise_is_the_slow_one(lists, weighting, rng):
    scores = rng.normal(size=lists.n_documents)
    loss, _ = sided_listwise(lists, weighting, "sessions").evaluate(scores)
    assert loss == pytest.approx(slow_listwise(lists, weighting, scores))


@pytest.mark.parametrize("weighting", KINDS, ids=lambda w: type(w).__name__)
def test_pointwise_is_the_sum_over_impressions(lists, weighting, rng):
    up, down = weighting.sides(5)
    scores = rng.normal(size=lists.n_documents)
    sums = SidedPointwise.of(click_counts(lists), up, down)
    s = (scores + sums._constant(scores))[lists.document]
    k, n = lists.position_index, np.repeat(lists.count, np.diff(lists.indptr))
    expected = n @ np.where(lists.label > 0, up[k] * softplus(-s), down[k] * softplus(s))
    assert sums.evaluate(scores)[0] == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["pointwise", "listwise"])
def test_gradients_by_differences(lists, kind, rng):
    weighting = KINDS[-1]
    loss = (
        sided_listwise(lists, weighting, "sessions")
        if kind == "listwise"
        else SidedPointwise.of(click_counts(lists), *weighting.sides(5))
    )
    scores = rng.normal(size=lists.n_documents)
    _, gradient = loss.evaluate(scores)
    for d in range(0, lists.n_documents, 17):
        step = np.zeros_like(scores)
        step[d] = 1e-5
        slope = (loss.evaluate(scores + step)[0] - loss.evaluate(scores - step)[0]) / 2e-5
        assert gradient[d] == pytest.approx(slope, abs=1e-5)
    assert gradient.sum() == pytest.approx(0, abs=1e-6)  # a constant changes nothing


def test_scores_far_apart_do_not_overflow():
    loss, gradient = one_list([0, 1, 1, 0], prs_itself(THETA[4])).evaluate(
        np.array([900.0, -900.0, 0.0, -900.0])
    )
    assert loss == pytest.approx(1800 / 0.6 + 900 / 0.35)
    assert gradient == pytest.approx([1 / 0.6 + 1 / 0.35, -1 / 0.6, -1 / 0.35, 0])
    assert one_list([1, 1, 1, 1], Naive()).evaluate(np.zeros(4))[0] == 0


# ---- the linear ranker


@pytest.mark.parametrize("loss", ["pointwise", "listwise"])
def test_a_linear_ranker_learns_by_them(pbm_log, loss):
    made = pbm_log(n_queries=60, sessions=60, seed=1)
    learned = {
        repr(weighting): np.corrcoef(
            LinearRanker(weighting, loss=loss).fit(made.log).predict(made.log.features),
            made.relevance,
        )[0, 1]
        for weighting in (IPS(made.theta), PRS(made.theta, clip=0.5, clip_of="clicked"))
    }
    assert min(learned.values()) > 0.9


@pytest.mark.parametrize("loss", ["pointwise", "listwise"])
def test_weights_of_pairs_are_refused(pbm_log, loss):
    log = pbm_log().log
    with pytest.raises(OptionError, match="belongs to a pair of positions"):
        LinearRanker(PRS(THETA_5), loss=loss).fit(log)
    with pytest.raises(OptionError, match="label is not 0/1"):
        LinearRanker(IPS(THETA_5), loss=loss).fit(log.with_label(2 * log.label))


@pytest.mark.parametrize("loss", ["pointwise", "listwise"])
def test_grades_are_learned_from(loss, rng):
    features = rng.normal(size=(300, 3))
    labels = np.clip(np.round(features[:, 0] + 1.5), 0, 3)
    judged = JudgedLists(features, labels, np.arange(0, 301, 10), np.arange(30))
    ranker = LinearRanker(loss=loss).fit(judged)
    assert np.corrcoef(ranker.predict(features), labels)[0, 1] > 0.9


def test_only_an_unclipped_or_one_sided_ratio_has_sides():
    assert PRS(THETA[3]).sides(3) is None
    up, down = PRS(THETA[3], clip=np.inf).sides(3)
    assert up == pytest.approx(1 / THETA[3])
    assert down == pytest.approx(THETA[3])
    up, down = PRS(THETA[3], clip=0.5, clip_of="clicked").sides(3)
    assert up == pytest.approx([1 / 0.9, 2, 2])
