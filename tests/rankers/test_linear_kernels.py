"""The compiled kernels against twenty-line versions, finite differences and hand arithmetic."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt.data.slates import Slates
from untilt.objectives.losses import DcgBound, PairHinge, hinge_against_all, hinge_by_labels
from untilt.objectives.pair_slates import RowSlates, sum_pairs, sum_rows


def random_lists(rng, n_queries=9, depth=7, repeats=3):
    """Lists of several lengths, some slates shown many times, documents in several slates."""
    indptr, query, row, place, slate = [0], [], [], [], []
    start, slates_made = 0, 0
    for q in range(n_queries):
        n_documents = int(rng.integers(1, depth + 4))
        for _ in range(2):
            length = int(rng.integers(1, min(depth, n_documents) + 1))
            documents = start + rng.permutation(n_documents)[:length]
            for _ in range(int(rng.integers(1, repeats + 1))):
                row += list(documents)
                place += list(range(length))
                indptr.append(len(row))
                query.append(q)
                slate.append(slates_made)
            slates_made += 1
        start += n_documents
    lists = Slates(
        indptr=np.array(indptr),
        query=np.array(query),
        count=np.ones(len(query)),
        document=np.array(row),
        position_index=np.array(place),
        n_documents=start,
    )
    return lists, np.array(slate)


def one_slate(weight):
    """A slate of as many documents as there are weights."""
    n = len(weight)
    return RowSlates(
        indptr=np.array([0, n]),
        query=np.zeros(1, dtype=np.int64),
        count=np.ones(1),
        document=np.arange(n),
        position_index=np.arange(n),
        n_documents=n,
        weight=np.asarray(weight, dtype=float),
    )


def packed_and_labelled(slates):
    packed = slates.start >= 0
    return slates.take(np.flatnonzero(packed)), slates.take(np.flatnonzero(~packed))


def slow_bound(lists, value, scores, sigma):
    total = 0.0
    for i in range(len(lists.indptr) - 1):
        rows = slice(lists.indptr[i], lists.indptr[i + 1])
        s = scores[lists.document[rows]]
        for a, worth in enumerate(value[rows]):
            others = np.delete(s, a)
            if len(others) == 0:
                continue
            rank = 1 + np.sum(np.log2(1 + np.exp(-sigma * (s[a] - others))))
            total += worth / np.log2(1 + rank)
    return total


def slow_hinge(lists, gain, weight, row_weight, scores, *, plain, against_all):
    """Every list, every pair: the loss and its gradient."""
    total, gradient = 0.0, np.zeros(lists.n_documents)
    for n in range(len(lists.indptr) - 1):
        at = range(lists.indptr[n], lists.indptr[n + 1])
        for i in at:
            for j in at:
                loser = 0.0 if against_all else gain[j]
                if i == j or gain[i] <= loser:
                    continue
                w = weight[n] * row_weight[lists.position_index[i]]
                w *= 1.0 if plain else gain[i] - loser
                a, b = lists.document[i], lists.document[j]
                if scores[a] - scores[b] < 1:
                    total += w * (1 - scores[a] + scores[b])
                    gradient[a] -= w
                    gradient[b] += w
    return total, gradient


def test_bound_of_two_documents_by_hand():
    slates = one_slate([3.0, 0.0])
    value, _ = DcgBound(slates).evaluate(np.array([0.0, 0.0]))
    assert value == pytest.approx(3 / np.log2(1 + 1 + 1))  # b(0) = log2(2) = 1: rank at most 2
    value, _ = DcgBound(slates).evaluate(np.array([1.0, 0.0]))
    assert value == pytest.approx(3 / np.log2(2 + np.log2(1 + np.exp(-1))))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_bound_is_the_sum_over_sessions(rng, sigma):
    lists, slate = random_lists(rng)
    value = rng.choice([0.0, 0.0, 1.0, 2.5], size=len(lists.document))
    scores = rng.normal(size=lists.n_documents)
    bound = DcgBound(sum_rows(lists, slate, value), sigma=sigma)
    assert bound.evaluate(scores)[0] == pytest.approx(slow_bound(lists, value, scores, sigma))


def test_bound_gradient_is_the_finite_difference(rng):
    lists, slate = random_lists(rng)
    value = rng.choice([0.0, 1.0, -0.4], size=len(lists.document))
    bound = DcgBound(sum_rows(lists, slate, value), sigma=1.3)
    scores = rng.normal(size=lists.n_documents)
    _, gradient = bound.evaluate(scores)
    for row in range(lists.n_documents):
        step = np.zeros_like(scores)
        step[row] = 1e-5
        slope = (bound.evaluate(scores + step)[0] - bound.evaluate(scores - step)[0]) / 2e-5
        assert gradient[row] == pytest.approx(slope, abs=1e-8)


def test_bound_lies_below_dcg_and_meets_it_at_the_top(rng):
    n = 12
    weight = rng.exponential(size=n)
    slates = one_slate(weight)
    for spread in (0.1, 1.0, 5.0, 200.0):
        scores = spread * rng.permutation(n).astype(float)
        rank = 1 + np.sum(scores[None, :] > scores[:, None], axis=1)
        dcg = np.sum(weight / np.log2(1 + rank))
        assert DcgBound(slates).evaluate(scores)[0] <= dcg
    alone = np.where(rank == 1, 2.0, 0.0)
    at_top = one_slate(alone)
    assert DcgBound(at_top).evaluate(scores)[0] == pytest.approx(2.0)


def test_bound_survives_enormous_scores():
    slates = one_slate([1.0, 1.0])
    value, gradient = DcgBound(slates).evaluate(np.array([1e6, -1e6]))
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def four_lists():
    """Two lists of one slate, one of another of the same query, and a lone document."""
    lists = Slates(
        indptr=np.array([0, 2, 4, 6, 7]),
        query=np.array([0, 0, 0, 1]),
        count=np.array([1, 2, 4, 8]),
        document=np.array([5, 3, 5, 3, 3, 5, 8]),
        position_index=np.array([0, 1, 0, 1, 0, 1, 0]),
        n_documents=9,
    )
    return lists, np.array([0, 0, 1, 2])


def test_row_slates_sum_the_sessions_of_a_slate():
    lists, slate = four_lists()
    slates = sum_rows(lists, slate, np.array([1.0, 0.0, 0.5, 2.0, 0.0, 4.0, 9.0]))
    # The lone document of query 1 has nobody to be above.
    assert slates.document.tolist() == [5, 3, 3, 5]
    assert slates.weight.tolist() == [1.5, 2.0, 0.0, 4.0]
    assert slates.indptr.tolist() == [0, 2, 4]
    assert slates.query_ptr.tolist() == [0, 2]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_sorted_hinge_of_labels_is_the_sum_over_pairs(rng, plain, spread):
    lists, slate = random_lists(rng, repeats=1)
    gain = rng.choice([0.0, 1.0, 2.0, 3.5], size=len(lists.document))
    weight = rng.exponential(size=len(lists.query))
    row_weight = np.arange(1.0, 8.0)
    slates = sum_pairs(lists, slate, gain=gain, weight=weight, plain=plain)
    packed, labelled = packed_and_labelled(slates)
    assert packed.n_slates == 0
    scores = spread * rng.normal(size=lists.n_documents)
    loss, gradient = hinge_by_labels(labelled, row_weight).evaluate(scores)
    slow = slow_hinge(lists, gain, weight, row_weight, scores, plain=plain, against_all=False)
    assert loss == pytest.approx(slow[0], rel=1e-12)
    np.testing.assert_allclose(gradient, slow[1], atol=1e-12)


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_sorted_hinge_against_all_is_the_sum_over_sessions(rng, spread):
    lists, slate = random_lists(rng)
    gain = rng.choice([0.0, 0.0, 1.0], size=len(lists.document))
    weight = rng.integers(1, 5, size=len(lists.query)).astype(float)
    row_weight = np.arange(1.0, 8.0)
    owner = np.repeat(np.arange(len(weight)), np.diff(lists.indptr))
    value = weight[owner] * gain * row_weight[lists.position_index]
    hinge = hinge_against_all(sum_rows(lists, slate, value))
    scores = spread * rng.normal(size=lists.n_documents)
    loss, gradient = hinge.evaluate(scores)
    slow = slow_hinge(lists, gain, weight, row_weight, scores, plain=False, against_all=True)
    assert loss == pytest.approx(slow[0], rel=1e-12)
    np.testing.assert_allclose(gradient, slow[1], atol=1e-11)


def test_packed_and_labelled_slates_together_are_all(rng):
    lists, slate = random_lists(rng, repeats=6)
    gain = rng.choice([0.0, 1.0], size=len(lists.document))
    weight = np.ones(len(lists.query))
    row_weight = np.linspace(1, 3, 7)
    slates = sum_pairs(lists, slate, gain=gain, weight=weight)
    packed, labelled = packed_and_labelled(slates)
    assert packed.n_slates > 0
    assert labelled.n_slates > 0
    assert packed.n_slates + labelled.n_slates == slates.n_slates
    table = np.repeat(row_weight[: slates.depth, None], slates.depth, axis=1)
    scores = rng.normal(size=lists.n_documents)
    parts: list[Any] = [PairHinge.of(packed, table, None), hinge_by_labels(labelled, row_weight)]
    results = [part.evaluate(scores) for part in parts]
    slow = slow_hinge(lists, gain, weight, row_weight, scores, plain=False, against_all=False)
    assert sum(loss for loss, _ in results) == pytest.approx(slow[0], rel=1e-12)
    np.testing.assert_allclose(sum(g for _, g in results), slow[1], atol=1e-11)


def test_pairs_exactly_at_the_margin_cost_nothing_and_stay_consistent():
    """Scores a margin apart, as integers and as sums that round: loss = offset + slope . scores."""
    for step in (1.0, 0.1, 0.3):
        scores = np.cumsum(np.full(30, step))
        slates = one_slate(np.ones(30))
        loss, gradient = hinge_against_all(slates).evaluate(scores)
        margins = np.maximum(0, 1 - (scores[:, None] - scores[None, :]))
        assert loss == pytest.approx(margins.sum() - np.trace(margins), rel=1e-12)
        assert gradient.sum() == pytest.approx(0, abs=1e-9)


def test_long_lists_use_the_same_answer(rng):
    n = 3000
    gain = rng.integers(0, 5, size=n).astype(float)
    lists = replace(one_slate(np.ones(n)), position_index=np.zeros(n, dtype=np.int64))
    slates = sum_pairs(lists, np.array([0]), gain=gain, weight=np.array([0.7]))
    scores = rng.normal(size=n) + gain
    loss, gradient = hinge_by_labels(slates, np.ones(1)).evaluate(scores)
    difference = scores[:, None] - scores[None, :]
    w = 0.7 * np.maximum(gain[:, None] - gain[None, :], 0) * (difference < 1)
    assert loss == pytest.approx(np.sum(w * (1 - difference)), rel=1e-10)
    np.testing.assert_allclose(gradient, w.sum(axis=0) - w.sum(axis=1), atol=1e-7)
