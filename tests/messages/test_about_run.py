"""The wording of what a run tells, each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_run import MESSAGES

BOUNDS = "To have bounds in place of a guess: --bias all-pairs:unjoined=bounds."
SWAPS = "To measure it, swap positions in a share of the sessions: `untilt plan LOG` says how many."
NAMES = ("auto", "linear")
SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "run.leave-leaks-out-first": (
        {"features": ("booked", "paid")},
        "First leave out what is known only after the click: booked, paid. Figures of rankers that "
        "use it are worth nothing.",
    ),
    "run.bias-asked-for": ({"estimator": "AllPairs"}, "AllPairs was asked for"),
    "run.bias-given": ({}, "the curve was given"),
    "run.estimator-failed": (
        {"estimator": "Pivot", "error": "no swaps"},
        "Pivot, which the audit advises, failed: no swaps",
    ),
    "run.bias-modelled": (
        {"estimator": "RegressionEM", "assumes": "features explain relevance"},
        "The position bias is not measured but modelled by RegressionEM: it is right only if "
        f"features explain relevance. {SWAPS}",
    ),
    "run.bias-assumed": (
        {"why": "no document was shown twice", "curve": "power-law:1"},
        "This log cannot tell its position bias: no document was shown twice. The curve "
        f"power-law:1 is assumed in its place; every corrected figure is as right as that guess. "
        f"{SWAPS} {BOUNDS}",
    ),
    "run.bias-from-all-queries": (
        {},
        "The bias was estimated on all queries, those held out for evaluation too: without them "
        "the log is too small for it. Intervals are a little too narrow for that.",
    ),
    "run.bias-ends-early": (
        {"known": 4, "depth": 10},
        "The bias is known for positions 1..4 of 10: what was shown below is left out of training "
        f"and evaluation. {BOUNDS}",
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
    "run.measure-bias-first": (
        {},
        "First measure the position bias: this figure rests on a curve that is assumed.",
    ),
    "run.find-misfit-first": (
        {},
        "First find out why the clicks do not fit the examination curve.",
    ),
    "run.get-evidence-first": ({}, "Do not decide on these figures."),
    "run.floor-curve-assumed": (
        {},
        "the examination curve is assumed: nobody measured it, and another guess can turn the "
        "answer round. Measure it (`untilt plan` says with how many swapped sessions), or give a "
        "curve that you believe with --bias, or bounds (--bias all-pairs:unjoined=bounds)",
    ),
    "run.floor-leaks": (
        {"features": ("booking_bool",)},
        "rankers were trained on what is known only after the click: booking_bool. Leave it out of "
        "the features",
    ),
    "run.floor-no-interval": (
        {"method": "PairwiseTrustRanker"},
        "the examination curve (PairwiseTrustRanker) is an estimate without an interval: how far "
        "it is off is not known, so the intervals of the rankers leave it out. Use an estimator "
        "that gives one, or give a curve that you know with --bias",
    ),
    "run.floor-misfit": (
        {"position": 4, "ratio": 1.5, "p_value": 1e-5},
        "clicks do not fit the examination curve: position 4 has 1.50 times the clicks that it "
        "should have (p 1e-05). People may read in another way than the curve says: trust in the "
        "top, a cascade, devices that differ, or relevance that changes",
    ),
    "run.floor-reading": (
        {"finding": "Clicks differ."},
        "people do not read as the examination curve says: clicks differ",
    ),
    "run.floor-curve-clicks": (
        {"clicks": 16.0, "floor": 100},
        "only 16 clicks stand behind the examination curve, and a verdict needs 100. Collect more "
        "sessions, or swap positions in some of them (`untilt plan`)",
    ),
    "run.floor-curve": (
        {"position": 4, "factor": 31.7, "most": 3.0},
        "at position 4 and others like it, where much of the value is counted, examination is not "
        "known, and a verdict needs a factor of 3 or better. Collect more sessions, or swap "
        "positions in some of them (`untilt plan`)",
    ),
    "run.floor-positions": (
        {"known": 4, "depth": 10, "share": 0.6, "floor": 0.8},
        "the examination curve knows 4 of 10 positions, which hold only 60% of what the clicks "
        "count, and a verdict needs 80%. Judge the top alone (--metric dcg@4, on a log cut to 4 "
        "positions), or measure the curve further down (`untilt plan`)",
    ),
    "run.floor-clicks": (
        {"clicks": 40.0, "effective_n": 12.0, "floor": 30},
        "the 40 held-out clicks count like 12 of equal weight, and a verdict needs 30. Collect "
        "more sessions",
    ),
    "run.floor-queries": (
        {"queries": 1, "floor": 10},
        "only 1 held-out query has a click, and a verdict needs 10. Collect sessions of more "
        "queries",
    ),
    "run.floor-clipped": (
        {"share": 1.0, "most": 0.5},
        "100% of the held-out clicks are clipped, and a verdict allows 50%: the figures are nearer "
        "to raw clicks than to corrected ones. Give a lower --clip, or collect more sessions so "
        "that a lower one can be chosen",
    ),
    "run.floor-effective-queries": (
        {"effective_queries": 1.25, "floor": 3.0},
        "a few queries have nearly all of the traffic: those in which the orders differ count like "
        "1.2 of equal traffic, and a verdict needs 3. Collect sessions of other queries",
    ),
    "run.floor-one-query": (
        {"share": 0.6, "most": 0.5},
        "one query makes up 60% of the spread behind the difference, and a verdict allows 50%: it "
        "is an answer about that query. Collect sessions of other queries, or judge without it",
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


def test_every_message_is_here():
    assert set(SENTENCES) == set(MESSAGES)


def test_only_what_weakens_the_answer_is_serious():
    assert {code for code, message in MESSAGES.items() if message.severity == "serious"} == {
        *("run.bias-modelled", "run.bias-assumed", "run.no-features", "run.nothing-trained"),
        *("run.nothing-compared", "run.measure-bias-first", "run.find-misfit-first"),
        *("run.floor-curve-assumed", "run.floor-curve-clicks", "run.floor-curve"),
        *("run.floor-positions", "run.floor-clicks", "run.floor-queries", "run.floor-clipped"),
        *("run.floor-one-query", "run.get-evidence-first", "run.leave-leaks-out-first"),
        *("run.floor-leaks", "run.floor-misfit", "run.floor-no-interval", "run.floor-reading"),
        *("run.floor-effective-queries", "run.if-within-lists", "run.if-unshown-worthless"),
        "run.try-within-lists",
    }
