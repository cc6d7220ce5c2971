"""Intervals of RegressionEM and TrustEM where normal ones fail, and the test for trust bias."""

import numpy as np
import pytest
from scipy import stats

from untilt import RegressionEM, TrustEM
from untilt.bias.em.affine import clustered
from untilt.bias.em.regression_em import fit_shares
from untilt.bias.em.trust_em import _sum_tetrads, trust_test
from untilt.data.counts import position_counts
from untilt.errors import IdentifiabilityError
from untilt.facts import codes

DEPTH = 6
THETA = 1 / np.arange(1, DEPTH + 1)


def orders(rng, make_log, *, n_queries, sessions, probability, depth=DEPTH, n_orders=3):
    """Random orders, each shown in so many sessions; P(click) = probability(q, k, gamma)."""
    lists = []
    for q in range(n_queries):
        gamma = rng.beta(1, 2, size=depth)
        for order in [rng.permutation(depth) for _ in range(n_orders)]:
            for _ in range(sessions):
                p = probability(q, np.arange(1, depth + 1), gamma[order])
                clicked = order[rng.random(depth) < p]
                lists.append((q, order.tolist(), clicked.tolist(), 1))
    return make_log(lists)


def position_based(q, k, gamma):
    return gamma / k


# ---- relevance fitted to few clicks


@pytest.fixture
def sparse(rng, make_log):
    """About three impressions of a document."""
    return orders(rng, make_log, n_queries=200, sessions=1, probability=position_based)


def test_shares_are_right_however_few_the_impressions(sparse):
    """Expected clicks solve the equations exactly, whatever the relevance of each document."""
    cells = position_counts(sparse)
    gamma = np.random.default_rng(1).uniform(0.1, 0.9, cells.n_documents)[cells.document_index]
    clicks = cells.impressions * gamma / cells.position
    exact = type(cells)(**{**vars(cells), "clicks": clicks})
    found = fit_shares(exact, np.arange(DEPTH) > 0)
    assert np.exp(found.z) == pytest.approx(THETA, rel=1e-6)


def test_shares_by_another_optimiser(sparse):
    """The multinomial likelihood of the clicks of each document, its maximum by brute force."""
    from scipy.optimize import minimize

    cells = position_counts(sparse)
    owner, k = cells.document_index, cells.position_index

    def minus_likelihood(z):
        weight = cells.impressions * np.exp(np.concatenate([[0.0], z]))[k]
        return -np.sum(cells.clicks * np.log(weight / np.bincount(owner, weight)[owner]))

    best = minimize(minus_likelihood, np.zeros(DEPTH - 1), options={"gtol": 1e-6}).x
    assert fit_shares(cells, np.arange(DEPTH) > 0).z[1:] == pytest.approx(best, abs=1e-4)


def test_intervals_hold_where_the_curve_is_off(sparse):
    bias = RegressionEM(relevance="counts").fit(sparse).bias_
    assert np.mean(bias.examination[1:] / THETA[1:]) > 1.1
    assert np.all((bias.low <= THETA) & (bias.high >= THETA))
    assert "bias.errors-incidental" in codes(bias.status.parts)
    assert 20 < bias.effective_queries < 200


def test_trust_bias_has_no_interval_where_documents_were_hardly_shown(sparse):
    fitted = TrustEM(relevance="counts").fit(sparse)
    assert not fitted.bias_.has_interval
    assert not fitted.bias_.is_known
    assert fitted.bias_.status.part("bias.too-few-impressions").fields["mean"] < 5
    ends = fitted.curves_.intervals()
    assert np.all(np.isinf(ends.alpha_high))
    assert np.all(ends.alpha_low == 0)


def test_no_interval_has_zero_width(rng, make_log):
    """Logs so small that theta, relevance or both end at their bounds."""
    with_interval = 0
    for seed in range(12):
        log = orders(
            np.random.default_rng(seed), make_log, n_queries=2 + seed, sessions=1 + seed % 4,
            probability=position_based, depth=4,
        )  # fmt: skip
        for estimator in (RegressionEM(relevance="counts"), TrustEM(relevance="counts")):
            try:
                bias = estimator.fit(log).bias_
            except IdentifiabilityError:
                continue
            if bias.has_interval:
                assert np.all(bias.high[1:] > bias.low[1:] + 1e-6)
                with_interval += 1
    assert with_interval > 5


def test_a_position_without_clicks_is_bounded_by_three_of_them(rng, make_log):
    log = orders(rng, make_log, n_queries=20, sessions=20, probability=position_based)
    dead = log.with_label(np.where(log.position == DEPTH, 0.0, log.label))
    fitted = TrustEM(relevance="counts").fit(dead)
    bias, ends = fitted.bias_, fitted.curves_.intervals()
    assert bias.status.part("bias.no-clicks").fields == {"positions": (DEPTH,)}
    assert 0 < bias.high[-1] < 0.2
    assert ends.beta_high[-1] > 2 / 1200  # 1200 impressions at each position


# ---- queries of unequal weight


def test_a_query_with_half_of_the_noise_is_left_out_by_its_leverage():
    """Without query q the number moves by influence / (1 - h): here 4, 1, 1 over 1/2, 3/4, 3/4."""
    influence, noise = np.array([[4.0], [1.0], [-1.0]]), np.array([[2.0], [1.0], [1.0]])
    errors = clustered(influence, noise, np.array([[4.0]]))
    moved = np.array([8.0, 4 / 3, -4 / 3])
    assert errors.covariance[0, 0] == pytest.approx(2 / 3 * np.sum(moved**2))
    assert errors.effective_queries == pytest.approx(4**2 / (2**2 + 1 + 1))
    assert errors.degrees_of_freedom == pytest.approx(16 / 6 - 1)


