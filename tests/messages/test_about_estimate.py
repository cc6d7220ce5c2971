"""The wording of what estimates say, each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_estimate import MESSAGES

CURVE = {"position": 3, "ratio": 1.256, "z": 4.56, "p_value": 0.00123, "n_documents": 1234}
TOLD = (
    "position 3 has 1.26 times the clicks that the curve expects (z +4.6, p 0.0012; 1,234 "
    "documents shown at several positions)"
)
SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "estimate.baseline-all": (
        {"n_sessions": 1200},
        "baseline: all 1,200 sessions (the log names no rankers)",
    ),
    "estimate.baseline-rankers": (
        {"rankers": ("one", "two"), "n_sessions": 800, "of": 1000},
        "baseline: the sessions of one, two, 800 of 1,000; the others are data, not traffic",
    ),
    "estimate.baseline-experiments": (
        {"rankers": ("shuffle",), "n_sessions": 500, "of": 500},
        "baseline: 500 of 500 sessions, all of experiments (shuffle): this log has no session of "
        "production to compare with, so the logged order is the experiment's. Log production "
        "sessions too",
    ),
    "estimate.trained-queries": (
        {"n_trained": 1200, "n_queries": 1500, "share": 0.8},
        "trained on 1,200 of these 1,500 queries (80%): a ranker that remembers them looks better "
        "than it is. Hold queries out before training (log.split(0.8), `untilt split`), or take "
        "the part that it has not seen (held_out=True). Where these are other sessions "
        "of the same queries, the value holds for queries that come again",
    ),
    "estimate.ids-again": (
        {"n_trained": 1200, "n_queries": 1500},
        "1,200 of these 1,500 query ids stood in the training data, with other documents each: "
        "taken as other queries that have the same numbers. If they are the same queries, the "
        "value may be too good",
    ),
    "estimate.validated-queries": (
        {"n_validated": 300, "n_queries": 1500, "share": 0.2},
        "chosen or stopped early by 300 of these 1,500 queries (20%): the value is a little too "
        "good",
    ),
    "estimate.training-unknown": (
        {},
        "does not say which queries it was trained on: see to it that these are others",
    ),
    "estimate.scale-absolute": ({}, "absolute"),
    "estimate.scale-relative": (
        {},
        "relative: relevance counts as the click rate at position 1",
    ),
    "estimate.scale-clicks": ({}, "in clicks"),
    "estimate.scale-per-relevant": ({}, "per relevant document, whatever the scale of the bias"),
    "estimate.clicks-as-they-are": (
        {"evaluator": "naive"},
        "naive: clicks are counted as they are, so documents that were shown on top look better, "
        "and so do systems that keep them there",
    ),
    "estimate.model-only": (
        {"evaluator": "direct"},
        "direct: the value is the relevance model's, which no click corrects",
    ),
    "estimate.no-interval": (
        {"evaluator": "direct"},
        "direct: no interval, because without a position bias nothing tells how far the relevance "
        "model is off. Give the bias",
    ),
    "estimate.few-effective-queries": (
        {"n_queries": 5000, "effective_queries": 4.25},
        "the 5,000 queries count like 4.2 of equal traffic: a few have most of the sessions, so "
        "intervals are wide and differences rest on these few",
    ),
    "estimate.few-queries": (
        {"n_queries": 7},
        "only 7 queries: intervals rest on few independent units",
    ),
    "estimate.documents-absent": (
        {"share": 1 / 3, "evaluator": "ips", "instead": "policy-aware"},
        "sessions of one query show different documents (a document is missing from 33% of its "
        "query's sessions), and ips counts what a session did not show as irrelevant: systems that "
        "move such documents up look worse than they are, even worse than the shown order. Use "
        "evaluator='policy-aware'",
    ),
    "estimate.few-effective-clicks": (
        {
            "n_clicks": 1234.0,
            "effective_n": 56.4,
            "largest_weight": 1000.0,
            "instead": "policy-aware",
            "clipped": False,
        },
        "the 1,234 clicks count like 56 of equal weight (largest weight 1e+03): clip "
        "(evaluator='policy-aware', clip='auto') or collect more sessions",
    ),
    "estimate.clicks-unsupported": (
        {"share": 0.25},
        "25.0% of the clicks are at positions that the bias does not know; they were left out, so "
        "relevance found only there is missing",
    ),
    "estimate.clicks-clipped": (
        {"share": 0.123},
        "12.3% of the clicks are clipped: values lean towards those of raw clicks, so errors "
        "and intervals are those without the clip (see ut.clip_curve)",
    ),
    "estimate.automatic-clicks": (
        {"position": 1, "share": 0.998},
        "position 1 is clicked in 99.8% of its impressions, whatever stands there: the page makes "
        "such clicks (a video that plays by itself, say), not people. Leave them out of the "
        "label, or name a label that people make",
    ),
    "estimate.curve-check": (CURVE, TOLD),
    "estimate.curve-check-impossible": (
        {},
        "no document was shown at two positions: this log cannot check the curve",
    ),
    "estimate.curve-misfit": (
        {**CURVE, "instead": "affine"},
        f"the bias does not fit this log: {TOLD}. Values and differences are off by as much; "
        "estimate the bias from this log, or use one with trust bias and evaluator='affine'",
    ),
    "estimate.curve-unchecked": (
        {},
        "no document was shown at two positions: this log cannot check the curve; the estimate is "
        "as right as the curve is",
    ),
    "estimate.bias-without-errors": (
        {},
        "the bias was given without standard errors; intervals take it as exact",
    ),
    "estimate.bias-doubted": (
        {"doubt": "Clicks differ."},
        "the bias itself says: Clicks differ.",
    ),
    "estimate.bias-without-interval": (
        {"method": "pairwise debiasing (p=0)"},
        "the bias (pairwise debiasing (p=0)) was estimated, but its error is not known and is not "
        "in these intervals: they are too short, nobody knows by how much. Use an estimator that "
        "gives intervals, or give a curve that you know",
    ),
    "estimate.bounded-levels": (
        {"positions": (4, 5, 6)},
        "nothing joins positions 4..6 to position 1: intervals run over all levels that the bounds "
        "of the curve allow there, and the values stand in the middle",
    ),
    "estimate.trust-ignored": (
        {"evaluator": "ips", "instead": "affine"},
        "the bias includes trust bias, which ips does not correct: use evaluator='affine'",
    ),
    "estimate.one-query": ({"share": 0.345}, "one query makes up 34% of the estimate's variance"),
    "estimate.unshown-documents": (
        {"share": 0.0456, "queries": 0.2, "top": 10, "as_shown": 1.25},
        "4.6% of its top 10 places, in 20% of the queries, go to documents that nobody was shown: "
        "they count as irrelevant here. If they were worth as much as the shown ones, its value "
        "would be 1.2500",
    ),
    "estimate.unshown-candidates": (
        {"share": 0.0456, "queries": 0.2, "top": 10, "nothing": 1.1, "as_shown": 1.25},
        "where it ranks all candidates, 4.6% of its top 10 places, in 20% of the queries, go to "
        "documents that nobody was shown: its value would then be 1.1000 if these are worth "
        "nothing, and 1.2500 if as much as the shown ones",
    ),
    "estimate.unshown-judged": (
        {"share": 0.0456, "queries": 0.2, "top": 10},
        "4.6% of its top 10 places, in 20% of the queries, go to documents that the log never "
        "showed: clicks of that log could not have told their part of the value",
    ),
    "estimate.unshown-decide": (
        {
            "system": "new",
            "baseline": "shown",
            "share": 0.62,
            "top": 10,
            "nothing": -0.3,
            "as_shown": 0.12,
        },
        "new and shown: 62% of the top 10 places would go to documents that nobody was shown, and "
        "the answer depends on them. Where all candidates are ranked the difference is -0.3000 if "
        "these are worth nothing, and +0.1200 if as much as the shown ones. Order only what the "
        "old ranker shows, or show some of them to a share of the traffic first",
    ),
    "estimate.bias-dominates": (
        {},
        "most of the uncertainty comes from the bias estimate: more sessions of this kind will not "
        "help, more interventions will",
    ),
}


def test_every_message_is_here():
    assert set(SENTENCES) == set(MESSAGES)


@pytest.mark.parametrize("code", SENTENCES)
def test_wording(code):
    fields, sentence = SENTENCES[code]
    assert Fact(code, **fields) == sentence
