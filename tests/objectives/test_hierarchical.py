"""The marginal likelihood of clicks: against quadrature, a general optimiser, and a known truth."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from untilt.objectives.hierarchical import ClickCells, Hierarchy, click_cells, fit_hierarchy

ALPHA, BETA = np.array([1.0, 0.7, 0.45, 0.3]), np.array([0.0, 0.02, 0.05, 0.01])


def made(
    rng, *, n_queries=20, n_documents=5, sessions=10.0, v=0.8, s2=0.5, base=-1.0, beta=BETA
) -> tuple[ClickCells, np.ndarray]:
    """Clicks of the model itself; documents stand in random order. Returns the true logits too."""
    doc_query = rng.permutation(np.repeat(np.arange(n_queries), n_documents))
    eta = base + rng.normal(size=n_queries)[doc_query] * np.sqrt(s2)
    eta = eta + rng.normal(size=len(doc_query)) * np.sqrt(v)
    document = np.repeat(np.arange(len(doc_query)), 2)
    place = np.tile([0, 3], len(doc_query))
    n = 1.0 + rng.poisson(sessions, len(document))
    p = ALPHA[place] / (1 + np.exp(-eta[document])) + beta[place]
    c = rng.binomial(n.astype(int), p).astype(float)
    mixed = rng.permutation(len(document))
    cells = click_cells(doc_query, document[mixed], place[mixed], n[mixed], c[mixed], ALPHA, beta)
    return cells, eta


def cells_by_query(cells):
    """(documents, their cells) of each query, for slow versions."""
    for q in range(cells.n_queries):
        places = range(cells.query_ptr[q], cells.query_ptr[q + 1])
        yield [(cells.order[at], slice(cells.indptr[at], cells.indptr[at + 1])) for at in places]


def log_p(cells, own, eta):
    """Log-likelihood of one document's cells at logits (points,)."""
    k = cells.place[own]
    p = cells.alpha[k][:, None] / (1 + np.exp(-np.atleast_1d(eta))) + cells.beta[k][:, None]
    c, n = cells.clicks[own][:, None], cells.impressions[own][:, None]
    return np.sum(c * np.log(p) + (n - c) * np.log1p(-p), axis=0)


