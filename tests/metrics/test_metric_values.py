"""Values by hand: the definitions, the rules for ties, the rules for lists without relevance."""

from itertools import combinations
from math import log2
from typing import Any

import numpy as np
import pytest

from untilt.metrics import ARP, DCG, MAP, MRR, NDCG, Metric, Precision, Recall

# Ranked by score the labels read 1, 0, 2, 0, 1; the second list is the first in another row order.
SCORES = np.array([0.9, 0.7, 0.5, 0.3, 0.1, 0.1, 0.5, 0.9, 0.7, 0.3])
LABELS = np.array([1, 0, 2, 0, 1, 1, 2, 1, 0, 0])
INDPTR = np.array([0, 5, 10])

BY_HAND = [
    (DCG(), 1 / log2(2) + 3 / log2(4) + 1 / log2(6)),
    (DCG(3), 1 / log2(2) + 3 / log2(4)),
    (DCG(3, gain="linear"), 1 / log2(2) + 2 / log2(4)),
    (NDCG(3), (1 + 3 / 2) / (3 + 1 / log2(3) + 1 / 2)),
    (NDCG(2), 1 / (3 + 1 / log2(3))),
    (NDCG(gain="linear"), (1 + 2 / 2 + 1 / log2(6)) / (2 + 1 / log2(3) + 1 / 2)),
    (ARP(), (1 * 1 + 3 * 2 + 5 * 1) / 4),
    (Precision(2), 1 / 2),
    (Precision(10), 3 / 10),
    (Precision(3, relevant_from=2), 1 / 3),
    (Recall(3), 2 / 3),
    (Recall(2, relevant_from=2), 0),
    (MAP(), (1 / 1 + 2 / 3 + 3 / 5) / 3),
    (MAP(3), (1 / 1 + 2 / 3) / 3),
    (MAP(relevant_from=2), 1 / 3),
    (MRR(), 1),
    (MRR(relevant_from=2), 1 / 3),
    (MRR(2, relevant_from=2), 0),
]


@pytest.mark.parametrize(("metric", "expected"), BY_HAND, ids=str)
def test_value_by_hand_whatever_the_order_of_the_rows(metric: Metric, expected: float) -> None:
    for ties in ("average", "stable", "pessimistic", "optimistic"):
        values = metric.per_list(SCORES, LABELS, INDPTR, ties=ties)
        assert values == pytest.approx([expected, expected], abs=1e-15)


# Scores 2, 1, 1, 1 with labels 0, 0, 1, 0: the relevant document stands at rank 2, 3 or 4.
TIED: dict[str, Any] = {"scores": [2, 1, 1, 1], "labels": [0, 0, 1, 0], "indptr": [0, 4]}
TIES_BY_HAND = [
    (MRR(), 1 / 3, 1 / 4, 1 / 2, (1 / 2 + 1 / 3 + 1 / 4) / 3),
    (MRR(3), 1 / 3, 0, 1 / 2, (1 / 2 + 1 / 3) / 3),
    (MAP(), 1 / 3, 1 / 4, 1 / 2, (1 / 2 + 1 / 3 + 1 / 4) / 3),
    (ARP(), 3, 4, 2, 3),
    (Precision(2), 0, 0, 1 / 2, 1 / 6),
    (Recall(3), 1, 0, 1, 2 / 3),
    (NDCG(), 1 / log2(4), 1 / log2(5), 1 / log2(3), (1 / log2(3) + 1 / log2(4) + 1 / log2(5)) / 3),
    (NDCG(2), 0, 0, 1 / log2(3), 1 / log2(3) / 3),
]


@pytest.mark.parametrize(
    ("metric", "stable", "pessimistic", "optimistic", "average"), TIES_BY_HAND, ids=str
)
def test_ties_by_hand(
    metric: Metric, stable: float, pessimistic: float, optimistic: float, average: float
) -> None:
    assert metric.per_list(**TIED, ties="stable") == pytest.approx([stable])
    assert metric.per_list(**TIED, ties="pessimistic") == pytest.approx([pessimistic])
    assert metric.per_list(**TIED, ties="optimistic") == pytest.approx([optimistic])
    assert metric.per_list(**TIED, ties="average") == pytest.approx([average])
    assert metric.per_list(**TIED) == pytest.approx([average])


