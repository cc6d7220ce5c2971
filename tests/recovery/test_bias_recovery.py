"""Known examination is found by the estimator made for the log, and missed by the wrong tool."""

from functools import cache

import numpy as np
import pytest

from untilt import (
    AdjacentChain,
    AdjacentSwap,
    AllPairs,
    Pivot,
    PivotSwap,
    PowerLaw,
    ShuffledTop,
    make_judged,
    simulate,
)
from untilt.errors import IdentifiabilityError
from untilt.simulation.protocols import DLA, PRS, Harvest, Shuffle, Swap

SEEDS = (0, 1, 2)
PROTOCOLS = {
    "pivot swap": Swap(),
    "pivot 4": Swap(pivot=4),
    "adjacent swap": Swap(adjacent=True),
    "shuffle": Shuffle(),
    "top 5 shuffled": Shuffle(top=5, share=0.5),
    "harvest": Harvest(),
    # Noise that is the same everywhere only makes documents look alike: ratios stay.
    "noisy harvest": Harvest(clicks=PRS(depth=10, eta=0.5)),
}
CASES = [
    ("pivot swap", PivotSwap()),
    ("pivot swap", PivotSwap(within="length")),
    ("pivot 4", PivotSwap(4)),
    ("adjacent swap", AdjacentSwap()),
    ("adjacent swap", AdjacentSwap(within="length")),
    ("shuffle", ShuffledTop()),
    ("top 5 shuffled", ShuffledTop()),
    ("harvest", AdjacentChain()),
    ("harvest", Pivot()),
    ("harvest", Pivot(5)),
    ("harvest", AllPairs()),
    ("harvest", AllPairs(weight="document")),
    ("noisy harvest", AllPairs()),
    ("shuffle", AllPairs()),
    ("pivot swap", AllPairs()),
]


@cache
def judged():
    return make_judged(n_queries=200, seed=0)


@cache
def simulated(name, seed, n_sessions=60_000):
    return simulate(judged(), PROTOCOLS[name], n_sessions=n_sessions, seed=seed)


def truth(sim, depth):
    theta = sim.truth.examination[:depth]
    return theta / theta[0]


def standard_errors_off(bias, theta):
    return (bias.examination - theta)[1:] / bias.std_error[1:]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("protocol", "estimator"), CASES, ids=str)
def test_the_truth_is_within_four_standard_errors(protocol, estimator, seed):
    sim = simulated(protocol, seed)
    bias = estimator.fit(sim.log).bias_
    assert bias.depth == (5 if protocol == "top 5 shuffled" else 10)
    assert np.all(np.abs(standard_errors_off(bias, truth(sim, bias.depth))) < 4)
    # Not by being vague: the end of a chain, the least known of all, to a third or so.
    assert np.all(bias.std_error < 0.4 * bias.examination)
    assert np.all(bias.std_error[:5] < 0.15 * bias.examination[:5])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_law_is_recovered_from_harvested_ranks(seed):
    sim = simulate(
        judged(), Harvest(clicks=DLA(examination=PowerLaw(0.8))), n_sessions=60_000, seed=seed
    )
    fitted = AllPairs().fit(sim.log).bias_.fit_power_law()
    assert abs(fitted.eta - 0.8) < 4 * fitted.eta_std_error
    assert fitted.eta_std_error < 0.03


# ---- the wrong tool


@pytest.fixture(scope="module")
def good_ranker():
    """One good production ranker: relevance is at the top, and clicks fall for two reasons."""
    return simulate(judged(), DLA(), ranker=judged().labels, n_sessions=60_000, seed=0)


def test_click_rate_by_position_is_far_off_under_a_good_ranker(good_ranker):
    rates, theta = good_ranker.log.ctr_by_position(), truth(good_ranker, 10)
    ratio = rates.rate / rates.rate[0]
    error = np.hypot(rates.std_error / rates.rate, rates.std_error[0] / rates.rate[0])
    too_low = (np.log(theta) - np.log(ratio))[1:] / error[1:]
    assert np.all(too_low[4:] > 10)
    assert ratio[9] < theta[9] / 3


