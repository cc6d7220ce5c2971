"""Swapped lists, by hand, with and without repeated queries."""

import itertools
from typing import Any

import numpy as np
import pytest

from untilt import AdjacentSwap, PivotSwap
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.facts import codes

THETA = np.array([1.0, 0.6, 0.3])
RELEVANCE = {0: {1: 0.9, 2: 0.5, 3: 0.2}, 1: {1: 0.3, 2: 0.8, 3: 0.6}}
PIVOT = {"base": [1, 2, 3], "swap:1-2": [2, 1, 3], "swap:1-3": [3, 2, 1]}
ADJACENT = {"base": [1, 2, 3], "swap:1-2": [2, 1, 3], "swap:2-3": [1, 3, 2]}


def expected_sessions(arms, *, sessions=1e6, queries=(0, 1), share=None):
    """Counts of every click pattern as they are expected, so that estimates are exact."""
    made = []
    for query in queries:
        for name, order in arms.items():
            for clicks in itertools.product([0, 1], repeat=len(order)):
                chance = (share or {}).get(name, 1.0)
                for k, (d, c) in enumerate(zip(order, clicks, strict=True)):
                    p = THETA[k] * RELEVANCE[query % 2][d]
                    chance *= p if c else 1 - p
                clicked = [d for d, c in zip(order, clicks, strict=True) if c]
                made.append((query, order, clicked, round(sessions * chance), name))
    return [session for session in made if session[3] > 0]


@pytest.mark.parametrize("within", ["document", "length"])
@pytest.mark.parametrize(
    ("estimator", "arms"), [(PivotSwap, PIVOT), (AdjacentSwap, ADJACENT)], ids=["pivot", "adjacent"]
)
def test_expected_clicks_give_the_exact_curve(estimator, arms, within, make_log):
    bias = estimator(within=within).fit(make_log(expected_sessions(arms))).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-4)
    assert bias.relative
    assert codes(bias.assumes)[:2] == ["bias.position-based", "bias.random-swaps"]
    assert ("bias.lists-alike" in codes(bias.assumes)) == (within == "length")


@pytest.mark.parametrize("within", ["document", "length"])
def test_any_pivot(within, make_log):
    arms = {"base": [1, 2, 3], "swap:1-2": [2, 1, 3], "swap:2-3": [1, 3, 2]}
    bias = PivotSwap(2, within=within).fit(make_log(expected_sessions(arms))).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-4)


def test_within_documents_the_share_of_swaps_may_depend_on_the_query(make_log):
    """Query 0 is nearly always swapped, query 1 hardly ever: lists of one length differ then."""
    often = {"base": 0.1, "swap:1-2": 1.0, "swap:1-3": 1.0}
    seldom = {"base": 1.0, "swap:1-2": 0.1, "swap:1-3": 0.1}
    sessions = expected_sessions(PIVOT, queries=(0,), share=often)
    sessions += expected_sessions(PIVOT, queries=(1,), share=seldom)
    log = make_log(sessions)
    bias = PivotSwap().fit(log).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-4)
    assert bias.status.part("bias.swap-share-differs") is not None
    with pytest.raises(IdentifiabilityError, match="differs between queries"):
        PivotSwap(within="length").fit(log)
    pooled = PivotSwap(within="length", check=False).fit(log).bias_
    assert abs(pooled.examination[1] - THETA[1]) > 0.05
    assert pooled.status.part("bias.swap-arms-by-query").fields["p_value"] < 1e-6


def test_one_off_queries_need_lists_of_one_length(make_log, rng):
    sessions = []
    for query in range(30_000):
        name = ("base", "swap:1-2", "swap:1-3")[rng.integers(3)]
        order = PIVOT[name]
        relevance = RELEVANCE[query % 2]
        clicked = [d for k, d in enumerate(order) if rng.random() < THETA[k] * relevance[d]]
        sessions.append((query, order, clicked, 1, name))
    log = make_log(sessions)
    with pytest.raises(IdentifiabilityError, match="cannot compare position 2 with position 1"):
        PivotSwap().fit(log)
    bias = PivotSwap(within="length").fit(log).bias_
    assert np.all(np.abs(bias.examination - THETA) < 4 * bias.std_error + 1e-12)
    assert np.all(bias.std_error[1:] < 0.03)


def test_short_lists_are_kept_apart(make_log):
    """Lists of two are never swapped with 3, are shown as they are, and are about better things."""
    sessions = expected_sessions(PIVOT)
    short = {"base": [1, 2], "swap:1-2": [2, 1]}
    rich = expected_sessions(short, queries=(2,), share={"base": 5.0})
    log = make_log(sessions + rich)
    bias = PivotSwap(within="length").fit(log).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-4)


