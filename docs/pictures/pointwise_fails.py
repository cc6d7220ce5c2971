"""With few sessions per query counts are noise, and so is a label made of counts alone."""

import numpy as np
from _bands import curves_over, over_seeds
from _quality import made_log, trees, true_ndcg

import untilt as ut

SESSIONS = np.array([3, 10, 30, 100, 300, 1000])
SEEDS = range(3)
OBJECTIVES = ("pbm-likelihood", "ips-label", "posterior-label")


def draw():
    """The three objectives beside raw clicks and labels."""
    values = {
        name: np.empty((len(SEEDS), len(SESSIONS)))
        for name in ("labels", *OBJECTIVES, "raw clicks")
    }
    for s, seed in enumerate(SEEDS):
        for i, sessions in enumerate(SESSIONS):
            made = made_log(seed, sessions_per_query=int(sessions))
            for name, ranker in rankers(made).items():
                values[name][s, i] = true_ndcg(ranker, seed)
    return curves_over(
        {name: over_seeds(SESSIONS, each) for name, each in values.items()},
        title="With few sessions the IPS label is noise; the likelihood needs fewer",
        subtitle="300 queries, 60 trees, the true curve; mean and range of 3 seeds",
        x_title="sessions per query",
        value_title="true NDCG@10",
        value_format=".2f",
        scale="log",
        legend_columns=5,
    )


def rankers(made):
    """All of them, fitted."""
    bias = ut.EyeTracking()
    fitted = {name: trees(objective=name, bias=bias, folds=3).fit(made.log) for name in OBJECTIVES}
    return {"labels": trees().fit(made.truth.judged), **fitted, "raw clicks": trees().fit(made.log)}
