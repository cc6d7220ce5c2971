"""Grades as observations of the logit: the precision of judges, and learning from both."""

from dataclasses import replace

import numpy as np
import pytest

import untilt as ut
from untilt.bias.given import KnownBias
from untilt.data.grades import Grades
from untilt.errors import OptionError
from untilt.evaluation.judged import evaluate
from untilt.objectives.graded import observed
from untilt.objectives.hierarchical import Hierarchy, click_cells, fit_hierarchy

ALPHA, BETA = np.array([1.0, 0.6, 0.4]), np.zeros(3)


def made(seed=0, n_queries=40, n_documents=8, sessions=30):
    """Cells, their logits and the query of each document."""
    random, n = np.random.default_rng(seed), n_queries * n_documents
    query = np.repeat(np.arange(n_queries), n_documents)
    eta = -1 + random.normal(0, 0.6, n_queries)[query] + random.normal(0, 0.9, n)
    place = np.arange(n) % 3
    clicks = random.binomial(sessions, ALPHA[place] / (1 + np.exp(-eta))).astype(float)
    cells = click_cells(query, np.arange(n), place, np.full(n, sessions), clicks, ALPHA, BETA)
    return cells, eta, query


def height(cells, model, query, offset, u, u_q):
    """log p(clicks, grades, effects) as it is written down."""
    eta = offset + u_q[query] + u
    p = ALPHA[cells.place] / (1 + np.exp(-eta[cells.order]))
    total = np.sum(cells.clicks * np.log(p) + (cells.impressions - cells.clicks) * np.log1p(-p))
    total -= np.sum(u**2) / (2 * model.v) + np.sum(u_q**2) / (2 * model.s2)
    return total - np.sum(cells.grades[1] / 2 * (cells.grades[0] - eta) ** 2)


def test_the_modes_are_those_of_clicks_and_grades():
    """A slow twin: no small change of any effect makes what was seen likelier."""
    cells, eta, query = made(n_queries=4)
    random = np.random.default_rng(1)
    grades = np.array([eta + random.normal(0, 0.5, len(eta)), random.random(len(eta)) * 4])
    model = Hierarchy(replace(cells, grades=grades), 0.8, 0.4)
    offset = random.normal(size=len(eta))
    found = model.modes(offset)
    u, u_q = found.document, found.query
    best = height(model.cells, model, query, offset, u, u_q)
    for i in range(len(u)):
        for step in (-1e-3, 1e-3):
            moved = u + step * (np.arange(len(u)) == i)
            assert height(model.cells, model, query, offset, moved, u_q) < best
    for q in range(len(u_q)):
        moved = u_q + 1e-3 * (np.arange(len(u_q)) == q)
        assert height(model.cells, model, query, offset, u, moved) < best
    again, again_q = found.document.copy(), found.query.copy()
    H = model.newton_step(offset, again, again_q)
    np.testing.assert_allclose(again, u, atol=1e-4)
    np.testing.assert_allclose(H, found.information, rtol=1e-3)
    part, rows = model.cells.take_queries(np.arange(4) % 2 == 0)
    some = Hierarchy(part, 0.8, 0.4).modes(offset[rows])
    np.testing.assert_allclose(some.document, u[rows], atol=1e-8)


def test_without_grades_nothing_changes_to_the_last_bit():
    cells, eta, _ = made()
    none = replace(cells, grades=np.array([np.full(len(eta), 3.0), np.zeros(len(eta))]))
    columns = np.column_stack([np.ones(len(eta)), np.sin(np.arange(len(eta)))])
    one, other = (fit_hierarchy(each, columns) for each in (cells, none))
    assert one.log_likelihood == other.log_likelihood
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.effects.document, other.effects.document)


def log_of(n):
    return ut.ClickLog(
        query_id=np.arange(n), doc_id=np.arange(n), doc_query=np.arange(n),
        indptr=np.arange(n + 1), query=np.arange(n), document=np.arange(n),
        position=np.ones(n, int), label=np.zeros(n),
    )  # fmt: skip


