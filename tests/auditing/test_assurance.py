"""Plans with an assurance, and experiments drawn just as planned: how often all are narrow enough.

`python tests/auditing/test_assurance.py` prints the table of docs/how-many-sessions.md.
"""

import sys

import numpy as np
import pytest

from untilt import AdjacentSwap, ClickLog, PivotSwap, PowerLaw, plan_swaps
from untilt.errors import OptionError

K = 6
THETA = 1 / np.arange(1, K + 1)
RATES = [0.3, 0.2, 0.12, 0.08]


class Site:
    """Queries with their share of the traffic, and the relevance of what is shown at each place."""

    def __init__(self, n_queries, *, zipf=0.0):
        rng = np.random.default_rng(7)
        self.traffic = np.arange(1, n_queries + 1) ** -zipf
        self.traffic /= self.traffic.sum()
        worth = rng.normal(size=(n_queries, K))
        order = np.argsort(-(0.8 * worth + 0.6 * rng.normal(size=worth.shape)), axis=1)
        relevance = 0.9 / (1 + np.exp(1 - 1.2 * worth))
        self.relevance = np.take_along_axis(relevance, order, axis=1)

    def sessions(self, rng, n, swaps=()):
        """n sessions; swaps are (upper, lower, probability)."""
        n_queries = len(self.traffic)
        chance = [swap[2] for swap in swaps]
        arm = rng.choice(len(swaps) + 1, size=n, p=[1 - sum(chance), *chance])
        orders = np.tile(np.arange(K), (len(swaps) + 1, 1))
        for i, (a, b, _) in enumerate(swaps, 1):
            orders[i, [a - 1, b - 1]] = b - 1, a - 1
        query = rng.choice(n_queries, size=n, p=self.traffic)
        shown = orders[arm]
        clicked = rng.random((n, K)) < THETA * self.relevance[query[:, None], shown]
        kinds, count = np.unique(
            np.column_stack([query, arm, clicked @ (1 << np.arange(K))]),
            axis=0,
            return_counts=True,
        )
        return ClickLog(
            query_id=np.arange(n_queries),
            doc_id=np.tile(np.arange(K), n_queries),
            doc_query=np.repeat(np.arange(n_queries), K),
            indptr=np.arange(0, len(kinds) * K + 1, K),
            query=kinds[:, 0],
            document=(kinds[:, :1] * K + orders[kinds[:, 1]]).ravel(),
            position=np.tile(np.arange(1, K + 1), len(kinds)),
            label=((kinds[:, 2:] >> np.arange(K)) & 1).ravel().astype(float),
            count=count,
            ranker=kinds[:, 1],
            ranker_names=["base", *(f"swap:{a}-{b}" for a, b, _ in swaps)],
        )


SITES = {
    "200 queries": Site(200),
    "24 queries": Site(24),
    "300 queries, Zipf": Site(300, zipf=1.0),
}
# pairs, within, width, share of the sessions that are swapped
EXPERIMENTS = {
    "pivot": ("pivot", "document", 0.4, 0.2),
    "adjacent": ("adjacent", "document", 0.8, 0.5),
    "pivot, by length": ("pivot", "length", 0.4, 0.2),
}


def planned(site, experiment, assurance):
    pairs, within, width, share = EXPERIMENTS[experiment]
    return plan_swaps(
        SITES[site].sessions(np.random.default_rng(0), 20_000),
        sessions_per_day=10_000,
        width=width,
        pairs=pairs,
        share=share,
        within=within,
        examination=PowerLaw(1.0),
        assurance=assurance,
    )


def measured(site, experiment, plan, n_experiments):
    """(share of experiments with all positions within the width, mean of the widest position)."""
    pairs, within, width, _ = EXPERIMENTS[experiment]
    make = PivotSwap if pairs == "pivot" else AdjacentSwap
    swaps = [(swap.upper, swap.lower, swap.probability) for swap in plan.swaps]
    widths = []
    for seed in range(n_experiments):
        log = SITES[site].sessions(np.random.default_rng(100 + seed), plan.sessions, swaps)
        bias = make(within=within, check=False).fit(log).bias_
        widths.append((bias.high - bias.low)[1:] / bias.examination[1:])
    return np.mean(np.max(widths, axis=1) <= width), np.max(np.mean(widths, axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("site", SITES)
def test_all_intervals_are_narrow_enough_as_often_as_planned(site, experiment):
    """0.9 planned, 60 experiments: its own standard error is 4 points."""
    plan = planned(site, experiment, 0.9)
    share, _ = measured(site, experiment, plan, 60)
    assert share >= 0.8, (plan.sessions, share)
    plain = planned(site, experiment, None)
    assert plain.sessions < plan.sessions < 2.5 * plain.sessions


def test_a_plan_without_assurance_says_how_improbable_it_is():
    plain = plan_swaps(RATES, sessions_per_day=1000)
    assert plain.assurance is None
    assert plain.probability_within < 0.5, "three positions, each about half of the time"
    assert plain.notes[0].code == "plan.mean-width"
    assert "The widths are means" in repr(plain)


def test_more_assurance_takes_more_sessions():
    plans = [plan_swaps(RATES, sessions_per_day=1000, assurance=p) for p in (0.5, 0.8, 0.95)]
    sessions = [plan.sessions for plan in plans]
    assert plan_swaps(RATES, sessions_per_day=1000).sessions < sessions[0]
    assert sessions == sorted(sessions)
    for plan, asked in zip(plans, (0.5, 0.8, 0.95), strict=True):
        assert asked <= plan.probability_within <= asked + 0.02
        assert plan.notes[0].code == "plan.assured"


def test_few_queries_need_more_sessions_for_the_same_assurance():
    few, many = planned("24 queries", "pivot", 0.9), planned("200 queries", "pivot", 0.9)
    assert few.sessions > 1.3 * many.sessions


@pytest.mark.parametrize("assurance", [0, 1, 1.5, -0.1])
def test_an_assurance_is_a_probability(assurance):
    with pytest.raises(OptionError, match="must lie between 0 and 1"):
        plan_swaps(RATES, sessions_per_day=1000, assurance=assurance)


if __name__ == "__main__":
    rows = ["| traffic | experiment | sessions | all within, planned | measured | widest, mean |"]
    rows.append("|---|---|---|---|---|---|")
    for site in SITES:
        for experiment in EXPERIMENTS:
            for assurance in (None, 0.9):
                plan = planned(site, experiment, assurance)
                share, widest = measured(site, experiment, plan, 100)
                rows.append(
                    f"| {site} | {experiment} | {plan.sessions:,} | {plan.probability_within:.0%} "
                    f"| {share:.0%} | {widest:.0%} of {plan.width:.0%} |"
                )
    sys.stdout.write("\n".join(rows) + "\n")
