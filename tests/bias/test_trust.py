"""TrustEM: the algebra of its scale, EM by enumeration, and what it refuses."""

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from untilt import KnownBias, PositionBias, PowerLaw, TrustAnchor, TrustEM
from untilt._core.arrays import frozen
from untilt.bias.em.relevance import (
    Mixture,
    _expect,
    _maximise,
    _scores,
    class_em,
    groups_by_position,
    mixture_em,
    normalised,
    start_values,
)
from untilt.bias.em.trust_em import AffineCurves, anchor_jacobian, re_anchored
from untilt.data.counts import PositionCounts
from untilt.errors import DepthError, IdentifiabilityError, OptionError
from untilt.facts import codes

THETA = np.array([1.0, 0.7, 0.5, 0.4])
PLUS = np.array([0.95, 0.9, 0.9, 0.85])
MINUS = np.array([0.5, 0.3, 0.15, 0.1])
ALPHA, BETA = THETA * (PLUS - MINUS), THETA * MINUS
GRID = np.linspace(0, 1, 31)
ANCHOR = TrustAnchor(relevant=ALPHA[0] + BETA[0], irrelevant=BETA[0])


def cells_from(gamma, n, clicks, *, queries=None):
    """Every document at every position, n impressions each."""
    documents, depth = len(gamma), len(ALPHA)
    arrays = {
        "indptr": np.arange(0, documents * depth + 1, depth),
        "query": np.arange(documents) if queries is None else queries,
        "document": np.arange(documents),
        "position": np.tile(np.arange(1, depth + 1), documents).astype(np.int32),
        "impressions": np.full(documents * depth, float(n)),
        "clicks": np.asarray(clicks, dtype=float).ravel(),
    }
    return PositionCounts(depth=depth, **{name: frozen(array) for name, array in arrays.items()})


def expected_clicks(gamma, n):
    return n * (np.outer(gamma, ALPHA) + BETA)


def small_cells(rng, documents=30, n=6):
    gamma = rng.uniform(size=documents)
    clicks = rng.binomial(n, expected_clicks(gamma, 1))
    return cells_from(gamma, n, clicks, queries=np.sort(rng.integers(10, size=documents)))


# ---- the scale of relevance


def test_another_scale_gives_the_same_clicks():
    """alpha gamma + beta is the same number for every document and position."""
    gamma = np.linspace(0, 1, 7)
    anchor = TrustAnchor(relevant=0.8, irrelevant=0.2, position=2)
    alpha, beta = re_anchored(ALPHA, BETA, anchor)
    moved = (np.outer(gamma, ALPHA)[:, 1] + BETA[1] - 0.2) / (0.8 - 0.2)
    assert np.outer(moved, alpha) + beta == pytest.approx(np.outer(gamma, ALPHA) + BETA)
    assert (alpha[1] + beta[1], beta[1]) == pytest.approx((0.8, 0.2))


def test_lines_are_the_same_on_every_scale():
    """slope = alpha_k / alpha_1 and shift = beta_k - slope beta_1, by hand and after moving."""
    curves = AffineCurves(ALPHA, BETA, np.zeros((8, 8)), TrustAnchor(0.95, 0.5))
    slope = ALPHA / ALPHA[0]
    for each in (curves, curves.anchored(TrustAnchor(0.6, 0.1, position=3))):
        relative = each.relative()
        assert relative.alpha == pytest.approx(slope)
        assert relative.beta == pytest.approx(BETA - slope * BETA[0], abs=1e-12)


def test_moving_back_restores_curves_and_doubt(rng):
    root = rng.normal(size=(8, 8))
    covariance = root @ root.T
    covariance[[0, 4]] = covariance[:, [0, 4]] = 0
    first = TrustAnchor(ALPHA[0] + BETA[0], BETA[0])
    curves = AffineCurves(ALPHA, BETA, covariance, first)
    there = curves.anchored(TrustAnchor(0.6, 0.1, position=3))
    assert there.alpha_std_error[2] == pytest.approx(0, abs=1e-9)
    back = there.anchored(first)
    assert back.alpha == pytest.approx(ALPHA)
    assert back.covariance == pytest.approx(covariance, abs=1e-9)


