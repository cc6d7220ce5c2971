"""Graded labels from clicks: arithmetic, limits, and a prior that never saw the query."""

import itertools
from typing import Any

import numpy as np
import pytest

from untilt import LambdaMART
from untilt._core.arrays import sum_by
from untilt.data.counts import PositionCounts
from untilt.errors import OptionError
from untilt.rankers.learning_data import affine_curves, click_counts, training_lists
from untilt.rankers.trees.labels import (
    cross_fitted_relevance,
    posterior_labels,
    relevance_estimates,
    residual_variance,
)
from untilt.rankers.trees.objectives import (
    LambdaOptions,
    SoftmaxObjective,
    label_objective,
    softmax_objective,
)

THETA = [1.0, 0.5, 0.25]
SMALL: dict[str, Any] = {
    "n_trees": 5,
    "n_leaves": 4,
    "min_data_in_leaf": 3,
    "n_threads": 1,
    "folds": 3,
}


def counts_of(document, position_index, impressions, clicks, n_documents):
    """Counts from cells that are sorted by document."""
    return PositionCounts(
        indptr=np.concatenate([[0], np.cumsum(np.bincount(document, minlength=n_documents))]),
        query=np.zeros(n_documents, dtype=np.int64),
        document=np.arange(n_documents),
        position=np.asarray(position_index) + 1,
        impressions=np.asarray(impressions, dtype=float),
        clicks=np.asarray(clicks, dtype=float),
        depth=int(np.max(position_index)) + 1,
    )


def position_counts(*rows):
    """(document, position, impressions, clicks) by cell."""
    document, position, shown, clicks = (np.array(column) for column in zip(*rows, strict=True))
    return counts_of(document, position - 1, shown * 1.0, clicks * 1.0, int(document.max()) + 1)


# ---- counts, by hand


def test_ips_estimate_pools_the_positions():
    cells = position_counts((0, 1, 4, 3), (0, 2, 6, 1), (1, 3, 8, 1))
    counts = relevance_estimates(cells, np.array(THETA), np.zeros(3))
    assert counts.exposure == pytest.approx([4 * 1 + 6 * 0.5, 8 * 0.25])
    assert counts.estimate == pytest.approx([(3 + 1) / 7, 1 / 2])


def test_affine_estimate_takes_the_noise_clicks_out():
    alpha, beta = np.array([0.6, 0.3]), np.array([0.3, 0.1])
    cells = position_counts((0, 1, 10, 6), (0, 2, 20, 5))
    counts = relevance_estimates(cells, alpha, beta)
    assert counts.exposure == pytest.approx([10 * 0.6 + 20 * 0.3])
    assert counts.estimate == pytest.approx([(6 - 3 + 5 - 2) / 12])


def test_labels_are_probabilities():
    """Three clicks where one was expected give 3, no click under trust bias gives less than 0."""
    much = relevance_estimates(position_counts((0, 3, 4, 3)), np.array(THETA), np.zeros(3))
    none = relevance_estimates(position_counts((0, 1, 4, 0)), np.array([0.5]), np.array([0.2]))
    assert much.estimate == pytest.approx([3 / 1])
    assert none.estimate == pytest.approx([-0.8 / 2])
    assert much.labels.tolist() == [1.0]
    assert none.labels.tolist() == [0.0]


def test_estimates_are_unbiased_whatever_the_positions(rng):
    """E[clicks] in the place of clicks gives the relevance itself."""
    alpha, beta = np.array([0.7, 0.4, 0.2]), np.array([0.2, 0.1, 0.05])
    document, place = (index.ravel() for index in np.indices((5, 3)))
    shown, g = rng.integers(1, 30, 15), rng.random(5)
    expected_clicks = shown * (alpha[place] * g[document] + beta[place])
    cells = counts_of(document, place, shown, expected_clicks, 5)
    assert relevance_estimates(cells, alpha, beta).estimate == pytest.approx(g)


