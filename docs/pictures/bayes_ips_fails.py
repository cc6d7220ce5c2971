"""Bayes-IPS scales clicks of trust down; it does not take them away."""

from _preference import by_relevance, preference, preference_chart, trust_bias

import untilt as ut


def draw():
    """Two documents without trust bias, and with it."""
    trust, none = trust_bias(), trust_bias(minus_times=0.0)
    found = {
        "by relevance": by_relevance(),
        "Bayes-IPS, no trust bias, relevance 0.1": _pull(ut.BayesIPS(none), none),
        "Bayes-IPS, trust bias, relevance 0.5": preference(ut.BayesIPS(trust), trust),
        "Bayes-IPS, trust bias, relevance 0.1": _pull(ut.BayesIPS(trust), trust),
        "IPS, trust bias, relevance 0.1": _pull(ut.IPS(trust), trust),
    }
    return preference_chart(
        found,
        title="Under trust bias Bayes-IPS keeps part of the shown order",
        subtitle="two equally relevant documents; examination, eps+ and eps- of protocol trust, "
        "all known",
        legend_columns=2,
    )


def _pull(weighting, truth):
    return preference(weighting, truth, upper=0.1, lower=0.1)