def test_jacobian_by_finite_differences():
    anchor = TrustAnchor(0.8, 0.2, position=2)
    start = np.concatenate([ALPHA, BETA])

    def moved(x):
        return np.concatenate(re_anchored(x[:4], x[4:], anchor))

    numeric = [(moved(start + e) - moved(start - e)) / 2e-6 for e in 1e-6 * np.eye(8)]
    assert anchor_jacobian(ALPHA, BETA, anchor) == pytest.approx(np.array(numeric).T, abs=1e-7)


def test_curves_show_themselves():
    curves = AffineCurves(ALPHA, BETA, np.eye(8) * 1e-4, TrustAnchor(0.95, 0.5))
    text = repr(curves)
    assert "scale by position 1: relevant clicked 0.9500, irrelevant 0.5000" in text
    assert text.splitlines()[-1].split() == ["4", "0.3000", "0.0100", "0.0400", "0.0100"]
    assert "<td" in curves._repr_html_()
    with pytest.raises(ValueError, match="read-only"):
        curves.alpha[0] = 1


@pytest.mark.parametrize(
    ("anchor", "error", "message"),
    [
        (TrustAnchor(0.2, 0.4), OptionError, "irrelevant < relevant"),
        (TrustAnchor(1.2, 0.4), OptionError, "relevant <= 1"),
        (TrustAnchor(0.6, 0.4, position=9), DepthError, r"one of 1\.\.4"),
    ],
)
def test_anchors_are_checked(anchor, error, message):
    with pytest.raises(error, match=message):
        anchor.check(4)


# ---- EM


def enumerated(cells, plus, minus, shares, group):
    """Posteriors of (grid point, relevance) of every impression, one by one."""
    sums, of_values, by_group = np.zeros((4, cells.depth)), np.zeros((2, 31)), np.zeros_like(shares)
    means, value = [], 0.0
    for d in range(len(cells.document)):
        own = slice(cells.indptr[d], cells.indptr[d + 1])
        rows = list(
            zip(
                cells.position[own] - 1,
                cells.impressions[own].astype(int),
                cells.clicks[own].astype(int),
                strict=True,
            )
        )
        joint = []
        for m, gamma in enumerate(GRID):
            p = gamma * plus + (1 - gamma) * minus
            chance = np.prod([p[k] ** c * (1 - p[k]) ** (n - c) for k, n, c in rows])
            joint.append(shares[group[d], m] * chance)
        w = np.array(joint) / sum(joint)
        value += np.log(sum(joint))
        by_group[group[d]] += w
        means.append(w @ GRID)
        for (k, n, c), click in itertools.product(rows, (1, 0)):
            times = c if click else n - c
            hit = plus[k] if click else 1 - plus[k]
            miss = minus[k] if click else 1 - minus[k]
            by_value = times * w * GRID * hit / (GRID * hit + (1 - GRID) * miss)
            relevant = by_value.sum()
            sums[:, k] += (times, times * click, relevant, relevant * click)
            of_values += (times * w, by_value)
    return sums, of_values, by_group, np.array(means), value


def arguments(cells, group):
    return cells.arrays, group


def test_an_e_step_is_the_posterior_of_every_impression(rng):
    cells = small_cells(rng, documents=8)
    group = np.array([0, 1] * 4)
    shares = rng.dirichlet(np.ones(len(GRID)), size=2)
    plus, minus = THETA * PLUS, THETA * MINUS
    found = _expect(*arguments(cells, group), Mixture(plus, minus, GRID, shares))
    for one, two in zip(found, enumerated(cells, plus, minus, shares, group), strict=True):
        assert one == pytest.approx(two, rel=1e-10)


def test_an_m_step_by_hand():
    """8 shown, 5 clicked, 4 relevant with 4 clicks: z+ = 4/4, z- = 1/4, away from 1 by a hair."""
    before = Mixture(np.full(2, 0.5), np.full(2, 0.1), np.array([0.2, 0.7]), np.ones((1, 2)))
    sums, of_values = np.array([[8.0, 10], [5, 4], [4, 5], [4, 1]]), np.array([[18.0, 0], [9, 0]])
    plus, minus, values = _maximise(sums, of_values, before)
    assert plus[0] == pytest.approx(1)
    assert minus[0] == pytest.approx(1 / 4)
    # 1/5 of the relevant and 3/5 of the irrelevant clicked: the mirror image, so both 4/10.
    assert (plus[1], minus[1]) == pytest.approx((4 / 10, 4 / 10))
    # A value that no document has stays where it is.
    assert values == pytest.approx([9 / 18, 0.7])


