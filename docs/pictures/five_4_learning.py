"""More raw clicks do not help: the same mistake, more surely."""

import numpy as np
from _bands import curves_over, over_seeds
from _quality import trees

import untilt as ut

SESSIONS = np.array([5, 20, 80, 320, 1280])
SEEDS = range(3)
LISTS = {"n_features": 15, "mean_docs": 12}


def draw():
    """NDCG@10 by labels over sessions per query, three seeds."""
    by_seed = [qualities(seed) for seed in SEEDS]
    names = ("human labels", "clicks, bias taken out", "raw clicks", "order that was shown")
    return curves_over(
        {name: over_seeds(SESSIONS, [each[name] for each in by_seed]) for name in names},
        title="Raw clicks stay behind; corrected ones approach the labels",
        subtitle="300 queries, 60 trees, curve known; mean and range of 3 seeds; 500 test queries",
        x_title="sessions per query",
        scale="log",
        value_title="NDCG@10 by human labels",
        value_format=".2f",
        legend_columns=2,
    )


def qualities(seed):
    """NDCG@10 of each at each number of sessions."""
    judged = ut.make_judged(300, seed=seed, **LISTS)
    test = ut.make_judged(500, seed=seed + 10_000, **LISTS)

    def quality(ranker):
        return ut.evaluate(test, ranker, metrics=["ndcg@10"])["ndcg@10"].value

    made = [
        ut.simulate(judged, "dla", sessions_per_query=int(n), seed=seed, n_threads=1)
        for n in SESSIONS
    ]
    flat = np.ones(len(SESSIONS))
    return {
        "human labels": flat * quality(trees().fit(made[0].truth.judged)),
        "clicks, bias taken out": [
            quality(trees(ut.Balanced(each.truth.bias)).fit(each.log)) for each in made
        ],
        "raw clicks": [quality(trees().fit(each.log)) for each in made],
        "order that was shown": flat * quality(made[0].truth.rankers[0]),
    }