def by_quadrature(cells, offset, v, s2, points=81):
    """log L_q of each query with the effects integrated out by Gauss and Hermite."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    log_w = np.log(w / w.sum())
    values = []
    for documents in cells_by_query(cells):
        total = log_w.copy()
        for i, own in documents:
            eta = offset[i] + np.sqrt(s2) * x[:, None] + np.sqrt(v) * x[None, :]
            inside = log_p(cells, own, eta.ravel()).reshape(points, points) + log_w
            total = total + np.logaddexp.reduce(inside, axis=1)
        values.append(np.logaddexp.reduce(total))
    return np.array(values)


@pytest.mark.parametrize(("sessions", "v"), [(1.0, 0.3), (10.0, 0.8), (200.0, 1.5)])
def test_the_marginal_likelihood_is_near_quadrature(rng, sessions, v):
    cells, _ = made(rng, sessions=sessions, v=v)
    offset = rng.normal(size=cells.n_documents) - 1
    laplace = Hierarchy(cells, v, 0.5).modes(offset).log_likelihood
    exact = by_quadrature(cells, offset, v, 0.5)
    # Laplace's own error: of a document's effect it is some hundredths of a nat.
    assert np.all(np.abs(laplace - exact) < 0.05 * 5)
    other = by_quadrature(cells, offset[::-1].copy(), v, 0.5).sum() - exact.sum()
    near = Hierarchy(cells, v, 0.5).modes(offset[::-1].copy()).log_likelihood.sum() - laplace.sum()
    assert near == pytest.approx(other, rel=0.1, abs=0.7)


def test_modes_are_those_of_a_general_optimiser(rng):
    cells, _ = made(rng, n_queries=3)
    offset, v, s2 = rng.normal(size=cells.n_documents), 0.6, 0.9
    effects = Hierarchy(cells, v, s2).modes(offset, tolerance=1e-9)
    for q, documents in enumerate(cells_by_query(cells)):
        of = [i for i, _ in documents]

        def loss(x, documents=documents, of=of):
            total = x[0] ** 2 / (2 * s2) + np.sum(x[1:] ** 2) / (2 * v)
            for (_, own), u, i in zip(documents, x[1:], of, strict=True):
                total -= log_p(cells, own, offset[i] + x[0] + u)[0]
            return total

        best = minimize(loss, np.zeros(1 + len(of)), method="BFGS", options={"gtol": 1e-8}).x
        np.testing.assert_allclose([effects.query[q], *effects.document[of]], best, atol=2e-5)


@pytest.mark.parametrize(("v", "s2"), [(0.5, 0.5), (2.0, 0.1), (5.0, 3.0)])
def test_modes_where_readers_rarely_look(rng, v, s2):
    """Examination 1/k down to place 60, and an offset that the clicks contradict."""
    n_queries, depth = 12, 60
    document = np.arange(n_queries * depth)
    doc_query, place = document // depth, document % depth
    alpha, beta = 1 / (1.0 + np.arange(depth)), np.zeros(depth)
    eta = 2 * rng.normal(size=len(document)) - 1
    n = np.full(len(document), 100.0)
    c = rng.binomial(100, alpha[place] / (1 + np.exp(-eta))).astype(float)
    cells = click_cells(doc_query, document, place, n, c, alpha, beta)
    offset = -2 + 0.7 * rng.normal(size=len(document))
    found = Hierarchy(cells, v, s2).modes(offset)
    slope = np.zeros(len(document))
    for query, documents in enumerate(cells_by_query(cells)):
        for i, own in documents:
            at = offset[i] + found.query[query] + found.document[i]
            ends = log_p(cells, own, np.array([at - 1e-5, at + 1e-5]))
            slope[i] = (ends[1] - ends[0]) / 2e-5
    assert found.document / v == pytest.approx(slope, abs=1e-4)
    assert found.query / s2 == pytest.approx(cells.by_query(slope), abs=1e-3)
    soon = Hierarchy(cells, v, s2).modes(offset, steps=8)
    assert soon.log_likelihood.sum() == pytest.approx(found.log_likelihood.sum(), abs=0.2)


def test_steps_of_boosting_reach_the_same_modes(rng):
    cells, _ = made(rng)
    offset, model = rng.normal(size=cells.n_documents), Hierarchy(cells, 0.6, 0.9)
    effects = model.modes(offset)
    u, u_q = np.zeros(cells.n_documents), np.zeros(cells.n_queries)
    for _ in range(30):
        information = model.newton_step(offset, u, u_q)
    np.testing.assert_allclose(u, effects.document, atol=1e-6)
    np.testing.assert_allclose(u_q, effects.query, atol=1e-6)
    np.testing.assert_allclose(information, effects.information, rtol=1e-5)


def test_a_step_of_boosting_moves_no_effect_by_more_than_its_limit(rng):
    """Clicks that the offset calls all but impossible; the query's step moves documents as well."""
    cells, _ = made(rng, sessions=500.0)
    model, u, u_q = (
        Hierarchy(cells, 5.0, 5.0),
        np.zeros(cells.n_documents),
        np.zeros(cells.n_queries),
    )
    for _ in range(5):
        before, before_q = u.copy(), u_q.copy()
        model.newton_step(np.full(cells.n_documents, -8.0), u, u_q)
        assert np.max(np.abs(u_q - before_q)) <= 1
        assert np.max(np.abs(u - before)) <= 2


def test_the_slope_in_an_offset_is_the_effect_over_its_variance(rng):
    cells, _ = made(rng, sessions=500.0)
    model, offset, step = Hierarchy(cells, 0.8, 0.5), rng.normal(size=cells.n_documents), 0.02
    effects = model.modes(offset, tolerance=1e-10)
    for i in range(5):
        sides = [offset.copy(), offset.copy()]
        sides[0][i], sides[1][i] = offset[i] + step, offset[i] - step
        up, down = (model.modes(each).log_likelihood.sum() for each in sides)
        assert (up - down) / (2 * step) == pytest.approx(effects.document[i] / 0.8, abs=0.05)


def test_counts_are_sessions_and_the_order_of_cells_does_not_matter(rng):
    cells, _ = made(rng, n_queries=4)
    offset = rng.normal(size=cells.n_documents)
    document = cells.order[np.repeat(np.arange(cells.n_documents), np.diff(cells.indptr))]
    doc_query = cells.of_queries(np.arange(4.0)).astype(int)
    one_each = np.repeat(np.arange(len(document)), cells.impressions.astype(int))
    first = np.concatenate([np.arange(int(n)) for n in cells.impressions])
    clicked = (first < cells.clicks[one_each]).astype(float)
    sessions = click_cells(
        doc_query, document[one_each], cells.place[one_each], np.ones(len(one_each)), clicked,
        ALPHA, BETA,
    )  # fmt: skip
    one, other = (Hierarchy(each).modes(offset) for each in (cells, sessions))
    np.testing.assert_allclose(one.document, other.document, atol=1e-8)
    np.testing.assert_allclose(one.log_likelihood, other.log_likelihood, atol=1e-8)


