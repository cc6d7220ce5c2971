"""RegressionEM takes for examination what the production ranker knew and the features do not."""

import numpy as np
from _curves import truth_and

import untilt as ut

RANKERS = {"ranker used the features": 0.0, "ranker knew more: the labels, with noise": 1.0}


def draw():
    """The same estimator on two logs that differ in who ordered the lists."""
    judged = ut.make_judged(n_queries=600, seed=0)
    noisy_labels = judged.labels + np.random.default_rng(0).normal(size=len(judged.labels))
    found, truth = {}, None
    for name, knew_labels in RANKERS.items():
        ranker = noisy_labels if knew_labels else None
        made = ut.simulate(judged, "dla", ranker=ranker, sessions_per_query=100, seed=0)
        found[name] = ut.RegressionEM(n_threads=1, seed=0).fit(made.log).bias_
        truth = made.truth.examination
    return truth_and(
        truth,
        found,
        title="RegressionEM assumes that the features explain a document's position",
        subtitle="600 queries, 100 sessions each, one fixed order; band: 95% interval",
    )
