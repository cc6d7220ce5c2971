"""Relevance with a prior by rank: gradient, twin, counts, and a known truth."""

from types import SimpleNamespace

import numpy as np
import pytest

import untilt as ut
from untilt.bias.em.rank_prior import (
    Documents,
    Likelihood,
    LogitModel,
    fit_prior,
    joint_curve,
    points_of,
    posterior,
)
from untilt.data.counts import position_counts
from untilt.errors import IdentifiabilityError

THETA = np.array([1.0, 0.73, 0.42, 0.30, 0.25, 0.19])


def ranked_log(*, knows=0.85, moves=0.35, queries=50, sessions=60, documents=9, seed=0):
    """Clicks of the position-based model; the ranker knows relevance with this correlation."""
    rng = np.random.default_rng(seed)
    depth = len(THETA)
    relevance = rng.normal(size=(queries, documents))
    eta = -1.0 + 0.5 * rng.normal(size=(queries, 1)) + 1.4 * relevance
    known = knows * relevance + np.sqrt(1 - knows**2) * rng.normal(size=relevance.shape)
    query = np.repeat(np.arange(queries), sessions)
    score = known[query] + moves * rng.normal(size=(len(query), documents))
    shown = np.argsort(-score, axis=1)[:, :depth] + documents * query[:, None]
    truth = 1 / (1 + np.exp(-eta.ravel()))
    log = ut.ClickLog(
        query_id=np.arange(queries),
        doc_id=np.arange(queries * documents),
        doc_query=np.repeat(np.arange(queries), documents),
        indptr=np.arange(len(query) + 1) * depth,
        query=query,
        document=shown.ravel(),
        position=np.tile(np.arange(1, depth + 1), len(query)),
        label=(rng.random(shown.shape) < THETA * truth[shown]).ravel().astype(float),
    )
    return SimpleNamespace(log=log, truth=truth)


@pytest.fixture(scope="module")
def made():
    return ranked_log()


def joint(log):
    cells = position_counts(log)
    return fit_prior(Documents.of(cells), np.ones(6), np.zeros(6), joint=True)


@pytest.fixture(scope="module")
def fitted(made):
    return joint(made.log)


def test_the_curve_is_recovered(made, fitted):
    away = np.abs(np.log(fitted.alpha / THETA))[1:]
    assert np.all(away < 4 * np.sqrt(np.diag(fitted.covariance))[4:])
    assert np.all(away < 0.5)
    assert fitted.ending.code == "bias.maximum"
    curve = joint_curve(made.log)  # starts elsewhere
    np.testing.assert_allclose(curve.examination, fitted.alpha, rtol=1e-3)
    assert not curve.has_interval


def test_the_gradient_is_that_of_the_evidence(made):
    cells = position_counts(ranked_log(queries=4, sessions=30).log)
    documents, beta = Documents.of(cells), np.zeros(6)
    target = Likelihood(documents, points_of(documents, THETA, beta), THETA, beta)
    point = np.concatenate([[-1.5, 0.8, 0.3, -0.5], np.log(THETA[1:] * 0.9)])
    _, slope = target.cost(point)
    steps = 1e-4 * np.eye(len(point))
    by_differences = [(target.cost(point + h)[0] - target.cost(point - h)[0]) / 2e-4 for h in steps]
    np.testing.assert_allclose(slope, by_differences, atol=0.02, rtol=1e-3)


def test_expectations_are_those_of_a_fine_grid():
    """A slow twin: two documents of one query, by sums over a fine grid of eta and u."""
    n, c, place = np.array([8.0, 30.0, 5.0]), np.array([2.0, 4.0, 0.0]), np.array([0, 1, 1])
    z, alpha, beta = np.array([0.6, -0.6]), np.array([1.0, 0.4]), np.array([0.0, 0.02])
    documents = Documents(np.array([0, 2]), np.array([0, 2, 3]), n, c, place, z)
    model = LogitModel(base=-1.0, v=0.9, s2=0.5, b=1.2)
    found = posterior(documents, points_of(documents, alpha, beta), alpha, beta, model)
    eta, u = np.linspace(-13, 13, 4_001), np.linspace(-4, 4, 161)
    p = alpha[place, None] / (1 + np.exp(-eta)) + beta[place, None]
    of_cell = c[:, None] * np.log(p) + (n - c)[:, None] * np.log1p(-p)
    likelihood = np.exp([of_cell[0] + of_cell[1], of_cell[2]])
    r = eta - model.base - model.b * z[:, None, None] - u[:, None]  # (documents, u, eta)
    joint = likelihood[:, None, :] * np.exp(-0.5 * r**2 / model.v) / np.sqrt(2 * np.pi * model.v)
    step = eta[1] - eta[0]
    inside = joint.sum(axis=2) * step
    weight = np.exp(-0.5 * u**2 / model.s2) / np.sqrt(2 * np.pi * model.s2) * (u[1] - u[0])
    together = weight * inside.prod(axis=0)
    assert found.log_evidence[0] == pytest.approx(np.log(together.sum()), abs=1e-3)
    share = together / together.sum()
    for power, ours in ((1, found.r), (2, found.r2)):
        given_u = (joint * r**power).sum(axis=2) * step / inside
        np.testing.assert_allclose(ours, given_u @ share, atol=1e-3)
    assert found.u2[0] == pytest.approx(np.sum(share * u**2), abs=1e-3)


def test_counts_equal_repeated_sessions(made, fitted):
    again = joint(made.log.collapse())
    np.testing.assert_allclose(again.alpha, fitted.alpha, rtol=1e-6)
    np.testing.assert_allclose(np.diag(again.covariance), np.diag(fitted.covariance), rtol=1e-4)


def test_b_is_what_the_ranker_knows():
    knew, guessed = (joint(ranked_log(knows=k, seed=3).log) for k in (0.85, 0.0))
    error = np.sqrt(guessed.covariance[1, 1])
    assert abs(guessed.model.b) < 4 * error
    assert knew.model.b > 4 * np.sqrt(knew.covariance[1, 1])
    assert guessed.model.v > 1.2 * knew.model.v  # what rank says is no spread any more


def test_without_a_prior_by_rank_the_curve_of_a_good_ranker_is_too_steep(made):
    documents = Documents.of(position_counts(made.log))
    plain = fit_prior(documents, THETA, np.zeros(6), by_rank=False, joint=True)
    assert plain.model.b == 0
    assert np.all(plain.alpha[2:] < 0.9 * THETA[2:])


def test_nothing_moves():
    still = ranked_log(moves=0.0, sessions=20)
    with pytest.raises(IdentifiabilityError, match="Give a curve"):
        joint_curve(still.log)
    with pytest.raises(IdentifiabilityError, match="Give a curve"):
        ut.click_judgments(still.log)
    curve = ut.PositionBias(THETA, relative=False)
    found = ut.click_judgments(still.log, curve)
    agreement = np.corrcoef(found.relevance, still.truth[found.doc_id])[0, 1]
    assert agreement > 0.8


def test_features_that_change_do_not_split_documents(with_versions):
    log = ranked_log(queries=20).log
    split = joint_curve(with_versions(log)).examination
    assert split == pytest.approx(joint_curve(log).examination)
