"""Sensitivity finds the amount of a departure that turns a difference: judged by made-up truths.

The logs here have no noise: the label of a session is its expected click under a departure of a
known amount. So the difference under that amount must be the true one, to the last digits.
"""

from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt.errors import OptionError
from untilt.evaluation.sensitivity import FIRM_SHARE, Sensitivity
from untilt.facts import note

K = 6
POSITION = np.arange(1, K + 1)
THETA = POSITION**-0.8
DISCOUNT = 1 / np.log2(1 + POSITION)


class World:
    """Queries of K documents; each list is shown in two orders, 3 to 1 session."""

    def __init__(self, seed: int, n_queries: int = 12) -> None:
        rng = np.random.default_rng(seed)
        self.gamma = rng.uniform(0.05, 0.9, size=(n_queries, K))
        self.orders = np.array([[rng.permutation(K) for _ in range(2)] for _ in range(n_queries)])
        self.score = rng.random((n_queries, K))
        self.count = np.tile([3, 1], n_queries)
        self.documents = self.orders.reshape(-1, K)  # (lists, K) by position
        self.query = np.repeat(np.arange(n_queries), 2)

    @property
    def shown(self) -> np.ndarray:
        return self.gamma[self.query[:, None], self.documents]

    @property
    def truth(self) -> float:
        """DCG per session of the score's order minus the shown one."""
        score = self.score[self.query[:, None], self.documents]
        new = np.take_along_axis(self.shown, np.argsort(-score, axis=1), axis=1)
        return float(self.count @ ((new - self.shown) @ DISCOUNT) / self.count.sum())

    def log(self, clicks: np.ndarray, time: np.ndarray | None = None) -> ut.ClickLog:
        """Each list twice: clicks of odd positions and of even ones, doubled, the others 0.

        A log without any unclicked row would be refused.
        """
        n, odd = len(self.gamma), POSITION % 2 == 1
        query, documents = (np.repeat(each, 2, axis=0) for each in (self.query, self.documents))
        labels = np.stack([2 * clicks * odd, 2 * clicks * ~odd], axis=1)
        return ut.ClickLog(
            query_id=np.arange(n),
            doc_id=np.arange(n * K),
            doc_query=np.repeat(np.arange(n), K),
            indptr=np.arange(0, len(query) * K + 1, K),
            query=query,
            document=(query[:, None] * K + documents).ravel(),
            position=np.tile(POSITION, len(query)),
            label=labels.ravel(),
            count=np.repeat(self.count, 2),
            time=None if time is None else np.repeat(time, 2),
        )

    def trusting(self, t: float, theta: np.ndarray = THETA) -> np.ndarray:
        """Expected clicks with a share t of trust at the top; mean click rates stay as they are."""
        n = self.count[:, None] * theta
        kept = 1 - t / POSITION
        mean = np.sum(n * kept * self.shown) / np.sum(n * kept)
        return theta * (kept * self.shown + (1 - kept) * mean)

    def sensitivity(self, clicks: np.ndarray, theta=THETA, **options) -> Sensitivity:
        systems: dict[str, Any] = {"shown": ut.shown, "new": self.score.ravel()}
        evaluator = options.pop("evaluator", "ips")
        found = ut.estimate(self.log(clicks), systems, theta, evaluator=evaluator)
        return found.sensitivity("new", "shown", **options)


@pytest.mark.parametrize("evaluator", ["ips", "affine", "policy-aware"])
def test_without_a_departure_the_difference_is_the_truth(evaluator):
    world = World(0)
    found = world.sensitivity(THETA * world.shown, evaluator=evaluator)
    assert found.value == pytest.approx(world.truth)
    assert {"curve", "position", "trust", "queries"} <= {each.name for each in found}
    assert "drift" not in {each.name for each in found}  # the curve was given, not harvested


@pytest.mark.parametrize("evaluator", ["ips", "affine", "snips", "policy-aware"])
@pytest.mark.parametrize("seed", range(3))
def test_trust_of_the_right_amount_gives_the_truth(evaluator, seed):
    world = World(seed)
    found = world.sensitivity(world.trusting(0.4), evaluator=evaluator, trust=0.4)
    truth = world.truth
    if evaluator == "snips":  # per relevant document
        truth /= float(world.count @ world.shown.sum(axis=1) / world.count.sum())
    assert found["trust"].at_least == pytest.approx(found.value)
    assert found["trust"].at_most == pytest.approx(truth)


