"""Held-out clicks do not tell "auto" that its curve is wrong: the same curve weighs them."""

import numpy as np
from _bands import curves_over, over_seeds
from _quality import made_log, trees

import untilt as ut

POWERS = np.array([0.5, 0.75, 1.0, 1.25, 1.5])
SEEDS = range(3)


def draw():
    """What it is told, and what is true, of the ranker that it picked."""
    found = np.array([[told_and_true(power, seed) for power in POWERS] for seed in SEEDS])
    return curves_over(
        {
            "true DCG@10 of what is served": over_seeds(POWERS, found[:, :, 1]),
            "what held-out clicks say of it": over_seeds(POWERS, found[:, :, 0]),
        },
        title="Weighted clicks prefer a steeper curve, right or wrong",
        subtitle="300 queries to train, 300 held out, 50 sessions each; mean and range of 3 seeds",
        x_title="given curve: the true one to this power",
        value_title="DCG@10 on the held-out queries",
        legend_columns=2,
    )


def told_and_true(power, seed):
    """(estimate of the pick by held-out clicks, its true value on the same queries)."""
    train, valid = made_log(seed), made_log(100 + seed)
    theta = ut.EyeTracking().at(np.arange(1, 11))
    bias = ut.KnownBias(theta[0] * (theta / theta[0]) ** power)  # right at position 1
    ranker = trees("auto", bias=bias, folds=2, n_trees=40).fit(train.log, valid=valid.log)
    choice = ranker.choice_
    true = ut.estimate(
        valid.log, {"picked": ranker}, evaluator="direct", relevance=valid.truth.relevance
    )
    return choice.estimates[choice.picked].value, true["picked"].value