def test_threads_change_nothing(rng, monkeypatch):
    cells, _ = made(rng)
    offset = rng.normal(size=cells.n_documents)
    alone = Hierarchy(cells).modes(offset)
    monkeypatch.setattr("untilt._core.threads.KERNEL_NUMBERS", 1)
    together = Hierarchy(cells).modes(offset)
    np.testing.assert_array_equal(alone.document, together.document)
    np.testing.assert_array_equal(alone.log_likelihood, together.log_likelihood)


def test_a_fit_finds_the_truth_within_its_errors(rng):
    cells, eta = made(rng, n_queries=400, n_documents=10, sessions=60.0, v=0.8, s2=0.5)
    x = rng.normal(size=cells.n_documents)
    fit = fit_hierarchy(cells, np.column_stack([np.ones(len(x)), x]))
    error = np.sqrt(np.diag(fit.covariance))
    assert abs(fit.weights[1]) < 3 * error[1]
    assert abs(fit.weights[0] + 1.0) < 3 * max(error[0], np.sqrt(0.5 / 400))
    assert fit.model.v == pytest.approx(0.8, rel=0.1)
    assert fit.model.s2 == pytest.approx(0.5, rel=0.3)
    known = fit_hierarchy(cells, np.column_stack([np.ones(len(x)), eta]))
    assert known.weights[1] == pytest.approx(1.0, abs=0.03)
    assert known.model.v < 0.02
    assert known.log_likelihood > fit.log_likelihood


def test_a_bound_holds_and_a_prior_pulls(rng):
    cells, eta = made(rng)
    columns = np.column_stack([np.ones(len(eta)), -eta])
    bounded = fit_hierarchy(cells, columns, low=(-np.inf, 0.0))
    assert bounded.weights[1] == 0
    assert bounded.covariance[1, 1] == 0
    free = fit_hierarchy(cells, columns)
    pulled = fit_hierarchy(cells, columns, prior_mean=(0, 0), prior_precision=(0, 1e6))
    assert free.weights[1] < -0.7
    assert abs(pulled.weights[1]) < 0.01


def test_documents_without_clicks_or_impressions_have_the_prior(rng):
    cells, _ = made(rng, n_queries=2)
    unshown = click_cells(
        np.append(cells.of_queries(np.arange(2.0)).astype(int), [0, 1]),
        cells.order[np.repeat(np.arange(cells.n_documents), np.diff(cells.indptr))],
        cells.place, cells.impressions, cells.clicks, ALPHA, BETA,
    )  # fmt: skip
    effects = Hierarchy(unshown).modes(np.zeros(unshown.n_documents))
    plain = Hierarchy(cells).modes(np.zeros(cells.n_documents))
    assert effects.document[-2:].tolist() == [0, 0]
    assert effects.information[-2:].tolist() == [0, 0]
    np.testing.assert_allclose(effects.document[:-2], plain.document, atol=1e-9)
    assert unshown.shown.tolist() == [True] * cells.n_documents + [False, False]


def test_no_clicks_and_only_clicks_are_finite(rng):
    cells, _ = made(rng)
    for clicks in (np.zeros_like(cells.clicks), cells.impressions):
        fit = fit_hierarchy(replace(cells, clicks=clicks), np.ones((cells.n_documents, 1)))
        assert np.isfinite([fit.weights[0], fit.model.v, fit.model.s2, fit.log_likelihood]).all()


def test_queries_can_be_taken(rng):
    cells, _ = made(rng)
    offset = rng.normal(size=cells.n_documents)
    keep = np.arange(cells.n_queries) % 3 == 0
    part, documents = cells.take_queries(keep)
    whole = Hierarchy(cells).modes(offset)
    some = Hierarchy(part).modes(offset[documents])
    np.testing.assert_allclose(some.document, whole.document[documents], atol=1e-9)
    np.testing.assert_allclose(some.log_likelihood, whole.log_likelihood[keep], atol=1e-9)


def test_a_curve_that_is_read_only_compiles_nothing_anew(rng):
    cells, _ = made(rng)
    for curve in (ALPHA.copy(), np.broadcast_to(0.5, 4)):
        given = click_cells(
            cells.of_queries(np.arange(float(cells.n_queries))).astype(int),
            cells.order[np.repeat(np.arange(cells.n_documents), np.diff(cells.indptr))],
            cells.place, cells.impressions, cells.clicks, curve, curve,
        )  # fmt: skip
        assert given.alpha.flags.writeable
        assert given.beta.flags.writeable
