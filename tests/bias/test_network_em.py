"""EM with networks of relevance: its steps by enumeration, its curve against the truth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import untilt as ut
from untilt import RegressionEM
from untilt.bias.em.learned_relevance import (
    CrossFittedNetworks,
    NetworkOptions,
    TreeOptions,
    fold_of_documents,
    learned_em,
    posteriors,
)
from untilt.data.counts import counts_from_rows, position_counts
from untilt.errors import OptionError
from untilt.facts import codes
from untilt.objectives.losses import PbmLikelihood

TREES = TreeOptions(folds=2, early_stopping=10)
OPTIONS = NetworkOptions(widths=(16,), epochs=40, batch_size=256, learning_rate=0.01)


def network_em(cells, features, *, options, trees):
    models = CrossFittedNetworks(cells, features, options, trees)
    return learned_em(cells, models, trust=False, patience=trees.early_stopping)


@pytest.fixture(scope="module")
def made():
    """One fixed order per query: only features can tell examination from relevance."""
    judged = ut.make_judged(n_queries=250, n_features=8, seed=1)
    return ut.simulate(judged, protocol="dla", n_sessions=40_000, seed=1)


@pytest.fixture(scope="module")
def fitted(made):
    cells = position_counts(made.log)
    features = made.log.features[cells.document]
    return cells, features, network_em(cells, features, options=OPTIONS, trees=TREES)


def test_posteriors_by_enumeration():
    for theta, gamma in itertools.product((0.2, 0.7), (0.1, 0.6)):
        chance = {
            (e, r): (theta if e else 1 - theta) * (gamma if r else 1 - gamma)
            for e in (0, 1)
            for r in (0, 1)
        }
        unclicked = sum(p for (e, r), p in chance.items() if not (e and r))
        relevant, examined = posteriors(theta, gamma, n=5.0, c=2.0)
        assert relevant == pytest.approx(2 + 3 * chance[0, 1] / unclicked)
        assert examined == pytest.approx(2 + 3 * chance[1, 0] / unclicked)


def test_the_gradient_of_the_m_step_is_that_of_the_likelihood(rng):
    """Fisher's identity: n sigmoid(s) - relevant, the slope of the cross-entropy by the score."""
    s, n = rng.normal(size=6), rng.integers(1, 9, 6).astype(float)
    c, theta = rng.binomial(n.astype(int), 0.4).astype(float), rng.uniform(0.1, 0.9, 6)
    gamma = 1 / (1 + np.exp(-s))
    relevant, _ = posteriors(theta, gamma, n, c)
    cells = counts_from_rows(np.arange(6), np.arange(1, 7), n, c / n, 6, 6)
    gradient, _ = PbmLikelihood(cells, theta, np.zeros(6)).gradient(s)
    assert n * gamma - relevant == pytest.approx(gradient)


def test_the_curve_is_found_where_features_tell_relevance(made, fitted):
    truth = made.truth.examination[:10] / made.truth.examination[0]
    alpha = fitted[2].affine.alpha
    off = np.abs(np.log(alpha / alpha[0] / truth))
    assert off.mean() < 0.12
    clicks = made.log.ctr_by_position().rate[:10]
    assert np.abs(np.log(clicks / clicks[0] / truth)).mean() > 1.5 * off.mean()
    fit = fitted[2]
    assert fit.history.max() == fit.history[fit.best_round - 1] > fit.history[0]
    assert fit.status.code in ("bias.networks", "bias.epochs-used-up")
    assert fit.status.fields == {"best": fit.best_round, "epochs": len(fit.history)}


def test_a_query_is_scored_by_a_network_that_has_not_seen_it(fitted):
    """Other clicks on a query leave the relevance of its documents in the first epochs' curve."""
    cells, features, _ = fitted
    options = NetworkOptions(widths=(8,), epochs=1, batch_size=100_000)
    fold = fold_of_documents(cells, TREES)
    mine = np.repeat(fold == 0, np.diff(cells.indptr))
    swapped = replace(cells, clicks=np.where(mine, cells.impressions - cells.clicks, cells.clicks))
    one, two = (
        network_em(changed, features, options=options, trees=TREES).affine.gamma
        for changed in (cells, swapped)
    )
    # One step on one batch: the network blind to fold 0 has learned from fold 1 alone, up to the
    # curve and level it started from.
    order_of = np.argsort(one[fold == 0]), np.argsort(two[fold == 0])
    same = np.corrcoef([np.argsort(order) for order in order_of])[0, 1]
    other = np.corrcoef(one[fold == 1], two[fold == 1])[0, 1]
    assert same > 0.99 > other


def test_twice_the_sessions_and_twice_the_fit_change_nothing(made, fitted):
    cells, features, _ = fitted
    short = NetworkOptions(widths=(16,), epochs=3, batch_size=256, learning_rate=0.01)
    double = replace(cells, impressions=2 * cells.impressions, clicks=2 * cells.clicks)
    runs = [
        network_em(chosen, features, options=short, trees=TREES).affine
        for chosen in (cells, cells, double)
    ]
    assert np.array_equal(runs[0].gamma, runs[1].gamma)
    assert runs[2].alpha == pytest.approx(runs[0].alpha, rel=1e-5)


def test_regression_em_takes_a_network(made):
    log = made.log.take(np.flatnonzero(made.log.query < 40))
    network = {"widths": (8,), "epochs": 3, "batch_size": 256}
    fitted = RegressionEM(relevance="network", network=network, folds=2).fit(log)
    assert fitted.bias_.method == "RegressionEM (network)"
    assert "bias.features-explain" in codes(fitted.bias_.assumes)
    assert fitted.bias_.depth == 10
    assert np.all(fitted.bias_.std_error[1:] > 0)
    assert len(fitted.history_) == 3


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ({"width": (3,)}, r"network has the options .* Did you mean 'widths'"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"activation": "x"}, "activation must be one of"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"l2": -1}, "l2 must be at least 0"),
    ],
)
def test_options_that_make_no_sense_are_told(made, network, message):
    with pytest.raises(OptionError, match=message):
        RegressionEM(relevance="network", network=network).fit(made.log)


def test_features_that_never_vary_are_told(fitted):
    cells, features, _ = fitted
    with pytest.raises(OptionError, match="8 features are constant"):
        network_em(cells, np.ones_like(features), options=OPTIONS, trees=TREES)