def test_judges_are_found_within_their_errors():
    """Clicks know eta up to variances; a slope on what they say is not attenuated."""
    random, n = np.random.default_rng(0), 4000
    eta, V = random.normal(size=n), random.uniform(0.2, 1.0, n)
    mean = (1 - V) * eta + np.sqrt(V * (1 - V)) * random.normal(size=n)  # eta | mean has variance V
    grade = {"good": 2 + 0.8 * eta, "against": 3 - 0.5 * eta, "junk": 2 + 0 * eta}
    noise = {"good": 0.4, "against": 0.7, "junk": 1.0}
    rows = np.tile(np.arange(n), 3)
    told = np.concatenate([g + random.normal(0, noise[k], n) for k, g in grade.items()])
    keep = told >= 0
    labels = Grades(rows[keep], rows[keep], told[keep], np.repeat([*grade], n)[keep])
    found = observed(labels, log_of(n), mean, V)
    known = {each.name: each for each in found.judges}
    assert known["good"].slope == pytest.approx(0.8, abs=0.06)
    assert known["against"].slope == pytest.approx(-0.5, abs=0.08)
    assert known["good"].noise == pytest.approx(0.4, abs=0.06)
    assert abs(known["junk"].slope) < 0.08
    assert np.corrcoef(found.logits[0], eta)[0, 1] > 0.88  # .905 if nothing were cut at 0
    alone = observed(labels.of("good"), log_of(n), mean, V).logits
    here = alone[1] > 0
    np.testing.assert_allclose(alone[1][here], (0.8 / 0.4) ** 2, rtol=0.3)
    away = (alone[0] - eta)[here] * np.sqrt(alone[1][here])
    assert np.std(away) == pytest.approx(1, abs=0.15)


def test_several_grades_of_one_judge_are_one_and_few_judges_share():
    random, n = np.random.default_rng(0), 200
    eta = random.normal(size=n)
    grade = eta + 5 + random.normal(0, 0.3, n)
    once = Grades(np.arange(n), np.arange(n), grade)
    twice = Grades(np.r_[:n, :n], np.r_[:n, :n], np.r_[grade, grade])
    one, two = (observed(each, log_of(n), eta, np.full(n, 0.1)) for each in (once, twice))
    np.testing.assert_allclose(two.logits, one.logits, rtol=1e-6)
    people = Grades(np.arange(n), np.arange(n), grade, np.arange(n) % 10)
    shared = observed(people, log_of(n), eta, np.full(n, 0.1))
    assert [each.name for each in shared.judges] == ["others"]
    np.testing.assert_allclose(shared.logits, one.logits, rtol=1e-6)


def test_too_few_grades_and_other_ids_are_refused():
    mean, V = np.zeros(50), np.ones(50)
    with pytest.raises(OptionError, match="30 are needed"):
        observed(Grades(np.arange(9), np.arange(9), np.ones(9)), log_of(50), mean, V)
    with pytest.raises(OptionError, match="Use the same ids"):
        observed(Grades(["x"], ["y"], [1]), log_of(50), mean, V)


@pytest.fixture(scope="module")
def world():
    judged = ut.make_judged(n_queries=260, n_features=10, seed=2)
    train, test = judged.take(np.arange(160)), judged.take(np.arange(160, 260))
    return ut.simulate(train, protocol="dla", sessions_per_query=4, seed=3).log, train, test


def grades(train, n, noise=0.7):
    random = np.random.default_rng(0)
    row = random.choice(len(train), n, replace=False)
    value = np.maximum(train.labels[row] + random.normal(0, noise, n), 0)
    return Grades(train.groups[row], train.doc_id[row], value)


def mart(log, labels=None):
    ranker = ut.LambdaMART("auto", bias=ut.EyeTracking(), n_trees=60, n_threads=1)
    return ranker.fit(log, labels=labels)


