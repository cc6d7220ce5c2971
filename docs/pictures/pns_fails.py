"""PNS takes an unclicked document for one that was not liked."""

from _preference import by_relevance, preference, preference_chart

import untilt as ut

TRUTH = ut.PowerLaw(1.0)


def draw():
    """Relevant documents that were not clicked were not seen: the more relevant, the worse."""
    found = {"by relevance": by_relevance()}
    for relevance in (0.1, 0.5, 0.9):
        name = f"PNS, both of relevance {relevance}"
        found[name] = preference(ut.PNS(TRUTH), TRUTH, upper=relevance, lower=relevance)
    wrong = ut.PNS(ut.PowerLaw(0.5))
    found["PNS, relevance 0.1, curve too flat"] = preference(wrong, TRUTH, upper=0.1, lower=0.1)
    return preference_chart(
        found,
        title="PNS keeps the shown order where most who look also click",
        subtitle="two equally relevant documents; examination 1/k; too flat: its power 0.5",
        legend_columns=2,
    )