@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_a_curve_that_is_wrong_by_the_right_factor_gives_the_truth(factor):
    world = World(3)
    measured = THETA * factor ** -(np.log(POSITION) / np.log(K))
    found = world.sensitivity(THETA * world.shown, theta=measured, factor=factor)
    assert found["curve"].at_most == pytest.approx(world.truth)
    assert found["curve"].tried.fields["position"] == K


@pytest.mark.parametrize("evaluator", ["ips", "policy-aware"])
@pytest.mark.parametrize("seed", range(3))
def test_a_curve_of_which_a_part_is_attention_gives_the_truth_and_its_interval(evaluator, seed):
    """Errors of theta^b by the delta method, by hand."""
    world = World(seed)
    measured = THETA ** (1 / FIRM_SHARE)
    error = 0.05 * measured * (POSITION > 1)
    bias = ut.PositionBias(measured, std_error=error, method="measured", estimated=True)
    found = world.sensitivity(THETA * world.shown, theta=bias, evaluator=evaluator)["attention"]
    assert found.at_least == pytest.approx(world.truth)
    told = ut.PositionBias(
        THETA, std_error=FIRM_SHARE * measured ** (FIRM_SHARE - 1) * error, method="measured",
        estimated=True,
    )  # fmt: skip
    systems: dict[str, Any] = {"shown": ut.shown, "new": world.score.ravel()}
    log = world.log(THETA * world.shown)
    own = ut.estimate(log, systems, told, evaluator="ips").compare("shown")["new"].interval
    assert (found.interval.low, found.interval.high) == pytest.approx((own.low, own.high))


def test_one_position_that_is_wrong_gives_the_truth():
    world = World(4)
    clicks = THETA * world.shown
    k = world.sensitivity(clicks)["position"].tried.fields["position"]
    measured = np.where(k == POSITION, THETA / 1.4, THETA)
    found = world.sensitivity(clicks, theta=measured, factor=1.4)["position"]
    assert found.tried.fields["position"] == k
    assert found.at_most == pytest.approx(world.truth)


def test_a_log_that_misleads_is_said_to_turn_before_the_true_amount():
    """Over many worlds: the sign is wrong exactly where trust below the true share turns it."""
    t, misled = 0.8, 0
    for seed in range(60):
        world = World(seed, n_queries=3)
        found = world.sensitivity(world.trusting(t))
        flips_at = found["trust"].flips_at
        wrong = np.sign(found.value) != np.sign(world.truth)
        misled += wrong
        assert (flips_at is not None and flips_at < t) == wrong
        if flips_at is not None:
            at = world.sensitivity(world.trusting(t), trust=flips_at)["trust"].at_most
            assert abs(at) < 5e-3 * abs(found.value) + 1e-3
    assert misled >= 3


def test_drift_of_the_right_amount_gives_the_truth():
    """Documents are 1.5 times as relevant in sessions that show them at 1 as in those at K."""
    world, fall = World(5), 1.5 ** -(np.log(POSITION) / np.log(K))
    at_the_time = world.shown * fall
    score = world.score[world.query[:, None], world.documents]
    new = np.take_along_axis(at_the_time, np.argsort(-score, axis=1), axis=1)
    truth = float(world.count @ ((new - at_the_time) @ DISCOUNT) / world.count.sum())
    # What repeated positions measure then: the ratio of clicks on the same documents.
    harvested = ut.PositionBias(
        THETA * fall,
        assumes=(
            note(
                "bias.same-relevance", "a document is as relevant at one position as at another"
            )(),
        ),
    )
    found = world.sensitivity(THETA * at_the_time, theta=harvested, factor=1.5)
    assert found["drift"].at_least == found.value
    assert found.value != pytest.approx(truth)
    assert found["drift"].at_most == pytest.approx(truth)


