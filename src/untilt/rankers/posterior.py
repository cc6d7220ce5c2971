"""Posterior labels: a cross-fitted likelihood model and the counts, each where it knows more."""

from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import child_generator
from untilt.errors import OptionError
from untilt.objectives.pbm import PbmLikelihood, sigmoid
from untilt.rankers.boosting import boost
from untilt.rankers.recipes import affine_curves, click_cells, label_objective
from untilt.rankers.targets import posterior_labels, relevance_counts
from untilt.rankers.training import TrainingLists, nothing_to_learn, restrict_rows
from untilt.rankers.tree_objectives import PairTreeObjective, PbmTreeObjective

if TYPE_CHECKING:
    from untilt.rankers.lambdamart import LambdaMART


def posterior_objective(ranker: "LambdaMART", lists: TrainingLists) -> PairTreeObjective:
    """Lambdas on posterior labels (see `untilt.rankers.targets`)."""
    curves = affine_curves(ranker.bias, lists.depth)
    if not lists.label.any():
        raise nothing_to_learn()
    prior = cross_fitted_relevance(ranker, lists, curves)
    labels, _ = posterior_labels(relevance_counts(click_cells(lists), *curves), prior)
    return label_objective(lists, labels, ranker.options(), two_sided=True)


def cross_fitted_relevance(
    ranker: "LambdaMART", lists: TrainingLists, curves: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Relevance of each row as predicted by trees that have not seen the row's query.

    A prior fitted on the same clicks would agree with their noise and shrink nothing.
    """
    queries = np.unique(lists.row_query)
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
    fold = fold_of_query[lists.row_query]
    relevance = np.empty(lists.n_rows)
    for held_out in range(n_folds):
        rows = fold == held_out
        relevance[rows] = _predict_left_out(ranker, lists, curves, rows)
    return relevance


def _predict_left_out(
    ranker: "LambdaMART", lists: TrainingLists, curves: tuple[FloatArray, FloatArray], rows: Any
) -> FloatArray:
    part = restrict_rows(lists, ~rows)
    likelihood = PbmLikelihood(click_cells(part, ranker.query_weight), *curves)
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
