"""With one fixed order DualLearning ends where its training happens to end."""

import numpy as np
from _curves import truth_and

import untilt as ut

# Without the penalty and held-out queries, so that all epochs are trained.
PLAIN = {"l2": 0, "early_stopping": None}
SMALL = {"widths": (32,), "batch_size": 64, "learning_rate": 3e-3, **PLAIN}


def draw():
    """Three rankers that disagree, and one good order with two lengths of training."""
    judged = ut.make_judged(n_queries=250, n_features=10, seed=3)
    several = ut.simulate(judged, "harvest", n_sessions=50_000, seed=3)
    good = judged.labels + np.random.default_rng(0).normal(scale=0.5, size=len(judged.labels))
    fixed = ut.simulate(judged, "dla", n_sessions=30_000, ranker=good, seed=0)
    runs = {
        "three rankers, 60 epochs": (several, 60),
        "one order, 10 epochs": (fixed, 10),
        "one order, 60 epochs": (fixed, 60),
    }
    found = {
        name: ut.DualLearning(epochs=epochs, **SMALL).fit(made.log).bias_
        for name, (made, epochs) in runs.items()
    }
    return truth_and(
        fixed.truth.examination,
        found,
        title="With one order per query the curve depends on when training stops",
        subtitle="250 queries, 50,000 sessions of three rankers, 30,000 of one good order",
    )
