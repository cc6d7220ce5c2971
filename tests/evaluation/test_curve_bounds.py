"""Bounds for positions that nothing joins: they hold the truth, and estimates carry them."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt.bias.curve import LevelBounds, tightest
from untilt.errors import IdentifiabilityError, OptionError
from untilt.evaluation.systems import at_levels, extreme_curves
from untilt.facts import codes

K = 6
THETA = np.arange(1, K + 1) ** -1.0
TWO_PARTS = ([0, 1, 2], [3, 4, 5])
INTERLEAVED = ([0, 2, 4], [1, 3])


def clicks_of(groups, seed, *, n_queries=30, n_orders=8, n_sessions=20):
    """A log whose documents change places within the groups of positions alone, and the truth."""
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(0.05, 0.9, (n_queries, K))
    query = np.repeat(np.arange(n_queries), n_orders)
    order = np.tile(np.arange(K), (len(query), 1))
    for group in groups:
        order[:, group] = rng.permuted(order[:, group], axis=1)
    query, order = np.repeat(query, n_sessions), np.repeat(order, n_sessions, axis=0)
    shown = gamma[query[:, None], order]
    log = ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n_queries * K),
        doc_query=np.repeat(np.arange(n_queries), K),
        indptr=np.arange(0, len(query) * K + 1, K),
        query=query,
        document=(query[:, None] * K + order).ravel(),
        position=np.tile(np.arange(1, K + 1), len(query)),
        label=(rng.random(shown.shape) < THETA * shown).astype(float).ravel(),
    ).collapse()
    score = gamma + rng.normal(0, 0.2, gamma.shape)
    by_score = np.argsort(-score[query[:, None], order], axis=1)
    new = np.take_along_axis(shown, by_score, axis=1)
    discount = 1 / np.log2(np.arange(2, K + 2))
    truth = float(np.mean(new @ discount)), float(np.mean(shown @ discount))
    return log, score.ravel(), truth


def bounded(log, **options):
    return ut.AllPairs(unjoined="bounds", **options).fit(log).bias_


def systems(score) -> dict[str, Any]:
    return {"shown": ut.shown, "new": score}


@pytest.mark.parametrize("groups", [TWO_PARTS, INTERLEAVED, ()])
def test_bounds_hold_the_truth_where_an_estimate_is_refused(groups):
    held = 0
    for seed in range(12):
        log, score, (new, shown) = clicks_of(groups, seed)
        with pytest.raises(IdentifiabilityError, match="unjoined='bounds'"):
            ut.AllPairs().fit(log)
        bias = bounded(log)
        found = ut.estimate(log, systems(score), bias)
        held += bool(
            np.all((bias.low <= THETA) & (bias.high >= THETA))
            and shown in found["shown"].interval
            and new in found["new"].interval
            and new - shown in found.compare()["new"].interval
        )
    assert held >= 10  # joined positions have 95% intervals of their own


def test_within_a_part_the_curve_is_that_of_the_part_alone():
    log, _, _ = clicks_of(TWO_PARTS, 0)
    bias = bounded(log)
    top = ut.AllPairs().fit(log.top(3)).bias_
    assert bias.examination[:3] == pytest.approx(top.examination)
    assert bias.low[:3] == pytest.approx(top.low)
    assert bias.bounds is not None
    assert bias.bounds.part.tolist() == [0, 0, 0, 1, 1, 1]
    assert "bias.bounded" in codes(bias.status)
    assert "bias.never-rises" in codes(bias.assumes)
    assert bias.status.part("bias.bounded").fields["positions"] == (4, 5, 6)


def test_where_all_is_joined_there_is_nothing_to_bound():
    log, _, _ = clicks_of([list(range(K))], 1)
    plain, asked = ut.AllPairs().fit(log).bias_, bounded(log)
    assert asked.bounds is None
    assert asked.examination.tolist() == plain.examination.tolist()


def test_a_fixed_order_is_bounded_by_its_click_rates_and_by_the_positions_above():
    """theta_k / theta_1 is at most 1, and no smaller than any click rate at k or below."""
    log, _, _ = clicks_of((), 2, n_sessions=400)
    bias = bounded(log)
    assert bias.high == pytest.approx(np.ones(K))
    rate = log.ctr_by_position().rate
    floor = np.maximum.accumulate(rate[::-1])[::-1]
    assert np.all(bias.low[1:] < floor[1:])
    assert bias.low[1:] == pytest.approx(floor[1:], rel=0.5)  # moved down by errors over queries
    assert bias.examination[1:] == pytest.approx(np.sqrt(bias.low * bias.high)[1:])


def test_slopes_narrow_the_bounds_to_hand_arithmetic():
    log, _, _ = clicks_of((), 3)
    bias = bounded(log, slopes=(0.5, 1.5))
    k = np.arange(1, K + 1)
    assert bias.high == pytest.approx(k**-0.5)
    assert bias.low == pytest.approx(k**-1.5)
    assert "bias.slopes" in codes(bias.assumes)
    wide = bounded(log)
    assert np.all(wide.low <= bias.low + 1e-12)


def test_levels_follow_from_one_another():
    most = np.array([[0, 1.0, np.inf], [np.inf, 0, 2.0], [3.0, np.inf, 0]])
    assert tightest(most).tolist() == [[0, 1, 3], [5, 0, 2], [3, 4, 0]]
    assert np.diag(tightest(np.array([[0, 1.0], [-2.0, 0]]))).min() < 0


def test_the_least_sum_lies_at_the_corner_of_the_bounds():
    bounds = LevelBounds(np.array([0, 1, 2]), tightest(np.array(
        [[0, -0.1, np.inf], [2.0, 0, 0.0], [3.0, np.inf, 0]]
    )))  # fmt: skip
    grid = np.linspace(-3, 0, 301)
    for cost in ([0, 1, 1], [0, -1, 1], [0, 1, -1], [0, -2, -1]):
        x = bounds.least(np.array(cost, dtype=float))
        allowed = [
            cost[1] * np.exp(-u) + cost[2] * np.exp(-v)
            for u, v in itertools.product(grid, grid)
            if -2.0 - 1e-9 <= u <= -0.1 + 1e-9 and v - u <= 1e-9 and v >= -3 - 1e-9
        ]
        assert np.dot(cost, np.exp(-x)) == pytest.approx(min(allowed))


@pytest.mark.parametrize("evaluator", ["ips", "policy-aware", "snips", "clipped:clip=0.3"])
@pytest.mark.parametrize("groups", [TWO_PARTS, INTERLEAVED])
def test_extremes_are_those_of_a_grid_of_levels(evaluator, groups):
    log, score, _ = clicks_of(groups, 4)
    bias = bounded(log)
    found = ut.estimate(log, systems(score), bias, evaluator=evaluator)
    inputs, bounds = found.inputs, bias.bounds
    low, high = bounds.hull
    steps = [np.linspace(a, b, 25) for a, b in zip(low[1:], high[1:], strict=True)]
    differences = []
    for levels in itertools.product(*steps):
        u = np.array([0.0, *levels])
        if np.all(u[None, :] - u[:, None] <= bounds.most + 1e-9):
            sums = inputs.sums(("shown", "new"), bias=at_levels(bias, u))
            differences.append(sums.value[1] - sums.value[0])
    least, greatest = (
        np.diff(inputs.sums(("shown", "new"), bias=curve).value)[0]
        for curve in extreme_curves(inputs, {"shown": -1.0, "new": 1.0})
    )
    width = max(differences) - min(differences)
    assert least == pytest.approx(min(differences), abs=0.02 * width)
    assert greatest == pytest.approx(max(differences), abs=0.02 * width)
    assert least <= min(differences) + 1e-9
    assert greatest >= max(differences) - 1e-9
    # The interval is that of the evaluator without its clip.
    exact = replace(inputs, evaluator=inputs.evaluator.unbiased())
    least, greatest = (
        np.diff(exact.sums(("shown", "new"), bias=curve).value)[0]
        for curve in extreme_curves(exact, {"shown": -1.0, "new": 1.0})
    )
    interval = found.compare()["new"].interval
    assert interval.low < least
    assert interval.high > greatest


def test_a_difference_is_decided_only_where_all_levels_agree():
    log, score, _ = clicks_of((), 5)
    free = ut.estimate(log, systems(score), bounded(log)).compare()["new"]
    assert free.interval.low < 0 < free.interval.high
    assert free.p_value == 1
    assert not free.decided
    assert free.sessions_needed == np.inf
    tight = ut.estimate(log, systems(score), bounded(log, slopes=(0.9, 1.1))).compare()["new"]
    assert tight.decided
    assert tight.interval.low > 0
    assert free.interval.low < tight.interval.low


def test_bounds_are_said_and_drawn():
    log, score, _ = clicks_of(TWO_PARTS, 6)
    bias = bounded(log)
    assert bias.text(4)[0] == "bounded"
    assert "bounded" in repr(bias)
    found = ut.estimate(log, systems(score), bias)
    assert "estimate.bounded-levels" in codes(found.warnings)
    assert found.sensitivity()["bounds"].swing > 0
    again = ut.PositionBias.from_json(bias.to_json())
    assert again.bounds.most.tolist() == bias.bounds.most.tolist()
    for shape in (bias.smooth, bias.fit_power_law):
        with pytest.raises(OptionError, match="bounded, not measured"):
            shape()


def test_a_curve_without_errors_of_its_own_stays_out_of_raw_clicks():
    log, score, _ = clicks_of(TWO_PARTS, 7)
    found = ut.estimate(log, systems(score), bounded(log), evaluator="naive")
    plain = ut.estimate(log, systems(score), evaluator="naive")
    assert found["new"].interval == plain["new"].interval


def test_options_are_checked():
    log, _, _ = clicks_of(TWO_PARTS, 8)
    for slopes in ((2.0, 1.0), (-1.0, 1.0), "steep", (1.0,)):
        with pytest.raises(OptionError, match="slopes must be"):
            bounded(log, slopes=slopes)
    with pytest.raises(OptionError, match="unjoined"):
        ut.AllPairs(unjoined="guess").fit(log)
    with pytest.raises(OptionError, match="unjoined='bounds'"):
        ut.AllPairs(slopes=(0.0, 1.0)).fit(log)
    with pytest.raises(IdentifiabilityError, match="slopes from 8 to 9"):
        bounded(clicks_of(INTERLEAVED, 8)[0], slopes=(8.0, 9.0))
