"""Power law, monotone and quadratic shapes: nearest as they say, and no surer than that."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from untilt import EyeTracking, KnownBias, PositionBias, PowerLaw
from untilt.bias.curve_operations import fit_quadratic, hold_last
from untilt.bias.log_ratios import from_log_ratios, log_ratios
from untilt.errors import DepthError, OptionError
from untilt.facts import as_fact, as_facts, codes


def estimate(z, V, method="AllPairs"):
    """z_1 = 0 and V without position 1."""
    full = np.zeros((len(z), len(z)))
    full[1:, 1:] = V
    return from_log_ratios(
        np.asarray(z, float),
        full,
        level=0.95,
        method=method,
        assumes=as_facts("a"),
        status=as_fact("made"),
    )


def from_rates(log_rates, variances):
    """Ratios to position 1 of independent log-rates."""
    r, v = np.asarray(log_rates), np.asarray(variances)
    return estimate(r - r[0], np.diag(v[1:]) + v[0])


# ---- power law


def test_a_power_law_is_found_exactly():
    z = -0.7 * np.log(np.arange(1, 9))
    fitted = estimate(z, 0.01 * np.eye(7)).fit_power_law()
    assert fitted.eta == pytest.approx(0.7)
    assert fitted.examination == pytest.approx(np.exp(z))
    assert fitted.method == "AllPairs, then a power law"
    assert codes(fitted.assumes) == ["general.text", "bias.power-law"]
    assert fitted.status.part("bias.eta-fitted").fields["p_value"] == pytest.approx(1)


def test_eta_by_hand_for_independent_errors():
    """Weighted least squares through the origin: sum(w x z) / sum(w x^2)."""
    z, v = np.array([0, -0.5, -1.3]), np.array([0.01, 0.04])
    x = np.log([2, 3])
    fitted = estimate(z, np.diag(v)).fit_power_law()
    assert fitted.eta == pytest.approx(-np.sum(x * z[1:] / v) / np.sum(x**2 / v))
    assert fitted.eta_std_error == pytest.approx(1 / np.sqrt(np.sum(x**2 / v)))
    assert fitted.std_error == pytest.approx(
        fitted.examination * np.log([1, 2, 3]) * fitted.eta_std_error
    )


def test_eta_covers_the_truth_as_often_as_it_says(rng):
    V = 0.02 + 0.05 * np.diag(np.arange(1, 6))
    z = -1.1 * np.log(np.arange(1, 7))
    inside = 0
    for _ in range(400):
        noisy = np.concatenate([[0], rng.multivariate_normal(z[1:], V)])
        fitted = estimate(noisy, V).fit_power_law()
        inside += abs(fitted.eta - 1.1) < 1.96 * fitted.eta_std_error
    assert 0.92 < inside / 400 < 0.98


def test_another_shape_is_seen():
    fitted = estimate(np.log(EyeTracking().at(np.arange(1, 11)) / 0.68), 1e-4 * np.eye(9))
    assert fitted.fit_power_law().status.fields["p_value"] < 1e-6


def test_a_power_law_may_be_continued():
    fitted = PowerLaw(0.5).to_bias(5).fit_power_law(depth=100)
    assert fitted.depth == 100
    assert fitted.at(100) == pytest.approx(0.1)
    assert fitted.eta_std_error is None
    assert fitted.is_known


# ---- never rising


def test_a_falling_curve_stays_as_it_is():
    bias = estimate(np.log([1, 0.8, 0.5, 0.2]), np.diag([0.1, 0.2, 0.3]))
    smoothed = bias.smooth()
    assert smoothed.examination == pytest.approx(bias.examination)
    assert smoothed.covariance == pytest.approx(bias.covariance)
    assert codes(smoothed.status) == ["general.text", "bias.smoothed"]
    assert smoothed.status.part("bias.smoothed").fields == {"flat": 0, "steps": smoothed.depth - 1}
    assert codes(smoothed.assumes) == ["general.text", "bias.never-rises"]


def test_two_neighbours_that_rise_become_their_weighted_mean():
    bias = estimate([0, -1.0, -0.7], np.diag([0.01, 0.02]))
    mean = (-1.0 / 0.01 - 0.7 / 0.02) / (1 / 0.01 + 1 / 0.02)
    smoothed = bias.smooth()
    assert np.log(smoothed.examination) == pytest.approx([0, mean, mean])
    variance = 1 / (1 / 0.01 + 1 / 0.02)
    assert smoothed.std_error[1] == pytest.approx(np.exp(mean) * np.sqrt(variance))


def test_equal_to_isotonic_regression_of_the_rates(rng):
    """Independent rates, divided by the first: an isotonic fit of the rates themselves."""
    for _ in range(25):
        v = rng.uniform(0.01, 0.2, size=8)
        r = -0.3 * np.log(np.arange(1, 9)) + rng.normal(scale=np.sqrt(v))
        fitted = IsotonicRegression(increasing=False).fit_transform(
            np.arange(8), r, sample_weight=1 / v
        )
        smoothed = from_rates(r, v).smooth()
        assert np.log(smoothed.examination) == pytest.approx(fitted - fitted[0], abs=1e-6)


def test_position_1_may_be_the_one_that_was_measured_wrong():
    """Rates 1, 2, 2, 2: pooled with the first the curve is flat at 1, not clipped."""
    smoothed = from_rates(np.log([1.0, 2, 2, 2]), [0.1] * 4).smooth()
    assert smoothed.examination == pytest.approx(np.ones(4))


def test_a_known_curve_is_smoothed_with_equal_weights():
    smoothed = KnownBias([1.0, 0.2, 0.8, 0.1]).smooth()
    root = np.sqrt(0.2 * 0.8)
    assert smoothed.examination == pytest.approx([1, root, root, 0.1])
    assert smoothed.is_known


def test_smoothing_never_leaves_a_step_up(rng):
    for _ in range(20):
        z = np.concatenate([[0], rng.normal(size=9)])
        A = rng.normal(size=(9, 9))
        smoothed = estimate(z, A @ A.T + 0.01 * np.eye(9)).smooth()
        assert np.all(np.diff(smoothed.examination) <= 1e-12)
        assert np.all(np.linalg.eigvalsh(smoothed.covariance) > -1e-10)


def test_smoothing_is_the_nearest_falling_curve(rng):
    """Against a direct search over falling curves."""
    A = rng.normal(size=(4, 4))
    V = A @ A.T + 0.2 * np.eye(4)
    z = np.array([0, -0.2, 0.3, -0.5, 0.1])
    inverse = np.linalg.inv(V)

    def distance(d):
        gap = z[1:] - d
        return gap @ inverse @ gap

    falling = [{"type": "ineq", "fun": lambda d: np.concatenate([[-d[0]], -np.diff(d)])}]
    direct = minimize(distance, -np.arange(1, 5.0), constraints=falling, tol=1e-12)
    assert np.log(estimate(z, V).smooth().examination[1:]) == pytest.approx(direct.x, abs=1e-5)


@pytest.mark.parametrize("shape", ["smooth", "fit_power_law"])
def test_what_cannot_be_shaped(shape):
    with pytest.raises(OptionError, match="covers position 1 alone"):
        getattr(KnownBias([1.0]), shape)()
    with pytest.raises(OptionError, match="click noise"):
        getattr(KnownBias([1.0, 0.5], eps_plus=[0.9, 0.8], eps_minus=[0.1, 0.1]), shape)()
    unsure = PositionBias(np.array([1.0, 0.5]), std_error=np.array([0.0, np.nan]))
    with pytest.raises(OptionError, match="without a standard error"):
        getattr(unsure, shape)()


# ---- quadratic, and constant below


def quadratic(b, c, depth=8):
    x = np.arange(depth)
    return 1 + b * x + c * x**2


def test_a_quadratic_is_found_exactly():
    theta = quadratic(-0.2, 0.012)
    fitted = fit_quadratic(estimate(np.log(theta), 0.01 * np.eye(7)))
    assert fitted.examination == pytest.approx(theta)
    assert fitted.status.part("bias.quadratic-fitted").fields["p_value"] == pytest.approx(1)


def test_outliers_are_left_out_and_named():
    theta = quadratic(-0.2, 0.012)
    z = np.log(theta)
    z[3] += 0.5
    z[6] -= 0.5
    bias = estimate(z, 1e-4 * np.eye(7))
    assert fit_quadratic(bias).examination != pytest.approx(theta, abs=0.01)
    cleaned = fit_quadratic(bias, outlier_limit=3)
    assert cleaned.examination == pytest.approx(theta)
    assert cleaned.status.part("bias.quadratic-fitted").fields["outliers"] == (4, 7)


def test_the_quadratic_has_the_errors_of_least_squares():
    V = np.diag([0.01, 0.02, 0.03, 0.04])
    theta = quadratic(-0.2, 0.01, depth=5)
    bias = estimate(np.log(theta), V / np.outer(theta[1:], theta[1:]))
    x = np.arange(1, 5.0)
    X = np.stack([x, x**2], axis=1)
    spread = X @ np.linalg.inv(X.T @ np.linalg.inv(V) @ X) @ X.T
    assert fit_quadratic(bias).std_error[1:] == pytest.approx(np.sqrt(np.diag(spread)))


def test_a_quadratic_below_zero_is_refused():
    bias = estimate(np.log([1, 0.9, 0.6, 0.1, 0.1]), np.diag([1e-4, 1e-4, 9.0, 9.0]))
    with pytest.raises(OptionError, match=r"falls to -.* at position .*fit_power_law"):
        fit_quadratic(bias)


def test_a_quadratic_needs_an_estimate_at_four_positions():
    with pytest.raises(OptionError, match="4 positions or more"):
        fit_quadratic(estimate([0, -1, -2.0], np.eye(2)))
    with pytest.raises(OptionError, match="with standard errors"):
        fit_quadratic(KnownBias(quadratic(-0.1, 0.0)))


def test_constant_below_the_last():
    bias = estimate(np.log([1, 0.5, 0.4]), np.array([[0.01, 0.002], [0.002, 0.03]]))
    longer = hold_last(bias, 5)
    assert longer.examination == pytest.approx([1, 0.5, 0.4, 0.4, 0.4])
    assert longer.std_error[3:] == pytest.approx([bias.std_error[2]] * 2)
    # The positions below are one number with the last: their ratio is known exactly.
    V = log_ratios(longer)[1]
    assert V[4, 4] + V[2, 2] - 2 * V[2, 4] == pytest.approx(0)
    assert longer.assumes[-1].code == "bias.constant-below"
    assert longer.assumes[-1].fields == {"position": 3}
    assert hold_last(bias, 3).examination == pytest.approx(bias.examination)
    with pytest.raises(DepthError, match="must not lie above the last position of the curve, 3"):
        hold_last(bias, 2)
