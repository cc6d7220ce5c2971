"""The EM loop: it climbs, it stops when nothing is left, and it keeps the best state."""

from typing import NamedTuple

import numpy as np
import pytest

from untilt._core.ascent import run_em
from untilt.errors import OptionError

HEADS, TAILS, SLOW = 30.0, 10.0, 0.95


class Coin(NamedTuple):
    p: np.ndarray


def likelihood(p):
    return float(HEADS * np.log(p) + TAILS * np.log(1 - p))


def coin(state):
    """A step that closes 5% of the way to the answer 0.75: EM with 95% missing information."""
    p = state.p
    return Coin(SLOW * p + (1 - SLOW) * 0.75), likelihood(p[0])


@pytest.mark.parametrize("accelerate", [False, True])
def test_it_climbs_to_the_maximum(accelerate):
    end = run_em(Coin(np.array([0.1])), coin, accelerate=accelerate, tolerance=1e-6)
    assert isinstance(end.state, Coin)
    assert end.converged
    assert np.all(np.diff(end.history) >= 0)
    assert likelihood(0.75) - end.log_likelihood < 2e-6
    assert end.log_likelihood == likelihood(end.state.p[0])
    assert (end.status.code, end.status.fields["steps"]) == ("em.converged", end.n_steps)


def test_acceleration_saves_steps():
    start = Coin(np.array([0.1]))
    plain, fast = (run_em(start, coin, accelerate=fast) for fast in (False, True))
    assert fast.n_steps < plain.n_steps / 4


def test_tolerance_is_what_is_left_to_gain():
    """A slow climb with small steps is not taken for the end."""
    for tolerance in (1e-2, 1e-4, 1e-6):
        end = run_em(Coin(np.array([0.1])), coin, tolerance=tolerance)
        assert 0 <= likelihood(0.75) - end.log_likelihood <= tolerance


def test_a_jump_that_would_lower_the_likelihood_is_not_taken():
    """Steps that turn round (0.7, 0.8, 0.7, ...) make the jump overshoot; history still climbs."""

    def turning(state):
        following, likelihood_now = coin(state)
        return Coin(1.5 - following.p), likelihood_now

    end = run_em(Coin(np.array([0.7])), turning, accelerate=True, max_steps=30)
    assert np.all(np.diff(end.history) >= 0)


def test_a_falling_likelihood_ends_it_with_the_best_state():
    values = iter([-10.0, -5.0, -7.0])
    end = run_em(0, lambda state: (state + 1, next(values)))
    assert (end.state, end.log_likelihood, end.converged) == (1, -5.0, False)
    assert end.status.code == "em.stopped"


def test_a_likelihood_that_is_no_number_ends_it_too():
    values = iter([-10.0, float("nan")])
    end = run_em(0, lambda state: (state + 1, next(values)))
    assert (end.state, end.converged) == (0, False)


def test_out_of_steps():
    end = run_em(Coin(np.array([0.1])), coin, max_steps=5)
    assert (end.n_steps, end.converged, len(end.history)) == (5, False, 5)
    assert (end.status.code, end.status.fields) == ("em.out-of-steps", {"steps": 5})
    assert "not converged" in repr(end)


def test_a_plain_tuple_stays_one_and_jumps_keep_to_the_bounds():
    def step(state):
        assert np.all((state[0] >= 0.2) & (state[0] <= 0.8))
        return (0.5 * state[0] + 0.5 * 0.8,), -float(np.sum((state[0] - 0.9) ** 2))

    end = run_em((np.array([0.2, 0.3]),), step, accelerate=True, low=0.2, high=0.8)
    assert type(end.state) is tuple
    assert end.state[0] == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tolerance": 0.0}, "tolerance must be above 0"), ({"max_steps": 0}, "max_steps must be")],
)
def test_options_are_checked(options, message):
    with pytest.raises(OptionError, match=message):
        run_em(0, lambda state: (state, 0.0), **options)