def test_queries_that_turn_it_are_the_fewest():
    world = World(6, n_queries=7)
    found = world.sensitivity(THETA * world.shown)
    each = [
        ut.estimate(
            world.log(THETA * world.shown).take(np.repeat(world.query == q, 2)),
            {"shown": ut.shown, "new": world.score.ravel()},
            THETA,
            evaluator="ips",
        ).sums.value
        for q in range(7)
    ]
    gap = np.array([new - shown for shown, new in each])
    fewest = min(
        bin(left_out).count("1")
        for left_out in range(2**7 - 1)
        if np.sign(sum(gap[q] for q in range(7) if not left_out >> q & 1)) == -np.sign(gap.sum())
    )
    assert found["queries"].flips_at == fewest
    without = [(gap.sum() - gap[q]) / 6 for q in range(7)]
    assert found["queries"].at_least == pytest.approx(min(without))
    assert found["queries"].at_most == pytest.approx(max(without))


def test_halves_of_time_and_where_a_trend_leads():
    world = World(7, n_queries=40)
    clicks = THETA * world.shown
    early = np.arange(len(world.query)) % 2 == 0
    # In the later list of each query relevance is turned round.
    clicks[~early] = THETA * (1 - world.shown[~early])
    world.count = np.ones_like(world.count)
    log = world.log(clicks, time=np.where(early, 1, 2))
    systems: dict[str, Any] = {"shown": ut.shown, "new": world.gamma.ravel()}
    found = ut.estimate(log, systems, THETA, evaluator="ips").sensitivity("new")
    first, second = (
        np.subtract(
            *ut.estimate(log.take(np.repeat(part, 2)), systems, THETA, evaluator="ips").sums.value[
                ::-1
            ]
        )
        for part in (early, ~early)
    )
    assert found["time"].at_least == pytest.approx(first)
    assert found["time"].at_most == pytest.approx(second)
    end = second + (second - first) / 2
    expected = None if np.sign(end - first) == np.sign(found.value) else 0.0
    assert found["time"].flips_at == (expected if expected is None else pytest.approx(0.0))


def test_no_difference_has_nothing_to_turn():
    world = World(8)
    found = ut.estimate(
        world.log(THETA * world.shown), {"shown": ut.shown, "same": ut.shown}, THETA
    ).sensitivity()
    assert found.value == 0
    assert found.causes == ()


def test_raw_clicks_have_no_curve_to_doubt():
    world = World(9)
    found = world.sensitivity(THETA * world.shown, evaluator="naive")
    assert {each.name for each in found} == {"queries"}


def test_options_and_names_are_checked():
    world = World(10)
    found = world.sensitivity(THETA * world.shown)
    with pytest.raises(OptionError, match="'typo' was not tried"):
        found["typo"]
    for wrong in ({"factor": 1.0}, {"trust": 0.0}, {"trust": 0.95}):
        with pytest.raises(OptionError, match="must lie above"):
            world.sensitivity(THETA * world.shown, **wrong)
    alone = ut.estimate(world.log(THETA * world.shown), ut.shown, THETA)
    with pytest.raises(OptionError, match="estimate two systems"):
        alone.sensitivity()


def test_the_widest_bar_comes_first_and_the_chart_holds_the_numbers():
    world = World(11)
    found = world.sensitivity(THETA * world.shown)
    swings = [each.swing for each in found]
    assert swings == sorted(swings, reverse=True)
    spec = str(found.plot().to_dict())
    for each in found:
        assert each.title in spec
    assert len(found.view()[0].figures[0].table.rows) == len(found)
    assert "What would flip new minus shown" in repr(found)


def test_an_interval_is_left_before_the_sign_turns():
    sim = ut.simulate(ut.make_judged(60, 6, seed=1), "harvest", n_sessions=6000, seed=1)
    rng = np.random.default_rng(0)
    score = sim.truth.relevance + rng.normal(0, 0.3, sim.log.n_documents)
    bias = ut.AllPairs().fit(sim.log).bias_
    found = ut.estimate(sim.log, {"shown": ut.shown, "new": score}, bias).sensitivity()
    assert found.interval.low > 0
    curve = found["curve"]
    if curve.flips_at is not None:
        assert abs(np.log(curve.undecided_at)) < abs(np.log(curve.flips_at))