@pytest.mark.parametrize("beta", [[0.0, 0.0], [0.3, 0.1]])
def test_noise_is_the_variance_of_the_estimate_by_enumeration(beta):
    """Two impressions at position 1 and one at position 2: all eight outcomes."""
    alpha, beta, g = np.array([0.6, 0.3]), np.array(beta), 0.35
    p = alpha * g + beta
    chances, estimates = [], []
    for c in itertools.product([0, 1], repeat=3):
        chance = np.prod([p[k] if c[i] else 1 - p[k] for i, k in enumerate((0, 0, 1))])
        cells = position_counts((0, 1, 2, c[0] + c[1]), (0, 2, 1, c[2]))
        counts = relevance_estimates(cells, alpha, beta)
        chances.append(chance)
        estimates.append(counts.estimate[0])
    mean = np.dot(chances, estimates)
    variance = np.dot(chances, (np.array(estimates) - mean) ** 2)
    assert mean == pytest.approx(g)
    assert counts.noise(np.array([g])) == pytest.approx([variance])


def test_noise_at_one_position_is_the_textbook_formula():
    counts = relevance_estimates(position_counts((0, 2, 40, 7)), np.array(THETA), np.zeros(3))
    g, theta, n = 0.3, 0.5, 40
    assert counts.noise(np.array([g])) == pytest.approx([g * (1 - theta * g) / (n * theta)])


# ---- shrinkage


def posterior_of(n, prior, clicks_per_shown=0.2):
    """Ten documents at position 2 (theta 0.5), n impressions each."""
    cells = counts_of(
        np.arange(10), np.ones(10, dtype=int), np.full(10, float(n)),
        np.full(10, n * clicks_per_shown), 10,
    )  # fmt: skip
    counts = relevance_estimates(cells, np.array(THETA), np.zeros(3))
    return counts, posterior_labels(counts, prior)


def test_hardly_shown_documents_get_the_prior():
    prior = np.linspace(0.1, 0.9, 10)
    _, (mu, _) = posterior_of(1e-9, prior)
    assert mu == pytest.approx(prior, abs=1e-6)


def test_often_shown_documents_get_their_counts():
    prior = np.linspace(0.1, 0.9, 10)
    _, (mu, _) = posterior_of(1e12, prior)
    assert mu == pytest.approx(np.full(10, 0.2 / 0.5), abs=1e-6)


def test_in_between_it_is_the_formula():
    prior = np.linspace(0.1, 0.9, 10)
    counts, (mu, v) = posterior_of(30, prior)
    noise = prior * (1 - 0.5 * prior) / (30 * 0.5)
    assert counts.noise(prior) == pytest.approx(noise)
    assert mu == pytest.approx(prior + v / (v + noise) * (0.4 - prior))


def test_residual_variance_recovers_a_known_spread(rng):
    """Relevance = prior + noise of standard deviation 0.1, seen through 5 to 500 sessions."""
    n = 20_000
    prior = rng.uniform(0.3, 0.7, n)
    truth = np.clip(prior + 0.1 * rng.normal(size=n), 0, 1)
    shown = rng.integers(5, 500, n)
    clicks = rng.binomial(shown, 0.5 * truth)
    cells = counts_of(np.arange(n), np.ones(n, dtype=int), shown * 1.0, clicks * 1.0, n)
    counts = relevance_estimates(cells, np.array(THETA), np.zeros(3))
    v = residual_variance(counts, prior, counts.noise(prior))
    assert np.sqrt(v) == pytest.approx(0.1, rel=0.05)
    # And the labels are closer to the truth than either of their two sources.
    mu, _ = posterior_labels(counts, prior)
    error = [np.mean((x - truth) ** 2) for x in (mu, prior, counts.labels)]
    assert error[0] < 0.8 * min(error[1:])


def test_a_perfect_prior_is_kept(rng):
    n = 20_000
    prior = rng.uniform(0.1, 0.9, n)
    clicks = rng.binomial(20, 0.5 * prior)
    cells = counts_of(np.arange(n), np.ones(n, dtype=int), np.full(n, 20.0), clicks * 1.0, n)
    counts = relevance_estimates(cells, np.array(THETA), np.zeros(3))
    mu, v = posterior_labels(counts, prior)
    assert v < 0.001
    assert np.abs(mu - prior).mean() < 0.01