def test_the_likelihood_never_falls(rng):
    em = mixture_em(small_cells(rng, documents=300), tolerance=1e-3, max_steps=2000).em
    assert np.all(np.diff(em.history) >= 0)
    assert em.converged


def test_exact_proportions_give_the_exact_lines():
    gamma = np.tile(np.linspace(0, 1, 11), 10)
    fit = mixture_em(
        cells_from(gamma, 2000, expected_clicks(gamma, 2000)), tolerance=1e-4, max_steps=20_000
    )
    alpha, beta = re_anchored(fit.affine.alpha, fit.affine.beta, ANCHOR)
    assert alpha == pytest.approx(ALPHA, rel=0.01)
    assert beta == pytest.approx(BETA, rel=0.01)


def test_scores_are_derivatives_of_the_likelihood(rng):
    """By alpha and beta, by each value of gamma, and by moving mass to it; summed."""
    cells = small_cells(rng)
    group = np.zeros(30, dtype=np.int64)
    raw = Mixture(ALPHA + BETA, BETA, GRID, rng.uniform(0.5, 1, size=(1, len(GRID))))
    mixture = normalised(raw)
    shares = mixture.shares

    def value(x, values=GRID, shares=shares):
        plus, minus = x[:4] + x[4:], x[4:]
        return _expect(*arguments(cells, group), Mixture(plus, minus, values, shares))[-1]

    def slope(move):
        return (value(**move(1e-6)) - value(**move(-1e-6))) / 2e-6

    start = np.concatenate([ALPHA, BETA])
    found = _scores(*arguments(cells, group), mixture)
    curves, of_values, of_shares = (scores.sum(axis=0) for scores in found)
    expected = [slope(lambda t, i=i: {"x": start + t * np.eye(8)[i]}) for i in range(8)]
    assert curves == pytest.approx(expected, rel=1e-5, abs=1e-4)
    points = range(1, 30)  # the outer two cannot move both ways
    expected = [
        slope(lambda t, m=m: {"x": start, "values": GRID + t * np.eye(31)[m]}) for m in points
    ]
    assert of_values[1:-1] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    expected = [
        slope(lambda t, m=m: {"x": start, "shares": shares + t * (np.eye(31)[[m]] - shares)})
        for m in range(31)
    ]
    assert of_shares == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_errors_shrink_with_the_root_of_the_documents(rng):
    """Four times the documents, half the error."""
    gamma = rng.uniform(size=800)
    clicks = rng.binomial(40, expected_clicks(gamma, 1))
    free = np.array([False, True, True, True] * 2)
    errors = []
    for n in (200, 800):
        cells = cells_from(gamma[:n], 40, clicks[:n])
        fit = mixture_em(cells, tolerance=1e-2, max_steps=2000)
        errors.append(np.sqrt(np.diag(fit.uncertainty(cells, free, np.eye(8)).covariance)))
    ratio = errors[0][free] / errors[1][free]
    assert np.all((ratio > 1.4) & (ratio < 2.9))


def test_more_values_where_documents_are_better_known():
    few, many = (cells_from(np.ones(9), n, np.zeros(36)) for n in (5, 2500))
    assert len(start_values(few)) == 15
    assert len(start_values(many)) == 101


def test_groups_follow_the_mean_position(rng):
    """By hundred documents, shown higher and higher: group 0 at the top, none empty."""
    top = rng.permutation(np.repeat([1, 3], 150)).astype(np.int32)
    cells = PositionCounts(
        indptr=np.arange(0, 601, 2),
        query=np.zeros(300, dtype=int),
        document=np.arange(300),
        position=np.column_stack([top, top + 1]).ravel(),
        impressions=np.ones(600),
        clicks=np.zeros(600),
        depth=4,
    )
    group = groups_by_position(cells)
    assert set(group[top == 1]) == {0}
    assert set(group[top == 3]) == {1}


# ---- classes of documents, for relevance from features


def test_classes_with_exact_proportions_give_the_exact_lines():
    gamma = np.linspace(0.05, 0.95, 12)
    cells = cells_from(gamma, 5000, expected_clicks(gamma, 5000))
    plus, minus, found = class_em(cells)
    alpha, beta = re_anchored(plus - minus, minus, ANCHOR)
    assert alpha == pytest.approx(ALPHA, rel=1e-3)
    assert beta == pytest.approx(BETA, rel=1e-3)
    clicked = np.outer(found, plus) + np.outer(1 - found, minus)
    assert clicked == pytest.approx(np.outer(gamma, ALPHA) + BETA, rel=1e-3)


