"""Raw clicks prefer what stands higher."""

from _preference import by_relevance, preference, preference_chart

import untilt as ut

CURVES = {
    "raw clicks, all positions examined alike": 0.0,
    "raw clicks, examination 1/sqrt(k)": 0.5,
    "raw clicks, examination 1/k": 1.0,
}


def draw():
    """The pull between two documents of relevance 0.1, so that only examination is to be seen."""
    found = {"by relevance": by_relevance()}
    for name, eta in CURVES.items():
        found[name] = preference(ut.Naive(), ut.PowerLaw(eta), upper=0.1, lower=0.1)
    return preference_chart(
        found,
        title="Raw clicks prefer the document that was higher",
        subtitle="two documents, both of relevance 0.1, at position 1 and below; exact, by formula",
        legend_columns=2,
    )
