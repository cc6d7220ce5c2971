"""Values from a sample of grades: unbiased, covered, and refused where they cannot be had."""

import itertools

import numpy as np
import pytest

from untilt._core.statistics import Interval
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.evaluation.judged import evaluate
from untilt.evaluation.labels.estimate import estimate_labels, regressed
from untilt.evaluation.labels.lists import candidates, place_weights
from untilt.evaluation.labels.plan import draw, plan_labels, probabilities
from untilt.evaluation.systems import shown
from untilt.metrics.metric import parse_metric

METRIC = "dcg@10:gain=linear"
N = 15


class World:
    """Queries with grades that nobody has seen, two rankers and the traffic."""

    def __init__(self, n_queries: int, seed: int, zipf: float = 0.0) -> None:
        self.random = random = np.random.default_rng([n_queries, seed])
        n = n_queries * N
        self.grade = random.choice(5, size=n, p=[0.5, 0.23, 0.14, 0.08, 0.05]).astype(float)
        self.old = self.grade + random.normal(0, 2.2, n)
        self.new = self.grade + random.normal(0, 1.8, n)
        sessions = np.arange(1, n_queries + 1) ** -zipf
        self.log = ClickLog(
            query_id=np.arange(n_queries),
            doc_id=np.tile(np.arange(N), n_queries),
            doc_query=np.repeat(np.arange(n_queries), N),
            indptr=np.arange(n_queries + 1) * N,
            query=np.arange(n_queries),
            document=np.arange(n),
            position=np.tile(np.arange(1, N + 1), n_queries),
            label=np.zeros(n),
            count=np.maximum(100 * sessions / sessions.mean(), 1).astype(int),
        )
        self.systems = {"old": self.old, "new": self.new}

    def graded(self, query_id, doc_id, probability=None, drawn="documents", noise=0.0) -> Grades:
        row = np.array(query_id.tolist()) * N + np.array(doc_id.tolist())
        grade = np.maximum(self.grade[row] + self.random.normal(0, noise, len(row)), 0)
        return Grades(query_id, doc_id, grade, None, probability, drawn)

    def census(self, drawn="documents") -> Grades:
        queries = np.repeat(self.log.query_id, N)
        return self.graded(queries, self.log.doc_id, np.ones(len(self.grade)), drawn)

    def sample(self, n: int, seed: int = 0, **options) -> Grades:
        plan = plan_labels(self.log, self.systems, n, METRIC, seed=seed, **options)
        return self.graded(plan.query_id, plan.doc_id, plan.probability, plan.drawn)


def slow(a, y, p, x):
    """The estimate as it is written down: each grade's residual from a fit without it."""
    known = np.isfinite(y)

    def fitted(without=-1):
        s = np.array([i for i in np.flatnonzero(known & (p < 1)) if i != without])
        omega = (1 - p[s]) * (a[s] / p[s]) ** 2
        root = np.sqrt(omega)[:, None]
        return np.linalg.lstsq(root * x[s], root[:, 0] * y[s], rcond=None)[0]

    beta, total = fitted(), 0.0
    for i in range(len(a)):
        total += a[i] * (y[i] if known[i] else x[i] @ beta)
        if known[i] and p[i] < 1:
            total += a[i] * (1 - p[i]) / p[i] * (y[i] - x[i] @ fitted(i))
    return total


def test_the_closed_form_is_a_fit_without_each_grade():
    random = np.random.default_rng(3)
    a, y, x1 = random.normal(size=40), random.normal(size=40), random.normal(size=40)
    p = np.where(random.random(40) < 0.2, 1.0, random.uniform(0.3, 0.9, 40))
    y[random.random(40) > p] = np.nan
    for x in (np.ones((40, 1)), np.column_stack([np.ones(40), x1])):
        assert regressed(a, y, p, x).value == pytest.approx(slow(a, y, p, x), rel=1e-9)


