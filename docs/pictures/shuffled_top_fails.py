"""ShuffledTop without its tests believes the log about which sessions were shuffled."""

import numpy as np
from _curves import truth_and

import untilt as ut
from untilt.simulation.protocols import Shuffle

CALLED_SHUFFLED = {
    "only what was shuffled": "shuffle",
    "a third of it in the usual order": ("shuffle", "base"),
}


def draw():
    """The same sessions, once with those of the usual order left out and once among the others."""
    judged = ut.make_judged(n_queries=500, seed=0)
    usual = judged.labels + np.random.default_rng(0).normal(scale=0.5, size=len(judged.labels))
    made = ut.simulate(judged, Shuffle(share=2 / 3), ranker=usual, n_sessions=100_000, seed=0)
    found = {
        f"called shuffled: {name}": ut.ShuffledTop(ranker=ranker, check=False).fit(made.log).bias_
        for name, ranker in CALLED_SHUFFLED.items()
    }
    return truth_and(
        made.truth.examination,
        found,
        title="A third that kept the usual order makes the curve too steep",
        subtitle="500 queries, 100,000 sessions, a good usual order; band: 95% interval",
    )
