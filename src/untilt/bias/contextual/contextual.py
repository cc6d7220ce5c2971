"""Position bias that differs between queries or sessions: examination by position and context."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from untilt._core import ragged
from untilt._core.arrays import FloatArray, sum_by
from untilt._core.random import child_generator
from untilt._core.statistics import check_level
from untilt.bias.contextual.curves import ContextualCurve, LinearCurves, NetworkCurves, design_of
from untilt.bias.contextual.evidence import (
    Contexts,
    Evidence,
    Optimum,
    Problem,
    context_cells,
    contexts_of,
    curvature,
    evidence_of,
    log_likelihood,
    maximise,
    scores,
    session_noise,
)
from untilt.bias.curve import PositionBias
from untilt.bias.estimator import check_clicks
from untilt.bias.position_graph import position_graph
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.errors import DepthError, IdentifiabilityError, OptionError, check_choice
from untilt.networks.batches import PaddedRows
from untilt.networks.jax_layers import (
    Optimiser,
    apply_layers,
    jax_modules,
    start_layers,
    sum_of_squares,
    to_network,
)
from untilt.networks.mlp import Network, normalised
from untilt.networks.training import Loss, Stopping, Trained, train

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
        optimiser=Optimiser("adam", options.learning_rate, "cosine"),
        epochs=options.epochs,
        constants={
            "l2_per_click": np.array(options.l2 / clicks, np.float32),
            "per_batch": np.array(len(learn) / min(len(learn), options.batch_size), np.float32),
        },
        stopping=_stopping(inputs, options, np.flatnonzero(held_out)),
        what="examination by context",
    )
    found = to_network(trained.params, options.activation, mean=inputs.mean, scale=inputs.scale)
    return found, trained


@lru_cache(maxsize=8)
def _loss(activation: str) -> Loss:
    """-sum_i w_i sum_k c_ik log P_ik per click, plus l2 / 2 of the squared weights per click."""

    def loss(params: Any, batch: Any) -> Any:
        jax, jnp = jax_modules().jax, jax_modules().numpy
        z = apply_layers(params, batch["x"], activation) + batch["log_shown"]
        log_share = jax.nn.log_softmax(z, axis=1)
        # Never shown there: no clicks, and log n stands at -30 rather than at minus infinity.
        fit = jnp.sum(batch["mask"][:, None] * batch["clicks"] * log_share)
        return 0.5 * batch["l2_per_click"] * sum_of_squares(params) - batch["per_batch"] * fit

    return loss


def _columns(
    evidence: Evidence, weight: FloatArray, x: FloatArray, lines: Any, clicks: float
) -> dict[str, FloatArray]:
    shown = evidence.impressions[lines]
    log_shown = np.log(np.where(shown > 0, shown, np.exp(-30.0)))
    weighted = weight[lines, None] * evidence.clicks[lines] / clicks
    return {
        "x": x[evidence.context[lines]],
        "log_shown": log_shown.astype(np.float32),
        "clicks": weighted.astype(np.float32),
    }


def _start(inputs: Inputs, options: NetworkOptions, member: int) -> Any:
    """Random hidden layers; outputs at the curve without context, whatever the input."""
    depth = inputs.evidence.clicks.shape[1]
    widths = (inputs.contexts.values.shape[1], *options.widths, depth)
    seed = child_generator(options.seed, 0, member)
    layers = start_layers(seed, widths, activation=options.activation)
    layers["weights"][-1] = np.zeros_like(layers["weights"][-1])
    layers["biases"][-1] = inputs.start.astype(np.float32)
    return layers


def _times_drawn(n_queries: int, seed: int, member: int) -> FloatArray:
    if member == 0:
        return np.ones(n_queries)
    draw = child_generator(seed, 2, member)
    return draw.multinomial(n_queries, np.full(n_queries, 1 / n_queries)).astype(float)


def _held_out(n_queries: int, options: NetworkOptions, member: int) -> Any:
    """(queries,) which are not learned from but tell when to stop."""
    held_out = np.zeros(n_queries, dtype=bool)
    if n_queries >= FEWEST_TO_HOLD_OUT and options.validation > 0:
        draw = child_generator(options.seed, 3, member)
        n = max(1, round(options.validation * n_queries))
        held_out[draw.choice(n_queries, n, replace=False)] = True
    return held_out


def _stopping(inputs: Inputs, options: NetworkOptions, lines: Any) -> Stopping | None:
    if len(lines) == 0:
        return None
    evidence = inputs.evidence.take(lines)

    def value(params: Any) -> float:
        network = to_network(params, options.activation, mean=inputs.mean, scale=inputs.scale)
        return log_likelihood(network.forward(inputs.contexts.values), evidence)

    return Stopping(value, options.patience)


MODELS = ("linear", "network")
NO_CURVATURE = 1e-10  # of the largest: a direction with less is not told at all
ASSUMES = (
    "clicks follow the position-based model: P(click) = theta_k(context) gamma",
    "in one context a document is as relevant at one position as at another",
)


@method(
    "bias", "contextual", title="Contextual position bias", order=40,
    rests_on="repeated positions", needs=("context",), reference="fang2019contextual",
    note="a curve for each context, such as device or kind of query",
)  # fmt: skip
class ContextualBias(BaseEstimator):
    r"""Examination that depends on position and context ([fang2019contextual]_).

        P(click at k in context x) = theta_k(x) gamma
        linear:   log(theta_k(x) / theta_1(x)) = B_k . (1, x)
        network:  log(theta_k(x) / theta_1(x)) = f_k(x) - f_1(x)

    Learned from documents shown at several positions, by the likelihood of *where* the clicks on
    each document fall (`conditional_logit`): with n_k impressions at k the share n_k theta_k(x) /
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
    n_bootstrap : refits of the network for errors; 0 gives none (NaN)
    seed : of the network
    """

    curves_: ContextualCurve
    bias_: PositionBias

    def __init__(
        self,
        *,
        model: str = "linear",
        depth: int | None = None,
        level: float = 0.95,
        l2: float = 1.0,
        tolerance: float = 1e-9,
        max_steps: int = 100,
        widths: tuple[int, ...] = (16, 16),
        activation: str = "elu",
        epochs: int = 200,
        batch_size: int = 1024,
        learning_rate: float = 0.01,
        validation: float = 0.2,
        patience: int = 20,
        n_bootstrap: int = 0,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.depth = depth
        self.level = level
        self.l2 = l2
        self.tolerance = tolerance
        self.max_steps = max_steps
        self.widths = widths
        self.activation = activation
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation = validation
        self.patience = patience
        self.n_bootstrap = n_bootstrap
        self.seed = seed

    def fit(self, log: ClickLog, context: Any = None, *, per: str = "query") -> Self:
        """Estimate the curves of this log. Raises `IdentifiabilityError` where they cannot be had.

        context : what is known about queries: (queries, d) in the order of `log.query_id`, or a
            mapping of query ids to d numbers. With per="list" (lists, d), what is known about each
            list's sessions (the device, say); sessions of one list must share it, so give it
            before collapsing, or put it into the query id
        """
        check_clicks(log, "ContextualBias")
        self._check_options()
        contexts = contexts_of(log, context, per=per)
        log, contexts = _to_depth(log, contexts, self.depth)
        cells, of_line = context_cells(log, contexts)
        position_graph(cells).require(cells.depth, "ContextualBias")
        evidence = evidence_of(cells, of_line)
        mean, scale = _normalisation(contexts)
        fit = self._linear if self.model == "linear" else self._network
        self.curves_ = fit(evidence, contexts, mean, scale)
        self.bias_ = self.curves_.average()
        return self

    def _linear(
        self, evidence: Evidence, contexts: Contexts, mean: FloatArray, scale: FloatArray
    ) -> LinearCurves:
        design = design_of(contexts.values, mean, scale)
        # A feature that never varies has no slope: any penalty keeps it at 0.
        penalty = np.array([0.0, *np.where(scale > 0, self.l2, 1.0)])
        problem = Problem(evidence, design, penalty)
        _check_told_apart(problem)
        found = self._maximum(problem)
        size = (problem.depth - 1) * len(penalty)
        inverse = np.linalg.inv(found.hessian.reshape(size, size))
        M, n_queries = scores(found.B, problem)
        return LinearCurves(
            **self._told(evidence, contexts, _ending(found)),
            B=found.B,
            mean=mean,
            scale=scale,
            by_query=inverse @ M @ inverse,
            by_session=inverse @ session_noise(found.B, problem) @ inverse,
            n_queries=n_queries,
        )

    def _network(
        self, evidence: Evidence, contexts: Contexts, mean: FloatArray, scale: FloatArray
    ) -> NetworkCurves:
        design = np.ones((len(contexts.values), 1))
        start = self._maximum(Problem(evidence, design, np.zeros(1))).B[:, 0]
        inputs = Inputs(evidence, contexts, mean, scale, start)
        options = NetworkOptions(
            **{name: getattr(self, name) for name in NetworkOptions.__dataclass_fields__}
        )
        network, trained = fit_network(inputs, options)
        members = tuple(
            fit_network(inputs, options, member=m)[0] for m in range(1, self.n_bootstrap + 1)
        )
        told = self._told(evidence, contexts, trained.status)
        return NetworkCurves(**told, network=network, members=members)

    def _maximum(self, problem: Problem) -> Optimum:
        return maximise(problem, tolerance=self.tolerance, max_steps=self.max_steps)

    def _told(self, evidence: Evidence, contexts: Contexts, end: str) -> dict[str, Any]:
        clicks = f"{evidence.clicks.sum():,.0f} clicks on documents shown at several positions"
        return {
            "contexts": contexts.values,
            "sessions": contexts.sessions,
            "depth": evidence.clicks.shape[1],
            "method": f"ContextualBias({self.model})",
            "assumes": ASSUMES,
            "status": f"{end}; {clicks}",
            "level": self.level,
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


def _to_depth(log: ClickLog, contexts: Contexts, depth: int | None) -> tuple[ClickLog, Contexts]:
    """The top of the log, with the contexts of the lists that are left."""
    depth = log.depth if depth is None else depth
    if not 1 <= depth <= log.depth:
        raise DepthError(
            f"depth must be one of the positions 1..{log.depth} of the log. Got {depth} instead."
        )
    if depth == 1:
        raise IdentifiabilityError(
            "only position 1 is asked for or shown, and examination is relative to it: there is "
            "nothing to estimate. Read the deeper positions of the log, too."
        )
    if depth == log.depth:
        return log, contexts
    kept_rows = ragged.keep_rows(log.indptr, log.position <= depth)
    left = np.flatnonzero(ragged.lengths(kept_rows) > 0)  # as log.top leaves them
    cut, of_list = log.top(depth), contexts.of_list[left]
    sessions = sum_by(of_list, cut.sessions, len(contexts.values))
    return cut, Contexts(contexts.values, of_list, sessions)


def _normalisation(contexts: Contexts) -> tuple[FloatArray, FloatArray]:
    """(mean, scale) of each feature over sessions; scale 0 where it never varies."""
    share = contexts.sessions / contexts.sessions.sum()
    mean = share @ contexts.values
    varies = np.ptp(contexts.values, axis=0) > 0
    return mean, np.where(varies, np.sqrt(share @ (contexts.values - mean) ** 2), 0.0)


def _check_told_apart(problem: Problem) -> None:
    """Raise where some direction of the coefficients leaves the likelihood as it is."""
    flat = np.zeros((problem.depth, problem.design.shape[1]))
    size = (problem.depth - 1) * flat.shape[1]
    eigenvalues = np.linalg.eigvalsh(curvature(flat, problem).reshape(size, size))
    if eigenvalues[0] <= NO_CURVATURE * eigenvalues[-1]:
        raise IdentifiabilityError(
            "the context features cannot be told apart by the documents that were shown at several "
            "positions (some are sums of others, or hardly vary there). Leave some out, or set "
            "l2=1, which shrinks what the log does not tell to 0."
        )


def _ending(found: Optimum) -> str:
    how = "converged" if found.converged else "DID NOT CONVERGE"
    return f"{how} in {found.steps} steps, largest gradient {found.residual:.0e} of all clicks"
