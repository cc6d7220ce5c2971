"""Experiments whose probabilities change, or differ between lists: only like is compared with like.

Everything is enumerated or drawn here, by the position-based model and nothing of the package:
seasons in which people click less, servers that swap more often then, rankers that are replaced,
and short lists whose readers click less.
"""

from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt.bias.experiments.assignment import experiments_of

THETA = 1 / np.arange(1, 6)
RELEVANCE = np.array([[0.9, 0.2, 0.6, 0.4, 0.5], [0.3, 0.8, 0.1, 0.7, 0.4]])
ADJACENT = [(1, 2), (2, 3), (3, 4), (4, 5)]
PIVOT = [(1, 2), (1, 3), (1, 4), (1, 5)]


@dataclass(frozen=True)
class Kind:
    """Sessions that are alike: their experiment, ranker, length and how much they click.

    swaps : probability of each pair, where a list is long enough for it
    top : shuffled down to here in `shuffled` of the sessions
    """

    name: str = ""
    order: tuple[int, ...] = (0, 1, 2, 3, 4)
    length: int = 5
    clicks: float = 1.0
    pairs: tuple[tuple[int, int], ...] = ()
    each: float = 0.0
    top: int = 0
    shuffled: float = 0.0

    def arms(self):
        """(name of the ranker, order shown, probability), which add up to 1."""
        usual = self.order[: self.length]
        left = 1.0
        for a, b in self.pairs:
            if b <= self.length:
                order = list(usual)
                order[a - 1], order[b - 1] = order[b - 1], order[a - 1]
                left -= self.each
                yield f"swap:{a}-{b}{self.name}", tuple(order), self.each
        if self.top:
            left -= self.shuffled
            orders = list(permutations(usual[: self.top]))
            for top in orders:
                shown = (*top, *usual[self.top :])
                yield f"shuffle-top-{self.top}{self.name}", shown, self.shuffled / len(orders)
        yield f"base{self.name}", usual, left


def table(sessions):
    """(query, order, clicked places, count, ranker) as a log."""
    columns = {"query_id": [], "session_id": [], "doc_id": [], "position": [], "click": [],
               "ranker": [], "count": []}  # fmt: skip
    for number, (query, order, clicked, count, ranker) in enumerate(sessions):
        n = len(order)
        columns["query_id"] += [query] * n
        columns["session_id"] += [number] * n
        columns["doc_id"] += order
        columns["position"] += range(1, n + 1)
        columns["click"] += [int(k in clicked) for k in range(n)]
        columns["ranker"] += [ranker] * n
        columns["count"] += [count] * n
    return pa.table(columns)


def expected(kinds, sessions=1e6):
    """Every arm with every single click, as often as the model says: estimates are then exact.

    A session has one click at most here. Estimators use clicks by position, in which that makes no
    difference.
    """
    made = []
    for kind, query in product(kinds, range(len(RELEVANCE))):
        for ranker, order, probability in kind.arms():
            chance = 0.2 * kind.clicks * THETA[: len(order)] * RELEVANCE[query][list(order)]
            for k, p in enumerate(chance):
                made.append((query, order, {k}, round(sessions * probability * p), ranker))
            left = round(sessions * probability * (1 - chance.sum()))
            made.append((query, order, set(), left, ranker))
    return table([session for session in made if session[3]])


def seasons(pairs, *, name=True, order=(0, 1, 2, 3, 4), each=(0.01, 0.2)):
    """Fewer clicks in winter, when there are more swaps and perhaps another ranker."""
    names = ("@spring", "@winter") if name else ("", "")
    pairs = tuple(pairs)
    return [
        Kind(names[0], pairs=pairs, each=each[0]),
        Kind(names[1], order, clicks=0.4, pairs=pairs, each=each[1]),
    ]


@pytest.mark.parametrize("within", ["document", "length"])
@pytest.mark.parametrize(
    ("estimator", "pairs"), [(ut.AdjacentSwap, ADJACENT), (ut.PivotSwap, PIVOT)]
)
def test_shares_that_change_with_the_season(estimator, pairs, within):
    log = ut.read_log(expected(seasons(pairs)))
    bias = estimator(within=within).fit(log).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-3)
    # Without a name for the experiments nothing can tell the seasons apart.
    pooled = ut.read_log(expected(seasons(pairs, name=False)))
    wrong = estimator(within=within, check=False).fit(pooled).bias_
    assert np.abs(wrong.examination / THETA - 1).max() > 0.05


@pytest.mark.parametrize("within", ["document", "length"])
def test_a_context_says_the_same_as_the_name(within):
    named = expected(seasons(PIVOT))
    season = ["spring" if "spring" in each else "winter" for each in named["ranker"].to_pylist()]
    arms = [each.partition("@")[0] for each in named["ranker"].to_pylist()]
    plain = named.drop_columns("ranker").append_column("ranker", pa.array(arms))
    log = ut.read_log(plain.append_column("experiment", pa.array(season)), context=["experiment"])
    bias = ut.PivotSwap(within=within).fit(log).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-3)
    assert len(set(experiments_of(log))) == len(set(experiments_of(ut.read_log(named)))) == 2


