"""The step from the old order that is safe: its gains and bounds, by hand and on repeated logs."""

from dataclasses import replace
from unittest.mock import ANY

import numpy as np
import pytest
from scipy import special

import untilt as ut
from untilt.evaluation.step import (
    FLATTER,
    STEPS,
    live_rankers,
    lower_bounds,
    safe_step,
)

K = 5
THETA = np.array([1.0, 0.6, 0.4, 0.3, 0.2])
CURVE = ut.PositionBias(THETA, std_error=0.05 * THETA * (THETA < 1))
RANKERS = ("r0", "r1")


def world(n_queries=40, sessions=30, rankers=1, seed=0, strong=0.0):
    """A log of one list for each query and ranker, with relevance and a new ranker's scores."""
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.05, 0.6, (n_queries, K))
    order = [
        np.argsort(-(strong * relevance + 0.2 * rng.normal(size=(n_queries, K))), axis=1)
        for _ in range(rankers)
    ]
    query, ranker, document, label = [], [], [], []
    for q in range(n_queries):
        for _ in range(sessions):
            r = rng.integers(rankers)
            shown = order[r][q]
            query.append(q)
            ranker.append(r)
            document.append(K * q + shown)
            label.append(rng.random(K) < THETA * relevance[q, shown])
    log = ut.ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(K * n_queries),
        doc_query=np.repeat(np.arange(n_queries), K), indptr=np.arange(len(query) + 1) * K,
        query=np.array(query), document=np.concatenate(document),
        position=np.tile(np.arange(1, K + 1), len(query)),
        label=np.concatenate(label).astype(float),
        ranker=np.array(ranker) if rankers > 1 else None,
        ranker_names=RANKERS[:rankers] if rankers > 1 else (),
    )  # fmt: skip
    return log, relevance, rng.normal(0, 0.15, K * n_queries) + relevance.ravel()


def estimates(log, new, bias=CURVE):
    systems = {"shown": ut.shown, "new": new}
    return ut.estimate(log, systems, bias, evaluator="policy-aware", metric="dcg@5")


def by_hand(log, new, rankers=("",)):
    """(steps,) gains over the best ranker, and each query's part: loops over sessions."""
    discount = 1 / np.log2(np.arange(2, K + 2))
    clicks, looks = np.zeros(log.n_documents), np.zeros(log.n_documents)
    lists = [slice(a, a + K) for a in log.indptr[:-1]]
    for each, times in zip(lists, log.sessions, strict=True):
        clicks[log.document[each]] += times * log.label[each]
        looks[log.document[each]] += times * THETA
    g = clicks / looks
    old = -np.log(np.arange(1, K + 1))
    apart = [new[log.document[each]] - new[log.document[each]].mean() for each in lists]
    spread = np.sqrt(np.average(np.mean(np.square(apart), axis=1), weights=log.sessions))
    shown = np.zeros((len(rankers), log.n_queries))
    steps = np.zeros((len(rankers), len(STEPS), log.n_queries))
    asked = np.zeros((len(rankers), log.n_queries))
    for i, (each, times) in enumerate(zip(lists, log.sessions, strict=True)):
        r = 0 if log.ranker is None or rankers == ("",) else int(log.ranker[i])
        rows, q = log.document[each], log.query[i]
        asked[r, q] += times
        shown[r, q] += times * discount @ g[rows]
        for j, w in enumerate(STEPS):
            z = (1 - w) * old / old.std() + w * new[rows] / spread
            steps[r, j, q] += times * discount @ g[rows[np.argsort(-z, kind="stable")]]
    sessions = asked.sum(axis=0)
    value = (shown / asked) @ sessions / sessions.sum()
    best = int(np.argmax(value))
    part = (steps[best] - shown[best]) / asked[best]
    return part @ sessions / sessions.sum(), part, sessions, best


@pytest.mark.parametrize("rankers", [1, 2])
def test_gains_are_those_of_loops_over_sessions(rankers):
    log, _, new = world(rankers=rankers)
    names = RANKERS if rankers == 2 else ("",)
    found = safe_step(estimates(log, new), new, rankers=names if rankers == 2 else ())
    gains, _, _, best = by_hand(log, new, names)
    assert [each.gain for each in found.path] == pytest.approx(gains)
    assert [each.name for each in found.rankers[:1]] == ([RANKERS[best]] if rankers == 2 else [])


def test_bounds_are_those_of_a_bootstrap_with_multipliers():
    """sup-t: normal multipliers of queries in a loop; here the curve is taken as known."""
    log, _, new = world(n_queries=60)
    known = ut.PositionBias(THETA)
    gains, part, sessions, _ = by_hand(log, new)
    n, share = len(sessions), sessions / sessions.sum()
    assert share == pytest.approx(1 / n)
    moved = (part - gains[:, None]) / (n - 1)
    error = np.sqrt((n - 1) / n * np.sum(moved**2, axis=1))
    rng = np.random.default_rng(1)
    largest = [np.max(moved @ rng.normal(size=n) / error) for _ in range(4000)]
    degrees = np.count_nonzero(part, axis=1) - 1
    student = special.stdtrit(degrees, 0.95) / special.ndtri(0.95)
    c = np.maximum(np.quantile(largest, 0.95) * student, special.stdtrit(degrees, 0.975))
    rest = [np.delete(row, np.argmax(row)) for row in part]
    without = np.array([row.mean() - c[j] * row.std(ddof=1) / np.sqrt(n - 1)
                        for j, row in enumerate(rest)])  # fmt: skip
    low = np.minimum(gains - c * error, without)
    found = safe_step(estimates(log, new, known), new)
    assert np.all(np.abs([each.low for each in found.path] - low) < 0.1 * error)


