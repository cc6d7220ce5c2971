"""Whether an experiment agrees with the curve of documents that moved: its power b against 1."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import binom
from tests.wall.varying import World, make

import untilt as ut
from untilt.auditing.interventions import interventions_of
from untilt.auditing.sessions import harvested_test
from untilt.bias.experiments.assignment import baseline_lists

PLAIN = World(noise=0.6, swapped=0.05)
TASTE, STOCK = World("taste", 0.25, swapped=0.05), World("stock", 0.5, swapped=0.05)


def found_in(world, seed):
    log = ut.read_log(make(world, seed).frame, features=[], threads=1)
    curve = ut.AllPairs().fit(log.take(baseline_lists(log))).bias_
    return harvested_test(log, interventions_of(log), curve)


def best_power(frame, theta):
    """b of the conditional likelihood, from rows and not from counts; units as they are defined."""
    arm, k = frame["ranker"].to_numpy(), frame["position"].to_numpy()
    unit = []
    for name, place in zip(arm, k, strict=True):
        pair = [int(part) for part in name.removeprefix("swap:").split("-") if part.isdigit()]
        rank = dict(zip(pair, pair[::-1], strict=True)).get(place, place)
        unit.append(0 if name == "shuffle" else rank)
    table = frame.assign(unit=unit).groupby(["unit", "position"])["click"].agg(["sum", "size"])

    def minus_log_likelihood(b):
        total = 0.0
        for _, rows in table.groupby(level="unit"):
            share = rows["size"] * theta[rows.index.get_level_values("position") - 1] ** b
            total -= rows["sum"] @ np.log(share / share.sum())
        return total

    return minimize_scalar(minus_log_likelihood, bounds=(0, 3), method="bounded").x


@pytest.mark.parametrize("kind", ["swaps", "shuffles"])
def test_the_power_is_that_of_the_likelihood(kind):
    world = replace(PLAIN, swapped=0.3, sessions=1500, queries=40)
    frame = make(world, 5).frame
    if kind == "shuffles":
        frame = make(replace(world, swapped=0, shuffled=0.3), 5).frame
    log = ut.read_log(frame, features=[], threads=1)
    theta, done = np.arange(1, 11.0) ** -1.1, interventions_of(log)
    found = harvested_test(log, done, ut.KnownBias(theta))
    inside = frame[frame["ranker"] != "production"] if kind == "shuffles" else frame
    assert found.power == pytest.approx(best_power(inside, theta), abs=1e-4)
    changed = frame[~frame["ranker"].isin(["base", "production"])]
    assert found.sessions == changed["session_id"].nunique()
    apart = ut.read_log(frame, features=[], threads=1, collapse=False)
    again = harvested_test(apart, done, ut.KnownBias(theta))
    assert (again.power, again.std_error) == pytest.approx((found.power, found.std_error))


def test_the_error_is_that_of_repeated_experiments():
    """300 swaps in 6,000 sessions: b spreads about 1 as its errors say, and is rarely rejected."""
    found = [found_in(PLAIN, seed) for seed in range(12)]
    power = np.array([each.power for each in found])
    error = np.mean([each.std_error for each in found])
    assert abs(power.mean() - 1) < 3 * error / np.sqrt(len(found))
    assert 0.5 < power.std(ddof=1) / error < 1.6
    assert sum(each.rejects for each in found) <= 3  # with probability .998 where the size is .05


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [PLAIN, replace(PLAIN, swapped=0.5), replace(PLAIN, zipf=1.0, swapped=0.1),
     World(noise=0.6, shuffled=0.1), World(rankers=3, swapped=0.1)],
)  # fmt: skip
def test_curves_that_are_right_are_rarely_rejected(world):
    found = [each for seed in range(60) if (each := found_in(world, 100 + seed)) is not None]
    assert sum(each.rejects for each in found) <= binom.ppf(0.999, len(found), 0.05)


@pytest.mark.parametrize(
    ("world", "how"),
    [(TASTE, "more"), (STOCK, "more"), (replace(TASTE, swapped=0, shuffled=0.05), "more"),
     (replace(STOCK, follow=-1.0), "less")],
)  # fmt: skip
def test_curves_that_took_what_sessions_want_for_examination_are_found(world, how):
    """By 300 sessions."""
    for seed in range(3):
        fact = found_in(world, seed).fact
        assert (fact.code, fact.fields["how"]) == ("reading.harvested-differs", how)


def test_the_audit_says_what_the_experiment_says_of_a_harvested_curve():
    log = {
        name: ut.read_log(make(world, 2).frame, features=[], threads=1)
        for name, world in (("plain", PLAIN), ("taste", TASTE), ("none", World(noise=0.6)),
                            ("fixed", World(swapped=0.1)))
    }  # fmt: skip
    plain, taste = ut.audit(log["plain"]), ut.audit(log["taste"])
    assert plain.harvested.fact in plain.notes
    assert plain.harvested.low < 1 < plain.harvested.high
    assert taste.harvested.fact in taste.warnings
    assert taste.harvested.high < 1
    assert taste.harvested.fact.fields["sessions"] == sum(taste.interventions.swapped.values())
    assert ut.audit(log["none"]).harvested is None
    assert ut.audit(log["fixed"]).harvested is None  # production moved no document


def test_swaps_that_are_not_what_they_are_called_test_nothing():
    frame = make(replace(STOCK, swapped=0.2), 0).frame
    other = frame["ranker"].str.startswith("swap:")
    frame.loc[other, "ranker"] = "swap:2-3"
    log = ut.read_log(frame, features=[], threads=1)
    assert ut.audit(log).harvested is None
