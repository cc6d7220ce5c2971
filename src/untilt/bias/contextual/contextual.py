r"""Position bias that differs between queries or sessions: examination by position and context.

It is fitted by where the clicks on a document fall, a likelihood in which relevance plays no part.

Document i is seen in context x, n_ik times at position k, with c_ik clicks. Under
P(click) = theta_k(x) gamma_i the share of its clicks expected at k is

    P_ik = n_ik theta_k(x) / sum_j n_ij theta_j(x)

whatever gamma_i. With log theta_k(x) = z_k(x) the log-likelihood of the shares,

    L = sum_i sum_k c_ik log P_ik

is that of a multinomial logit with offsets log n, concave in z, and hence in the coefficients of
z_k(x) = B_k . (1, x). Its score sum_i (c_ik - c_i. P_ik) has mean zero for every document:
the estimate is right for any relevance, and for clicks of any distribution with that mean
[wooldridge1999]_. For one document at two positions it is the odds of the pair.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np

from untilt._core import ascent, ragged
from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.estimator import BaseEstimator
from untilt._core.random import child_generator
from untilt._core.statistics import check_level
from untilt._core.threads import one_blas_thread
from untilt.bias.contextual.curves import (
    Context,
    Contexts,
    Evidence,
    LinearCurves,
    NetworkCurves,
    context_cells,
    contexts_of,
    design_of,
    evidence_of,
)
from untilt.bias.curve import SHARED_CLICKS
from untilt.bias.estimator import absent_positions, check_clicks, checked_depth, require_several
from untilt.bias.log_ratios import LARGE_SHARE, MAXIMUM, NO_MAXIMUM, STAYS, effective_by_column
from untilt.bias.position_graph import position_graph
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.layout import Packed
from untilt.errors import IdentifiabilityError, OptionError, check_choice
from untilt.facts import joined, note
from untilt.networks import mlp
from untilt.networks.batches import PaddedRows
from untilt.networks.mlp import Network, normalised
from untilt.networks.training import Loss, StoppingRule, Trained, train

POSITION_BASED = note(
    "contextual.position-based",
    "clicks follow the position-based model: P(click) = theta_k(context) gamma",
)()
SAME_RELEVANCE = note(
    "contextual.same-relevance",
    "in one context a document is as relevant at one position as at another",
)()

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


class _Point(NamedTuple):
    value: float
    gradient: FloatArray


def maximise(problem: Problem, *, tolerance: float, max_steps: int) -> Optimum:
    """The coefficients of highest likelihood, which is concave: any start will do."""
    shape = problem.depth, problem.design.shape[1]

    def function(B: FloatArray) -> _Point:
        value, gradient = value_and_gradient(B, problem)
        gradient[0] = 0.0  # position 1 is fixed
        return _Point(value, gradient)

    def step(B: FloatArray, here: _Point) -> FloatArray:
        size = (shape[0] - 1) * shape[1]
        free = np.linalg.solve(curvature(B, problem).reshape(size, size), here.gradient[1:].ravel())
        return np.vstack([np.zeros(shape[1]), free.reshape(-1, shape[1])])

    clicks = float(problem.evidence.clicks.sum())
    end = ascent.maximise(
        function, step, np.zeros(shape), scale=clicks, tolerance=tolerance, max_steps=max_steps
    )
    hessian = curvature(end.x, problem)
    return Optimum(end.x, hessian, end.at.value, end.steps, end.residual, end.converged)


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


@dataclass(frozen=True, eq=False)
class ContextInputs:
    """Evidence with its contexts and their normalisation, and the curve without any context."""

    evidence: Evidence
    contexts: Contexts
    mean: FloatArray
    scale: FloatArray
    start: FloatArray


def fit_network(
    inputs: ContextInputs, options: "ContextualBias", *, member: int = 0
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
        optimiser=mlp.Optimiser("adam", options.learning_rate, "cosine"),
        epochs=options.epochs,
        constants={
            "l2_per_click": np.array(options.l2 / clicks, np.float32),
            "per_batch": np.array(len(learn) / min(len(learn), options.batch_size), np.float32),
        },
        stopping=_stopping(inputs, options, np.flatnonzero(held_out)),
        what="examination by context",
    )
    network = mlp.to_network(
        trained.params, options.activation, mean=inputs.mean, scale=inputs.scale
    )
    return network, trained


@lru_cache(maxsize=8)
def _loss(activation: str) -> Loss:
    """-sum_i w_i sum_k c_ik log P_ik per click, plus l2 / 2 of the squared weights per click."""

    def loss(params: Any, batch: Any) -> Any:
        jax, jnp = mlp.jax_modules().jax, mlp.jax_modules().numpy
        z = mlp.apply_layers(params, batch["x"], activation) + batch["log_shown"]
        log_share = jax.nn.log_softmax(z, axis=1)
        # Never shown there: no clicks, and log n is -30 rather than minus infinity.
        fit = jnp.sum(batch["mask"][:, None] * batch["clicks"] * log_share)
        return 0.5 * batch["l2_per_click"] * mlp.sum_of_squares(params) - batch["per_batch"] * fit

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


def _start(inputs: ContextInputs, options: "ContextualBias", member: int) -> Any:
    """Random hidden layers; outputs at the curve without context, whatever the input."""
    depth = inputs.evidence.clicks.shape[1]
    widths = (inputs.contexts.values.shape[1], *options.widths, depth)
    seed = child_generator(options.seed, 0, member)
    layers = mlp.start_layers(seed, widths, activation=options.activation)
    layers["weights"][-1] = np.zeros_like(layers["weights"][-1])
    layers["biases"][-1] = inputs.start.astype(np.float32)
    return layers


def _times_drawn(n_queries: int, seed: int, member: int) -> FloatArray:
    if member == 0:
        return np.ones(n_queries)
    draw = child_generator(seed, 2, member)
    return draw.multinomial(n_queries, np.full(n_queries, 1 / n_queries)).astype(float)


def _held_out(n_queries: int, options: "ContextualBias", member: int) -> BoolArray:
    """(queries,) which are not learned from but say when to stop."""
    held_out = np.zeros(n_queries, dtype=bool)
    if n_queries >= FEWEST_TO_HOLD_OUT and options.validation > 0:
        draw = child_generator(options.seed, 3, member)
        n = max(1, round(options.validation * n_queries))
        held_out[draw.choice(n_queries, n, replace=False)] = True
    return held_out


def _stopping(
    inputs: ContextInputs, options: "ContextualBias", rows: IntArray
) -> StoppingRule | None:
    if len(rows) == 0:
        return None
    evidence = inputs.evidence.take(rows)

    def value(params: Any) -> float:
        network = mlp.to_network(params, options.activation, mean=inputs.mean, scale=inputs.scale)
        return log_likelihood(network.forward(inputs.contexts.values), evidence)

    return StoppingRule(value, options.patience)


MODELS = ("linear", "network")
NO_CURVATURE = 1e-10  # of the largest: the log says nothing about a direction with less


@method(
    "bias", "contextual", title="Contextual position bias", order=40,
    rests_on="repeated positions", needs=("context",), reference="fang2019contextual",
    note="a curve for each context, such as device or kind of query",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class ContextualBias(BaseEstimator):
    r"""Examination that depends on position and context ([fang2019contextual]_).

        P(click at k in context x) = theta_k(x) gamma
        linear:   log(theta_k(x) / theta_1(x)) = B_k . (1, x)
        network:  log(theta_k(x) / theta_1(x)) = f_k(x) - f_1(x)

    Learned from documents shown at several positions, by the likelihood of *where* the clicks on
    each document fall (`likelihood`): with n_k impressions at k the share n_k theta_k(x) /
    sum_j n_j theta_j(x) is expected at k, whatever the document's relevance. The paper's likelihood
    of all pairs needs the mean relevance r_kl(x) of each pair of positions as a second model of the
    context, and is off where that one is wrong; here relevance drops out. The linear form is
    concave: one maximum, found by Newton's method.

    Errors of the linear form are the larger of clustered by query and session noise, as for
    `AllPairs`; those of the network come from `n_bootstrap` refits on drawn queries.

    Learned: `curves_` (a `ContextualCurve`: `.at(position, context)`, `.curve(context)`,
    `.average()`, `.groups(log, context)`), `bias_` (its average).

    Parameters
    ----------
    model : "linear" or "network" (a small one, trained with JAX: the extra `neural`)
    depth : positions 1..depth; all of the log where not given
    level : of the intervals
    l2 : penalty l2 / 2 on squared slopes by normalised context features, or on the squared weights
        of the network: a slope weighs as much as l2 clicks would
    tolerance, max_steps : of Newton's search: no derivative above `tolerance` times all clicks
    widths, activation : hidden layers of the network
    epochs, batch_size, learning_rate : of its training; the rate falls to 0 on a cosine
    validation, patience : share of the queries that are held out, from 20 queries on; training ends
        when their likelihood has not risen for `patience` epochs, and the best is kept
    n_bootstrap : refits of the network for errors; with 0 its curves have no interval
    seed : of the network
    """

    model: str = "linear"
    depth: int | None = None
    level: float = 0.95
    l2: float = 1.0
    tolerance: float = 1e-9
    max_steps: int = 100
    widths: tuple[int, ...] = (16, 16)
    activation: str = "elu"
    epochs: int = 200
    batch_size: int = 1024
    learning_rate: float = 0.01
    validation: float = 0.2
    patience: int = 20
    n_bootstrap: int = 0
    seed: int = 0

    @one_blas_thread
    def fit(self, log: ClickLog, context: Context = None, *, per: str = "query") -> Self:
        """Estimate the curves of this log. Raises `IdentifiabilityError` where they cannot be had.

        context : the context columns of the log (`read_log(..., context=["device"])`) where not
            given. Else what is known about queries: (queries, d) in the order of `log.query_id`,
            or a mapping of query ids to d numbers; with per="list" (lists, d), what is known about
            the sessions of each list, which must share it
        """
        check_clicks(log, "ContextualBias")
        self._check_options()
        log = log.without_versions()
        contexts = contexts_of(log, context, per=per)
        log, contexts, page = _to_depth(log, contexts, self.depth)
        cells, context_of_row = context_cells(log, contexts)
        position_graph(cells).require(cells.depth, "ContextualBias")
        evidence = evidence_of(cells, context_of_row)
        mean, scale = _normalisation(contexts)
        fit = self._linear if self.model == "linear" else self._network
        self.curves_ = replace(fit(evidence, contexts, mean, scale), page=page)
        self.bias_ = self.curves_.average()
        return self

    def _linear(
        self, evidence: Evidence, contexts: Contexts, mean: FloatArray, scale: FloatArray
    ) -> LinearCurves:
        design = design_of(contexts.values, mean, scale)
        # A feature that never varies has no slope: any penalty keeps it at 0.
        penalty = np.array([0.0, *np.where(scale > 0, self.l2, 1.0)])
        problem = Problem(evidence, design, penalty)
        _check_identified(problem)
        optimum = self._maximum(problem)
        size = (problem.depth - 1) * len(penalty)
        inverse = np.linalg.inv(optimum.hessian.reshape(size, size))
        by_query = scores(optimum, problem)
        noise = session_noise(optimum.B, problem)
        ended = MAXIMUM if optimum.converged else NO_MAXIMUM
        status = ended(steps=optimum.steps, residual=optimum.residual)
        return LinearCurves(
            **self._common(evidence, contexts, status),
            B=optimum.B,
            mean=mean,
            scale=scale,
            by_query=inverse @ by_query.squares @ inverse,
            by_session=inverse @ noise @ inverse,
            n_queries=by_query.n_queries,
            effective_queries=by_query.effective,
        )

    def _network(
        self, evidence: Evidence, contexts: Contexts, mean: FloatArray, scale: FloatArray
    ) -> NetworkCurves:
        design = np.ones((len(contexts.values), 1))
        start = self._maximum(Problem(evidence, design, np.zeros(1))).B[:, 0]
        inputs = ContextInputs(evidence, contexts, mean, scale, start)
        network, trained = fit_network(inputs, self)
        members = tuple(
            fit_network(inputs, self, member=m)[0] for m in range(1, self.n_bootstrap + 1)
        )
        common = self._common(evidence, contexts, trained.status)
        return NetworkCurves(**common, network=network, members=members)

    def _maximum(self, problem: Problem) -> Optimum:
        return maximise(problem, tolerance=self.tolerance, max_steps=self.max_steps)

    def _common(self, evidence: Evidence, contexts: Contexts, status: str) -> dict[str, Any]:
        """The fields that all curves have."""
        clicks = SHARED_CLICKS(clicks=float(evidence.clicks.sum()))
        return {
            "contexts": contexts.values,
            "sessions": contexts.sessions,
            "columns": contexts.columns,
            "depth": evidence.clicks.shape[1],
            "method": f"ContextualBias({self.model})",
            "assumes": (POSITION_BASED, SAME_RELEVANCE),
            "status": joined(status, clicks),
            "level": self.level,
            "page": Packed(()),
        }

    def _check_options(self) -> None:
        check_choice("model", self.model, MODELS)
        check_level(self.level)
        if not 0 <= self.l2 < np.inf:
            raise OptionError(f"l2 must be at least 0. Got {self.l2} instead.")
        if not 0 <= self.validation < 1:
            raise OptionError(f"validation must be from 0 to under 1. Got {self.validation}.")
        if self.n_bootstrap < 0 or self.n_bootstrap == 1:
            raise OptionError(
                f"n_bootstrap must be 0 or at least 2. Got {self.n_bootstrap} instead; 20 is usual."
            )


def _to_depth(
    log: ClickLog, contexts: Contexts, depth: int | None
) -> tuple[ClickLog, Contexts, Packed]:
    """The top of the log without gaps, with the contexts of the lists that are left."""
    depth = checked_depth(log, depth)
    page = Packed(absent_positions(log))
    kept = page.has(log.depth) & (np.arange(log.depth) < depth)
    require_several(int(kept.sum()))
    if kept.all():
        return log, contexts, page
    kept_rows = ragged.keep_rows(log.indptr, kept[log.position - 1])
    left = np.flatnonzero(ragged.lengths(kept_rows) > 0)  # as log.at_positions leaves them
    cut, of_list = page.of(log.at_positions(kept)), contexts.of_list[left]
    sessions = sum_by(of_list, cut.sessions, len(contexts.values))
    return cut, replace(contexts, of_list=of_list, sessions=sessions), page


def _normalisation(contexts: Contexts) -> tuple[FloatArray, FloatArray]:
    """(mean, scale) of each feature over sessions; scale 0 where it never varies."""
    share = contexts.sessions / contexts.sessions.sum()
    mean = share @ contexts.values
    varies = np.ptp(contexts.values, axis=0) > 0
    return mean, np.where(varies, np.sqrt(share @ (contexts.values - mean) ** 2), 0.0)


def _check_identified(problem: Problem) -> None:
    """Raise where some direction of the coefficients leaves the likelihood as it is."""
    flat = np.zeros((problem.depth, problem.design.shape[1]))
    size = (problem.depth - 1) * flat.shape[1]
    eigenvalues = np.linalg.eigvalsh(curvature(flat, problem).reshape(size, size))
    if eigenvalues[0] <= NO_CURVATURE * eigenvalues[-1]:
        raise IdentifiabilityError(
            "the documents that were shown at several positions do not separate the effects of the "
            "context features (some are sums of others, or hardly vary there). Leave some out, or "
            "set l2=1, which shrinks what the log says nothing about to 0."
        )
