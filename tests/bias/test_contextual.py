"""Examination by position and context: known truths are found, with errors that hold them."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import chdtrc
from sklearn.base import clone

from untilt import AllPairs, ClickLog, ContextualBias
from untilt.bias.contextual import contextual
from untilt.bias.contextual.contextual import (
    Problem,
    curvature,
    maximise,
    scores,
    session_noise,
    value_and_gradient,
)
from untilt.bias.contextual.curves import context_cells, contexts_of, evidence_of
from untilt.errors import DepthError, IdentifiabilityError, OptionError, ShapeError

DEPTH = 5


def draw_log(eta, *, seed, n_documents=6, sessions=40, rng=None):
    """Queries with their own theta_k = k^-eta; each document shown at random positions.

    Lists of one document, counted: with a click and without.
    """
    rng = np.random.default_rng(seed) if rng is None else rng
    n = len(eta) * n_documents
    query = np.repeat(np.arange(len(eta)), n_documents)
    gamma = rng.uniform(0.1, 0.9, n)
    shown = rng.multinomial(sessions, np.full(DEPTH, 1 / DEPTH), n)
    theta = np.arange(1, DEPTH + 1) ** -np.asarray(eta)[query][:, None]
    clicks = rng.binomial(shown, theta * gamma[:, None])
    count = np.stack([clicks, shown - clicks], axis=-1).ravel()
    kept = np.flatnonzero(count)
    return ClickLog(
        query_id=np.arange(100, 100 + len(eta)),
        doc_id=np.arange(n),
        doc_query=query,
        indptr=np.arange(len(kept) + 1),
        query=np.repeat(query, 2 * DEPTH)[kept],
        document=np.repeat(np.arange(n), 2 * DEPTH)[kept],
        position=np.tile(np.repeat(np.arange(1, DEPTH + 1), 2), n)[kept],
        label=np.tile([1.0, 0.0], n * DEPTH)[kept],
        count=count[kept],
    )


def two_kinds(seed, n_queries=120):
    """Half of the queries have eta 0.5, half 1.5; the context tells which."""
    kind = np.arange(n_queries) % 2
    return draw_log(np.where(kind == 1, 1.5, 0.5), seed=seed), kind.astype(float)


@pytest.fixture(scope="module")
def made():
    return two_kinds(0)


def truth(eta):
    return np.arange(1, DEPTH + 1) ** -eta


def problem_of(log, context, *, l2=1.0):
    contexts = contexts_of(log, context, per="query")
    evidence = evidence_of(*context_cells(log, contexts))
    X = np.column_stack([np.ones(len(contexts.values)), contexts.values])
    return Problem(evidence, X, np.array([0.0] + [l2] * (X.shape[1] - 1)))


# ---- known truths


def test_two_kinds_of_queries_are_found_within_their_errors():
    far = []
    for seed in range(10):
        log, kind = two_kinds(seed)
        curves = ContextualBias().fit(log, kind).curves_
        for x, eta in ((0.0, 0.5), (1.0, 1.5)):
            bias = curves.curve([x])
            far.append(
                np.log(bias.examination / truth(eta))[1:] / (bias.std_error / bias.examination)[1:]
            )
    z = np.array(far)
    assert np.all(np.abs(z) < 4)
    # 80 distances whose squares have mean 1 if the errors are right: within 4 errors of that mean.
    assert np.mean(z**2) == pytest.approx(1, abs=4 * np.sqrt(2 / z.size))


def test_a_slope_by_a_number():
    rng = np.random.default_rng(3)
    x = rng.uniform(-2, 2, size=(200, 2))
    log = draw_log(1.0 + 0.4 * x[:, 0], seed=4)
    curves = ContextualBias().fit(log, x).curves_
    # log theta_k = -(1 + 0.4 x_1) log k
    expected = np.outer(-np.log(np.arange(1, DEPTH + 1)), [1.0, 0.4, 0.0])
    error = np.sqrt(np.diag(curves.by_query)).reshape(DEPTH - 1, 3) / np.array([1, *curves.scale])
    assert np.all(np.abs(curves.coefficients - expected)[1:, 1:] < 4 * error[:, 1:])
    assert curves.context_test().p_value < 1e-6


def test_without_an_effect_of_the_context_it_is_all_pairs():
    rng = np.random.default_rng(5)
    log = draw_log(np.full(150, 1.0), seed=6)
    x = rng.normal(size=150)
    found = ContextualBias().fit(log, x)
    plain = AllPairs().fit(log).bias_
    gap = np.log(found.bias_.examination / plain.examination)[1:]
    assert np.all(np.abs(gap) < (plain.std_error / plain.examination)[1:])
    assert found.curves_.context_test().p_value > 1e-3


def test_the_test_of_the_context_is_seldom_fooled():
    p = []
    for seed in range(40):
        log = draw_log(np.full(60, 1.0), seed=seed, sessions=20)
        x = np.random.default_rng(seed).normal(size=60)
        p.append(ContextualBias().fit(log, x).curves_.context_test().p_value)
    # At 5% 2 of 40 on average; more than 7 with P < 0.001.
    assert np.sum(np.array(p) < 0.05) <= 7


def test_one_document_at_two_positions_by_hand():
    """6 clicks of 10 at 1, 4 of 20 at 2: the ratio is (4/20) / (6/10), whatever the likelihood."""
    log = ClickLog(
        query_id=[0],
        doc_id=[0],
        doc_query=[0],
        indptr=np.arange(5),
        query=[0] * 4,
        document=[0] * 4,
        position=[1, 1, 2, 2],
        label=[1, 0, 1, 0],
        count=[6, 4, 4, 16],
    )
    bias = ContextualBias().fit(log, [[7.0]]).bias_
    assert bias.examination == pytest.approx([1, (4 / 20) / (6 / 10)])
    # Binomial noise at both ends: (1 - a)/(n a) each.
    variance = 0.4 / (10 * 0.6) + 0.8 / (20 * 0.2)
    assert bias.std_error[1] / bias.examination[1] == pytest.approx(np.sqrt(variance))


def test_a_kind_of_its_own_is_a_log_of_its_own(made):
    """With a column for each kind and no penalty, kinds share nothing."""
    log, kind = made
    both = ContextualBias(l2=0.0).fit(log, kind).curves_
    for x in (0.0, 1.0):
        lists = np.flatnonzero(kind[log.query] == x)
        alone = ContextualBias().fit(log.take(lists), kind).curves_.curve([x])
        together = both.curve([x])
        assert together.examination == pytest.approx(alone.examination, rel=1e-6)
        # Of 120 queries here, of 60 there: more of those have a large share of the clicks.
        assert together.std_error == pytest.approx(alone.std_error, rel=0.02)


# ---- formulas


def test_gradient_and_curvature_are_finite_differences(made, rng):
    log, kind = made
    problem = problem_of(log, np.column_stack([kind, rng.normal(size=len(kind))]))
    B = rng.normal(0, 0.3, (DEPTH, 3))
    B[0] = 0

    def value(b):
        return value_and_gradient(b.reshape(B.shape), problem)[0]

    def slope(b):
        return value_and_gradient(b.reshape(B.shape), problem)[1][1:].ravel()

    gradient = value_and_gradient(B, problem)[1]
    assert approx_fprime(B.ravel(), value, 1e-6) == pytest.approx(
        gradient.ravel(), rel=1e-3, abs=0.05
    )
    H = -approx_fprime(B.ravel(), slope, 1e-6).reshape(DEPTH - 1, 3, DEPTH, 3)[:, :, 1:]
    assert curvature(B, problem) == pytest.approx(H, rel=1e-3, abs=0.05)


def test_the_score_of_every_document_has_mean_zero_whatever_its_relevance():
    """By enumeration of the clicks of one document at three positions, n = 1, 2, 1."""
    theta, n = np.array([1.0, 0.5, 0.25]), np.array([1, 2, 1])
    for gamma in (0.1, 0.9):
        total = np.zeros(3)
        for clicks in np.ndindex(2, 3, 2):
            c = np.array(clicks)
            p = theta * gamma
            ways = np.array([1, 2 if c[1] == 1 else 1, 1])
            chance = np.prod(ways * p**c * (1 - p) ** (n - c))
            total += chance * (c - c.sum() * n * theta / np.sum(n * theta))
        assert total == pytest.approx(np.zeros(3), abs=1e-14)


def test_scores_and_noise_by_plain_loops(made, monkeypatch):
    log, kind = made
    monkeypatch.setattr(contextual, "LARGE_SHARE", np.inf)  # the next test is about large ones
    problem = problem_of(log, kind)
    found = maximise(problem, tolerance=1e-10, max_steps=50)
    evidence, X = problem.evidence, problem.design
    M, N = np.zeros((8, 8)), np.zeros((8, 8))
    for query in np.unique(evidence.query):
        u = np.zeros(8)
        for i in np.flatnonzero(evidence.query == query):
            x, c, n = X[evidence.context[i]], evidence.clicks[i], evidence.impressions[i]
            theta = np.exp(found.B @ x)
            P = n * theta / np.sum(n * theta)
            u += np.outer(c - c.sum() * P, x)[1:].ravel()
            p = np.minimum(theta * c.sum() / np.sum(n * theta), 1)
            A = np.kron((np.eye(DEPTH) - np.outer(P, np.ones(DEPTH)))[1:], x[:, None])
            N += A @ np.diag(n * p * (1 - p)) @ A.T
        M += np.outer(u, u)
    assert scores(found, problem).squares == pytest.approx(M)
    assert session_noise(found.B, problem) == pytest.approx(N)


def test_clustered_errors_are_near_the_jackknife():
    log, kind = two_kinds(2, n_queries=50)
    full = ContextualBias().fit(log, kind).curves_
    left = []
    for query in range(50):
        part = log.take(np.flatnonzero(log.query != query))
        left.append(ContextualBias().fit(part, kind).curves_.log_ratios(np.array([[1.0]]))[0])
    change = left - full.log_ratios(np.array([[1.0]]))[0]
    rows = np.tile(full._design(np.array([[1.0]])), (DEPTH, 1))
    clustered = np.sqrt(np.diag(full._covariance(full.by_query, rows)))[1:]
    assert clustered == pytest.approx(np.sqrt(np.sum(change**2, axis=0))[1:], rel=0.03)


def test_few_queries_of_different_curves_do_not_make_an_effect_of_the_context():
    """Readers differ by query, not by context: with 16 queries chi-square takes that for one."""
    p, chi_square = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        log = draw_log(rng.normal(1.0, 0.3, 16), seed=seed, sessions=150)
        test = ContextualBias(l2=0.0).fit(log, rng.normal(size=16)).curves_.context_test()
        p.append(test.p_value)
        chi_square.append(chdtrc(test.degrees_of_freedom, test.chi_square))
    # At 5% 3 of 60 on average; more than 9 with P < 0.002.
    assert np.sum(np.array(p) < 0.05) <= 9, np.mean(np.array(p) < 0.05)
    assert np.mean(np.array(chi_square) < 0.05) > np.mean(np.array(p) < 0.05)


# ---- the contract


def test_counts_are_repeats_and_order_does_not_matter(made, rng):
    log, kind = made
    repeated = log.take(np.repeat(np.arange(log.n_lists), log.sessions))
    repeated = repeated._with(count=np.ones(repeated.n_lists, dtype=np.int64))
    shuffled = repeated.take(rng.permutation(repeated.n_lists))
    first = ContextualBias().fit(log, kind).curves_.curve([1.0])
    for other in (repeated, shuffled):
        again = ContextualBias().fit(other, kind).curves_.curve([1.0])
        assert again.examination == pytest.approx(first.examination)
        assert again.std_error == pytest.approx(first.std_error)


def test_the_context_can_be_given_in_three_ways(made):
    log, kind = made
    table = ContextualBias().fit(log, kind[:, None]).bias_
    by_id = {int(q): [x] for q, x in zip(log.query_id, kind, strict=True)}
    assert ContextualBias().fit(log, by_id).bias_.examination == pytest.approx(table.examination)
    per_list = ContextualBias().fit(log, kind[log.query], per="list").bias_
    assert per_list.examination == pytest.approx(table.examination)
    assert per_list.std_error == pytest.approx(table.std_error)


def test_sessions_of_one_query_may_differ():
    """Two devices share queries and documents; relevance differs between them, too."""
    rng = np.random.default_rng(8)
    parts = [draw_log(np.full(80, eta), seed=seed) for eta, seed in ((0.5, 1), (1.5, 2))]
    log = parts[0]
    both = log._with(
        **{
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("query", "document", "position", "label", "count")
        },
        indptr=np.arange(sum(part.n_lists for part in parts) + 1),
    )
    device = np.repeat([0.0, 1.0], [part.n_lists for part in parts])
    order = rng.permutation(both.n_lists)
    curves = ContextualBias().fit(both.take(order), device[order], per="list").curves_
    for x, eta in ((0.0, 0.5), (1.0, 1.5)):
        bias = curves.curve([x])
        assert np.all(np.abs(bias.examination - truth(eta))[1:] < 4 * bias.std_error[1:])


def test_depth_is_the_top_of_the_log(made):
    log, kind = made
    asked = ContextualBias(depth=3).fit(log, kind)
    cut = ContextualBias().fit(log.top(3), kind)
    assert asked.bias_.examination == pytest.approx(cut.bias_.examination)
    by_list = ContextualBias(depth=3).fit(log, kind[log.query], per="list")
    assert by_list.bias_.examination == pytest.approx(cut.bias_.examination)


def test_what_can_be_asked(made):
    log, kind = made
    estimator = ContextualBias().fit(log, kind)
    curves = estimator.curves_
    low, high = curves.curve([0.0]), curves.curve([1.0])
    assert curves.at(3, [1.0]) == pytest.approx(high.at(3), rel=1e-12)
    assert curves.at([2, 3], [1.0]) == pytest.approx(high.examination[1:3])
    rowwise = curves.at([2, 3], [[0.0], [1.0]])
    assert rowwise == pytest.approx([low.at(2), high.at(3)])
    assert curves.at(4, [[0.0], [1.0]]) == pytest.approx([low.at(4), high.at(4)])
    share = np.bincount(kind[log.query].astype(int), weights=log.sessions) / log.n_sessions
    mean = share[0] * low.examination + share[1] * high.examination
    assert estimator.bias_.examination == pytest.approx(mean)
    assert np.all(estimator.bias_.std_error[1:] < np.maximum(low.std_error, high.std_error)[1:])
    assert "over 90% of the sessions" in repr(curves)


def test_groups_split_the_log_by_steepness(made):
    log, kind = made
    curves = ContextualBias().fit(log, kind).curves_
    steep, flat = curves.groups(log, kind, n_groups=2)
    assert set(kind[steep.log.query]) == {1.0}
    assert set(kind[flat.log.query]) == {0.0}
    assert steep.bias.examination == pytest.approx(curves.curve([1.0]).examination)
    assert steep.log.n_sessions + flat.log.n_sessions == log.n_sessions
    assert len(curves.groups(log, kind, n_groups=50)) == 2  # there are no more contexts


def test_a_feature_that_never_varies_changes_nothing(made):
    log, kind = made
    plain = ContextualBias().fit(log, kind).curves_
    more = ContextualBias().fit(log, np.column_stack([kind, np.full(len(kind), 3.0)])).curves_
    assert more.curve([1.0, 3.0]).examination == pytest.approx(plain.curve([1.0]).examination)
    assert more.context_test().degrees_of_freedom == DEPTH - 1
    assert np.all(more.coefficients[:, 2] == 0)


def test_the_constructor_only_stores(made):
    estimator = ContextualBias(model="network", l2=3.0)
    assert vars(estimator) == estimator.get_params()
    assert clone(estimator).l2 == 3.0


# ---- errors


def test_a_fixed_order_names_the_swap_that_would_help(make_log):
    log = make_log([(0, [1, 2, 3], [1], 5, "a"), (1, [1, 2, 3], [1, 2, 3], 5, "a")])
    with pytest.raises(IdentifiabilityError, match="swap positions 1 and 2"):
        ContextualBias().fit(log, [0.0, 1.0])


def test_features_that_cannot_be_told_apart(made):
    log, kind = made
    twice = np.column_stack([kind, 1 - kind])
    with pytest.raises(IdentifiabilityError, match="set l2=1"):
        ContextualBias(l2=0.0).fit(log, twice)
    kept = ContextualBias().fit(log, twice).curves_
    plain = ContextualBias().fit(log, kind).curves_
    assert kept.curve([1.0, 0.0]).examination == pytest.approx(
        plain.curve([1.0]).examination, rel=0.01
    )


@pytest.mark.parametrize(
    ("context", "per", "error", "message"),
    [
        (None, "query", OptionError, "needs to know the context"),
        (np.zeros(7), "query", ShapeError, r"for each of the 120 queries.*Got shape \(7,\)"),
        (np.zeros((120, 0)), "query", ShapeError, "at least one column"),
        (np.zeros(120), "list", ShapeError, "lists"),
        (np.full(120, np.nan), "query", OptionError, "must be finite numbers. Row"),
        (
            {100: [1.0]},
            "query",
            OptionError,
            "no entry for 119 of the queries shown, among them 101",
        ),
        ({q: [1.0] * (1 + q % 2) for q in range(100, 220)}, "query", ShapeError, "same number"),
        ({100: [1.0]}, "list", OptionError, 'is context per="query"'),
        (np.zeros(120), "session", OptionError, "per must be one of"),
    ],
)
def test_contexts_that_do_not_fit(made, context, per, error, message):
    with pytest.raises(error, match=message):
        ContextualBias().fit(made[0], context, per=per)


def test_options_that_make_no_sense(made):
    log, kind = made
    for options, message in (
        ({"model": "tree"}, "model must be one of"),
        ({"level": 2}, "level must lie"),
        ({"l2": -1}, "l2 must be at least 0"),
        ({"validation": 1.0}, "validation must be from 0"),
        ({"n_bootstrap": 1}, "0 or at least 2"),
    ):
        with pytest.raises(OptionError, match=message):
            ContextualBias(**options).fit(log, kind)
    with pytest.raises(DepthError, match=r"positions 1\.\.5"):
        ContextualBias(depth=6).fit(log, kind)
    with pytest.raises(IdentifiabilityError, match="only position 1"):
        ContextualBias(depth=1).fit(log, kind)
    curves = ContextualBias().fit(log, kind).curves_
    with pytest.raises(DepthError, match=r"positions 1\.\.5 have"):
        curves.at(6, [0.0])
    with pytest.raises(ShapeError, match="a context here is 1 numbers"):
        curves.curve([0.0, 1.0])
    with pytest.raises(ShapeError, match="curve of one context"):
        curves.curve([[0.0], [1.0]])
    with pytest.raises(OptionError, match="finite"):
        curves.curve([np.nan])
    with pytest.raises(OptionError, match="n_groups must be at least 1"):
        curves.groups(log, kind, n_groups=0)
