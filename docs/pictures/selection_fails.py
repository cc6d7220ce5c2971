"""Clicks as labels choose the ranker that repeats the old order."""

import altair as alt
from _quality import SMALL, trees

import untilt as ut
from untilt.charts.intervals import Bar, intervals_chart
from untilt.charts.theme import finished
from untilt.metrics import NDCG

BIAS = ut.EyeTracking()
CANDIDATES = {
    "linear, raw clicks": ut.LinearRanker(),
    "linear, IPS": ut.LinearRanker(ut.IPS(BIAS)),
    "trees, raw clicks": trees(),
    "trees, IPS": trees(ut.IPS(BIAS)),
    "trees, PRS": trees(ut.PRS(BIAS)),
    "trees, Balanced": trees(ut.Balanced(BIAS)),
}
JUDGES = ("NDCG@10 on held-out clicks", "select: counterfactual DCG@10", "truth: NDCG@10 by labels")


def draw():
    """Three judges of the same six rankers, trained on the same clicks."""
    values = judged_by()
    order = sorted(CANDIDATES, key=lambda name: -values[JUDGES[2]][name][0])
    parts = [_panel(judge, values[judge], order, first=judge == JUDGES[0]) for judge in JUDGES]
    return finished(
        alt.hconcat(*parts, spacing=18),
        title="Clicks as labels choose the ranker that repeats the old order",
        subtitle="300 queries to train, 300 held out, 60 sessions each; the choice of each judge "
        "in blue, best in truth on top; bars: 95% intervals over queries",
    )


def judged_by():
    """judge -> candidate -> (value, low, high)."""
    judged = ut.make_judged(600, seed=0, **SMALL)
    log = ut.simulate(judged, "dla", sessions_per_query=60, seed=0, n_threads=1).log
    train, valid = log.split(0.5, by="query", seed=0)
    found = ut.select(CANDIDATES, train=train, valid=valid, bias=BIAS)
    test = ut.make_judged(500, seed=10_000, **SMALL)
    values = {judge: {} for judge in JUDGES}
    for name, each in found.fitted.items():
        estimate = found.estimates[name]
        true = ut.evaluate(test, each.ranker.predict(test.features), metrics=["ndcg@10"])["ndcg@10"]
        on_clicks = NDCG(10).mean(
            each.scores[valid.document],
            valid.label,
            valid.indptr,
            weights=valid.sessions,
            units=valid.query,
            empty="skip",
        )
        for judge, each_value in zip(JUDGES, (on_clicks, estimate, true), strict=True):
            value, half = each_value.value, 1.96 * each_value.std_error
            values[judge][name] = (value, value - half, value + half)
    return values


def _panel(judge, values, order, *, first):
    best = max(values, key=lambda name: values[name][0])
    return intervals_chart(
        {name: Bar(*values[name], chosen=name == best) for name in order},
        value_title=judge,
        names="axis" if first else "none",
    ).properties(width=230)
