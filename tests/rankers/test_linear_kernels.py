"""The compiled kernels against twenty-line versions, finite differences and hand arithmetic."""

import numpy as np
import pytest

from untilt.objectives.dcg_bound import DcgBound
from untilt.objectives.hinge import PairHinge, hinge_against_all, hinge_by_labels, split_units
from untilt.objectives.units import RowUnits, block_bounds, build_row_units, build_units


def slates(rng, n_queries=9, depth=7, repeats=3):
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
    return {
        "indptr": np.array(indptr),
        "query": np.array(query),
        "row": np.array(row),
        "place": np.array(place),
        "slate_of_list": np.array(slate),
        "n_rows": start,
    }


def without_place(lists):
    return {name: value for name, value in lists.items() if name != "place"}


def slow_bound(lists, value, scores, sigma):
    total = 0.0
    for i in range(len(lists["indptr"]) - 1):
        rows = slice(lists["indptr"][i], lists["indptr"][i + 1])
        s = scores[lists["row"][rows]]
        for a, worth in enumerate(value[rows]):
            others = np.delete(s, a)
            if len(others) == 0:
                continue
            rank = 1 + np.sum(np.log2(1 + np.exp(-sigma * (s[a] - others))))
            total += worth / np.log2(1 + rank)
    return total


def slow_hinge(lists, gain, weight, row_weight, scores, *, plain, against_all):
    """Every list, every pair: the loss and its gradient."""
    total, gradient = 0.0, np.zeros(lists["n_rows"])
    for n in range(len(lists["indptr"]) - 1):
        at = range(lists["indptr"][n], lists["indptr"][n + 1])
        for i in at:
            for j in at:
                loser = 0.0 if against_all else gain[j]
                if i == j or gain[i] <= loser:
                    continue
                w = weight[n] * row_weight[lists["place"][i]]
                w *= 1.0 if plain else gain[i] - loser
                a, b = lists["row"][i], lists["row"][j]
                if scores[a] - scores[b] < 1:
                    total += w * (1 - scores[a] + scores[b])
                    gradient[a] -= w
                    gradient[b] += w
    return total, gradient


def test_bound_of_two_documents_by_hand():
    units = RowUnits(np.array([0, 1]), np.array([0, 2]), np.array([0, 1]), np.array([3.0, 0.0]), 2)
    value, _ = DcgBound(units).evaluate(np.array([0.0, 0.0]))
    assert value == pytest.approx(3 / np.log2(1 + 1 + 1))  # b(0) = log2(2) = 1: rank at most 2
    value, _ = DcgBound(units).evaluate(np.array([1.0, 0.0]))
    assert value == pytest.approx(3 / np.log2(2 + np.log2(1 + np.exp(-1))))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_bound_is_the_sum_over_sessions(rng, sigma):
    lists = slates(rng)
    value = rng.choice([0.0, 0.0, 1.0, 2.5], size=len(lists["row"]))
    scores = rng.normal(size=lists["n_rows"])
    bound = DcgBound(build_row_units(value=value, **without_place(lists)), sigma=sigma)
    assert bound.evaluate(scores)[0] == pytest.approx(slow_bound(lists, value, scores, sigma))


def test_bound_gradient_is_the_finite_difference(rng):
    lists = slates(rng)
    value = rng.choice([0.0, 1.0, -0.4], size=len(lists["row"]))
    bound = DcgBound(build_row_units(value=value, **without_place(lists)), sigma=1.3)
    scores = rng.normal(size=lists["n_rows"])
    _, gradient = bound.evaluate(scores)
    for row in range(lists["n_rows"]):
        step = np.zeros_like(scores)
        step[row] = 1e-5
        slope = (bound.evaluate(scores + step)[0] - bound.evaluate(scores - step)[0]) / 2e-5
        assert gradient[row] == pytest.approx(slope, abs=1e-8)


def test_bound_lies_below_dcg_and_meets_it_at_the_top(rng):
    n = 12
    weight = rng.exponential(size=n)
    units = RowUnits(np.array([0, 1]), np.array([0, n]), np.arange(n), weight, n)
    for spread in (0.1, 1.0, 5.0, 200.0):
        scores = spread * rng.permutation(n).astype(float)
        rank = 1 + np.sum(scores[None, :] > scores[:, None], axis=1)
        dcg = np.sum(weight / np.log2(1 + rank))
        assert DcgBound(units).evaluate(scores)[0] <= dcg
    alone = np.where(rank == 1, 2.0, 0.0)
    at_top = RowUnits(np.array([0, 1]), np.array([0, n]), np.arange(n), alone, n)
    assert DcgBound(at_top).evaluate(scores)[0] == pytest.approx(2.0)


def test_bound_survives_enormous_scores():
    units = RowUnits(np.array([0, 1]), np.array([0, 2]), np.arange(2), np.array([1.0, 1.0]), 2)
    value, gradient = DcgBound(units).evaluate(np.array([1e6, -1e6]))
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


def test_row_units_sum_the_sessions_of_a_slate():
    units = build_row_units(
        indptr=np.array([0, 2, 4, 6, 7]),
        query=np.array([0, 0, 0, 1]),
        row=np.array([5, 3, 5, 3, 3, 5, 8]),
        value=np.array([1.0, 0.0, 0.5, 2.0, 0.0, 4.0, 9.0]),
        slate_of_list=np.array([0, 0, 1, 2]),
        n_rows=9,
    )
    # The lone document of query 1 has nobody to be above.
    assert units.row.tolist() == [5, 3, 3, 5]
    assert units.weight.tolist() == [1.5, 2.0, 0.0, 4.0]
    assert units.indptr.tolist() == [0, 2, 4]
    assert units.query_ptr.tolist() == [0, 2]