# ---- intervals


def curves_with(alpha, beta, alpha_error, beta_error, correlation):
    cross = correlation * alpha_error * beta_error
    covariance = np.array([[alpha_error**2, cross], [cross, beta_error**2]])
    return AffineCurves(np.array([alpha]), np.array([beta]), covariance, ANCHOR)


def test_intervals_of_alpha_are_symmetric_in_logs():
    found = curves_with(0.2, 0.1, 0.05, 0.02, 0.0).intervals(level=0.95)
    assert found.alpha_low == pytest.approx([0.2 * np.exp(-1.959964 * 0.05 / 0.2)])
    assert found.alpha_high == pytest.approx([0.2 * np.exp(1.959964 * 0.05 / 0.2)])


def test_beta_that_goes_its_own_way_has_the_usual_interval():
    found = curves_with(0.2, 0.1, 0.05, 0.02, 0.0).intervals()
    assert found.beta_low == pytest.approx([0.1 - 1.959964 * 0.02])
    assert found.beta_high == pytest.approx([0.1 + 1.959964 * 0.02])


def test_beta_that_goes_with_alpha_follows_its_interval():
    """0.3 = alpha + beta for sure: whatever alpha is, beta is the rest."""
    found = curves_with(0.2, 0.1, 0.05, 0.05, -1.0).intervals()
    assert found.beta_low == pytest.approx(0.3 - found.alpha_high)
    assert found.beta_high == pytest.approx(0.3 - found.alpha_low)


def test_what_the_anchor_gives_has_no_width(trusted):
    found = TrustEM(relevance="counts", anchor=ANCHOR).fit(trusted).curves_.intervals()
    assert found.alpha_low[0] == pytest.approx(found.alpha_high[0])
    assert found.beta_low[0] == pytest.approx(found.beta_high[0])
    assert np.all(found.alpha_low[1:] < found.alpha_high[1:])


# ---- the estimator


@pytest.fixture(scope="module")
def trusted():
    """Shuffled lists of five documents, four shown, clicked with trust bias; and the truth."""
    rng = np.random.default_rng(5)
    return trust_log(rng, n_sessions=12_000)


def trust_log(rng, *, n_sessions, n_queries=40, plus=PLUS, minus=MINUS, depth=4):
    from untilt import ClickLog

    relevance = rng.choice([0.0, 0.1, 0.3, 0.6, 1.0], size=(n_queries, 5))
    query = rng.integers(n_queries, size=n_sessions)
    order = np.array([rng.permutation(5)[:depth] for _ in range(n_sessions)])
    gamma = relevance[query[:, None], order]
    chance = THETA[:depth] * (plus[:depth] * gamma + minus[:depth] * (1 - gamma))
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(5), n_queries),
        doc_query=np.repeat(np.arange(n_queries), 5),
        features=relevance.reshape(-1, 1) + rng.normal(scale=0.1, size=(n_queries * 5, 2)),
        indptr=np.arange(0, depth * n_sessions + 1, depth),
        query=query,
        document=(query[:, None] * 5 + order).ravel(),
        position=np.tile(np.arange(1, depth + 1), n_sessions),
        label=(rng.random((n_sessions, depth)) < chance).ravel().astype(float),
    )


@pytest.mark.parametrize("relevance", ["counts", "features"])
def test_with_an_anchor_alpha_and_beta_are_found(trusted, relevance):
    fitted = TrustEM(anchor=ANCHOR, relevance=relevance, n_threads=1).fit(trusted)
    curves = fitted.curves_
    assert np.all(np.abs(curves.alpha - ALPHA)[1:] < 4 * curves.alpha_std_error[1:])
    assert np.all(np.abs(curves.beta - BETA)[1:] < 4 * curves.beta_std_error[1:])
    assert np.all(curves.alpha_std_error < 0.15 * ALPHA)
    assert fitted.bias_.method == f"TrustEM ({relevance})"