def test_the_pooled_ratio_by_hand(make_log):
    """One pair: each document's rate at 2 over its rate at 1, with n_1 n_2 / (n_1 + n_2)."""
    log = make_log(
        [
            (0, [1, 2], [1], 30, "base"),
            (0, [1, 2], [2], 10, "base"),
            (0, [1, 2], [], 60, "base"),
            (0, [2, 1], [2], 8, "swap:1-2"),
            (0, [2, 1], [1], 6, "swap:1-2"),
            (0, [2, 1], [], 36, "swap:1-2"),
        ]
    )
    w = 100 * 50 / 150
    expected = (w * 6 / 50 + w * 10 / 100) / (w * 30 / 100 + w * 8 / 50)
    for within in ("document", "length"):
        bias = AdjacentSwap(within=within).fit(log).bias_
        assert bias.examination[1] == pytest.approx(expected)


def test_the_pooled_error_by_hand(make_log):
    """One session per query: var(log ratio) adds the binomial variances of four cells."""
    n = {"base": 100, "swap:1-2": 50}
    clicked = {"base": ([1] * 30, [2] * 10), "swap:1-2": ([2] * 8, [1] * 6)}
    order = {"base": [1, 2], "swap:1-2": [2, 1]}
    sessions, query = [], 0
    for name, size in n.items():
        clicks = [[d] for d in (*clicked[name][0], *clicked[name][1])]
        for c in clicks + [[]] * (size - len(clicks)):
            sessions.append((query, order[name], c, 1, name))
            query += 1
    bias = AdjacentSwap(within="length").fit(make_log(sessions)).bias_
    # Residuals of one list add up over its two places before they are squared.
    up, down = 1 / (6 / 50 + 10 / 100), 1 / (30 / 100 + 8 / 50)
    # Clicks are expected at theta_k g, g of what is usually first or second over both its places.
    theta = down / up
    first, second = (30 + 6) / (100 + 50 * theta), (8 + 10) / (50 + 100 * theta)
    expected = {"base": (first, theta * second), "swap:1-2": (second, theta * first)}
    variance = 0.0
    for name, (top, low) in {"base": (30, 10), "swap:1-2": (8, 6)}.items():
        rates = expected[name]
        for a, b, times in ((1, 0, top), (0, 1, low), (0, 0, n[name] - top - low)):
            push = up * (b - rates[1]) - down * (a - rates[0])
            variance += times * (push / n[name]) ** 2
    error = bias.std_error[1] / bias.examination[1]
    assert error == pytest.approx(np.sqrt(variance * 150 / 149))


def test_lists_outside_the_experiment_do_not_count(make_log):
    sessions = expected_sessions(PIVOT)
    others = [(0, [3, 1, 2], [3, 1, 2], 10**6, "somebody else")]
    bias = PivotSwap().fit(make_log(sessions + others)).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-4)


def test_other_names(make_log):
    renamed = {"base": "control", "swap:1-2": "arm 2", "swap:1-3": "arm 3"}
    sessions = [(*s[:4], renamed[s[4]]) for s in expected_sessions(PIVOT)]
    told: dict[str, Any] = {"control": "base", "arm 2": (1, 2), "arm 3": (3, 1)}
    bias = PivotSwap(ranker=told).fit(make_log(sessions)).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-4)


def test_the_wrong_kind_of_swap_is_named(make_log):
    pivot, adjacent = make_log(expected_sessions(PIVOT)), make_log(expected_sessions(ADJACENT))
    with pytest.raises(IdentifiabilityError, match=r"AdjacentSwap needs positions 2 and 3 swapped"):
        AdjacentSwap().fit(pivot)
    with pytest.raises(IdentifiabilityError, match=r"Swap positions 1 and 3 in a share"):
        PivotSwap().fit(adjacent)


def test_positions_below_the_swaps_are_not_covered_unless_asked_for(make_log):
    arms = {"base": [1, 2, 3], "swap:1-2": [2, 1, 3]}
    log = make_log(expected_sessions(arms))
    for within in ("document", "length"):
        assert PivotSwap(within=within).fit(log).bias_.depth == 2
        longer = PivotSwap(within=within, depth=5).fit(log).bias_
        assert longer.examination == pytest.approx([1, 0.6, 0.6, 0.6, 0.6], rel=1e-4)
        assert longer.assumes[-1].fields == {"position": 2}


def test_zero_clicks_at_a_swapped_position(make_log):
    log = make_log(
        [(0, [1, 2], [1], 9, "base"), (0, [2, 1], [2], 9, "swap:1-2"), (0, [1, 2], [], 9, "base")]
    )
    for within in ("document", "length"):
        with pytest.raises(IdentifiabilityError, match="too few clicks"):
            PivotSwap(within=within).fit(log)


