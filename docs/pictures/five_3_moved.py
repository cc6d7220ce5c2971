"""Documents that were shown at several places tell the two reasons apart."""

import numpy as np
from _curves import truth_and

import untilt as ut

N_RANKERS = 3


def draw():
    """Three good rankers share the traffic; click rate, and what AllPairs makes of the same log."""
    judged = ut.make_judged(400, 12, mean_docs=12, seed=0)
    noise = np.random.default_rng(0).normal(size=(N_RANKERS, len(judged.labels)))
    rankers = {f"ranker {j}": judged.labels + each for j, each in enumerate(noise)}
    made = ut.simulate(judged, "harvest", ranker=rankers, n_sessions=30_000, seed=0, n_threads=1)
    rates = made.log.ctr_by_position().rate
    return truth_and(
        made.truth.examination,
        {"click rate": rates / rates[0], "AllPairs": ut.AllPairs().fit(made.log).bias_},
        title="Documents that changed positions show how much people look",
        subtitle="three rankers share 30,000 sessions of 400 queries; band: 95% interval",
    )
