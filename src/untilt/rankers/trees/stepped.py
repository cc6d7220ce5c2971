"""Boosted trees that go a part of the way from the old order, as one booster.

    s_w = (1 - w) z_old + w z_new

-log k of the old rank k is one tree on a further feature, `old_rank`, with a leaf for each rank; a
logged score, which is a feature, has a tree of its own that says it in steps.
"""

from copy import copy
from typing import Any

import numpy as np

from untilt._core.feature_table import OLD_RANK, predicted
from untilt.data.clicklog import ClickLog
from untilt.data.slates import slates_of
from untilt.rankers.base import Ranker
from untilt.rankers.trees.boosting import merged, step_tree

RANKS = 250  # with a leaf of their own; the ranks below share one. Readers of trees take 256 leaves


def can_step(ranker: Ranker) -> bool:
    """Whether the old order can be added to the score."""
    return hasattr(ranker, "booster_") and OLD_RANK not in ranker.feature_names_


def stepped(ranker: Any, w: float, log: ClickLog, *, old: str, old_spread: float) -> Ranker:
    """The ranker with (1 - w) of the old order in its score.

    Parameters
    ----------
    log : with features; its lists say how far the ranker's scores spread
    old : the feature that is the old score; any other name stands for the old rank
    old_spread : of -log k, or of the old score, within lists
    """
    assert log.features is not None
    slates, _ = slates_of(log)
    scores = np.asarray(predicted(ranker, log.features, log.feature_names, log.missing))
    weight, names = (1 - w) / old_spread, ranker.feature_names_
    if old in names:
        column = names.index(old)
        values = log.features[np.unique(log.document), log.feature_names.index(old)]
        tree = step_tree(column, values, weight * values.astype(float), RANKS)
    else:
        rank = np.arange(1.0, RANKS + 1)
        tree = step_tree(len(names), rank, -weight * np.log(rank), RANKS)
        names = (*names, OLD_RANK)
    part = (ranker.booster_, ranker.n_trees_, w / slates.spread(scores[slates.document]))
    made = copy(ranker)
    more = len(names) - len(ranker.feature_names_)
    made.booster_ = merged([part], [tree], more_features=more)
    made.n_trees_, made.feature_names_ = made.booster_.num_trees(), names
    made.summary_ = {**ranker.summary_, "trees": made.n_trees_, "step": w}
    return made
