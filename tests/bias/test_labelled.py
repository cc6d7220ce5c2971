"""The curve from grades: recovered on one fixed order, with judges who err."""

from types import SimpleNamespace

import numpy as np
import pytest

import untilt as ut
from untilt.bias.estimator import parse_estimator
from untilt.bias.labelled import ClicksByGrade, _noise, _sample
from untilt.data.counts import position_counts
from untilt.errors import IdentifiabilityError, OptionError
from untilt.facts import codes

K = 6
THETA = np.arange(1.0, K + 1) ** -0.9


class World:
    """Documents of a query in a fixed order by a ranker that knows something; clicks by grade."""

    def __init__(self, seed=0, n_queries=150, sessions=120):
        self.random = random = np.random.default_rng(seed)
        eta = random.normal(2, 1, (n_queries, K))
        order = np.argsort(-(eta + random.normal(0, 1, eta.shape)), axis=1)
        self.eta = np.take_along_axis(eta, order, 1)
        gamma = 1 / (1 + np.exp(3 - self.eta))
        seen = random.random((n_queries, sessions, K)) < THETA * gamma[:, None]
        n = n_queries * K
        self.log = ut.ClickLog(
            query_id=np.arange(n_queries), doc_id=np.arange(n),
            doc_query=np.repeat(np.arange(n_queries), K),
            indptr=np.arange(n_queries * sessions + 1) * K,
            query=np.repeat(np.arange(n_queries), sessions),
            document=np.repeat(np.arange(n).reshape(-1, 1, K), sessions, axis=1).ravel(),
            position=np.tile(np.arange(1, K + 1), n_queries * sessions),
            label=seen.ravel().astype(float),
        )  # fmt: skip

    def grades(self, tau=0.7, twice=0.3, lenient=0.5):
        """One judge grades all documents, a second and more lenient one some of them."""
        n = self.eta.size
        again = self.random.choice(n, int(twice * n), replace=False)
        rows = np.r_[np.arange(n), again]
        grade = self.eta.ravel()[rows] + self.random.normal(0, tau, len(rows)) + 12
        judge = np.repeat(["a", "b"], [n, len(again)])
        return ut.labels.Grades(rows // K, rows, grade + lenient * (judge == "b"), judge)


def fitted(world, labels=None, **options):
    labels = world.grades() if labels is None else labels
    return ClicksByGrade(labels, **options).fit(world.log).bias_


@pytest.mark.parametrize("runs", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_the_curve_of_one_fixed_order_is_covered(runs):
    """Clicks alone identify nothing here, and grades taken as exact are too steep."""
    held, naive = [], []
    for seed in range(runs):
        world = World(seed)
        labels = world.grades()
        curve = fitted(world, labels)
        held.append((curve.low <= THETA) & (curve.high >= THETA))
        naive.append(np.log(fitted(world, labels, noise=0.0).examination / THETA))
    share, n = np.mean(np.array(held)[:, 1:]), runs * (K - 1)
    assert share > 0.95 - 3 * (0.95 * 0.05 / n) ** 0.5 * 2  # positions of one log go together
    assert np.mean(naive, axis=0)[-1] < -0.1


def test_it_rests_on_labels_and_says_so():
    curve = fitted(World())
    assert curve.rests_on == "labels"
    assert curve.relative
    assert {"bias.graded", "bias.errors-by-group"} <= set(codes(curve.status.parts))
    assert curve.status.parts[0].fields["reliability"] == pytest.approx(0.6, abs=0.15)


def test_the_noise_is_that_of_the_judges_without_their_leniency():
    world = World(n_queries=800, sessions=10)
    sample = _sample(position_counts(world.log), world.log, world.grades(tau=0.7, twice=1.0))
    assert _noise(sample) == pytest.approx(0.49, rel=0.1)


def test_it_agrees_with_documents_that_moved():
    judged = ut.make_judged(n_queries=300, n_features=5, seed=1)
    log = ut.simulate(judged, protocol="harvest", sessions_per_query=150, seed=2).log
    labels = ut.labels.Grades(judged.groups, judged.doc_id, judged.labels)
    curve = fitted(SimpleNamespace(log=log), labels, noise=0.0)
    assert "bias.curve-as-steep" in codes(curve.status.parts)
    assert np.all(ut.AllPairs().fit(log).bias_.compare(curve).p_values > 1e-3)
    assert "bias.curve-nothing-moved" in codes(fitted(World()).status.parts)


def test_one_judge_alone_has_a_wider_interval_that_holds_both_ends():
    world = World(3)
    labels = world.grades(twice=0.0)
    alone, exact = fitted(world, labels), fitted(world, labels, noise=0.0)
    assert "bias.grade-noise" in codes(alone.status.parts)
    assert np.all(alone.low <= exact.low)
    assert np.all((alone.low <= THETA) & (alone.high >= THETA))
    assert np.all((alone.high / alone.low)[1:] > (exact.high / exact.low)[1:])


def test_judges_who_know_little_are_said_to():
    curve = fitted(World(), World().grades(tau=3.0, twice=1.0))
    assert "bias.unreliable-grades" in codes(curve.status.parts)


def test_counts_are_sessions_and_order_does_not_matter():
    world = World(n_queries=40)
    labels = world.grades()
    whole, counted = (ClicksByGrade(labels).fit(each).bias_
                      for each in (world.log, world.log.collapse()))  # fmt: skip
    np.testing.assert_allclose(counted.examination, whole.examination, rtol=1e-6)
    np.testing.assert_allclose(counted.low, whole.low, rtol=1e-4)
    mixed = np.random.default_rng(0).permutation(len(labels))
    other = ut.labels.Grades(*(getattr(labels, name)[mixed] for name in
                               ("query_id", "doc_id", "grade", "judge")))  # fmt: skip
    np.testing.assert_allclose(fitted(world, other).examination, whole.examination, rtol=1e-5)


def test_a_file_of_grades_as_an_option(tmp_path):
    world = World(n_queries=60)
    labels = world.grades()
    rows = zip(labels.query_id, labels.doc_id, labels.grade, labels.judge, strict=True)
    text = "query_id,doc_id,grade,judge\n" + "".join(f"{q},{d},{g},{j}\n" for q, d, g, j in rows)
    (tmp_path / "grades.csv").write_text(text)
    asked = parse_estimator(f"clicks-by-grade:labels={tmp_path / 'grades.csv'}")
    curve = asked.kind(**asked.options).fit(world.log).bias_
    np.testing.assert_allclose(curve.examination, fitted(world, labels).examination, rtol=1e-6)


def test_what_cannot_be_had_is_refused():
    world = World(n_queries=20)
    with pytest.raises(OptionError, match="needs grades"):
        ClicksByGrade().fit(world.log)
    with pytest.raises(OptionError, match="Use the same ids"):
        fitted(world, ut.labels.Grades(["x"], ["y"], [1]))
    one = ut.labels.Grades(np.zeros(K, int), np.arange(K), np.arange(K))
    with pytest.raises(IdentifiabilityError, match="10 queries are needed"):
        fitted(world, one)