def test_grades_teach_where_clicks_are_few(world):
    log, train, test = world
    plain, both = mart(log), mart(log, grades(train, 800))
    of = lambda ranker: evaluate(test, ranker, "ndcg@10")["ndcg@10"].value  # noqa: E731
    assert of(both) > of(plain) + 0.01
    assert both.summary_["grades"] == 800
    assert both.choice_.judges[0].fields["slope"] > 0.2
    assert "grades" not in plain.summary_
    assert plain.choice_.judges == ()
    np.testing.assert_array_equal(plain.predict(test), mart(log, None).predict(test))


def test_a_ranker_of_grades_is_saved_and_not_judged_by_them(world, tmp_path):
    log, train, _ = world
    ranker = mart(log, grades(train, 200))
    ranker.save(tmp_path / "r.untilt")
    again = ut.load(tmp_path / "r.untilt")
    np.testing.assert_array_equal(again.predict(train), ranker.predict(train))
    assert again.choice_.judges == ranker.choice_.judges
    census = Grades(
        train.groups, train.doc_id, train.labels, None, np.ones(len(train)), "documents"
    )
    with pytest.raises(OptionError, match="learned from grades"):
        ut.labels.estimate_labels(log, {"shown": ut.shown, "new": again}, census)


def test_who_learns_from_no_grades_says_so(world):
    log, train, _ = world
    labels = grades(train, 50)
    with pytest.raises(OptionError, match="LinearRanker learns from no grades"):
        ut.LinearRanker(ut.IPS(ut.EyeTracking())).fit(log, labels)
    with pytest.raises(OptionError, match="alone"):
        ut.LambdaMART(ut.PRS(ut.EyeTracking())).fit(log, labels)
    dwell = log.with_label(log.label * 2.5)
    with pytest.raises(OptionError, match="beside clicks"):
        mart(dwell, labels)


def test_judgments_say_what_they_rest_on(world, tmp_path):
    log, train, _ = world
    labels = grades(train, 400)
    curve = KnownBias(ut.EyeTracking().at(np.arange(1, log.depth + 1)))
    plain, both = (ut.click_judgments(log, curve, labels=each) for each in (None, labels))
    assert set(plain.rests_on) == {"clicks"}
    assert set(both.rests_on) == {"clicks", "grades", "both"}
    truth = dict(zip(zip(train.groups.tolist(), train.doc_id.tolist(), strict=True),
                     train.labels.tolist(), strict=True))  # fmt: skip
    know = np.array([truth[each] for each in zip(both.query_id.tolist(), both.doc_id.tolist(),
                                                 strict=True)])  # fmt: skip
    for kind, least in (("both", 0.7), ("grades", 0.7)):
        rows = both.rests_on == kind
        assert np.corrcoef(both.relevance[rows], know[rows])[0, 1] > least
        assert np.mean((both.high - both.low)[rows]) < np.mean(both.high - both.low)
    assert len(plain) == np.sum(both.rests_on != "grades")
    both.write(tmp_path / "j.csv")
    head, *rows = (tmp_path / "j.csv").read_text().splitlines()
    assert head.endswith(",rests_on")
    assert len(rows) == len(both)


def test_the_objective_of_an_own_pipeline_learns_from_both(world):
    lightgbm = pytest.importorskip("lightgbm")
    log, train, test = world
    labels, value = grades(train, 800), {}
    data = ut.lightgbm_dataset(log)
    for name, given in (("clicks", None), ("both", labels)):
        objective = ut.click_objective(log, ut.EyeTracking(), given)
        params = {"objective": objective, "verbose": -1, "num_threads": 1, "learning_rate": 0.1,
                  "num_leaves": 8, "feature_pre_filter": False}  # fmt: skip
        booster = lightgbm.train(params, data, num_boost_round=40)
        value[name] = evaluate(test, booster.predict(test.features), "ndcg@10")["ndcg@10"].value
        gradient, hessian = objective(np.zeros(data.num_data()))
        assert np.isfinite(gradient).all()
        assert np.all(hessian >= 0)
    assert value["both"] > value["clicks"]
