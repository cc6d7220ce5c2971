"""Where a ranker puts documents, by hand."""

from dataclasses import replace

import numpy as np
import pytest

import untilt as ut
from untilt.workflow.stage_evaluate import changed_queries, new_positions


@pytest.fixture
def log():
    """Query 1: documents 10, 11, 12 in this order, 3 sessions; query 2: 20, 21, 1 session."""
    return ut.ClickLog(
        query_id=[1, 2],
        doc_id=[10, 11, 12, 20, 21],
        doc_query=[0, 0, 0, 1, 1],
        indptr=[0, 3, 5],
        query=[0, 1],
        document=[0, 1, 2, 3, 4],
        position=[1, 2, 3, 1, 2],
        label=[1, 0, 0, 0, 1],
        count=[3, 1],
    )


def test_average_new_positions_by_hand(log):
    # Query 1 is turned round (1 -> 3, 2 -> 2, 3 -> 1), query 2 stays (1 -> 1, 2 -> 2).
    found = new_positions(log, np.array([0.0, 1.0, 2.0, 2.0, 1.0]), level=0.95)
    assert found.value == pytest.approx([(3 * 3 + 1) / 4, 2.0, 1.0])


def test_counts_are_sessions(log):
    scores = np.array([0.0, 1.0, 2.0, 2.0, 1.0])
    repeated = log.take(np.array([0, 0, 0, 1]), count=np.ones(4, int))
    counted, apart = (new_positions(each, scores, level=0.9) for each in (log, repeated))
    for name in ("position", "value", "low", "high"):
        assert getattr(counted, name) == pytest.approx(getattr(apart, name), nan_ok=True)
    assert changed_queries(log, scores) == changed_queries(repeated, scores)


def test_the_query_that_changes_most_by_hand(log):
    found = changed_queries(log, np.array([0.0, 1.0, 2.0, 2.0, 1.0]))
    assert [each.query for each in found] == ["1"]  # query 2 does not change
    assert found[0].change == pytest.approx(2 * abs(1 / np.log2(2) - 1 / np.log2(4)))
    assert [d.document for d in found[0].documents] == ["12", "11", "10"]
    assert [d.old_position for d in found[0].documents] == [3, 2, 1]
    assert found[0].documents[2].clicks == 3
    assert found[0].sessions == 3


def test_new_positions_are_slots_of_the_list(log):
    """An advertisement at 2: what goes down from 1 gets 3; equal scores share 3 and 4."""
    gap = replace(log, position=np.array([1, 3, 4, 1, 2]))
    found = new_positions(gap, np.array([0.0, 2.0, 0.0, 2.0, 1.0]), level=0.95)
    assert found.value[[0, 2, 3]] == pytest.approx([(3 * 3.5 + 1) / 4, 1.0, 3.5])
    changed = changed_queries(gap, np.array([0.0, 1.0, 2.0, 2.0, 1.0]))
    assert [d.new_position for d in changed[0].documents] == [1, 3, 4]
    assert new_positions(gap, -np.arange(5.0), level=0.95).value[[0, 1, 2, 3]] == pytest.approx(
        [1, 2, 3, 4]
    )
    assert changed_queries(gap, -np.arange(5.0)) == ()
