"""The same documents at ten places: clicks fall with the place, by the same factor for all."""

import numpy as np

import untilt as ut
from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import finished
from untilt.simulation import protocols

N_POSITIONS = 10
KINDS = {"very relevant": (0.6, 1.0), "somewhat relevant": (0.25, 0.6), "hardly": (0.0, 0.25)}


def draw():
    """Lists in random order: which document stands where is chance, so places can be compared."""
    made = ut.simulate(
        ut.make_judged(400, 8, mean_docs=12, seed=0),
        protocols.Shuffle(top=N_POSITIONS),
        sessions_per_query=250,
        seed=0,
        n_threads=1,
    )
    relevance = made.truth.relevance[made.log.document]
    curves = {
        name: _rates(made.log, (low <= relevance) & (relevance < high + (high == 1)))
        for name, (low, high) in KINDS.items()
    }
    return finished(
        curves_chart(curves, value_title="clicked", value_format="%", height=300, legend_columns=3),
        title="The same documents, shown at ten positions",
        subtitle=[
            "lists in random order: 400 queries, 250 sessions each",
            "whatever the document, position 5 gets less than half of the clicks of position 1",
        ],
    )


def _rates(log, rows):
    weight = log.row_count * rows
    shown = np.bincount(log.position, weight, N_POSITIONS + 1)[1:]
    clicked = np.bincount(log.position, weight * (log.label > 0), N_POSITIONS + 1)[1:]
    return Curve(np.arange(1, N_POSITIONS + 1), clicked / shown)
