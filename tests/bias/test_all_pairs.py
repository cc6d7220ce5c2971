"""The all-pairs likelihood: its slopes, its curvature, its one maximum."""

import numpy as np
import pytest

from untilt.bias.harvesting.harvesting import maximise, profile
from untilt.bias.harvesting.pairs import PairSums, inverse_laplacian, pair_sums, solve_laplacian
from untilt.data.counts import position_counts
from untilt.errors import IdentifiabilityError

K = 5


def likelihood(z, log_r, sums):
    """As it is written: sum_{k != l} C log(p_k r_kl) + N log(1 - p_k r_kl)."""
    p, total = np.exp(z), 0.0
    for k in range(len(z)):
        for l in range(len(z)):
            if k != l and sums.weight[k, l] > 0:
                x = p[k] * np.exp(log_r[k, l])
                total += sums.clicked[k, l] * np.log(x)
                total += (sums.weight[k, l] - sums.clicked[k, l]) * np.log(1 - x)
    return total


@pytest.fixture
def sums(rng):
    weight = rng.uniform(5, 50, size=(K, K))
    weight = weight + weight.T
    weight[0, 3] = weight[3, 0] = 0
    np.fill_diagonal(weight, 0)
    return PairSums(weight, weight * rng.uniform(0.05, 0.9, size=(K, K)))


@pytest.fixture
def z(rng):
    return np.concatenate([[0], rng.normal(scale=0.7, size=K - 1)])


def test_the_value_is_the_likelihood_at_the_best_relevance(sums, z, rng):
    found = profile(z, sums)
    log_r = np.where(sums.weight > 0, np.log(found.clicked) - z[:, None], 0)
    assert log_r == pytest.approx(log_r.T)
    best = likelihood(z, log_r, sums)
    assert found.value == pytest.approx(best)
    for _ in range(50):
        step = rng.normal(scale=1e-3, size=(K, K))
        assert likelihood(z, log_r + step + step.T, sums) < best


def test_every_click_probability_is_one(sums, rng):
    for _ in range(50):
        x = profile(rng.normal(scale=5, size=K), sums).clicked[sums.weight > 0]
        assert np.all((x > 0) & (x < 1))


def test_the_gradient_is_the_slope(sums, z):
    step = 1e-6
    slopes = [
        (profile(z + step * e, sums).value - profile(z - step * e, sums).value) / (2 * step)
        for e in np.eye(K)
    ]
    assert profile(z, sums).gradient == pytest.approx(slopes, rel=1e-6)


def test_the_laplacian_is_the_curvature(sums, z):
    step = 1e-6
    numeric = [
        (profile(z - step * e, sums).gradient - profile(z + step * e, sums).gradient) / (2 * step)
        for e in np.eye(K)
    ]
    g = profile(z, sums).equations.curvature
    assert np.diag(g.sum(axis=1)) - g == pytest.approx(np.array(numeric), rel=1e-5, abs=1e-6)


def test_the_equations_add_up_to_the_gradient(sums, z):
    """sum_l of gain C_kl - gain C_lk + offset W_kl: what a query's part looks like, over all."""
    equations, C = profile(z, sums).equations, sums.clicked
    f = equations.gain * C - (equations.gain * C).T + equations.offset * sums.weight
    assert f == pytest.approx(-f.T)
    assert f.sum(axis=1) == pytest.approx(profile(z, sums).gradient)


def test_only_ratios_matter(sums, z):
    assert profile(z + 1.3, sums).value == pytest.approx(profile(z, sums).value)
    assert profile(z, sums).gradient.sum() == pytest.approx(0, abs=1e-10)


def test_it_is_concave(sums, rng):
    for _ in range(100):
        a, b = rng.normal(scale=2, size=(2, K))
        middle = profile((a + b) / 2, sums).value
        assert middle >= (profile(a, sums).value + profile(b, sums).value) / 2 - 1e-9


def test_any_start_finds_the_same_maximum(sums, rng):
    ends = [
        maximise(sums, tolerance=1e-10, max_steps=200, start=rng.normal(scale=3, size=K))
        for _ in range(10)
    ]
    for end in ends:
        assert end.converged
        assert end.residual <= 1e-10
        assert end.x == pytest.approx(ends[0].x, abs=1e-8)


def test_exact_clicks_give_the_exact_curve():
    theta = np.array([1.0, 0.7, 0.9, 0.2])
    weight = np.ones((4, 4)) - np.eye(4)
    relevance = np.array([[0, 3, 5, 2], [3, 0, 6, 4], [5, 6, 0, 1], [2, 4, 1, 0]]) / 10
    sums = PairSums(weight, theta[:, None] * relevance)
    found = maximise(sums, tolerance=1e-12, max_steps=100)
    assert np.exp(found.x) == pytest.approx(theta)


def test_a_deeper_position_may_be_examined_more():
    theta = np.array([1.0, 3.0])
    sums = PairSums(np.ones((2, 2)) - np.eye(2), theta[:, None] * np.array([[0, 0.3], [0.3, 0]]))
    assert np.exp(maximise(sums, tolerance=1e-12, max_steps=50).x) == pytest.approx(theta)


def test_documents_that_everybody_clicked():
    """All impressions at position 1 were clicked: x reaches 1, and nothing breaks."""
    sums = PairSums(np.array([[0, 10.0], [10, 0]]), np.array([[0, 10.0], [4, 0]]))
    found = maximise(sums, tolerance=1e-6, max_steps=100)
    assert np.exp(found.x) == pytest.approx([1, 0.4], rel=2e-3)


def test_documents_that_everybody_clicked_everywhere():
    everywhere = 4.0 * (np.ones((3, 3)) - np.eye(3))
    found = maximise(PairSums(everywhere, everywhere), tolerance=1e-9, max_steps=100)
    assert found.converged
    assert np.exp(found.x) == pytest.approx(np.ones(3))


def test_an_early_end_says_so(sums):
    found = maximise(sums, tolerance=1e-12, max_steps=1)
    assert not found.converged
    assert found.residual > 1e-12


def test_a_newton_step_solves_the_quadratic_model(sums, z):
    here = profile(z, sums)
    step = solve_laplacian(here.equations.curvature, here.gradient)
    g = here.equations.curvature
    assert (np.diag(g.sum(axis=1)) - g) @ step == pytest.approx(here.gradient)


def test_sums_of_a_log_have_symmetric_weights(shuffled_log):
    for kind in ("session", "document"):
        weight = pair_sums(position_counts(shuffled_log), kind).weight
        assert np.array_equal(weight, weight.T)


def test_weights_too_far_apart_to_compare_are_told():
    """Position 1 has one click beside 1e20 of the others: sums do not hold it."""
    weight = np.array([[0, 1, 0], [1, 0, 1e20], [0, 1e20, 0]])
    with pytest.raises(IdentifiabilityError, match="rounding"):
        solve_laplacian(weight, np.zeros(3))
    with pytest.raises(IdentifiabilityError, match="rounding"):
        inverse_laplacian(weight)