def test_it_is_unbiased_by_all_samples_whatever_the_prediction_says():
    random = np.random.default_rng(0)
    n = 13
    a, y, p = random.normal(size=n), random.uniform(0, 4, n), random.uniform(0.7, 0.95, n)
    x = np.column_stack([np.ones(n), 3 - y + random.normal(0, 0.5, n)])
    mean = 0.0
    for drawn in itertools.product((False, True), repeat=n):
        s = np.array(drawn)
        if s.sum() > 3:  # fewer have a chance of 1e-7, and nothing to fit
            chance = np.prod(np.where(s, p, 1 - p))
            mean += chance * regressed(a, np.where(s, y, np.nan), p, x).value
    assert mean == pytest.approx(a @ y, abs=2e-3 * np.abs(a * y).sum())


def test_all_grades_give_the_value_itself_and_no_error():
    world = World(30, 0, zipf=1.0)
    found = estimate_labels(world.log, world.systems, world.census(), METRIC, top_grade=4)
    judged = JudgedLists(
        np.zeros((len(world.grade), 1)), world.grade, np.arange(31) * N, world.log.query_id
    )
    for name, scores in world.systems.items():
        known = evaluate(judged, scores, METRIC, weights=world.log.count)[METRIC]
        assert found[name].value * found.share == pytest.approx(known.value)
        low, high = found[name].interval_these.low, found[name].interval_these.high
        assert high - low < 1e-12
        half = (found[name].interval.high - found[name].interval.low) / 2 * found.share
        assert half == pytest.approx((known.interval.high - known.interval.low) / 2)


def test_two_orders_that_are_the_same_differ_by_exactly_nothing():
    world = World(20, 1)
    systems = {"a": world.old, "b": 2 * world.old}
    found = estimate_labels(world.log, systems, world.census(), METRIC)["b - a"]
    assert found.value == 0
    assert found.interval == Interval(0.0, 0.0)


