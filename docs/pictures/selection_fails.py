"""Clicks as labels choose the ranker that repeats the old order."""

import altair as alt
from _quality import SMALL, trees

import untilt as ut
from untilt.metrics import NDCG
from untilt.report.charts.charts import PALETTE, configured

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
    heading = alt.TitleParams(
        "Clicks as labels choose the ranker that repeats the old order",
        subtitle="300 queries to train, 300 held out, 60 sessions each; the choice of each judge "
        "in orange, best in truth on top; bars: 95% intervals over queries",
        anchor="start",
        subtitleColor="#555555",
    )
    return configured(alt.hconcat(*parts, spacing=18).properties(title=heading))


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
    data = [
        {"name": name, "value": v, "low": low, "high": high, "best": name == best}
        for name, (v, low, high) in values.items()
    ]
    labels = alt.Axis(labelLimit=300, labelPadding=8, ticks=False) if first else None
    base = alt.Chart(alt.Data(values=data)).encode(
        y=alt.Y("name:N", title=None, sort=order, axis=labels),
        color=alt.condition("datum.best", alt.value(PALETTE[5]), alt.value(PALETTE[4])),
    )
    x = {"title": judge, "scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=4)}
    return alt.layer(
        base.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", **x), x2="high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x=alt.X("value:Q", **x)),
        base.mark_text(dy=-12, fontSize=12).encode(
            x=alt.X("value:Q", **x), text=alt.Text("value:Q", format=".3f")
        ),
    ).properties(width=230, height=42 * len(values))
