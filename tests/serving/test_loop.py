"""The closed loop in one test, behind real HTTP; its statistics follow from a seed."""

import numpy as np
import pytest
from tests.serving.loop import DEPTH, THETA, closed_loop


@pytest.mark.parametrize(
    ("sessions", "queries"), [(1_000, 10), pytest.param(30_000, 100, marks=pytest.mark.slow)]
)
def test_serving_with_exploration_closes_the_loop(tmp_path, sessions, queries):
    loop = closed_loop(tmp_path, sessions=sessions, queries=queries)
    assert "audit.positions-apart" in codes(loop.before.verdict)
    assert "audit.identified" in codes(loop.after.verdict)
    assert any(each.code == "audit.experiment" for each in loop.after.notes)
    # The curve covers the truth: at every position within three standard errors of its logarithm.
    theta = loop.bias.at(np.arange(1, DEPTH + 1))
    z = np.log(theta / (THETA / THETA[0]))[1:] / (loop.bias.std_error / theta)[1:]
    assert np.all(np.abs(z) < 3), z
    assert loop.explored > 0.1 * sessions
    assert loop.lost_per_session <= loop.promised
    assert loop.new_value > loop.old_value
    assert loop.models[0] != loop.models[1]


def codes(fact):
    return [part.code for part in fact.parts]
