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
from functools import lru_cache
from typing import Any

import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray
from untilt._core.random import child_generator
from untilt.bias.contextual.evidence import Contexts, Evidence
from untilt.bias.log_ratios import LARGE_SHARE, STAYS, effective_by_column
from untilt.networks import jax_layers
from untilt.networks.batches import PaddedRows
from untilt.networks.mlp import Network, normalised
from untilt.networks.training import Loss, Stopping, Trained, train

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


@dataclass(frozen=True, eq=False)
class QueryScores:
    """The scores of queries: `squares` sums u u', u a query's part of the score.

    Of a query with a good part of the clicks u is H (H - H_q)^-1 times its part, with H_q its own
    curvature: the estimate without it is one Newton step away. n_queries : that have a part;
    effective : (K, p) effective queries by their curvature for each coefficient
    """

    squares: FloatArray
    n_queries: int
    effective: FloatArray


def scores(optimum: Optimum, problem: Problem) -> QueryScores:
    """The scores at the optimum."""
    evidence = problem.evidence
    P = shares(problem.design @ optimum.B.T, evidence)
    total = evidence.clicks.sum(axis=1, keepdims=True)
    residual = (evidence.clicks - total * P)[:, 1:]
    order = np.argsort(evidence.query, kind="stable")
    first = np.flatnonzero(np.diff(evidence.query[order], prepend=-1))
    x2 = problem.design[evidence.context[order]] ** 2
    each = _outer((total * P * (1 - P))[order], x2).reshape(len(order), -1)
    weight = np.add.reduceat(each, first, axis=0)
    large = np.any(weight > LARGE_SHARE * weight.sum(axis=0), axis=1)
    size = residual.shape[1] * problem.design.shape[1]
    M = np.zeros((size, size))
    for start in range(0, len(first), _CHUNK):
        ends = np.append(first, len(order))[start : start + _CHUNK + 1]
        rows = order[ends[0] : ends[-1]]
        each = _outer(residual[rows], problem.design[evidence.context[rows]])
        u = np.add.reduceat(each.reshape(len(rows), size), ends[:-1] - ends[0], axis=0)
        for q in np.flatnonzero(large[start : start + _CHUNK]):
            own = np.sort(order[ends[q] : ends[q + 1]])
            u[q] = _without(own, u[q], optimum, problem)
        M += u.T @ u
    effective = effective_by_column(weight).reshape(optimum.B.shape)
    return QueryScores(M, len(first), effective)


def _without(rows: IntArray, u: FloatArray, optimum: Optimum, problem: Problem) -> FloatArray:
    """H (H - H_q)^-1 u for the query of these rows; see `STAYS`."""
    own = Problem(problem.evidence.take(rows), problem.design, 0 * problem.penalty)
    H, H_q = (each.reshape(len(u), len(u)) for each in (optimum.hessian, curvature(optimum.B, own)))
    return np.asarray(H @ np.linalg.solve(H - (1 - STAYS) * H_q, u))


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


# log theta_k(x) by a small network, learned from where the clicks on documents fall.

# With fewer queries a held-out share of them says nothing about the rest.
FEWEST_TO_HOLD_OUT = 20


@dataclass(frozen=True)
class NetworkOptions:
    """How the network of `ContextualBias` is made and trained; see there."""

    widths: tuple[int, ...]
    activation: str
    l2: float
    epochs: int
    batch_size: int
    learning_rate: float
    validation: float
    patience: int
    seed: int


@dataclass(frozen=True, eq=False)
class Inputs:
    """Evidence with its contexts and their normalisation, and the curve without any context."""

    evidence: Evidence
    contexts: Contexts
    mean: FloatArray
    scale: FloatArray
    start: FloatArray


