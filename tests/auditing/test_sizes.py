"""Sizes that reading tests tell, on counts with a known ratio; and what is too large to draw."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import ClickLog, PowerLaw, audit, estimate, shown
from untilt.auditing.scores import ScoreCells, _dealt, feature_score, relevance_score
from untilt.data.counts import PositionCounts, position_counts
from untilt.errors import BadRowsError


def drawn_cells(seed, *, steep=0.0, level=0.0, spread=0.0, queries_differ=0.0, n_queries=60,
                n_docs=8, sessions=60.0, share=0.5, rate=0.3):  # fmt: skip
    """Clicks of two kinds of sessions: the ratio of rates is e^(level + ...) k^-steep."""
    rng = np.random.default_rng(seed)
    q, d, k = (
        each.ravel() for each in np.meshgrid(*map(np.arange, (n_queries, n_docs, 5)), indexing="ij")
    )
    document, k = q * n_docs + d, k + 1
    p0 = rate * rng.uniform(0.1, 1, n_queries * n_docs)[document] * k**-0.7
    log_ratio = level - steep * np.log(k) + queries_differ * rng.normal(size=n_queries)[q]
    log_ratio = log_ratio + spread * rng.normal(size=n_queries * n_docs)[document]
    p1 = np.minimum(p0 * np.exp(log_ratio), 1)
    n1, n0 = rng.poisson(sessions * share, q.size), rng.poisson(sessions * (1 - share), q.size)
    c1, c0 = rng.binomial(n1, p1), rng.binomial(n0, p0)
    tells = (n1 > 0) & (n0 > 0) & (c1 + c0 > 0) & (c1 + c0 < n1 + n0)
    query = np.unique(q[tells], return_inverse=True)[1]
    counts = (each[tells].astype(float) for each in (n1, c1, n0, c0))
    return ScoreCells(query, document[tells], k[tells], *counts)


WORLDS = {
    "steep": ({"steep": 1.2}, "slope", 5**-1.2),
    "queries differ": ({"steep": 1.2, "queries_differ": 0.6, "rate": 0.15}, "slope", 5**-1.2),
    "one kind is rare": ({"steep": 0.8, "share": 0.1}, "slope", 5**-0.8),
    "few clicks a query": (
        {"steep": 0.8, "queries_differ": 0.5, "sessions": 6.0, "n_queries": 1000, "n_docs": 2},
        "slope", 5**-0.8,
    ),
    "twice the clicks": ({"level": np.log(2)}, "level", 2.0),
    "a tenth of the clicks": ({"level": np.log(0.1), "sessions": 20.0}, "level", 0.1),
    "documents differ": ({"spread": 1.0, "rate": 0.06, "sessions": 200.0}, "spread", np.e),
}  # fmt: skip


def told(cells, question):
    ends = {"slope": lambda: cells.told_slope(0.95, 5), "level": lambda: cells.told_level(0.95)}
    return ends.get(question, lambda: cells.told_spread(0.95))()


@pytest.mark.parametrize("world", WORLDS)
def test_a_size_is_that_of_the_world(world):
    """One step from no effect told 5^-1.5 to 5^-2.2 where the truth is 5^-1.2."""
    options, question, truth = WORLDS[world]
    found = np.array([told(drawn_cells(seed, **options), question) for seed in range(10)])
    held = (found[:, 1] <= truth) & (truth <= found[:, 2])
    assert np.all((found[:, 1] <= found[:, 0]) & (found[:, 0] <= found[:, 2]))
    assert held.sum() >= 7
    assert abs(np.log(np.median(found[:, 0]) / truth)) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("world", ["nothing", *WORLDS])
def test_intervals_of_sizes_hold(world):
    options, question, truth = WORLDS.get(world, ({}, "slope", 1.0))
    ends = np.array([told(drawn_cells(100 + s, **options), question) for s in range(100)])
    held = (ends[:, 1] <= truth) & (truth <= ends[:, 2])
    assert np.mean(held) >= 0.88


def drawn_documents(seed, *, b=0.0, spread=0.8, n_queries=100, n_docs=8, sessions=60.0, rate=0.07):
    """Documents at 6 positions, better ones higher, seen in proportion to k^(-0.7 - b x).

    And the fall to position 6 of documents a standard deviation below the mean, over that of those
    a standard deviation above.
    """
    rng = np.random.default_rng(seed)
    x, query = spread * rng.normal(size=n_queries * n_docs), np.arange(n_queries * n_docs) // n_docs
    k = np.arange(1, 7)
    home = rng.uniform(0, 6, size=len(x)) - 0.5 * x
    share = np.exp(-(((k - home[:, None]) / 1.8) ** 2))
    n = rng.poisson(sessions * share / share.sum(axis=1, keepdims=True))
    p = np.minimum(rate * k**-0.7 * np.exp(x[:, None] - b * x[:, None] * np.log(k)), 1)
    c, cell = rng.binomial(n, p), n > 0
    place = np.nonzero(cell)[1]
    counts = PositionCounts(
        np.concatenate([[0], np.cumsum(cell.sum(axis=1))]), query, np.arange(len(x)),
        (place + 1).astype(np.int32), n[cell].astype(float), c[cell].astype(float), 6,
    )  # fmt: skip
    w = n * p
    gap = -np.log(k) + (w @ np.log(k) / np.maximum(w.sum(axis=1), 1e-9))[:, None]
    weight = (w * gap**2).sum(axis=1)
    mean = np.bincount(query, weight * x) / np.bincount(query, weight)
    spread = np.sqrt(np.sum(weight * (x - mean[query]) ** 2) / weight.sum())
    return counts, 6 ** (-2 * b * spread), rng


FALLS = {
    "alike": {},
    "trust": {"b": -0.3},
    "strong trust": {"b": -0.6},
    "better fall steeper": {"b": 0.4},
    "few sessions": {"b": -0.4, "sessions": 12.0, "n_queries": 300},
    "a tenth of the clicks": {"b": -0.4, "rate": 0.007},
    "20 queries": {"b": -0.4, "n_queries": 20},
}


def held_falls(world, seeds):
    """Whether the interval holds the truth; the fall over it, nan where an end is open."""
    for seed in seeds:
        counts, truth, rng = drawn_documents(seed, **FALLS[world])
        ratio, low, high = relevance_score(counts, rng).told(0.95, 6)
        yield low <= truth <= high, ratio / truth if 0 < low < high < np.inf else np.nan


@pytest.mark.parametrize("world", FALLS)
def test_the_fall_of_weaker_documents_is_that_of_the_world(world):
    held, ratio = np.transpose([*held_falls(world, range(10))])
    assert held.sum() >= 8
    if world in ("alike", "trust", "strong trust"):
        assert abs(np.log(np.nanmedian(ratio))) < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("world", FALLS)
def test_intervals_of_the_fall_hold(world):
    assert np.mean([held for held, _ in held_falls(world, range(100, 200))]) >= 0.88


def features_of_fixed_lists(seed, b, n_queries=500):
    """One order for each query; two features say x, documents are seen as k^(-0.7 - b x)."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_queries * 8, 2))
    x, k = features @ [0.6, -0.5], np.tile(np.arange(1, 9), n_queries * 20)
    document = np.repeat(np.arange(n_queries * 8).reshape(-1, 8), 20, axis=0).ravel()
    p = np.minimum(0.08 * k ** (-0.7 - b * x[document]) * np.exp(x[document]), 1)
    query = np.arange(n_queries)
    return ClickLog(
        query, np.arange(len(x)), np.repeat(query, 8), np.arange(len(k) // 8 + 1) * 8,
        np.repeat(query, 20), document, k, (rng.random(len(k)) < p) * 1.0, features=features,
    )  # fmt: skip


@pytest.mark.parametrize("b", [0.0, -0.4, 0.3])
def test_the_fall_of_documents_with_weaker_features_is_that_of_the_world(b):
    """Strata of what so few clicks predict have a spread of .71, that of x itself is .78."""
    found = []
    for seed in range(100, 107):
        log = features_of_fixed_lists(seed, b)
        found.append(feature_score(log, position_counts(log)).told(0.95, 8))
    ratio, low, high = np.transpose(found)
    truth = 8 ** (-2 * b * 0.71)
    assert np.sum((low <= truth) & (truth <= high)) >= 6
    assert abs(np.log(np.median(ratio) / truth)) < 0.15


def test_the_ratio_of_a_level_is_where_clicks_are_as_expected():
    """c1 = (c0 + c1) n1 r / (n1 r + n0) gives r = (c1 / n1) / (c0 / n0) in equal cells."""
    ratio, low, high = drawn_level([(100, 30, 50, 5), (100, 30, 50, 5)])
    assert ratio == pytest.approx(3.0, rel=1e-4)
    assert low < 3 < high


def drawn_level(cells):
    columns = np.array(cells, dtype=float).T
    number = np.arange(len(cells))
    return ScoreCells(number, number, np.full(len(cells), 2), *columns).told_level(0.95)


def test_no_click_of_the_kind_has_a_size_too():
    ratio, low, high = drawn_level([(100, 0, 100, 6)] * 20)
    assert ratio < 1e-6
    assert low < 1e-6
    assert 0.02 < high < 0.06  # at 0.03, 3.6 clicks were to be expected


def test_curves_too_steep_to_tell_give_finite_sizes():
    n = np.full(6, 1e6)
    query, position = np.repeat([0, 1, 2], 2), np.tile([1, 900], 3)
    clicks = np.tile([1e5, 0.0], 3)
    cells = ScoreCells(query, np.arange(6), position, n, clicks, n, np.full(6, 1e5))
    ratio, low, high = cells.told_slope(0.99, 900)
    assert 0 <= low <= ratio <= high < 0.01


def test_a_rate_that_counts_no_query_twice():
    """Pairs of positions within a query: a factor of its own for each query changes nothing."""
    cells = drawn_cells(0, steep=0.5)
    more = np.where(cells.query % 2 == 0, 3.0, 1.0)
    other = replace(cells, n1=cells.n1 * more, c1=cells.c1 * more)
    assert other.told_slope(0.95, 5)[0] == pytest.approx(cells.told_slope(0.95, 5)[0], rel=0.05)


def test_cells_beyond_what_numpy_draws_are_dealt_too():
    """10^12 sessions a cell: each half of the sessions, with clicks at their rate."""
    rng = np.random.default_rng(0)
    n, c = np.array([10**12, 7]), np.array([3 * 10**11, 2])
    first, taken = _dealt(n, c, rng)
    assert abs(first[0] - 5 * 10**11) < 5 * 10**6
    assert abs(taken[0] - 1.5 * 10**11) < 3 * 10**6
    assert first[1] in (3, 4)


def small_log(count=1, label=None, sessions=40, **more):
    """Six queries of four documents in random order."""
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(6), sessions)
    order = np.argsort(rng.random((len(query), 4)), axis=1)
    clicked = rng.random(order.shape) < 0.4 * np.arange(1, 5) ** -0.7
    return ClickLog(
        np.arange(6), np.arange(24), np.repeat(np.arange(6), 4), np.arange(len(query) + 1) * 4,
        query, (4 * query[:, None] + order).ravel(), np.tile(np.arange(1, 5), len(query)),
        clicked.ravel() * (1.0 if label is None else label), count=np.full(len(query), count),
        **more,
    )  # fmt: skip