def test_a_shuffle_that_was_none_is_refused(good_ranker):
    with pytest.raises(IdentifiabilityError, match="position 1 was not shuffled"):
        ShuffledTop(ranker=lambda _: True).fit(good_ranker.log)


@pytest.mark.parametrize("estimator", [AllPairs(), AdjacentChain(), Pivot()])
def test_one_fixed_order_is_refused_with_the_swap_that_would_help(good_ranker, estimator):
    with pytest.raises(IdentifiabilityError, match="swap positions 1 and 2 in a share"):
        estimator.fit(good_ranker.log)


def test_that_swap_helps(good_ranker):
    """What the error asks for, done at every gap, makes the very log identifiable."""
    swapped = simulate(
        judged(), Swap(adjacent=True), ranker=judged().labels, n_sessions=60_000, seed=1
    )
    bias = AllPairs().fit(swapped.log).bias_
    assert np.all(np.abs(standard_errors_off(bias, truth(swapped, 10))) < 4)


def test_a_quadratic_says_that_it_does_not_fit_the_eye_tracking_curve():
    sim = simulated("pivot swap", 0)
    bias = PivotSwap(shape="quadratic").fit(sim.log).bias_
    assert float(bias.status.split("fits with p ")[1]) < 1e-4
    assert np.abs(standard_errors_off(bias, truth(sim, 10))).max() > 10


# ---- rates and coverage


ESTIMATORS = {
    "pivot swap": (PivotSwap(), PivotSwap(within="length")),
    "adjacent swap": (AdjacentSwap(), AdjacentSwap(within="length")),
    "shuffle": (ShuffledTop(), AllPairs()),
    "harvest": (AdjacentChain(), Pivot(), AllPairs(), AllPairs(weight="document")),
}


def errors(protocol, n_sessions, *, n_logs=12):
    """Root mean square of log(estimate / truth), by estimator."""
    off = {str(estimator): [] for estimator in ESTIMATORS[protocol]}
    for seed in range(n_logs):
        sim = simulate(judged(), PROTOCOLS[protocol], n_sessions=n_sessions, seed=100 + seed)
        for estimator in ESTIMATORS[protocol]:
            theta = estimator.fit(sim.log).bias_.examination
            off[str(estimator)].append(np.log(theta / truth(sim, 10))[1:])
    return {name: np.sqrt(np.mean(np.square(found))) for name, found in off.items()}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ESTIMATORS)
def test_the_error_shrinks_with_the_root_of_the_sessions(protocol):
    """16 times the sessions, a quarter of the error."""
    few, many = errors(protocol, 25_000), errors(protocol, 400_000)
    for estimator, error in few.items():
        assert 3 < error / many[estimator] < 5.5, (estimator, error, many[estimator])


def coverage(protocol, traffic, *, n_logs=200, n_sessions=20_000):
    """Share of logs whose 95% interval holds the truth, by estimator and position 2..10."""
    inside = {str(estimator): [] for estimator in ESTIMATORS[protocol]}
    for seed in range(n_logs):
        sim = simulate(
            judged(),
            PROTOCOLS[protocol],
            n_sessions=n_sessions,
            seed=1000 + seed,
            query_weights=traffic,
        )
        theta = truth(sim, 10)
        for estimator in ESTIMATORS[protocol]:
            bias = estimator.fit(sim.log).bias_
            inside[str(estimator)].append(((bias.low <= theta) & (theta <= bias.high))[1:])
    return {name: np.mean(found, axis=0) for name, found in inside.items()}


@pytest.mark.slow
@pytest.mark.parametrize("traffic", ["uniform", "zipf"])
@pytest.mark.parametrize("protocol", ESTIMATORS)
def test_intervals_cover_as_often_as_they_say(protocol, traffic):
    """95% intervals in 200 logs. By chance alone a share of 200 has a standard error of 1.5%."""
    for estimator, share in coverage(protocol, traffic).items():
        assert np.all((share >= 0.9) & (share <= 0.995)), (estimator, share)
        assert 0.93 <= share.mean() <= 0.985, (estimator, share)
