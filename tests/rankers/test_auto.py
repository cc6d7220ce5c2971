"""weighting="auto": the stacked learner, what it says of itself, and where it falls back."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest
from sklearn.base import clone

from untilt import (
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
from untilt.objectives.losses import sigmoid
from untilt.rankers.learning_data import training_lists
from untilt.rankers.stacked import ranker as auto
from untilt.rankers.stacked.learner import OLD, fit_stacked, posterior, stack
from untilt.rankers.stacked.parts import MOST_UNSHOWN, rows_of
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


# ---- the weights of the parts


def weights(truth, n_queries, impressions, r, seed=0):
    """(b, k_x, k_s) by clicks with eta = -1 + truth pi + x, and s as noise, no position bias."""
    rng, n = np.random.default_rng(seed), 10 * n_queries
    pi, x, s = rng.normal(size=(3, n)) * [[1.0], [0.5], [0.5]]
    clicks = rng.binomial(impressions, 1 / (1 + np.exp(1 - truth * pi - x))).astype(float)
    cells = ClickCells(
        order=np.arange(n), query_ptr=np.arange(0, n + 1, 10), indptr=np.arange(n + 1),
        impressions=np.full(n, float(impressions)), clicks=clicks,
        place=np.zeros(n, dtype=np.int64), alpha=np.ones(1), beta=np.zeros(1),
    )  # fmt: skip
    return stack(cells, np.column_stack([pi, x, s]), r).weights[1:]


@pytest.mark.parametrize("seed", range(3))
def test_few_clicks_leave_the_priors(seed):
    b, k_x, k_s = weights(0.0, 4, 3, 0.8, seed)
    assert b == pytest.approx(0.8 * OLD, abs=0.04)
    assert [k_x, k_s] == pytest.approx([0.5, 0.5], abs=0.3)
    assert weights(0.0, 4, 3, 0.0, seed)[0] < 0.04  # no imitation: as good as random


@pytest.mark.parametrize("truth", [0.0, 0.05, 0.4])
def test_many_clicks_say_what_each_part_is_worth(truth):
    assert weights(truth, 3000, 30, 0.8) == pytest.approx([truth, 1, 0], abs=0.05)


# ---- the rows and their labels


def test_posterior_relevance_is_the_mode_and_of_unshown_candidates_the_model(log):
    lists = training_lists(log)
    rows = rows_of(log, lists, 0)
    cells = cells_of(log, BIAS, rows.document[: rows.n_shown])
    columns = np.random.default_rng(0).normal(size=(len(rows.query), 3))
    fit = stack(cells, columns[: rows.n_shown], 0.5)
    A = columns @ fit.weights[1:]
    mu, n = posterior(fit, rows, A), rows.n_shown
    modes = fit.model.modes(fit.weights[0] + A[:n])
    level = fit.weights[0] + A + modes.query[rows.query]
    np.testing.assert_allclose(mu[:n], sigmoid(level[:n] + modes.document), atol=2e-3)
    np.testing.assert_allclose(mu[n:], sigmoid(level[n:]), atol=2e-3)


def test_so_many_candidates_of_a_query_stand_for_those_never_shown(log):
    """Whatever the order of the documents table."""
    n = 3 * MOST_UNSHOWN
    extra = np.random.default_rng(1).normal(size=(n, log.features.shape[1])).astype(np.float32)

    def drawn(order):
        more = replace(
            log,
            doc_id=np.append(log.doc_id, [f"new {i}" for i in range(n)]),
            doc_query=np.append(log.doc_query, np.zeros(n, dtype=int)),
            features=np.concatenate([log.features, extra[order]]),
        )
        rows = rows_of(more, training_lists(more), 0)
        own = rows.features[rows.n_shown :][rows.query[rows.n_shown :] == 0]
        return own[np.lexsort(own.T)]

    one, other = drawn(np.arange(n)), drawn(np.arange(n)[::-1])
    assert len(one) == MOST_UNSHOWN
    np.testing.assert_array_equal(one, other)


# ---- what is served


def test_one_booster_holds_the_sum_of_all_parts(log, judged):
    fitted = fit_stacked(log, training_lists(log), mart()._training(), BIAS)
    X, k, line = judged.features, fitted.stack, fitted.line
    pi, x, s, B = (part.booster().predict(X) for part in fitted.parts.values())
    served = fitted.booster.predict(X)
    spread = fitted.parts["old ranker"].scores.std()
    A = k["b"] * pi / spread + k["k_x"] * x + k["k_s"] * (line.scale(X) @ line.weights + s)
    expected = A / np.std(fitted.scores["stacked"]) + B / np.std(fitted.parts["order"].scores)
    # The line is said in steps, as fine as the bins of a feature.
    np.testing.assert_allclose(served - served.mean(), expected - expected.mean(), atol=0.1)
    assert np.corrcoef(served, expected)[0, 1] > 0.9999


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
    assert set(choice.weights) == {"old ranker", "random trees", "line and trees", "order"}
    assert set(choice.stacking) == {"b", "k_x", "k_s", "v", "s2"}
    assert choice.support["shown"] == len(np.unique(log.document))
    assert choice.support["unshown"] == log.n_documents - choice.support["shown"]
    tried = choice.trees["random trees"]
    assert len(tried.trees) == len(tried.values)
    assert max(tried.trees) <= 20
    assert choice.trees["line and trees"].trees[0] == 0
    assert choice.trees["order"].best == tried.best
    assert set(choice.estimates) == {"old ranker", "random trees", "line and trees", "stacked"}
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


def test_threads_of_a_tree_do_not_matter(log, judged, monkeypatch):
    """Two of them, as if there were millions of values."""
    alone = mart(n_threads=1).fit(log)
    monkeypatch.setattr(
        "untilt.rankers.trees.crossfit.thread_count", lambda n_threads, *, values: n_threads or 8
    )
    both = mart(n_threads=8).fit(log)
    np.testing.assert_array_equal(both.predict(judged.features), alone.predict(judged.features))


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
