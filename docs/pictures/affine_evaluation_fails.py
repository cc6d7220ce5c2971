"""The affine correction takes trust bias out, as far as eps- is known; Bayes-IPS never does."""

from _logs import HOW_TO_READ, bar, gain, made_logs, new_ranker, true_gain
from _panels import panels
from _preference import trust_bias

METHODS = ("ips", "bayes-ips", "affine")
CASES = {
    "no trust bias": ("dla", trust_bias(minus_times=0.0, plus=1.0)),
    "trust bias, all known": ("trust", trust_bias()),
    "trust bias, eps- taken for half": ("trust", trust_bias(minus_times=0.5)),
}


def draw():
    """Three methods, three cases, twenty logs."""
    new = new_ranker()
    found = {}
    for case, (protocol, bias) in CASES.items():
        logs = list(made_logs(protocol))
        truths = [true_gain(made, new) for made in logs]
        found[case] = {
            method: bar([gain(made.log, new, bias, evaluator=method) for made in logs], truths)
            for method in METHODS
        }
    return panels(
        found,
        title="Clicks out of trust count for the old order, unless they are subtracted",
        **HOW_TO_READ,
    )
