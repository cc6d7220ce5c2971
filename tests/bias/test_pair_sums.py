"""Sums over interventional sets against plain loops over documents and queries."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy.special import chdtri
from tests.bias.pair_sandwich import sandwich, scores_by_query

from untilt import AllPairs
from untilt.bias.harvesting.pairs import (
    pair_sums,
    session_noise,
    solve_laplacian,
)
from untilt.bias.log_ratios import Uncertainty, degrees_of_freedom, from_log_ratios, larger_error
from untilt.data.counts import position_counts
from untilt.errors import OptionError
from untilt.facts import note

DEPTH = 4


def weight_of(kind, n_k, n_l):
    return 1.0 if kind == "document" else n_k * n_l / (n_k + n_l)


@pytest.fixture
def tables(rng):
    gain = rng.uniform(0.5, 2, size=(DEPTH, DEPTH))
    gain[1, 2] = gain[2, 1] = 0  # a pair that is not used
    offset = rng.normal(size=(DEPTH, DEPTH))
    offset = offset - offset.T
    offset[1, 2] = offset[2, 1] = 0
    return gain, offset


@pytest.fixture(params=["session", "document"])
def kind(request):
    return request.param


def test_a_set_by_hand(make_log):
    """One document: 2 clicks of 4 at position 1, 1 of 2 at position 3; another at 1 alone."""
    log = make_log(
        [
            (0, [7, 8, None], [7], 2, "a"),
            (0, [7, 8, None], [], 2, "a"),
            (0, [None, 8, 7], [7], 1, "a"),
            (0, [None, 8, 7], [], 1, "a"),
        ]
    )
    sums = pair_sums(position_counts(log), "document")
    assert sums.weight.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert (sums.clicked[0, 2], sums.clicked[2, 0]) == (2 / 4, 1 / 2)
    sums = pair_sums(position_counts(log), "session")
    w = 4 * 2 / (4 + 2)
    assert sums.weight[0, 2] == pytest.approx(w)
    assert (sums.clicked[0, 2], sums.clicked[2, 0]) == pytest.approx((w * 2 / 4, w * 1 / 2))


def test_sums_against_a_loop(shuffled_log, cells_by_hand, kind):
    W, C = np.zeros((DEPTH, DEPTH)), np.zeros((DEPTH, DEPTH))
    for places in cells_by_hand(shuffled_log).values():
        for k, l in itertools.permutations(places, 2):
            (n_k, c_k), (n_l, _) = places[k], places[l]
            W[k - 1, l - 1] += weight_of(kind, n_k, n_l)
            C[k - 1, l - 1] += weight_of(kind, n_k, n_l) * c_k / n_k
    sums = pair_sums(position_counts(shuffled_log), kind)
    assert sums.weight == pytest.approx(W)
    assert sums.clicked == pytest.approx(C)


def test_scores_by_query_against_a_loop(shuffled_log, cells_by_hand, kind, tables):
    gain, offset = tables
    u = defaultdict(lambda: np.zeros(DEPTH))
    for (query, _), places in cells_by_hand(shuffled_log).items():
        for k, l in itertools.permutations(places, 2):
            (n_k, c_k), (n_l, c_l) = places[k], places[l]
            k0, l0 = k - 1, l - 1
            flow = gain[k0, l0] * c_k / n_k - gain[l0, k0] * c_l / n_l + offset[k0, l0]
            u[query][k0] += weight_of(kind, n_k, n_l) * flow
    M, n = scores_by_query(position_counts(shuffled_log), kind, gain, offset)
    assert n == len(u)
    expected = sum(np.outer(v, v) for v in u.values())
    assert expected == pytest.approx(M)


def test_scores_by_session_against_a_loop(shuffled_log, cells_by_hand, kind, tables):
    gain, _ = tables
    theta = np.array([1, 0.6, 0.5, 0.3])
    M = np.zeros((DEPTH, DEPTH))
    for places in cells_by_hand(shuffled_log).values():
        g = sum(c for _, c in places.values()) / sum(
            n * theta[k - 1] for k, (n, _) in places.items()
        )
        for k, (n_k, _) in places.items():
            v = np.zeros(DEPTH)
            for l, (n_l, _) in places.items():
                if l != k:
                    push = weight_of(kind, n_k, n_l) * gain[k - 1, l - 1]
                    v[k - 1] += push
                    v[l - 1] -= push
            chance = min(1, theta[k - 1] * g)
            M += np.outer(v, v) * chance * (1 - chance) / n_k
    found = session_noise(position_counts(shuffled_log), kind, gain, theta, np.eye(DEPTH))
    assert found.covariance == pytest.approx(M)
    assert np.abs(found.parts).sum(axis=0) == pytest.approx(np.diag(M))
    assert np.all(np.diag(found.parts) > 0), "more clicks at k make z_k larger"


def test_a_query_without_a_used_pair_does_not_count(make_log):
    log = make_log([(0, [1, 2], [1]), (0, [2, 1], [1]), (1, [1, 2], [1]), (2, [1, 2], [1])])
    _, n = scores_by_query(position_counts(log), "session", np.ones((2, 2)), np.zeros((2, 2)))
    assert n == 1


def test_an_unknown_weight_is_refused(shuffled_log):
    with pytest.raises(OptionError, match="weight must be one of 'session', 'document'"):
        pair_sums(position_counts(shuffled_log), "documents")


# ---- solve_laplacian and errors


def test_potentials_of_a_chain_add_up():
    """Wires 1-2 and 2-3: z_2 = -0.5 and z_3 = z_2 - 0.2, from the pushes of each wire."""
    chain = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    push = np.array([0.5, -0.5 + 0.2, -0.2])
    assert solve_laplacian(chain, push) == pytest.approx([0, -0.5, -0.7])


def test_the_sandwich_of_a_chain_adds_variances():
    """Independent pushes on two wires: var(z_3) is the sum, cov(z_2, z_3) the first."""
    chain = np.array([[0, 1.0, 0], [1, 0, 1], [0, 1, 0]])
    first, second = np.array([1, -1, 0]), np.array([0, 1, -1])
    M = 0.3 * np.outer(first, first) + 0.5 * np.outer(second, second)
    assert sandwich(chain, M) == pytest.approx(np.array([[0, 0, 0], [0, 0.3, 0.3], [0, 0.3, 0.8]]))


def test_parallel_wires_share_the_push():
    """Conductances 1 and 3 between the same two positions stand for one of 4."""
    assert solve_laplacian(np.array([[0, 4.0], [4, 0]]), np.array([-2.0, 2])) == pytest.approx(
        [0, 0.5]
    )


def test_the_larger_error_counts_with_the_session_correlations():
    by_session = np.array([[0, 0, 0], [0, 0.04, 0.03], [0, 0.03, 0.09]])
    by_query = np.diag([0, 0.16, 0.01]) * 30 / 29  # squares of what leaving each query out changes
    errors = larger_error(by_query, 30, by_session, np.full(3, 30.0))
    assert np.diag(errors.covariance) == pytest.approx([0, 0.16, 0.09])
    correlation = 0.03 / np.sqrt(0.04 * 0.09)
    assert errors.covariance[1, 2] == pytest.approx(correlation * np.sqrt(0.16 * 0.09))
    assert errors.rule.code == "bias.errors-by-query"
    assert errors.rule.fields == {"n_queries": 30, "effective": 30.0, "where": ""}
    assert (
        larger_error(by_query, 5, by_session, np.full(3, 5.0)).rule.code
        == "bias.errors-few-queries"
    )


def test_one_query_has_no_spread():
    by_session = np.diag([0, 0.04])
    errors = larger_error(np.zeros((2, 2)), 1, by_session, np.ones(2))
    assert errors.covariance is by_session
    assert errors.rule.code == "bias.errors-one-query"


def test_a_position_without_session_noise_keeps_its_clustered_error():
    errors = larger_error(np.diag([0, 0.05]), 11, np.zeros((2, 2)), np.full(2, 11.0))
    assert errors.covariance[1, 1] == pytest.approx(0.05 * 10 / 11)


def curve(z, errors):
    status = note("bias.given", "given")()
    return from_log_ratios(z, errors, level=0.95, method="m", assumes=(), status=status)


def test_students_t_where_the_spread_of_queries_decides():
    by_session = np.diag([0, 0.04, 0.09])
    changes = np.diag([0, 0.16, 0.01]) * 30 / 29  # squares of what leaving each query out changes
    effective = np.array([0, 8.0, 25.0])
    errors = larger_error(changes, 30, by_session, effective)
    assert np.diag(errors.covariance) == pytest.approx([0, 0.16, 0.09])
    assert errors.effective_queries == 8
    assert errors.degrees_of_freedom.tolist() == [np.inf, 7, np.inf]
    assert errors.rule.code == "bias.errors-few-queries"
    assert errors.rule.fields == {"n_queries": 30, "effective": 8.0, "where": ""}
    assert errors.effective_at.tolist() == [30, 8, 25]
    bias = curve(np.zeros(3), errors)
    t_7 = 2.3646  # a table's
    assert np.log(bias.high) == pytest.approx([0, t_7 * 0.4, 1.96 * 0.3], rel=1e-3)
    assert bias.effective_queries == 8
    assert degrees_of_freedom(bias) == pytest.approx([np.inf, 7, np.inf], rel=1e-6)


def test_ends_of_few_clicks_are_those_of_counts():
    """Position 2 with 2 clicks, position 1 with so many that they add nothing."""
    parts = np.array([[0, -1e-9], [0, 1 / 2]])
    errors = Uncertainty(np.diag([0, 0.5]), note("bias.given", "given")(), click_parts=parts)
    bias = curve(np.zeros(2), errors)
    jeffreys = chdtri(2 * 2.5, np.array([0.975, 0.025])) / 2 / 2  # chi-square quantiles over 2 n
    assert (bias.low[1], bias.high[1]) == pytest.approx(tuple(jeffreys), rel=1e-4)
    assert bias.low[0] == bias.high[0] == 1


def test_many_clicks_give_normal_ends():
    parts = np.array([[0, -1 / 900], [0, 1 / 400]])
    errors = Uncertainty(
        np.diag([0, 1 / 900 + 1 / 400]), note("bias.given", "given")(), click_parts=parts
    )
    bias = curve(np.zeros(2), errors)
    half = 1.96 * np.sqrt(1 / 900 + 1 / 400)
    assert np.log([bias.low[1], bias.high[1]]) == pytest.approx([-half, half], rel=0.02)


def test_one_query_with_most_of_the_traffic_is_worth_little_more_than_one(rng, make_log):
    """Of 40 queries one has 97% of the sessions; even traffic of 40 queries is worth nearly 40."""
    for sessions, least, most in ((39 * 97 // 3, 1, 1.3), (100, 30, 40)):
        rows = []
        for query in range(40):
            n = sessions if query == 0 else (1 if sessions > 1000 else 100)
            for order in ([1, 2], [2, 1]):
                clicks = rng.binomial(n, 0.4), rng.binomial(n, 0.2)
                for place, c in zip((0, 1), clicks, strict=True):
                    rows.append((query, order, [order[place]], max(1, int(c)), "a"))
                rows.append((query, order, [], n, "a"))
        bias = AllPairs().fit(make_log(rows)).bias_
        assert least <= bias.effective_queries <= most
