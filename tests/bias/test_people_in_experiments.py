"""Shuffles and swaps of people who come back: intervals that hold where readers differ."""

from dataclasses import replace

import numpy as np
import pytest
from tests.heavy_users import heavy_users

from untilt import PivotSwap, ShuffledTop
from untilt._core.statistics import left_out
from untilt.bias.experiments import shuffled
from untilt.bias.log_ratios import log_ratios

ESTIMATORS = {
    "shuffle": ("shuffle", ShuffledTop()),
    "swap": ("swap", PivotSwap()),
    "swap, by length": ("swap", PivotSwap(within="length")),
}


def test_squares_by_leaving_out_each_person() -> None:
    made = heavy_users(0, sessions=8000, n_people=40, zipf=0.3, experiment="shuffle")
    log = made.top(4)
    assert log.person is not None
    z, _ = log_ratios(ShuffledTop().fit(log).bias_)
    clicks = shuffled._clicks(log, 4)
    lost = shuffled._by_list(log, *clicks)
    squares = [np.sum(left_out(log.person[lists], *more) ** 2) for lists, *more in lost]
    others = (log.take(log.person != who) for who in range(40))
    moved = [log_ratios(ShuffledTop(check=False).fit(each).bias_)[0] - z for each in others]
    np.testing.assert_allclose(squares[1:], np.sum(np.square(moved), axis=0)[1:], rtol=0.15)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_counts_are_repeated_sessions(name: str) -> None:
    experiment, estimator = ESTIMATORS[name]
    log = heavy_users(
        1, sessions=6000, n_people=8, n_queries=3, by="session", experiment=experiment
    )
    log = log.top(3) if experiment == "shuffle" else log
    estimator = replace(estimator, check=False)
    assert log.collapse().n_lists < log.n_lists
    one, other = (estimator.fit(each).bias_ for each in (log, log.collapse()))
    np.testing.assert_allclose(other.std_error, one.std_error, rtol=1e-6)
    np.testing.assert_allclose(other.high, one.high, rtol=1e-6)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_intervals_are_wider_where_heavy_users_read_in_ways_of_their_own(name: str) -> None:
    experiment, estimator = ESTIMATORS[name]
    log = heavy_users(2, sessions=6000, read_differ=0.4, experiment=experiment)
    known, unknown = (estimator.fit(each).bias_ for each in (log, replace(log, person=None)))
    np.testing.assert_array_equal(known.examination, unknown.examination)
    assert np.all(known.std_error[1:] >= unknown.std_error[1:])
    assert np.mean(known.std_error[1:]) > 1.2 * np.mean(unknown.std_error[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_coverage_with_people_who_read_differently(name: str) -> None:
    """Of the mean curve: .92 or more with people, .67 to .78 without."""
    experiment, estimator = ESTIMATORS[name]
    exponent = 0.8 * np.exp(0.3 * np.random.default_rng(10**6).normal(size=400_000))
    held = []
    for seed in range(40):
        log = heavy_users(seed, read_differ=0.3, experiment=experiment)
        curves = [estimator.fit(each).bias_ for each in (log, replace(log, person=None))]
        truth = np.array([np.mean(k**-exponent) for k in range(1, curves[0].depth + 1)])
        held.append([np.mean(((b.low <= truth) & (truth <= b.high))[1:]) for b in curves])
    known, unknown = np.mean(held, axis=0).tolist()
    assert known >= 0.88
    assert unknown < 0.85
