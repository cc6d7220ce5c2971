"""Swaps, shuffles and several rankers: what was shown, how often, and under which name."""

import itertools

import numpy as np
import pytest

from untilt import JudgedLists, make_judged, simulate
from untilt._core import ragged
from untilt.errors import OptionError
from untilt.simulation import protocols
from untilt.simulation.production import production_rankers


def shown_lists(log):
    return [log.document[a:b].tolist() for a, b in itertools.pairwise(log.indptr)]


def base_lists(judged, scores, depth):
    rows = [np.arange(a, b) for a, b in itertools.pairwise(judged.indptr)]
    return [own[np.argsort(-scores[own])][:depth].tolist() for own in rows]


def sessions_by_ranker(log):
    return dict(zip(log.ranker_names, np.bincount(log.ranker, log.sessions), strict=True))


# ---- swaps


@pytest.mark.parametrize(
    "protocol",
    [
        protocols.Swap(),
        protocols.Swap(pivot=3, share=0.9),
        protocols.Swap(adjacent=True),
        protocols.Swap(reach=4),
        protocols.Swap(clicks=protocols.PRS(), depth=21),
    ],
    ids=repr,
)
def test_a_swap_exchanges_the_two_named_documents_and_no_other(judged, scores, protocol):
    log = simulate(judged, protocol, n_sessions=8000, ranker=scores).log
    depth = protocol.depth or 10
    base = base_lists(judged, scores, depth)
    for shown, query, ranker in zip(shown_lists(log), log.query, log.ranker, strict=True):
        name = log.ranker_names[ranker]
        expected = list(base[query])
        if name != "base":
            a, b = (int(k) for k in name.removeprefix("swap:").split("-"))
            expected[a - 1], expected[b - 1] = expected[b - 1], expected[a - 1]
        assert shown == expected


def test_names_of_pivot_and_adjacent_swaps(judged, scores):
    def names(protocol):
        return simulate(judged, protocol, n_sessions=10, ranker=scores).log.ranker_names

    assert names(protocols.Swap(depth=4)) == ("base", "swap:1-2", "swap:1-3", "swap:1-4")
    assert names(protocols.Swap(depth=4, pivot=3)) == ("base", "swap:1-3", "swap:2-3", "swap:3-4")
    assert names(protocols.Swap(depth=4, adjacent=True)) == (
        "base",
        "swap:1-2",
        "swap:2-3",
        "swap:3-4",
    )


def test_swaps_have_the_share_that_was_asked_for(scores):
    judged = make_judged(n_queries=60, n_features=5, mean_docs=60, seed=1)
    long = judged.take(np.flatnonzero(ragged.lengths(judged.indptr) >= 10))
    order = np.random.default_rng(0).random(len(long))
    n, share = 90_000, 0.3
    found = sessions_by_ranker(
        simulate(long, protocols.Swap(share=share), n_sessions=n, ranker=order).log
    )
    assert len(found) == 10
    for name, sessions in found.items():
        p = 1 - share if name == "base" else share / 9
        assert abs(sessions - n * p) < 4 * np.sqrt(n * p * (1 - p))


def test_lists_too_short_for_a_swap_are_shown_in_base_order(judged, scores):
    log = simulate(judged, protocols.Swap(share=1.0), n_sessions=50_000, ranker=scores).log
    length = ragged.lengths(log.indptr)
    short = length < 10
    assert log.sessions[short & (log.ranker == 0)].sum() > 0
    assert not np.any(log.ranker[~short] == 0)
    # Each swap has probability 1/9 in every list that reaches it, long or short.
    lower = np.array([0, *range(2, 11)])[log.ranker]
    for j in (2, 5):
        reach = length >= j
        n = log.sessions[reach].sum()
        found = log.sessions[reach & (lower == j)].sum()
        assert abs(found - n / 9) < 4 * np.sqrt(n / 9)


def test_a_share_of_nothing_or_everything(judged, scores):
    nothing = simulate(judged, protocols.Swap(share=0.0), n_sessions=2000, ranker=scores).log
    assert set(nothing.ranker.tolist()) == {0}


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (protocols.Swap(share=1.5), "share must lie between 0 and 1. Got 1.5"),
        (protocols.Swap(pivot=11), "pivot must be one of the positions 1..10"),
        (protocols.Swap(depth=1), "nothing to swap"),
        (protocols.Swap(reach=1, adjacent=True), "nothing to swap"),
        (protocols.Swap(clicks=protocols.Shuffle()), "has no intervention"),
        (protocols.Shuffle(top=1), "top must be at least 2"),
        (protocols.Shuffle(share=-0.1), "share must lie between 0 and 1"),
        (protocols.Harvest(traffic=(1, 2)), "for each of the 3 rankers"),
        (protocols.Harvest(traffic=(0, 0, 0)), "not all 0"),
        (protocols.Harvest(rankers=1), "at least two rankers"),
    ],
    ids=repr,
)
def test_wrong_interventions_are_refused(judged, protocol, message):
    with pytest.raises(OptionError, match=message):
        simulate(judged, protocol, n_sessions=10)


