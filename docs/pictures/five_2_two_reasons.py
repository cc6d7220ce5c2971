"""Click rate by position falls for two reasons: people look less, and documents are worse."""

import numpy as np
from _curves import truth_and

import untilt as ut


def draw():
    """Two systems show their lists to the same readers: one good, one that orders by chance."""
    judged = ut.make_judged(400, 8, mean_docs=12, seed=0)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=len(judged.labels))
    orders = {
        "clicks, good ranker": judged.labels + 0.5 * noise,
        "clicks, weak ranker": 0.5 * judged.labels + noise,
    }
    found, truth = {}, None
    for name, scores in orders.items():
        made = ut.simulate(judged, "dla", ranker=scores, sessions_per_query=250, seed=0)
        rates = made.log.ctr_by_position()
        found[name] = rates.rate / rates.rate[0]
        truth = made.truth.examination
    return truth_and(
        truth,
        found,
        title="Clicks fall down the page for two reasons",
        subtitle="people look less (black), and worse documents are lower; 400 queries",
    )