# ---- the objective on such labels


@pytest.mark.parametrize("truncation", [None, 2])
def test_label_objective_by_hand(made, rng, truncation):
    """One list per query over its shown documents; pairs and ideal DCG cut at the same rank."""
    lists = training_lists(made.log)
    labels, scores = rng.random(lists.n_documents), rng.normal(size=lists.n_documents)
    options = LambdaOptions(sigma=1.5, pair_norm=False, truncation=truncation)
    gradient, hessian = label_objective(lists, labels, options)(scores)
    expected, curve = np.zeros(lists.n_documents), np.zeros(lists.n_documents)
    for q in range(12):
        rows = np.flatnonzero(lists.doc_query == q)
        rank = {row: r for r, row in enumerate(sorted(rows, key=lambda row: -scores[row]), 1)}
        best = np.sort(labels[rows])[::-1][:truncation]
        norm = 1 / np.sum(best / np.log2(1 + np.arange(1, len(best) + 1)))
        for i, j in itertools.permutations(rows, 2):
            if truncation is not None and min(rank[i], rank[j]) > truncation:
                continue
            amount = max(labels[i] - labels[j], 0)
            delta = amount * norm * abs(1 / np.log2(1 + rank[i]) - 1 / np.log2(1 + rank[j]))
            rho = 1 / (1 + np.exp(1.5 * (scores[i] - scores[j])))
            expected[i] -= 1.5 * rho * delta
            expected[j] += 1.5 * rho * delta
            curve[[i, j]] += 1.5**2 * rho * (1 - rho) * delta
    assert gradient == pytest.approx(expected, abs=1e-10)
    assert hessian == pytest.approx(curve, abs=1e-10)


def test_softmax_is_the_slope_of_its_loss_and_settles_at_the_log_ratios(rng):
    query = rng.permutation(np.repeat(np.arange(4), [1, 3, 6, 10]))
    mu, traffic = rng.uniform(0.1, 0.9, len(query)), rng.uniform(0.5, 2.0, 4)[query]

    def loss(scores):
        total = 0.0
        for q in range(4):
            own = query == q
            log_p = scores[own] - np.log(np.exp(scores[own]).sum())
            total -= traffic[own][0] * mu[own] @ log_p
        return total

    objective, s, h = SoftmaxObjective(query, mu, traffic), rng.normal(size=len(query)), 1e-5
    gradient, hessian = objective(s)
    for i in range(len(query)):
        ends = [s + step * (np.arange(len(s)) == i) for step in (-h, h)]
        assert gradient[i] == pytest.approx((loss(ends[1]) - loss(ends[0])) / (2 * h), abs=1e-6)
        slopes = [objective(each)[0][i] for each in ends]
        assert hessian[i] == pytest.approx((slopes[1] - slopes[0]) / (2 * h), abs=1e-6)
    assert objective(np.log(mu) + 700 * (query == 2))[0] == pytest.approx(0, abs=1e-9)


def test_traffic_weighs_the_softmax_of_a_query(made, rng):
    lists = training_lists(made.log)
    labels, scores = rng.random(lists.n_documents), rng.normal(size=lists.n_documents)
    gradient, _ = softmax_objective(lists, labels, LambdaOptions(query_weight="sessions"))(scores)
    traffic = sum_by(lists.query, lists.list_weights("sessions"))[lists.doc_query]
    plain, _ = SoftmaxObjective(lists.doc_query, labels, np.ones(len(labels)))(scores)
    assert gradient == pytest.approx(traffic * plain)


def test_average_precision_has_no_graded_labels(made):
    ranker = LambdaMART(objective="posterior-label", bias=made.theta, metric="map", **SMALL)
    with pytest.raises(OptionError, match=r"metric='map' .* graded labels"):
        ranker.fit(made.log)


# ---- cross-fitting


