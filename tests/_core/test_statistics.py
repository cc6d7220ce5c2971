"""Intervals against scipy.stats and NumPy, and their coverage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from untilt._core.statistics import (
    Interval,
    MeanEstimate,
    bootstrap_weights,
    effective_units,
    jackknife_error,
    joint_degrees_of_freedom,
    normal_quantile,
    student_quantile,
    weighted_mean,
    wilson_interval,
)
from untilt.errors import OptionError


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_quantiles(level: float) -> None:
    assert normal_quantile(level) == pytest.approx(stats.norm.ppf((1 + level) / 2), rel=1e-12)
    for n in (1, 2.5, 30):
        expected = stats.t.ppf((1 + level) / 2, n)
        assert student_quantile(level, n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("t", [-40.0, -2.0, 0.0, 0.5, 3.0])
def test_p_value_is_two_sided(t: float) -> None:
    mean = MeanEstimate(t * 0.3, 0.3, 8)
    assert mean.p_value == pytest.approx(2 * stats.t.sf(abs(t), 7), rel=1e-9)


def test_p_value_without_spread():
    assert np.isnan(MeanEstimate(1.0, float("nan"), 1).p_value)
    assert MeanEstimate(0.0, 0.0, 5).p_value == 1.0
    assert MeanEstimate(0.1, 0.0, 5).p_value == 0.0


def test_an_interval_prints_its_ends():
    assert f"{Interval(0.123456, 1 / 3)}" == "[0.1235, 0.3333]"
    assert f"{Interval(-0.5, 0.25):+.2f}" == "[-0.50, +0.25]"


@pytest.mark.parametrize("level", [0, 1, -0.1, 95, float("nan")])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    for use in (
        normal_quantile,
        lambda level: student_quantile(level, 3),
        MeanEstimate(0.0, 1.0, 9).interval,
        MeanEstimate(0.0, 1.0, 1).interval,
        lambda level: wilson_interval(np.array([1]), np.array([2]), level),
    ):
        with pytest.raises(OptionError, match=r"level must lie between 0 and 1.*0\.95 is usual"):
            use(level)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(("successes", "trials"), [(0, 5), (5, 5), (1, 9), (300, 1000), (1, 1)])
def test_wilson_equals_scipy(successes: int, trials: int, level: float) -> None:
    expected = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    low, high = wilson_interval(np.array([successes]), np.array([trials]), level)
    assert low == pytest.approx([expected.low], abs=1e-12)
    assert high == pytest.approx([expected.high], abs=1e-12)


def test_wilson_knows_nothing_where_nothing_was_tried() -> None:
    low, high = wilson_interval(np.array([0, 1]), np.array([0, 2]))
    assert (low[0], high[0]) == (0, 1)
    assert 0 < low[1] < high[1] < 1


def test_interval() -> None:
    interval = Interval(0.02, 1.98)
    assert 1.0 in interval
    assert 2.0 not in interval
    assert repr(Interval(0.123456, 2.0)) == "[0.1235, 2]"
    with pytest.raises(AttributeError):
        interval.low = 0.0  # type: ignore[misc]


def test_equal_weights_give_the_textbook_mean(rng: np.random.Generator) -> None:
    x = rng.normal(size=30)
    for estimate in (weighted_mean(x), weighted_mean(x, np.full(30, 2.5))):
        assert estimate.value == pytest.approx(x.mean())
        assert estimate.std_error == pytest.approx(x.std(ddof=1) / np.sqrt(30))
        assert estimate.n == 30
    expected = stats.t.interval(0.9, 29, loc=x.mean(), scale=stats.sem(x))
    interval = weighted_mean(x).interval(0.9)
    assert (interval.low, interval.high) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_weighted_mean_by_hand() -> None:
    # Mean (1*2 + 3*6)/4 = 5; without one of the two it is 6, without the other 2.
    estimate = weighted_mean(np.array([2.0, 6.0, 100.0]), np.array([1.0, 3.0, 0.0]))
    assert estimate.value == pytest.approx(5)
    assert estimate.std_error == pytest.approx(np.sqrt(1 / 2 * ((6 - 5) ** 2 + (2 - 5) ** 2)))
    assert estimate.n == 2
    assert estimate.effective == pytest.approx(4**2 / (1**2 + 3**2))


def test_the_error_is_that_of_leaving_each_unit_out(rng: np.random.Generator) -> None:
    x, w, units = rng.normal(size=40), rng.pareto(1.0, 40) + 0.1, np.arange(40) % 9
    mean = np.average(x, weights=w)
    left_out = [np.average(x[units != u], weights=w[units != u]) for u in range(9)]
    estimate = weighted_mean(x, w, units=units)
    expected = np.sqrt(8 / 9 * np.sum((np.array(left_out) - mean) ** 2))
    assert estimate.std_error == pytest.approx(expected)
    assert estimate.effective == pytest.approx(effective_units(np.bincount(units, w)))


def test_degrees_of_freedom_are_those_of_effective_units() -> None:
    mean = MeanEstimate(1.0, 0.5, 500, effective=4.5)
    assert mean.interval().high == pytest.approx(1 + 0.5 * stats.t.ppf(0.975, 3.5))
    assert mean.p_value == pytest.approx(2 * stats.t.sf(2, 3.5))
    assert MeanEstimate(1.0, 0.5, 500).effective == 500
    assert MeanEstimate(1.0, 0.5, 500, effective=1.2).degrees_of_freedom == 1


def test_errors_of_several_columns_with_leverages() -> None:
    influence = np.array([[0.3, 0.0], [-0.1, 0.2], [-0.2, -0.2]])
    h = np.array([0.5, 0.25, 0.25])
    expected = np.sqrt(2 / 3 * ((0.3 / 0.5) ** 2 + (0.1 / 0.75) ** 2 + (0.2 / 0.75) ** 2))
    assert jackknife_error(influence, h)[0] == pytest.approx(expected)
    assert jackknife_error(influence, np.stack([h, h], axis=1)) == pytest.approx(
        jackknife_error(influence, h)
    )
    assert np.isnan(jackknife_error(influence[:1], h[:1])).all()
    assert np.isnan(jackknife_error(np.array([0.0, 0.0]), np.array([1.0, 0.0])))


def test_degrees_of_freedom_of_a_sum() -> None:
    assert joint_degrees_of_freedom(np.array([1.0, 1.0]), np.array([5.0, 5.0])) == pytest.approx(10)
    assert joint_degrees_of_freedom(np.array([1.0, 0.0]), np.array([5.0, 3.0])) == pytest.approx(5)
    # A known error of the same size: (1 + 1)^2 / (1/5).
    assert joint_degrees_of_freedom(np.array([1.0, 1.0]), np.array([5.0, np.inf])) == 20
    assert joint_degrees_of_freedom(np.array([0.0, 0.0]), np.array([5.0, 7.0])) == 7


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.3, 1.6])
def test_intervals_hold_where_few_units_have_most_of_the_weight(exponent: float) -> None:
    rng = np.random.default_rng(3)
    share = 1 / np.arange(1, 501) ** exponent
    covered = []
    for _ in range(400):
        size = rng.multinomial(5000, share / share.sum()).astype(float)
        x = rng.normal(size=500) + 3 * rng.normal(size=500) / np.sqrt(np.maximum(size, 1))
        covered.append(0.0 in weighted_mean(x, size).interval())
    assert 0.92 <= np.mean(covered) <= 0.99


def test_few_values_have_no_error() -> None:
    none = weighted_mean(np.array([]))
    assert none.n == 0
    assert np.isnan(none.value)
    one = weighted_mean(np.array([3.0, 4.0]), units=np.array([7, 7]))
    assert (one.value, one.n) == (3.5, 1)
    assert np.isnan(one.std_error)
    assert (one.interval().low, one.interval().high) == (-np.inf, np.inf)
    assert repr(MeanEstimate(0.5, 0.01, 3)) == "0.5000 +- 0.0100"


@given(
    st.lists(
        st.tuples(st.floats(-5, 5), st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12
    )
)
def test_counts_equal_repeats_within_units(members: list[tuple[float, int, int]]) -> None:
    x, count, unit = (np.array(column) for column in zip(*members, strict=True))
    counted = weighted_mean(x, count, units=unit)
    repeated = weighted_mean(np.repeat(x, count), units=np.repeat(unit, count))
    assert counted.n == repeated.n == len(set(unit.tolist()))
    assert counted.value == pytest.approx(repeated.value, abs=1e-12)
    assert counted.std_error == pytest.approx(repeated.std_error, abs=1e-9, nan_ok=True)


def test_clustered_error_is_the_spread_of_the_mean(rng: np.random.Generator) -> None:
    # 25 units of 1 to 8 values that share an effect: treating values as independent is far off.
    means, clustered, naive = [], [], []
    for _ in range(400):
        size = rng.integers(1, 9, 25)
        x = np.repeat(rng.normal(size=25), size) + 0.3 * rng.normal(size=size.sum())
        units = np.repeat(np.arange(25), size)
        means.append(x.mean())
        clustered.append(weighted_mean(x, units=units).std_error)
        naive.append(weighted_mean(x).std_error)
    spread = np.std(means, ddof=1)  # itself known to 1/sqrt(800) = 3.5%
    assert np.mean(clustered) == pytest.approx(spread, rel=0.15)
    assert np.mean(naive) < 0.6 * spread


def test_bootstrap_weights(rng: np.random.Generator) -> None:
    weights = bootstrap_weights(20, 500, seed=3)
    assert weights.shape == (500, 20)
    assert (weights.sum(axis=1) == 20).all()
    np.testing.assert_array_equal(weights, bootstrap_weights(20, 500, seed=3))
    # Each unit is drawn once on average, with variance 1 - 1/20.
    assert weights.mean(axis=0) == pytest.approx(1, abs=4 / np.sqrt(500))
    x = rng.normal(size=20)
    spread = (weights @ x / 20).std()
    assert spread == pytest.approx(x.std() / np.sqrt(20), rel=0.15)
