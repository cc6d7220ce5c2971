"""Team-draft interleaving: fair where nobody is better, and intervals that may be watched."""

from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate

from untilt import ClickLog, first_clicks, interleaved, read_log, team_draft
from untilt._core.statistics import (
    any_time_factor,
    any_time_p_value,
    any_time_share,
    normal_quantile,
)
from untilt.errors import OptionError


def test_a_draft_takes_turns_in_an_order_that_a_coin_decides(rng):
    shown, teams = team_draft("abcd", "bade", 4, rng)
    assert len(set(shown)) == 4
    assert sorted(teams) == [1, 1, 2, 2]
    for pair in (teams[:2], teams[2:]):
        assert sorted(pair) == [1, 2]
    firsts = [team_draft("ab", "ba", 2, seed)[1][0] for seed in range(400)]
    assert abs(firsts.count(1) - 200) < 50


def test_short_lists_end_where_both_rankers_do(rng):
    shown, teams = team_draft("ab", "ba", 5, rng)
    assert sorted(shown) == ["a", "b"]
    assert len(teams) == 2
    assert team_draft("", "xy", 3, rng) == (["x", "y"], [0, 0])


class Coins(np.random.Generator):
    """Coins that were thrown before."""

    def __init__(self, thrown: tuple[int, ...]) -> None:
        super().__init__(np.random.PCG64())
        self.thrown = list(thrown)

    def random(self) -> float:  # type: ignore[override]
        return float(self.thrown.pop(0))


@pytest.mark.parametrize("size", [5, 10])
@pytest.mark.parametrize("short", range(11))
def test_the_same_order_cut_off_ties_by_enumeration(short, size):
    """At each place both teams stand equally often over all throws; nothing is left out."""
    whole, balance = "abcdefghij", np.zeros(size)
    for thrown in product((0, 1), repeat=10):
        for new, old, sign in ((whole[:short], whole, 1), (whole, whole[:short], -1)):
            shown, teams = team_draft(new, old, size, Coins(thrown))
            assert "".join(shown) == whole[:size]
            balance += sign * np.array([(0, 1, -1)[team] for team in teams])
            one_way = np.array([(0, 1, -1)[team] for team in teams])
            assert np.all(one_way[: short - 1 if short % 2 else short] != 0)
    assert not balance.any()


def test_a_short_list_of_other_documents_keeps_its_places():
    for thrown in product((0, 1), repeat=4):
        shown, teams = team_draft("xy", "abcd", 6, Coins((*thrown, 0, 0)))
        assert [team for each, team in zip(shown, teams, strict=True) if each in "xy"] == [1, 1]
        assert teams[4:] == [0, 0]


def test_equal_rankers_win_alike_whatever_is_clicked():
    """By enumeration: of the same order each team holds each position with probability 1/2."""
    counts = np.zeros((3, 2))
    for seed in range(600):
        _, teams = team_draft("abc", "abc", 3, seed)
        for place, team in enumerate(teams):
            counts[place, team - 1] += 1
    assert np.all(np.abs(counts[:, 0] / 600 - 0.5) < 0.08)


def test_sessions_are_won_by_more_clicks():
    clicks = {  # of three documents, teams 1, 2, 1
        (0, 0, 0): 0, (1, 0, 0): 1, (0, 1, 0): -1, (1, 1, 0): 0, (1, 1, 1): 1, (0, 0, 1): 1,
    }  # fmt: skip
    rows = [
        {"query_id": 1, "session_id": s, "doc_id": d, "position": d + 1, "click": c, "team": t}
        for s, session in enumerate(clicks)
        for d, (c, t) in enumerate(zip(session, (1, 2, 1), strict=True))
    ]
    rows += [  # nobody's list
        {"query_id": 1, "session_id": 99, "doc_id": d, "position": d + 1, "click": 1, "team": 0}
        for d in range(3)
    ]
    log = read_log(pa.Table.from_pylist(rows), labels=["team"])
    found = interleaved(log)
    ways = list(clicks.values())
    expected = (ways.count(1), ways.count(0), ways.count(-1))
    assert (found.sessions.win, found.sessions.same, found.sessions.loss) == expected
    with pytest.raises(OptionError, match="no column 'side'"):
        interleaved(log, team="side")


def test_the_p_value_is_one_over_the_mixture():
    wins, losses = 14, 5
    mixture, _ = integrate.quad(lambda p: p**wins * (1 - p) ** losses, 0, 1)
    interval, p_value = any_time_share(wins, losses, 0.95)
    assert p_value == pytest.approx(0.5 ** (wins + losses) / mixture)
    for end in (interval.low, interval.high):
        assert mixture / (end**wins * (1 - end) ** losses) == pytest.approx(20)
    assert any_time_share(0, 0, 0.9)[1] == 1


