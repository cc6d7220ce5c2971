"""Counterfactual estimates of "how much better is the new ranker?" over many small logs."""

import numpy as np
from _panels import Bar, over_logs

import untilt as ut

N_LOGS = 20
JUDGED = {"n_queries": 150, "n_features": 12, "mean_docs": 12}
HOW_TO_READ = {
    "subtitle": [
        "DCG@10 of the new ranker minus that of the shown order, as a multiple of the true "
        "difference (black)",
        "mean of 20 logs of 150 queries and 60 sessions each, mean 95% interval, and how many "
        "intervals hold the truth",
    ],
    "value_title": "estimate / truth",
    "truth": 1.0,
}
FLAT = ut.RankMetric("all", np.ones_like)


def made_logs(protocol, *, sessions_per_query: int = 60):
    """Small logs, each of its own queries."""
    for seed in range(N_LOGS):
        judged = ut.make_judged(seed=seed, **JUDGED)
        yield ut.simulate(
            judged, protocol, sessions_per_query=sessions_per_query, seed=seed, n_threads=1
        )


def new_ranker():
    """A ranker that learned from labels of other queries: better than the production ranker."""
    return ut.LinearRanker().fit(ut.make_judged(seed=1000, **{**JUDGED, "n_queries": 300}))


def gain(log, new, bias=None, **options):
    """(difference to the shown order, low, high)."""
    found = ut.estimate(log, {"shown": ut.shown, "new": new}, bias, **options).compare("shown")[
        "new"
    ]
    return found.value, found.interval.low, found.interval.high


def true_gain(made, new, *, per_document: bool = False, **options) -> float:
    """The same difference by the true relevance; `per_document` as snips counts it."""
    truth = {"evaluator": "direct", "relevance": made.truth.relevance}
    value, *_ = gain(made.log, new, **truth, **options)
    if per_document:
        value /= ut.estimate(made.log, {"all": ut.shown}, metric=FLAT, **truth)["all"].value
    return value


def bar(triples, truths) -> Bar:
    """Mean over logs, relative to the truth of each."""
    found = np.asarray(triples) / np.asarray(truths)[:, None]
    return over_logs(found[:, 0], found[:, 1], found[:, 2])