@pytest.mark.parametrize("runs", [25, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("zipf", [0.0, 1.3])
@pytest.mark.parametrize("kind", ["alone", "clicks", "old", "against", "junk"])
def test_the_truth_lies_in_the_interval(kind, zipf, runs):
    held = 0
    for seed in range(runs):
        world = World(60, seed, zipf)
        noise = world.random.normal(size=len(world.grade))
        x = {
            "clicks": world.grade + noise,
            "old": 0.3 * world.grade + 0.5 * world.old,
            "against": 1 - world.grade + 0.3 * noise,
            "junk": noise,
        }
        given = {} if kind == "alone" else {kind: x[kind]}
        labels = world.sample(60, seed)
        found = estimate_labels(
            world.log, world.systems, labels, METRIC, predictions=given, top_grade=4
        )["new - old"]
        truth = estimate_labels(world.log, world.systems, world.census(), METRIC, top_grade=4)
        held += truth["new - old"].value in found.interval_these
    assert held >= runs * 0.95 - 3 * (runs * 0.95 * 0.05) ** 0.5


def test_a_good_prediction_saves_grades_and_a_leaning_one_is_found():
    world = World(200, 0)
    labels = world.sample(150)
    lean = 0.3 * world.grade + 0.5 * world.old
    for x, least in ((world.grade + world.random.normal(0, 0.5, 200 * N), 2.0), (lean, 1.0)):
        found = estimate_labels(
            world.log, world.systems, labels, METRIC, predictions={"x": x}, top_grade=4
        )["new - old"]
        assert found.worth > least * found.grades
    assert "labels.lean" in {fact.code for fact in found.facts}


def test_the_scale_of_a_prediction_changes_nothing():
    """Clicks say 0 to 1 and grades 0 to 4: that alone is no lean."""
    world = World(200, 0)
    labels, x = world.sample(150), world.grade + world.random.normal(0, 0.5, 200 * N)
    one, other = (
        estimate_labels(world.log, world.systems, labels, METRIC, predictions={"x": each})
        for each in (x, 0.1 * x + 7)
    )
    for name in ("new", "new - old"):
        assert other[name].value == pytest.approx(one[name].value)
        assert other[name].predicted == pytest.approx(one[name].predicted)
        assert other[name].facts == one[name].facts


def test_whole_queries_give_any_metric():
    truth, held = [], 0
    for seed in range(30):
        world = World(120, seed)
        labels = world.sample(40 * N, seed, drawn="queries")
        found, whole = (
            estimate_labels(world.log, world.systems, each, "ndcg@10")["new - old"]
            for each in (labels, world.census("queries"))
        )
        truth.append(whole.value)
        held += whole.value in found.interval_these
    assert np.mean(truth) > 0
    assert held >= 25


def test_a_second_judge_of_the_same_documents_makes_the_interval_wider():
    world = World(60, 0)
    census = world.census()
    both = Grades(
        np.r_[census.query_id, census.query_id], np.r_[census.doc_id, census.doc_id],
        np.r_[census.grade + 1, np.maximum(census.grade - 1, 0)],
        np.repeat(["one", "two"], len(census)), np.ones(2 * len(census)), "documents",
    )  # fmt: skip
    found = estimate_labels(world.log, world.systems, both, METRIC, top_grade=4)["new - old"]
    assert found.interval_these.high - found.interval_these.low > 1e-3


def test_what_cannot_be_had_is_refused():
    world = World(60, 0)
    labels = world.sample(60)
    picked = Grades(labels.query_id, labels.doc_id, labels.grade)
    with pytest.raises(OptionError, match="how they were drawn"):
        estimate_labels(world.log, world.systems, picked, METRIC)
    with pytest.raises(OptionError, match="graded whole"):
        estimate_labels(world.log, world.systems, labels, "ndcg@10")
    uniform = Grades(
        labels.query_id, labels.doc_id, labels.grade, None, np.full(60, 60 / 900), "documents"
    )
    found = estimate_labels(world.log, world.systems, uniform, METRIC)["new - old"]
    assert np.isnan(found.value)
    assert found.facts[0].code == "labels.not-drawn-for"
    few = world.sample(8)
    found = estimate_labels(world.log, world.systems, few, METRIC)["new - old"]
    assert found.interval is None
    assert np.isfinite(found.value)
    other = Grades(["x"], ["y"], [1], None, [1.0], "documents")
    with pytest.raises(OptionError, match="Use the same ids"):
        estimate_labels(world.log, world.systems, other, METRIC)


def test_the_shown_order_is_that_of_the_sessions():
    world = World(5, 0)
    lists, metric = candidates(world.log), parse_metric(METRIC)
    by_position = place_weights(lists, -np.tile(np.arange(N), 5), metric)
    np.testing.assert_allclose(place_weights(lists, shown, metric), by_position)
    tied = place_weights(lists, np.zeros(5 * N), metric)
    assert np.ptp(tied[:N]) < 1e-15
    assert tied.sum() == pytest.approx(by_position.sum())


def test_draws_have_their_probabilities_and_their_number():
    p = probabilities(np.array([9.0, 3.0, 2.0, 1.0, 0.0, 1.0]), 3)
    assert p.sum() == pytest.approx(3)
    assert p[0] == 1
    assert p[4] == 0
    drawn = np.zeros(6)
    for seed in range(4_000):
        rows = draw(p, seed)
        assert len(rows) == len(set(rows.tolist())) == 3
        drawn[rows] += 1
    np.testing.assert_allclose(drawn / 4_000, p, atol=0.03)


def test_documents_on_the_same_place_are_never_graded():
    world = World(40, 0)
    world.systems["new"] = world.old.copy()
    world.systems["new"][: 3 * N] = world.new[: 3 * N]
    plan = plan_labels(world.log, world.systems, 30, METRIC)
    assert set(plan.query_id.tolist()) <= {0, 1, 2}
    with pytest.raises(OptionError, match="order all candidates alike"):
        plan_labels(world.log, {"a": world.old, "b": world.old}, 30, METRIC)


def test_the_planned_width_is_reached():
    world = World(300, 0)
    plan = plan_labels(world.log, world.systems, 200, METRIC, known=world.census())
    assert not plan.guessed
    labels = world.sample(200)
    found = estimate_labels(world.log, world.systems, labels, METRIC, top_grade=4)["new - old"]
    half = (found.interval_these.high - found.interval_these.low) / 2
    assert plan.half_width == pytest.approx(half, rel=0.2)
