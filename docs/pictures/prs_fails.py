"""PRS without its clip prefers the lower document."""

from _preference import by_relevance, preference, preference_chart

import untilt as ut

TRUTH = ut.PowerLaw(1.0)
CASES = {
    "PRS, clip 1": ut.PRS(TRUTH),
    "PRS, clip 2": ut.PRS(TRUTH, clip=2.0),
    "PRS, no clip": ut.PRS(TRUTH, clip=float("inf")),
    "PRS, clip 1, curve too steep": ut.PRS(ut.PowerLaw(1.5)),
}


def draw():
    """The same clicks, other clips, and a wrong curve."""
    found = {"by relevance": by_relevance()}
    for name, weighting in CASES.items():
        found[name] = preference(weighting, TRUTH, upper=0.1, lower=0.1)
    return preference_chart(
        found,
        title="PRS without its clip reverses the shown order",
        subtitle="two documents, both of relevance 0.1; examination 1/k; too steep: its power 1.5",
    )
