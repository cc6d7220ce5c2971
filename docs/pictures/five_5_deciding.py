"""Raw clicks praise the old order; corrected ones say what the new ranker is worth."""

from _logs import bar, gain, made_logs, new_ranker, true_gain

import untilt as ut
from untilt.charts.intervals import intervals_chart
from untilt.charts.theme import finished

BIAS = ut.EyeTracking()


def draw():
    """The same logs judged twice."""
    new = new_ranker()
    logs = list(made_logs("dla"))
    truths = [true_gain(made, new) for made in logs]
    found = {
        "raw clicks": bar([gain(made.log, new, evaluator="naive") for made in logs], truths),
        "bias taken out": bar([gain(made.log, new, BIAS) for made in logs], truths),
    }
    chart = intervals_chart(found, value_title="estimated gain / true gain", at=1.0)
    return finished(
        chart.properties(width=560),
        title="Is the new ranker better than the order that was shown?",
        subtitle=[
            "gain in DCG@10 as a multiple of the true gain (line at 1); 0 means no difference",
            "mean of 20 logs of 150 queries, mean 95% interval, how many intervals hold the truth",
        ],
    )
