"""Lists of their own with few clicks: the same sums as session by session, for queries of any size.

`test_pairs` runs every weighting and option through small queries; here are the sizes at which
something else happens: a word has 64 bits, and long lists with many clicks go another way.
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from untilt import IPS, PRS, KnownBias
from untilt._core import threads
from untilt.objectives import pair_slates as pair_slates_module
from untilt.objectives.clicked_pairs import SHORT
from untilt.objectives.pairs import PairObjective
from untilt.rankers.learning_data import pair_slates, training_lists

TOLERANCE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
QUERIES, DEPTH = 2, 45


def own_lists(rng, n_documents, length, *, share=0.15, times=12):
    """Sessions of two queries, each in an order of its own; with and without clicks and gaps."""
    sessions = []
    for query in range(QUERIES):
        documents = query + QUERIES * np.arange(n_documents)
        for _ in range(times):
            n = int(rng.integers(max(1, length - 2), length + 1))
            places = np.sort(rng.permutation(DEPTH)[:n])
            labels = (rng.random(n) < share) * rng.integers(1, 3, n)
            sessions.append((rng.permutation(documents)[:n], places, labels.astype(float)))
    return sessions


def passes(log, scores, weighting, **options):
    """(gradient, hessian, S, slates) and the rows' documents."""
    slates = pair_slates(
        training_lists(log), weighting, metric="ndcg", gain="linear",
        truncation=options.get("truncation"),
    )  # fmt: skip
    objective, rows = PairObjective(slates, **options), np.unique(log.document)
    found = objective.evaluate(scores[rows], weighting.table(slates.depth))
    return found, objective.losses_by_position(scores[rows]), slates, rows


def bias():
    return KnownBias(np.arange(1, DEPTH + 1) ** -0.5)


@pytest.mark.parametrize("scores", ["apart", "tied", "equal", "wide"])
@pytest.mark.parametrize(
    ("n_documents", "length"), [(12, 8), (63, 9), (64, 40), (65, 9), (130, 45), (45, 45)]
)
@pytest.mark.parametrize("weighting", [PRS(bias()), IPS(bias(), against="all")])
def test_the_sums_are_those_of_the_sessions(
    rng, slow_twin, as_log, weighting, n_documents, length, scores
):
    n = QUERIES * n_documents
    s = rng.normal(size=n)
    s = {"apart": s, "tied": np.round(s), "equal": 0 * s, "wide": 400 * np.round(s, 2)}[scores]
    options = {"sigma": 2.0, "pair_norm": True, "truncation": 20 if scores == "tied" else None}
    sessions = own_lists(rng, n_documents, length)
    log = as_log(sessions, n, QUERIES)
    found, S, slates, rows = passes(log, s, weighting, **options)
    assert np.all(slates.start < 0), "the lists keep their labels, or nothing is tested here"
    W = weighting.table(DEPTH)
    with np.errstate(over="ignore"):  # 1/(1 + inf) is the 0 that is meant
        expected = slow_twin(
            sessions, s, W, metric="ndcg", against=weighting.against, session_weight=QUERIES / 24,
            per_session_norm=weighting.per_session_norm, **options,
        )  # fmt: skip
    assert_allclose(found.gradient, expected.gradient[rows], **TOLERANCE)
    assert_allclose(found.hessian, expected.hessian[rows], **TOLERANCE)
    deep = len(S)
    assert_allclose(S, expected.S[:deep, :deep], **TOLERANCE)
    assert expected.gradient.any()


def test_only_lists_with_a_pair_are_kept_and_long_ones_with_many_clicks_go_another_way(rng, as_log):
    places, documents = np.arange(SHORT + 2), QUERIES * np.arange(SHORT + 2)
    some = np.zeros(SHORT + 2)
    some[3] = 1.0
    many = np.arange(SHORT + 2) % 3.0  # two thirds have one

    def session(labels, order):
        return documents[order], places[: len(order)], labels[: len(order)]

    every, few = rng.permutation(SHORT + 2), rng.permutation(SHORT)
    sessions = [
        session(some, every), session(many, every[::-1]), session(many, few),
        session(0 * some, np.roll(every, 1)), session(0 * some + 1, np.roll(every, 2)),
        session(some + 1, np.array([2])),
    ]  # fmt: skip
    log = as_log(sessions, QUERIES * (SHORT + 2), QUERIES)
    slates = pair_slates(training_lists(log), PRS(bias()), metric="dcg", gain="linear")
    rest, clicked = slates.by_cost
    assert np.diff(rest.indptr).tolist() == [SHORT + 2]
    assert clicked is not None
    assert sorted(np.diff(clicked.indptr).tolist()) == [SHORT, SHORT + 2]
    assert np.diff(clicked.clicked_ptr).tolist() == [1, np.count_nonzero(many[:SHORT])]


def test_few_lists_are_left_to_the_kernel_of_the_others(rng, as_log, monkeypatch):
    log = as_log(own_lists(rng, 20, 8), 20 * QUERIES, QUERIES)
    scores, found = rng.normal(size=20 * QUERIES), []
    for share in (0.0, 2.0):
        monkeypatch.setattr(pair_slates_module, "_WORTH_A_KERNEL", share)
        sums, S, slates, _ = passes(log, scores, PRS(bias()), pair_norm=True)
        found.append((sums.gradient, sums.hessian, S))
        rest, clicked = slates.by_cost
        assert (clicked is None) == (share > 1)
        assert rest.in_order is None
    assert found[0][0].any()
    for one, other in zip(*found, strict=True):
        assert_allclose(one, other, **TOLERANCE)


def test_the_number_of_threads_makes_no_difference_at_all(rng, as_log, monkeypatch):
    monkeypatch.setattr(threads, "KERNEL_NUMBERS", 1)  # else so little work gets one thread
    monkeypatch.setattr(threads, "cores", lambda: 3)
    log = as_log(own_lists(rng, 20, 8, times=60), 20 * QUERIES, QUERIES)
    scores = rng.normal(size=20 * QUERIES)
    results = []
    for most in (1, 3):
        with threads.kernel_threads(most):
            found, S, slates, _ = passes(log, scores, PRS(bias()), pair_norm=True)
        results.append((found.gradient, found.hessian, S))
    assert np.all(slates.start < 0)
    assert results[0][0].any()
    for one, three in zip(*results, strict=True):
        assert np.array_equal(one, three)
