"""|dAP| equals what average precision really changes by when two documents swap."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt import Balanced, KnownBias
from untilt.data.slates import Slates
from untilt.errors import OptionError
from untilt.objectives.pair_slates import sum_pairs
from untilt.objectives.pairs import MapObjective


def with_labels(gains, weight=None):
    """Lists of these gains, one query each, shown in order."""
    lengths = np.array([len(gain) for gain in gains])
    lists = Slates(
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        query=np.arange(len(gains)),
        count=np.ones(len(gains)) if weight is None else np.asarray(weight, dtype=float),
        document=np.arange(lengths.sum()),
        position_index=np.concatenate([np.arange(n) for n in lengths]),
        n_documents=int(lengths.sum()),
    )
    gain = np.concatenate(gains).astype(float)
    return sum_pairs(lists, lists.query, gain=gain, weight=lists.count, collapse=False)


def average_precision(relevance_by_rank):
    """The mean, over relevant documents, of precision at their rank."""
    hits = [r for r, relevant in enumerate(relevance_by_rank, start=1) if relevant]
    return sum((n + 1) / r for n, r in enumerate(hits)) / len(hits)


def swap(relevance_by_rank, a, b):
    changed = list(relevance_by_rank)
    changed[a], changed[b] = changed[b], changed[a]
    return abs(average_precision(changed) - average_precision(relevance_by_rank))


def deltas(relevance_by_rank):
    """|dAP| of all pairs, read off S: inside the margin of the hinge loss phi is 1 - x."""
    n = len(relevance_by_rank)
    objective = MapObjective(with_labels([relevance_by_rank]), loss="hinge")
    scores = np.linspace(0.2, 0.1, n)  # ranked as shown
    return objective.losses_by_position(scores) / (1 - (scores[:, None] - scores[None, :]))


@pytest.mark.parametrize("n", range(2, 7))
def test_every_swap_of_every_short_list(n):
    for relevance in itertools.product([0, 1], repeat=n):
        if not any(relevance):
            continue
        found = deltas(relevance)
        for i, j in itertools.product(range(n), repeat=2):
            wanted = swap(relevance, i, j) if relevance[i] > relevance[j] else 0.0
            assert found[i, j] == pytest.approx(wanted, abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 1), min_size=2, max_size=60).filter(any))
def test_swaps_of_longer_lists(relevance):
    found = deltas(relevance)
    for i, j in itertools.product(range(len(relevance)), repeat=2):
        if relevance[i] > relevance[j]:
            assert found[i, j] == pytest.approx(swap(relevance, i, j), abs=1e-12)


def test_one_list_by_hand():
    """Ranks 1..4 hold 0 1 0 1: AP = (1/2 + 2/4)/2. Second to first: (1 + 2/4)/2, so 1/4 more."""
    found = deltas([0, 1, 0, 1])
    assert found[1, 0] == pytest.approx((1 + 2 / 4) / 2 - (1 / 2 + 2 / 4) / 2)
    assert found[1, 2] == pytest.approx((1 / 2 + 2 / 4) / 2 - (1 / 3 + 2 / 4) / 2)
    assert found[3, 0] == pytest.approx((1 + 2 / 2) / 2 - (1 / 2 + 2 / 4) / 2)
    assert found[3, 2] == pytest.approx((1 / 2 + 2 / 3) / 2 - (1 / 2 + 2 / 4) / 2)


def test_relevant_means_a_gain_above_zero_however_large():
    scores = np.array([0.3, 0.1, 0.2, -0.4])
    graded = MapObjective(with_labels([[3.0, 0.0, 0.5, 0.0]])).evaluate(scores, want_loss=True)
    binary = MapObjective(with_labels([[1.0, 0.0, 1.0, 0.0]])).evaluate(scores, want_loss=True)
    assert np.array_equal(graded.gradient, binary.gradient)
    assert graded.loss == binary.loss


def test_lists_where_nothing_can_swap_give_nothing():
    slates = with_labels([[0, 0], [1, 1, 1], [1], [0]])
    found = MapObjective(slates).evaluate(np.arange(7.0), want_loss=True)
    assert not found.gradient.any()
    assert not found.hessian.any()
    assert found.loss == 0
    assert not MapObjective(slates).losses_by_position(np.arange(7.0)).any()


def test_a_list_counts_as_often_as_it_was_shown():
    gains, scores = [[0, 1, 0], [1, 0, 1]], np.array([0.2, 0.1, 0.5, 0.3, 0.9, 0.4])
    thrice = MapObjective(with_labels(gains, weight=[3, 1])).evaluate(scores)
    once = MapObjective(with_labels(gains)).evaluate(scores)
    assert thrice.gradient[:3] == pytest.approx(3 * once.gradient[:3])
    assert thrice.gradient[3:] == pytest.approx(once.gradient[3:])


def test_lambdas_push_relevant_up_and_sum_to_nothing():
    gains, scores = [[0, 1, 0, 1, 0]], np.array([0.5, 0.1, 0.4, 0.2, 0.3])
    gradient = MapObjective(with_labels(gains)).evaluate(scores).gradient
    assert np.all(gradient[[1, 3]] < 0)
    assert np.all(gradient[[0, 2, 4]] > 0)
    assert gradient.sum() == pytest.approx(0, abs=1e-15)


def test_sessions_of_one_slate_keep_their_own_labels():
    """Two different sessions of one slate are two lists; summed pairs are refused."""
    lists = Slates(
        indptr=np.array([0, 3, 6]),
        query=np.zeros(2, dtype=np.int64),
        count=np.ones(2),
        document=np.tile(np.arange(3), 2),
        position_index=np.tile(np.arange(3), 2),
        n_documents=3,
    )
    same = np.zeros(2, dtype=np.int64)
    data: dict[str, Any] = {"gain": np.array([1.0, 0, 0, 0, 1, 0]), "weight": np.ones(2)}
    assert sum_pairs(lists, same, **data, collapse=False).n_slates == 2
    with pytest.raises(OptionError, match=r"needs the labels of every list.*collapse=False"):
        MapObjective(sum_pairs(lists, same, **data))


def test_a_fixed_table_is_used_in_every_pass():
    objective, table = MapObjective(with_labels([[1, 0]])), np.array([[1.0, 3.0], [1.0, 1.0]])
    scores = np.array([0.0, 1.0])
    fixed, given_each_time = objective.with_table(table), objective.evaluate(scores, table)
    assert fixed.slates is objective.slates
    assert np.array_equal(fixed.evaluate(scores).gradient, given_each_time.gradient)


def test_an_affine_correction_is_refused():
    bias = KnownBias([1.0, 0.5], eps_plus=[0.9, 0.8], eps_minus=[0.2, 0.1])
    weighting = Balanced(bias)
    with pytest.raises(OptionError, match=r"metric='map' cannot take an affine correction.*'dcg'"):
        MapObjective(with_labels([[1, 0]])).with_table(weighting.table(2), weighting.offset(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "square"}, r"loss must be one of 'logistic', 'hinge'\. Got 'square'"),
        ({"sigma": -1.0}, r"sigma must be above 0\. Got -1\.0 instead"),
        ({"truncation": -2}, r"truncation must be at least 1\. Got -2 instead"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(OptionError, match=message):
        MapObjective(with_labels([[1, 0]]), **options)
