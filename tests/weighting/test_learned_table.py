"""One driver for joint weightings: what it is given, what it gives back."""

import numpy as np
import pytest

from untilt import PairwiseDebiasing
from untilt.facts import codes, note
from untilt.weighting.base import LearnedTable


@pytest.fixture
def losses(rng):
    return rng.uniform(1, 2, (3, 4, 4))


def test_each_update_goes_on_from_the_state_before(losses):
    joint = PairwiseDebiasing(p=0.5)
    learned = LearnedTable(joint, 4)
    assert np.array_equal(learned.table, np.ones((4, 4)))
    state = None
    for S in losses:
        state = joint.update(S, state)
        assert np.array_equal(learned.update(S), joint.table_of(state))
    assert len(learned.history) == 3
    assert np.array_equal(learned.history[-1].plus, state.plus)


def test_a_restart_forgets_everything(losses):
    learned = LearnedTable(PairwiseDebiasing(), 4)
    first = learned.update(losses[0])
    learned.update(losses[1])
    learned.restart()
    assert learned.bias() is None
    assert np.array_equal(learned.table, np.ones((4, 4)))
    assert np.array_equal(learned.update(losses[0]), first)


def test_it_has_settled_when_no_weight_changes_by_a_thousandth():
    learned = LearnedTable(PairwiseDebiasing(), 3)
    t = np.array([1.0, 0.5, 0.25])
    S = np.outer(t, t[::-1])
    learned.update(S)
    assert not learned.settled
    learned.update(S)
    assert learned.settled
    learned.update(S * [[1.0], [1.002], [1.0]])
    assert not learned.settled


def test_the_bias_is_that_of_the_first_rounds(losses):
    learned = LearnedTable(PairwiseDebiasing(), 4)
    for S in losses:
        learned.update(S)
    assert np.array_equal(learned.bias(2).examination, learned.history[1].plus)
    assert np.array_equal(learned.bias().examination, learned.history[2].plus)
    assert codes(learned.bias(2).status.parts)[0] == "bias.boosting-rounds"
    status = note("bias.epochs", "after {epochs} epochs")(epochs=3)
    assert learned.bias(status=status).status.parts[0] is status
    assert not learned.bias().has_interval