def test_large_group_of_ties_equals_the_mean_over_all_placements() -> None:
    n, relevant = 14, 4
    placements = np.array(list(combinations(range(n), relevant)))
    placed = np.zeros((len(placements), n))
    np.put_along_axis(placed, placements, 1, axis=1)
    falling = np.tile(-np.arange(n), len(placements))
    indptr = np.arange(0, placed.size + 1, n)
    for metric in (MAP(), MAP(6), MRR(), MRR(3), NDCG(5), Precision(3), Recall(7), ARP()):
        tied = metric.per_list(np.zeros(n), placed[0], [0, n])
        over_placements = metric.per_list(falling, placed.ravel(), indptr)
        assert tied == pytest.approx([over_placements.mean()], rel=1e-12)


def test_average_does_not_see_the_order_of_the_rows(rng: np.random.Generator) -> None:
    scores, labels = rng.integers(0, 3, 40), rng.integers(0, 3, 40)
    shuffled = rng.permutation(40)
    for metric in (NDCG(10), MAP(), MRR(), ARP()):
        one = metric.per_list(scores, labels, [0, 40])
        other = metric.per_list(scores[shuffled], labels[shuffled], [0, 40])
        assert one == pytest.approx(other, rel=1e-12)


ALL = [DCG(5), NDCG(5), ARP(), MAP(), MRR(), Precision(5), Recall(5)]


@pytest.mark.parametrize("metric", ALL, ids=str)
def test_lists_without_a_relevant_document(metric: Metric) -> None:
    scores, labels, indptr = [3, 2, 1, 5], [0, 0, 0, 1], [0, 3, 3, 4]  # the second has no document
    zero, one, skip = (
        metric.per_list(scores, labels, indptr, empty=rule) for rule in ("zero", "one", "skip")
    )
    assert zero[2] == one[2] == skip[2] > 0
    assert np.isnan(skip[:2]).all()
    if metric == ARP():
        assert np.isnan(zero[:2]).all()
        assert np.isnan(one[:2]).all()
    else:
        assert zero[:2].tolist() == [0, 0]
        assert one[:2].tolist() == ([0, 0] if metric == DCG(5) else [1, 1])


def test_relevance_threshold_decides_what_is_empty() -> None:
    labels = [1, 1, 0]
    assert MAP().per_list([3, 2, 1], labels, [0, 3], empty="one") == [1]
    assert MAP(relevant_from=2).per_list([3, 2, 1], labels, [0, 3], empty="skip") == pytest.approx(
        [np.nan], nan_ok=True
    )


def test_skipped_lists_leave_the_mean() -> None:
    scores, labels, indptr = [2, 1, 2, 1, 2, 1], [1, 0, 0, 1, 0, 0], [0, 2, 4, 6]
    assert MRR().mean(scores, labels, indptr).value == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert MRR().mean(scores, labels, indptr, empty="one").value == pytest.approx(2.5 / 3)
    skipped = MRR().mean(scores, labels, indptr, empty="skip")
    assert (skipped.value, skipped.n) == (pytest.approx((1 + 1 / 2) / 2), 2)
    weighted = MRR().mean(scores, labels, indptr, empty="skip", weights=[3, 1, 100])
    assert weighted.value == pytest.approx((3 * 1 + 1 / 2) / 4)


def test_infinite_scores_rank_first_and_last() -> None:
    values = MRR().per_list([-np.inf, 0.0, np.inf], [0, 1, 0], [0, 3])
    assert values.tolist() == [1 / 2]


def test_arp_of_a_data_set_is_the_mean_weighted_by_labels(rng: np.random.Generator) -> None:
    labels = rng.integers(0, 3, 60).astype(float)
    indptr = np.arange(0, 61, 6)
    rank = np.tile(np.arange(1, 7), 10)
    weights = labels.reshape(10, 6).sum(axis=1)
    mean = ARP().mean(-rank, labels, indptr, weights=weights)
    assert mean.value == pytest.approx((rank * labels).sum() / labels.sum())


def test_inputs_are_left_alone() -> None:
    scores, labels, indptr = SCORES.copy(), LABELS.copy(), INDPTR.copy()
    NDCG(3).mean(scores, labels, indptr, weights=np.ones(2))
    for given, kept in ((scores, SCORES), (labels, LABELS), (indptr, INDPTR)):
        assert given.flags.writeable
        np.testing.assert_array_equal(given, kept)
