"""weighting="auto": the stacked learner, what it says of itself, and where it falls back."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone

from untilt import (
    ClickLog,
    EyeTracking,
    KnownBias,
    LambdaMART,
    load,
    make_judged,
    simulate,
)
from untilt.errors import OptionError
from untilt.facts import as_fact
from untilt.objectives.hierarchical import ClickCells
from untilt.rankers.learning_data import training_lists
from untilt.rankers.stacked import ranker as auto
from untilt.rankers.stacked.learner import fit_stacked, posterior
from untilt.rankers.stacked.parts import OLD, imitation_correlation, rows_of, slopes, stack
from untilt.rankers.trees.boosting import merged
from untilt.rankers.trees.crossfit import CrossFitted, TreesTried
from untilt.rankers.validation import cells_of, held_out_labels

BIAS = EyeTracking(1.0)


@pytest.fixture(scope="module")
def judged():
    return make_judged(60, 8, seed=3)


@pytest.fixture(scope="module")
def log(judged):
    return simulate(judged, "dla", sessions_per_query=30, seed=3).log


def mart(**options):
    options = {"bias": BIAS, "n_trees": 20, "n_threads": 1, **options}
    return LambdaMART("auto", **options)


@pytest.fixture(scope="module")
def ranker(log):
    return mart().fit(log)


@pytest.mark.parametrize(("option", "message"), [("map", "graded labels"), ("ndgc", "metric")])
def test_options_are_refused_before_anything_is_trained(log, monkeypatch, option, message):
    monkeypatch.setattr(auto, "fit_stacked", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(OptionError, match=message):
        mart(metric=option).fit(log)


# ---- the weight of the old ranker


def weights(truth, n_queries, impressions, imitation_correlation, seed=0):
    """By clicks with eta = -1 + truth pi + f, ten documents a query, no position bias."""
    rng, n = np.random.default_rng(seed), 10 * n_queries
    pi, f = rng.normal(size=n), 0.5 * rng.normal(size=n)
    clicks = rng.binomial(impressions, 1 / (1 + np.exp(1 - truth * pi - f))).astype(float)
    cells = ClickCells(
        order=np.arange(n), query_ptr=np.arange(0, n + 1, 10), indptr=np.arange(n + 1),
        impressions=np.full(n, float(impressions)), clicks=clicks,
        place=np.zeros(n, dtype=np.int64), alpha=np.ones(1), beta=np.zeros(1),
    )  # fmt: skip
    return stack(cells, slopes(cells, [f]).model, pi, f, None, imitation_correlation)


@pytest.mark.parametrize("seed", range(3))
def test_few_clicks_leave_the_old_ranker_what_its_imitation_is_worth(seed):
    assert weights(0.0, 4, 3, 0.8, seed).b == pytest.approx(0.8 * OLD, abs=0.04)
    assert weights(0.0, 4, 3, 0.0, seed).b < 0.04  # no imitation: as good as random


@pytest.mark.parametrize("truth", [0.0, 0.05, 0.4])
def test_many_clicks_say_what_the_old_ranker_is_worth(truth):
    many = weights(truth, 3000, 30, 0.8)
    assert many.b == pytest.approx(truth, abs=0.03)
    assert many.k == pytest.approx(1, abs=0.05)


def test_likeness_is_the_correlation_with_what_is_imitated():
    def likeness_of(*values):
        return imitation_correlation(CrossFitted((), TreesTried((10, 20), values, 20), np.zeros(3)))

    assert likeness_of(0.04, 0.25) == 0.5
    assert likeness_of(-0.1, -0.2) == 0


# ---- what is served


def of_shapes(shapes, X):
    """The weighted sum of the shapes for any rows."""
    return merged(shapes.parts(1.0)).predict(X) - shapes.shift


def click_score(fitted, X):
    """f for any rows, as its definition says it."""
    f = fitted.click_score.trees * of_shapes(fitted.clicks, X) - fitted.click_score.shift
    lines = fitted.lines
    return f if lines is None else f + fitted.click_score.lines * (lines.scale(X) @ lines.weights)


@pytest.mark.parametrize("many", [10, 1000])
def test_one_booster_holds_the_sum_of_all_parts(log, many, monkeypatch):
    """Nothing unshown: no part is a product, so that trees say the sum; many queries and few."""
    for name in ("ONCE_QUERIES", "RICH_QUERIES"):
        monkeypatch.setattr(f"untilt.rankers.stacked.learner.{name}", many)
    shown = np.unique(log.document)
    number = np.zeros(log.n_documents, dtype=int)
    number[shown] = np.arange(len(shown))
    whole = ClickLog(
        query_id=log.query_id, doc_id=log.doc_id[shown], doc_query=log.doc_query[shown],
        indptr=log.indptr, query=log.query, document=number[log.document], position=log.position,
        label=log.label, count=log.count, features=log.features[shown],
    )  # fmt: skip
    ranker = mart()
    fitted = fit_stacked(whole, training_lists(whole), ranker._training(), BIAS)
    assert fitted.support is None
    assert fitted.stack.kappa == 0
    assert ("fine" in fitted.tried) == (many == 10)
    boosters = [len(each.boosters) for each in fitted.lambdas.trees.values()]
    assert set(boosters) == {1 if many == 10 else 4}
    assert (fitted.lines is None) == (many == 10)
    X, stack = whole.features, fitted.stack
    f, B = click_score(fitted, X), of_shapes(fitted.lambdas, X)
    pi = fitted.old.booster().predict(X) / np.std(fitted.old.scores)
    A = stack.b * pi + stack.k * f
    held_out_A = stack.b * fitted.old.scores / np.std(fitted.old.scores)
    held_out_A = held_out_A + stack.k * fitted.click_score.scores
    expected = A / np.std(held_out_A) + B / np.std(fitted.lambdas.scores)
    served = fitted.booster.predict(X)
    # The linear part is said in steps, as fine as the bins of a feature.
    exact = 1e-6 if fitted.lines is None else 0.1
    np.testing.assert_allclose(served - served.mean(), expected - expected.mean(), atol=exact)
    assert np.corrcoef(served, expected)[0, 1] > 0.9999


def test_trees_learn_the_part_that_is_a_product(log):
    """Lists are cut: A has a gate, and what is served follows it closely on other documents."""
    fitted = fit_stacked(log, training_lists(log), mart(n_trees=60)._training(), BIAS)
    assert fitted.support is not None
    assert -1 <= fitted.stack.kappa <= 0
    X = make_judged(60, 8, seed=4).features
    f, B = click_score(fitted, X), of_shapes(fitted.lambdas, X)
    pi = fitted.old.booster().predict(X) / np.std(fitted.old.scores)
    rho = np.mean([b.predict(X, num_iteration=fitted.support.tried.best)
                   for b in fitted.support.boosters], axis=0)  # fmt: skip
    A = fitted.stack.score(pi, f, rho)
    spread = np.std(fitted.held_out["stacked"])
    held_out = fitted.stack.score(
        fitted.old.scores / np.std(fitted.old.scores),
        fitted.click_score.scores,
        fitted.support.scores,
    )
    expected = A / np.std(held_out) * spread + B / np.std(fitted.lambdas.scores)
    assert np.corrcoef(fitted.booster.predict(X), expected)[0, 1] > 0.99


def test_saved_exported_and_loaded_it_scores_the_same(ranker, judged, tmp_path):
    from untilt.exports.format import export_model

    scores = ranker.predict(judged.features)
    ranker.save(tmp_path / "ranker.untilt")
    again = load(tmp_path / "ranker.untilt")
    np.testing.assert_array_equal(again.predict(judged.features), scores)
    assert again.choice_ == ranker.choice_
    exported = export_model(ranker, tmp_path / "ranker.txt")
    booster = lightgbm.Booster(model_file=exported)
    np.testing.assert_allclose(booster.predict(judged.features), scores, atol=1e-12)
    assert sum(ranker.feature_importances_.values()) == pytest.approx(1.0)


def test_missing_features_take_their_way(log, judged):
    features = np.array(log.features)
    features[::7, 2] = np.nan
    ranker = mart().fit(replace(log, features=features, missing="keep"))
    holes = np.array(judged.features)
    holes[::5] = np.nan
    assert np.isfinite(ranker.predict(holes)).all()


# ---- what it says


def test_it_says_what_it_saw(ranker, log):
    choice = ranker.choice_
    assert choice.picked == "stacked"
    assert as_fact(choice.reason).code == "training.stacked"
    assert sum(choice.weights.values()) == pytest.approx(1.0)
    assert set(choice.weights) == {"likelihood", "linear", "old ranker", "lambdas"}
    assert set(choice.stacking) == {"b", "k", "b0", "kappa", "v", "s2"}
    assert choice.support["shown"] == len(np.unique(log.document))
    assert choice.support["unshown"] == log.n_documents - choice.support["shown"]
    assert choice.support["rho of shown"] > choice.support["rho of unshown"]
    tried = choice.trees["likelihood, random trees"]
    assert len(tried.trees) == len(tried.values)
    assert tried.values[tried.trees.index(tried.best)] == max(tried.values)
    assert max(tried.trees) <= 20
    assert set(choice.estimates) == {"likelihood", "linear", "old ranker", "stacked"}
    assert choice.curve.code.startswith("bias.curve-")
    assert "picked stacked" in str(choice)


def test_a_log_or_labels_may_judge_what_is_served(log, judged):
    train, rest = log.split(0.7)
    by_clicks = mart().fit(train, valid=rest).choice_
    by_labels = mart().fit(train, valid=judged).choice_
    assert by_clicks.estimates["stacked"].n == rest.n_queries
    assert by_labels.estimates["stacked"].n == judged.n_queries


def test_labels_give_credit_by_grade(judged):
    held = held_out_labels(judged)
    perfect = held.per_query(judged.labels)
    reverse = held.per_query(-judged.labels)
    assert np.all(perfect >= reverse)
    top = np.sort(judged.labels[: judged.indptr[1]])[::-1][:10]
    dcg = np.sum((2**top - 1) / np.log2(np.arange(len(top)) + 2))
    assert perfect[0] == pytest.approx(dcg)


# ---- what must not matter


def test_threads_do_not_matter_with_many_queries(log, judged, monkeypatch):
    """Nor do those of one tree, which has two here as if there were millions of values."""
    for name in ("ONCE_QUERIES", "RICH_QUERIES", "MANY_QUERIES"):
        monkeypatch.setattr(f"untilt.rankers.stacked.learner.{name}", 10)
    monkeypatch.setattr("untilt.rankers.trees.crossfit.MANY_QUERIES", 10)
    alone = mart(n_threads=1).fit(log)
    assert [name for name in alone.choice_.trees if "likelihood" in name] == [
        "likelihood, fine trees"
    ]
    monkeypatch.setattr(
        "untilt.rankers.trees.crossfit.thread_count", lambda n_threads, *, values: n_threads or 8
    )
    both = mart(n_threads=2).fit(log)
    np.testing.assert_array_equal(both.predict(judged.features), alone.predict(judged.features))


def test_the_relevance_after_the_clicks_is_the_same_by_weights_of_some_queries(log):
    """The effects of all queries are found anew: here with the very weights of all queries."""
    lists = training_lists(log)
    rows = rows_of(log, lists, 0)
    cells = cells_of(log, BIAS, rows.document[: rows.n_shown])
    A = np.random.default_rng(0).normal(size=len(rows.query))
    fit = slopes(cells, [A[: rows.n_shown]])
    of_fit, _ = posterior(cells, rows, A, fit)
    every = np.ones(cells.n_queries, dtype=bool)
    as_if_some = replace(fit, model=replace(fit.model, cells=cells.take_queries(every)[0]))
    found_anew, model = posterior(cells, rows, A, as_if_some)
    np.testing.assert_allclose(found_anew, of_fit, atol=2e-3)
    assert (model.v, model.s2) == (fit.model.v, fit.model.s2)


def test_weights_of_some_queries_are_near_those_of_all(monkeypatch):
    """Half of the queries stack the parts; B has half of the trees where queries are many."""
    log = simulate(make_judged(240, 8, seed=5), "dla", sessions_per_query=60, seed=5).log
    options = mart(n_trees=60)._training()
    whole = fit_stacked(log, training_lists(log), options, BIAS)
    monkeypatch.setattr("untilt.rankers.stacked.learner.STACKING_QUERIES", 120)
    for name in ("untilt.rankers.stacked.learner", "untilt.rankers.trees.crossfit"):
        monkeypatch.setattr(f"{name}.MANY_QUERIES", 100)
    some = fit_stacked(log, training_lists(log), options, BIAS)
    assert some.stack.k == pytest.approx(whole.stack.k, rel=0.4)
    trees = some.trees
    assert trees["lambdas, random trees"].best == trees["likelihood, random trees"].best // 2
    A, other = some.held_out["stacked"], whole.held_out["stacked"]
    assert np.corrcoef(A, other)[0, 1] > 0.9


@pytest.mark.parametrize(("enough", "times"), [(10, 2), (1000, 1)])
def test_the_order_has_twice_the_trees_of_the_likelihood(log, enough, times, monkeypatch):
    """Of 25 at least; as many where queries are few."""
    monkeypatch.setattr("untilt.rankers.stacked.learner.ONCE_QUERIES", enough)
    trees = fit_stacked(log, training_lists(log), mart(n_trees=60)._training(), BIAS).trees
    order = {name: each.best for name, each in trees.items() if name.startswith("lambdas")}
    assert order
    for name, n_trees in order.items():
        of_clicks = trees[name.replace("lambdas", "likelihood")].best
        assert n_trees == times * max(25, of_clicks)


def test_threads_sessions_and_order_do_not_matter(ranker, log, judged):
    scores = ranker.predict(judged.features)
    np.testing.assert_array_equal(mart(n_threads=2).fit(log).predict(judged.features), scores)
    collapsed = mart().fit(log.collapse())
    np.testing.assert_allclose(collapsed.predict(judged.features), scores, atol=1e-9)
    mixed = log.take(np.random.default_rng(0).permutation(log.n_lists))
    np.testing.assert_allclose(mart().fit(mixed).predict(judged.features), scores, atol=1e-9)


@pytest.mark.parametrize("kind", ["log", "judged"])
def test_fit_changes_no_parameter(kind, log, judged, monkeypatch):
    """Not even while it trains: another thread may read or clone the ranker meanwhile."""
    ranker, seen = mart(), []
    before = ranker.get_params()
    grow = lightgbm.Booster.update

    def update(*args, **options):
        seen.append(ranker.get_params())
        return grow(*args, **options)

    monkeypatch.setattr(lightgbm.Booster, "update", update)
    ranker.fit(log if kind == "log" else judged)
    assert len(seen) >= 1
    assert all(params == before for params in [*seen, ranker.get_params()])
    assert clone(ranker).get_params() == before


# ---- curves


def test_trust_bias_goes_in_by_its_affine_curve(log):
    trust = KnownBias(
        BIAS.at(np.arange(1, 11)), eps_plus=np.full(10, 0.98), eps_minus=0.6 / np.arange(1, 11)
    )
    one, other = (mart(bias=bias).fit(log).predict(log.features) for bias in (trust, BIAS))
    assert not np.allclose(one, other)


# ---- where it falls back


def test_judged_lists_need_no_correction(judged):
    ranker = mart().fit(judged)
    assert ranker.choice_.picked == "labels"
    assert ranker.choice_.reason.code == "training.labels"
    plain = LambdaMART(n_trees=20, n_threads=1).fit(judged)
    np.testing.assert_array_equal(ranker.predict(judged.features), plain.predict(judged.features))


def test_feedback_that_is_no_click_is_weighted_by_pairs(log):
    seconds = replace(log, label=log.label * 12.5)
    ranker = mart().fit(seconds)
    assert ranker.choice_.picked == "balanced"
    assert as_fact(ranker.choice_.reason).code == "training.no-clicks"


def test_one_query_cannot_be_held_out(log):
    one = log.take(np.flatnonzero(log.query == 0))
    ranker = mart(min_data_in_leaf=1).fit(one)
    assert as_fact(ranker.choice_.reason).code == "training.one-query"


def test_two_queries_are_enough_to_try(log):
    two = log.take(np.flatnonzero(log.query < 2))
    ranker = mart(min_data_in_leaf=2).fit(two)
    assert ranker.choice_.picked == "stacked"
    assert np.isfinite(ranker.predict(log.features)).all()


def test_no_clicks_are_an_error(log):
    with pytest.raises(OptionError):
        mart().fit(replace(log, label=np.zeros(len(log.label))))


def test_the_bias_is_needed(log):
    with pytest.raises(OptionError, match="needs the position bias"):
        LambdaMART("auto").fit(log)


def test_early_stopping_is_refused(log):
    with pytest.raises(OptionError, match="early_stopping has no meaning there"):
        mart(early_stopping=5).fit(log, valid=log)
