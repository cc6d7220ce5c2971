"""The cascade, by enumeration of everything that a reader can do."""

import itertools

import numpy as np
import pytest

from untilt import JudgedLists, simulate
from untilt.errors import OptionError
from untilt.simulation.protocols import Cascade

LABELS = np.array([2.0, 3.0, 1.0])
GAMMA = 0.1 + 0.9 * (2**LABELS - 1) / 15
BETA, SATISFACTION = 0.7, 0.6


def pattern_probabilities(gamma, beta, satisfaction) -> dict[tuple[int, ...], float]:
    """P(click pattern), summed over all ways: (click?, satisfied?, reads on?) at every place."""
    total: dict[tuple[int, ...], float] = {}
    for path in itertools.product(itertools.product((0, 1), repeat=3), repeat=len(gamma)):
        probability, reads, pattern = 1.0, True, []
        for g, (clicks, satisfied, on) in zip(gamma, path, strict=True):
            if not reads:
                # Nothing is decided any more; count one path of the eight that look alike.
                probability *= (clicks, satisfied, on) == (0, 0, 0)
                pattern.append(0)
                continue
            probability *= g if clicks else 1 - g
            phi = satisfaction * g if clicks else 0.0
            probability *= phi if satisfied else 1 - phi
            probability *= beta if on else 1 - beta
            reads = not satisfied and bool(on)
            pattern.append(clicks)
        total[tuple(pattern)] = total.get(tuple(pattern), 0.0) + probability
    return total


@pytest.fixture
def one_list() -> JudgedLists:
    return JudgedLists(np.zeros((3, 1)), LABELS, np.array([0, 3]), np.array(["q"]))


def simulated(one_list, n_sessions):
    protocol = Cascade(beta=BETA, satisfaction=SATISFACTION)
    return simulate(
        one_list, protocol, n_sessions=n_sessions, ranker=[3.0, 2.0, 1.0], seed=2, max_label=4
    )


def test_enumeration_is_a_distribution():
    assert sum(pattern_probabilities(GAMMA, BETA, SATISFACTION).values()) == pytest.approx(1)


def test_click_probabilities_equal_the_enumeration(one_list):
    sim = simulated(one_list, 50)
    patterns = pattern_probabilities(GAMMA, BETA, SATISFACTION)
    expected = sum(p * np.array(pattern) for pattern, p in patterns.items())
    assert sim.truth.click_probabilities(sim.log)[:3] == pytest.approx(expected)


def test_whole_click_patterns_occur_as_enumerated(one_list):
    n = 200_000
    log = simulated(one_list, n).log
    found = {
        tuple(log.label[a:b].astype(int)): int(count)
        for a, b, count in zip(log.indptr[:-1], log.indptr[1:], log.sessions, strict=True)
    }
    patterns = pattern_probabilities(GAMMA, BETA, SATISFACTION)
    assert sum(found.values()) == n
    for pattern, p in patterns.items():
        assert abs(found.get(pattern, 0) - n * p) < 4 * np.sqrt(n * p * (1 - p))


def test_examination_is_the_mean_over_sessions(one_list):
    stays = BETA * (1 - SATISFACTION * GAMMA**2)
    expected = [1, stays[0], stays[0] * stays[1]]
    assert simulated(one_list, 10).truth.examination == pytest.approx(expected)


def test_reading_on_surely_and_never_satisfied_is_no_bias(one_list):
    sim = simulate(
        one_list, Cascade(beta=1, satisfaction=0), n_sessions=10, max_label=4, ranker=[3, 2, 1]
    )
    assert sim.truth.examination == pytest.approx(np.ones(3))
    assert sim.truth.click_probabilities(sim.log)[:3] == pytest.approx(GAMMA)


def test_a_document_has_no_click_probability_of_its_own(one_list):
    with pytest.raises(OptionError, match="click_probabilities"):
        simulated(one_list, 10).truth.click_probability(0, 1)
