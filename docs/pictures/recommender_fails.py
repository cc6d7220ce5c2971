"""PairwiseTrustRanker gives relevance's part to position where features tell both."""

import numpy as np
from _curves import truth_and

import untilt as ut

SEEDS = range(3)
SMALL = {"widths": (32, 16), "epochs": 30, "early_stopping": None}


def draw():
    """The curve that it learns along with the ranker, by who ordered the lists."""
    found = {
        "lists by a ranker of 1% of the labels": _curve(labels_order=False),
        "lists by the labels": _curve(labels_order=True),
    }
    truth = ut.EyeTracking().to_bias(10).examination
    return truth_and(
        truth,
        found,
        title="Where the shown order is good, its relevance is taken for examination",
        subtitle="300 queries, 100 sessions each, clicks of dla; line and band: mean, lowest and "
        "highest of three logs",
    )


def _curve(*, labels_order):
    curves = []
    for seed in SEEDS:
        judged = ut.make_judged(n_queries=300, n_features=20, seed=seed)
        ranker = judged.labels.astype(float) if labels_order else None
        made = ut.simulate(judged, "dla", ranker=ranker, sessions_per_query=100, seed=seed)
        fitted = ut.PairwiseTrustRanker(seed=seed, **SMALL).fit(made.log)
        curves.append(fitted.bias_.examination)
    return ut.PositionBias(
        np.mean(curves, axis=0), low=np.min(curves, axis=0), high=np.max(curves, axis=0)
    )
