"""Arms are drawn with their probabilities, repeat, move little, and cost no more than the cap."""

import errno
import itertools

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

import untilt as ut
from untilt.errors import OptionError
from untilt.serving.explore import fit_relevance, parse_exploration
from untilt.serving.shared import Counters, SessionTable

KINDS = ("swap-adjacent:0.2", "pivot:0.3:4", "shuffle-top-3:0.25", "swaps:1-2=0.1,2-5=0.2")


@pytest.mark.parametrize("text", KINDS)
def test_shares_of_sessions_are_the_probabilities(text):
    exploration = parse_exploration(text, salt="a")
    n = 20_000
    found = [exploration.draw(f"session {i}", 10).ranker for i in range(n)]
    shares = exploration.shares(10)
    assert sum(shares.values()) == pytest.approx(1)
    for arm, p in shares.items():
        assert found.count(arm) / n == pytest.approx(p, abs=4.5 * np.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("text", KINDS)
def test_the_order_repeats_and_no_document_moves_further_than_stated(text):
    exploration = parse_exploration(text, salt="a")
    most = {
        arm.name: arm.swap[1] - arm.swap[0] if arm.swap else arm.top - 1 for arm in exploration.arms
    }
    for i in range(2_000):
        drawn = exploration.draw(f"{i}", 7)
        assert drawn == exploration.draw(f"{i}", 7)
        if drawn.order is None:
            assert drawn.ranker == "base"
            continue
        assert sorted(drawn.order) == list(range(7))
        moved = max(abs(place - at) for at, place in enumerate(drawn.order))
        assert moved <= most[drawn.ranker]
        if drawn.ranker.startswith("swap"):
            assert sum(at != place for at, place in enumerate(drawn.order)) == 2


def test_the_salt_decides():
    draws = [
        [parse_exploration("pivot:0.5", salt=salt).draw(f"{i}", 10).ranker for i in range(200)]
        for salt in ("a", "b")
    ]
    assert draws[0] != draws[1]


def test_every_order_of_a_shuffle_is_as_likely():
    exploration = parse_exploration("shuffle-top-3:0.5", salt="x")
    drawn = [exploration.draw(f"{i}", 5) for i in range(30_000)]
    orders = [each.order for each in drawn if each.order is not None]
    assert {order[3:] for order in orders} == {(3, 4)}
    for order in itertools.permutations(range(3)):
        share = np.mean([each[:3] == order for each in orders])
        assert share == pytest.approx(1 / 6, abs=4 * np.sqrt(1 / 6 * 5 / 6 / len(orders)))


def test_a_list_that_is_too_short_for_an_arm_is_base():
    exploration = parse_exploration("swap-adjacent:0.45:10", salt="s")
    assert exploration.shares(2) == pytest.approx({"swap:1-2": 0.05, "base": 0.95})
    names = {exploration.draw(f"{i}", 2).ranker for i in range(500)}
    assert names == {"swap:1-2", "base"}


def test_cost_is_the_expected_loss_by_enumeration():
    theta, gamma = np.array([1.0, 0.5, 0.25]), np.array([0.6, 0.5, 0.1])
    usual = theta @ gamma
    swaps = parse_exploration("swaps:1-2=0.1,1-3=0.2")
    lost = [usual - theta @ gamma[list(order)] for order in ((1, 0, 2), (2, 1, 0))]
    assert swaps.cost(3, theta, gamma) == pytest.approx(0.1 * lost[0] + 0.2 * lost[1])
    shuffle = parse_exploration("shuffle-top-3:0.3")
    orders = list(itertools.permutations(range(3)))
    mean = np.mean([usual - theta @ gamma[list(order)] for order in orders])
    assert shuffle.cost(3, theta, gamma) == pytest.approx(0.3 * mean)


@pytest.mark.parametrize("text", KINDS)
def test_without_knowledge_the_cost_is_the_most_for_any_relevance_and_curve(text):
    exploration = parse_exploration(text)
    rng = np.random.default_rng(0)
    theta = np.sort(rng.uniform(size=6))[::-1]
    corners = [np.sort(rng.integers(0, 2, 6).astype(float))[::-1] for _ in range(200)]
    costs = [exploration.cost(6, theta, gamma) for gamma in corners]
    assert max(costs) <= exploration.cost(6, theta) + 1e-12
    curves = [np.sort(rng.integers(0, 2, 6).astype(float))[::-1] for _ in range(50)]
    assert all(
        exploration.cost(6, t, g) <= exploration.cost(6) + 1e-12 for t in curves for g in corners
    )


def test_the_cap_decides_by_the_list():
    exploration = parse_exploration("swaps:1-2=0.1", most_lost=0.01)
    theta = np.array([1.0, 0.5])
    assert exploration.is_affordable(2, theta, np.array([0.5, 0.4]))  # costs 0.1 * 0.5 * 0.1
    assert not exploration.is_affordable(2, theta, np.array([0.9, 0.1]))
    assert not exploration.is_affordable(2)  # at most 0.1


@pytest.mark.parametrize(
    "text",
    ["", "swap", "swap-adjacent", "swap-adjacent:2", "pivot:nan", "shuffle-top-1:0.1", "pivot:0.9",
     "swaps:2-1=0.1", "swaps:1-2", "pivot:0.1:1", "off:0.1", "shuffle-top-3:0.1:4"],
)  # fmt: skip
def test_nonsense_is_refused_with_a_way_out(text):
    with pytest.raises(OptionError):
        parse_exploration(text)


def test_off_is_nothing():
    assert not parse_exploration("off")


def test_relevance_behind_scores_is_recovered():
    rng = np.random.default_rng(0)
    n = 200_000
    scores = rng.normal(size=n)
    theta = rng.choice([1.0, 0.5, 0.2], n)
    truth = 1 / (1 + np.exp(-scores))
    clicks = (rng.uniform(size=n) < theta * truth).astype(float)
    fitted = fit_relevance(scores, clicks, theta, np.ones(n))
    at = np.linspace(-1.5, 1.5, 13)
    assert fitted.of(at) == pytest.approx(1 / (1 + np.exp(-at)), abs=0.04)
    assert np.all(np.diff(fitted.gamma) >= 0)


def test_relevance_is_isotonic_regression_as_scikit_learn_has_it(rng):
    scores, theta = rng.integers(0, 40, 500) / 8, rng.choice([1.0, 0.5, 0.0], 500)
    clicks, count = rng.integers(0, 2, 500).astype(float), rng.integers(1, 9, 500).astype(float)
    seen = theta > 0
    other = IsotonicRegression(y_min=0.0, out_of_bounds="clip").fit(
        scores[seen], (clicks / np.where(seen, theta, 1))[seen], (theta * count)[seen]
    )
    fitted = fit_relevance(scores, clicks, theta, count)
    assert fitted.scores == pytest.approx(other.X_thresholds_)
    assert fitted.gamma == pytest.approx(other.y_thresholds_)
    assert fitted.of(np.array([-1.0, 2.3, 9.0])) == pytest.approx(other.predict([-1.0, 2.3, 9.0]))


def test_one_list_of_a_session_takes_part(tmp_path):
    now = [0.0]
    table, other = (
        SessionTable(tmp_path / "t", slots=64, seconds=100, clock=lambda: now[0]) for _ in range(2)
    )
    assert table.takes_part("s", ("shoes", "1", "2"))
    assert not table.takes_part("s", ("hats", "1", "2"))
    assert not other.takes_part("s", ("hats", "1", "2"))  # another worker sees the same
    assert other.takes_part("s", ("shoes", "1", "2"))  # shown again
    # Of more sessions than slots, those that came too late stay out until time has passed.
    taken = sum(table.takes_part(f"{i}", ("q",)) for i in range(500))
    assert taken <= 64
    now[0] = 101
    assert any(table.takes_part(f"new {i}", ("q",)) for i in range(10))
    table.close()
    other.close()


def test_a_list_takes_no_part_where_the_table_cannot_be_used(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    now = [0.0]
    table = SessionTable(tmp_path / "t", clock=lambda: now[0])
    assert (tmp_path / "t").stat().st_size == 0
    with (tmp_path / "t").open("rb") as reader:  # anybody who may read can do this
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert not table.takes_part("s", ("q",))
    assert table.takes_part("s", ("q",))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("untilt.serving.shared.write_at", full)
        assert not table.takes_part("new", ("q",))
    assert table.takes_part("new", ("q",))
    table.close()
    # A clock that was ahead once.
    table = SessionTable(tmp_path / "t", slots=1, clock=lambda: now[0])
    now[0] = 4e9
    assert table.takes_part("early", ("q",))
    now[0] = 1.8e9
    assert table.takes_part("now", ("q",))
    table.close()


def test_counters_lose_nothing_where_their_file_cannot_be_used(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    one, other = (Counters(tmp_path / "counters", ["base"]) for _ in range(2))
    (file,) = tmp_path.iterdir()

    def told(counters):
        return f'path="/rank",status="200"}} {counters}\n'

    with file.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        one.request("/rank", 200)
        assert told(1) in one.text([])
        assert told(1) not in other.text([])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("untilt.serving.shared.write_at", full)
        one.request("/rank", 200)
    other.request("/rank", 200)
    assert told(3) in one.text([])
    assert told(3) in other.text([])
    one.close()
    other.close()
    later = Counters(tmp_path / "counters", ["base"])  # counters never fall
    assert told(3) in later.text([])
    later.close()


def test_a_plan_is_an_exploration():
    plan = ut.plan_swaps([0.3, 0.2, 0.1], sessions_per_day=10_000)
    arms = parse_exploration(plan.explore).arms
    assert [arm.swap for arm in arms] == [(swap.upper, swap.lower) for swap in plan.swaps]
    planned = [swap.probability for swap in plan.swaps]
    assert [arm.probability for arm in arms] == pytest.approx(planned, rel=1e-5)
