"""LambdaMART on clicks is as good as the curve it is given."""

import numpy as np
from _bands import curves_over, over_seeds
from _quality import made_log, trees, true_ndcg

import untilt as ut

POWERS = np.array([0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0])
SEEDS = range(3)


def draw():
    """The true curve is the eye-tracking one; what is given is a power of it."""
    by_seed = [qualities(seed) for seed in SEEDS]
    names = ("labels", "Balanced", "pbm-likelihood", "raw clicks")
    return curves_over(
        {name: over_seeds(POWERS, [each[name] for each in by_seed]) for name in names},
        title="A ranker from clicks is as good as the curve it is given",
        subtitle="300 queries, 50 sessions each, 60 trees; mean and range of 3 seeds; power 1 is "
        "the truth, 0 no correction",
        x_title="given curve: the true one to this power",
        value_title="true NDCG@10",
        value_format=".2f",
        legend_columns=4,
    )


def qualities(seed):
    """NDCG@10 of each ranker at each power; two of them take no curve."""
    made = made_log(seed)
    without = {"labels": made.truth.judged, "raw clicks": made.log}
    found = {
        name: np.full(len(POWERS), true_ndcg(trees().fit(data), seed))
        for name, data in without.items()
    }
    curves = [ut.EyeTracking(float(power)) for power in POWERS]
    corrected = {
        "Balanced": [trees(ut.Balanced(curve)) for curve in curves],
        "pbm-likelihood": [trees(objective="pbm-likelihood", bias=curve) for curve in curves],
    }
    return found | {
        name: [true_ndcg(ranker.fit(made.log), seed) for ranker in rankers]
        for name, rankers in corrected.items()
    }