def fit_network(
    inputs: Inputs, options: NetworkOptions, *, member: int = 0
) -> tuple[Network, Trained]:
    """Train one network; member 0 on the queries as they are, others on bootstrap samples."""
    evidence = inputs.evidence
    queries, unit = np.unique(evidence.query, return_inverse=True)
    weight = _times_drawn(len(queries), options.seed, member)[unit.ravel()]
    held_out = _held_out(len(queries), options, member)[unit.ravel()]
    learn = np.flatnonzero(~held_out & (weight > 0))
    x = normalised(inputs.contexts.values, inputs.mean, inputs.scale)
    clicks = float(np.dot(weight[learn], evidence.clicks[learn].sum(axis=1)))
    trained = train(
        _loss(options.activation),
        _start(inputs, options, member),
        PaddedRows(_columns(evidence, weight, x, learn, clicks), options.batch_size, options.seed),
        optimiser=jax_layers.Optimiser("adam", options.learning_rate, "cosine"),
        epochs=options.epochs,
        constants={
            "l2_per_click": np.array(options.l2 / clicks, np.float32),
            "per_batch": np.array(len(learn) / min(len(learn), options.batch_size), np.float32),
        },
        stopping=_stopping(inputs, options, np.flatnonzero(held_out)),
        what="examination by context",
    )
    network = jax_layers.to_network(
        trained.params, options.activation, mean=inputs.mean, scale=inputs.scale
    )
    return network, trained


@lru_cache(maxsize=8)
def _loss(activation: str) -> Loss:
    """-sum_i w_i sum_k c_ik log P_ik per click, plus l2 / 2 of the squared weights per click."""

    def loss(params: Any, batch: Any) -> Any:
        jax, jnp = jax_layers.jax_modules().jax, jax_layers.jax_modules().numpy
        z = jax_layers.apply_layers(params, batch["x"], activation) + batch["log_shown"]
        log_share = jax.nn.log_softmax(z, axis=1)
        # Never shown there: no clicks, and log n stands at -30 rather than at minus infinity.
        fit = jnp.sum(batch["mask"][:, None] * batch["clicks"] * log_share)
        return (
            0.5 * batch["l2_per_click"] * jax_layers.sum_of_squares(params)
            - batch["per_batch"] * fit
        )

    return loss


def _columns(
    evidence: Evidence, weight: FloatArray, x: FeatureArray, rows: IntArray, clicks: float
) -> dict[str, FeatureArray]:
    shown = evidence.impressions[rows]
    log_shown = np.log(np.where(shown > 0, shown, np.exp(-30.0)))
    weighted = weight[rows, None] * evidence.clicks[rows] / clicks
    return {
        "x": x[evidence.context[rows]],
        "log_shown": log_shown.astype(np.float32),
        "clicks": weighted.astype(np.float32),
    }


def _start(inputs: Inputs, options: NetworkOptions, member: int) -> Any:
    """Random hidden layers; outputs at the curve without context, whatever the input."""
    depth = inputs.evidence.clicks.shape[1]
    widths = (inputs.contexts.values.shape[1], *options.widths, depth)
    seed = child_generator(options.seed, 0, member)
    layers = jax_layers.start_layers(seed, widths, activation=options.activation)
    layers["weights"][-1] = np.zeros_like(layers["weights"][-1])
    layers["biases"][-1] = inputs.start.astype(np.float32)
    return layers


def _times_drawn(n_queries: int, seed: int, member: int) -> FloatArray:
    if member == 0:
        return np.ones(n_queries)
    draw = child_generator(seed, 2, member)
    return draw.multinomial(n_queries, np.full(n_queries, 1 / n_queries)).astype(float)


def _held_out(n_queries: int, options: NetworkOptions, member: int) -> BoolArray:
    """(queries,) which are not learned from but say when to stop."""
    held_out = np.zeros(n_queries, dtype=bool)
    if n_queries >= FEWEST_TO_HOLD_OUT and options.validation > 0:
        draw = child_generator(options.seed, 3, member)
        n = max(1, round(options.validation * n_queries))
        held_out[draw.choice(n_queries, n, replace=False)] = True
    return held_out


def _stopping(inputs: Inputs, options: NetworkOptions, rows: IntArray) -> Stopping | None:
    if len(rows) == 0:
        return None
    evidence = inputs.evidence.take(rows)

    def value(params: Any) -> float:
        network = jax_layers.to_network(
            params, options.activation, mean=inputs.mean, scale=inputs.scale
        )
        return log_likelihood(network.forward(inputs.contexts.values), evidence)

    return Stopping(value, options.patience)
