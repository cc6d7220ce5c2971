"""Counts equal repeats, and standard errors are between queries."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt.metrics import ARP, DCG, MAP, MRR, NDCG, Metric, Precision, Recall

METRICS = [NDCG(3), DCG(gain="linear"), ARP(), MAP(), MRR(2), Precision(2), Recall(2)]


@st.composite
def counted_lists(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Lists with counts, several for each query."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8))
    lists, rows = len(lengths), sum(lengths)

    def numbers(least: int, most: int, n: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(least, most), min_size=n, max_size=n)), dtype=int)

    return {
        "lengths": np.array(lengths),
        "scores": numbers(0, 3, rows),
        "labels": numbers(0, 3, rows),
        "count": numbers(1, 4, lists),
        "query": numbers(0, 3, lists),
    }


@pytest.mark.parametrize("metric", METRICS, ids=str)
@pytest.mark.parametrize("empty", ["zero", "skip"])
@settings(max_examples=25, deadline=None)
@given(lists=counted_lists())
def test_counts_equal_repeats(metric: Metric, empty: Any, lists: dict[str, np.ndarray]) -> None:
    indptr = np.r_[0, np.cumsum(lists["lengths"])]
    repeated = np.repeat(np.arange(len(lists["lengths"])), lists["count"])
    rows = np.concatenate([np.arange(indptr[i], indptr[i + 1]) for i in repeated])
    counted = metric.mean(
        lists["scores"],
        lists["labels"],
        indptr,
        weights=lists["count"],
        units=lists["query"],
        empty=empty,
    )
    plain = metric.mean(
        lists["scores"][rows],
        lists["labels"][rows],
        np.r_[0, np.cumsum(lists["lengths"][repeated])],
        units=lists["query"][repeated],
        empty=empty,
    )
    assert counted.n == plain.n
    assert counted.value == pytest.approx(plain.value, rel=1e-12, nan_ok=True)
    assert counted.std_error == pytest.approx(plain.std_error, rel=1e-9, abs=1e-12, nan_ok=True)


def test_standard_error_by_hand() -> None:
    # Reciprocal ranks 1, 1/2, 1/2 in queries 0, 1, 1: residuals 1/3, -1/6, -1/6 about 2/3.
    scores, labels, indptr = [2, 1, 2, 1, 2, 1], [1, 0, 0, 1, 0, 1], [0, 2, 4, 6]
    by_list = MRR().mean(scores, labels, indptr)
    assert by_list.n == 3
    assert by_list.std_error == pytest.approx(np.std([1, 0.5, 0.5], ddof=1) / np.sqrt(3))
    by_query = MRR().mean(scores, labels, indptr, units=[0, 1, 1])
    assert by_query.n == 2
    # The mean of all is 2/3; without the first query 1/2, without the second 1.
    by_leaving_out = np.sqrt(1 / 2 * ((2 / 3 - 1 / 2) ** 2 + (2 / 3 - 1) ** 2))
    assert by_query.std_error == pytest.approx(by_leaving_out)