# ---- the test for trust bias


def trusting(q, k, gamma):
    """Irrelevant documents are clicked too, at the top most of all."""
    return (gamma + (1 - gamma) * 0.65 / np.sqrt(k)) / k


def queries_differ(q, k, gamma):
    """No trust bias: theta_k = k^-eta, and eta differs between queries by 0.3."""
    return gamma * k ** -(1 + 0.3 * np.sin(7.0 * q))


def all_pairs_of(cells):
    """T_q by hand: every pair of documents of a query and every pair of positions."""
    rate = {}
    for d, k, n, c in zip(
        cells.document_index, cells.position, cells.impressions, cells.clicks, strict=True
    ):
        rate.setdefault(int(d), {})[int(k)] = (n, c / n, c * (c - 1) / (n * (n - 1)))
    T = np.zeros(int(cells.query.max()) + 1)
    for d, own in rate.items():
        for e in (e for e in rate if e > d and cells.query[e] == cells.query[d]):
            both = sorted(set(own) & set(rate[e]))
            for k, j in ((k, j) for k in both for j in both if k < j):
                (n, a, A), (m, b, B) = own[k], own[j]
                (u, f, F), (v, g, G) = rate[e][k], rate[e][j]
                w = np.prod([h / (h + 10) for h in (n * m / (n + m), u * v / (u + v))])
                # (a g - b f) (a + b - f - g), squares by their unbiased estimates
                T[cells.query[d]] += w * (
                    A * g + a * b * g - a * f * g - a * G - a * b * f - B * f + b * F + b * f * g
                )
    return T


def ratios_of(cells):
    """U_q by hand: clicks at k against clicks at j, for documents that rankers put high or low."""
    owner, z = cells.document_index, -cells.mean_position
    U = np.zeros(int(cells.query.max()) + 1)
    for k in range(1, DEPTH + 1):
        for j in range(k + 1, DEPTH + 1):
            at = [{d: i for i, d in enumerate(owner) if cells.position[i] == p} for p in (k, j)]
            both = sorted(set(at[0]) & set(at[1]))
            first, second = ([part[d] for d in both] for part in at)
            n, m = cells.impressions[first], cells.impressions[second]
            w = n * m / (n + m) / (n * m / (n + m) + 10)
            a, b, own = cells.rate[first], cells.rate[second], z[both]
            if np.dot(w, a) > 0 and np.dot(w, b) > 0:
                rho, mean = np.dot(w, a) / np.dot(w, b), np.dot(w * b, own) / np.dot(w, b)
                U += np.bincount(cells.query[both], w * (a - rho * b) * (own - mean), len(U))
    return U


def test_the_statistic_is_that_of_all_pairs(rng, make_log):
    """Between T alone and both alike, as surely as mean positions tell relevance here."""
    log = orders(rng, make_log, n_queries=6, sessions=5, probability=trusting, n_orders=8)
    cells = position_counts(log)
    T, U = (part / np.sqrt(np.sum(part**2)) for part in (all_pairs_of(cells), ratios_of(cells)))
    found = trust_test(cells)
    shares = np.linspace(0, 1, 1001)
    both = [(T + share * U).sum() / np.sqrt(np.sum((T + share * U) ** 2)) for share in shares]
    assert np.min(np.abs(np.array(both) - found.t)) < 1e-3
    degrees = found.effective_queries - 1
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(found.t), degrees))
    assert 4 < found.effective_queries <= found.n_queries == 6


def test_trust_bias_is_found(rng, make_log):
    log = orders(rng, make_log, n_queries=60, sessions=12, probability=trusting, n_orders=8)
    found = trust_test(position_counts(log))
    assert found.t < 0
    assert found.fact.code == "bias.trust-found"


def test_queries_that_differ_in_examination_are_no_trust_bias(rng, make_log):
    log = orders(rng, make_log, n_queries=60, sessions=12, probability=queries_differ, n_orders=8)
    fitted = TrustEM(relevance="counts", depth=4).fit(log)
    assert fitted.trust_test_.fact.code == "bias.trust-untold"
    assert "bias.trust-untold" in codes(fitted.bias_.status.parts)


def test_one_fixed_order_cannot_be_tested(rng, make_log):
    log = orders(rng, make_log, n_queries=10, sessions=5, probability=trusting, n_orders=1)
    found = trust_test(position_counts(log))
    assert np.isnan(found.p_value)
    assert found.fact.code == "bias.trust-untested"


def test_one_document_a_query_that_moves_tells_nothing(rng, make_log):
    """A pair of positions that one document has; rounding is no evidence of its size."""
    lists = []
    for q, n in enumerate(rng.integers(3, 40, size=12)):
        for order in ([0, 1, 2], [3, 0, 4]):
            lists += [(q, order, [d for d in order if rng.random() < 0.3], 1) for _ in range(n)]
    cells = position_counts(make_log(lists))
    query = np.unique(cells.query, return_inverse=True)[1]
    T, weight = _sum_tetrads(cells.arrays, query, 12, cells.depth)
    assert not T.any()
    assert not weight.any()
