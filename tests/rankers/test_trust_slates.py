"""Counts of slates against sums over single sessions."""

import numpy as np
import pytest

from untilt.data.slates import Slates
from untilt.rankers.trust.slates import PAIR_COLUMNS, trust_slates


def random_lists(rng, n_lists=60):
    """Lists of 2 to 4 of six documents, few orders, labels 0, 1 or 2."""
    orders = [(0, 1, 2), (2, 1, 0), (3, 1, 4, 5), (1, 3)]
    chosen = rng.integers(0, len(orders), n_lists)
    row = np.concatenate([orders[c] for c in chosen])
    indptr = np.concatenate([[0], np.cumsum([len(orders[c]) for c in chosen])])
    return {
        "indptr": indptr,
        "document": row,
        "position_index": np.concatenate([np.arange(len(orders[c])) for c in chosen]),
        "label": rng.choice([0.0, 0.0, 1.0, 2.5], len(row)),
        "count": rng.integers(1, 4, n_lists),
        "norm": rng.uniform(0.5, 1, n_lists),
        "query": np.zeros(n_lists, dtype=np.int64),
        "slate_of_list": chosen,
    }


def slates_of(lists):
    """The counts of these lists, with the label itself as gain."""
    names = ("indptr", "query", "count", "document", "position_index")
    shown = Slates(**{name: lists[name] for name in names}, n_documents=6)
    label = lists["label"]
    return trust_slates(shown, label, label, lists["norm"], lists["slate_of_list"])


def slow_counts(lists):
    """name -> {(rows of the slate, i, j): sum over sessions}."""
    sums = {name: {} for name in PAIR_COLUMNS}
    for u, (start, end) in enumerate(zip(lists["indptr"], lists["indptr"][1:], strict=False)):
        rows = tuple(lists["document"][start:end])
        c = lists["label"][start:end]
        for i in range(end - start):
            for j in range(end - start):
                if c[i] > c[j]:
                    part = "positive" if c[j] > 0 else "zero"
                    gain = lists["norm"][u] * (c[i] - c[j])
                    for name, value in ((f"above_{part}", 1.0), (f"gain_{part}", gain)):
                        key = (rows, i, j)
                        sums[name][key] = sums[name].get(key, 0) + lists["count"][u] * value
    return sums


def as_dict(slates, name):
    slate, i, j = slates.pairs()
    found = {}
    for at, value in enumerate(getattr(slates, name)):
        start, end = slates.indptr[slate[at]], slates.indptr[slate[at] + 1]
        if value:
            found[tuple(slates.document[start:end]), i[at] - start, j[at] - start] = value
    return found


def test_counts_are_sums_over_sessions(rng):
    lists = random_lists(rng)
    slates = slates_of(lists)
    expected = slow_counts(lists)
    for name in PAIR_COLUMNS:
        found = as_dict(slates, name)
        assert found.keys() == expected[name].keys()
        assert found == {key: pytest.approx(value) for key, value in expected[name].items()}
    rows = np.repeat(np.arange(60), np.diff(lists["indptr"]))
    assert slates.positive.sum() == np.sum(lists["count"][rows] * (lists["label"] > 0))
    assert slates.count.sum() == lists["count"].sum()


def test_the_order_of_lists_plays_no_part(rng):
    lists = random_lists(rng)
    order = rng.permutation(60)
    rows = np.concatenate([np.arange(*lists["indptr"][[u, u + 1]]) for u in order])
    mixed = {name: lists[name][order] for name in ("count", "norm", "query")}
    mixed |= {name: lists[name][rows] for name in ("document", "position_index", "label")}
    mixed["indptr"] = np.concatenate([[0], np.cumsum(np.diff(lists["indptr"])[order])])
    mixed["slate_of_list"] = np.unique(lists["slate_of_list"][order], return_inverse=True)[1]
    one = slates_of(lists)
    two = slates_of(mixed)
    for name in ("indptr", "document", "position_index", "count", "positive", "above_zero"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
    assert one.gain_zero == pytest.approx(two.gain_zero, rel=1e-14)


def test_padded_pairs_stand_where_they_belong(rng):
    lists = random_lists(rng)
    slates = slates_of(lists)
    padded = slates.padded(np.array([1, -1]), 5)
    n = np.diff(slates.indptr)[1]
    pairs = slice(slates.pair_ptr[1], slates.pair_ptr[2])
    assert padded["above_zero"].shape == (2, 5, 5)
    assert padded["above_zero"][0, :n, :n].ravel() == pytest.approx(slates.above_zero[pairs])
    assert padded["above_zero"][0].sum() == pytest.approx(slates.above_zero[pairs].sum())
    assert not padded["gain_zero"][1].any()
