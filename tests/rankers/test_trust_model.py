"""The posteriors of the pairwise trust model against enumeration of everything that is hidden."""

import itertools

import numpy as np
import pytest

from untilt.rankers.trust import trust_model as model
from untilt.rankers.trust.trust_model import (
    PairParameters,
    logistic_loss,
    pair_weights,
    rank_change,
)

NAMES = PairParameters._fields


def random_parameters(rng):
    values = rng.uniform(0.02, 0.98, 6)
    values[2:4] = np.sort(values[2:4])[::-1]
    return dict(zip(NAMES, values, strict=True))


@pytest.fixture(params=range(5))
def parameters(request):
    return random_parameters(np.random.default_rng(request.param))


def coin(value, probability):
    return probability if value else 1 - probability


def outcomes(theta_i, theta_j, eps_plus, eps_minus, gamma, beta_i):
    """Every outcome of (e_i, e_j, i preferred, i relevant, c_i > c_j) with its probability."""
    for e_i, e_j, preferred, relevant, above in itertools.product([False, True], repeat=5):
        alone = float(e_i and relevant)
        rate = (eps_plus if preferred else eps_minus) if e_i and e_j else alone
        hidden = coin(e_i, theta_i) * coin(e_j, theta_j)
        hidden *= coin(preferred, gamma) * coin(relevant, beta_i)
        yield e_i, e_j, preferred, relevant, above, hidden * coin(above, rate)


def share(parameters, given, event):
    """P(event | given) by counting."""
    both = sum(p for *x, p in outcomes(**parameters) if given(*x) and event(*x))
    return both / sum(p for *x, p in outcomes(**parameters) if given(*x))


EVENTS = {
    "preferred": lambda e_i, e_j, r, z, c: e_i and e_j and r,
    "not_preferred": lambda e_i, e_j, r, z, c: e_i and e_j and not r,
    "alone_relevant": lambda e_i, e_j, r, z, c: e_i and not e_j and z,
    "alone_irrelevant": lambda e_i, e_j, r, z, c: e_i and not e_j and not z,
    "unexamined": lambda e_i, e_j, r, z, c: not e_i,
}


def test_probability_of_an_order(parameters):
    total = sum(p for *_, above, p in outcomes(**parameters) if above)
    assert model.above(PairParameters(**parameters)) == pytest.approx(total)
    assert sum(p for *_, p in outcomes(**parameters)) == pytest.approx(1)


@pytest.mark.parametrize("order", [True, False], ids=["c_i > c_j", "c_i <= c_j"])
def test_posteriors_of_a_pair(parameters, order):
    posterior = (model.posterior_above if order else model.posterior_not_above)(
        PairParameters(**parameters)
    )
    assert sum(posterior) == pytest.approx(1)
    for name, event in EVENTS.items():
        expected = share(parameters, lambda *x: x[4] == order, event)
        assert getattr(posterior, name) == pytest.approx(expected), name
    wins = share(parameters, lambda *x: x[4] == order, lambda *x: x[2])
    assert model.preference(posterior, parameters["gamma"]) == pytest.approx(wins)


def test_posteriors_of_one_document(rng):
    theta, beta = rng.uniform(0.05, 0.95, 2)
    posterior = model.posterior_zero(theta, beta)
    assert sum(posterior) == pytest.approx(1)
    joint = {
        (e, z): coin(e, theta) * coin(z, beta) * (not (e and z))
        for e in (True, False)
        for z in (True, False)
    }
    total = sum(joint.values())
    keys = [(True, True), (True, False), (False, True), (False, False)]
    assert list(posterior) == pytest.approx([joint[key] / total for key in keys])
    assert posterior.examined == pytest.approx(joint[True, False] / total)
    assert posterior.relevant == pytest.approx(joint[False, True] / total)


def test_trust_of_an_order_that_was_seen(parameters):
    expected = share(
        parameters, lambda e_i, e_j, r, z, c: e_i and e_j and c, lambda e_i, e_j, r, z, c: r
    )
    eps = {name: parameters[name] for name in ("eps_plus", "eps_minus", "gamma")}
    assert model.trusted(**eps) == pytest.approx(expected)


def test_examination_of_a_document_without_feedback(parameters):
    """Equation 17 is Bayes' rule with theta-_j as what is known of e_j beforehand."""
    with_minus = parameters | {"theta_j": 0.3}
    expected = share(with_minus, lambda *x: x[4], lambda *x: x[1])
    rest = {name: parameters[name] for name in NAMES[2:]}
    assert model.examined_zero(0.3, **rest) == pytest.approx(expected)


