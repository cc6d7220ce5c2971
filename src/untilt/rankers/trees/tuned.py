"""n_trees="auto": the number of trees by queries that the trees have not seen.

The objective is trained on folds of the queries side by side (`crossfit`); every number of trees is
judged by all held-out queries together, and the boosters of the folds are averaged into one. Clicks
are judged by their likelihood under the ranker's own bias; where it has none, as raw clicks have
not, under a curve of ones, which is what such a ranker believes. Judged lists: by NDCG@10.

A weighting that learns its own table is trained once more on all queries, with the number found:
a table cannot be averaged over folds.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.metrics.metric import parse_metric
from untilt.objectives.hierarchical import HierarchyFit
from untilt.rankers.click_likelihood import held_out_likelihood
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.trees.boosting import Boosted, boost, check_features
from untilt.rankers.trees.crossfit import FoldTraining, folds_of
from untilt.rankers.trees.objectives import BoostingOptions, TreeObjective
from untilt.weighting.base import JointWeighting

# More queries would not choose another number, and a look at 12,000 took as long as ten trees.
JUDGING_QUERIES = 4000

Make = Callable[[TrainingLists], TreeObjective]


def boost_tuned(
    data: ClickLog | JudgedLists,
    lists: TrainingLists,
    make: Make,
    options: BoostingOptions,
    *,
    bias: BiasLike | None,
    seed: int,
) -> Boosted:
    """The average of the folds' boosters, with the number of trees that held-out queries chose.

    `make` gives the objective of lists; `options.n_trees` is the most.
    """
    check_features(lists)
    if len(np.unique(lists.doc_query)) < 2:
        raise OptionError(
            "n_trees='auto' holds queries out, and there is a single one. Give a number of trees."
        )
    fold = folds_of(lists.doc_query, None, seed)
    folds = FoldTraining(lists.features, fold, options)
    objectives = [make(lists.of_documents(fold != k)) for k in range(folds.n_folds)]
    grown = folds.grow(objectives, _judge(data, bias), what="choosing the number of trees")
    if isinstance(getattr(objectives[0], "weighting", None), JointWeighting):
        again = boost(lists, make(lists), replace(options, n_trees=grown.tried.best))
        return replace(again, values=grown.tried.values)
    booster = grown.booster()
    return Boosted(booster, booster.num_trees(), grown.tried.values)


def _judge(data: ClickLog | JudgedLists, bias: BiasLike | None) -> Callable[[FloatArray], float]:
    if isinstance(data, ClickLog):
        judge, document = held_out_likelihood(data, bias).of_some_queries(JUDGING_QUERIES)
        last: list[HierarchyFit | None] = [None]

        def likelihood(scores: FloatArray) -> float:
            last[0] = judge.fit(scores[document], last[0])
            return float(judge.gain(last[0]).sum() / judge.sessions.sum())

        return likelihood
    judged, metric = data, parse_metric("ndcg@10")
    return lambda scores: float(np.mean(metric.per_list(scores, judged.labels, judged.indptr)))


def judged_by(data: ClickLog | JudgedLists, bias: BiasLike | None) -> str:
    """In words, for `summary_`."""
    if isinstance(data, JudgedLists):
        return "ndcg@10 of held-out queries"
    curve = "a curve of ones" if bias is None else "the given bias"
    return f"click likelihood of held-out queries under {curve}"
