"""Dwell times: their mean and spread at every position, and the clicks beneath."""

import numpy as np
import pytest
from scipy import integrate, stats

from untilt import JudgedLists, simulate
from untilt.errors import OptionError
from untilt.simulation.behaviour import mean_above_zero
from untilt.simulation.protocols import PRS, Cascade, Dwell, Swap


def positive_moment(mean: float, spread: float, power: int) -> float:
    """E max(0, N(mean, spread))^power by numeric integration."""
    density = stats.norm(mean, spread).pdf
    return integrate.quad(lambda x: x**power * density(x), 0, mean + 12 * spread)[0]


@pytest.mark.parametrize(("mean", "spread"), [(0.1, 0.05), (2.0, 0.4), (-0.3, 0.5), (0.0, 1.0)])
def test_mean_above_zero_by_integration(mean, spread):
    found = mean_above_zero(np.array([mean]), np.array([spread]))
    assert found == pytest.approx(positive_moment(mean, spread, 1), rel=1e-8)


def test_mean_above_zero_without_spread():
    assert mean_above_zero(np.array([2.0, -1.0, 0.0]), np.zeros(3)).tolist() == [2, 0, 0]


@pytest.fixture(scope="module")
def sim(judged, scores):
    return simulate(judged, "dwell", n_sessions=150_000, ranker=scores, seed=1)


def moments_of_factors(labels, k, power):
    """E[delta^power] E[omega^power] of each row, by integration."""
    root = [np.sqrt(place + 2) for place in range(1, 11)]
    delta = np.array([positive_moment(2 / r, 0.4 / r, power) for r in root])
    omega = np.array(
        [positive_moment(0.1 + 0.9 * y, np.sqrt(y + 0.1) / 6, power) for y in range(5)]
    )
    return delta[k - 1] * omega[labels.astype(int)]


def test_mean_dwell_at_every_position(sim, judged):
    log = sim.log
    labels, k = judged.labels[log.document], log.position
    click = sim.truth.click_probabilities(log)
    expected = click * moments_of_factors(labels, k, 1)
    second = click * moments_of_factors(labels, k, 2)
    np.testing.assert_allclose(sim.truth.expected_label(log), expected, rtol=1e-6)
    place, count = log.position - 1, log.row_count
    difference = np.bincount(place, count * (log.label - expected))
    spread = np.sqrt(np.bincount(place, count * (second - expected**2)))
    assert np.abs(difference / spread).max() < 4


def test_dwell_of_every_grade_given_a_click(sim, judged):
    log = sim.log
    clicked = log.extra_labels["click"] == 1
    labels, k = judged.labels[log.document][clicked], log.position[clicked]
    mean, second = (moments_of_factors(labels, k, power) for power in (1, 2))
    for grade in range(5):
        of = labels == grade
        z = np.sum((log.label[clicked] - mean)[of]) / np.sqrt(np.sum((second - mean**2)[of]))
        assert abs(z) < 4


def test_the_spread_is_a_standard_deviation():
    """One document of label 4 at position 1: d = delta omega, so Var d has a closed form."""
    judged = JudgedLists(np.zeros((1, 1)), np.array([4.0]), np.array([0, 1]), np.array([0]))
    log = simulate(judged, "dwell", n_sessions=100_000, ranker=[1.0], collapse=False).log
    d = log.label[log.extra_labels["click"] == 1]
    m_delta, s_delta = 2 / np.sqrt(3), 0.4 / np.sqrt(3)
    m_omega, s_omega = 0.1 + 0.9 * 4, np.sqrt(4.1) / 6
    variance = (m_delta**2 + s_delta**2) * (m_omega**2 + s_omega**2) - (m_delta * m_omega) ** 2
    error = np.sqrt(stats.moment(d, 4) - d.var() ** 2) / np.sqrt(len(d))
    assert abs(d.var() - variance) < 4 * error


def test_clicks_are_those_of_the_click_model(sim, judged, scores):
    clicks = simulate(judged, "dla", n_sessions=150_000, ranker=scores, seed=1, collapse=False).log
    dwell = simulate(judged, "dwell", n_sessions=150_000, ranker=scores, seed=1, collapse=False).log
    assert np.array_equal(dwell.extra_labels["click"], clicks.label)
    assert np.all(dwell.label >= 0)
    assert np.all(dwell.label[dwell.extra_labels["click"] == 0] == 0)
    assert dwell.label_name == "dwell"


def test_some_clicks_last_no_time(sim):
    """omega of a label-0 document is cut at 0 in Phi(-0.1 / 0.0527) = 2.9% of its clicks."""
    log = sim.log
    unread = (sim.truth.judged.labels[log.document] == 0) & (log.extra_labels["click"] == 1)
    n = log.row_count[unread].sum()
    cut = log.row_count[unread & (log.label == 0)].sum()
    p = stats.norm.cdf(-0.1 / (np.sqrt(0.1) / 6))
    assert abs(cut - n * p) < 4 * np.sqrt(n * p)


def test_dwell_on_other_click_models(judged, scores):
    for clicks in (PRS(), Cascade()):
        sim = simulate(judged, Dwell(clicks=clicks), n_sessions=500, ranker=scores)
        assert sim.log.label_name == "dwell"
        assert sim.truth.behaviour.stopping is None or clicks.name == "cascade"
    swapped = simulate(judged, Swap(clicks=Dwell()), n_sessions=500, ranker=scores)
    assert swapped.log.label_name == "dwell"
    assert "swap:1-2" in swapped.log.ranker_names


def test_dwell_needs_a_click_model(judged, scores):
    with pytest.raises(OptionError, match="clicks must be a protocol of clicks"):
        simulate(judged, Dwell(clicks=Swap()), n_sessions=5, ranker=scores)
