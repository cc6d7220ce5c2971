"""Policy-aware is right where sessions show different documents; not with a wrong curve."""

from _logs import HOW_TO_READ, bar, gain, made_logs, new_ranker, true_gain
from _panels import panels

import untilt as ut
from untilt.simulation import protocols

LOG = protocols.Harvest(rankers=3, depth=5)
CASES = {
    "each list by itself": (ut.EyeTracking(), "list"),
    "all shown documents": (ut.EyeTracking(), "shown"),
    "the same, curve too flat": (ut.EyeTracking(0.5), "shown"),
    "documents nobody was shown": (ut.EyeTracking(), "candidates"),
}


def draw():
    """Three rankers share the traffic and show five documents each."""
    new, logs = new_ranker(), list(made_logs(LOG))
    found = {}
    for case, (bias, among) in CASES.items():
        truths = [true_gain(made, new, among=among) for made in logs]
        found[case] = {
            method: bar(
                [gain(made.log, new, bias, evaluator=method, among=among) for made in logs], truths
            )
            for method in ("ips", "policy-aware")
        }
    return panels(
        found,
        title="Rankers share the traffic: policy-aware is right, unless the curve is wrong",
        **HOW_TO_READ,
    )
