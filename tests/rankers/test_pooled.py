"""Policy-aware and doubly robust labels: unbiased by enumeration, and what they cost."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import (
    IPS,
    AffineIPS,
    ClickLog,
    DoublyRobust,
    KnownBias,
    LambdaMART,
    LinearRanker,
    NeuralRanker,
    PolicyAware,
    RankSVM,
    lightgbm_dataset,
    objective,
)
from untilt.errors import OptionError
from untilt.objectives.pairs import PairObjective
from untilt.rankers.learning_data import pair_slates, training_lists
from untilt.rankers.pooled import document_labels, pooled_lists

THETA = np.array([0.9, 0.4])
RELEVANCE = np.array([0.5, 0.2, 0.8])
TRUST = KnownBias(THETA, eps_plus=[0.95, 0.9], eps_minus=[0.4, 0.2], absolute=True)
# Two loggers, lists cut at 2 of three documents: A shows (0, 1) once, B shows (2, 0) twice.
SHOWN = np.array([[0, 1], [2, 0], [2, 0]])


def log_of(shown, clicks, features=None, **more):
    """One query; `shown` and `clicks` (sessions, k)."""
    shown = np.asarray(shown)
    n = int(shown.max()) + 1
    return ClickLog(
        query_id=[0],
        doc_id=np.arange(n),
        doc_query=np.zeros(n, dtype=int),
        indptr=shown.shape[1] * np.arange(len(shown) + 1),
        query=np.zeros(len(shown), dtype=int),
        document=shown.ravel(),
        position=np.tile(np.arange(1, shown.shape[1] + 1), len(shown)),
        label=np.asarray(clicks, dtype=float).ravel(),
        features=np.eye(n, dtype=np.float32) if features is None else features,
        **more,
    )


LISTS = replace(training_lists(log_of(SHOWN, [[1, 0], [0, 1], [0, 0]])), count=np.ones(3))


def outcomes(bias):
    """(lists with these clicks, probability) of all 64 outcomes of six clicks."""
    alpha, beta = bias
    rate = alpha[LISTS.position_index] * RELEVANCE[LISTS.document] + beta[LISTS.position_index]
    for clicked in itertools.product([0.0, 1.0], repeat=len(rate)):
        c = np.array(clicked)
        yield replace(LISTS, label=c), np.prod(np.where(c == 1, rate, 1 - rate))


PBM = THETA, np.zeros(2)
AFFINE = TRUST.affine()
CURVES = pytest.mark.parametrize("bias", [PBM, AFFINE], ids=["pbm", "trust"])


def expected(bias, statistic):
    return sum(chance * statistic(lists) for lists, chance in outcomes(bias))


def clipped_at(clip):
    return lambda sessions: np.full(len(sessions), clip)


RHO = np.array([0.9 + 2 * 0.4, 0.4, 2 * 0.9]) / 3  # without trust bias


# ---- unbiased, exactly


def test_the_probabilities_are_a_distribution():
    assert sum(chance for _, chance in outcomes(AFFINE)) == pytest.approx(1)


@CURVES
def test_policy_aware_labels_are_unbiased_with_two_loggers_and_a_cut(bias):
    weighting = PolicyAware(THETA if bias is PBM else TRUST)
    assert expected(bias, weighting.labels) == pytest.approx(RELEVANCE, abs=1e-12)


def test_plain_ips_counts_a_document_as_often_as_it_was_shown():
    """Each click over its own examination, summed over sessions: short by the unseen sessions."""

    def by_session(lists):
        worth = lists.label / THETA[lists.position_index]
        return np.bincount(lists.document, worth, minlength=3) / 3

    shown_in = np.array([3, 1, 2]) / 3
    assert expected(PBM, by_session) == pytest.approx(RELEVANCE * shown_in, abs=1e-12)


def slopes(weighting):
    """The gradient of the pair loss at equal scores: -1/2 sum_j (w_ij - w_ji)."""

    def at(lists):
        if not lists.label.any():
            # Trained on, it is an error; as one outcome of many it counts as it is.
            labels = weighting.labels(lists)
            return -(3 * labels - labels.sum()) / 2
        whole, table = pooled_lists(lists, weighting, "auto")
        slates = pair_slates(whole, table, metric="none", gain="linear")
        weighted = PairObjective(slates, metric="none").with_table(table.table(1), table.offset(1))
        return weighted.evaluate(np.zeros(3)).gradient

    return at


@CURVES
def test_the_preference_of_every_pair_is_unbiased_negative_labels_or_not(bias):
    weighting = PolicyAware(THETA if bias is PBM else TRUST)
    if bias is AFFINE:
        assert any(weighting.labels(lists).min() < -0.1 for lists, _ in outcomes(bias))
    wanted = -(3 * RELEVANCE - RELEVANCE.sum()) / 2
    assert expected(bias, slopes(weighting)) == pytest.approx(wanted, abs=1e-12)


@CURVES
@pytest.mark.parametrize("g", [[0.0, 0.0, 0.0], [0.9, 0.1, 0.3], [1.0, 1.0, 1.0]])
@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_doubly_robust_is_unbiased_whatever_the_model_where_no_propensity_is_clipped(bias, g, clip):
    value = expected(
        bias, lambda lists: document_labels(lists, *bias, floor=clipped_at(clip), g=np.array(g))
    )
    assert value == pytest.approx(RELEVANCE, abs=1e-12)


@CURVES
@pytest.mark.parametrize("clip", [0.3, 0.7, 1.0])
def test_doubly_robust_is_unbiased_whatever_the_clip_where_the_model_is_right(bias, clip):
    value = expected(
        bias, lambda lists: document_labels(lists, *bias, floor=clipped_at(clip), g=RELEVANCE)
    )
    assert value == pytest.approx(RELEVANCE, abs=1e-12)
    without = expected(bias, lambda lists: document_labels(lists, *bias, floor=clipped_at(clip)))
    assert without.min() < RELEVANCE.min() - 0.01  # the same clip without a model


def test_with_a_clip_and_a_wrong_model_each_makes_up_for_its_share():
    """E mu = g + min(1, rho/clip) (gamma - g)."""
    g, clip = np.array([0.1, 0.9, 0.4]), 0.5
    value = expected(PBM, lambda lists: document_labels(lists, *PBM, floor=clipped_at(clip), g=g))
    assert value == pytest.approx(g + np.minimum(1, RHO / clip) * (RELEVANCE - g), abs=1e-12)


def test_a_right_model_does_not_save_a_wrong_curve():
    wrong = THETA**0.5
    value = expected(
        PBM,
        lambda lists: document_labels(lists, wrong, 0 * wrong, floor=clipped_at(0), g=RELEVANCE),
    )
    assert np.abs(value - RELEVANCE).max() > 0.05


def test_without_a_clip_doubly_robust_is_policy_aware(made):
    lists = training_lists(made.log)
    plain = PolicyAware(made.theta).labels(lists)
    assert DoublyRobust(made.theta, clip=0.0, trees=3, folds=2).labels(lists) == pytest.approx(
        plain
    )
    assert DoublyRobust(made.theta, trees=3, folds=2).labels(lists) != pytest.approx(plain)


def test_labels_equal_the_sum_over_sessions(made):
    log, theta = made.log, made.theta
    labels = PolicyAware(theta, clip=0.2).labels(training_lists(log))
    shown = np.unique(log.document)
    for document, label in zip(shown[:20], labels, strict=False):
        sessions = np.flatnonzero(log.query == log.doc_query[document])
        clicks = exposure = 0.0
        for at in sessions:
            for row in range(log.indptr[at], log.indptr[at + 1]):
                if log.document[row] == document:
                    clicks += log.label[row]
                    exposure += theta[log.position[row] - 1]
        n = len(sessions)
        assert label == pytest.approx(clicks / n / max(0.2, exposure / n))


# ---- where it is plain IPS


@pytest.fixture(scope="module")
def one_list(pbm_log):
    """Every session of a query shows the same list."""
    return pbm_log(orderings=1, sessions=30).log


@pytest.mark.parametrize("bias", [1 / np.arange(1.0, 6), None], ids=["pbm", "trust"])
def test_where_all_sessions_show_one_list_it_is_ips_against_all(one_list, bias):
    k = np.arange(1.0, 6)
    trust = KnownBias(1 / k, eps_plus=np.full(5, 0.9), eps_minus=np.full(5, 0.05))
    other = AffineIPS(trust) if bias is None else IPS(bias, against="all")
    pools = PolicyAware(trust if bias is None else bias)
    whole: dict[str, Any] = {"bagging_fraction": 1.0, "feature_fraction": 1.0, "n_threads": 1}
    for make in (
        lambda w: LinearRanker(w, tolerance=1e-9),
        lambda w: RankSVM(w, tolerance=1e-8),
        lambda w: LambdaMART(w, n_trees=8, metric="dcg", min_data_in_leaf=5, **whole),
    ):
        one, two = (make(each).fit(one_list).predict(one_list.features) for each in (pools, other))
        np.testing.assert_allclose(one, two, atol=2e-3 * np.ptp(two))


def test_with_several_lists_it_is_not(made):
    one, two = (
        LinearRanker(each).fit(made.log).weights_
        for each in (PolicyAware(made.theta), IPS(made.theta, against="all"))
    )
    assert np.abs(one - two).max() > 0.01


# ---- variance


def test_doubly_robust_labels_vary_less_and_are_nearer_than_ips(rng):
    """200 logs of 100 sessions; the model is off by 0.1 on average. Paired, in standard errors."""
    n, sessions, theta = 8, 100, 0.8 / np.arange(1.0, 6)
    relevance = rng.uniform(0.05, 0.95, n)
    model = np.clip(relevance + rng.normal(0, 0.12, n), 0, 1)
    shown = np.array([rng.permutation(n)[:5] for _ in range(4)])[rng.integers(4, size=sessions)]
    log = log_of(shown, np.zeros(shown.shape))
    log = log.with_label((np.arange(len(log.label)) == 0) * 1.0)
    lists = training_lists(log)
    lists = replace(
        lists,
        indptr=5 * np.arange(sessions + 1),
        query=np.zeros(sessions, dtype=np.int64),
        count=np.ones(sessions),
        document=shown.ravel(),
        position_index=np.tile(np.arange(5), sessions),
        slate_of_list=np.arange(sessions),
    )
    rate = theta[lists.position_index] * relevance[lists.document]
    ips, robust = [], []
    for _ in range(200):
        made = replace(lists, label=(rng.random(len(rate)) < rate) * 1.0)
        ips.append(document_labels(made, theta, 0 * theta, floor=clipped_at(0.0)))
        robust.append(document_labels(made, theta, 0 * theta, floor=clipped_at(0.2), g=model))
    for about in ((np.mean(ips, axis=0), np.mean(robust, axis=0)), (relevance, relevance)):
        loss = [np.mean((np.array(a) - b) ** 2, axis=1)
                for a, b in zip((ips, robust), about, strict=True)]  # fmt: skip
        gain = loss[0] - loss[1]
        assert gain.mean() > 5 * gain.std(ddof=1) / np.sqrt(200)


# ---- options and errors


def test_it_serves_a_pipeline_of_the_users_own(made):
    import lightgbm

    params = {"objective": objective(made.log, PolicyAware(made.theta)), "verbosity": -1}
    booster = lightgbm.train(params, lightgbm_dataset(made.log), 3)
    assert np.ptp(booster.predict(made.log.features)) > 0


def test_wrong_options(made):
    log, theta = made.log, made.theta
    with pytest.raises(OptionError, match=r"clip must lie between 0 and 1\. Got 2"):
        PolicyAware(theta, clip=2.0)
    with pytest.raises(OptionError, match=r"clip must lie between 0 and 1\. Got -1"):
        DoublyRobust(theta, clip=-1.0)
    with pytest.raises(OptionError, match=r"folds must be at least 2\. Got 1"):
        DoublyRobust(theta, folds=1)
    with pytest.raises(OptionError, match=r"gain must be 'auto' or 'linear'\. Got 'exponential'"):
        LinearRanker(PolicyAware(theta), gain="exponential").fit(log)
    with pytest.raises(OptionError, match="against all others of its query, but against is"):
        RankSVM(PolicyAware(theta), against="unclicked").fit(log)
    with pytest.raises(OptionError, match="metric='map' knows relevant and irrelevant alone"):
        LambdaMART(PolicyAware(theta), metric="map").fit(log)


def test_negative_labels_are_refused_where_they_have_no_meaning():
    """Softmax and the hinge bound on DCG; pairs take them."""
    log = log_of([[0, 1], [1, 2]] * 4, [[1, 0], [0, 1]] * 4)
    assert PolicyAware(TRUST).labels(training_lists(log)).min() < 0
    with pytest.raises(OptionError, match="can be negative"):
        RankSVM(PolicyAware(TRUST), metric="dcg").fit(log)
    with pytest.raises(OptionError, match="can be negative"):
        NeuralRanker(PolicyAware(TRUST), loss="listwise").fit(log)
    assert np.ptp(RankSVM(PolicyAware(TRUST), scale=False).fit(log).weights_) > 0


def test_doubly_robust_needs_clicks_and_two_queries(made):
    with pytest.raises(OptionError, match="the log's label is not 0/1"):
        LinearRanker(DoublyRobust(made.theta)).fit(made.log.with_label(made.log.label * 2.5))
    with pytest.raises(
        OptionError, match="cross-fitted here: it needs at least 2 folds and 2 quer"
    ):
        LinearRanker(DoublyRobust(THETA)).fit(log_of(SHOWN, [[1, 0], [0, 1], [0, 0]]))
