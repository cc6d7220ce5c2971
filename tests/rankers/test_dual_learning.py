"""DualLearning: both losses are at rest at the truth, the curve is found where it can be."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.double_precision import double_precision

import untilt as ut
from untilt.errors import FileFormatError, IdentifiabilityError, OptionError
from untilt.facts import codes
from untilt.networks.ranking_losses import dual_loss
from untilt.rankers.base import load
from untilt.rankers.learning_data import training_lists
from untilt.rankers.networks.dual_learning import (
    ClickedSlates,
    DualLearning,
    clicked_slates,
    fit_propensities,
)

SMALL: dict[str, Any] = {"widths": (6,), "epochs": 3, "batch_size": 8}
THETA = np.array([1.0, 0.6, 0.3, 0.2, 0.1])


def slates_of(lists, clicks, depth=5):
    """From (documents, position indices) of each slate."""
    lengths = [len(rows) for rows, _ in lists]
    return ClickedSlates(
        indptr=np.append(0, np.cumsum(lengths)),
        query=np.arange(len(lists)),
        count=np.ones(len(lists)),
        document=np.concatenate([rows for rows, _ in lists]),
        position_index=np.concatenate([positions for _, positions in lists]),
        n_documents=30,
        clicks=np.asarray(clicks, float),
        n_positions=depth,
    )


# ---- the curve, given a ranker


def test_with_full_slates_the_curve_is_the_share_of_weighted_clicks():
    scores = np.log([0.5, 0.2, 0.1, 0.4])
    slates = slates_of([([0, 1], [0, 1]), ([2, 3], [0, 1])], [10, 2, 3, 6], depth=2)
    # gamma_1/gamma_i: 1, 0.5/0.2 and 1, 0.1/0.4
    theta_2 = (2 * 2.5 + 6 * 0.25) / (10 + 3)
    assert np.exp(fit_propensities(slates, scores, np.inf).z) == pytest.approx([1, theta_2])
    clipped = (2 * 1.5 + 6 * 0.25) / (10 + 3)
    assert np.exp(fit_propensities(slates, scores, 1.5).z) == pytest.approx([1, clipped])


def random_slates(rng, n=60):
    """Slates of two to five of the positions, random clicks."""
    lists = []
    for _ in range(n):
        positions = np.sort(rng.choice(5, size=rng.integers(2, 6), replace=False))
        lists.append((rng.integers(0, 30, len(positions)), positions))
    n_rows = sum(len(rows) for rows, _ in lists)
    return slates_of(lists, rng.integers(0, 9, n_rows)), rng.normal(size=30)


def test_ragged_slates_against_another_optimiser(rng):
    slates, scores = random_slates(rng)
    s = scores[slates.document]
    bounds = list(pairwise(slates.indptr))

    def loss(z):
        z, total = np.append(0, z), 0.0
        for a, b in bounds:
            share = np.exp(z[slates.position_index[a:b]])
            w = slates.clicks[a:b] * np.exp(s[a] - s[a:b])
            total -= np.sum(w * np.log(share / share.sum()))
        return total

    expected = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    assert fit_propensities(slates, scores, np.inf).z[1:] == pytest.approx(expected, abs=1e-5)


def test_the_curve_is_right_over_repeated_draws_where_relevance_is_known(rng):
    """Clicks drawn anew from the position-based model, with the true relevance as given."""
    gamma = rng.uniform(0.1, 0.9, 400)
    lists = [(np.arange(5 * q, 5 * q + 5), np.arange(5)) for q in range(80)]
    p = np.tile(THETA, 80) * gamma
    curves = [
        fit_propensities(slates_of(lists, rng.binomial(30, p)), np.log(gamma), np.inf).z
        for _ in range(200)
    ]
    assert np.mean(curves, axis=0) == pytest.approx(np.log(THETA), abs=0.03)


def test_positions_without_a_click_are_next_to_nothing():
    slates = slates_of([([0, 1, 2], [0, 1, 2])], [5, 2, 0], depth=3)
    found = fit_propensities(slates, np.zeros(3), np.inf)
    assert found.without_click.tolist() == [False, False, True]
    assert np.exp(found.z) == pytest.approx([1, 0.4, 1e-6])


# ---- the two losses


def test_both_losses_are_at_rest_at_the_truth(rng):
    """With expected clicks theta_k gamma_i the gradient is 0 at s = log gamma, z = log theta."""
    import jax

    gamma = rng.uniform(0.1, 0.9, (7, 5))
    with double_precision():
        batch = {
            # One feature per document, its log relevance, and a network that hands it on.
            "features": np.log(gamma).reshape(-1, 1), "l2": 0.0, "scale": 1.0,
            "row": np.arange(35).reshape(7, 5), "position_index": np.tile(np.arange(5), (7, 1)),
            "mask": np.ones((7, 5)), "clicks": THETA * gamma,
        }  # fmt: skip
        layers = {"weights": [np.ones((1, 1))], "biases": [np.zeros(1)]}
        params = {"ranker": layers, "propensity": np.log(THETA)}
        loss = dual_loss("identity", largest_weight=np.inf)
        gradient = jax.grad(loss)(params, batch)
        assert np.abs(gradient["propensity"]).max() < 1e-12
        assert np.abs(gradient["ranker"]["weights"][0]).max() < 1e-12
        wrong = jax.grad(loss)({**params, "propensity": np.zeros(5)}, batch)
        assert np.abs(wrong["ranker"]["weights"][0]).max() > 0.01


def test_clicks_are_summed_over_the_sessions_of_a_slate(made):
    slates = clicked_slates(training_lists(made.log))
    assert slates.clicks.sum() == made.log.label.sum()
    by_position = np.bincount(slates.position_index, weights=slates.clicks)
    assert np.array_equal(by_position, np.bincount(made.log.position - 1, weights=made.log.label))
    assert len(slates.query) <= made.log.slates().n_groups
    assert np.all(np.diff(slates.query) >= 0)


# ---- training


@pytest.fixture(scope="module")
def harvested():
    """Three rankers over 250 queries: documents move, so that the curve can be had."""
    judged = ut.make_judged(n_queries=250, n_features=10, seed=3)
    return judged, ut.simulate(judged, protocol="harvest", n_sessions=50_000, seed=3)


def test_the_curve_is_found_where_documents_move(harvested):
    judged, made = harvested
    ranker = DualLearning(widths=(32,), batch_size=64, epochs=40, learning_rate=3e-3)
    bias = ranker.fit(made.log).bias_
    truth = made.truth.examination[:10] / made.truth.examination[0]
    off = np.abs(np.log(bias.examination / truth))
    assert off.max() < 0.25
    assert off.mean() < 0.1
    # Raw click rates are twice as far off, and more.
    clicks = made.log.ctr_by_position().rate[:10]
    assert np.abs(np.log(clicks / clicks[0] / truth)).mean() > 2 * off.mean()
    assert bias.method == "DualLearning"
    assert any("through the features alone" in told for told in bias.assumes)
    assert "bias.no-interval-learned" in codes(bias.status)
    assert (bias.is_known, bias.has_interval) == (False, False)
    scores = ranker.predict(judged.features)
    naive = ut.NeuralRanker(
        loss="listwise", widths=(32,), batch_size=64, epochs=40, learning_rate=3e-3
    ).fit(made.log)
    learned, raw = (
        ut.evaluate(judged, s, metrics="ndcg@10").entries[0].value
        for s in (scores, naive.predict(judged.features))
    )
    assert learned > raw


@pytest.mark.slow
def test_one_fixed_order_by_a_good_ranker_is_not_enough_and_the_audit_says_so():
    judged = ut.make_judged(n_queries=400, n_features=10, seed=0)
    noise = np.random.default_rng(0).normal(scale=0.5, size=len(judged.labels))
    made = ut.simulate(
        judged, protocol="dla", n_sessions=60_000, ranker=judged.labels + noise, seed=0
    )
    truth = made.truth.examination[:10] / made.truth.examination[0]
    curves = [
        DualLearning(widths=(64,), batch_size=64, epochs=epochs, learning_rate=3e-3)
        .fit(made.log).bias_.examination
        for epochs in (10, 60)
    ]  # fmt: skip
    assert all(np.abs(np.log(curve / truth)).max() > 0.4 for curve in curves)
    found = ut.audit(made.log)
    assert not found.is_identified
    assert found.comparable == (1,)


def test_it_resumes_and_refuses_what_is_not_its_own(made, tmp_path):
    path = tmp_path / "training.npz"
    options: dict[str, Any] = {**SMALL, "schedule": "constant"}
    whole = DualLearning(**options).fit(made.log)
    DualLearning(checkpoint=path, **{**options, "epochs": 2}).fit(made.log)
    resumed = DualLearning(checkpoint=path, **options).fit(made.log)
    assert np.array_equal(resumed.bias_.examination, whole.bias_.examination)
    assert np.array_equal(resumed.predict(made.log.features), whole.predict(made.log.features))
    with pytest.raises(FileFormatError, match="belongs to another training"):
        DualLearning(checkpoint=path, **options).fit(made.log.take(np.arange(90)))


def test_held_out_clicks_say_when_to_stop(pbm_log):
    log = pbm_log(n_queries=20, sessions=10).log
    train, valid = log.split(0.7, seed=1)
    options: dict[str, Any] = {**SMALL, "epochs": 60, "learning_rate": 0.05, "schedule": "constant"}
    ranker = DualLearning(early_stopping=4, **options).fit(train, valid=valid)
    assert ranker.summary_["status"].code == "network.stopped"
    best = int(np.argmax(ranker.watched_)) + 1
    assert ranker.bias_.status.part("network.stopped").fields["best_epoch"] == best
    again = DualLearning(**{**options, "epochs": best}).fit(train)
    assert np.array_equal(again.bias_.examination, ranker.bias_.examination)


def test_resampling_tells_the_spread_and_makes_no_interval(made):
    bias = DualLearning(n_bootstrap=3, **SMALL).fit(made.log).bias_
    resampled = bias.status.part("bias.spread-resampled").fields
    assert (resampled["n_resamples"], resampled["n_queries"]) == (3, 12)
    assert len(resampled["deviation"]) == bias.depth
    assert resampled["deviation"][0] == 0
    assert np.all(np.array(resampled["deviation"][1:]) > 0)
    assert not bias.has_interval
    assert bias.examination == pytest.approx(DualLearning(**SMALL).fit(made.log).bias_.examination)


def test_labels_train_the_ranker_alone(harvested, tmp_path):
    judged, _ = harvested
    small = judged.take(np.arange(20))
    ranker = DualLearning(**SMALL).fit(small)
    assert ranker.bias_ is None
    ranker.save(tmp_path / "ranker.untilt")
    again = load(tmp_path / "ranker.untilt")
    assert np.array_equal(again.predict(small.features), ranker.predict(small.features))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"largest_weight": 0.5}, "largest_weight must be at least 1"),
        ({"n_bootstrap": 1}, "n_bootstrap must be 0"),
        ({"propensity_learning_rate": 0}, "propensity_learning_rate must be a number above 0"),
        ({"learning_rate": 0}, "learning_rate must be a number above 0"),
        ({"widths": (0,)}, "every width must be"),
    ],
)
def test_options_that_make_no_sense_are_told(made, options, message):
    with pytest.raises(OptionError, match=message):
        DualLearning(**{**SMALL, **options}).fit(made.log)


def test_a_log_that_says_nothing_is_told(made):
    shifted = ut.ClickLog(
        query_id=[0], doc_id=[0, 1], doc_query=[0, 0], indptr=[0, 2], query=[0], document=[0, 1],
        position=[2, 3], label=[1, 0], features=np.eye(2),
    )  # fmt: skip
    with pytest.raises(IdentifiabilityError, match="position 1 was never clicked"):
        DualLearning(**SMALL).fit(shifted)
    alone = made.log.top(1)
    with pytest.raises(OptionError, match="nothing to learn from"):
        DualLearning(**SMALL).fit(alone)