def test_the_bias_has_the_products_of_the_curves(trusted):
    """theta, eps+ and eps- are one way of many to write alpha and beta."""
    fitted = TrustEM(anchor=ANCHOR, relevance="counts").fit(trusted)
    bias = fitted.bias_
    alpha, beta = bias.affine()
    assert alpha == pytest.approx(fitted.curves_.alpha)
    assert beta == pytest.approx(fitted.curves_.beta)
    assert bias.has_trust
    assert np.ptp(bias.eps_plus) == pytest.approx(0, abs=1e-12)
    assert np.all(bias.eps_plus > bias.eps_minus)
    assert not bias.relative  # the anchor has set the scale, so these are click probabilities
    assert PositionBias.from_json(bias.to_json()).eps_minus == pytest.approx(bias.eps_minus)


def test_a_known_examination_splits_the_products(trusted):
    fitted = TrustEM(anchor=ANCHOR, relevance="counts", examination=THETA).fit(trusted)
    bias = fitted.bias_
    assert bias.examination == pytest.approx(THETA)
    assert not bias.relative
    assert bias.eps_plus == pytest.approx(PLUS, abs=0.1)
    assert bias.eps_minus == pytest.approx(MINUS, abs=0.05)
    assert bias.affine()[0] == pytest.approx(fitted.curves_.alpha)
    by_curve = TrustEM(anchor=ANCHOR, relevance="counts", examination=PowerLaw(0.5)).fit(trusted)
    assert by_curve.bias_.affine()[0] == pytest.approx(fitted.curves_.alpha)


def test_the_anchor_moves_the_scale_and_nothing_else(trusted):
    """Two anchors, one fit: the same relative, and each other by `anchored`."""
    there = TrustAnchor(0.5, 0.05, position=3)
    one = TrustEM(anchor=ANCHOR, relevance="counts").fit(trusted)
    two = TrustEM(anchor=there, relevance="counts").fit(trusted)
    assert two.curves_.relative().alpha == pytest.approx(one.curves_.relative().alpha, rel=1e-9)
    assert two.curves_.relative().beta == pytest.approx(one.curves_.relative().beta, rel=1e-9)
    assert one.curves_.anchored(there).alpha == pytest.approx(two.curves_.alpha, rel=1e-9)
    at = trusted.document[:200]
    clicks = [e.curves_.alpha[0] * e.relevance_[at] + e.curves_.beta[0] for e in (one, two)]
    assert clicks[0] == pytest.approx(clicks[1], rel=1e-9)


def test_without_an_anchor_the_extreme_documents_set_the_scale(trusted):
    fitted = TrustEM(relevance="counts").fit(trusted)
    relevance = fitted.relevance_[~np.isnan(fitted.relevance_)]
    assert np.quantile(relevance, [0.01, 0.99]) == pytest.approx([0, 1], abs=1e-6)
    assert fitted.bias_.relative
    assert {"bias.scale-convention", "bias.even-eps-plus"} <= set(codes(fitted.bias_.assumes))
    relative, slope = fitted.curves_.relative(), ALPHA / ALPHA[0]
    shift = BETA - slope * BETA[0]
    assert np.all(np.abs(relative.alpha - slope)[1:] < 4 * relative.alpha_std_error[1:])
    assert np.all(np.abs(relative.beta - shift)[1:] < 4 * relative.beta_std_error[1:])


def test_without_trust_bias_the_lines_go_through_the_origin():
    """eps- = 0: a document never clicked at position 1 is never clicked at k."""
    log = trust_log(
        np.random.default_rng(7), n_sessions=12_000, plus=np.full(4, 0.9), minus=np.zeros(4)
    )
    relative = TrustEM(relevance="counts").fit(log).curves_.relative()
    assert np.all(np.abs(relative.beta)[1:] < 4 * relative.beta_std_error[1:])
    assert np.all(np.abs(relative.alpha - THETA)[1:] < 4 * relative.alpha_std_error[1:])


def test_counts_are_repeats(trusted):
    collapsed = trusted.collapse()
    assert collapsed.n_lists < trusted.n_lists
    one, two = (TrustEM(relevance="counts").fit(log).curves_ for log in (trusted, collapsed))
    assert two.alpha == pytest.approx(one.alpha, rel=1e-8)
    assert two.covariance == pytest.approx(one.covariance, rel=1e-6, abs=1e-12)


def test_a_dead_position_does_not_break_it(trusted):
    dead = trusted.with_label(np.where(trusted.position == 4, 0.0, trusted.label))
    alive = TrustEM(anchor=ANCHOR, relevance="counts").fit(trusted).curves_
    for relevance in ("counts", "features"):
        fitted = TrustEM(anchor=ANCHOR, relevance=relevance, n_threads=1).fit(dead)
        assert 0 < fitted.bias_.examination[3] < 1e-3
        assert fitted.curves_.alpha[:3] == pytest.approx(alive.alpha[:3], rel=0.15)
        assert np.all(np.isfinite(fitted.curves_.covariance))


