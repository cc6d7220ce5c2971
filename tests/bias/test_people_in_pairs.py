"""Harvested curves of people who come back: intervals that hold where readers differ."""

from dataclasses import replace

import numpy as np
import pytest
from tests.heavy_users import heavy_users

from untilt import AdjacentChain, AllPairs, ClickLog
from untilt._core.statistics import left_out
from untilt.bias.harvesting import pairs
from untilt.bias.harvesting.harvesting import tree_equations
from untilt.bias.log_ratios import log_ratios


def _chain(log: ClickLog) -> np.ndarray:
    return log_ratios(AdjacentChain().fit(log).bias_)[0]


def test_squares_by_leaving_out_each_person() -> None:
    log = heavy_users(0, sessions=20_000, n_people=40, n_queries=30, read_differ=0.3, zipf=0.3)
    log = log.top(4)
    cells = pairs.counts_of_pairs(log, None)
    z, equations = tree_equations(pairs.pair_sums(cells, "session"), [(1, 2), (2, 3), (3, 4)])
    lost = pairs.influences_of_rows(cells, log, "session", equations, z)
    assert log.person is not None
    squares = [np.sum(left_out(log.person[at], *more) ** 2) for at, *more in lost]
    moved = [_chain(log.take(log.person != who)) - z for who in range(40)]
    np.testing.assert_allclose(squares[1:], np.sum(np.square(moved), axis=0)[1:], rtol=0.15)


@pytest.mark.parametrize("estimator", [AllPairs(), AdjacentChain()])
def test_counts_are_repeated_sessions(estimator) -> None:
    log = heavy_users(1, sessions=6000, n_people=8, n_queries=3).top(3)
    assert log.collapse().n_lists < log.n_lists
    one, other = (estimator.fit(each).bias_ for each in (log, log.collapse()))
    np.testing.assert_allclose(other.std_error, one.std_error, rtol=1e-6)
    np.testing.assert_allclose(other.high, one.high, rtol=1e-6)


def _covered(n_logs: int) -> tuple[float, float]:
    """Share of positions 2..10 whose interval holds the mean curve; and without people."""
    exponent = 0.8 * np.exp(0.3 * np.random.default_rng(10**6).normal(size=400_000))
    truth = np.array([np.mean(k**-exponent) for k in range(1, 11)])
    held = []
    for seed in range(n_logs):
        log = heavy_users(seed, read_differ=0.3)
        curves = [AllPairs().fit(each).bias_ for each in (log, replace(log, person=None))]
        held.append([np.mean(((b.low <= truth) & (truth <= b.high))[1:]) for b in curves])
    known, unknown = np.mean(held, axis=0).tolist()
    return known, unknown


def test_intervals_are_wider_where_heavy_users_read_in_ways_of_their_own() -> None:
    log = heavy_users(2, sessions=6000, read_differ=0.4)
    known, unknown = (AllPairs().fit(each).bias_ for each in (log, replace(log, person=None)))
    np.testing.assert_array_equal(known.examination, unknown.examination)
    assert np.all(known.std_error[4:] > 1.15 * unknown.std_error[4:])


@pytest.mark.slow
def test_coverage_with_people_who_read_differently() -> None:
    known, unknown = _covered(40)
    assert known >= 0.9
    assert unknown < 0.85
