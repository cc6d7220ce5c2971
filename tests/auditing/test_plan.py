"""Plans against arithmetic by hand, and against experiments simulated just as they say."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.wall.varying import World, make

from untilt import (
    AdjacentSwap,
    AllPairs,
    ClickLog,
    KnownBias,
    PivotSwap,
    PowerLaw,
    UntiltError,
    make_judged,
    plan_swaps,
    read_log,
    simulate,
)
from untilt.auditing.interventions import interventions_of
from untilt.auditing.plan import Plan
from untilt.auditing.sessions import harvested_test
from untilt.auditing.swap_design import (
    EXPLORED,
    Experiment,
    Traffic,
    allocation,
    pivot_design,
    traffic_of,
)
from untilt.bias.log_ratios import from_log_ratios
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.facts import as_fact
from untilt.serving.explore import parse_exploration
from untilt.simulation.behaviour import Display
from untilt.simulation.protocols import DLA, Swap

RATES = (0.3, 0.2, 0.12, 0.05)


@dataclass(frozen=True)
class Planned(Swap):
    """The experiment that a plan describes: each session draws a swap with its probability."""

    plan: Plan | None = None

    def display(self, page):
        base = Display.of_swaps([(swap.upper, swap.lower) for swap in self.plan.swaps], 0.5)
        chance = np.array([swap.probability for swap in self.plan.swaps])
        probability = np.concatenate([[1 - chance.sum()], chance])
        return Display(base.names, probability, base.order, base.swap, base.shuffle)


def plan(clicks=RATES, **options) -> Plan:
    return plan_swaps(clicks, **({"sessions_per_day": 1000, "width": 0.3} | options))


def widths(estimator, log) -> np.ndarray:
    bias = estimator.fit(log).bias_
    return (bias.high - bias.low) / bias.examination


# ---- arithmetic


def test_two_positions_by_hand():
    """Swap of 1 and 2, theta = (1, 1/2), relevance 0.4 and 0.2: rates 0.4 and 0.1.

    After N sessions, a tenth of them swapped, each document was shown N/10 times away and 9N/10
    times at home, so both have the same weight and the ratio is a ratio of plain sums of rates.
    """
    found = plan([0.4, 0.1], share=0.1, width=0.2, examination=[1, 0.5])
    N = found.sessions
    home, away = 0.9 * N, 0.1 * N
    above = 0.4 * 0.6 / home + 0.2 * 0.8 / away  # rates at 1: of its own document and of the other
    below = 0.1 * 0.9 / home + 0.2 * 0.8 / away  # rates at 2: of its own, and of position 1's
    variance = above / (0.4 + 0.2) ** 2 + below / (0.1 + 0.2) ** 2
    width = 2 * np.sinh(1.959964 * np.sqrt(variance))
    assert found.expected_width[1] == pytest.approx(width, rel=1e-6)
    assert width == pytest.approx(0.2, rel=1e-3)
    assert found.swaps[0].probability == pytest.approx(0.1)
    assert found.swaps[0].sessions == np.ceil(N * found.swaps[0].probability)
    # Each swap loses (1 - 1/2)(0.4 - 0.2) clicks; a session has 0.4 + 0.1 of them.
    assert found.swaps[0].lost_per_session == pytest.approx(0.5 * 0.2)
    assert found.clicks_lost == pytest.approx(0.1 * found.swaps[0].sessions)
    assert found.lost_share == pytest.approx(found.clicks_lost / (0.5 * N))
    assert found.days == N / 1000


def test_a_pivot_that_is_not_the_first_adds_two_errors():
    """z_3 = log theta_3/theta_2 + log theta_2/theta_1; the home clicks at 2 stand in both."""
    theta, rates = np.array([1, 0.6, 0.3]), np.array([0.3, 0.12, 0.03])
    gamma = rates / theta
    traffic = Traffic(rates, rates**2, np.ones(3), rates.sum())
    design, drawn = pivot_design(2, 3), np.array([0.5, 0.5])
    found = Experiment(design, traffic, theta, drawn, 0.2).log_variance(1000)
    swapped, home = 100, np.array([900, 800, 900])

    def noise(i, k):
        p = theta[k] * gamma[i]
        return p * (1 - p)

    # Derivatives of log C by each rate: w / (theta G), G = w_i gamma_i + w_j gamma_j.
    w12 = swapped * home[:2] / (swapped + home[:2])
    w23 = swapped * home[1:] / (swapped + home[1:])
    G12, G23 = w12 @ gamma[:2], w23 @ gamma[1:]
    at_home = (
        (w12[0] / (theta[0] * G12)) ** 2 * noise(0, 0) / home[0]
        + (w12[1] / (theta[1] * G12) - w23[0] / (theta[1] * G23)) ** 2 * noise(1, 1) / home[1]
        + (w23[1] / (theta[2] * G23)) ** 2 * noise(2, 2) / home[2]
    )
    away = (
        (w12[0] / (theta[1] * G12)) ** 2 * noise(0, 1)
        + (w12[1] / (theta[0] * G12)) ** 2 * noise(1, 0)
        + (w23[0] / (theta[2] * G23)) ** 2 * noise(1, 2)
        + (w23[1] / (theta[1] * G23)) ** 2 * noise(2, 1)
    ) / swapped
    assert found[0] == 0
    assert found[2] == pytest.approx(at_home + away)


@pytest.mark.parametrize("options", [{}, {"pivot": 3}, {"pairs": "adjacent"}])
def test_allocation_needs_fewer_sessions_than_any_other(options):
    """Moving a little from one pair to another never makes the widest interval narrower."""
    theta = PowerLaw(0.7).at(np.arange(1, 5))
    rates = np.array(RATES)
    traffic = Traffic(rates, rates**2, np.ones(4), rates.sum())
    from untilt.auditing.plan import _design

    design = _design(options.get("pairs", "pivot"), options.get("pivot", 1), 4)
    drawn = allocation(design, traffic, theta)
    assert drawn.sum() == pytest.approx(1)

    def widest(shares):
        # With very few swaps their own noise is all there is, which is what `allocation` weighs.
        return Experiment(design, traffic, theta, shares, 1e-4).log_variance(1e6).max()

    for i in range(3):
        for j in range(3):
            moved = drawn.copy()
            moved[i] -= 0.02 * (i != j)
            moved[j] += 0.02 * (i != j)
            assert widest(moved) >= widest(drawn) * (1 - 1e-3)


def test_without_a_guess_the_plan_is_enough_for_any_examination():
    """Sessions by the hardest case; costs by a bound that some examination comes near to."""
    bound = plan(RATES[:2])
    # Between no bias at all and the whole fall of the click rates by examination.
    ratios = np.linspace(RATES[1] / RATES[0], 1, 40)
    needed = [plan(RATES[:2], examination=[1, ratio]) for ratio in ratios]
    assert max(found.sessions for found in needed) <= bound.sessions * 1.001
    lost = [found.swaps[0].lost_per_session for found in needed]
    assert bound.is_bound
    assert max(lost) <= bound.swaps[0].lost_per_session
    assert max(lost) == pytest.approx(bound.swaps[0].lost_per_session, rel=1e-2)
    assert bound.swaps[0].lost_per_session == pytest.approx((0.3**0.5 - 0.2**0.5) ** 2)


def test_half_the_width_takes_four_times_the_sessions():
    wide, narrow = plan(width=0.02), plan(width=0.01)
    assert narrow.sessions / wide.sessions == pytest.approx(4, rel=1e-3)
    assert plan(level=0.99).sessions > plan(level=0.9).sessions


def test_every_position_is_at_most_as_wide_as_wished():
    for options in ({}, {"pivot": 2}, {"pairs": "adjacent"}, {"share": 0.6}):
        found = plan(**options)
        assert found.expected_width.max() <= 0.3
        assert found.expected_width.max() == pytest.approx(0.3, rel=1e-2)
        assert found.expected_width[0] == 0


def test_pairs_and_the_positions_that_they_serve():
    pairs = {
        name: [(swap.upper, swap.lower, swap.serves) for swap in plan(**options).swaps]  # type: ignore[arg-type]
        for name, options in {
            "first": {},
            "third": {"pivot": 3},
            "adjacent": {"pairs": "adjacent"},
        }.items()
    }
    assert pairs["first"] == [(1, 2, 2), (1, 3, 3), (1, 4, 4)]
    assert pairs["third"] == [(1, 3, 3), (2, 3, 2), (3, 4, 4)]
    assert pairs["adjacent"] == [(1, 2, 2), (2, 3, 3), (3, 4, 4)]


# ---- what a log adds


def test_traffic_of_a_log_by_hand():
    """Two queries; document 0 is clicked 3 of 4 times at 1, document 2 never; one list is short."""
    log = ClickLog(
        query_id=[7, 8],
        doc_id=[0, 1, 0],
        doc_query=[0, 0, 1],
        indptr=[0, 2, 4, 5],
        query=[0, 0, 1],
        count=[3, 1, 4],
        document=[0, 1, 0, 1, 2],
        position=[1, 2, 1, 2, 1],
        label=[1, 0, 0, 1, 0],
    )
    found = traffic_of(log, None)
    np.testing.assert_allclose(found.click_rate, [3 / 8, 1 / 4])
    # p^2 of document 0 at 1 is 3 * 2 / (4 * 3) = 1/2, of document 2 it is 0: the mean is 1/4.
    np.testing.assert_allclose(found.second_moment, [1 / 4, 1 / 16])  # at 2: 0, so at least c^2
    np.testing.assert_allclose(found.reach, [1, 4 / 8])
    assert found.clicks_per_session == 4 / 8
    np.testing.assert_allclose(found.query_share, [1 / 2])
    np.testing.assert_array_equal(found.queries, [2])


def test_short_lists_take_part_only_as_far_as_they_reach():
    """Half of the lists end at 2: swaps of 1 and 3 can be made in the other half alone.

    Whatever else is drawn, lists that reach 3 are as in a plan for them alone; a tenth of the
    sessions there is twice as many draws of all.
    """
    rates = np.array([0.3, 0.2, 0.1])
    theta, drawn = np.array([1, 0.8, 0.6]), np.array([0.5, 0.5])
    design = pivot_design(1, 3)
    half = Traffic(rates, rates**2, np.array([1, 1, 0.5]), 0.55)
    whole = Traffic(rates, rates**2, np.ones(3), 0.6)
    found = Experiment(design, half, theta, drawn, 0.8).log_variance(2000)
    alone = Experiment(design, whole, theta, drawn, 0.8).log_variance(1000)
    twice = Experiment(design, whole, theta, drawn, 0.8).log_variance(2000)
    assert twice[2] < found[2] <= alone[2]
    assert found[1] == pytest.approx(twice[1], rel=0.2)


def test_click_rates_of_a_log_are_rates(world):
    _, _, today = world
    rates = today.log.ctr_by_position()
    assert plan(rates, depth=4).sessions == plan(rates.rate, depth=4).sessions


def test_sessions_whose_query_came_before(rng):
    """Against sessions drawn from the shares of the queries."""
    share = rng.dirichlet(np.ones(50))
    traffic = Traffic(np.ones(1), np.ones(1), np.ones(1), 1.0, share, np.ones(50, dtype=int))
    drawn = [len(np.unique(rng.choice(50, 80, p=share))) for _ in range(4000)]
    repeated = 1 - np.array(drawn) / 80
    error = repeated.std() / np.sqrt(4000)
    # Poisson counts in place of multinomial ones: a little off where queries are frequent.
    assert traffic.repeated(80) == pytest.approx(repeated.mean(), abs=4 * error + 0.005)
    assert traffic.repeated(1e9) == pytest.approx(1)


def test_counted_lists_and_repeated_sessions_give_the_same_plan():
    log = simulate(make_judged(100, 8), DLA(), n_sessions=4_000, seed=1, n_threads=2).log
    lists = np.repeat(np.arange(log.n_lists), log.sessions)[::-1]
    apart = log.take(lists, count=np.ones(len(lists), dtype=np.int64))
    first, second = plan(log, depth=4), plan(apart, depth=4)
    assert first.swaps == second.swaps
    assert first.sessions == second.sessions


# ---- simulation


@pytest.fixture(scope="module")
def world():
    judged = make_judged(n_queries=120, n_features=8, seed=5)
    scores = judged.labels + 2 * np.random.default_rng(1).normal(size=len(judged))
    today = simulate(judged, DLA(), ranker=scores, n_sessions=30_000, seed=9, n_threads=2)
    return judged, scores, today


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "pivot": ({}, PivotSwap()),
    "pivot 3": ({"pivot": 3}, PivotSwap(3)),
    "adjacent": ({"pairs": "adjacent"}, AdjacentSwap()),
    "half of the traffic": ({"share": 0.5}, PivotSwap()),
    "by length": ({"within": "length"}, PivotSwap(within="length")),
}


@pytest.mark.parametrize("case", CASES)
def test_an_experiment_made_as_planned_gives_the_wished_intervals(world, case):
    judged, scores, today = world
    options, estimator = CASES[case]
    truth = today.truth.examination
    found = plan(today.log, depth=6, examination=truth, **options)
    measured = []
    for seed in range(3):
        made = simulate(
            judged,
            Planned(plan=found),
            ranker=scores,
            n_sessions=found.sessions,
            seed=seed,
            n_threads=2,
        )
        measured.append(widths(estimator, made.log))
        names = np.array(made.log.ranker_names)
        for swap in found.swaps:
            which = names[made.log.ranker] == f"swap:{swap.upper}-{swap.lower}"
            sessions = made.log.sessions[which].sum()
            assert abs(sessions - swap.sessions) < 5 * np.sqrt(swap.sessions)
    ratio = np.mean(measured, axis=0)[1:] / found.expected_width[1:]
    assert np.all(np.abs(ratio - 1) < 0.15), ratio
    assert np.mean(measured, axis=0).max() == pytest.approx(0.3, rel=0.15)


def test_clicks_lost_come_out_as_planned(world):
    """Expected clicks of swapped sessions, by the truth of the simulation, against the plan."""
    judged, scores, today = world
    found = plan(today.log, depth=4, examination=today.truth.examination, share=0.5)
    made = simulate(
        judged, Planned(plan=found), ranker=scores, n_sessions=40_000, seed=1, n_threads=2
    )
    log = made.log
    clicks = np.add.reduceat(made.truth.expected_label(log), log.indptr[:-1])
    names = np.array(log.ranker_names)[log.ranker]
    base = np.average(clicks[names == "base"], weights=log.sessions[names == "base"])
    spread = clicks.std()
    for swap in found.swaps:
        which = names == f"swap:{swap.upper}-{swap.lower}"
        lost = base - np.average(clicks[which], weights=log.sessions[which])
        error = spread / np.sqrt(log.sessions[which].sum())
        assert abs(lost - swap.lost_per_session) < 4 * error + 0.005


@pytest.mark.slow
def test_rare_queries_take_more_sessions_and_the_plan_knows():
    """About one session per query and swap: most find nothing to be compared with."""
    judged = make_judged(n_queries=4000, n_features=8, seed=0)
    scores = np.random.default_rng(0).random(len(judged))
    today = simulate(judged, DLA(), ranker=scores, n_sessions=20_000, seed=1, n_threads=2)
    found = plan(today.log, depth=4, width=0.5, share=0.5, examination=today.truth.examination)
    assert traffic_of(today.log, 4).repeated(found.sessions) < 0.6
    measured = [
        widths(
            PivotSwap(),
            simulate(
                judged,
                Planned(plan=found),
                ranker=scores,
                n_sessions=found.sessions,
                seed=seed,
                n_threads=2,
            ).log,
        )
        for seed in range(8)
    ]
    ratio = np.mean(measured, axis=0)[1:] / found.expected_width[1:]
    assert np.all((ratio > 0.85) & (ratio < 1.25)), ratio


# ---- few sessions, to test a curve


def test_what_a_swap_of_two_positions_tells_by_hand():
    """Each rank tells as much as two groups that share its clicks: m_1 m_2 / (m_1 + m_2) x^2."""
    rate, theta, s = np.array([0.4, 0.1]), np.array([1.0, 0.4]), EXPLORED
    rho = rate / theta
    usual = rho * theta * (1 - s)
    moved = rho * theta[::-1] * s
    by_hand = np.sum(usual * moved / (usual + moved)) * np.log(0.4) ** 2 / s
    found = plan(rate, examination=theta).designs
    assert [each.information for each in found[:3]] == pytest.approx([by_hand] * 3)
    both = rho.mean() * theta  # in random order both are one group
    shuffled = both.prod() / both.sum() * np.log(0.4) ** 2
    assert found[3].information == pytest.approx(shuffled)
    lost = (1 - 0.4) * (rho[0] - rho[1])
    assert [each.clicks_lost for each in found[:3]] == pytest.approx([found[0].to_test * lost] * 3)
    assert found[3].clicks_lost == pytest.approx(found[3].to_test * lost / 2)


def test_position_1_with_others_takes_the_fewest_sessions_and_a_server_draws_it():
    found = plan(RATES, examination=PowerLaw(0.8), sessions_per_day=4000)
    best, *others = found.designs
    assert best.explore == "pivot:0.02:4"
    assert all(best.to_test < other.to_test for other in others)
    assert best.to_decide == pytest.approx(best.to_test * (0.082 / 0.045) ** 2, rel=0.01)
    for each in found.designs:
        arms = parse_exploration(each.explore).arms
        assert sum(arm.probability for arm in arms) == pytest.approx(EXPLORED)
    fields = as_fact(found.view()[0].notes[0]).fields
    assert fields["test_days"] == pytest.approx(best.to_test / EXPLORED / 4000)
    halved = plan(np.array(RATES) / 2, examination=PowerLaw(0.8)).designs[0]
    assert halved.to_test == pytest.approx(2 * best.to_test, rel=0.01)
    assert plan(RATES, examination=np.ones(4)).designs == ()


def test_the_planned_sessions_reach_the_planned_error():
    """300 or so swaps among production's sessions, of a log that documents moved in."""
    usual = World(noise=0.6)
    log = read_log(make(usual, 0).frame, features=[], threads=1)
    design = plan(log).designs[0]
    curve = AllPairs().fit(log).bias_.examination
    sessions = round(design.to_test / EXPLORED)
    errors = []
    for seed in range(3):
        world = replace(usual, swapped=EXPLORED, sessions=sessions)
        made = read_log(make(world, 50 + seed).frame, features=[], threads=1)
        found = harvested_test(made, interventions_of(made), KnownBias(curve))
        errors.append(found.std_error * np.sqrt(found.sessions / design.to_test))
    assert 0.9 < np.mean(errors) / 0.082 < 1.2
    assert 250 < design.to_test * log.ctr_by_position().rate.sum() < 350


