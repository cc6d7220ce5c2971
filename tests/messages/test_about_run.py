"""The wording of what a run tells, each message once."""

from typing import Any

import pytest

from untilt.facts import Fact

BOUNDS = "To have bounds in place of a guess: --bias all-pairs:unjoined=bounds."
SWAPS = "To measure it, swap positions in a share of the sessions: `untilt plan LOG` says how many."
NAMES = ("auto", "linear")
SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "run.bias-asked-for": ({"estimator": "AllPairs"}, "AllPairs was asked for"),
    "run.bias-given": ({}, "the curve was given"),
    "run.estimator-failed": (
        {"estimator": "Pivot", "error": "no swaps"},
        "Pivot, which the audit advises, failed: no swaps",
    ),
    "run.bias-from-all-queries": (
        {},
        "The bias was estimated on all queries, those held out for evaluation too: without them "
        "the log is too small for it. Intervals are a little too narrow for that.",
    ),
    "run.curve-held-out": (
        {},
        "The curve was estimated without the sessions that rankers are judged by.",
    ),
    "run.curve-of-all": (
        {},
        "The curve was estimated on all sessions, those that rankers are judged by among them.",
    ),
    "run.held-out-latest": (
        {"share": 0.2, "begins": "2026-03-01 12:00:00"},
        "Held out for the evaluation: the latest 20% of the sessions, from 2026-03-01 12:00:00 on. "
        "The rankers that are judged learned from earlier sessions alone; queries may come again.",
    ),
    "run.folds": (
        {"folds": 5, "queries": 1200},
        "All 1,200 queries count: they are divided into 5 folds, and the queries of each fold are "
        "judged by rankers that were trained on the others.",
    ),
    "run.only-candidate": (
        {"chosen": "raw clicks"},
        "Only one candidate was trained: raw clicks.",
    ),
    "run.default-kept": (
        {
            "default": "auto",
            "other": "linear",
            "difference": 0.004,
            "std_error": 0.003,
            "metric": "dcg@10",
        },
        "The default, auto, was kept: no other candidate is better by two standard errors. The "
        "nearest is linear: +0.0040 dcg@10, standard error 0.0030.",
    ),
    "run.default-beaten": (
        {
            "default": "auto",
            "chosen": "linear",
            "difference": 0.012,
            "std_error": 0.003,
            "metric": "dcg@10",
            "p_value": 0.0003,
            "tried": 3,
        },
        "The default, auto, gave way to linear, which is better by +0.0120 dcg@10, standard error "
        "0.0030, p 0.0003 after correction for 3 comparisons.",
    ),
    "run.choice-by-fold": (
        {"chosen": ("auto in 3", "linear in 2"), "shipped": "auto"},
        "The folds chose differently (auto in 3, linear in 2), so that the answer is about a "
        "choice like theirs, in which no query had a say in its own. All folds together chose "
        "auto.",
    ),
    "run.refit": (
        {"file": "ranker.untilt", "system": "auto", "queries": 1200},
        "ranker.untilt is auto, trained again on all 1,200 queries; the figures are those of the "
        "same method, trained without the queries that it was judged by.",
    ),
    "run.refit-late": (
        {"limit": "10 s", "file": "ranker.untilt", "system": "auto", "queries": 1200},
        "The time limit of 10 s left no time to train auto again on all queries: ranker.untilt is "
        "the ranker that was judged, trained on 1,200 queries. Give it more time.",
    ),
    "run.refit-failed": (
        {"file": "ranker.untilt", "system": "auto", "queries": 1200, "error": "no clicks"},
        "auto could not be trained again on all queries (no clicks): ranker.untilt is the ranker "
        "that was judged, trained on 1,200 queries.",
    ),
    "run.held-out": (
        {"share": 0.2, "units": "queries"},
        "Held out for the evaluation: 20% of the queries.",
    ),
    "run.sessions-held-out": (
        {"queries": 22},
        "Only 22 queries have sessions, so that single sessions are held out in place of whole "
        "queries: the figures are about these queries, not new ones.",
    ),
    "run.no-features": (
        {},
        "This log has no features, so no ranker can be trained that scores new documents or "
        "queries: give --documents TABLE or --features PATTERN. What can be done is to order the "
        "documents that were shown often by their own clicks, corrected for position.",
    ),
    "run.click-models-failed": (
        {"error": "too few sessions"},
        "Click models could not be compared: too few sessions",
    ),
    "run.candidate-failed": (
        {"candidate": "prs", "error": "no pairs"},
        "The candidate prs could not be trained: no pairs",
    ),
    "run.candidates-late": (
        {"limit": "2.0 s", "candidates": NAMES},
        "The time limit of 2.0 s was over before these candidates were trained: auto, linear.",
    ),
    "run.fewer-trees": (
        {"limit": "10 min 0 s", "trees": 200, "wanted": 300},
        "For the time limit of 10 min 0 s rankers have 200 trees in place of 300.",
    ),
    "run.candidates-dropped": (
        {"limit": "2.0 s", "candidates": NAMES},
        "For the time limit of 2.0 s these candidates were not trained: auto, linear.",
    ),
    "run.of-system": (
        {"system": "auto", "warning": "one query decides"},
        "For auto: one query decides",
    ),
    "run.against-raw-clicks": (
        {"difference": 0.05, "metric": "dcg@10", "low": -0.01, "high": 0.11},
        "Against the same learner on raw clicks: +0.0500 dcg@10, interval [-0.0100, +0.1100].",
    ),
    "run.sessions-not-enough": (
        {},
        "More sessions alone will not decide it: the uncertainty of the bias is larger than the "
        "difference.",
    ),
    "run.nothing-trained": (
        {"why": "Features are constant."},
        "No ranker could be trained. Features are constant.",
    ),
    "run.nothing-compared": ({}, "Nothing could be compared with the logged order."),
    "run.if-within-lists": ({}, "if it only reorders documents that were shown"),
    "run.if-unshown-worthless": ({}, "if documents that nobody was shown are worth nothing"),
    "run.try-within-lists": (
        {"share": 0.62, "top": 10, "measured": False},
        "Try it on a share of the traffic as an order of what the old ranker shows, if the "
        "examination curve is right; not over all candidates, where 62% of its top 10 places would "
        "go to documents that nobody was shown.",
    ),
    "run.try-it": ({}, "Try it on a share of the traffic."),
    "run.try-if-curve-right": (
        {},
        "Try it on a share of the traffic, if the examination curve is right.",
    ),
    "run.keep-order": ({"shown": "logged order"}, "Keep the logged order."),
    "run.same-order": (
        {"shown": "logged order"},
        "There is nothing to decide: in every query it has exactly the value of the logged order, "
        "as with the same order.",
    ),
    "run.collect-sessions": (
        {"sessions": 12_345.0},
        "Collect about 12,345 more held-out sessions before deciding.",
    ),
    "run.do-not-decide": ({}, "Do not decide on these figures alone."),
    "run.step-damaged": (
        {"step": "bias", "error": "its checksum does not match"},
        "bias: the file of this step cannot be used, so it is done again (its checksum does not "
        "match)",
    ),
    "run.steps-do-not-fit": (
        {"error": "KeyError('raw clicks')"},
        "What earlier runs left in this folder does not fit together, so every step is done again "
        "(KeyError('raw clicks'))",
    ),
    "run.lines-damaged": (
        {"lines": 1, "file": "a.jsonl"},
        "1 line of a.jsonl cannot be used, cut short or changed after being written: what they "
        "held is run again",
    ),
    "run.file-damaged": (
        {"step": "bias", "file": "bias.json"},
        "bias: bias.json is gone, or was changed after this step wrote it, so the step is done "
        "again",
    ),
}


@pytest.mark.parametrize("code", SENTENCES)
def test_each_message_says_its_sentence(code):
    fields, sentence = SENTENCES[code]
    assert Fact(code, **fields) == sentence
