"""IPS is as right as its curve, its clip and its choice of pairs."""

from _preference import by_relevance, preference, preference_chart

import untilt as ut

TRUTH = ut.PowerLaw(1.0)
CASES = {
    "against all, right curve": ut.IPS(TRUTH, against="all"),
    "against unclicked, right curve": ut.IPS(TRUTH),
    "against all, clip 0.3": ut.IPS(TRUTH, clip=0.3, against="all"),
    "against all, curve too flat": ut.IPS(ut.PowerLaw(0.5), against="all"),
    "against all, curve too steep": ut.IPS(ut.PowerLaw(1.5), against="all"),
}


def draw():
    """Five ways to use it on the same clicks."""
    found = {"by relevance": by_relevance()}
    found |= {name: preference(weighting, TRUTH) for name, weighting in CASES.items()}
    return preference_chart(
        found,
        title="IPS against all is exact, with the right curve and no clip",
        subtitle="two documents, both of relevance 0.5; examination 1/k; too flat and too steep: "
        "its power 0.5 and 1.5",
        legend_columns=2,
    )
