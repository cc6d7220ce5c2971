"""A wrong anchor moves TrustEM's curves to another scale, until clicks are fewer than none."""

import numpy as np

import untilt as ut
from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import finished
from untilt.simulation.protocols import Harvest, Trust


def draw():
    """Clicks on what is not relevant, beta_k: one fit, three anchors."""
    judged = ut.make_judged(n_queries=300, n_features=30, seed=0)
    made = ut.simulate(judged, Harvest(clicks=Trust()), sessions_per_query=300, seed=0)
    alpha, beta = made.truth.bias.affine()
    relevant, irrelevant = alpha[0] + beta[0], beta[0]
    fitted = ut.TrustEM(relevance="counts").fit(made.log).curves_
    positions = np.arange(1, fitted.depth + 1)
    curves = {"truth": Curve(positions, beta)}
    anchors = {
        "right anchor": ut.TrustAnchor(relevant, irrelevant),
        "anchor 0.1 too high": ut.TrustAnchor(relevant, irrelevant + 0.1),
        "anchor 0.1 too low": ut.TrustAnchor(relevant, irrelevant - 0.1),
    }
    for name, anchor in anchors.items():
        moved = fitted.anchored(anchor)
        ends = moved.intervals()
        curves[name] = Curve(positions, moved.beta, ends.beta_low, ends.beta_high)
    chart = curves_chart(
        curves,
        truth=next(iter(curves)),
        value_title="P(click) where not relevant: beta",
        height=320,
    )
    return finished(
        chart,
        title="A wrong anchor at position 1 makes the curve wrong at every position",
        subtitle="300 queries, 300 sessions each, three rankers, protocol trust; "
        "band: 95% interval, the anchor taken as right",
    )
