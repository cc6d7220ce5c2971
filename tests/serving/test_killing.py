"""A real server over loopback: it is killed under load, started again, and ends well when asked."""

import pytest
from tests.serving.killing import Client, Running, killed_again_and_again

from untilt.serving.collect import collect


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path, kills):
    tally = killed_again_and_again(kills, seed=kills, folder=tmp_path, seconds=0.6)
    assert tally.lists_acknowledged > 0
    assert tally.events_acknowledged > 0
    assert (tally.lists_lost, tally.events_lost) == (0, 0), tally
    assert (tally.counted_twice, tally.changed) == (0, 0), tally
    assert tally.lists_refused_and_found == 0, tally
    assert tally.lists_acknowledged <= tally.lists_found <= tally.lists_sent
    assert tally.events_acknowledged <= tally.events_found <= tally.events_sent
    # The folder of the killed server serves the next one, which ends well.
    workers = "1" if kills == 1 else "2"
    server = Running(tmp_path / "r.untilt", "--log", tmp_path / "log", "--workers", workers)
    asked = {"session": "last", "query": "q", "documents": ["x", "y"], "features": [[1, 0], [2, 0]]}
    with Client(server.port) as client:
        status, shown = client.post("/rank", asked)
    assert (status, shown["documents"]) == (200, ["y", "x"])
    assert server.stop() == 0, server.said
    assert collect(tmp_path / "log", tmp_path / "clicks").lists == tally.lists_found + 1
