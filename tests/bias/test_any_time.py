"""Intervals of an experiment that is watched while it runs: right at all looks together.

`python tests/bias/test_any_time.py` prints the table of docs/how-many-sessions.md.
"""

import itertools
import sys

import numpy as np
import pytest

from untilt import AdjacentSwap, ClickLog, PivotSwap, ShuffledTop
from untilt.bias.log_ratios import from_log_ratios
from untilt.errors import IdentifiabilityError
from untilt.facts import codes, note

K, N_QUERIES = 3, 12
THETA = np.array([1.0, 0.6, 0.35])
RELEVANCE = np.random.default_rng(3).uniform(0.1, 0.6, size=(N_QUERIES, K))
PATTERNS = np.array(list(itertools.product([0, 1], repeat=K)))
ORDERS: dict[str, dict[str, tuple[int, ...]]] = {
    "shuffle": {f"shuffle-{i}": order for i, order in enumerate(itertools.permutations(range(K)))},
    "pivot": {"base": (0, 1, 2), "swap:1-2": (1, 0, 2), "swap:1-3": (2, 1, 0)},
    "adjacent": {"base": (0, 1, 2), "swap:1-2": (1, 0, 2), "swap:2-3": (0, 2, 1)},
}
ESTIMATORS = {
    "shuffle": ShuffledTop(check=False),
    "pivot": PivotSwap(check=False),
    "adjacent": AdjacentSwap(check=False),
    "pivot, by length": PivotSwap(within="length", check=False),
}


class Experiment:
    """All kinds of sessions (query, order, clicks) with their probability, counted as they come."""

    def __init__(self, name):
        self.names = list(ORDERS[name])
        orders = np.array(list(ORDERS[name].values()))
        chance = np.full(len(orders), 1 / len(orders))
        kinds = list(itertools.product(range(N_QUERIES), range(len(orders)), range(len(PATTERNS))))
        self.query, self.arm, pattern = np.array(kinds).T
        self.shown, self.clicked = orders[self.arm], PATTERNS[pattern]
        p = THETA * RELEVANCE[self.query[:, None], self.shown]
        likely = np.where(self.clicked, p, 1 - p).prod(axis=1)
        self.probability = likely * chance[self.arm] / N_QUERIES

    def looks(self, rng, n_looks, sessions):
        """The log at each look, after so many more sessions."""
        count = np.zeros(len(self.query), dtype=np.int64)
        for _ in range(n_looks):
            count += rng.multinomial(sessions, self.probability)
            yield self.log(count)

    def log(self, count):
        kept = np.flatnonzero(count)
        return ClickLog(
            query_id=np.arange(N_QUERIES),
            doc_id=np.tile(np.arange(K), N_QUERIES),
            doc_query=np.repeat(np.arange(N_QUERIES), K),
            indptr=np.arange(0, len(kept) * K + 1, K),
            query=self.query[kept],
            document=(self.query[kept, None] * K + self.shown[kept]).ravel(),
            position=np.tile(np.arange(1, K + 1), len(kept)),
            label=self.clicked[kept].ravel().astype(float),
            count=count[kept],
            ranker=self.arm[kept],
            ranker_names=self.names,
        )


def always_inside(name, any_time, *, n_experiments, n_looks, sessions):
    """(experiments, 2) whether positions 2 and 3 were within their intervals at every look."""
    estimator = ESTIMATORS[name].set_params(any_time=any_time)
    experiment = Experiment(name.split(",", maxsplit=1)[0])
    inside = np.ones((n_experiments, K - 1), dtype=bool)
    for i in range(n_experiments):
        for log in experiment.looks(np.random.default_rng(i), n_looks, sessions):
            try:
                bias = estimator.fit(log).bias_
            except IdentifiabilityError:  # no click yet: no interval, so none that is wrong
                continue
            here = (bias.low <= THETA[: bias.depth]) & (THETA[: bias.depth] <= bias.high)
            inside[i, : bias.depth - 1] &= here[1:]
    return inside


def test_intervals_hold_at_all_looks():
    """20 experiments, 12 looks: 95% of 40 has a standard error of 3.4 points; usual ones: 72%."""
    options = {"n_experiments": 20, "n_looks": 12, "sessions": 400}
    assert np.mean(always_inside("shuffle", True, **options)) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_experiment_may_be_watched(name):
    """And normal intervals may not: they do not hold at all looks."""
    options = {"n_experiments": 150, "n_looks": 50, "sessions": 200}
    assert np.mean(always_inside(name, True, **options)) >= 0.94
    assert np.mean(always_inside(name, False, **options)) <= 0.85


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_same_curve_with_wider_intervals_that_say_so(name):
    log = next(Experiment(name.split(",", maxsplit=1)[0]).looks(np.random.default_rng(0), 1, 9000))
    once = ESTIMATORS[name].set_params(any_time=False).fit(log).bias_
    watched = ESTIMATORS[name].set_params(any_time=True).fit(log).bias_
    assert watched.examination == pytest.approx(once.examination)
    assert watched.std_error == pytest.approx(once.std_error)
    ratio = np.log(watched.high / watched.low)[1:] / np.log(once.high / once.low)[1:]
    assert np.all((ratio > 1.5) & (ratio < 2))
    assert "bias.any-time" in codes(watched.status)
    assert "bias.any-time" not in codes(once.status)


def test_the_factor_by_hand():
    """Error 0.1 is where it is tightest: r = 8, sqrt(9/8 (log 9 + 2 log 20)) = 3.035."""
    V = np.diag([0.0, 0.1**2])
    status = note("bias.given", "given")()
    bias = from_log_ratios(
        np.zeros(2), V, level=0.95, method="m", assumes=(), status=status, any_time=True
    )
    assert np.log(bias.high[1]) == pytest.approx(0.1 * np.sqrt(9 / 8 * np.log(9 * 20**2)))
    assert bias.low[0] == bias.high[0] == 1


if __name__ == "__main__":
    rows = ["| experiment | for one look | any time |", "|---|---|---|"]
    for name in ESTIMATORS:
        options = {"n_experiments": 300, "n_looks": 50, "sessions": 200}
        shares = [f"{np.mean(always_inside(name, each, **options)):.1%}" for each in (False, True)]
        rows.append(f"| {name} | {' | '.join(shares)} |")
    sys.stdout.write("\n".join(rows) + "\n")
