r"""Where the clicks on a document fall: a likelihood in which its relevance plays no part.

Document i is seen in context x, n_ik times at position k, with c_ik clicks. Under
P(click) = theta_k(x) gamma_i the share of its clicks expected at k is

    P_ik = n_ik theta_k(x) / sum_j n_ij theta_j(x)

whatever gamma_i. With log theta_k(x) = z_k(x) the log-likelihood of the shares,

    L = sum_i sum_k c_ik log P_ik

is that of a multinomial logit with offsets log n, concave in z, and hence in the coefficients of
z_k(x) = B_k . (1, x). Its score sum_i (c_ik - c_i. P_ik) has mean zero for each document by itself:
the estimate is right for any relevance, and for clicks of any distribution with that mean
[wooldridge1999]_. For one document at two positions it is the odds of the pair.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt.bias.contextual.evidence import Evidence

_CHUNK = 4096  # contexts whose K x K curvatures are held at once


@dataclass(frozen=True, eq=False)
class Problem:
    """Evidence with the design of its contexts.

    design : (contexts, p) rows (1, x) with x of mean 0 and variance 1
    penalty : (p,) of the squared coefficients: 0 for the intercept
    """

    evidence: Evidence
    design: FloatArray
    penalty: FloatArray

    @property
    def depth(self) -> int:
        """K."""
        return int(self.evidence.clicks.shape[1])


@dataclass(frozen=True, eq=False)
class Optimum:
    """B : (K, p) with zeros for position 1; hessian : (K-1, p, K-1, p) of the penalised -L."""

    B: FloatArray
    hessian: FloatArray
    value: float
    steps: int
    residual: float
    converged: bool


def shares(z: FloatArray, evidence: Evidence) -> FloatArray:
    """(rows, K) P_ik for z (contexts, K)."""
    weight = evidence.impressions * np.exp(z - z.max(axis=1, keepdims=True))[evidence.context]
    return weight / weight.sum(axis=1, keepdims=True)


def log_likelihood(z: FloatArray, evidence: Evidence) -> float:
    """L for z (contexts, K)."""
    clicked = evidence.clicks > 0
    P = shares(z, evidence)
    return float(np.sum(evidence.clicks[clicked] * np.log(P[clicked])))


def value_and_gradient(B: FloatArray, problem: Problem) -> tuple[float, FloatArray]:
    """L minus the penalty / 2, and its derivative by B (K, p)."""
    evidence = problem.evidence
    z = problem.design @ B.T
    P = shares(z, evidence)
    clicked = evidence.clicks > 0
    value = np.sum(evidence.clicks[clicked] * np.log(P[clicked]))
    residual = evidence.clicks - evidence.clicks.sum(axis=1, keepdims=True) * P
    gradient = _by_context(residual, evidence.context, len(z)).T @ problem.design
    value -= 0.5 * np.sum(problem.penalty * B**2)
    return float(value), gradient - problem.penalty * B


def curvature(B: FloatArray, problem: Problem) -> FloatArray:
    """-d2/dB2 without position 1: (K-1, p, K-1, p), penalty and all."""
    evidence = problem.evidence
    P = shares(problem.design @ B.T, evidence)
    total = evidence.clicks.sum(axis=1)

    def of_cells(mine: slice) -> FloatArray:
        return total[mine, None, None] * (_diagonal(P[mine]) - _outer(P[mine], P[mine]))

    H = _spread(of_cells, problem)
    for k in range(problem.depth - 1):
        H[k, :, k, :] += np.diag(problem.penalty)
    return H


def maximise(problem: Problem, *, tolerance: float, max_steps: int) -> Optimum:
    """Newton's method with halved steps: the likelihood is concave, so any start will do."""
    all_clicks = float(problem.evidence.clicks.sum())
    B = np.zeros((problem.depth, problem.design.shape[1]))
    value, gradient = value_and_gradient(B, problem)
    for step in range(max_steps + 1):
        H = curvature(B, problem)
        residual = float(np.abs(gradient[1:]).max()) / all_clicks
        if residual <= tolerance or step == max_steps:
            break
        B, value, gradient = _uphill(B, value, gradient, H, problem)
    return Optimum(B, H, value, step, residual, residual <= tolerance)