def test_equation_17_counts_the_zero_of_j_twice():
    """Clicks by the position-based model: theta_j 0.3, g_i 0.7, g_j 0.2; h is 0.215, not 0.255."""
    theta_j, g_i, g_j = 0.3, 0.7, 0.2
    exact = theta_j * (1 - g_j) / (1 - theta_j * g_j)
    assert exact == pytest.approx(0.255, abs=5e-4)
    # Even with theta-_j known for this very document, gamma has the same zero in it once more.
    assert model.examined_zero(exact, 1.0, 0.0, g_i * (1 - g_j), g_i) == pytest.approx(
        0.215, abs=5e-4
    )


def test_by_hand():
    """theta 1 and 1/2, eps 4/5 and 1/5, gamma = beta = 1/2: 1/4 both seen, 1/4 i alone."""
    hand = PairParameters(1.0, 0.5, 0.8, 0.2, 0.5, 0.5)
    assert model.above(hand) == pytest.approx(1 / 4 + 1 / 4)
    assert model.posterior_above(hand).preferred == pytest.approx((1 / 2 * 0.8 / 2) / (1 / 2))
    assert model.trusted(0.8, 0.2, 0.5) == pytest.approx(0.8)


# ---- losses


def test_bayes_ipw_without_trust_bias_is_ipw(parameters, rng):
    theta_i, theta_j, *_, gamma, beta = parameters.values()
    theta_minus = rng.uniform()
    positive, zero = pair_weights(
        PairParameters(theta_i, theta_j, 1.0, 0.0, gamma, beta), theta_minus
    )
    assert positive == pytest.approx(1 / (theta_i * theta_j))
    h = theta_minus * gamma / (theta_minus * gamma + (1 - theta_minus) * beta)
    assert zero == pytest.approx(h / (theta_i * theta_j))


def test_bayes_ipw_by_its_formula(parameters, rng):
    theta_i, theta_j, eps_plus, eps_minus, gamma, beta = parameters.values()
    minus = rng.uniform()
    a = eps_plus * gamma + eps_minus * (1 - gamma)
    h = theta_i * minus * a / (theta_i * minus * a + theta_i * (1 - minus) * beta)
    positive, zero = pair_weights(PairParameters(**parameters), minus)
    assert positive == pytest.approx(eps_plus * gamma / a / (theta_i * theta_j))
    assert zero == pytest.approx(positive * h)


def test_clip_bounds_what_is_divided_by():
    weights = pair_weights(
        PairParameters(np.array([0.1, 0.9]), 0.1, 1.0, 0.0, 0.5, 0.5), 0.5, clip=0.05
    )
    assert weights[0] == pytest.approx([1 / 0.05, 1 / 0.09])


def test_ipw_is_unbiased_where_examination_of_the_other_is_known():
    """Clicks by the position-based model: with the exact posterior a pair weighs g_i (1 - g_j)."""
    theta_i, theta_j, g_i, g_j = 0.6, 0.3, 0.7, 0.2
    exact = theta_j * (1 - g_j) / (1 - theta_j * g_j)
    chance = theta_i * g_i * (1 - theta_j * g_j)
    assert chance * exact / (theta_i * theta_j) == pytest.approx(g_i * (1 - g_j))


def test_logistic_loss_and_its_slope():
    d = np.array([-40.0, -1.0, 0.0, 2.0, 800.0])
    assert logistic_loss(d)[:4] == pytest.approx(np.log1p(np.exp(-d[:4])))
    assert logistic_loss(d)[4] == 0
    step = 1e-6
    slope = (logistic_loss(d + step) - logistic_loss(d - step)) / (2 * step)
    assert slope[:4] == pytest.approx(-1 / (1 + np.exp(d[:4])), abs=1e-8)


def test_change_of_discounts_when_two_swap():
    """Scores 0.2, 0.9, 0.2 and a padded place: ranks 2, 1, 3; equal scores keep their order."""
    change = rank_change(np.array([0.2, 0.9, 0.2, 5.0]), np.array([True, True, True, False]))
    discount = 1 / np.log2([3, 2, 4])
    assert change[:3, :3] == pytest.approx(np.abs(discount[:, None] - discount[None, :]))
