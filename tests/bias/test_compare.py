"""The test of equal curves: its arithmetic, and that it is right as often as it says."""

import numpy as np
import pytest
from scipy import stats

from untilt import KnownBias, PositionBias, PowerLaw
from untilt.bias.curve_operations import compare
from untilt.bias.log_ratios import from_log_ratios
from untilt.errors import OptionError
from untilt.facts import as_fact


def curve(z, variance, method="a"):
    V = np.zeros((len(z), len(z)))
    V[1:, 1:] = variance
    return from_log_ratios(
        np.asarray(z, float), V, level=0.95, method=method, assumes=(), status=as_fact("made")
    )


def test_chi_square_by_hand():
    first = curve([0, -0.5, -1.0], np.diag([0.01, 0.04]))
    second = curve([0, -0.8, -1.1], np.diag([0.02, 0.05]), "b")
    found = first.compare(second)
    expected = 0.3**2 / 0.03 + 0.1**2 / 0.09
    assert found.chi_square == pytest.approx(expected)
    assert found.degrees_of_freedom == 2
    assert found.p_value == pytest.approx(stats.chi2.sf(expected, 2))
    assert found.difference == pytest.approx([0.3, 0.1])
    assert found.std_error == pytest.approx([np.sqrt(0.03), 0.3])
    assert found.p_values == pytest.approx(2 * stats.norm.sf([0.3 / np.sqrt(0.03), 1 / 3]))
    assert found.position.tolist() == [2, 3]
    assert found.equal
    assert found.differing == ()


def test_covariance_counts():
    """Both ratios share the noise of position 1, so a common shift is weak evidence."""
    shared = np.array([[0.02, 0.01], [0.01, 0.02]])
    d = np.array([0.2, 0.2])
    found = curve([0, *d], shared).compare(PositionBias(np.ones(3)))
    assert found.chi_square == pytest.approx(d @ np.linalg.inv(shared) @ d)
    assert found.chi_square < np.sum(d**2 / 0.02)


def test_only_the_positions_that_both_cover_and_only_ratios():
    first = curve([0, -0.5, -1.0], np.diag([0.01, 0.04]))
    doubled = KnownBias(2 * np.exp([0, -0.5]))
    found = compare(first, doubled)
    assert found.position.tolist() == [2]
    assert found.chi_square == pytest.approx(0)
    assert found.p_value == 1


def test_it_says_which_positions_differ():
    theta = PowerLaw(1.0).at(np.arange(1, 6))
    z = np.log(theta)
    other = z.copy()
    other[3] += 1.0
    found = curve(z, 0.01 * np.eye(4)).compare(curve(other, 0.01 * np.eye(4), "b"))
    assert not found.equal
    assert found.differing == (4,)
    assert "differ: chi-square" in repr(found)
    assert "differing at 5%: 4" in repr(found)


def test_holm_is_stricter_than_each_test_alone():
    """p = 0.04 at each of four positions: none is below 0.05 / 4."""
    z = stats.norm.isf(0.02)
    found = curve([0, *[0.1 * z] * 4], 0.01 * np.eye(4)).compare(KnownBias(np.ones(5)))
    assert found.p_values == pytest.approx([0.04] * 4)
    assert found.differing == ()


def test_directions_without_variance():
    """Positions 2 and 3 are one number: equal differences agree with that, others never do."""
    tied = np.full((2, 2), 0.04)
    along = curve([0, 0.2, 0.2], tied).compare(KnownBias(np.ones(3)))
    assert along.degrees_of_freedom == 1
    assert along.chi_square == pytest.approx(0.2**2 / 0.04)
    across = curve([0, 0.2, -0.2], tied).compare(KnownBias(np.ones(3)))
    assert across.p_value == 0


def test_a_position_without_an_error_is_left_out():
    unsure = PositionBias(np.array([1.0, 0.5, 0.2]), std_error=np.array([0.0, np.nan, 0.02]))
    found = unsure.compare(KnownBias([1.0, 0.1, 0.2]))
    assert found.position.tolist() == [3]
    assert found.p_value == pytest.approx(1)


def test_two_given_curves_cannot_be_tested():
    with pytest.raises(OptionError, match="both curves are given without standard errors"):
        compare(KnownBias([1.0, 0.5]), KnownBias([1.0, 0.6]))


def test_p_values_are_uniform_when_the_curves_are_equal(rng):
    V = np.array([[0.03, 0.01, 0.01], [0.01, 0.02, 0.01], [0.01, 0.01, 0.05]])
    z = np.log([1, 0.5, 0.3, 0.2])
    draws = rng.multivariate_normal(z[1:], V, size=(2, 400))
    p = [
        curve([0, *a], V).compare(curve([0, *b], V)).p_value
        for a, b in zip(draws[0], draws[1], strict=True)
    ]
    assert stats.kstest(p, "uniform").pvalue > 0.01
