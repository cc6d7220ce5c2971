"""A small quadratic program over the simplex, solved exactly by an active set."""

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray


def solve_simplex_qp(G: FloatArray, b: FloatArray, start: FloatArray) -> FloatArray:
    """The beta that minimises 1/2 beta' G beta - b' beta with beta >= 0 and sum(beta) = 1.

    G is positive semidefinite. On a free set the optimum solves one linear system; an entry that
    would turn negative leaves the set, the entry with the largest gain enters it, until no entry
    gains. Entries enter one at a time, so the objective falls at every step and none is seen twice.

    Parameters
    ----------
    G, b : (m, m) and (m,)
    start : (m,) any point of the simplex; near the optimum it saves most of the work
    """
    m = len(b)
    # Nearly equal planes make G singular; this ridge picks one mix of them and moves the optimum
    # by no more than rounding does. With G = 0 it alone keeps the linear systems solvable.
    size = max(float(np.trace(G)), float(np.abs(b).max()), np.finfo(float).tiny)
    H = G + 1e-13 * size * np.eye(m)
    tolerance = 1e-12 * max(float(np.diag(G).max()), float(np.abs(b).max()))
    beta, free = start.copy(), start > 0
    for _ in range(20 * m + 50):
        beta, free = _on_free_set(H, b, beta, free)
        gain = b - H @ beta
        level = float(gain[free].max())
        gain[free] = -np.inf
        candidate = int(np.argmax(gain))
        if gain[candidate] <= level + tolerance:
            break
        free[candidate] = True
    return np.maximum(beta, 0.0) / np.maximum(beta, 0.0).sum()


def _on_free_set(
    H: FloatArray, b: FloatArray, beta: FloatArray, free: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Walk to the optimum of the free entries, dropping those that reach 0 on the way."""
    beta, free = beta.copy(), free.copy()
    while True:
        index = np.flatnonzero(free)
        target = _equality_optimum(H[np.ix_(index, index)], b[index])
        here = beta[index]
        falling = target <= 0
        if not falling.any():
            beta[index] = target
            return beta, free
        drop = here[falling] - target[falling]
        steps = np.divide(here[falling], drop, out=np.zeros_like(drop), where=drop > 0)
        step = min(1.0, float(steps.min()))
        moved = here + step * (target - here)
        out = index[falling][steps <= step]
        beta[index] = np.maximum(moved, 0.0)
        beta[out] = 0.0
        free[out] = False


def _equality_optimum(H: FloatArray, b: FloatArray) -> FloatArray:
    """The optimum with sum 1 and any sign: H z + mu 1 = b, 1' z = 1."""
    m = len(b)
    system = np.ones((m + 1, m + 1))
    # Scaled so that the border is of the size of H; otherwise a large C makes the system look
    # singular.
    size = max(float(np.abs(np.diag(H)).max()), np.finfo(float).tiny)
    system[:m, :m] = H / size
    system[m, m] = 0.0
    return np.linalg.solve(system, np.append(b / size, 1.0))[:m]
