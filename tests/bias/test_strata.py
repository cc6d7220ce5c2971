"""Strata of documents alike in what features say: what they undo, and how sure their curves are."""

from dataclasses import replace

import numpy as np
import pytest

from untilt import TrustAnchor
from untilt._core.arrays import frozen
from untilt.bias.em.affine import AffineFit, uncertainty_of_affine
from untilt.bias.em.learned_relevance import TreeOptions, predicted_position
from untilt.bias.em.relevance import (
    StratifiedFit,
    fit_of_strata,
    strata_of,
    widened,
)
from untilt.bias.em.trust_em import re_anchored
from untilt.bias.log_ratios import Uncertainty
from untilt.data.counts import PositionCounts
from untilt.errors import IdentifiabilityError
from untilt.facts import as_fact, note

CONVERGED = note("em.converged", "converged in {steps} steps")

THETA = np.array([1.0, 0.6, 0.4, 0.25])
ALPHA, BETA = np.array([0.5, 0.4, 0.3, 0.2]), np.array([0.3, 0.15, 0.08, 0.04])


def single_cells(position, clicks, *, n=100.0, query=None):
    """Every document at one position only, as under one fixed order."""
    size = len(position)
    return PositionCounts(
        indptr=frozen(np.arange(size + 1)),
        query=frozen(np.arange(size) // 4 if query is None else query),
        document=frozen(np.arange(size)),
        position=frozen(np.asarray(position, dtype=np.int32)),
        impressions=frozen(np.full(size, n)),
        clicks=frozen(np.asarray(clicks, dtype=float)),
        depth=4,
    )


def confounded(rng, n_documents=4000):
    """Relevance and position both follow x; given x, the position is left to chance."""
    x = rng.uniform(size=n_documents)
    position = 1 + np.minimum(
        (4 * (1 - x) * 0.5 + 2 * rng.uniform(size=n_documents)).astype(int), 3
    )
    return x, 0.1 + 0.5 * x, position


# ---- what strata are for


def test_predicted_position_undoes_what_a_useless_relevance_leaves(rng):
    """Relevance is learned as noise; alike in what put them there, documents are comparable."""
    x, gamma, position = confounded(rng)
    cells = single_cells(position, 100 * THETA[position - 1] * gamma)
    noise = rng.uniform(size=len(x))
    found = fit_of_strata(cells, strata_of(noise, 1 - x, trust=False), trust=False).alpha
    assert found / found[0] == pytest.approx(THETA, rel=0.03)
    blind = fit_of_strata(cells, strata_of(noise, noise[::-1], trust=False), trust=False).alpha
    assert np.all((blind / blind[0])[1:] < 0.9 * THETA[1:])


def test_relevance_alone_is_enough_where_it_is_right(rng):
    _, gamma, position = confounded(rng)
    cells = single_cells(position, 100 * THETA[position - 1] * gamma)
    number = strata_of(gamma, rng.uniform(size=len(gamma)), trust=False)
    found = fit_of_strata(cells, number, trust=False).alpha
    assert found / found[0] == pytest.approx(THETA, rel=0.05)


def test_trust_bias_from_strata(rng):
    x, gamma, position = confounded(rng, 20_000)
    cells = single_cells(position, 100 * (ALPHA[position - 1] * gamma + BETA[position - 1]))
    found = fit_of_strata(cells, strata_of(gamma, 1 - x, trust=True), trust=True)
    anchor = TrustAnchor(relevant=0.8, irrelevant=0.3)
    alpha, beta = re_anchored(found.alpha, found.beta, anchor)
    assert alpha == pytest.approx(ALPHA, rel=0.05)
    assert beta == pytest.approx(BETA, rel=0.1)


def test_only_the_order_of_the_scores_counts(rng):
    relevance, position = rng.uniform(size=500), rng.uniform(size=500)
    one, two = (
        strata_of(relevance, position, trust=False),
        strata_of(relevance**4, np.exp(position), trust=False),
    )
    assert np.array_equal(one, two)


def test_strata_grow_finer_with_the_documents(rng):
    def size(n, trust):
        return strata_of(rng.uniform(size=n), rng.uniform(size=n), trust=trust).max() + 1

    assert size(200, False) == 2 * 12
    assert size(2500, False) == 5 * 30  # sqrt(2500 / 15 / 6) = 5.3
    assert size(5000, True) == 4 * 24  # sqrt(5000 / 50 / 6) = 4.1
    assert size(100_000, False) == 10 * 60
    noise = rng.uniform(size=(2, 2500))
    assert strata_of(*noise, trust=False, position_classes=4).max() + 1 == 5 * 20


def test_features_that_tell_the_position_itself_are_refused():
    position = np.tile([1, 2, 3, 4], 100)
    cells = single_cells(position, np.full(400, 20))
    with pytest.raises(IdentifiabilityError, match="the features give away the position"):
        fit_of_strata(cells, position - 1, trust=False)


# ---- predicted position


def test_predicted_position_is_blind_to_its_own_fold(rng):
    features = rng.normal(size=(400, 3))
    position = np.clip(np.round(2.5 - features[:, 0]), 1, 4).astype(int)
    cells, fold = single_cells(position, np.zeros(400)), np.arange(400) // 4 % 5
    options = TreeOptions(n_threads=1, min_data_in_leaf=5)
    found = predicted_position(cells, features, fold, options)
    assert np.corrcoef(found, position)[0, 1] > 0.85
    turned = np.where(fold == 2, 5 - position, position)
    other = predicted_position(
        replace(cells, position=frozen(turned.astype(np.int32))), features, fold, options
    )
    # Its own positions enter its prediction only through the share that is left to the trees.
    assert np.corrcoef(other[fold == 2], position[fold == 2])[0, 1] > 0.85


def test_trees_add_what_a_straight_line_misses(rng):
    x = rng.normal(size=(2000, 2))
    position = np.where(np.abs(x[:, 0]) > 0.7, 4, 1)  # no linear trend at all
    cells, fold = single_cells(position, np.zeros(2000)), np.arange(2000) // 4 % 5
    found = predicted_position(cells, x, fold, TreeOptions(n_threads=1))
    assert np.corrcoef(found, position)[0, 1] > 0.9


def test_missing_features_count_as_the_mean(rng):
    features = rng.normal(size=(400, 2))
    features[::7, 0] = np.nan
    features[:, 1] = np.nan
    cells = single_cells(rng.integers(1, 5, 400), np.zeros(400))
    found = predicted_position(
        cells, features, np.arange(400) % 5, TreeOptions(n_threads=1, min_data_in_leaf=5)
    )
    assert np.all(np.isfinite(found))


# ---- errors


def fit_of(affine, stratum):
    status = CONVERGED(steps=1)
    return StratifiedFit(
        affine=affine, learned=affine, history=np.zeros(1), status=status, coarse=affine,
        stratum=stratum,
    )  # fmt: skip


def stratified_fit(rng, cells, n_strata):
    gamma, number = rng.uniform(0.3, 0.7, n_strata), rng.integers(n_strata, size=len(cells.query))
    affine = AffineFit(ALPHA, BETA, gamma[number])
    return fit_of(affine, number)


FREE = np.array([False, True, True, True] * 2)


def test_errors_are_the_schur_complement_of_the_whole_matrix(rng):
    """Session noise: the whole information of (alpha, beta, gamma of strata), then gamma out."""
    position = rng.integers(1, 5, size=300)
    cells = single_cells(position, rng.integers(0, 100, size=300), query=np.zeros(300, dtype=int))
    fit = stratified_fit(rng, cells, 6)
    p = ALPHA[position - 1] * fit.affine.gamma + BETA[position - 1]
    X, rows = np.zeros((300, 8 + 6)), np.arange(300)
    X[rows, position - 1] = fit.affine.gamma
    X[rows, 4 + position - 1] = 1
    X[rows, 8 + fit.stratum] = ALPHA[position - 1]
    whole = X.T @ (X * (100 / (p * (1 - p)))[:, None])
    keep = np.concatenate([FREE, np.ones(6, dtype=bool)])
    expected = np.linalg.inv(whole[np.ix_(keep, keep)])[:6, :6]
    found = fit.uncertainty(cells, FREE, np.eye(8)).covariance
    assert found[np.ix_(FREE, FREE)] == pytest.approx(expected, rel=1e-8)
    assert not found[~FREE].any()


def test_a_stratum_for_each_document_is_the_error_of_counts(rng):
    """Both errors, by query and by session: then the two formulas are one."""
    n = 40
    cells = PositionCounts(
        indptr=frozen(np.arange(0, 4 * n + 1, 4)),
        query=frozen(np.arange(n) // 4),
        document=frozen(np.arange(n)),
        position=frozen(np.tile([1, 2, 3, 4], n).astype(np.int32)),
        impressions=frozen(np.full(4 * n, 50.0)),
        clicks=frozen(rng.integers(0, 40, size=4 * n).astype(float)),
        depth=4,
    )
    affine = AffineFit(ALPHA, BETA, rng.uniform(0.3, 0.7, n))
    fit = fit_of(affine, np.arange(n))
    one = fit.uncertainty(cells, FREE, np.eye(8))
    two = uncertainty_of_affine(cells, affine, FREE, np.eye(8))
    assert one.covariance == pytest.approx(two.covariance, rel=1e-9, abs=1e-15)
    assert one.rule == two.rule


def test_what_coarser_strata_change_is_an_error_too():
    doubt = Uncertainty(np.diag([0.0, 9.0, 4.0]), as_fact("rule"))
    found = widened(doubt, np.array([0.0, 4.0, np.nan]))
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx([0, 5, 2])  # 3^2 + 4^2 = 5^2
    assert found.rule.part("bias.errors-coarser-strata")