def test_blocks_never_cut_a_query(rng):
    lengths = rng.integers(2, 30, size=500)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    query_ptr = np.unique(np.concatenate([[0], rng.integers(0, 500, size=180), [500]]))
    bounds = block_bounds(query_ptr, indptr)
    assert set(bounds) <= set(query_ptr)
    assert bounds[0] == 0
    assert bounds[-1] == 500
    assert np.all(np.diff(bounds) >= 0)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_sorted_hinge_of_labels_is_the_sum_over_pairs(rng, plain, spread):
    lists = slates(rng, repeats=1)
    gain = rng.choice([0.0, 1.0, 2.0, 3.5], size=len(lists["row"]))
    weight = rng.exponential(size=len(lists["query"]))
    row_weight = np.arange(1.0, 8.0)
    units = build_units(gain=gain, weight=weight, plain=plain, **lists)
    packed, labelled = split_units(units)
    assert packed.n_units == 0
    scores = spread * rng.normal(size=lists["n_rows"])
    loss, gradient = hinge_by_labels(labelled, row_weight).evaluate(scores)
    slow = slow_hinge(lists, gain, weight, row_weight, scores, plain=plain, against_all=False)
    assert loss == pytest.approx(slow[0], rel=1e-12)
    np.testing.assert_allclose(gradient, slow[1], atol=1e-12)


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_sorted_hinge_against_all_is_the_sum_over_sessions(rng, spread):
    lists = slates(rng)
    gain = rng.choice([0.0, 0.0, 1.0], size=len(lists["row"]))
    weight = rng.integers(1, 5, size=len(lists["query"])).astype(float)
    row_weight = np.arange(1.0, 8.0)
    owner = np.repeat(np.arange(len(weight)), np.diff(lists["indptr"]))
    value = weight[owner] * gain * row_weight[lists["place"]]
    hinge = hinge_against_all(build_row_units(value=value, **without_place(lists)))
    scores = spread * rng.normal(size=lists["n_rows"])
    loss, gradient = hinge.evaluate(scores)
    slow = slow_hinge(lists, gain, weight, row_weight, scores, plain=False, against_all=True)
    assert loss == pytest.approx(slow[0], rel=1e-12)
    np.testing.assert_allclose(gradient, slow[1], atol=1e-11)


def test_packed_and_labelled_units_together_are_all_units(rng):
    lists = slates(rng, repeats=6)
    gain = rng.choice([0.0, 1.0], size=len(lists["row"]))
    weight = np.ones(len(lists["query"]))
    row_weight = np.linspace(1, 3, 7)
    units = build_units(gain=gain, weight=weight, **lists)
    packed, labelled = split_units(units)
    assert packed.n_units > 0
    assert labelled.n_units > 0
    assert packed.n_units + labelled.n_units == units.n_units
    table = np.repeat(row_weight[: units.depth, None], units.depth, axis=1)
    scores = rng.normal(size=lists["n_rows"])
    parts = [PairHinge.of(packed, table, None), hinge_by_labels(labelled, row_weight)]
    results = [part.evaluate(scores) for part in parts]
    slow = slow_hinge(lists, gain, weight, row_weight, scores, plain=False, against_all=False)
    assert sum(loss for loss, _ in results) == pytest.approx(slow[0], rel=1e-12)
    np.testing.assert_allclose(sum(g for _, g in results), slow[1], atol=1e-11)


def test_pairs_exactly_at_the_margin_cost_nothing_and_stay_consistent():
    """Scores a margin apart, as integers and as sums that round: loss = offset + slope . scores."""
    for step in (1.0, 0.1, 0.3):
        scores = np.cumsum(np.full(30, step))
        units = RowUnits(np.array([0, 1]), np.array([0, 30]), np.arange(30), np.ones(30), 30)
        loss, gradient = hinge_against_all(units).evaluate(scores)
        margins = np.maximum(0, 1 - (scores[:, None] - scores[None, :]))
        assert loss == pytest.approx(margins.sum() - np.trace(margins), rel=1e-12)
        assert gradient.sum() == pytest.approx(0, abs=1e-9)


def test_long_lists_use_the_same_answer(rng):
    n = 3000
    gain = rng.integers(0, 5, size=n).astype(float)
    lists = {
        "indptr": np.array([0, n]),
        "query": np.array([0]),
        "row": np.arange(n),
        "place": np.zeros(n, dtype=int),
        "slate_of_list": np.array([0]),
        "n_rows": n,
    }
    units = build_units(gain=gain, weight=np.array([0.7]), **lists)
    scores = rng.normal(size=n) + gain
    loss, gradient = hinge_by_labels(units, np.ones(1)).evaluate(scores)
    difference = scores[:, None] - scores[None, :]
    w = 0.7 * np.maximum(gain[:, None] - gain[None, :], 0) * (difference < 1)
    assert loss == pytest.approx(np.sum(w * (1 - difference)), rel=1e-10)
    np.testing.assert_allclose(gradient, w.sum(axis=0) - w.sum(axis=1), atol=1e-7)