def relevance_by_cross_fitting(log, **options):
    ranker = LambdaMART(objective="posterior-label", bias=[1.0, 0.5, 0.4, 0.3, 0.2], **options)
    lists = training_lists(log)
    relevance = cross_fitted_relevance(lists, ranker._training())
    return lists, relevance


@pytest.mark.parametrize("poisoned", [0, 7])
def test_a_prior_never_sees_the_clicks_of_its_own_query(made, poisoned):
    """All documents of one query clicked in every session: its own prior does not move."""
    log = made.log
    row_query = np.repeat(log.query, np.diff(log.indptr))
    clicked = log.with_label(np.where(row_query == poisoned, 1.0, log.label))
    lists, before = relevance_by_cross_fitting(log, **SMALL)
    _, after = relevance_by_cross_fitting(clicked, **SMALL)
    own = lists.doc_query == poisoned
    assert np.array_equal(after[own], before[own])
    # Queries of the same fold do not see them either; all others do.
    moved = {int(q) for q in np.unique(lists.doc_query[after != before])}
    assert len(moved) == 8  # of 12 queries in 3 folds, the 4 of the poisoned fold stay
    assert poisoned not in moved


def test_every_row_gets_a_probability(made):
    lists, relevance = relevance_by_cross_fitting(made.log, **SMALL)
    assert relevance.shape == (lists.n_documents,)
    assert np.all((relevance > 0) & (relevance < 1))
    assert np.corrcoef(relevance, made.relevance[np.unique(made.log.document)])[0, 1] > 0.3


def test_more_folds_than_queries_leave_one_query_out_each(made):
    _, many = relevance_by_cross_fitting(made.log, **{**SMALL, "folds": 500})
    _, twelve = relevance_by_cross_fitting(made.log, **{**SMALL, "folds": 12})
    assert np.array_equal(many, twelve)


def test_folds_depend_on_the_seed(made):
    _, one = relevance_by_cross_fitting(made.log, **SMALL, seed=1)
    _, same = relevance_by_cross_fitting(made.log, **SMALL, seed=1)
    _, two = relevance_by_cross_fitting(made.log, **SMALL, seed=2)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, two)


@pytest.mark.parametrize(("folds", "queries"), [(1, 12), (5, 1)])
def test_cross_fitting_needs_two_folds_and_two_queries(made, folds, queries):
    log = made.log.take(np.flatnonzero(made.log.query < queries))
    with pytest.raises(OptionError, match=rf"folds={folds} and {queries} queries"):
        relevance_by_cross_fitting(log, **{**SMALL, "folds": folds})


# ---- the labels inside LambdaMART


def test_few_sessions_follow_the_likelihood_and_many_the_counts(pbm_log):
    few, many = pbm_log(sessions=2, seed=5), pbm_log(sessions=2000, seed=5)
    for made, closer_to_counts in ((few, False), (many, True)):
        lists = training_lists(made.log)
        curves = affine_curves(made.theta, lists.depth)
        counts = relevance_estimates(click_counts(lists), *curves)
        ranker = LambdaMART(objective="posterior-label", bias=made.theta, **SMALL)
        prior = cross_fitted_relevance(lists, ranker._training())
        mu, _ = posterior_labels(counts, prior)
        to_counts = np.mean(np.abs(mu - counts.labels))
        assert (to_counts < np.mean(np.abs(mu - prior))) == closer_to_counts


def test_lists_of_some_queries_keep_their_labels_and_documents(made):
    lists = training_lists(made.log)
    keep = lists.doc_query % 3 == 0
    part = lists.of_documents(keep)
    chosen = np.flatnonzero(lists.query % 3 == 0)
    rows = np.repeat(lists.query % 3 == 0, np.diff(lists.indptr))
    assert part.n_documents == len(part.features) == keep.sum()
    assert np.array_equal(part.query, lists.query[chosen])
    assert np.array_equal(part.label, lists.label[rows])
    assert np.array_equal(part.slate_of_list, lists.slate_of_list[chosen])
    shown = lists.features[lists.document[rows]]
    assert np.array_equal(part.features[part.document], shown)
