"""Tests of swaps: false alarms on honest experiments, and what they must find."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.wall.varying import World, make

from untilt import AdjacentSwap, PivotSwap, read_log
from untilt.bias.experiments.assignment import swapped_lists
from untilt.bias.experiments.tests import _table_moments, swap_facts
from untilt.errors import IdentifiabilityError
from untilt.facts import codes

PAIRS = [(1, k) for k in range(2, 6)]


def facts_of(log):
    return swap_facts(log, *swapped_lists(log, None))


def swapped(order, pair):
    upper, lower = pair
    order = list(order)
    order[upper - 1], order[lower - 1] = order[lower - 1], order[upper - 1]
    return order


def experiment(make_log: Any, rng: Any, *, queries=60, sessions=30, n=6, share=None, show=swapped):
    """`share(q)` of a query's sessions are swapped; `show` makes the list that they see."""
    made = []
    for q in range(queries):
        for _ in range(sessions):
            order, name = list(range(n)), "base"
            if rng.random() < (share(q) if share else 0.5):
                upper, lower = pair = PAIRS[rng.integers(len(PAIRS))]
                order, name = show(order, pair), f"swap:{upper}-{lower}"
            clicked = [d for k, d in enumerate(order, 1) if rng.random() < 0.6 / k]
            made.append((q, order, clicked, 1, name))
    return make_log(made)


def with_features(log, table):
    names = tuple(f"f{j}" for j in range(table.shape[1]))
    return replace(log, features=table.astype(np.float32), feature_names=names)


def test_moments_of_a_table_by_permutation(rng):
    """Mean and variance of chi-square over all ways to deal out the arms."""
    unit = np.repeat(np.arange(6), [2, 3, 3, 5, 9, 20])
    arm = np.repeat([0, 1, 2], [12, 10, 20])
    one = np.ones(len(unit), dtype=np.int64)
    found = np.array([_table_moments(unit, rng.permutation(arm), one) for _ in range(4000)])
    statistic, mean, variance = found.T
    assert statistic.mean() == pytest.approx(mean[0], rel=0.02)
    assert statistic.var() == pytest.approx(variance[0], rel=0.08)
    counts = np.zeros((6, 3))
    order = rng.permutation(arm)
    np.add.at(counts, (unit, order), 1)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    by_hand = np.sum((counts - expected) ** 2 / expected)
    assert _table_moments(unit, order, one)[0] == pytest.approx(by_hand)


def honest(kind: str, rng: np.random.Generator, make_log: Any) -> Any:
    share = rng.uniform(0.05, 0.9)
    pairs = (
        [(1, k) for k in range(2, 8)] if rng.random() < 0.5 else [(k, k + 1) for k in range(1, 7)]
    )
    made = []
    for q in range(int(rng.integers(200, 400)) if kind == "one" else int(rng.integers(10, 50))):
        n = int(rng.integers(2, 12))
        sessions: dict[str, Any] = {
            "one": 1,
            "few": rng.integers(1, 5),
            "uneven": min(200, rng.pareto(0.8) * 3),
        }
        for _ in range(int(sessions.get(kind, rng.integers(1, 20)))):
            order: list[Any] = list(range(n))
            if kind == "varied" and rng.random() < 0.5:
                order = swapped(order, (1, 2))
            upper, lower = pairs[rng.integers(len(pairs))]
            name = "base"
            if rng.random() < share and lower <= n:
                order, name = swapped(order, (upper, lower)), f"swap:{upper}-{lower}"
            if kind == "gaps":
                order = [d if rng.random() > 0.05 else None for d in order]
                order[0] = 99 if order[0] is None else order[0]
            made.append((q, order, [], 1, name))
    made += [(0, [0, 1], [], 1, "swap:1-2")]
    log = make_log(made)
    return with_features(log, rng.normal(size=(log.n_documents, 8)))


def alarms(kind, make_log, *, n_logs, seed=0):
    rng = np.random.default_rng(seed)
    found = [facts_of(honest(kind, rng, make_log)) for _ in range(n_logs)]
    return sum(any(fact.severity == "serious" for fact in facts) for facts in found)


KINDS = ("one", "few", "uneven", "gaps", "varied")


@pytest.mark.parametrize("kind", KINDS)
def test_honest_swaps_pass(kind, make_log):
    assert alarms(kind, make_log, n_logs=10) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_false_alarms_are_fewer_than_one_in_a_hundred(kind, make_log):
    assert alarms(kind, make_log, n_logs=400, seed=1) <= 4


