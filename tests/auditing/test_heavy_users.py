"""Rankers that chance drew for each person once: no finding because of a few heavy users."""

from dataclasses import replace

import numpy as np
import pytest
from tests.heavy_users import heavy_users

from untilt import ClickLog
from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt.auditing.reading import ReadingTest, grouped_cells, reading_tests
from untilt.auditing.scores import ScoreCells


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
    one, other = (_ranker_test(each) for each in (log, log.collapse()))
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
