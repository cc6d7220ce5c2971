"""Click rates equal the formula within four standard errors, for every protocol.

The formulas stand here once more, by hand; the sampler's own tables are not asked.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from untilt import simulate
from untilt._core import ragged
from untilt.simulation import protocols

RHO = np.array([0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06])


def graded(labels, epsilon=0.1):
    return epsilon + (1 - epsilon) * (2**labels - 1) / 15


def prs_formula(labels, k, _):
    relevant = labels >= 3
    return (1 / k) * np.where(relevant, 0.9, 0.1)


def dla_formula(labels, k, _):
    return RHO[k - 1] * graded(labels)


def trust_formula(labels, k, _):
    gamma = graded(labels, epsilon=0)
    eps_plus, eps_minus = 1 - (k + 1) / 100, 0.65 / k
    return RHO[k - 1] * (eps_plus * gamma + eps_minus * (1 - gamma))


def cascade_formula(labels, k, indptr):
    gamma = graded(labels)
    expected = np.empty(len(labels))
    for a, b in itertools.pairwise(indptr):
        here = 1.0
        for row in range(a, b):
            expected[row] = here * gamma[row]
            here *= 0.5 * (1 - gamma[row] * gamma[row] / 2)
    return expected


FORMULAS = {
    "prs": prs_formula,
    "dla": dla_formula,
    "trust": trust_formula,
    "cascade": cascade_formula,
    "dwell": dla_formula,
    "swap": dla_formula,
    "shuffle": dla_formula,
    "harvest": dla_formula,
}
VARIANTS = {
    "no bias": (protocols.DLA(theta=0.0, epsilon=0.3), lambda y, k, _: graded(y, 0.3)),
    "steep": (protocols.DLA(theta=2.0), lambda y, k, _: RHO[k - 1] ** 2 * graded(y)),
    "noise-free": (protocols.PRS(noise=0.0, eta=0.5), lambda y, k, _: k**-0.5 * (y >= 3)),
    "own curve": (
        protocols.DLA(examination=(0.9, 0.5, 0.1), depth=3),
        lambda y, k, _: np.array([0.9, 0.5, 0.1])[k - 1] * graded(y),
    ),
    "relevant from 1": (
        protocols.PRS(relevant_from=1),
        lambda y, k, _: np.where(y >= 1, 0.9, 0.1) / k,
    ),
}
CASES = {name: (name, formula) for name, formula in FORMULAS.items()} | VARIANTS


def clicks_of(log):
    return log.extra_labels.get("click", log.label)


def check(judged, protocol, formula, scores, n_sessions):
    ranker = {"a": scores, "b": -scores} if protocol == "harvest" else scores
    sim = simulate(judged, protocol, n_sessions=n_sessions, ranker=ranker, seed=5)
    log, count = sim.log, sim.log.row_count
    # No query trained these rankers, so the log's documents are the judged ones.
    labels = judged.labels[log.document]
    p = formula(labels, log.position.astype(float if protocol == "prs" else int), log.indptr)
    place = log.position - 1
    clicks = np.bincount(place, count * clicks_of(log))
    expected = np.bincount(place, count * p)
    spread = np.sqrt(np.bincount(place, count * p * (1 - p)))
    z = (clicks - expected) / np.maximum(spread, 1e-12)
    return sim, p, z


@pytest.mark.parametrize("case", CASES)
def test_click_rate_by_position(judged, scores, case):
    protocol, formula = CASES[case]
    sim, p, z = check(judged, protocol, formula, scores, n_sessions=60_000)
    assert len(z) == sim.log.depth
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(sim.truth.click_probabilities(sim.log), p, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_click_rate_by_position_closely(judged, scores, case):
    protocol, formula = CASES[case]
    _, _, z = check(judged, protocol, formula, scores, n_sessions=5_000_000)
    assert np.abs(z).max() < 4


@pytest.mark.parametrize("case", ["dla", "prs", "trust", "cascade", "swap"])
def test_click_rate_of_every_document_and_position(judged, scores, case):
    """sum of z^2 over the (document, position) cells is chi-squared with one per cell."""
    sim, p, _ = check(judged, case, FORMULAS[case], scores, n_sessions=200_000)
    log, count = sim.log, sim.log.row_count
    cells, cell = np.unique(log.document * 1000 + log.position, return_inverse=True)
    variance = np.bincount(cell, count * p * (1 - p))
    wide = variance > 10  # where the normal approximation holds
    assert wide.sum() > min(300, len(cells) / 4)
    z = np.bincount(cell, count * (log.label - p))[wide] / np.sqrt(variance[wide])
    dof = len(z)
    assert abs(np.sum(z**2) - dof) < 4 * np.sqrt(2 * dof)


def test_positions_are_clicked_independently_in_the_position_based_model(judged, scores):
    sim, p, _ = check(judged, "dla", dla_formula, scores, n_sessions=200_000)
    log = sim.log
    first, second = log.indptr[:-1], log.indptr[:-1] + 1
    both = log.label[first] * log.label[second]
    expected = p[first] * p[second]
    z = np.dot(log.sessions, both - expected)
    z /= np.sqrt(np.dot(log.sessions, expected * (1 - expected)))
    assert abs(z) < 4


def test_binary_relevance_on_three_grades(judged, scores):
    """Labels 1 and 2 of three grades are relevant; the two highest of any number are."""
    three = judged.labels.clip(max=2)
    sim = simulate(replace(judged, labels=three), "prs", n_sessions=10, ranker=scores)
    assert np.array_equal(sim.truth.relevance, (three >= 1).astype(float))
    two = (judged.labels > 2).astype(float)
    sim = simulate(replace(judged, labels=two), "prs", n_sessions=10, ranker=scores)
    assert np.array_equal(sim.truth.relevance, two)


def test_grades_are_read_against_the_highest_grade_there_is(judged, scores):
    low = replace(judged, labels=judged.labels.clip(max=3))
    found = simulate(low, "dla", n_sessions=10, ranker=scores).truth.relevance
    asked = simulate(low, "dla", n_sessions=10, ranker=scores, max_label=4).truth.relevance
    assert found == pytest.approx(0.1 + 0.9 * (2**low.labels - 1) / 7)
    assert asked == pytest.approx(0.1 + 0.9 * (2**low.labels - 1) / 15)


def test_lists_show_the_best_by_score(judged, scores):
    sim = simulate(judged, "dla", n_sessions=2000, ranker=scores)
    log = sim.log
    for i in range(0, log.n_lists, 37):
        q = log.query[i]
        rows = np.arange(judged.indptr[q], judged.indptr[q + 1])
        best = rows[np.argsort(-scores[rows])][:10]
        assert log.document[log.indptr[i] : log.indptr[i + 1]].tolist() == best.tolist()
    lengths = ragged.lengths(log.indptr)
    assert np.array_equal(lengths, np.minimum(10, np.diff(judged.indptr))[log.query])


def test_queries_are_drawn_alike_by_zipf_or_by_weight(judged, scores):
    weights = np.arange(judged.n_queries) % 3.0
    for given, expected in (
        (None, np.full(judged.n_queries, 1 / judged.n_queries)),
        (weights, weights / weights.sum()),
        ("zipf", None),
    ):
        sim = simulate(judged, n_sessions=60_000, ranker=scores, query_weights=given)
        n = np.bincount(sim.log.query, sim.log.sessions, judged.n_queries)
        p = sim.truth.query_probability if expected is None else expected
        assert sim.truth.query_probability == pytest.approx(p)
        assert np.all(n[p == 0] == 0)
        z = (n - 60_000 * p)[p > 0] / np.sqrt(60_000 * p * (1 - p))[p > 0]
        assert np.abs(z).max() < 4.5  # 120 queries
    ranks = 1 / np.arange(1, judged.n_queries + 1)
    assert np.sort(p)[::-1] == pytest.approx(ranks / ranks.sum())