def test_the_old_order_has_exactly_no_gain_and_no_step():
    log, _, _ = world()
    found = safe_step(estimates(log, -np.ones(log.n_documents)), np.zeros(log.n_documents))
    assert [each.gain for each in found.path[:-1]] == [0.0] * (len(STEPS) - 1)
    assert [each.low for each in found.path[:-1]] == [0.0] * (len(STEPS) - 1)
    order = np.zeros(log.n_documents)
    order[log.document] = -log.position
    found = safe_step(estimates(log, order), order)
    assert {(each.gain, each.low, each.clicks) for each in found.path} == {(0.0, 0.0, 0.0)}
    assert found.w == 0


def test_counts_are_repeated_sessions():
    log, _, new = world(rankers=2)
    merged = log.collapse()
    assert merged.n_lists < log.n_lists
    one, other = (safe_step(estimates(each, new), new, rankers=RANKERS) for each in (log, merged))
    assert one.w == other.w
    for a, b in zip(one.path, other.path, strict=True):
        assert (a.gain, a.low, a.clicks) == pytest.approx((b.gain, b.low, b.clicks))
    for r, s in zip(one.rankers, other.rankers, strict=True):
        assert (r.value, r.clicks, r.low) == pytest.approx((s.value, s.clicks, s.low))


def test_the_whole_step_from_a_bad_order_and_none_towards_a_bad_ranker():
    log, relevance, _ = world(n_queries=80)
    right = relevance.ravel()
    found = safe_step(estimates(log, right), right)
    assert found.w == 1
    assert found.taken.low > 0
    log, relevance, _ = world(n_queries=80, strong=5.0)
    found = safe_step(estimates(log, -right), -relevance.ravel())
    assert (found.w, found.taken) == (0, None)


def test_an_old_score_takes_the_place_of_the_rank():
    log, _, new = world()
    score = np.zeros(log.n_documents)
    score[log.document] = 10.0 - 2 * log.position
    found = safe_step(estimates(log, new), new, old=("bm25", score))
    assert found.old == "bm25"
    assert found.old_spread == pytest.approx(2 * np.sqrt(2))


def test_an_assumed_curve_must_be_right_at_two_powers():
    log, _, new = world(rankers=1)
    known = ut.PositionBias(THETA)
    flatter = ut.PositionBias(THETA**FLATTER)
    ends = [
        [each.low for each in safe_step(estimates(log, new, curve), new).path]
        for curve in (known, flatter)
    ]
    found = safe_step(estimates(log, new, known), new, assumed=True)
    assert [each.low for each in found.path] == pytest.approx(np.min(ends, axis=0))


def test_costs_count_the_other_way_round():
    log, _, new = world(n_queries=80)
    found = ut.estimate(log, {"shown": ut.shown, "new": new}, CURVE, metric="arp",
                        evaluator="policy-aware")  # fmt: skip
    step = safe_step(found, new)
    difference = found.compare("shown")["new"].value
    assert step.path[-1].gain == pytest.approx(-difference)


def test_a_single_query_takes_no_step_alone():
    log, _, new = world(n_queries=30)
    sums = estimates(log, new).sums
    total = sums.total.copy()
    total[:, 1] = total[:, 0]
    total[0, 1] += 50.0
    one = replace(sums, total=total, covariance=None)
    assert lower_bounds(one, 0, 1, 0.95)[0] <= 0


def test_rankers_are_live_that_share_the_queries():
    log, _, _ = world(rankers=2)
    assert live_rankers(log, "unknown") == (RANKERS, ANY)
    apart = log.take((log.ranker == 0) == (log.query < 20))
    alone = (world()[0], log.take(log.ranker == 0), apart)
    assert [live_rankers(each, "unknown")[0] for each in alone] == [(), (), ()]
    assert live_rankers(log, "other")[0] == ()
    some = log.take((log.ranker == 0) | (log.query < 38))
    names, shared = live_rankers(some, "random")
    assert (names, set(shared.query.tolist())) == (RANKERS, set(range(38)))


def test_each_logged_ranker_has_its_clicks_and_its_value():
    log, _, new = world(n_queries=200, rankers=2)
    found = safe_step(estimates(log, new), new, rankers=RANKERS)
    for each in found.rankers:
        own = log.ranker == RANKERS.index(each.name)
        assert each.n_sessions == own.sum()
        assert each.clicks == pytest.approx(log.label.reshape(-1, K)[own].sum(axis=1).mean(), 0.05)
        assert each.value in each.interval
    section = found.view()[0]
    assert [len(table.rows) for table in section.tables] == [len(STEPS), 2]


@pytest.mark.slow
def test_what_is_taken_is_seldom_worse():
    """An old order that is as good as the new ranker: at most one in ten steps may be worse."""
    worse = 0
    for seed in range(60):
        log, relevance, _ = world(n_queries=60, seed=seed, strong=1.2)
        new = relevance.ravel() + np.random.default_rng(seed).normal(0, 0.17, relevance.size)
        step = safe_step(estimates(log, new), new)
        if step.w:
            worse += true_gain(log, relevance, new, step.w) < 0
    assert worse <= 6


def true_gain(log, relevance, new, w):
    first = [int(np.flatnonzero(log.query == q)[0]) for q in range(log.n_queries)]
    rows = np.stack([log.document[K * each : K * each + K] for each in first])
    old, discount = -np.log(np.arange(1, K + 1)), 1 / np.log2(np.arange(2, K + 2))
    apart = new[rows] - new[rows].mean(axis=1, keepdims=True)
    z = (1 - w) * old / old.std() + w * new[rows] / np.sqrt(np.mean(apart**2))
    order = np.take_along_axis(rows, np.argsort(-z, axis=1, kind="stable"), axis=1)
    g = relevance.ravel()
    return float(np.mean((g[order] - g[rows]) @ discount))