def test_a_fair_coin_that_is_always_watched_is_called_unfair_rarely():
    """Exact: the probability that some look at up to 60 flips has a p-value below 0.1."""
    never = {(0, 0): 1.0}  # (wins, losses) -> probability of coming here without such a look
    for _ in range(60):
        reached: dict[tuple[int, int], float] = defaultdict(float)
        for (wins, losses), chance in never.items():
            reached[wins + 1, losses] += chance / 2
            reached[wins, losses + 1] += chance / 2
        never = {at: c for at, c in reached.items() if any_time_share(*at, 0.9)[1] >= 0.1}
    caught = 1 - sum(never.values())
    assert 0.01 < caught <= 0.1


def test_the_p_value_is_where_the_interval_touches_zero():
    value, error = 0.31, 0.09
    p = any_time_p_value(value, error)
    half = any_time_factor(np.array(error), 1 - p) * normal_quantile(1 - p) * error
    assert half == pytest.approx(value)


def test_first_clicks_at_any_time_are_wider(make_log, rng):
    sessions = []
    for _ in range(400):
        docs = rng.permutation(4).tolist()
        clicked = [d for k, d in enumerate(docs, 1) if rng.random() < 0.5 / k]
        sessions.append((int(rng.integers(25)), docs, clicked, 1, str(rng.choice(["a", "b"]))))
    log = make_log(sessions)
    once, always = (first_clicks(log, "a", "b", any_time=each)[1] for each in (False, True))
    assert always.increase == once.increase
    assert always.interval.low < once.interval.low < once.interval.high < always.interval.high
    assert always.p_value > once.p_value


def _interleaved_log(rng, n, person):
    """Lists of two documents; whose team a person clicks is a habit."""
    habit = rng.integers(2, size=int(person.max()) + 1)[person]
    first = rng.integers(2, size=n)  # the team at position 1
    clicked = np.where(rng.random(n) < 0.9, habit, 1 - habit)
    team = np.column_stack([first, 1 - first]) + 1
    query = rng.integers(60, size=n)
    return ClickLog(
        np.arange(60), np.tile([0, 1], 60), np.repeat(np.arange(60), 2), np.arange(n + 1) * 2,
        query, (2 * query[:, None] + [0, 1]).ravel(), np.tile([1, 2], n),
        (team == clicked[:, None] + 1).astype(float).ravel(),
        extra_labels={"team": team.ravel()}, person=person,
    )  # fmt: skip


def test_habits_of_a_few_people_decide_no_interleaving():
    """12 people with 100 sessions each: without them 1,200 sessions decide for sure."""
    found = {True: 0, False: 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        log = _interleaved_log(rng, 1200, np.arange(1200) % 12)
        for known in found:
            each = log if known else replace(log, person=None)
            found[known] += interleaved(each).p_value < 0.05
    assert found[False] > 20
    assert found[True] <= 6


def test_people_of_one_session_each_change_little(rng):
    log = _interleaved_log(rng, 600, np.arange(600))
    known, unknown = interleaved(log), interleaved(replace(log, person=None))
    assert known.sessions == unknown.sessions
    assert known.p_value >= unknown.p_value
    assert np.ptp([known.interval.low, known.interval.high]) == pytest.approx(
        np.ptp([unknown.interval.low, unknown.interval.high]), rel=0.15
    )


def test_counts_are_repeated_sessions(rng):
    log = _interleaved_log(rng, 4000, np.arange(4000) % 7)
    one, other = interleaved(log), interleaved(log.collapse())
    assert log.collapse().n_lists < log.n_lists
    assert other.sessions == one.sessions
    assert other.p_value == pytest.approx(one.p_value)
    assert other.interval.low == pytest.approx(one.interval.low)


@pytest.mark.slow
def test_two_equal_rankers_that_are_always_watched_are_told_apart_rarely(make_log):
    """300 tests of a ranker against itself, looked at ten times each: 5% with a finding at most."""
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sessions = []
        for _ in range(2000):
            query = int(rng.integers(60))
            clicked = [d for d in range(3) if rng.random() < (0.2 + 0.01 * query) / (d + 1)]
            sessions.append((query, [0, 1, 2], clicked, 1, "ab"[int(rng.random() < 0.5)]))
        log = make_log(sessions)
        for end in range(200, 2001, 200):
            look = first_clicks(log.take(np.arange(end)), "b", "a", top=1, any_time=True)
            if look[1].p_value < 0.05:
                found += 1
                break
    assert found / 300 < 0.05 + 2 * np.sqrt(0.05 * 0.95 / 300)
