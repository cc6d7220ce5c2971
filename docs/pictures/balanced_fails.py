"""Balanced orders by relevance with the right curve, and not with a wrong one."""

from _preference import by_relevance, preference, preference_chart, trust_bias

import untilt as ut

UPPER, LOWER = 0.2, 0.4
PLAIN, TRUST = ut.EyeTracking(), trust_bias()
CASES = {
    "Balanced, right curve": (ut.Balanced(PLAIN), PLAIN),
    "Balanced, right curve, trust bias": (ut.Balanced(TRUST), TRUST),
    "Balanced, curve too flat": (ut.Balanced(ut.EyeTracking(0.5)), PLAIN),
    "Balanced, curve too steep": (ut.Balanced(ut.EyeTracking(1.5)), PLAIN),
    "Balanced, trust bias not known": (ut.Balanced(PLAIN), TRUST),
}


def draw():
    """A better document below: who is put first?"""
    found = {"by relevance": by_relevance(UPPER, LOWER)}
    for name, (weighting, truth) in CASES.items():
        found[name] = preference(weighting, truth, upper=UPPER, lower=LOWER)
    return preference_chart(
        found,
        title="Balanced is exact with the right curve, and wrong with a wrong one",
        subtitle="relevance 0.2 at position 1, 0.4 below: above 0% the wrong one is put first; "
        "eye-tracking curve, wrong: its power 0.5 and 1.5",
        legend_columns=2,
    )