@pytest.mark.parametrize(
    ("estimator", "pairs"), [(ut.AdjacentSwap, ADJACENT), (ut.PivotSwap, PIVOT)]
)
def test_a_ranker_that_is_replaced(estimator, pairs):
    """In winter documents that stood at 2 stand at 3: only swaps may be compared, not winters."""
    kinds = seasons(pairs, name=False, order=(1, 0, 3, 4, 2), each=(0.1, 0.1))
    log = ut.read_log(expected(kinds))
    bias = estimator().fit(log).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-3)
    # Documents at all their positions, whoever put them there.
    harvested = ut.AllPairs().fit(log).bias_
    assert np.abs(harvested.examination / THETA - 1).max() > 0.05


@pytest.mark.parametrize("within", ["document", "length"])
def test_short_lists_whose_readers_click_less(within):
    """A list of three cannot swap 3 and 4: its readers are among the usual lists alone."""
    pairs = tuple(ADJACENT)
    kinds = [
        Kind(pairs=pairs, each=0.1),
        Kind(length=3, clicks=0.3, pairs=pairs, each=0.1),
    ]
    bias = ut.AdjacentSwap(within=within).fit(ut.read_log(expected(kinds))).bias_
    assert bias.examination == pytest.approx(THETA, rel=1e-3)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (1, 0, 3, 4, 2)], ids=["one", "replaced"])
def test_shuffles_of_different_depth(order):
    """Three positions at first, four in winter; position 5 changes with the ranker alone."""
    kinds = [
        Kind("@spring", top=3, shuffled=0.1),
        Kind("@winter", order, clicks=0.4, top=4, shuffled=0.4),
    ]
    bias = ut.ShuffledTop().fit(ut.read_log(expected(kinds))).bias_
    assert bias.examination == pytest.approx(THETA[:4], rel=1e-3)
    assert bias.assumes[1].fields == {"top": 4}


# ---- by chance


def drawn(rng, kinds, sessions, queries=2):
    """Sessions at random: any number of clicks, each by its own chance."""
    made = []
    for kind in kinds:
        arms = list(kind.arms())
        chance = np.array([probability for _, _, probability in arms])
        arm = rng.choice(len(arms), size=sessions, p=chance / chance.sum())
        query = rng.integers(queries, size=sessions)
        for a, q in zip(arm, query, strict=True):
            ranker, order, _ = arms[a]
            p = kind.clicks * THETA[: len(order)] * RELEVANCE[q % 2][list(order)]
            made.append((q, order, set(np.flatnonzero(rng.random(len(p)) < p)), 1, ranker))
    return table(made)


@pytest.mark.parametrize(
    ("estimator", "kinds"),
    [
        (ut.PivotSwap(), seasons(PIVOT, each=(0.02, 0.2), order=(1, 0, 3, 4, 2))),
        pytest.param(
            ut.AdjacentSwap(within="length"),
            seasons(ADJACENT, each=(0.02, 0.2)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ut.ShuffledTop(),
            [
                Kind("@spring", top=3, shuffled=0.05),
                Kind("@winter", (1, 0, 3, 4, 2), clicks=0.4, top=5, shuffled=0.3),
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["pivot", "adjacent by length", "shuffles"],
)
@pytest.mark.parametrize(("logs", "most"), [(10, 3), pytest.param(25, 5, marks=pytest.mark.slow)])
def test_intervals_cover_the_truth(rng, estimator, kinds, logs, most):
    """Of 25 logs 95% intervals miss 1 or 2; 6 or more at a position: once in 800 times.

    Of 10 logs 4 or more: once in 1,000 times.
    """
    missed, error = np.zeros(5), []
    for _ in range(logs):
        bias = estimator.fit(ut.read_log(drawn(rng, kinds, 2000))).bias_
        missed += (bias.low > THETA) | (bias.high < THETA)
        error.append(np.log(bias.examination / THETA)[1:])
    assert missed.max() <= most
    spread = np.std(error, axis=0) / np.sqrt(len(error))
    assert np.abs(np.mean(error, axis=0) / spread).max() < 4


def test_rankers_are_compared_within_an_experiment_too(rng):
    """That people click less in winter is no reason to doubt a curve that knows of the seasons."""

    def audited(*, name):
        found = ut.audit(ut.read_log(drawn(rng, seasons(PIVOT, name=name), 5000, queries=40)))
        (ranker,) = (test for test in found.reading.tests if test.question == "ranker")
        return found, ranker

    found, ranker = audited(name=True)
    assert found.advice.estimator == "PivotSwap"
    assert found.interventions.failed == ()
    assert not ranker.fails
    _, ranker = audited(name=False)
    assert ranker.fact.code == "reading.ranker-level-serious"
