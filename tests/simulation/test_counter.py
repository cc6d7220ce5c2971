"""Counter-based random numbers: against whole-number arithmetic, and as random numbers."""

import numpy as np
import pytest
from scipy import stats

from untilt.simulation.sampler import draw_number, mixed, stream_of, uniform

WORD = 2**64


def slow_mixed(word: int) -> int:
    z = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def slow_uniform(key: int, session: int, draw: int) -> float:
    golden = 0x9E3779B97F4A7C15
    stream = slow_mixed((key + (session + 1) * golden) % WORD)
    return (slow_mixed((stream + (draw + 1) * golden) % WORD) >> 11) / 2**53


def fast_uniform(key: int, session: int, draw: int) -> float:
    # Compiled code hands its words to Python as plain numbers; they go back in as words.
    return uniform(np.uint64(stream_of(np.uint64(key), session)), draw)


def test_the_first_numbers_of_splitmix64():
    """Published test vector of splitmix64 with seed 1234567."""
    golden = 0x9E3779B97F4A7C15
    states = [(1234567 + golden * i) % WORD for i in (1, 2, 3)]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(mixed(np.uint64(state))) for state in states] == expected
    assert [slow_mixed(state) for state in states] == expected


def test_uniforms_equal_whole_number_arithmetic():
    rng = np.random.default_rng(0)
    for _ in range(200):
        key, session, draw = (int(rng.integers(n)) for n in (2**63, 2**40, 5000))
        assert fast_uniform(key, session, draw) == slow_uniform(key, session, draw)


def test_no_two_places_share_a_draw():
    used = [0, 1] + [draw_number(place, purpose) for place in range(50) for purpose in range(6)]
    assert len(used) == len(set(used))


def table(n_sessions: int, draws: list[int]) -> np.ndarray:
    return np.array(
        [[fast_uniform(7, session, draw) for draw in draws] for session in range(n_sessions)]
    )


def test_draws_are_uniform_and_uncorrelated():
    draws = [0, 1, *(draw_number(k, purpose) for k in (0, 1, 9) for purpose in range(6))]
    u = table(4000, draws)
    assert u.min() >= 0
    assert u.max() < 1
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    # Between draws of a session, and between neighbouring sessions: |r| < 4 / sqrt(n).
    inside = np.corrcoef(u, rowvar=False)[np.triu_indices(len(draws), 1)]
    between = [np.corrcoef(u[1:, i], u[:-1, i])[0, 1] for i in range(len(draws))]
    assert np.abs(inside).max() < 4.5 / np.sqrt(len(u))
    assert np.abs(between).max() < 4.5 / np.sqrt(len(u))
    assert inside.std() == pytest.approx(1 / np.sqrt(len(u)), rel=0.25)
