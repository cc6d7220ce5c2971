"""PivotSwap(within="length") needs chance alone to decide which lists were swapped."""

import numpy as np
from _curves import truth_and

import untilt as ut
from untilt.simulation.protocols import Swap


def draw():
    """Swaps drawn at random, and the same with those kept that looked like a good idea."""
    judged = ut.make_judged(n_queries=500, seed=0)
    made = ut.simulate(judged, Swap(share=0.7), n_sessions=200_000, seed=0)
    chosen = made.log.take(np.flatnonzero(_untouched(made.log) | _looked_better(made)))
    # Its tests would refuse the chosen swaps.
    by_length = ut.PivotSwap(within="length", check=False)
    by_document = ut.PivotSwap(check=False)
    found = {
        'random swaps, "length"': by_length.fit(made.log).bias_,
        'chosen swaps, "document"': by_document.fit(chosen).bias_,
        'chosen swaps, "length"': by_length.fit(chosen).bias_,
    }
    return truth_and(
        made.truth.examination,
        found,
        title='Swaps chosen by what looked better mislead within="length"',
        subtitle="500 queries, 200,000 sessions, or those of them left by the choice; "
        "band: 95% interval",
    )


def _untouched(log):
    return np.array(log.ranker_names)[log.ranker] == "base"


def _looked_better(made):
    """(lists,) whether the document that came up to position 1 seemed the better of the two."""
    log, rng = made.log, np.random.default_rng(0)
    looks = made.truth.judged.labels + rng.normal(scale=0.5, size=log.n_documents)
    names = np.array(log.ranker_names)[log.ranker]
    lower = np.array([int(name.rpartition("-")[2]) if "-" in name else 1 for name in names])
    first = log.indptr[:-1]
    return looks[log.document[first]] > looks[log.document[first + lower - 1]]