# ---- shuffles


def test_all_orders_of_the_top_are_alike():
    judged = JudgedLists(np.zeros((5, 1)), np.arange(5.0), np.array([0, 5]), np.array(["q"]))
    n = 120_000
    log = simulate(
        judged, protocols.Shuffle(top=4), n_sessions=n, ranker=[5.0, 4, 3, 2, 1], collapse=False
    ).log
    lists = log.document.reshape(n, 5)
    assert np.all(lists[:, 4] == 4)
    code = lists[:, :4] @ np.array([64, 16, 4, 1])
    orders = np.unique(code, return_counts=True)[1]
    assert len(orders) == 24
    expected, spread = n / 24, np.sqrt(n / 24 * 23 / 24)
    assert np.abs(orders - expected).max() < 4 * spread


def test_every_document_of_the_top_stands_everywhere_alike(judged, scores):
    log = simulate(judged, "shuffle", n_sessions=100_000, ranker=scores).log
    assert log.ranker_names == ("base", "shuffle")
    base = {d: k for own in base_lists(judged, scores, 10) for k, d in enumerate(own)}
    full = np.repeat(ragged.lengths(log.indptr) == 10, ragged.lengths(log.indptr))
    rank = np.array([base[d] for d in log.document.tolist()])
    table = np.zeros((10, 10))
    np.add.at(table, (rank[full], log.position[full] - 1), log.row_count[full])
    n = table.sum() / 10
    assert np.abs(table - n / 10).max() < 4.5 * np.sqrt(n / 10)  # 100 cells


def test_part_of_the_sessions_shuffled(judged, scores):
    log = simulate(judged, protocols.Shuffle(share=0.25), n_sessions=40_000, ranker=scores).log
    found = sessions_by_ranker(log)
    assert abs(found["shuffle"] - 10_000) < 4 * np.sqrt(40_000 * 0.25 * 0.75)
    base = base_lists(judged, scores, 10)
    unshuffled = log.take(np.flatnonzero(log.ranker == 0))
    assert all(
        shown == base[q] for shown, q in zip(shown_lists(unshuffled), unshuffled.query, strict=True)
    )


# ---- several rankers


def test_each_ranker_shows_its_own_order(judged, scores):
    rankers = {"old": scores, "new": -scores, "other": np.sin(scores * 9)}
    log = simulate(judged, "harvest", n_sessions=5000, ranker=rankers).log
    assert log.ranker_names == ("old", "new", "other")
    base = [base_lists(judged, own, 10) for own in rankers.values()]
    for shown, query, ranker in zip(shown_lists(log), log.query, log.ranker, strict=True):
        assert shown == base[ranker][query]


def test_documents_stand_at_several_positions(judged):
    log = simulate(judged, "harvest", n_sessions=20_000).log
    places = np.unique(np.stack([log.document, log.position]), axis=1)
    times = np.bincount(places[0])
    assert np.mean(times[times > 0] > 1) > 0.4


def test_traffic_is_shared_as_asked(judged):
    n, traffic = 60_000, (1, 2, 5)
    log = simulate(judged, protocols.Harvest(traffic=traffic), n_sessions=n).log
    for sessions, part in zip(sessions_by_ranker(log).values(), traffic, strict=True):
        p = part / 8
        assert abs(sessions - n * p) < 4 * np.sqrt(n * p * (1 - p))


def test_production_rankers_of_harvest_give_no_sessions_to_what_they_learned_from(judged):
    rankers = production_rankers(judged, 3, seed=4)
    sim = simulate(judged, "harvest", n_sessions=2000, seed=4)
    assert sim.truth.ranker_names == ("production-1", "production-2", "production-3")
    seen = {q for ranker in rankers for q in ranker.training_queries.tolist()}
    assert set(sim.truth.training_queries.tolist()) == seen
    assert not seen & set(sim.log.query_id.tolist())
    for trained, used in zip(rankers, sim.truth.rankers, strict=True):
        assert np.array_equal(trained.weights, used.weights)


def test_several_rankers_belong_to_harvest(judged, scores):
    with pytest.raises(OptionError, match="several rankers share the traffic in protocol"):
        simulate(judged, "dla", n_sessions=5, ranker=[scores, -scores])
    with pytest.raises(OptionError, match="at least two rankers"):
        simulate(judged, "harvest", n_sessions=5, ranker=scores)
