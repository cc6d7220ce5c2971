"""|dAP| equals what average precision really changes by when two documents swap."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt.bias.given import KnownBias
from untilt.errors import OptionError
from untilt.objectives.map_lambdas import MapObjective
from untilt.objectives.units import build_units
from untilt.weighting import Balanced


def list_units(gains, weight=None, *, collapse_pairs=False):
    """Lists of these gains, one query each, shown in order."""
    lengths = np.array([len(gain) for gain in gains])
    return build_units(
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        query=np.arange(len(gains)),
        row=np.arange(lengths.sum()),
        place=np.concatenate([np.arange(n) for n in lengths]),
        gain=np.concatenate(gains).astype(float),
        weight=np.ones(len(gains)) if weight is None else np.asarray(weight, dtype=float),
        slate_of_list=np.arange(len(gains)),
        n_rows=int(lengths.sum()),
        collapse_pairs=collapse_pairs,
    )


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
    objective = MapObjective(list_units([relevance_by_rank]), loss="hinge")
    scores = np.linspace(0.2, 0.1, n)  # ranked as shown
    S = objective.evaluate(scores, want_S=True).S
    return S / (1 - (scores[:, None] - scores[None, :]))


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
    graded = MapObjective(list_units([[3.0, 0.0, 0.5, 0.0]])).evaluate(scores, want_loss=True)
    binary = MapObjective(list_units([[1.0, 0.0, 1.0, 0.0]])).evaluate(scores, want_loss=True)
    assert np.array_equal(graded.gradient, binary.gradient)
    assert graded.loss == binary.loss


def test_lists_where_nothing_can_swap_give_nothing():
    units = list_units([[0, 0], [1, 1, 1], [1], [0]])
    found = MapObjective(units).evaluate(np.arange(7.0), want_loss=True, want_S=True)
    assert not found.gradient.any()
    assert not found.hessian.any()
    assert found.loss == 0
    assert not found.S.any()


def test_a_list_counts_as_often_as_it_was_shown():
    gains, scores = [[0, 1, 0], [1, 0, 1]], np.array([0.2, 0.1, 0.5, 0.3, 0.9, 0.4])
    thrice = MapObjective(list_units(gains, weight=[3, 1])).evaluate(scores)
    once = MapObjective(list_units(gains)).evaluate(scores)
    assert thrice.gradient[:3] == pytest.approx(3 * once.gradient[:3])
    assert thrice.gradient[3:] == pytest.approx(once.gradient[3:])


def test_lambdas_push_relevant_up_and_sum_to_nothing():
    gains, scores = [[0, 1, 0, 1, 0]], np.array([0.5, 0.1, 0.4, 0.2, 0.3])
    gradient = MapObjective(list_units(gains)).evaluate(scores).gradient
    assert np.all(gradient[[1, 3]] < 0)
    assert np.all(gradient[[0, 2, 4]] > 0)
    assert gradient.sum() == pytest.approx(0, abs=1e-15)


def test_sessions_of_one_slate_keep_their_own_labels():
    """Two different sessions of one slate are two units; summed pairs are refused."""
    same = {
        "indptr": np.array([0, 3, 6]), "query": np.zeros(2, dtype=np.int64),
        "row": np.tile(np.arange(3), 2), "place": np.tile(np.arange(3), 2),
        "gain": np.array([1.0, 0, 0, 0, 1, 0]), "weight": np.ones(2),
        "slate_of_list": np.zeros(2, dtype=np.int64), "n_rows": 3,
    }  # fmt: skip
    assert build_units(**same, collapse_pairs=False).n_units == 2
    with pytest.raises(OptionError, match=r"needs the labels of every list.*collapse_pairs=False"):
        MapObjective(build_units(**same))


def test_there_is_nothing_to_bake():
    objective = MapObjective(list_units([[1, 0]]))
    assert objective.baked(np.ones((2, 2))) is objective


def test_an_affine_correction_is_refused():
    bias = KnownBias([1.0, 0.5], eps_plus=[0.9, 0.8], eps_minus=[0.2, 0.1])
    weighting = Balanced(bias)
    with pytest.raises(OptionError, match=r"metric='map' cannot take an affine correction.*'dcg'"):
        MapObjective(list_units([[1, 0]])).baked(weighting.table(2), weighting.offset(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "square"}, r"loss must be one of logistic, hinge\. Got 'square'"),
        ({"sigma": -1.0}, r"sigma must be above 0\. Got -1\.0 instead"),
        ({"truncation": -2}, r"truncation must be at least 1\. Got -2 instead"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(OptionError, match=message):
        MapObjective(list_units([[1, 0]]), **options)
