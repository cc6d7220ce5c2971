"""IPS and its relatives are right with the right curve and without trust bias."""

from _logs import HOW_TO_READ, bar, gain, made_logs, new_ranker, true_gain
from _panels import panels

import untilt as ut

METHODS = {
    "naive": {"evaluator": "naive"},
    "ips": {"evaluator": "ips"},
    "clipped, tau 0.3": {"evaluator": "clipped", "clip": 0.3},
    "snips": {"evaluator": "snips"},
}
CASES = {
    "curve right": ("dla", ut.EyeTracking()),
    "curve too flat": ("dla", ut.EyeTracking(0.5)),
    "trust bias": ("trust", ut.EyeTracking()),
}


def draw():
    """Four methods, three cases, twenty logs."""
    new = new_ranker()
    found = {}
    for case, (protocol, bias) in CASES.items():
        logs = list(made_logs(protocol))
        found[case] = {
            name: bar(
                [gain(made.log, new, bias, **options) for made in logs],
                [true_gain(made, new, per_document=name == "snips") for made in logs],
            )
            for name, options in METHODS.items()
        }
    return panels(
        found,
        title="How much better is the new ranker? IPS needs the right curve and no trust bias",
        **HOW_TO_READ,
    )
