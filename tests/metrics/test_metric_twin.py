"""The kernel against plain Python: one ranking at a time, ties by enumeration of all orders."""

from collections.abc import Iterator
from itertools import groupby, pairwise, permutations, product
from math import log2
from typing import Any

import numpy as np
import pytest

from untilt.metrics import ARP, DCG, MAP, MRR, NDCG, Metric, Precision, Recall
from untilt.metrics.metric import values_per_list

GAINS: tuple[Any, ...] = ("exponential", "linear")
METRICS: list[Metric] = [
    ARP(),
    *(kind(k, gain=g) for kind, k, g in product((DCG, NDCG), (1, 3, None), GAINS)),
    *(kind(k, relevant_from=y) for kind, k, y in product((Precision, Recall), (1, 3, 9), (1, 2))),
    *(kind(k, relevant_from=y) for kind, k, y in product((MAP, MRR), (1, 3, None), (1, 2))),
]


def slow_value(metric: Metric, ranking: list[float], empty: float) -> float:
    """The metric of one list of labels, best rank first; `empty` where nothing is relevant."""
    k = len(ranking) if metric.cut is None else metric.cut
    if isinstance(metric, ARP):
        total = sum(ranking)
        return sum(r * y for r, y in enumerate(ranking, start=1)) / total if total else np.nan
    if isinstance(metric, DCG | NDCG):
        return slow_dcg(metric, ranking, k, empty)
    relevant = [y >= metric.relevant_from for y in ranking]  # type: ignore[attr-defined]
    hits = [r for r, hit in enumerate(relevant, start=1) if hit and r <= k]
    values = {
        "precision": lambda: len(hits) / k,
        "recall": lambda: len(hits) / sum(relevant),
        "mrr": lambda: 1 / hits[0] if hits else 0.0,
        "map": lambda: sum(sum(relevant[:r]) / r for r in hits) / sum(relevant),
    }
    return values[metric.name]() if any(relevant) else empty


def slow_dcg(metric: DCG | NDCG, ranking: list[float], k: int, empty: float) -> float:
    gain = [2**y - 1 if metric.gain == "exponential" else y for y in ranking]
    if sum(gain) == 0:
        return 0.0 if isinstance(metric, DCG) and empty == 1 else empty
    dcg = sum(g / log2(1 + r) for r, g in enumerate(gain[:k], start=1))
    best = sorted(gain, reverse=True)[:k]
    ideal = sum(g / log2(1 + r) for r, g in enumerate(best, start=1))
    return dcg / ideal if isinstance(metric, NDCG) else dcg


def rankings(scores: list[float], labels: list[float]) -> Iterator[list[float]]:
    """All orders of the labels that the scores allow; the first keeps the order of the rows."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    groups = [list(group) for _, group in groupby(order, key=lambda i: scores[i])]
    for choice in product(*(permutations(group) for group in groups)):
        yield [labels[i] for group in choice for i in group]


def slow_values(
    metric: Metric, scores: list[float], labels: list[float], empty: float
) -> dict[str, float]:
    values = [slow_value(metric, ranking, empty) for ranking in rankings(scores, labels)]
    worst, best = (min, max) if metric.higher_is_better else (max, min)
    return {
        "stable": values[0],
        "pessimistic": worst(values),
        "optimistic": best(values),
        "average": float(np.mean(values)),
    }


@pytest.mark.parametrize(("rule", "empty"), [("zero", 0.0), ("one", 1.0), ("skip", np.nan)])
def test_kernel_equals_the_slow_twin_under_every_rule(
    rng: np.random.Generator, rule: Any, empty: float
) -> None:
    lengths = np.r_[0, 1, 1, 0, rng.integers(0, 6, size=25), 0]
    indptr = np.r_[0, np.cumsum(lengths)]
    scores = rng.integers(0, 3, indptr[-1]).astype(float)
    labels = rng.choice([0, 0, 1, 2], indptr[-1]).astype(float)
    values = {
        ties: values_per_list(METRICS, scores, labels, indptr, ties=ties, empty=rule)
        for ties in ("stable", "pessimistic", "optimistic", "average")
    }
    for i, (a, b) in enumerate(pairwise(indptr)):
        for m, metric in enumerate(METRICS):
            expected = slow_values(metric, scores[a:b].tolist(), labels[a:b].tolist(), empty)
            for ties, table in values.items():
                assert table[i, m] == pytest.approx(expected[ties], abs=1e-12, nan_ok=True), (
                    f"{metric} of list {i} with ties={ties}"
                )


def test_kernel_equals_the_slow_twin_on_long_lists_without_ties(rng: np.random.Generator) -> None:
    lengths = rng.integers(1, 200, size=30)
    indptr = np.r_[0, np.cumsum(lengths)]
    scores = rng.permutation(indptr[-1]) / 7
    labels = rng.choice([0, 0, 0, 1, 2, 3, 4], indptr[-1]).astype(float)
    values = values_per_list(METRICS, scores, labels, indptr)
    for i, (a, b) in enumerate(pairwise(indptr)):
        ranking = labels[a:b][np.argsort(-scores[a:b])].tolist()
        expected = [slow_value(metric, ranking, 0.0) for metric in METRICS]
        np.testing.assert_allclose(values[i], expected, rtol=1e-12)


def test_metrics_together_equal_metrics_alone(rng: np.random.Generator) -> None:
    indptr = np.arange(0, 101, 5)
    scores, labels = rng.integers(0, 4, 100), rng.integers(0, 3, 100)
    together = values_per_list(METRICS, scores, labels, indptr)
    for m, metric in enumerate(METRICS):
        np.testing.assert_array_equal(together[:, m], metric.per_list(scores, labels, indptr))


def test_no_lists_at_all() -> None:
    assert values_per_list(METRICS, [], [], [0]).shape == (0, len(METRICS))
    assert values_per_list(METRICS, [], [], [0, 0]).shape == (1, len(METRICS))
    assert np.isnan(NDCG(5).mean([], [], [0]).value)


def test_many_lists_equal_the_same_lists_in_small_parts(rng: np.random.Generator) -> None:
    lengths = rng.integers(0, 30, 2000)
    indptr = np.r_[0, np.cumsum(lengths)]
    assert indptr[-1] > 25_000  # enough rows for the parallel loop
    scores = rng.integers(0, 9, indptr[-1])
    labels = rng.choice([0, 0, 1, 2], indptr[-1])
    together = values_per_list(METRICS, scores, labels, indptr, empty="skip")
    for first in range(0, 2000, 400):
        a, b = indptr[first], indptr[first + 400]
        part = indptr[first : first + 401] - a
        values = values_per_list(METRICS, scores[a:b], labels[a:b], part, empty="skip")
        np.testing.assert_array_equal(together[first : first + 400], values)
