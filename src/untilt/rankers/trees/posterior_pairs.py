"""Lambdas on posterior relevance, over documents that were shown and candidates that never were.

Every pair of a query pulls both ways, "i above j" with mu_i and "j above i" with mu_j, times
|D(rank_i) - D(rank_j)|: the scores settle where their difference is the log of the ratio of the
relevances. A row that was never shown weighs |kappa| times the documents it stands for: 1 where
the clicks say nothing of such documents, 0 where they are as good a guide there as anywhere.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.random import child_generator
from untilt.data.clicklog import ClickLog
from untilt.objectives.graded_pairs import GradedSlates
from untilt.rankers.learning_data import QUERY_WEIGHTS
from untilt.rankers.trees.crossfit import CrossFitted, FoldTraining
from untilt.rankers.trees.objectives import GradedTreeObjective, LambdaOptions
from untilt.rankers.stacked.parts import Rows


def lambda_part(
    slates: GradedSlates,
    folds: FoldTraining,
    among: IntArray,
    options: LambdaOptions,
    n_trees: int,
    params: dict[str, Any],
    *,
    once: bool,
) -> CrossFitted:
    """B of one shape of trees, bagged over the folds or trained once on all rows.

    The number of trees is that of the likelihood. Held-out clicks cannot choose it: labels of other
    folds rest on a model that has seen these clicks, and what B remembers of them comes back.
    """
    if once:
        objective = GradedTreeObjective(_of_rows(slates, among), options)
        return folds.grow_once(objective, among, n_trees, params)
    objectives = [
        GradedTreeObjective(_of_rows(slates, folds.training_rows(k, among)), options)
        for k in range(folds.n_folds)
    ]
    return folds.grow(
        objectives, None, what="ordering documents", among=among, most=n_trees, params=params
    )


def posterior_pairs(
    rows: Rows,
    L: FloatArray,
    mu: FloatArray,
    weight: FloatArray,
    traffic: FloatArray,
    among: IntArray,
) -> GradedSlates:
    """The rows `among` of each query, with mu as their labels.

    Equal scores rank as the old ranker did, then by a projection of the features: trees leave many
    scores equal, and the order of the documents table must not decide between them.
    """
    direction = child_generator(0, 1).standard_normal(rows.features.shape[1])
    projection = np.nan_to_num(rows.features[among]) @ direction
    order = among[np.lexsort((projection, L[among], rows.query[among]))]
    queries, sizes = np.unique(rows.query[order], return_counts=True)
    return GradedSlates(
        indptr=ragged.indptr_of(sizes),
        query=queries,
        count=traffic[queries],
        document=order,
        position_index=np.zeros(len(order), dtype=np.int64),
        n_documents=len(rows.query),
        label=mu[order],
        weight=weight[order],
    )


def _of_rows(slates: GradedSlates, own: IntArray) -> GradedSlates:
    """The slates of these rows, whole queries, numbered 0, 1, ... in their order."""
    number = np.full(slates.n_documents, -1, dtype=np.int64)
    number[own] = np.arange(len(own))
    part = slates.take(np.flatnonzero(number[slates.document[slates.indptr[:-1]]] >= 0))
    return replace(part, document=number[part.document], n_documents=len(own))


def traffic_of(log: ClickLog, rows: Rows, options: LambdaOptions) -> FloatArray:
    """(queries,) what each weighs by its sessions: 1 on average."""
    sessions = sum_by(log.query, log.sessions, log.n_queries)
    shown = slice(rows.n_shown)
    traffic = np.zeros(rows.n_queries)
    traffic[rows.query[shown]] = sessions[log.doc_query[rows.document[shown]]]
    share = traffic ** (1 - QUERY_WEIGHTS[options.query_weight])
    return share / share.mean()
