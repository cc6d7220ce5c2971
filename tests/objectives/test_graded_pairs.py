"""Two-sided pairs of graded labels against a slow twin, by hand and on awkward lists."""

from typing import Any

import numpy as np
import pytest

from untilt.errors import OptionError
from untilt.objectives.pairs import GradedPairs, GradedSlates

D = {
    "ndcg": lambda rank: 1 / np.log2(rank + 2),
    "dcg": lambda rank: 1 / np.log2(rank + 2),
    "arp": lambda rank: rank,
    "none": None,
}


def made(rng, sizes, **columns):
    """Lists of these sizes whose documents are numbered at random."""
    n = int(np.sum(sizes))
    given = {"label": rng.random(n), "weight": rng.choice([0.0, 0.3, 1.0, 2.5], n), **columns}
    return GradedSlates(
        indptr=np.concatenate([[0], np.cumsum(sizes)]),
        query=np.arange(len(sizes)),
        count=rng.uniform(0.5, 2.0, len(sizes)),
        document=rng.permutation(n),
        position_index=np.zeros(n, dtype=np.int64),
        n_documents=n,
        **given,
    )


def slowly(slates, scores, *, metric="ndcg", sigma=1.0, pair_norm=False, truncation=None):
    """Pair by pair, as the formula says."""
    gradient, hessian = np.zeros(slates.n_documents), np.zeros(slates.n_documents)
    for u in range(slates.n_slates):
        rows = np.arange(slates.indptr[u], slates.indptr[u + 1])
        s = scores[slates.document[rows]]
        rank = np.empty(len(rows), dtype=int)
        rank[np.lexsort((np.arange(len(rows)), -s))] = np.arange(len(rows))
        for i, row in enumerate(rows):
            for j, other in enumerate(rows):
                if i == j or (truncation is not None and min(rank[i], rank[j]) >= truncation):
                    continue
                x = s[i] - s[j]
                delta = 1.0 if D[metric] is None else abs(D[metric](rank[i]) - D[metric](rank[j]))
                if pair_norm:
                    delta /= 0.01 + abs(x)
                above, below = slates.label[row], slates.label[other]
                both = delta * slates.count[u] * slates.weight[row] * slates.weight[other]
                rho = np.exp(-np.logaddexp(0, sigma * x))
                gradient[slates.document[row]] += both * sigma * (below * (1 - rho) - above * rho)
                hessian[slates.document[row]] += both * sigma**2 * (above + below) * rho * (1 - rho)
    return gradient, hessian


@pytest.mark.parametrize("truncation", [None, 1, 5, 100])
@pytest.mark.parametrize("pair_norm", [False, True])
@pytest.mark.parametrize("metric", list(D))
def test_equals_the_slow_twin(rng, metric, pair_norm, truncation):
    slates = made(rng, [7, 1, 16, 0, 33, 2, 90])
    scores = rng.normal(size=slates.n_documents).round(1)  # with ties
    options: dict[str, Any] = {
        "metric": metric,
        "sigma": 2.0,
        "pair_norm": pair_norm,
        "truncation": truncation,
    }
    result = GradedPairs(slates, **options).evaluate(scores)
    gradient, hessian = slowly(slates, scores, **options)
    assert result.gradient == pytest.approx(gradient, rel=1e-10, abs=1e-10)
    assert result.hessian == pytest.approx(hessian, rel=1e-10, abs=1e-10)


def test_scores_far_apart_do_not_overflow(rng):
    slates = made(rng, [5, 20], weight=np.ones(25))
    scores = rng.normal(size=25) * 1e4
    scores[slates.document[0]] = scores[slates.document[1]]
    for metric in D:
        options: dict[str, Any] = {
            "metric": metric,
            "sigma": 2.0,
            "pair_norm": True,
            "truncation": 4,
        }
        result = GradedPairs(slates, **options).evaluate(scores)
        gradient, hessian = slowly(slates, scores, **options)
        assert result.gradient == pytest.approx(gradient, rel=1e-10, abs=1e-10)
        assert result.hessian == pytest.approx(hessian, rel=1e-10, abs=1e-10)


def test_what_was_sorted_before_makes_no_difference(rng):
    slates = made(rng, [40, 25])
    used = GradedPairs(slates)
    for _ in range(5):
        scores = rng.integers(0, 6, slates.n_documents).astype(float)
        fresh = GradedPairs(slates).evaluate(scores)
        again = used.evaluate(scores)
        np.testing.assert_array_equal(again.gradient, fresh.gradient)
        np.testing.assert_array_equal(again.hessian, fresh.hessian)


def test_no_pull_where_scores_are_the_logs_of_the_labels(rng):
    slates = made(rng, [12, 30])
    scores = np.empty(slates.n_documents)
    scores[slates.document] = np.log(slates.label) / 2.0
    assert GradedPairs(slates, sigma=2.0).evaluate(scores).gradient == pytest.approx(0, abs=1e-12)


def test_two_documents_by_hand():
    slates = GradedSlates(
        indptr=np.array([0, 2]), query=np.array([0]), count=np.array([3.0]),
        document=np.array([0, 1]), position_index=np.zeros(2, dtype=np.int64), n_documents=2,
        label=np.array([0.8, 0.2]), weight=np.array([1.0, 0.5]),
    )  # fmt: skip
    result = GradedPairs(slates).evaluate(np.zeros(2))
    pull = 3.0 * 0.5 * (1 - 1 / np.log2(3)) * (0.2 - 0.8) / 2
    assert result.gradient == pytest.approx([pull, -pull])
    assert result.hessian == pytest.approx([3.0 * 0.5 * (1 - 1 / np.log2(3)) * (0.2 + 0.8) / 4] * 2)


@pytest.mark.parametrize(
    "options", [{"metric": "map"}, {"sigma": 0.0}, {"truncation": 0}], ids=["map", "sigma", "cut"]
)
def test_refused(rng, options):
    with pytest.raises(OptionError):
        GradedPairs(made(rng, [3]), **options)
