"""Which positions a log can compare, and the swaps that would join the rest."""

from dataclasses import replace

import numpy as np

import untilt as ut
from untilt.charts.graph import graph_chart, graph_notes
from untilt.charts.theme import finished

TOP = 4


def draw():
    """One fixed ranker, but the first four documents stand in random order."""
    judged = ut.make_judged(200, 8, seed=0)
    log = ut.simulate(judged, "dla", n_sessions=10_000, seed=0, collapse=False).log
    graph = ut.audit(replace(log, document=_shuffled(log))).graph
    return finished(
        graph_chart(graph), title="Which positions can be compared", subtitle=graph_notes(graph)
    )


def _shuffled(log):
    rng, document = np.random.default_rng(0), log.document.copy()
    for start, stop in zip(log.indptr[:-1], log.indptr[1:], strict=True):
        top = slice(start, min(start + TOP, stop))
        document[top] = rng.permutation(document[top])
    return document
