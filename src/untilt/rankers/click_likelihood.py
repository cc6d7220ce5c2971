"""How well scores explain clicks they have not seen: the held-out click likelihood.

The clicks of a log become cells (`untilt.objectives.hierarchical`) under a curve: one of positions,
an affine one (trust bias), one for each context, or all ones where no bias is known. Any score of
documents can then be asked how likely it makes the clicks, whatever scale it is on.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray, IntArray, sum_by
from untilt.bias.contextual.curves import ContextualCurve, contexts_of
from untilt.bias.given import BiasLike, as_position_bias, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.errors import OptionError
from untilt.objectives.hierarchical import (
    ClickCells,
    HierarchyFit,
    click_cells,
    evenly,
    fit_hierarchy,
)


def cells_of(
    log: ClickLog, bias: BiasLike | ContextualCurve | None, documents: IntArray
) -> ClickCells:
    """The clicks of these documents (indices of the log's, numbered 0, 1, ... in the result).

    A label above 0 counts as a click. Documents that no list shows have no cells. Without a bias
    every position is examined alike.
    """
    log = numbered_for(log, bias)
    number = np.full(log.n_documents, -1, dtype=np.int64)
    number[documents] = np.arange(len(documents))
    document, place, n, clicks, alpha, beta = (
        _by_context(log, bias) if isinstance(bias, ContextualCurve) else _by_position(log, bias)
    )
    kept = number[document] >= 0
    return click_cells(
        log.doc_query[documents].astype(np.int64),
        number[document][kept],
        place[kept],
        n[kept],
        clicks[kept],
        alpha,
        beta,
    )


def _clicked(log: ClickLog) -> ClickLog:
    return log if log.is_binary else log._with(label=(log.label > 0).astype(float))


def _by_position(log: ClickLog, bias: BiasLike | None) -> tuple[Any, ...]:
    counts = position_counts(_clicked(log))
    document = counts.document[counts.document_index]
    alpha, beta = curves_at(bias, log.depth)
    return document, counts.position_index, counts.impressions, counts.clicks, alpha, beta


def _by_context(log: ClickLog, curve: ContextualCurve) -> tuple[Any, ...]:
    """One cell for each (document, context, position)."""
    curve.average().at(max(1, log.depth))  # says clearly where it does not reach that deep
    contexts = contexts_of(log, None, per="list", columns=curve.columns)
    theta = np.exp(curve.log_ratios(contexts.values))
    context = np.repeat(contexts.of_list, np.diff(log.indptr)).astype(np.int64)
    row_place = context * theta.shape[1] + log.position - 1
    key = log.document.astype(np.int64) * theta.size + row_place
    cells, cell = np.unique(key, return_inverse=True)
    n, clicks = (
        sum_by(cell, log.row_count * each, len(cells))
        for each in (np.ones(len(cell)), (log.label > 0).astype(float))
    )
    document, place = np.divmod(cells, theta.size)
    return document, place, n, clicks, theta.ravel(), np.zeros(theta.size)


def of_positions(bias: BiasLike | ContextualCurve | None) -> BiasLike | None:
    """The same; of a curve for each context the mean over the sessions."""
    return bias.average() if isinstance(bias, ContextualCurve) else bias


def curves_at(bias: BiasLike | None, depth: int) -> tuple[FloatArray, FloatArray]:
    """(alpha, beta) at positions 1..depth; ones and zeros without a bias."""
    if bias is None:
        return np.ones(depth), np.zeros(depth)
    alpha, beta = as_position_bias(bias, depth).affine()
    return alpha[:depth], beta[:depth]


@dataclass(eq=False)
class HeldOutLikelihood:
    """Clicks that a model has not seen, and how much more likely its scores make them.

    The logit of relevance is base + slope * score + u_q + u_i with slope >= 0; base, slope and the
    variances of the effects are fitted to these clicks. So the scale of the score does not matter,
    nor does a constant for each query. Both terms of the gain are likelihoods of the same clicks
    under the same curve; a steeper curve is not rewarded, as it is by clicks that are weighted with
    it. To compare two curves on the same clicks add `null`: the sum is the log-likelihood itself.

    Parameters
    ----------
    features : of the shown documents, in the order that scores are expected in
    cells : their clicks
    sessions : (queries,) that the clicks come from
    """

    features: FeatureArray
    cells: ClickCells
    sessions: FloatArray
    _null: HierarchyFit = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._null = fit_hierarchy(self.cells, np.ones((self.cells.n_documents, 1)))

    @property
    def null(self) -> float:
        """Log-likelihood per session of scores that say nothing."""
        return float(self._null.per_query.sum() / self.sessions.sum())

    @property
    def null_per_query(self) -> FloatArray:
        """(queries,) the same, by query: summed over its sessions."""
        return self._null.per_query

    def value(self, scores: FloatArray) -> float:
        """Gain in log-likelihood per session over scores that say nothing; never below 0."""
        return float(self.per_query(scores).sum() / self.sessions.sum())

    def per_query(self, scores: FloatArray) -> FloatArray:
        """(queries,) the gain of each query, summed over its sessions."""
        return self.gain(self.fit(scores))

    def gain(self, fit: HierarchyFit | None) -> FloatArray:
        """(queries,) of a fit."""
        if fit is None:
            return np.zeros(self.cells.n_queries)
        return fit.per_query - self._null.per_query

    def fit(self, scores: FloatArray, start: HierarchyFit | None = None) -> HierarchyFit | None:
        """base and slope (per standard deviation of the centred score); None where slope is 0.

        The fit of similar scores is a `start` that is near.
        """
        centred = self.cells.centred(np.asarray(scores, dtype=float))
        spread = float(np.std(centred))
        if not np.isfinite(spread) or spread <= 1e-12 * float(np.max(np.abs(scores), initial=1.0)):
            return None
        columns = np.column_stack([np.ones(len(centred)), centred / spread])
        null = self._null
        if start is None:
            start = replace(null, weights=np.append(null.weights, 0.0))
        fit = fit_hierarchy(self.cells, columns, start=start, low=(-np.inf, 0.0))
        if fit.weights[1] <= 0 or fit.log_likelihood <= null.log_likelihood:
            return None
        return fit

    def of_some_queries(self, most: int) -> "tuple[HeldOutLikelihood, IntArray]":
        """The same for so many queries, evenly over all, and which documents are theirs."""
        cells, document = self.cells.of_some_queries(most)
        sessions = self.sessions[evenly(self.cells.n_queries, most)]
        return HeldOutLikelihood(self.features[document], cells, sessions), document

    def with_curve(self, alpha: FloatArray, beta: FloatArray | None = None) -> "HeldOutLikelihood":
        """The same clicks under another curve, (positions,) each."""
        new = np.zeros(len(alpha)) if beta is None else np.asarray(beta, dtype=float)
        cells = replace(self.cells, alpha=np.asarray(alpha, dtype=float), beta=new)
        return HeldOutLikelihood(self.features, cells, self.sessions)


def held_out_likelihood(
    log: ClickLog, bias: BiasLike | ContextualCurve | None
) -> HeldOutLikelihood:
    """The clicks of a log that no model has seen, under this bias."""
    if log.features is None:
        raise OptionError("the held-out log has no features to score.")
    if log.n_lists == 0:
        raise OptionError("the held-out log has no sessions to judge by.")
    shown = np.flatnonzero(np.bincount(log.document, minlength=log.n_documents) > 0)
    cells = cells_of(log, bias, shown)
    queries = np.unique(log.doc_query[shown])
    return HeldOutLikelihood(
        features=log.features[shown],
        cells=cells,
        sessions=sum_by(log.query, log.sessions, log.n_queries)[queries],
    )
