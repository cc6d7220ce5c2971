"""Data from the pairwise trust model itself: what EM finds again, and what nobody can.

Sessions show two documents at two of four positions. Hidden: who is examined, who is preferred, and
what the trust bias makes of it. The label of a document that is examined is above 0 with
probability beta in every case, as the model has it, so all of its equations hold at once.
"""

from typing import Any

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog
from untilt.rankers.trust.pairwise_trust import PairwiseTrustRanker

THETA = np.array([1.0, 0.8, 0.6, 0.45])
BETA = 0.75
SLOPE, TIE = np.array([2.5, -1.5]), 0.0
N_DOCUMENTS, N_SESSIONS = 60, 400_000
# eps+ falls and eps- rises the lower the better document stands: [k, l] for i at k, j at l.
PLUS = 0.70 - 0.03 * np.arange(4)[:, None] + 0.01 * np.arange(4)[None, :]
MINUS = 0.22 + 0.02 * np.arange(4)[:, None] - 0.005 * np.arange(4)[None, :]
APART = ~np.eye(4, dtype=bool)


def draw_log(seed, *, n_sessions=N_SESSIONS):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(N_DOCUMENTS, 2)).astype(np.float32)
    i, j = rng.integers(0, N_DOCUMENTS, (2, n_sessions))
    i, j = i[i != j], j[i != j]
    places = np.array([(k, l) for k in range(4) for l in range(k + 1, 4)])
    k, l = places[rng.integers(0, len(places), len(i))].T
    gamma = 1 / (1 + np.exp(-(features[i] - features[j]) @ SLOPE + TIE))
    c_i, c_j = draw_labels(rng, k, l, gamma)
    return ClickLog(
        query_id=[0], doc_id=np.arange(N_DOCUMENTS), doc_query=np.zeros(N_DOCUMENTS, int),
        indptr=2 * np.arange(len(i) + 1), query=np.zeros(len(i), int),
        document=np.column_stack([i, j]).ravel(), position=np.column_stack([k, l]).ravel() + 1,
        label=np.column_stack([c_i, c_j]).ravel(), features=features,
    ).collapse()  # fmt: skip


def draw_labels(rng, k, l, gamma):
    """c_i > c_j with probability A = eps+ gamma + eps- (1 - gamma) where both are examined.

    Then c_i > 0; and so that P(c_i > 0) = beta, the lower one is above 0 in just the right share of
    the cases: beta = A_ij + A_ji P(c_i > 0 | c_i < c_j). Ties are both 0.
    """
    n = len(k)
    e_i, e_j = rng.random(n) < THETA[k], rng.random(n) < THETA[l]
    preferred = rng.random(n) < gamma
    up = np.where(preferred, PLUS[k, l], MINUS[k, l])
    down = np.where(preferred, MINUS[l, k], PLUS[l, k])
    above = PLUS[k, l] * gamma + MINUS[k, l] * (1 - gamma)
    below = PLUS[l, k] * (1 - gamma) + MINUS[l, k] * gamma
    rest_i, rest_j = (BETA - above) / below, (BETA - below) / above
    assert min(rest_i.min(), rest_j.min()) >= 0
    assert max(rest_i.max(), rest_j.max()) <= 1
    order, low, alone = rng.random(n), rng.random(n), rng.random(n) < BETA
    wins, loses = order < up, (order >= up) & (order < up + down)
    c_i = np.where(wins, 2.0, np.where(loses & (low < rest_i), 1.0, 0.0))
    c_j = np.where(loses, 2.0, np.where(wins & (low < rest_j), 1.0, 0.0))
    both = e_i & e_j
    return (
        np.where(both, c_i, np.where(e_i & alone, 1.0, 0.0)),
        np.where(both, c_j, np.where(e_j & alone, 1.0, 0.0)),
    )


def fitted(seed, **options):
    settings: dict[str, Any] = {
        "labels": "continuous", "em": "full-batch", "relevance": "linear", "widths": (4,),
        "epochs": 1, "first_examination": 1.0, "max_steps": 1000, "tolerance": 1e-2,
    }  # fmt: skip
    return PairwiseTrustRanker("bayes-ipw", **(settings | options)).fit(draw_log(seed))


def never_falls(values):
    return np.all(np.diff(values) >= -1e-9 * np.abs(values[:-1]))


@pytest.fixture(scope="module")
def one():
    return fitted(0)


def test_likelihoods_never_fall(one):
    assert len(one.item_likelihood_) > 3
    assert len(one.pair_likelihood_) > 3
    assert never_falls(one.item_likelihood_)
    assert never_falls(one.pair_likelihood_)


def test_examination_is_found(one):
    """About 100,000 impressions per position: a standard error of 0.003, and some for the scale."""
    assert one.pair_trust_.examination == pytest.approx(THETA, abs=0.01)
    assert one.bias_.examination == pytest.approx(THETA / THETA[0], abs=0.01)


def test_trust_bias_is_found(one):
    """With gamma logistic in the features its ends, and so eps+ and eps-, are identified."""
    assert one.pair_trust_.eps_plus[APART] == pytest.approx(PLUS[APART], abs=0.03)
    assert one.pair_trust_.eps_minus[APART] == pytest.approx(MINUS[APART], abs=0.03)


def test_posterior_examination_of_zeros(one):
    """theta-: P(e = 1 | c = 0) = theta (1 - beta) / (1 - theta beta)."""
    expected = THETA * (1 - BETA) / (1 - THETA * BETA)
    # At position 1 everybody looks: theta held at 1 leaves 1.
    assert one.pair_trust_.examination_zero[1:] == pytest.approx(expected[1:], abs=0.03)


def lines_at(trust):
    """What both examined gives between the ends of gamma: eps- + (eps+ - eps-) gamma."""
    return trust.eps_minus, trust.eps_plus - trust.eps_minus


def test_a_table_of_gamma_finds_the_rest_up_to_its_ends():
    """gamma -> a + b gamma changes no probability: one pair of positions sets the scale."""
    trust = fitted(1, relevance="table", tolerance=1.0, max_steps=150).pair_trust_
    assert trust.examination == pytest.approx(THETA, abs=0.01)
    shift, slope = lines_at(trust)
    true_shift, true_slope = MINUS, PLUS - MINUS
    b = true_slope[0, 1] / slope[0, 1]
    a = (true_shift[0, 1] - shift[0, 1]) / slope[0, 1]
    assert (slope * b)[APART] == pytest.approx(true_slope[APART], abs=0.07)
    assert (shift + a * slope)[APART] == pytest.approx(true_shift[APART], abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_over_seeds(seed):
    trust = fitted(seed).pair_trust_
    assert trust.examination == pytest.approx(THETA, abs=0.01)
    assert trust.eps_plus[APART] == pytest.approx(PLUS[APART], abs=0.03)
    assert trust.eps_minus[APART] == pytest.approx(MINUS[APART], abs=0.03)
