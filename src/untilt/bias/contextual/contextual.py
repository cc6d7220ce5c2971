"""Position bias that differs between queries or sessions: examination by position and context."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, sum_by
from untilt._core.estimator import BaseEstimator
from untilt._core.statistics import check_level
from untilt._core.threads import one_blas_thread
from untilt.bias.contextual import likelihood
from untilt.bias.contextual.curves import LinearCurves, NetworkCurves, design_of
from untilt.bias.contextual.evidence import (
    Context,
    Contexts,
    Evidence,
    context_cells,
    contexts_of,
    evidence_of,
)
from untilt.bias.contextual.likelihood import Inputs, NetworkOptions, fit_network
from untilt.bias.estimator import check_clicks
from untilt.bias.position_graph import position_graph
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.errors import DepthError, IdentifiabilityError, OptionError, check_choice
from untilt.facts import Fact, joined

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
        log, contexts = _to_depth(log, contexts, self.depth)
        cells, context_of_row = context_cells(log, contexts)
        position_graph(cells).require(cells.depth, "ContextualBias")
        evidence = evidence_of(cells, context_of_row)
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
        problem = likelihood.Problem(evidence, design, penalty)
        _check_identified(problem)
        optimum = self._maximum(problem)
        size = (problem.depth - 1) * len(penalty)
        inverse = np.linalg.inv(optimum.hessian.reshape(size, size))
        by_query = likelihood.scores(optimum, problem)
        noise = likelihood.session_noise(optimum.B, problem)
        end = "maximum" if optimum.converged else "no-maximum"
        status = Fact(f"bias.{end}", steps=optimum.steps, residual=optimum.residual)
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
        start = self._maximum(likelihood.Problem(evidence, design, np.zeros(1))).B[:, 0]
        inputs = Inputs(evidence, contexts, mean, scale, start)
        options = NetworkOptions(
            **{name: getattr(self, name) for name in NetworkOptions.__dataclass_fields__}
        )
        network, trained = fit_network(inputs, options)
        members = tuple(
            fit_network(inputs, options, member=m)[0] for m in range(1, self.n_bootstrap + 1)
        )
        common = self._common(evidence, contexts, trained.status)
        return NetworkCurves(**common, network=network, members=members)

    def _maximum(self, problem: likelihood.Problem) -> likelihood.Optimum:
        return likelihood.maximise(problem, tolerance=self.tolerance, max_steps=self.max_steps)

    def _common(self, evidence: Evidence, contexts: Contexts, status: str) -> dict[str, Any]:
        """The fields that all curves have."""
        clicks = Fact("bias.shared-clicks", clicks=float(evidence.clicks.sum()))
        return {
            "contexts": contexts.values,
            "sessions": contexts.sessions,
            "columns": contexts.columns,
            "depth": evidence.clicks.shape[1],
            "method": f"ContextualBias({self.model})",
            "assumes": (Fact("contextual.position-based"), Fact("contextual.same-relevance")),
            "status": joined(status, clicks),
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
    return cut, replace(contexts, of_list=of_list, sessions=sessions)


def _normalisation(contexts: Contexts) -> tuple[FloatArray, FloatArray]:
    """(mean, scale) of each feature over sessions; scale 0 where it never varies."""
    share = contexts.sessions / contexts.sessions.sum()
    mean = share @ contexts.values
    varies = np.ptp(contexts.values, axis=0) > 0
    return mean, np.where(varies, np.sqrt(share @ (contexts.values - mean) ** 2), 0.0)


def _check_identified(problem: likelihood.Problem) -> None:
    """Raise where some direction of the coefficients leaves the likelihood as it is."""
    flat = np.zeros((problem.depth, problem.design.shape[1]))
    size = (problem.depth - 1) * flat.shape[1]
    eigenvalues = np.linalg.eigvalsh(likelihood.curvature(flat, problem).reshape(size, size))
    if eigenvalues[0] <= NO_CURVATURE * eigenvalues[-1]:
        raise IdentifiabilityError(
            "the documents that were shown at several positions do not separate the effects of the "
            "context features (some are sums of others, or hardly vary there). Leave some out, or "
            "set l2=1, which shrinks what the log says nothing about to 0."
        )
