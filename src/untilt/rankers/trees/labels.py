"""Graded labels from clicks: what a document's relevance is, as far as the clicks tell.

Per (query, document), with n_k impressions and c_k clicks at position k:

    IPS label   r  = sum_k c_k / sum_k n_k theta_k
    posterior   mu = g + v/(v + noise) (r - g)
                noise = sum_k n_k p_k (1 - p_k) / (sum_k n_k theta_k)^2,  p_k = theta_k g,

which is g (1 - theta g)/(n theta) at a single position.

g is the prediction of a position-based likelihood model that has not seen the query (cross-fitted),
v the variance of true relevance around it, by moments. With few sessions mu is the model, with
many it is the counts: an empirical-Bayes bridge ([efron1973stein]_ is the idea).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import child_generator
from untilt.catalog import method
from untilt.errors import OptionError
from untilt.objectives.pbm import PbmCells, PbmLikelihood, sigmoid
from untilt.rankers.learning_data import (
    TrainingLists,
    affine_curves,
    click_counts,
    nothing_to_learn,
)
from untilt.rankers.trees.boosting import boost
from untilt.rankers.trees.objectives import (
    PairTreeObjective,
    PbmTreeObjective,
    label_objective,
)

if TYPE_CHECKING:
    from untilt.rankers.trees.lambdamart import LambdaMART


@dataclass(frozen=True, eq=False)
class RelevanceCounts:
    """Per training row: the IPS estimate of relevance and the information behind it.

    With trust bias r = sum (c_k - n_k beta_k) / sum n_k alpha_k, which is unbiased for relevance.
    Its variance is sum n_k p_k (1 - p_k) / exposure^2 with p_k = alpha_k g + beta_k: a polynomial
    in g, whose three coefficients are `spread`.
    """

    estimate: FloatArray
    exposure: FloatArray
    spread: tuple[FloatArray, FloatArray, FloatArray]

    def noise(self, relevance: FloatArray) -> FloatArray:
        """Variance of the estimate where the relevance is this; never quite 0."""
        g = np.clip(relevance, 1e-3, 1.0)
        constant, linear, quadratic = self.spread
        return np.maximum(constant + linear * g + quadratic * g**2, 1e-3 * g / self.exposure)


def relevance_counts(cells: PbmCells, alpha: FloatArray, beta: FloatArray) -> RelevanceCounts:
    """Pool the positions of each document: clicks over expected examinations."""
    a, b, n = alpha[cells.place], beta[cells.place], cells.shown
    exposure = np.maximum(cells.sums(n * a), 1e-12)
    coefficients = (b * (1 - b), a * (1 - 2 * b), -(a**2))
    constant, linear, quadratic = (cells.sums(n * c) / exposure**2 for c in coefficients)
    corrected = cells.sums(cells.clicks - n * b)
    return RelevanceCounts(corrected / exposure, exposure, (constant, linear, quadratic))


@method(
    "objective", "ips-label", options={"objective": "ips-label"},
    title="IPS label", order=62, needs=("bias",),
    choose=("train", "select", "run"), public=False,
    note="LambdaMART on relevance as clicks over expected examinations",
)  # fmt: skip
def ips_labels(counts: RelevanceCounts) -> FloatArray:
    """r, kept in [0, 1]: relevance is a probability."""
    return np.clip(counts.estimate, 0.0, 1.0)


def posterior_labels(counts: RelevanceCounts, prior: FloatArray) -> tuple[FloatArray, float]:
    """(mu, v): each document's estimate shrunk towards the prior as far as it is noise."""
    noise = counts.noise(prior)
    v = residual_variance(counts, prior, noise)
    mu = prior + v / (v + noise) * (counts.estimate - prior)
    return np.clip(mu, 0.0, 1.0), v


def residual_variance(counts: RelevanceCounts, prior: FloatArray, noise: FloatArray) -> float:
    """v by moments: E (r - g)^2 = v + noise, weighted so that precise rows count.

    Weights 1/(v + noise)^2 are those of least variance; a few rounds settle them.
    """
    squared = (counts.estimate - prior) ** 2
    v = float(np.var(prior)) + 1e-4
    for _ in range(20):
        weight = 1 / (v + noise) ** 2
        new = max(float(np.sum(weight * (squared - noise)) / np.sum(weight)), 1e-6)
        if abs(new - v) < 1e-4 * v:
            break
        v = new
    return v


# Posterior labels: a cross-fitted likelihood model and the counts, each where it knows more.


@method(
    "objective", "posterior-label", options={"objective": "posterior-label"},
    title="Posterior label", order=61, cost=5.0, needs=("bias",),
    choose=("train", "select", "run"), public=False,
    note="LambdaMART on relevance as the position-based model sees it after the clicks",
)  # fmt: skip
def posterior_objective(ranker: "LambdaMART", lists: TrainingLists) -> PairTreeObjective:
    """Lambdas on posterior labels (see `untilt.rankers.trees.labels`)."""
    curves = affine_curves(ranker.bias, lists.depth)
    if not lists.label.any():
        raise nothing_to_learn()
    prior = cross_fitted_relevance(ranker, lists, curves)
    labels, _ = posterior_labels(relevance_counts(click_counts(lists), *curves), prior)
    return label_objective(lists, labels, ranker.options(), two_sided=True)


def cross_fitted_relevance(
    ranker: "LambdaMART", lists: TrainingLists, curves: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Relevance of each row as predicted by trees that have not seen the row's query.

    A prior fitted on the same clicks would agree with their noise and shrink nothing.
    """
    queries = np.unique(lists.doc_query)
    if ranker.folds < 2 or len(queries) < 2:
        raise OptionError(
            f"posterior labels are cross-fitted: they need at least 2 folds and 2 queries. Got "
            f"folds={ranker.folds} and {len(queries)} queries. With one query use "
            "objective='ips-label'."
        )
    fold_of_query = np.zeros(int(queries.max()) + 1, dtype=np.int64)
    shuffled = child_generator(ranker.seed, 17).permutation(queries)
    n_folds = min(ranker.folds, len(queries))
    fold_of_query[shuffled] = np.arange(len(queries)) % n_folds
    fold = fold_of_query[lists.doc_query]
    relevance = np.empty(lists.n_documents)
    for held_out in range(n_folds):
        rows = fold == held_out
        relevance[rows] = _predict_left_out(ranker, lists, curves, rows)
    return relevance


def _predict_left_out(
    ranker: "LambdaMART", lists: TrainingLists, curves: tuple[FloatArray, FloatArray], rows: Any
) -> FloatArray:
    part = lists.of_documents(~rows)
    likelihood = PbmLikelihood(click_counts(part, ranker.query_weight), *curves)
    objective = PbmTreeObjective(likelihood)
    boosted = boost(
        part,
        objective,
        params=ranker.parameters(),
        n_trees=ranker.n_trees,
        n_threads=ranker.n_threads,
    )
    scores = boosted.booster.predict(lists.features[rows], num_threads=ranker.n_threads or 0)
    return sigmoid(np.asarray(scores) + objective.base_score)
