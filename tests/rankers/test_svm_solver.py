"""The small quadratic program and the cutting planes, against enumeration and known optima."""

import itertools

import numpy as np
import pytest

from untilt.rankers.linear.cutting_plane import Planes, minimise, solve_simplex_qp


def best_by_enumeration(G, b):
    """Try every set of entries that may be above 0."""
    m, best, best_value = len(b), None, np.inf
    for size in range(1, m + 1):
        for index in itertools.combinations(range(m), size):
            at = np.array(index)
            system = np.block(
                [[G[np.ix_(at, at)], np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]]
            )
            z = np.linalg.lstsq(system, np.append(b[at], 1.0), rcond=None)[0][:size]
            if np.any(z < -1e-12) or abs(z.sum() - 1) > 1e-9:
                continue
            beta = np.zeros(m)
            beta[at] = z
            value = 0.5 * beta @ G @ beta - b @ beta
            if value < best_value:
                best, best_value = beta, value
    return best, best_value


@pytest.mark.parametrize("seed", range(20))
def test_program_equals_enumeration(seed):
    rng = np.random.default_rng(seed)
    m, d = 6, int(rng.integers(1, 8))
    A = rng.normal(size=(m, d))
    G, b = A @ A.T, rng.normal(size=m)
    start = np.eye(m)[rng.integers(m)]
    beta = solve_simplex_qp(G, b, start)
    assert beta.min() >= 0
    assert beta.sum() == pytest.approx(1)
    value = 0.5 * beta @ G @ beta - b @ beta
    assert value == pytest.approx(best_by_enumeration(G, b)[1], abs=1e-9)


def test_program_with_equal_and_zero_planes():
    G, b = np.zeros((3, 3)), np.array([0.0, 2.0, 2.0])
    beta = solve_simplex_qp(G, b, np.array([1.0, 0.0, 0.0]))
    assert beta[0] == 0
    assert beta @ b == pytest.approx(2.0)
    G = np.ones((4, 4))
    beta = solve_simplex_qp(G, np.array([1.0, 1.0, 1.0, 0.5]), np.array([0, 0, 0, 1.0]))
    assert beta[:3].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_program_of_many_planes_meets_the_optimality_conditions(scale):
    rng = np.random.default_rng(3)
    A = rng.normal(size=(120, 15)) * scale
    G, b = A @ A.T, rng.normal(size=120) * scale**2
    beta = solve_simplex_qp(G, b, np.eye(120)[7])
    gain = b - G @ beta
    level = gain[beta > 0]
    assert np.ptp(level) <= 1e-8 * np.abs(G).max()
    assert gain.max() <= level.max() + 1e-8 * np.abs(G).max()


class OneDimension:
    """R(w) = mean of max(0, 1 - w x): optimum by a fine grid."""

    def __init__(self, x):
        self.x, self.n_features = x, 1

    def scores(self, w):
        return self.x * w[0]

    def risk(self, scores):
        inside = scores < 1
        return float(np.mean(np.maximum(0, 1 - scores))), -inside.astype(float) / len(self.x)

    def pull(self, gradient):
        return np.array([gradient @ self.x])


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_cutting_planes_find_the_optimum_and_bound_it(C):
    x = np.random.default_rng(0).normal(1.0, 1.0, size=200)
    X = OneDimension(x)
    grid = np.linspace(0, 3, 30_001)
    objective = np.array([0.5 * w * w + C * np.mean(np.maximum(0, 1 - w * x)) for w in grid])
    solution = minimise(X, X.risk, C, tolerance=1e-6, max_iter=500)
    assert solution.converged
    assert solution.objective == pytest.approx(objective.min(), rel=1e-6)
    assert solution.bound <= objective.min() + 1e-12
    assert solution.gap <= 1e-6


def test_the_gap_tells_when_it_was_stopped():
    X = OneDimension(np.random.default_rng(0).normal(1.0, 1.0, size=200))
    solution = minimise(X, X.risk, 100.0, tolerance=1e-9, max_iter=1)
    assert not solution.converged
    assert solution.gap > 1e-9
    assert solution.rounds == 1


def test_a_risk_that_no_weight_can_lower():
    """Features that never vary: every plane is flat."""
    X = OneDimension(np.zeros(10))
    solution = minimise(X, X.risk, 5.0, tolerance=1e-3, max_iter=10)
    assert solution.converged
    assert solution.objective == pytest.approx(5.0)
    assert solution.weights.tolist() == [0.0]


def test_idle_planes_go_and_the_zero_plane_stays():
    planes = Planes.none(2)
    for t in range(40):
        planes.add(np.array([-1.0 - t, 0.5 * t]), 1.0 + t)
        planes.solve(1.0)
        planes.forget()
    assert len(planes) < 40
    assert planes.offset[0] == 0
    assert not planes.slope[0].any()
    np.testing.assert_allclose(planes.gram, planes.slope @ planes.slope.T)
