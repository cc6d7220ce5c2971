"""Graded labels from clicks: a document's relevance, as far as the clicks tell.

Per (query, document), with n_k impressions and c_k clicks at position k:

    IPS label   r  = sum_k c_k / sum_k n_k theta_k
    posterior   mu = g + v/(v + noise) (r - g)
                noise = sum_k n_k p_k (1 - p_k) / (sum_k n_k theta_k)^2,  p_k = theta_k g,

which is g (1 - theta g)/(n theta) at a single position.

g is the prediction of a position-based likelihood model that has not seen the query (cross-fitted),
v the variance of true relevance around it, by moments. With few sessions mu is the model, with many
it is the counts: empirical Bayes, after the idea of [efron1973stein]_.
"""

from dataclasses import dataclass, replace

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, sum_by
from untilt._core.threads import thread_count
from untilt.catalog import method, record_of
from untilt.data.counts import PositionCounts
from untilt.errors import OptionError
from untilt.objectives.losses import PbmLikelihood, sigmoid
from untilt.rankers import learning_data
from untilt.rankers.trees import objectives
from untilt.rankers.trees.boosting import boost
from untilt.rankers.trees.crossfit import folds_of
from untilt.rankers.validation import of_positions


@dataclass(frozen=True, eq=False)
class RelevanceEstimates:
    """Per document: the IPS estimate of relevance and the information behind it.

    With trust bias r = sum (c_k - n_k beta_k) / sum n_k alpha_k, which is unbiased for relevance.
    Its variance is sum n_k p_k (1 - p_k) / exposure^2 with p_k = alpha_k g + beta_k: a polynomial
    in g, whose three coefficients are `spread`.
    """

    estimate: FloatArray
    exposure: FloatArray
    spread: tuple[FloatArray, FloatArray, FloatArray]

    @property
    def labels(self) -> FloatArray:
        """r, kept in [0, 1]: relevance is a probability."""
        return np.clip(self.estimate, 0.0, 1.0)

    def noise(self, relevance: FloatArray) -> FloatArray:
        """Variance of the estimate where the relevance is this; never quite 0."""
        g = np.clip(relevance, 1e-3, 1.0)
        constant, linear, quadratic = self.spread
        return np.maximum(constant + linear * g + quadratic * g**2, 1e-3 * g / self.exposure)


def relevance_estimates(
    counts: PositionCounts, alpha: FloatArray, beta: FloatArray
) -> RelevanceEstimates:
    """Pool the positions of each document: clicks over expected examinations."""
    document = counts.document_index
    a, b, n = alpha[counts.position_index], beta[counts.position_index], counts.impressions

    def sums(values: FloatArray) -> FloatArray:
        return sum_by(document, values, counts.n_documents)

    exposure = np.maximum(sums(n * a), 1e-12)
    coefficients = (b * (1 - b), a * (1 - 2 * b), -(a**2))
    constant, linear, quadratic = (sums(n * c) / exposure**2 for c in coefficients)
    corrected = sums(counts.clicks - n * b)
    return RelevanceEstimates(corrected / exposure, exposure, (constant, linear, quadratic))


def posterior_labels(estimates: RelevanceEstimates, prior: FloatArray) -> tuple[FloatArray, float]:
    """(mu, v): each document's estimate shrunk towards the prior as far as it is noise."""
    noise = estimates.noise(prior)
    v = residual_variance(estimates, prior, noise)
    mu = prior + v / (v + noise) * (estimates.estimate - prior)
    return np.clip(mu, 0.0, 1.0), v


def residual_variance(estimates: RelevanceEstimates, prior: FloatArray, noise: FloatArray) -> float:
    """v by moments: E (r - g)^2 = v + noise, weighted so that precise documents count.

    Weights 1/(v + noise)^2 are those of least variance; a few rounds settle them.
    """
    squared = (estimates.estimate - prior) ** 2
    v = float(np.var(prior)) + 1e-4
    for _ in range(20):
        weight = 1 / (v + noise) ** 2
        new = max(float(np.sum(weight * (squared - noise)) / np.sum(weight)), 1e-6)
        if abs(new - v) < 1e-4 * v:
            break
        v = new
    return v


@method(
    "objective", "ips-label", options={"objective": "ips-label"},
    title="IPS label", order=62, needs=("bias",),
    choose=("train", "select", "run"), public=False,
    note="LambdaMART on relevance as clicks over expected examinations",
)  # fmt: skip
def ips_objective(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> objectives.TreeObjective:
    """Lambdas on IPS labels."""
    curves = learning_data.affine_curves(of_positions(training.bias), lists.depth)
    estimates = relevance_estimates(learning_data.click_counts(lists), *curves)
    return objectives.label_objective(lists, estimates.labels, training.lambdas)


@method(
    "objective", "posterior-label", options={"objective": "posterior-label"},
    title="Posterior label", order=61, cost=5.0, needs=("bias",),
    choose=("train", "select", "run"), public=False,
    note="boosted trees on relevance as the position-based model sees it after the clicks",
)  # fmt: skip
def posterior_objective(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> objectives.TreeObjective:
    """Softmax of posterior labels: a cross-fitted likelihood model and the counts, combined."""
    curves = learning_data.affine_curves(of_positions(training.bias), lists.depth)
    if not lists.label.any():
        raise learning_data.nothing_to_learn()
    prior = cross_fitted_relevance(lists, training)
    labels, _ = posterior_labels(
        relevance_estimates(learning_data.click_counts(lists), *curves), prior
    )
    return objectives.softmax_objective(lists, labels, training.lambdas)


def cross_fitted_relevance(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> FloatArray:
    """Relevance of each document as predicted by trees that have not seen its query.

    A prior fitted on the same clicks would agree with their noise and shrink nothing.
    """
    queries = np.unique(lists.doc_query)
    if training.folds < 2 or len(queries) < 2:
        raise OptionError(
            "relevance is cross-fitted here: it needs at least 2 folds and 2 queries. "
            f"Got ⟦folds={training.folds}⟧ and {len(queries)} queries. With one query "
            f"use objective={record_of(ips_objective).name!r}."
        )
    fold = folds_of(lists.doc_query, training.folds, training.seed)
    relevance = np.empty(lists.n_documents)
    for held_out in range(int(fold.max()) + 1):
        chosen = fold == held_out
        relevance[chosen] = _predict_left_out(lists, training, chosen)
    return relevance


def _predict_left_out(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining, left_out: BoolArray
) -> FloatArray:
    part = lists.of_documents(~left_out)
    curves = learning_data.affine_curves(of_positions(training.bias), lists.depth)
    counts = learning_data.click_counts(part, training.lambdas.query_weight)
    objective = objectives.PbmTreeObjective(PbmLikelihood(counts, *curves))
    n_trees = training.prior_trees or training.boosting.n_trees
    booster = boost(part, objective, replace(training.boosting, n_trees=n_trees)).booster
    threads = thread_count(training.boosting.n_threads) or 0
    scores = booster.predict(lists.features[left_out], num_threads=threads)
    return sigmoid(np.asarray(scores) + objective.base_score)
