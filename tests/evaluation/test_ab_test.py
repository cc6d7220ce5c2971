"""Tables 3 and 4 of [hu2019unbiased]_: first-click ratios, and win, same and loss."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from untilt import ClickLog, JudgedLists, WinSameLoss, evaluate, first_clicks
from untilt.errors import OptionError

DEPTH = 4


def ab_log(clicks, query, ranker, *, count=None, names=("old", "new")):
    """Lists of the same four documents per query; clicks (lists, 4)."""
    clicks, query = np.asarray(clicks, dtype=float), np.asarray(query)
    n, queries = len(clicks), int(query.max()) + 1
    return ClickLog(
        query_id=np.arange(queries),
        doc_id=np.arange(queries * DEPTH),
        doc_query=np.repeat(np.arange(queries), DEPTH),
        indptr=np.arange(n + 1) * DEPTH,
        query=query,
        document=(query[:, None] * DEPTH + np.arange(DEPTH)).ravel(),
        position=np.tile(np.arange(1, DEPTH + 1), n),
        label=clicks.ravel(),
        ranker=np.asarray(ranker),
        ranker_names=names,
        count=count,
    )


@pytest.fixture
def small():
    """Old: first clicks at 2, none, 3, 1; new: at 1, 1, none, 4, 2."""
    clicks = [
        [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0],
        [1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0],
    ]  # fmt: skip
    return ab_log(clicks, [0, 0, 1, 2, 0, 1, 2, 2, 1], [0] * 4 + [1] * 5)


def drawn(rng, *, n_queries, lift=1.0, sessions=40):
    """Queries differ in how easy they are; chance chooses the ranker of every session."""
    easy = rng.beta(1, 3, n_queries) * 0.8
    query = rng.integers(0, n_queries, n_queries * sessions)
    ranker = rng.integers(0, 2, len(query))
    first = easy[query] * np.where(ranker == 1, lift, 1.0)
    clicks = np.zeros((len(query), DEPTH))
    clicks[:, 0] = rng.random(len(query)) < first
    clicks[:, 2] = rng.random(len(query)) < 0.1
    return ab_log(clicks, query, ranker)


def test_the_ratios_by_hand(small):
    result = first_clicks(small, "new", "old", top=(1, 2, 4))
    assert (result[1].new, result[1].old) == pytest.approx((2 / 5, 1 / 4))
    assert (result[2].new, result[2].old) == pytest.approx((3 / 5, 2 / 4))
    assert (result[4].new, result[4].old) == pytest.approx((4 / 5, 3 / 4))
    assert result[1].increase == pytest.approx((2 / 5) / (1 / 4) - 1)
    assert result.n_sessions == (5, 4)
    assert result.n_queries == 3


def test_the_first_click_is_the_highest_one(small):
    """A session with clicks at 2 and 4 counts at 2, once."""
    assert first_clicks(small, "new", "old", top=3)[3].old == pytest.approx(3 / 4)


def test_the_error_is_that_of_leaving_each_query_out(rng):
    log = drawn(rng, n_queries=12)
    result = first_clicks(log, "new", "old", top=3)[3]

    def log_ratio(part):
        found = first_clicks(part, "new", "old", top=3)[3]
        return math.log(found.new / found.old)

    moved = [
        log_ratio(log.take(np.flatnonzero(log.query != q))) - log_ratio(log) for q in range(12)
    ]
    error = math.sqrt(11 / 12 * sum(m**2 for m in moved))
    low, high = np.log1p(result.interval.low), np.log1p(result.interval.high)
    assert (low + high) / 2 == pytest.approx(log_ratio(log))
    sessions = np.bincount(log.query)
    df = sessions.sum() ** 2 / (sessions**2).sum() - 1
    half = {10: 2.228, 11: 2.201}  # Student's t at 97.5%
    assert half[11] - 0.01 < (high - low) / 2 / error < half[10] + 0.01
    assert 10 < df <= 11


def test_counts_are_repeated_sessions(rng):
    log = drawn(rng, n_queries=6)
    once, collapsed = first_clicks(log, "new", "old"), first_clicks(log.collapse(), "new", "old")
    assert log.collapse().n_lists < log.n_lists
    for one, other in zip(once, collapsed, strict=True):
        assert one.increase == pytest.approx(other.increase)
        assert one.p_value == pytest.approx(other.p_value)


def test_the_other_way_round(rng):
    log = drawn(rng, n_queries=20, lift=1.2)
    forth, back = (first_clicks(log, *pair)[1] for pair in (("new", "old"), ("old", "new")))
    assert (1 + forth.increase) * (1 + back.increase) == pytest.approx(1)
    assert (1 + forth.interval.low) * (1 + back.interval.high) == pytest.approx(1)
    assert forth.p_value == pytest.approx(back.p_value)


@pytest.mark.parametrize("lift", [1.0, 1.25])
def test_intervals_hold_the_truth(rng, lift):
    """200 experiments on 40 queries; 95% of the intervals should hold the lift."""
    results = [
        first_clicks(drawn(rng, n_queries=40, lift=lift), "new", "old")[1] for _ in range(200)
    ]
    held = np.mean([r.interval.low <= lift - 1 <= r.interval.high for r in results])
    assert 0.91 <= held <= 0.985
    significant = np.mean([r.p_value < 0.05 for r in results])
    assert significant == pytest.approx(1 - held) if lift == 1 else significant > 0.3


def test_queries_of_one_ranker_alone_can_be_left_out():
    """New answers an easy query that old never had: with shared queries there is no difference."""
    clicks = np.zeros((60, DEPTH))
    query = np.repeat([0, 1, 2], [20, 20, 20])
    ranker = np.concatenate([np.tile([0, 1], 20), np.ones(20, dtype=int)])
    clicks[::4, 0] = clicks[1::4, 0] = 1
    clicks[40:, 0] = 1
    log = ab_log(clicks, query, ranker)
    assert first_clicks(log, "new", "old")[1].increase == pytest.approx((10 + 20) / 40 / 0.5 - 1)
    shared = first_clicks(log, "new", "old", queries="shared")
    assert shared[1].increase == pytest.approx(0)
    assert shared.n_queries == 2


def test_no_early_click_at_all_has_no_interval(small):
    none = replace(small, label=np.zeros(len(small.label)))
    result = first_clicks(none, "new", "old", top=1)[1]
    assert math.isnan(result.increase)
    assert (result.interval.low, result.interval.high) == (-1, math.inf)
    assert math.isnan(result.p_value)


def test_the_table_can_be_read(small):
    text = repr(first_clicks(small, "new", "old"))
    assert "First-click ratios of 5 sessions of new and 4 of old, 3 queries" in text
    assert "+60.00%" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"new": "nwe"}, r"no lists of the ranker 'nwe'\. Did you mean 'new'"),
        ({"new": "old"}, "must be two rankers"),
        ({"top": 0}, "top must be positions of at least 1"),
        ({"top": ()}, "top must be positions of at least 1"),
        ({"queries": "some"}, "queries"),
        ({"level": 1.0}, "level"),
    ],
)
def test_what_cannot_be_asked(small, options, said):
    with pytest.raises(OptionError, match=said):
        first_clicks(small, **{"new": "new", "old": "old", **options})


def test_a_log_must_name_its_rankers(small):
    with pytest.raises(OptionError, match="does not name the ranker of a list"):
        first_clicks(replace(small, ranker=None, ranker_names=()), "new", "old")
    apart = ab_log(np.ones((2, DEPTH)), [0, 1], [0, 1])
    with pytest.raises(OptionError, match="no query in common"):
        first_clicks(apart, "new", "old", queries="shared")
    with pytest.raises(OptionError, match="there is no top '2' here"):
        first_clicks(small, "new", "old")[2]


# ---- people


def ab_of_people(seed, *, by="person", lift=1.0, n_people=1000, spread=1.0, differ=0.8):
    """4,000 sessions; lognormal sessions by person, who also click more or less than others."""
    rng = np.random.default_rng(seed)
    busy = np.exp(spread * rng.normal(size=n_people))
    person = rng.choice(n_people, size=4000, p=busy / busy.sum())
    query = rng.integers(0, 150, 4000)
    arm = rng.integers(0, 2, n_people)[person] if by == "person" else rng.integers(0, 2, 4000)
    clicks_more = np.exp(differ * rng.normal(size=n_people) - differ**2 / 2)[person]
    easy = rng.uniform(0.05, 0.35, size=(150, DEPTH))[query] / np.arange(1, DEPTH + 1)
    rate = np.minimum(easy * (clicks_more * np.where(arm == 1, lift, 1.0))[:, None], 0.95)
    return replace(ab_log(rng.random((4000, DEPTH)) < rate, query, arm), person=person)


@pytest.mark.parametrize(("seed", "is_larger"), [(0, True), (1, False)])
def test_people_by_hand(seed, is_larger):
    """V = sum_q + sum_u - sum_uq of what leaving each out does to log(new / old)."""
    log = ab_of_people(seed, n_people=150, spread=0.0).take(np.arange(500))
    result = first_clicks(log, "new", "old", top=3)[3]

    def log_ratio(part):
        found = first_clicks(replace(part, person=None), "new", "old", top=3)[3]
        return math.log(found.new / found.old)

    squares = []
    for unit in (log.query, log.person, log.person * 150 + log.query):
        units = np.unique(unit)
        moved = [log_ratio(log.take(np.flatnonzero(unit != u))) - log_ratio(log) for u in units]
        squares.append((len(units) - 1) / len(units) * sum(m**2 for m in moved))
    variance = squares[0] + squares[1] - squares[2]
    assert (variance > max(squares[:2])) == is_larger
    variance = max(variance, *squares[:2])
    counts = [np.bincount(unit) for unit in (log.query, log.person)]
    t = special.stdtrit(min(500**2 / (n**2).sum() for n in counts) - 1, 0.975)
    assert math.log1p(result.interval.high) == pytest.approx(
        log_ratio(log) + t * math.sqrt(variance)
    )
    counted = first_clicks(log.collapse(), "new", "old", top=3)[3]
    assert counted.p_value == pytest.approx(result.p_value)


def found_in(logs, looks=()):
    """How often p < .05 at one look, and at any of several."""
    fixed = watched = 0
    for log in logs:
        fixed += first_clicks(log, "new", "old", top=3)[3].p_value < 0.05
        watched += any(
            first_clicks(log.take(np.arange(n)), "new", "old", top=3, any_time=True)[3].p_value
            < 0.05
            for n in looks
        )
    return fixed, watched


def test_heavy_users_are_no_effect():
    """Chance drew the ranker for each person; without the column most logs show an effect."""
    logs = [ab_of_people(seed, spread=1.5) for seed in range(40)]
    assert found_in(logs)[0] <= 6
    assert found_in(replace(log, person=None) for log in logs)[0] > 12


def test_the_power_is_kept_where_sessions_were_drawn():
    logs = [ab_of_people(seed, by="session", lift=1.15, n_people=4000) for seed in range(40)]
    with_people, without = (
        found_in(each)[0] for each in (logs, [replace(log, person=None) for log in logs])
    )
    assert without > 20
    assert with_people >= without - 3


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 1.0, 1.5])
def test_size_with_heavy_users(spread):
    logs = (ab_of_people(seed, spread=spread) for seed in range(400))
    fixed, watched = found_in(logs, looks=(1000, 2000, 3000, 4000))
    assert fixed <= 0.07 * 400
    assert watched <= 0.07 * 400


# ---- win, same, loss


def test_table_4_of_the_paper():
    """Its ratio is 1.91; by a sign test 21 against 11 is not decided."""
    table = WinSameLoss(win=21, same=68, loss=11)
    assert table.ratio == pytest.approx(21 / 11)
    assert table.share == pytest.approx(21 / 32)
    assert table.p_value == pytest.approx(2 * sum(math.comb(32, k) for k in range(12)) / 2**32)
    assert table.p_value > 0.05


@pytest.mark.parametrize(("win", "loss"), [(21, 11), (3, 0), (0, 4), (7, 7)])
def test_the_interval_ends_where_the_binomial_has_half_of_the_rest(win, loss):
    interval = WinSameLoss(win, 5, loss, level=0.9).interval
    n = win + loss

    def at_most(k, p):
        return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))

    if loss:
        assert at_most(win, interval.high) == pytest.approx(0.05)
    else:
        assert interval.high == 1
    if win:
        assert 1 - at_most(win - 1, interval.low) == pytest.approx(0.05)
    else:
        assert interval.low == 0


def test_nothing_decided():
    table = WinSameLoss(0, 9, 0)
    assert math.isnan(table.ratio)
    assert math.isnan(table.share)
    assert table.p_value == 1
    assert (table.interval.low, table.interval.high) == (0, 1)
    assert WinSameLoss(4, 0, 0).ratio == math.inf
    assert WinSameLoss(5, 1, 5).p_value == 1


def test_queries_are_counted_by_a_metric():
    """Precision@1 on five queries of two documents; the last has nothing relevant."""
    labels = [1, 0, 1, 0, 1, 0, 0, 1, 0, 0]
    judged = JudgedLists(np.zeros((10, 1)), np.array(labels), np.arange(0, 11, 2), np.arange(5))
    first = np.array([2, 1, 2, 1, 1, 2, 1, 2, 2, 1.0])  # right on queries 1, 2 and 4
    second = np.array([1, 2, 2, 1, 1, 2, 1, 2, 2, 1.0])  # right on 2 and 4
    metrics = ["precision@1", "arp", "ndcg"]
    difference = evaluate(judged, first, metrics, empty="skip").minus(
        evaluate(judged, second, metrics, empty="skip")
    )
    for metric in metrics:  # of arp the smaller one is better
        counted = difference[metric].win_same_loss()
        assert (counted.win, counted.same, counted.loss) == (1, 3, 0)
    assert difference["ndcg"].win_same_loss(margin=0.5).win == 0
    with pytest.raises(OptionError, match="margin must be a number of at least 0"):
        difference["ndcg"].win_same_loss(margin=-1)


def test_counts_are_not_negative():
    with pytest.raises(OptionError, match="numbers of queries"):
        WinSameLoss(-1, 0, 0)
