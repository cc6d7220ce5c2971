"""Score tests by hand and by enumeration: what a cell and a document tell."""

import itertools

import numpy as np
import pytest

from untilt._core.arrays import sum_by
from untilt.auditing.scores import Repeated, Score, ScoreCells, cells_of, relevance_score
from untilt.data.counts import counts_from_rows


def one_cell(n1, c1, n0, c0) -> ScoreCells:
    columns = (np.array([float(each)]) for each in (n1, c1, n0, c0))
    return ScoreCells(np.array([0]), np.array([0]), np.array([2]), *columns)


def test_a_cell_by_hand():
    score = one_cell(4, 3, 6, 2).level()  # 5 of 10 clicked, so 2 expected among 4
    assert score.score.tolist() == [1.0]
    assert score.variance[0] == pytest.approx(0.4 * 0.6 * 5 * 5 / 9)


def test_gap_and_variance_by_enumeration():
    """All ways in which 3 clicks fall on 7 sessions, 3 of them of the kind."""
    ways = list(itertools.combinations(range(7), 3))
    scores = [one_cell(3, k := sum(i < 3 for i in way), 4, 3 - k).level().score[0] for way in ways]
    assert np.mean(scores) == pytest.approx(0)
    assert np.var(scores) == pytest.approx(one_cell(3, 1, 4, 2).level().variance[0])


def test_ratio_of_equal_cells():
    assert one_cell(10, 4, 20, 4).ratio == pytest.approx((4 / 10) / (4 / 20))


def test_documents_that_change_alike_do_not_spread():
    """Twice the rate in every document of a query: a level, and no spread."""
    n = np.full(4, 100.0)
    alike = ScoreCells(
        np.zeros(4, int), np.arange(4), np.ones(4, int), n, np.full(4, 40.0), n, np.full(4, 20.0)
    )
    assert alike.ratio == pytest.approx(2)
    assert alike.spread().score.sum() < 0
    assert alike.slope().score == pytest.approx(0)


def test_kinds_are_told_apart_at_the_same_cell():
    """Document 0 at position 1: kind 0 has 2 sessions and 1 click, kind 1 has 3 and 2."""
    place = np.array([1, 1, 2, 2, 2])  # position 1 of kinds 0 and 1 out of 2
    counts = counts_from_rows(
        np.zeros(5, int), place, np.ones(5, int), np.array([1.0, 0, 1, 1, 0]), 1, 4
    )
    cells = cells_of(counts, 2, 1)
    found = [each.tolist() for each in (cells.position, cells.n1, cells.c1, cells.n0, cells.c0)]
    assert found == [[1], [3.0], [2.0], [2.0], [1.0]]


def test_error_is_the_larger_of_model_and_jackknife():
    equal = np.full(4, 1.0)
    calm = Score(np.array([0.1, -0.1, 0.1, -0.1]), equal, equal)
    assert calm.std_error == pytest.approx(2)  # sqrt(1 + 1 + 1 + 1)
    wild = Score(np.array([9.0, -9.0, 9.0, -9.0]), equal, equal)
    assert wild.std_error == pytest.approx(np.sqrt(4 * (9 / (1 - 1 / 4)) ** 2))
    assert calm.effective_queries == pytest.approx(4)


def test_one_large_query_is_one_query():
    score = Score(np.ones(3), np.array([100.0, 1, 1]), np.array([100.0, 1, 1]))
    assert score.effective_queries == pytest.approx(102**2 / (100**2 + 2))


def repeated_counts(probability, n, rng):
    """Documents (D, K): n impressions of each at every position, clicks with this probability."""
    D, K = probability.shape
    clicks = rng.binomial(n, probability)
    document, position = (each.ravel() for each in np.indices((D, K)))
    counts = counts_from_rows(
        np.repeat(document, 2),
        np.repeat(position + 1, 2),
        np.column_stack([clicks.ravel(), (n - clicks).ravel()]).ravel(),
        np.tile([1.0, 0.0], D * K),
        D,
        K,
    )
    from dataclasses import replace

    return replace(counts, query=counts.document // 5)


def test_the_curve_is_where_the_conditional_likelihood_is_largest():
    rng = np.random.default_rng(0)
    theta = np.array([1.0, 0.6, 0.3])
    counts = repeated_counts(theta * rng.uniform(0.1, 0.9, (40, 1)), 200, rng)
    data = Repeated.of(counts)
    assert np.exp(data.log_theta - data.log_theta[0]) == pytest.approx(theta, rel=0.05)
    w, _ = data.weights(data.n)
    C = sum_by(data.document, data.c)
    expected = sum_by(data.position, w * C[data.document])
    assert expected == pytest.approx(sum_by(data.position, data.c))


def test_trust_is_seen_and_steepness_alone_is_not():
    rng = np.random.default_rng(1)
    theta = np.array([1.0, 0.6, 0.4, 0.3])
    gamma = rng.uniform(0.05, 0.8, (100, 1))
    fair = relevance_score(repeated_counts(theta * gamma, 200, rng), rng)
    assert abs(fair.at(0.0).t) < 3
    trusting = theta * (gamma + 0.3 / np.arange(1, 5) * (1 - gamma))
    seen = relevance_score(repeated_counts(trusting, 200, rng), rng)
    assert seen.at(0.0).t < -6  # weaker documents fall more steeply
    ratio, low, high = seen.told(0.95, 4)
    assert 1.2 < low < ratio < high < 3


def test_equations_of_two_groups_of_positions_that_nothing_joins():
    """As the pseudo-inverse of the Hessian, for what sums to 0 in each group."""
    rng = np.random.default_rng(2)
    probability = rng.uniform(0.1, 0.4, (40, 5))
    counts = repeated_counts(probability, 50, rng)
    upper = counts.document_index % 2 == 0
    kept = Repeated.of(without_cells(counts, upper == (counts.position > 2)))
    w, _ = kept.weights(kept.n)
    b = np.array([[1.0, -1, 2, 0, -2], [0.0, 0, 1, -1, 0]]).T
    expected = np.linalg.pinv(kept.hessian(w)) @ b
    assert kept.solve(w, b) == pytest.approx(expected)


def without_cells(counts, lost):
    from dataclasses import replace

    cells = {name: getattr(counts, name)[~lost] for name in ("position", "impressions", "clicks")}
    indptr = np.concatenate([[0], np.cumsum(np.bincount(counts.document_index[~lost]))])
    return replace(counts, indptr=indptr, **cells)


def test_nothing_to_compare_where_no_document_moves():
    counts = counts_from_rows(
        np.array([0, 1]), np.array([1, 2]), np.array([5, 5]), np.array([1.0, 0]), 2, 2
    )
    assert relevance_score(counts, np.random.default_rng(0)) is None