@pytest.fixture
def deep_log(make_log, rng):
    """Six positions, theta quadratic in k but for an outlier at 4."""
    theta = np.array([1, 0.8, 0.63, 0.9, 0.38, 0.3])
    order = [1, 2, 3, 4, 5, 6]
    sessions = []
    for j in range(1, 7):
        arm = order.copy()
        arm[0], arm[j - 1] = arm[j - 1], arm[0]
        name = "base" if j == 1 else f"swap:1-{j}"
        clicks = [int(rng.binomial(20_000, 0.7 * t)) for t in theta]
        for d, c in zip(arm, clicks, strict=True):
            sessions.append((0, [e if e == d else None for e in arm], [d], c, name))
            sessions.append((0, [e if e == d else None for e in arm], [], 20_000 - c, name))
    return make_log(sessions), theta


def test_the_arxiv_study_s_options(deep_log):
    log, theta = deep_log
    plain = PivotSwap().fit(log).bias_
    assert plain.examination == pytest.approx(theta, rel=0.05)
    fitted = PivotSwap(shape="quadratic", outlier_limit=3, depth=10).fit(log).bias_
    assert fitted.status.part("bias.quadratic-fitted").fields["outliers"] == (4,)
    assert fitted.examination[[1, 2, 4, 5]] == pytest.approx(theta[[1, 2, 4, 5]], rel=0.06)
    assert 0.38 < fitted.examination[3] < 0.63
    assert fitted.depth == 10
    assert fitted.method == "PivotSwap, then a quadratic"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"within": "query"}, OptionError, "within must be one of 'document', 'length'"),
        ({"shape": "cubic"}, OptionError, "shape must be one of 'quadratic'"),
        ({"outlier_limit": 3}, OptionError, "give shape='quadratic' with it"),
        ({"shape": "quadratic", "outlier_limit": 0}, OptionError, "a number above 0"),
        ({"depth": 0}, DepthError, "depth must be at least 1"),
        ({"depth": 2}, DepthError, "must not lie above the last position of the curve, 3"),
        ({"pivot": 9}, OptionError, r"pivot must be one of the positions 1\.\.3"),
    ],
)
def test_options_that_make_no_sense(options, error, message, make_log):
    with pytest.raises(error, match=message):
        PivotSwap(**options).fit(make_log(expected_sessions(PIVOT, sessions=1000)))


def test_swapped_lists_without_a_click_are_not_certain(make_log):
    """10 swapped lists without a click: a rate of 0 has no variance, the expected one has."""
    rows = [(q, [1, 2], [1], 1, "base") for q in range(60)]
    rows += [(q, [1, 2], [2], 1, "base") for q in range(60, 80)]
    rows += [(q, [1, 2], [], 1, "base") for q in range(80, 200)]
    rows += [(q, [2, 1], [], 1, "swap:1-2") for q in range(200, 210)]
    bias = AdjacentSwap(within="length").fit(make_log(rows)).bias_
    # What is clicked 6 or 2 in 200 would be clicked about 3 in 10 or 1 in 10 when swapped: the
    # 10 lists say next to nothing about the ratio.
    assert bias.high[1] / bias.low[1] > 4


def test_documents_are_compared_within_one_experiment(make_log):
    """More swaps in a season in which everybody clicks half as often: swaps would look harmful."""
    first = expected_sessions(ADJACENT, share={"base": 0.9, "swap:1-2": 0.05, "swap:2-3": 0.05})
    usual = dict(RELEVANCE)
    try:
        RELEVANCE.update({q: {d: r / 2 for d, r in by.items()} for q, by in usual.items()})
        then = expected_sessions(ADJACENT, share={"base": 0.2, "swap:1-2": 0.7, "swap:2-3": 0.1})
    finally:
        RELEVANCE.update(usual)
    named = ["spring"] * len(first) + ["winter"] * len(then)
    pooled = make_log(first + then)
    apart = make_log(first + then, context={"experiment": np.array(named, dtype=object)})
    right = AdjacentSwap().fit(apart).bias_.examination
    wrong = AdjacentSwap().fit(pooled).bias_.examination
    assert right == pytest.approx(THETA, rel=1e-3)
    assert np.abs(wrong / THETA - 1).max() > 0.02
    one = make_log(first, context={"experiment": np.array(["spring"] * len(first), dtype=object)})
    plain = AdjacentSwap().fit(make_log(first)).bias_.examination
    assert AdjacentSwap().fit(one).bias_.examination == pytest.approx(plain)
