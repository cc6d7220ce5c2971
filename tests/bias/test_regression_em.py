"""RegressionEM: each step by enumeration, its maximum by another optimiser, and what it refuses."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone

from untilt import RegressionEM
from untilt._core.arrays import frozen
from untilt.bias.em import affine, learned_relevance
from untilt.bias.em.affine import FLOOR, AffineFit, fit_affine, uncertainty_of_affine
from untilt.bias.em.learned_relevance import CrossFittedTrees, TreeOptions, fold_of_documents
from untilt.bias.em.relevance import (
    _position_based_step,
    position_based_em,
    several_positions,
)
from untilt.data.counts import PositionCounts, position_counts
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.facts import codes


def random_cells(rng, *, n_documents=40, depth=4, n_queries=8, most=30):
    """PositionCounts with random clicks; every document at two positions or more."""
    shown = [
        np.sort(rng.choice(depth, size=rng.integers(2, depth + 1), replace=False))
        for _ in range(n_documents)
    ]
    theta, gamma = 0.9 / np.arange(1, depth + 1), rng.uniform(0.1, 0.9, n_documents)
    lengths = np.array([len(places) for places in shown])
    position = np.concatenate(shown) + 1
    impressions = rng.integers(1, most, size=len(position)).astype(float)
    p = theta[position - 1] * np.repeat(gamma, lengths)
    return frozen_cells(
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        query=np.sort(rng.integers(n_queries, size=n_documents)),
        document=np.arange(n_documents),
        position=position.astype(np.int32),
        impressions=impressions,
        clicks=rng.binomial(impressions.astype(int), p).astype(float),
        depth=depth,
    )


def frozen_cells(*, depth, **arrays):
    """Read-only, as `position_counts` makes them: kernels are compiled once for these types."""
    return PositionCounts(depth=depth, **{name: frozen(array) for name, array in arrays.items()})


def document_of_cell(cells):
    return np.repeat(np.arange(len(cells.document)), np.diff(cells.indptr))


def log_likelihood(cells, p):
    return np.sum(cells.clicks * np.log(p) + (cells.impressions - cells.clicks) * np.log1p(-p))


# ---- one step, by enumeration of the hidden variables


def enumerated_step(cells, theta, gamma):
    """Every impression by itself: P(e, r | c) from the joint probability of all four cases."""
    examined, shown = np.zeros(len(theta)), np.zeros(len(theta))
    relevant, total = np.zeros(len(gamma)), np.zeros(len(gamma))
    value = 0.0
    for d, k, n, c in zip(
        document_of_cell(cells),
        cells.position - 1,
        cells.impressions.astype(int),
        cells.clicks.astype(int),
        strict=True,
    ):
        for click in [1] * c + [0] * (n - c):
            joint = {
                (e, r): (theta[k] if e else 1 - theta[k]) * (gamma[d] if r else 1 - gamma[d])
                for e, r in itertools.product((0, 1), repeat=2)
                if e * r == click
            }
            evidence = sum(joint.values())
            value += np.log(evidence)
            examined[k] += sum(p for (e, _), p in joint.items() if e) / evidence
            relevant[d] += sum(p for (_, r), p in joint.items() if r) / evidence
            shown[k] += 1
            total[d] += 1
    return examined / shown, relevant / total, value


def test_a_step_is_the_posterior_mean_of_every_impression(rng):
    cells = random_cells(rng, n_documents=12, most=8)
    theta, gamma = rng.uniform(0.2, 0.8, cells.depth), rng.uniform(0.2, 0.8, 12)
    found = _position_based_step(cells.arrays, theta, gamma)
    for one, two in zip(found, enumerated_step(cells, theta, gamma), strict=True):
        assert one == pytest.approx(two, rel=1e-12)


# ---- the maximum


def test_the_likelihood_never_falls_and_ends_at_its_maximum(rng):
    """The same likelihood by L-BFGS over (log theta, log gamma), where it is concave."""
    cells = several_positions(random_cells(rng, most=60), clicked=True)
    em = position_based_em(cells, tolerance=1e-8, max_steps=20_000)
    assert np.all(np.diff(em.history) >= 0)
    document, place = document_of_cell(cells), cells.position - 1
    depth = cells.depth

    def value(x):
        z = np.minimum(x[:depth][place] + x[depth:][document], -1e-12)
        p = np.exp(z)
        slope = (cells.clicks - cells.impressions * p) / (1 - p)
        by_theta = np.bincount(place, slope, depth)
        by_gamma = np.bincount(document, slope, len(x) - depth)
        return -log_likelihood(cells, p), -np.concatenate([by_theta, by_gamma])

    start = np.full(depth + len(cells.document), -1.0)
    bounds = [(None, 0.0)] * len(start)
    best = minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-14)
    theta = np.exp(best.x[:depth])
    assert em.log_likelihood == pytest.approx(-best.fun, abs=1e-3)
    assert em.state.theta / em.state.theta[0] == pytest.approx(theta / theta[0], rel=2e-3)


def test_exact_proportions_give_the_exact_curve():
    """Clicks just as expected, theta = (1, 1/2, 1/5): nothing else fits them."""
    theta, gamma = np.array([1, 1 / 2, 1 / 5]), np.array([0.3, 0.6, 0.9, 0.5])
    cells = frozen_cells(
        indptr=np.arange(0, 13, 3),
        query=np.array([0, 0, 1, 1]),
        document=np.arange(4),
        position=np.tile([1, 2, 3], 4).astype(np.int32),
        impressions=np.full(12, 1000.0),
        clicks=1000 * np.outer(gamma, theta).ravel(),
        depth=3,
    )
    em = position_based_em(cells, tolerance=1e-10, max_steps=50_000)
    assert em.state.theta / em.state.theta[0] == pytest.approx(theta, rel=1e-4)
    assert em.state.gamma * em.state.theta[0] == pytest.approx(gamma, rel=1e-4)


def test_documents_at_one_position_and_never_clicked_ones_say_nothing(rng):
    cells = random_cells(rng)
    kept = several_positions(cells, clicked=True)
    clicks = np.add.reduceat(cells.clicks, cells.indptr[:-1])
    assert len(kept.document) == np.sum((np.diff(cells.indptr) > 1) & (clicks > 0))
    assert np.all(np.diff(kept.indptr) > 1)
    none = cells.where(np.zeros(len(cells.document), dtype=bool))
    assert none.n_cells == 0
    assert none.indptr.tolist() == [0]


# ---- the estimator with counts


@pytest.fixture
def log(make_log, make_sessions, rng):
    return make_log(make_sessions(rng, n_sessions=3000, n_queries=30))


def test_counts_where_there_are_no_features(log):
    bias = RegressionEM().fit(log).bias_
    assert bias.method == "RegressionEM (counts)"
    assert bias.relative
    assert codes(bias.assumes) == ["bias.position-based", "bias.same-relevance"]
    assert bias.status.part("em.converged")
    assert np.all(np.abs(bias.examination - 1 / np.arange(1, 5)) < 4 * bias.std_error + 1e-12)


def test_counts_are_repeats(log):
    single = np.repeat(np.arange(log.n_lists), log.sessions)
    repeated = log.take(single, count=np.ones(len(single), dtype=int))
    one, two = (RegressionEM(relevance="counts").fit(each).bias_ for each in (log, repeated))
    assert two.examination == pytest.approx(one.examination, rel=1e-9)
    assert two.std_error == pytest.approx(one.std_error, rel=1e-9)


def test_what_is_learned_beside_the_curve(log):
    fitted = RegressionEM().fit(log)
    cells = several_positions(position_counts(log), clicked=True)
    known = ~np.isnan(fitted.relevance_)
    assert np.flatnonzero(known).tolist() == sorted(cells.document.tolist())
    assert np.all((fitted.relevance_[known] > 0) & (fitted.relevance_[known] <= 1))
    assert np.all(np.diff(fitted.history_) >= 0)
    # Relevance is the click probability at position 1: clicks there are fitted on average.
    first = cells.position == 1
    expected = cells.impressions * fitted.relevance_[cells.document][document_of_cell(cells)]
    assert expected[first].sum() == pytest.approx(cells.clicks[first].sum(), rel=0.03)
    assert not hasattr(clone(fitted), "relevance_")


def test_few_impressions_are_told(log, make_log, make_sessions, rng):
    """Documents need impressions to have a relevance of their own."""
    assert RegressionEM().fit(log).bias_.status.part("bias.few-impressions") is None
    sparse = make_log(make_sessions(rng, n_sessions=300, n_queries=30))
    few = RegressionEM().fit(sparse).bias_.status.part("bias.few-impressions")
    assert 10 <= few.fields["mean"] < 20


def test_depth_cuts_the_curve(log):
    assert RegressionEM(depth=3).fit(log).bias_.depth == 3
    top = RegressionEM().fit(log.top(3)).bias_
    assert RegressionEM(depth=3).fit(log).bias_.examination == pytest.approx(top.examination)


def test_dead_position(log):
    """A position without any click: about 0, bounded from above, the others untouched."""
    alive = RegressionEM().fit(log.top(3)).bias_
    dead = log.with_label(np.where(log.position == 4, 0.0, log.label))
    bias = RegressionEM().fit(dead).bias_
    assert bias.examination[3] == FLOOR
    assert bias.low[3] == 0
    assert 0 < bias.high[3] < 0.02
    assert bias.high[3] == pytest.approx(3 * bias.std_error[3])
    assert bias.status.part("bias.no-clicks").fields == {"positions": (4,)}
    assert bias.examination[:3] == pytest.approx(alive.examination, rel=0.03)


def test_resampled_errors_agree_with_the_formula(log):
    """Two ways to the same errors; 40 resamples tell an error to about 11%."""
    formula = RegressionEM().fit(log).bias_
    resampled = RegressionEM(n_bootstrap=40, tolerance=1e-2, seed=3).fit(log).bias_
    errors = resampled.status.part("bias.errors-resampled")
    assert errors.fields == {"n_resamples": 40, "n_queries": 30}
    ratio = resampled.std_error[1:] / formula.std_error[1:]
    assert np.all((ratio > 0.5) & (ratio < 2))
    assert resampled.examination == pytest.approx(formula.examination, rel=0.01)


# ---- errors by brute force


def test_information_is_the_schur_complement_of_the_whole_matrix(rng):
    """All parameters at once: Fisher information of (alpha, beta, gamma), then gamma out."""
    cells = random_cells(rng, n_documents=15, depth=3)
    depth, n = cells.depth, len(cells.document)
    given = AffineFit(
        rng.uniform(0.3, 0.5, depth), rng.uniform(0.05, 0.2, depth), rng.uniform(0.2, 0.8, n)
    )
    document, place = document_of_cell(cells), cells.position - 1
    p = given.alpha[place] * given.gamma[document] + given.beta[place]
    X = np.zeros((cells.n_cells, 2 * depth + n))
    rows = np.arange(cells.n_cells)
    X[rows, place] = given.gamma[document]
    X[rows, depth + place] = 1
    X[rows, 2 * depth + document] = given.alpha[place]
    whole = X.T @ (X * (cells.impressions / (p * (1 - p)))[:, None])
    free = np.ones(2 * depth, dtype=bool)
    free[[0, depth]] = False
    keep = np.concatenate([free, np.ones(n, dtype=bool)])
    expected = np.linalg.inv(whole[np.ix_(keep, keep)])[: free.sum(), : free.sum()]
    one_query = replace(cells, query=np.zeros(n, dtype=int))  # then session noise alone counts
    found = uncertainty_of_affine(one_query, given, free, np.eye(2 * depth))
    assert found.covariance[np.ix_(free, free)] == pytest.approx(expected, rel=1e-8)
    assert not found.covariance[~free].any()


# ---- relevance from features


def test_gradient_of_a_document_is_that_of_the_likelihood(rng):
    cells = random_cells(rng)
    alpha, beta, scores = rng.uniform(0.2, 0.6, 4), rng.uniform(0, 0.2, 4), rng.normal(size=40)
    document, place = document_of_cell(cells), cells.position - 1

    def loss(scores):
        gamma = 1 / (1 + np.exp(-scores))
        return -log_likelihood(cells, alpha[place] * gamma[document] + beta[place])

    used = np.arange(40) % 5 > 0
    given = AffineFit(alpha, beta, learned_relevance._sigmoid(scores))
    gradient, information = learned_relevance._document_gradient(cells.arrays, given, used)
    step = 1e-5 * np.eye(40)
    numeric = [(loss(scores + e) - loss(scores - e)) / 2e-5 for e in step]
    assert gradient == pytest.approx(np.where(used, numeric, 0), rel=1e-4, abs=1e-4)
    assert np.all((information > 0) == used)


@pytest.mark.parametrize("level", [False, True])
def test_curves_end_at_the_maximum_of_each_position(rng, level):
    cells = random_cells(rng, n_documents=200)
    begin = cells.indptr[:-1]
    rate = np.add.reduceat(cells.clicks, begin) / np.add.reduceat(cells.impressions, begin)
    gamma, place = np.clip(2 * rate, 0.05, 0.95), cells.position - 1
    start = AffineFit(np.full(4, 0.5), np.zeros(4), gamma)
    fitted, value = fit_affine(cells, start, level=level, steps=200, tolerance=1e-12)

    def loss(x):
        p = x[:4][place] * gamma[document_of_cell(cells)] + (x[4:][place] if level else 0)
        return -log_likelihood(cells, np.clip(p, affine.EDGE, 1 - affine.EDGE))

    x = np.concatenate([fitted.alpha, fitted.beta])[: 8 if level else 4]
    best = minimize(loss, x, method="Nelder-Mead", options={"maxiter": 200, "xatol": 1e-7})
    assert value >= -best.fun - 1e-6
    assert fitted.beta.any() == level


def test_trees_never_see_the_clicks_of_their_own_fold(rng):
    """Poisoned clicks in one fold change the trees of the others alone."""
    cells = random_cells(rng, n_documents=200, n_queries=20)
    features = rng.normal(size=(200, 3))
    options = TreeOptions(folds=4, min_data_in_leaf=5, n_threads=1)
    fold = fold_of_documents(cells, options)
    assert all(len(set(fold[cells.query == q])) == 1 for q in set(cells.query.tolist()))
    poisoned = np.where(
        np.repeat(fold == 2, np.diff(cells.indptr)), cells.impressions, cells.clicks
    )
    scores = []
    for clicks in (cells.clicks, poisoned):
        trees = CrossFittedTrees(replace(cells, clicks=frozen(clicks)), features, options)
        trees.start(0.0)
        for _ in range(5):
            trees.grow(AffineFit(np.full(4, 0.5), np.zeros(4), np.empty(0)))
        scores.append(trees.scores)
    clean, dirty = scores
    assert np.array_equal(clean[2], dirty[2])
    assert all(np.abs(clean[f] - dirty[f]).max() > 0.01 for f in (0, 1, 3))


@pytest.fixture(scope="module")
def featured():
    from untilt import make_judged, simulate

    return simulate(make_judged(80, n_features=10, seed=1), "dla", sessions_per_query=50, seed=1)


FAST: dict[str, Any] = {"n_threads": 1, "n_trees": 60, "learning_rate": 0.2}


def test_theta_is_the_mean_posterior_of_being_examined(featured):
    """The M step of the formula holds at the end, in units where theta is a probability."""
    cells = position_counts(featured.log)
    options = TreeOptions(**FAST)
    trees = CrossFittedTrees(cells, featured.log.features[cells.document], options)
    found = learned_relevance.learned_em(cells, trees, trust=False, patience=20).affine
    scale = found.alpha.max() / 0.5
    theta = found.alpha[cells.position - 1] / scale
    gamma = found.gamma[document_of_cell(cells)] * scale
    unclicked = (cells.impressions - cells.clicks) * theta * (1 - gamma) / (1 - theta * gamma)
    mean = cells.by_position(cells.clicks + unclicked) / cells.by_position(cells.impressions)
    assert mean == pytest.approx(found.alpha / scale, rel=1e-5)


def test_features_say_so_and_how_they_ended(featured):
    fitted = RegressionEM(**FAST).fit(featured.log)
    bias = fitted.bias_
    assert bias.method == "RegressionEM (features)"
    assert codes(bias.assumes) == ["bias.position-based", "bias.features-explain"]
    assert bias.status.part("bias.strata").fields["n_strata"] > 1
    assert len(fitted.history_) <= 61
    few = RegressionEM(**{**FAST, "n_trees": 3}).fit(featured.log)
    assert few.bias_.status.part("bias.trees-used-up").fields == {"n_trees": 3}
    assert fitted.history_.max() > few.history_.max()


def test_the_seed_draws_the_folds(featured):
    one, two = (RegressionEM(**FAST, seed=seed).fit(featured.log).bias_ for seed in (0, 1))
    assert not np.array_equal(one.examination, two.examination)
    assert np.all(np.abs(two.examination - one.examination) <= 2 * one.std_error)


def test_a_dead_position_with_features(featured):
    log = featured.log
    dead = log.with_label(np.where(log.position == 7, 0.0, log.label))
    bias = RegressionEM(**FAST).fit(dead).bias_
    assert bias.examination[6] == FLOOR
    assert 0 < bias.high[6] < 0.02
    assert bias.status.part("bias.no-clicks").fields == {"positions": (7,)}


def test_resampling_with_features(featured):
    options: dict[str, Any] = {**FAST, "n_trees": 15, "n_bootstrap": 3}
    bias = RegressionEM(**options).fit(featured.log).bias_
    assert bias.status.part("bias.errors-resampled").fields["n_resamples"] == 3
    assert np.all(bias.std_error[1:] > 0)


# ---- what it refuses


def test_positions_that_share_no_document(make_log):
    sessions = [(q, [0, 1, 2], [c], 10) for q in range(5) for c in (0, 1, 2)]
    with pytest.raises(IdentifiabilityError, match="swap positions 1 and 2 in a share"):
        RegressionEM().fit(make_log(sessions))


def test_positions_joined_by_documents_but_not_by_clicks(make_log):
    """Document 0 was at both positions, and clicked at neither; others never moved."""
    sessions = [(0, [0, 1], [1], 50), (0, [2, 0], [2], 50), (0, [2, 1], [1, 2], 50)]
    with pytest.raises(IdentifiabilityError) as error:
        RegressionEM().fit(make_log(sessions))
    assert "cannot compare position 2 with position 1" in str(error.value)
    assert "swap positions 1 and 2" in str(error.value)
    assert "relevance='features'" in str(error.value)


def test_a_first_position_without_clicks(log):
    nobody = log.with_label(np.where(log.position == 1, 0.0, log.label))
    with pytest.raises(IdentifiabilityError, match="position 1 was never clicked"):
        RegressionEM().fit(nobody)


def test_a_position_never_shown_lies_between_its_neighbours(log):
    """Position 3 and below moved down: the others stay as they are, 3 is a guess between."""
    whole = RegressionEM().fit(log).bias_
    moved = np.where(log.position >= 3, log.position + 1, log.position).astype(log.position.dtype)
    bias = RegressionEM().fit(replace(log, position=moved)).bias_
    others = [0, 1, 3, 4]
    assert bias.examination[others] == pytest.approx(whole.examination)
    assert bias.low[others] == pytest.approx(whole.low)
    assert bias.examination[2] == pytest.approx(
        np.sqrt(whole.examination[1] * whole.examination[2])
    )
    assert bias.low[2] < whole.low[2]
    assert bias.high[2] > whole.high[1]
    assert bias.status.part("bias.slots-left-out").fields["positions"] == (3,)


def test_a_first_position_never_shown(make_log):
    gap = make_log([(0, [None, 0, 1], [1], 9), (0, [None, 1, 0], [1], 9)])
    bias = RegressionEM().fit(gap).bias_
    assert bias.positions() == [2, 3]
    assert bias.at(2) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relevance": "feature"}, "Did you mean 'features'"),
        ({"relevance": "features"}, "this log has none"),
        ({"n_bootstrap": 1}, "n_bootstrap must be 0"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"n_trees": 0}, "n_trees must be at least 1"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"tolerance": 0}, "tolerance must be above 0"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
    ],
)
def test_options_are_checked_by_fit(log, options, message):
    estimator = RegressionEM(**options)
    with pytest.raises(OptionError, match=message):
        estimator.fit(log)


def test_a_depth_that_is_not_there(log):
    with pytest.raises(DepthError, match=r"one of the positions 1\.\.4"):
        RegressionEM(depth=9).fit(log)


def test_features_that_cannot_teach(log):
    constant = replace(log, features=np.ones((log.n_documents, 2)))
    with pytest.raises(OptionError, match=r"all 2 features are constant.*relevance='counts'"):
        RegressionEM(n_threads=1).fit(constant)
    one_query = log.take(log.query == 0)
    featured = replace(one_query, features=np.arange(log.n_documents).reshape(-1, 1))
    with pytest.raises(OptionError, match="one query only"):
        RegressionEM(n_threads=1).fit(featured)