# ---- words and errors


def test_the_text_and_the_record_say_the_same():
    found = plan()
    record = found.to_dict()
    assert record["swapped_sessions"] == sum(swap["sessions"] for swap in record["swaps"])
    assert f"{found.sessions:,}" in repr(found)
    assert "at most" in repr(found)
    assert "at most" not in " ".join(repr(plan(examination=PowerLaw(0.5))).splitlines()[:4])
    assert record["estimator"] == "PivotSwap(pivot=1)"
    assert plan(within="length").estimator == 'PivotSwap(pivot=1, within="length")'
    assert plan(pairs="adjacent").estimator == "AdjacentSwap()"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clicks": [0.3]}, "at least two"),
        ({"clicks": [0.3, 0.0]}, "between 0 and 1"),
        ({"clicks": [0.3, 1.2]}, "between 0 and 1"),
        ({"clicks": "clicks.parquet"}, "ClickLog"),
        ({"sessions_per_day": 0}, "sessions_per_day must be above 0"),
        ({"width": 0}, "width must be above 0"),
        ({"width": float("nan")}, "width must be above 0"),
        ({"share": 0}, "share must lie between"),
        ({"share": 1}, "share must lie between"),
        ({"level": 95}, "level"),
        ({"pairs": "adjacnt"}, "Did you mean 'adjacent'"),
        ({"within": "query"}, "within must be one of"),
        ({"pivot": 5}, "pivot must be one of the positions 1..4"),
        ({"depth": 1}, "depth must be one of the positions 2..4"),
        ({"depth": 9}, "depth must be one of the positions 2..4"),
        ({"examination": [1, 0.01, 0.01, 0.01]}, "contradicts the click rates"),
        ({"examination": [1, 0.5]}, "position"),
        ({"examination": "steep"}, "bias must be"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(UntiltError, match=message):
        plan(**options)


def test_a_log_without_clicks_somewhere_names_the_depth_to_ask_for():
    log = simulate(make_judged(50, 8), DLA(), n_sessions=500, seed=1, n_threads=2).log
    dead = log.with_label(np.where(log.position == 3, 0, log.label))
    with pytest.raises(OptionError, match="depth=2"):
        plan(dead)
    assert plan(dead, depth=2).sessions > 0
    with pytest.raises(DepthError):
        plan(log, depth=11)


def test_one_off_queries_are_sent_to_lists_of_a_length():
    log = ClickLog(
        query_id=np.arange(200),
        doc_id=np.arange(400),
        doc_query=np.repeat(np.arange(200), 2),
        indptr=np.arange(0, 401, 2),
        query=np.arange(200),
        document=np.arange(400),
        position=np.tile([1, 2], 200),
        label=np.tile([1, 0, 0, 1, 0, 0], 67)[:400],
    )
    with pytest.raises(IdentifiabilityError, match='within="length"'):
        plan(log)
    assert plan(log, within="length").sessions > 0


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_planned_widths_are_those_of_the_estimators_intervals(level):
    """One quantile for both: the planned error, made an interval as the estimators make theirs."""
    made = plan(level=level, examination=PowerLaw(1.0))
    traffic, design = traffic_of(RATES, None), pivot_design(1, 4)
    theta = 1 / np.arange(1, 5)
    drawn = np.array([swap.probability for swap in made.swaps]) / made.share
    variance = Experiment(design, traffic, theta, drawn, made.share).log_variance(made.sessions)
    bias = from_log_ratios(
        np.log(theta), np.diag(variance), level=level, method="", assumes=(), status=as_fact("")
    )
    assert made.expected_width == pytest.approx((bias.high - bias.low) / theta)
