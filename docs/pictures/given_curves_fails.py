"""What a guessed curve does to the answer: how much better would another order be?"""

import numpy as np
from _bands import curves_over

import untilt as ut
from untilt._core.statistics import normal_quantile
from untilt.charts.curves import Curve
from untilt.evaluation.uncertainty import sampling_error
from untilt.simulation.protocols import DLA, Harvest

GUESSES = np.arange(0, 2.01, 0.25)


def draw():
    """The gain of the order by labels over what was shown, by guess, beside the true gain."""
    judged = ut.make_judged(n_queries=500, seed=0)
    clicks = Harvest(clicks=DLA(examination=ut.PowerLaw(1.0)))
    made = ut.simulate(judged, clicks, n_sessions=200_000, seed=1)
    log, rankers = made.log, {"shown": _shown(made.log), "labels": made.truth.judged.labels}
    gains = [_gain(ut.estimate(log, rankers, ut.PowerLaw(eta), evaluator="ips")) for eta in GUESSES]
    true = ut.estimate(log, rankers, evaluator="direct", relevance=made.truth.relevance)
    gain, error = 100 * np.transpose(gains)
    half = normal_quantile(0.95) * error
    return curves_over(
        {
            "truth": Curve(GUESSES, np.full(len(GUESSES), 100 * _gain(true)[0])),
            "with the guessed curve": Curve(GUESSES, gain, gain - half, gain + half),
        },
        title="A steeper guess favours an order that brings documents up from below",
        subtitle="500 queries, 200,000 sessions, three rankers, examination 1/k: eta 1 is right; "
        "band: 95% interval",
        x_title="guess: eta of PowerLaw(eta)",
        value_title="gain in DCG@10 of the labels' order, %",
    )


def _shown(log):
    """Minus the mean position where each document was shown."""
    times = np.bincount(log.document, log.row_count, log.n_documents)
    return -np.bincount(log.document, log.row_count * log.position, log.n_documents) / times.clip(1)


def _gain(found):
    """V(labels) / V(shown) - 1 and its standard error over queries (delta method)."""
    shown, labels = (found[name].value for name in ("shown", "labels"))
    of_shown, of_labels = found.sums.influence.T
    influence = (of_labels - labels / shown * of_shown) / shown
    return labels / shown - 1, sampling_error(influence[:, None])[0]