def test_resampled_errors_agree_with_the_formula(trusted):
    """20 resamples tell an error to about 16%."""
    options: dict[str, Any] = {"anchor": ANCHOR, "relevance": "counts", "tolerance": 0.1}
    formula = TrustEM(**options).fit(trusted).curves_
    resampled = TrustEM(**options, n_bootstrap=20, seed=1).fit(trusted).curves_
    ratio = resampled.alpha_std_error[1:] / formula.alpha_std_error[1:]
    assert np.all((ratio > 0.4) & (ratio < 2.5))


def test_clone_keeps_the_anchor(trusted):
    estimator = TrustEM(anchor=ANCHOR, relevance="counts", depth=3)
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.fit(trusted).curves_.depth == 3


# ---- what it refuses


def test_one_fixed_order_without_features(make_log):
    sessions = [(q, [0, 1, 2], [c], 10) for q in range(5) for c in (0, 1, 2)]
    with pytest.raises(IdentifiabilityError, match="swap positions 1 and 2 in a share"):
        TrustEM().fit(make_log(sessions))


def test_documents_that_are_all_alike(rng):
    """One relevance for all: a line through one point can turn any way, and the errors say so."""
    gamma, free = np.full(60, 0.5), np.array([False, True, True, True] * 2)
    exact = cells_from(gamma, 50, expected_clicks(gamma, 50))
    with pytest.raises(IdentifiabilityError, match="do not identify the curves"):
        mixture_em(exact, tolerance=1e-6, max_steps=500).uncertainty(exact, free, np.eye(8))
    cells = cells_from(gamma, 50, rng.binomial(50, expected_clicks(gamma, 1)))
    fit = mixture_em(cells, tolerance=1e-4, max_steps=2000)
    error = np.sqrt(np.diag(fit.uncertainty(cells, free, np.eye(8)).covariance))
    assert np.all(error[1:4] > fit.affine.alpha[1:])


def test_a_position_whose_clicks_do_not_depend_on_relevance(trusted):
    """Every second session clicks at position 1, whatever stands there: it gives no scale."""
    session = np.arange(len(trusted.label)) // 4
    blind = trusted.with_label(np.where(trusted.position == 1, session % 2, trusted.label))
    relative = TrustEM(relevance="counts").fit(blind).curves_.relative()
    assert np.all(relative.alpha_std_error[1:] > relative.alpha[1:])
    anchor = TrustAnchor(0.63, 0.21, position=2)
    curves = TrustEM(relevance="counts", anchor=anchor).fit(blind).curves_
    assert abs(curves.alpha[0]) < 4 * curves.alpha_std_error[0] < 0.1
    assert np.all(np.abs(curves.alpha - ALPHA)[2:] < 4 * curves.alpha_std_error[2:])


def test_an_anchor_at_a_dead_position(trusted):
    dead = trusted.with_label(np.where(trusted.position == 4, 0.0, trusted.label))
    estimator = TrustEM(relevance="counts", anchor=TrustAnchor(0.3, 0.1, position=4))
    with pytest.raises(IdentifiabilityError, match=r"at position 4 do not depend.*position=\d"):
        estimator.fit(dead)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"anchor": (0.9, 0.5)}, OptionError, r"anchor must be a TrustAnchor.*Got \(0.9, 0.5\)"),
        ({"anchor": TrustAnchor(0.9, 0.5, position=7)}, DepthError, r"one of 1\.\.4"),
        ({"relevance": "count"}, OptionError, "Did you mean 'counts'"),
        ({"depth": 0}, DepthError, r"one of the positions 1\.\.4"),
        ({"examination": [1.0, 0.5]}, DepthError, "no examination estimate"),
    ],
)
def test_options_are_checked_by_fit(trusted, options, error, message):
    with pytest.raises(error, match=message):
        TrustEM(**{"relevance": "counts", **options}).fit(trusted)


def test_given_curves_are_what_they_were():
    """KnownBias with the same three curves has the alpha and beta of this file."""
    alpha, beta = KnownBias(THETA, eps_plus=PLUS, eps_minus=MINUS).affine()
    assert alpha == pytest.approx(ALPHA)
    assert beta == pytest.approx(BETA)
