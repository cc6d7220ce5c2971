"""PBM knows where people look on average, and not where they look in this session."""

import altair as alt
import numpy as np

import untilt as ut
from untilt._core.statistics import normal_quantile
from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import finished, panel_title
from untilt.simulation.protocols import DLA, Cascade, Swap

READERS = {
    "Readers look at each position by itself: PBM is right": DLA(),
    "Readers stop after the first good one: PBM is wrong": Cascade(
        beta=0.95, satisfaction=1.0, epsilon=0.4
    ),
}
MODELS = {"PBM": ut.PBM, "DBN": ut.DBN}


def draw():
    """Click rates among sessions without a click so far: what happened, and what models say."""
    judged = ut.make_judged(n_queries=200, n_features=5, seed=0)
    charts = []
    for title, clicks in READERS.items():
        made = ut.simulate(judged, Swap(clicks=clicks), n_sessions=120_000, seed=1)
        train, test = made.log.split(0.75, by="session")
        curves = {"truth: what happened": _rates(test, test.label, band=True)}
        for name, model in MODELS.items():
            curves[name] = _rates(test, model().fit(train).conditional_probability(test))
        chart = curves_chart(curves, truth=next(iter(curves)), value_title="clicks per impression")
        charts.append(chart.properties(title=panel_title(title)))
    return finished(
        alt.vconcat(*charts, spacing=40),
        title="The position-based model does not know who stopped reading",
        subtitle="sessions without a click above the position; 90,000 sessions to learn from, "
        "30,000 held out; band: 95% interval",
    )


def _rates(log, value, *, band=False):
    """Mean of a value by position over the rows with no click above."""
    above = np.cumsum(log.label) - log.label  # clicks on earlier rows; rows go from the top
    kept = above == np.repeat(above[log.indptr[:-1]], np.diff(log.indptr))
    at, weight = log.position[kept] - 1, log.row_count[kept]
    shown = np.bincount(at, weight)
    rate = np.bincount(at, weight * value[kept]) / shown
    half = normal_quantile(0.95) * np.sqrt(rate * (1 - rate) / shown)
    ends = (rate - half, rate + half) if band else ()
    return Curve(np.arange(1, len(rate) + 1), rate, *ends)