@pytest.mark.parametrize("count", [10**8, 10**13])
def test_an_audit_and_an_estimate_of_counts_beyond_10_9(count):
    log = small_log(count)
    found = audit(log)
    assert [test.question for test in found.reading.tests] == ["clicks-above", "relevance"]
    systems: dict[str, Any] = {"shown": shown, "new": np.arange(24.0)}
    one, many = (estimate(each, systems, PowerLaw(1)) for each in (small_log(), log))
    assert many["new"].value == pytest.approx(one["new"].value)
    left, right = log.split(0.5, by="session")
    assert left.n_sessions == right.n_sessions == 120 * count


def test_counts_and_labels_that_no_sum_can_hold_are_refused():
    with pytest.raises(BadRowsError, match=r"count adds up to 2.77e\+20 sessions, and at most 9,0"):
        small_log(2**60)
    for label in (1e308, 1e51, 1e-300):
        with pytest.raises(BadRowsError, match=r"label is above 1e.50, or below 1e-50 and not 0"):
            small_log(label=label)
    systems: dict[str, Any] = {"shown": shown, "new": np.arange(24.0)}
    for label in (1e50, 1e-50):
        found = estimate(small_log(label=label), systems, PowerLaw(1))
        difference = found.compare("shown")["new"]
        assert difference.interval.low < difference.value < difference.interval.high < np.inf


@pytest.mark.parametrize("kind", ["time", "ranker", "context"])
def test_a_log_in_which_no_cell_repeats(kind):
    """One session for each query: nothing to compare, and nothing that fails."""
    what = {"time": np.arange(6), "ranker": np.arange(6) % 2, "context": {"device": list("ababab")}}
    names = {"ranker_names": ("old", "new")} if kind == "ranker" else {}
    log = small_log(sessions=1, **{kind: what[kind]}, **names)
    assert kind not in [test.question for test in audit(log).reading.tests]
