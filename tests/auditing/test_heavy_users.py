"""Rankers that chance drew for each person once: no finding because of a few heavy users."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.people import fixed_lists, people
from tests.heavy_users import heavy_users

from untilt import ClickLog
from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt.auditing.reading import ReadingTest, grouped_cells, reading_tests, relevance_test
from untilt.auditing.scores import ScoreCells, _squares_of_people, feature_score, relevance_score
from untilt.data.counts import position_counts
from untilt.data.transform import later_half


def _ranker_test(log: ClickLog) -> ReadingTest:
    return next(each for each in reading_tests(log).tests if each.question == "ranker")


@pytest.mark.parametrize("kind", ["level", "slope"])
def test_what_is_lost_with_each_person_by_leaving_it_out(kind: str) -> None:
    log = heavy_users(3, sessions=500, n_people=8, n_queries=4)
    assert log.ranker is not None
    assert log.person is not None
    score = getattr(_cells(log), kind)()
    person, both = score.people
    whole = _cells(log)
    ratio = 1.0 if kind == "level" else whole.ratio
    gap, _variance, share = whole._gaps(ratio)
    z = np.ones(len(gap))
    if kind == "slope":
        z = np.array([_by_click(whole, share, cell) for cell in range(len(gap))])
    weight = {(d, k): w for d, k, w in zip(whole.document, whole.position, z, strict=True)}
    for lost, units in ((person, log.person), (both, log.person * 4 + log.query)):
        for number, unit in enumerate(np.unique(units)):
            rest, left = log.take(units != unit), 0.0
            for (document, place), w in weight.items():
                counts = []
                for arm in (1, 0):
                    lists = rest.ranker[ragged.list_of_row(rest.indptr)] == arm
                    rows = (rest.document == document) & (rest.position == place) & lists
                    counts += [rows.sum(), rest.label[rows].sum()]
                n1, c1, n0, c0 = counts
                if n1 + n0:
                    left += w * (c1 - (c1 + c0) * n1 * ratio / (n1 * ratio + n0))
            assert lost.score[number] == pytest.approx(z @ gap - left, abs=1e-6)
        assert len(lost.score) == number + 1


def _by_click(cells: ScoreCells, share: FloatArray, cell: int) -> float:
    """Derivative of the sum of U_q by a click of a cell that turns to the kind from the others."""
    z, same = -np.log(cells.position), cells.query == cells.query[cell]

    def score(turned: float) -> float:
        move = np.where(np.arange(len(z)) == cell, turned, 0.0)
        a, b = (cells.c1 + move) * (1 - share), (cells.c0 - move) * share
        A, zA, B, zB = (float(np.sum(each[same])) for each in (a, z * a, b, z * b))
        return 2 * (zA * B - A * zB) / float(np.sum((cells.c1 + cells.c0)[same]))

    return (score(1e-4) - score(-1e-4)) / 2e-4


def _cells(log: ClickLog):
    assert log.ranker is not None
    return grouped_cells(log, log.ranker[ragged.list_of_row(log.indptr)])


def test_counts_are_repeated_sessions() -> None:
    log = heavy_users(4, sessions=4000, n_people=8, n_queries=3).top(2)
    assert log.collapse().n_lists < log.n_lists
    for test in (_ranker_test, relevance_test):
        one, other = (test(each) for each in (log, log.collapse()))
        assert one is not None
        assert other is not None
        assert other.p_value == pytest.approx(one.p_value)
        assert (other.low, other.high) == pytest.approx((one.low, one.high))


def test_a_heavy_user_is_no_finding_about_the_ranker() -> None:
    failed = {True: 0, False: 0}
    for seed in range(10):
        log = heavy_users(seed, sessions=6000)
        for known in failed:
            failed[known] += _ranker_test(log if known else replace(log, person=None)).fails
    assert failed[True] <= 2
    assert failed[False] >= 4


def test_squares_of_people_by_hand() -> None:
    """u_dp = a_dp - h_d a_qp; a sum of u_d^2 less those of people is one over pairs of people."""
    rng = np.random.default_rng(0)
    query = np.array([0, 0, 0, 1, 1])
    unit, document = (each.ravel() for each in np.indices((4, 5)))
    gap, variance = rng.normal(size=20), rng.uniform(1, 2, size=20)
    h, u, v = rng.uniform(0, 0.5, size=(3, 5))
    parts = gap.reshape(4, 5)
    own = parts - h * np.stack([np.bincount(query, row)[query] for row in parts])
    squares, sums = _squares_of_people(unit, document, gap, variance, query, h, u, v)
    assert squares == pytest.approx(np.bincount(query, (own**2).sum(axis=0)))
    assert sums.score == pytest.approx(np.sqrt(2) * (own * (u - own)).sum(axis=1))
    assert sums.information == pytest.approx(variance.reshape(4, 5) @ v)


def test_what_people_do_to_relevance_and_features_adds_up() -> None:
    """Over all people the sums by row are those of the cells: 0 where the curve is fitted."""
    log = heavy_users(5, sessions=4000, n_people=30, n_queries=20)
    found = relevance_score(position_counts(log), np.random.default_rng(0), log)
    assert found is not None
    one = fixed_lists(0)
    someone = replace(one, person=np.arange(one.n_lists) % 50)
    by_features = feature_score(someone, position_counts(someone))
    assert by_features is not None
    for score in (found.at(0.0), by_features.at(0.0)):
        person, both = score.people
        assert person.score.sum() == pytest.approx(both.score.sum())
        assert person.information.sum() == pytest.approx(both.information.sum())
        assert abs(person.score.sum() - score.score.sum()) < 0.5 * score.std_error


def _p_of_change(log: ClickLog) -> float:
    assert log.time is not None
    later = ragged.list_of_row(log.indptr)
    cells = grouped_cells(log, later_half(log).astype(np.int64)[later])
    return cells.spread().p_above


def test_a_heavy_user_with_a_taste_is_no_change_of_documents() -> None:
    failed = {True: 0, False: 0}
    for seed in range(8):
        log = heavy_users(seed, taste=0.8, halves=True, by="session", n_queries=30)
        for known in failed:
            failed[known] += _p_of_change(log if known else replace(log, person=None)) < 0.05
    assert failed[True] <= 1
    assert failed[False] >= 4


@pytest.mark.slow
def test_power_of_change_where_people_are_alike() -> None:
    """As good as without people: .95 of the logs where relevance is new by a tenth."""
    found = {True: 0, False: 0}
    for seed in range(20):
        log = people(seed, sessions=8000, drift=0.1)
        share = np.arange(1, 1001.0) ** -1
        who = np.random.default_rng(seed).choice(1000, size=log.n_lists, p=share / share.sum())
        for known in found:
            found[known] += _p_of_change(replace(log, person=who) if known else log) < 0.05
    assert found[True] >= 0.9 * found[False] > 15


@pytest.mark.slow
def test_people_who_read_better_documents_differently_and_even_out() -> None:
    """Rejected: .07 with people, .27 without (60 logs)."""
    failed = {True: 0, False: 0}
    for seed in range(60):
        log = heavy_users(seed, by="session", fall_differ=0.5)
        for known in failed:
            test = relevance_test(log if known else replace(log, person=None))
            failed[known] += test is not None and test.p_value < 0.05
    assert failed[True] <= 7
    assert failed[False] >= 10


@pytest.mark.slow
@pytest.mark.parametrize("read_differ", [0.0, 0.3])
def test_size_of_the_ranker_test(read_differ: float) -> None:
    """1,000 people with Zipf traffic: the test rejects at about its level, and vetoes few logs."""
    made = [_ranker_test(heavy_users(s, read_differ=read_differ)) for s in range(100)]
    assert sum(each.p_value < 0.05 for each in made) <= 13  # .05 + 2 standard errors at .08
    assert sum(each.fails and each.fact.severity == "serious" for each in made) <= 8


@pytest.mark.slow
def test_power_of_the_ranker_test_where_sessions_were_drawn() -> None:
    found = {True: 0, False: 0}
    for seed in range(40):
        log = heavy_users(seed, by="session", effect=0.08)
        for known in found:
            each = log if known else replace(log, person=None)
            found[known] += _ranker_test(each).p_value < 0.05
    assert found[False] > 15
    assert found[True] >= 0.8 * found[False]
