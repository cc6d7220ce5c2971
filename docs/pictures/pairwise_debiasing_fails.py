"""Pairwise debiasing takes the production ranker's skill for position bias."""

import numpy as np
from _bands import curves_over, over_seeds

import untilt as ut
from untilt.charts.curves import Curve
from untilt.simulation import protocols

TRUTH = ut.PowerLaw(1.0)
PLACES = np.arange(1, 11)
SEEDS = range(3)
CASES = {
    "p = 0, lists in random order": (0.0, "random"),
    "p = 0, ordered by a production ranker": (0.0, "production"),
    "p = 0, ordered by a good ranker": (0.0, "good"),
    "p = 1, lists in random order": (1.0, "random"),
}


def draw():
    """What it learns as t+ beside the examination that made the clicks."""
    truth = TRUTH.at(PLACES)
    found = {"examination, the truth": Curve(PLACES, truth)}
    for name, (p, order) in CASES.items():
        found[name] = over_seeds(PLACES, [learned(p, order, seed) for seed in SEEDS])
    return curves_over(
        found,
        title="Pairwise debiasing takes the ranker's skill for position bias",
        subtitle="learned t+; 300 queries, 100 sessions each, 50 trees; mean and range of 3 seeds; "
        "the good ranker: labels with noise",
        x_title="position",
        value_title="relative to position 1",
        legend_columns=2,
    )


def learned(p, order, seed):
    """t+ after 50 rounds."""
    judged = ut.make_judged(n_queries=300, n_features=20, seed=seed)
    chance = np.random.default_rng(seed).normal(size=len(judged.labels))
    ranker = {"random": chance, "production": None, "good": judged.labels + chance}[order]
    made = ut.simulate(
        judged,
        protocols.DLA(examination=TRUTH),
        sessions_per_query=100,
        ranker=ranker,
        seed=seed,
        n_threads=1,
    )
    fitted = ut.LambdaMART(ut.PairwiseDebiasing(p=p), n_trees=50, n_threads=1, seed=seed)
    return fitted.fit(made.log).bias_.examination
