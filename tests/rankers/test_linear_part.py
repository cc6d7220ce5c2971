"""The line of the stacked learner: it finds weights, and steps say the same as lines."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from untilt import LambdaMART, PowerLaw, make_judged, simulate
from untilt._core.tree_text import check_tree_model
from untilt.rankers.learning_data import training_lists
from untilt.rankers.stacked.parts import STEADY, Clicks, Scale, line_of, rows_of, steps_of
from untilt.rankers.trees.boosting import merged, step_tree
from untilt.rankers.trees.crossfit import FoldTraining, folds_of
from untilt.rankers.validation import cells_of

BIAS = PowerLaw(1.0)


def test_steps_grow_with_the_root_of_the_documents_up_to_the_longest():
    assert [steps_of(2, n) for n in (1, STEADY, 4 * STEADY, 10**9)] == [2, 2, 4, 8]
    assert steps_of(4, 4 * STEADY) == 8


def test_scale_cuts_standardises_and_knows_missing(rng):
    x = rng.normal(5, 3, (1000, 4)).astype(np.float32)
    x[0, 0], x[:, 1], x[::7, 2], x[:, 3] = 1e9, 2.0, np.nan, np.nan
    z = Scale.of(x)(x)
    assert np.isfinite(z).all()
    assert z[0, 0] == pytest.approx(np.max(z[:, 0]))
    assert z[0, 0] < 4.0  # the one far value is cut to the 99% point, and spreads nothing
    assert np.std(z[:, 0]) == pytest.approx(1.0, abs=1e-5)
    assert not z[:, 1].any()
    assert not z[::7, 2].any()
    assert not z[:, 3].any()


@pytest.fixture(scope="module")
def made():
    """(log, rows, cells, folds, weights): relevance is the sigmoid of a line of three features."""
    judged = make_judged(60, 8, seed=3)
    log = simulate(judged, protocol="prs", sessions_per_query=200, seed=1).log
    rng, w = np.random.default_rng(0), np.array([1.0, -0.7, 0.0])
    x = rng.normal(size=(log.n_documents, 3)).astype(np.float32)
    relevance = 1 / (1 + np.exp(-(x @ w - 1)))
    examined = 1 / log.position
    clicks = rng.random(len(log.document)) < examined * relevance[log.document]
    plain = log.take(np.arange(log.n_lists), count=np.ones(log.n_lists, dtype=int))
    log = replace(plain, features=x, feature_names=("a", "b", "c"), label=clicks.astype(float))
    lists = training_lists(log)
    rows = rows_of(log, lists, 0)
    cells = cells_of(log, BIAS, rows.document[: rows.n_shown])
    training = LambdaMART("auto", bias=BIAS)._training()
    folds = FoldTraining(rows.features, folds_of(rows.query, 4, 0), training.boosting)
    return rows, cells, folds, w


def the_line(cells, rows, folds):
    clicks = Clicks.of(cells, rows, folds)
    return line_of(clicks, rows, folds, clicks.null.model)


def test_it_finds_the_line_and_steps_say_the_same(made):
    rows, cells, folds, w = made
    line = the_line(cells, rows, folds)
    raw = line.weights * line.scale.inverse_std
    assert raw[0] == pytest.approx(w[0], abs=0.3)
    assert raw[1] == pytest.approx(w[1], abs=0.3)
    assert abs(raw[2]) < 0.2
    assert np.corrcoef(line.scores, rows.features @ w)[0, 1] > 0.97
    nothing = folds.grow("regression", None, what="test", label=np.zeros(len(rows.query)), most=1)
    booster = merged(nothing.parts(0.0), line.trees(2.0, rows.features))
    exact = line.scale(rows.features) @ line.weights
    assert np.corrcoef(booster.predict(rows.features), exact)[0, 1] > 0.999
    np.testing.assert_allclose(booster.predict(rows.features), 2 * exact, atol=0.3)


def test_a_tree_of_steps_is_one_that_lightgbm_could_have_written(rng):
    """Every known value gets the mean of its step, every missing one 0, and files take it."""
    x = np.stack([rng.normal(size=400), rng.integers(0, 3, 400)], axis=1).astype(np.float32)
    x[::9] = np.nan
    data = lightgbm.Dataset(x, np.zeros(400), params={"verbosity": -1})
    nothing = lightgbm.train({"verbosity": -1}, data, 1)
    target = np.nan_to_num(x[:, 1]).astype(float) ** 2
    for j, step, far in ((1, 127, 1e-12), (0, 8, np.inf)):
        own = target if j else x[:, 0].astype(float)
        booster = merged([(nothing, 1, 0.0)], [step_tree(j, x[:, j], own, step)])
        check_tree_model(booster.model_to_string())
        scores = booster.predict(x)
        known = np.isfinite(x[:, j])
        assert not scores[~known].any()
        assert np.max(np.abs(scores - own)[known]) <= far
        for level in np.unique(scores[known]):
            assert level == pytest.approx(own[known][scores[known] == level].mean())
        assert len(np.unique(scores[known])) == min(step, len(np.unique(x[known, j])))
        shares = booster.predict(x, pred_contrib=True)
        np.testing.assert_allclose(shares.sum(axis=1), scores, atol=1e-9)


def test_each_fold_is_scored_by_weights_that_have_not_seen_it(made, monkeypatch):
    """Clicks of a fold change nothing about the scores of its own documents."""
    monkeypatch.setattr("untilt.rankers.stacked.parts.PENALTIES", (10.0,))
    rows, cells, folds, _ = made
    query_fold = np.zeros(cells.n_queries, dtype=int)
    query_fold[rows.query] = folds.fold
    own = query_fold[np.repeat(np.arange(cells.n_queries), np.diff(cells.query_ptr))] == 0
    clicked = np.repeat(own, np.diff(cells.indptr))
    other = replace(cells, clicks=np.where(clicked, cells.impressions, cells.clicks))
    model = Clicks.of(cells, rows, folds).null.model
    first, second = (
        line_of(Clicks.of(each, rows, folds), rows, folds, model) for each in (cells, other)
    )
    held_out = folds.fold == 0
    assert not np.allclose(first.scores[~held_out], second.scores[~held_out])
    np.testing.assert_array_equal(first.scores[held_out], second.scores[held_out])
