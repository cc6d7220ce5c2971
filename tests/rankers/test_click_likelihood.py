"""How likely scores make held-out clicks."""

from dataclasses import replace

import numpy as np
import pytest

from untilt import ClickLog, ContextualBias, EyeTracking, KnownBias, LambdaMART
from untilt.errors import OptionError
from untilt.rankers.validation import cells_of, held_out_likelihood

THETA = np.array([1.0, 0.6, 0.4, 0.3])


def a_log(rng, *, n_queries=150, n_documents=6, sessions=60, theta=THETA):
    """Lists in random order, clicks by the position-based model; relevance as returned."""
    relevance = 1 / (1 + np.exp(1.0 - 1.2 * rng.normal(size=(n_queries, n_documents))))
    query = np.repeat(np.arange(n_queries), sessions)
    shown = np.argsort(rng.random((len(query), n_documents)), axis=1)[:, : len(theta)]
    clicked = rng.random(shown.shape) < relevance[query[:, None], shown] * theta
    log = ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(n_documents), n_queries),
        doc_query=np.repeat(np.arange(n_queries), n_documents),
        indptr=np.arange(0, shown.size + 1, len(theta)),
        query=query,
        document=(query[:, None] * n_documents + shown).ravel(),
        position=np.tile(np.arange(1, len(theta) + 1), len(query)),
        label=clicked.ravel().astype(float),
        features=rng.normal(size=(n_queries * n_documents, 2)),
    )
    return log, np.log(relevance / (1 - relevance)).ravel()


@pytest.fixture(scope="module")
def clicks():
    return a_log(np.random.default_rng(5))


def test_better_scores_make_the_clicks_more_likely(clicks):
    log, logit = clicks
    judge, noise = held_out_likelihood(log, THETA), np.random.default_rng(1).normal(size=len(logit))
    perfect, good, poor = (judge.value(logit + s * noise) for s in (0.0, 0.7, 3.0))
    assert perfect > good > poor > 0
    assert judge.value(noise) < 0.001 * perfect
    assert judge.value(-logit) == 0
    assert judge.value(np.zeros(len(logit))) == 0
    assert judge.per_query(logit).sum() / log.n_sessions == pytest.approx(perfect, rel=1e-6)


def test_scale_and_constants_of_queries_do_not_matter(clicks):
    log, logit = clicks
    judge = held_out_likelihood(log, THETA)
    shifts = np.random.default_rng(2).normal(size=log.n_queries)[log.doc_query] * 5
    assert judge.value(40 * logit + shifts) == pytest.approx(judge.value(logit), rel=1e-3)
    assert judge.fit(logit).weights[1] == pytest.approx(np.std(judge.cells.centred(logit)), rel=0.1)


def test_the_true_curve_is_the_most_likely_and_steeper_ones_are_not_preferred(clicks):
    log, logit = clicks
    score = logit + np.random.default_rng(1).normal(size=len(logit))
    judge = held_out_likelihood(log, THETA)
    total = {}
    for power in (0.5, 0.75, 1.0, 1.25, 1.5):
        other = judge.with_curve(THETA**power)
        total[power] = other.null + other.value(score)
    assert max(total, key=total.__getitem__) == 1.0


def test_a_collapsed_log_and_repeated_sessions_say_the_same(clicks):
    log, logit = clicks
    one, other = (held_out_likelihood(each, THETA) for each in (log, log.collapse()))
    assert one.null == pytest.approx(other.null, rel=1e-9)
    assert one.value(logit) == pytest.approx(other.value(logit), rel=1e-6)


def test_some_queries_are_those_of_a_smaller_log(clicks):
    log, scores = clicks
    some, document = held_out_likelihood(log, THETA).of_some_queries(7)
    shown = np.unique(log.document)
    queries = np.unique(log.doc_query[shown[document]])
    assert len(queries) == 7
    alone = held_out_likelihood(log.take(np.isin(log.query, queries)), THETA)
    assert some.value(scores[document]) == pytest.approx(alone.value(scores[document]), rel=1e-9)
    assert held_out_likelihood(log, THETA).of_some_queries(10**6)[0].cells.n_queries > 7


def test_the_start_does_not_matter(clicks):
    """From the fit of other scores: the same likelihood in fewer steps."""
    log, scores = clicks
    judge = held_out_likelihood(log, THETA)
    noise = np.random.default_rng(0).normal(size=len(scores))
    start = judge.fit(scores + noise)
    found = judge.fit(scores, start)
    assert judge.gain(found).sum() == pytest.approx(judge.per_query(scores).sum(), rel=1e-3)
    assert judge.gain(start).sum() < 0.9 * judge.gain(found).sum()
    assert not judge.gain(judge.fit(np.zeros(len(scores)), start)).any()


def test_cells_by_hand(tiny):
    """Documents, positions and clicks as the sessions have them; trust bias by its affine curve."""
    bias = KnownBias([1.0, 0.5], eps_plus=[0.9, 0.8], eps_minus=[0.1, 0.2])
    shown = np.unique(tiny.document)
    cells = cells_of(tiny, bias, shown)
    np.testing.assert_allclose(cells.alpha, [0.8, 0.3])
    np.testing.assert_allclose(cells.beta, [0.1, 0.1])
    assert cells.impressions.sum() == tiny.n_impressions
    assert cells.clicks.sum() == np.dot(tiny.label, tiny.row_count)
    assert cells_of(tiny, None, shown).alpha.tolist() == [1, 1]


def test_feedback_above_zero_is_a_click(tiny):
    seconds = replace(tiny, label=tiny.label * 37.5)
    shown = np.unique(tiny.document)
    one, other = (cells_of(log, THETA, shown) for log in (tiny, seconds))
    np.testing.assert_array_equal(one.clicks, other.clicks)


def test_a_curve_for_each_context_is_used_where_it_holds():
    rng = np.random.default_rng(3)
    log, _ = a_log(rng, n_queries=40, sessions=40)
    device = np.where(np.arange(log.n_lists) % 2 == 0, "phone", "desk").astype(object)
    log = replace(log, context={"device": device})
    curve = ContextualBias().fit(log).curves_
    shown = np.unique(log.document)
    cells = cells_of(log, curve, shown)
    assert len(cells.alpha) == 2 * log.depth
    assert cells.impressions.sum() == log.n_impressions
    assert cells.clicks.sum() == log.label.sum()
    at_top = cells.alpha.reshape(2, -1)[:, 0]
    np.testing.assert_allclose(at_top, 1.0)
    assert held_out_likelihood(log, curve).null < 0
    ranker = LambdaMART("auto", bias=curve, n_trees=5, n_threads=1).fit(log)
    assert ranker.choice_.picked == "stacked"


def test_a_log_without_features_or_sessions_is_refused(tiny):
    with pytest.raises(OptionError, match="no features"):
        held_out_likelihood(replace(tiny, features=None, feature_names=()), EyeTracking())