def test_what_was_tested_stands_in_the_status(make_log, rng):
    bias = PivotSwap().fit(experiment(make_log, rng)).bias_
    passed = bias.status.part("bias.swaps-passed").fields["p_values"]
    assert set(passed) == {"arms by query", "arms by list", "lists"}


def test_queries_asked_once_without_features_are_believed(make_log, rng):
    log = experiment(make_log, rng, queries=500, sessions=1)
    assert codes(facts_of(log)) == ["bias.swaps-untested"]


# Why lists of one query differ, and whether usual lists come again often enough to compare with.
LISTS_DIFFER = {
    "every session": (World(noise=0.6), False),
    "a little": (World(noise=0.2), True),
    "stock": (World("stock", 0.5), True),
    "rankers": (World(rankers=3), True),
}


@pytest.mark.parametrize("kind", LISTS_DIFFER)
@pytest.mark.parametrize("is_swap", [True, False])
def test_swaps_of_lists_that_differ_between_sessions(kind, is_swap):
    """Honest swaps pass; shuffles that are called swaps are found wherever lists come again."""
    world, come_again = LISTS_DIFFER[kind]
    for seed in range(3):
        frame = make(replace(world, swapped=0.1, sessions=8000), seed).frame
        if not is_swap:
            rng, rows = np.random.default_rng(seed), np.arange(len(frame)).reshape(-1, 10)
            changed = frame["ranker"].to_numpy()[rows[:, 0]] != "base"
            rows[changed] = rng.permuted(rows[changed], axis=1)
            frame["doc_id"] = frame["doc_id"].to_numpy()[rows.ravel()]
        found = codes(facts_of(read_log(frame, features=[], threads=1)))
        assert ("bias.swap-lists" in found) == (come_again and not is_swap)
        assert ("bias.swap-lists-untested" in found) == (not come_again)


def test_a_share_that_depends_on_the_query_is_found(make_log, rng):
    """Compared by length it is refused; documents compared with themselves stay right."""
    log = experiment(make_log, rng, share=lambda q: 0.3 if q % 2 else 0.7)
    assert codes(facts_of(log))[:2] == ["bias.swap-arms-by-query", "bias.swap-arms-by-list"]
    with pytest.raises(IdentifiabilityError, match="differs between queries"):
        PivotSwap(within="length").fit(log)
    assert "bias.swap-share-differs" in codes(PivotSwap().fit(log).bias_.status)


def test_swaps_that_were_never_shown_are_refused(make_log, rng):
    """The arm was drawn, but a cache showed the usual list in half of its sessions."""
    log = experiment(
        make_log,
        rng,
        show=lambda order, pair: swapped(order, pair) if rng.random() < 0.5 else order,
    )
    found = next(fact for fact in facts_of(log) if fact.code == "bias.swap-lists")
    assert found.fields["unchanged"] == pytest.approx(0.5, abs=0.05)
    with pytest.raises(IdentifiabilityError, match="usual list unchanged"):
        PivotSwap().fit(log)
    assert PivotSwap(check=False).fit(log).bias_.depth == 5


def test_other_positions_than_the_name_says_are_refused(make_log, rng):
    log = experiment(make_log, rng, show=lambda order, pair: swapped(order, (2, 6)))
    found = next(fact for fact in facts_of(log) if fact.code == "bias.swap-lists")
    assert (found.fields["matched"], found.fields["unchanged"]) == (0, 0)


def test_a_swap_that_depends_on_the_documents_is_found_with_one_session_per_query(make_log, rng):
    """Neighbours are swapped more often where the lower one looks better."""
    queries = 800
    better = rng.normal(size=queries)
    made = []
    for q in range(queries):
        is_swapped = rng.random() < (0.8 if better[q] > 0 else 0.2)
        made.append(
            (q, [1, 0] if is_swapped else [0, 1], [0], 1, "swap:1-2" if is_swapped else "base")
        )
    log = make_log(made)
    table = np.column_stack(
        [rng.normal(size=log.n_documents), np.where(log.doc_id == 1, better[log.doc_query], 0.0)]
    )
    found = facts_of(with_features(log, table))
    assert codes(found) == ["bias.swap-feature", "bias.swap-lists-untested"]
    assert found[0].fields["feature"] == "f1"
    assert found[0].fields["correlation"] > 0.2
    with pytest.raises(IdentifiabilityError, match="depends on the documents"):
        AdjacentSwap(within="length").fit(with_features(log, table))