def scores(B: FloatArray, problem: Problem) -> tuple[FloatArray, int]:
    """Sum over queries of u u', u a query's part of the score; and how many queries have one."""
    evidence = problem.evidence
    P = shares(problem.design @ B.T, evidence)
    residual = (evidence.clicks - evidence.clicks.sum(axis=1, keepdims=True) * P)[:, 1:]
    order = np.argsort(evidence.query, kind="stable")
    first = np.flatnonzero(np.diff(evidence.query[order], prepend=-1))
    size = residual.shape[1] * problem.design.shape[1]
    M = np.zeros((size, size))
    for start in range(0, len(first), _CHUNK):
        ends = np.append(first, len(order))[start : start + _CHUNK + 1]
        rows = order[ends[0] : ends[-1]]
        each = _outer(residual[rows], problem.design[evidence.context[rows]])
        u = np.add.reduceat(each.reshape(len(rows), size), ends[:-1] - ends[0], axis=0)
        M += u.T @ u
    return M, len(first)


def session_noise(B: FloatArray, problem: Problem) -> FloatArray:
    """What `scores` is expected to be if sessions are all the noise there is.

    Clicks of a cell are binomial with probability theta_k gamma_i, where gamma_i = c_i. / sum n
    theta; cells of a document are independent. The score is A c with A = diag(1) - P 1', so with v
    the binomial variances A diag(v) A' = diag(v) - v P' - P v' + (sum v) P P'.
    """
    evidence = problem.evidence
    z = problem.design @ B.T
    theta = np.exp(z)[evidence.context]
    seen = (evidence.impressions * theta).sum(axis=1, keepdims=True)
    chance = np.minimum(theta * evidence.clicks.sum(axis=1, keepdims=True) / seen, 1.0)
    v = evidence.impressions * chance * (1 - chance)
    P = shares(z, evidence)

    def of_cells(mine: slice) -> FloatArray:
        cross = _outer(v[mine], P[mine])
        both = v[mine].sum(axis=1)[:, None, None] * _outer(P[mine], P[mine])
        return _diagonal(v[mine]) - cross - cross.transpose(0, 2, 1) + both

    size = (problem.depth - 1) * problem.design.shape[1]
    return _spread(of_cells, problem).reshape(size, size)


def _uphill(
    B: FloatArray, value: float, gradient: FloatArray, H: FloatArray, problem: Problem
) -> tuple[FloatArray, float, FloatArray]:
    K1, p = H.shape[:2]
    step = np.zeros_like(B)
    step[1:] = np.linalg.solve(H.reshape(K1 * p, -1), gradient[1:].ravel()).reshape(K1, p)
    gain = float(np.sum(gradient * step))
    halving = 0
    new, slope = value_and_gradient(B + step, problem)
    # So near the maximum the gain is lost in the value's rounding, and Newton's step is right.
    while gain > 1e-9 * abs(value) and new < value + 1e-4 * gain / 2**halving:
        halving += 1
        new, slope = value_and_gradient(B + step / 2**halving, problem)
    return B + step / 2**halving, new, slope


def _spread(of_cells: Callable[[slice], FloatArray], problem: Problem) -> FloatArray:
    """sum_i S_i x x' over rows, S_i (K, K) without position 1: (K-1, p, K-1, p)."""
    context, X = problem.evidence.context, problem.design
    K1, p = problem.depth - 1, X.shape[1]
    H = np.zeros((p * p, K1 * K1))
    for start in range(0, len(X), _CHUNK):
        here = X[start : start + _CHUNK]
        begin, end = np.searchsorted(context, [start, start + _CHUNK])
        S = of_cells(slice(begin, end))[:, 1:, 1:].reshape(end - begin, K1 * K1)
        H += _outer(here, here).reshape(-1, p * p).T @ _by_context(
            S, context[begin:end] - start, len(here)
        )
    return np.ascontiguousarray(H.reshape(p, p, K1, K1).transpose(2, 0, 3, 1))


def _outer(a: FloatArray, b: FloatArray) -> FloatArray:
    return a[:, :, None] * b[:, None, :]


def _diagonal(a: FloatArray) -> FloatArray:
    diagonal = np.zeros((*a.shape, a.shape[1]))
    diagonal[:, np.arange(a.shape[1]), np.arange(a.shape[1])] = a
    return diagonal


def _by_context(values: FloatArray, context: IntArray, n: int) -> FloatArray:
    """(n, columns) sums over the rows of each context; rows are sorted by it."""
    sums = np.zeros((n, values.shape[1]))
    if len(values):
        first = np.flatnonzero(np.diff(context, prepend=-1))
        sums[context[first]] = np.add.reduceat(values, first, axis=0)
    return sums
