"""The chain of AdjacentSwap carries the error of every link down the page."""

import numpy as np

import untilt as ut
from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import finished
from untilt.simulation.protocols import Swap

FEW = 20  # of so many swaps of 3 and 4 one is kept


def draw():
    """Estimate over truth: the same number of sessions as pivot swaps and as adjacent swaps."""
    judged = ut.make_judged(n_queries=500, seed=0)
    pivot = ut.simulate(judged, Swap(), n_sessions=100_000, seed=0)
    chain = ut.simulate(judged, Swap(adjacent=True), n_sessions=100_000, seed=0, collapse=False)
    truth = pivot.truth.examination / pivot.truth.examination[0]
    found = {
        "PivotSwap": ut.PivotSwap().fit(pivot.log).bias_,
        "AdjacentSwap": ut.AdjacentSwap().fit(chain.log).bias_,
        "AdjacentSwap, few swaps of 3 and 4": ut.AdjacentSwap().fit(_weak_link(chain.log)).bias_,
    }
    positions = np.arange(1, len(truth) + 1)
    curves = {"truth": Curve(positions, np.ones(len(truth)))}
    for name, bias in found.items():
        curves[name] = Curve(
            positions, bias.examination / truth, bias.low / truth, bias.high / truth
        )
    chart = curves_chart(
        curves,
        truth=next(iter(curves)),
        value_title="estimate / true examination",
        from_zero=False,
        height=320,
    )
    return finished(
        chart,
        title="Each link of the chain adds its error to all positions below",
        subtitle="500 queries, 100,000 sessions, half of them swapped; band: 95% interval",
    )


def _weak_link(log):
    """The log with about one in FEW of the sessions that swapped positions 3 and 4."""
    swapped = np.array(log.ranker_names)[log.ranker] == "swap:3-4"
    kept = ~swapped | (np.random.default_rng(0).random(len(swapped)) < 1 / FEW)
    return log.take(np.flatnonzero(kept))
