"""The wording of an audit: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_audit import MESSAGES
from untilt.messages.about_general import listed, positions_text

PROXY = {"correlation": -0.31, "std_error": 0.02, "proxy": "clicks"}
CORRELATED = (
    "Position and relevance have a correlation of -0.31 +- 0.02 within queries, by clicks: "
)
LEAK = {"feature": "booked", "where": "above", "value": 0.0, "impressions": 3961, "click_rate": 1.0,
        "rate_elsewhere": 0.017}  # fmt: skip
KNOWS = (
    "The feature booked knows the click: it is above 0 in 3,961 impressions, and 100.0% of these "
    "were clicked, against 1.7% elsewhere. "
)
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "audit.without-click": (
        {"share": 0.413, "label": "click"},
        "41.3% of the sessions have no click.",
    ),
    "audit.no-ranker": (
        {},
        "The log does not say which ranker made a list (column `ranker`).",
    ),
    "audit.rankers": (
        {"sessions": {"base": 9000, "swap:1-2": 1000}},
        "Lists come from 2 rankers: base (9,000 sessions), swap:1-2 (1,000 sessions).",
    ),
    "audit.experiment": (
        {"shuffled": 500, "swapped": 1000, "pairs": ((1, 2), (1, 3))},
        "An experiment changed lists: shuffled in 500 and swapped in 1,000 (positions 1-2, 1-3) "
        "sessions.",
    ),
    "audit.versions": (
        {"features": ("price", "stock"), "documents": 1000, "versions": 2500},
        "Features change from impression to impression: price, stock. Every impression is learned "
        "from with the features it had: 1,000 documents have 2,500 versions (2.5 each). Position "
        "bias is measured by document, whatever its version.",
    ),
    "audit.clicks-only": (
        {"sessions": 1200},
        "The log holds clicks alone: none of its 1,200 sessions has a row that was not clicked. "
        "Nothing was logged about what was shown, so that neither position bias nor a ranker can "
        "be judged. Log every result that was shown, with 0 where it was not clicked.",
    ),
    "audit.mostly-clicks-only": (
        {"share": 0.98},
        "98.0% of the sessions with a click hold clicked rows alone: what else they showed was not "
        "logged, and estimates would take these documents for clicked whenever shown. Log every "
        "result that was shown, or leave such sessions out.",
    ),
    "audit.cut-at-last-click": (
        {"share": 1.0},
        "100.0% of the sessions with a click end with it: what stood below the last click was not "
        "logged, so that low positions seem to be clicked far too often. Log every result that was "
        "shown.",
    ),
    "audit.partly-clicks-only": (
        {"share": 0.1},
        "10.0% of the sessions with a click hold clicked rows alone: part of the log does not hold "
        "what was shown, which makes position bias look weaker than it is. Find out where they "
        "come from, and leave them out.",
    ),
    "audit.rows-missing": (
        {"share": 0.5},
        "50.0% of the positions above a session's lowest row have none. If rows without a click "
        "were left out, or only a sample of them was kept, position bias looks far weaker than it "
        "is: log every result that was shown.",
    ),
    "audit.nothing-shown": ({}, "No: the log does not hold what was shown."),
    "audit.experiment-tested": (
        {"parts": (Fact("bias.swaps-passed", p_values={"lists": 0.5}),)},
        "It was put to the test: swaps tested: lists p 0.5.",
    ),
    "audit.experiment-failed": (
        {
            "kind": "swapped",
            "parts": (Fact("bias.swaps-untested"), Fact("bias.swap-share-differs")),
        },
        "Sessions that are called swapped are not what they are called: swaps believed: queries do "
        "not repeat, and there is nothing else to test them by; the share of swapped sessions "
        "differs between queries or lists: right only because documents are compared with "
        "themselves. They are not used as an experiment. Find out what it did, and name its "
        "sessions by that.",
    ),
    "audit.experiment-doubt": (
        {"doubt": "pages that were loaded again?"},
        "About the experiment: pages that were loaded again?",
    ),
    "audit.shuffle-unusable": (
        {"sessions": 1200, "why": "nobody clicked."},
        "1,200 sessions were shown in random order and cannot be used: nobody clicked.",
    ),
    "audit.all-shown": (
        {},
        "The log holds shown documents only, so nothing can be said of other candidates. If there "
        "are any, give a documents table with all candidates of each query.",
    ),
    "audit.coverage": (
        {"unshown": 1234, "share": 0.75, "queries": 0.9, "candidates": 40.0, "shown": 9.5},
        "1,234 candidates (75.0%) were never shown, in 90% of the queries: of a query's 40 "
        "candidates 9.5 were shown (medians).",
    ),
    "audit.no-proxy": (
        {"why": "too few documents change positions"},
        "There is no proxy of relevance to compare positions with: too few documents change "
        "positions.",
    ),
    "audit.order-good": (
        PROXY,
        CORRELATED
        + "documents shown higher are more relevant, so click rates fall by more than the bias.",
    ),
    "audit.order-inverted": (
        PROXY,
        CORRELATED
        + "documents shown higher are less relevant, so click rates fall by less than the bias.",
    ),
    "audit.order-uninformative": (
        PROXY,
        CORRELATED + "documents shown higher are hardly more or less relevant than the rest.",
    ),
    "audit.proxy-clicks": ({}, "clicks of documents that change positions"),
    "audit.proxy-features": ({}, "a prediction of clicks within positions from the features"),
    "audit.proxy-too-few": ({}, "too few documents change positions"),
    "audit.proxy-no-difference": ({}, "documents do not differ in relevance beyond chance"),
    "audit.proxy-no-prediction": (
        {},
        "the features do not predict clicks within a position beyond chance",
    ),
    "audit.proxy-nothing-within": ({}, "there is nothing to compare within queries"),
    "audit.label-no-click": (
        {"label": "dwell"},
        "The label 'dwell' is no click: it has other values than 0 and 1. Position bias is "
        "estimated from clicks.",
    ),
    "audit.always-clicked": (
        {"label": "click"},
        "Every session has a click: those without may have been left out of this log, which makes "
        "all rates too high.",
    ),
    "audit.positions-without-click": (
        {"positions": (8, 9)},
        "Nobody clicked at positions 8..9: nothing can be learned about examination there.",
    ),
    "audit.few-clicks": (
        {"positions": (8, 9), "fewer_than": 30},
        "There are fewer than 30 clicks at positions 8..9.",
    ),
    "audit.positions-never-shown": ({"positions": (3,)}, "No list shows position 3."),
    "audit.gaps": (
        {"sessions": 1200, "share": 0.012},
        "1,200 sessions (1.2%) skip a position: rows may have been lost, or only some were logged.",
    ),
    "audit.duplicates": (
        {"impressions": 1200},
        "1,200 impressions show a document again that the same session already shows: a click "
        "cannot be credited to one of the two with certainty.",
    ),
    "audit.few-queries": (
        {"queries": 7},
        "There are only 7 queries. Queries are the independent units; intervals from so few say "
        "little about others.",
    ),
    "audit.no-features": (
        {},
        "There are no features: the log can be measured, but no ranker trained on it.",
    ),
    "audit.leak": (LEAK, KNOWS + "Leave it out, unless it is known before the list is shown."),
    "audit.leak-kept-out": (
        LEAK,
        KNOWS + "It is kept out of training. To use it all the same, name it among the features.",
    ),
    "audit.leak-used": (
        LEAK,
        KNOWS + "It was named among the features, so it is used: figures of rankers that have it "
        "may be worth nothing.",
    ),
    "audit.position-features": (
        {"features": ("rank",)},
        "Features that are the position where a document was shown: rank. A ranker does not know "
        "it when it ranks, and learns to repeat the shown order from it.",
    ),
    "audit.constant-features": ({"features": ("a", "b")}, "Features with a single value: a, b."),
    "audit.missing-features": (
        {"shares": {"a": 0.1, "b": 0.255}},
        "Features that are missing for some documents: a (10.0%), b (25.5%).",
    ),
    "audit.features-useless": (
        {"estimator": "RegressionEM"},
        "The features do not predict clicks within a position, so RegressionEM would take nearly "
        "all of the fall of the click rates for position bias. A swap experiment would decide.",
    ),
    "audit.few-candidates-shown": (
        {},
        "Most candidates were never shown. What is learned is about the documents on top; a ranker "
        "trained on them alone can be worse on the rest than the one in production.",
    ),
    "audit.wide-interval": (
        {"position": 9, "factor": 1.83},
        "Little evidence joins some positions: at position 9 the ratio to position 1 is only known "
        "to within a factor of 1.8.",
    ),
    "audit.rates-mislead": (
        {},
        "Click rate by position is no estimate of position bias here: better documents are shown "
        "higher, so it makes the bias look stronger than it is.",
    ),
    "audit.verdict": (
        {"parts": (Fact("audit.proxy-too-few"), Fact("audit.proxy-clicks"))},
        "too few documents change positions clicks of documents that change positions",
    ),
    "audit.no-clicks-at-all": ({}, "No: there is not one click."),
    "audit.one-position": (
        {},
        "There is nothing to compare: every list has position 1 alone.",
    ),
    "audit.identified": (
        {"depth": 10},
        "Yes: documents shown at several positions join all positions 1..10, so examination can be "
        "compared without a model of relevance.",
    ),
    "audit.positions-apart": (
        {"positions": (5, 6), "components": ((1, 2, 3, 4), (5,), (6,))},
        "Not for positions 5..6: no chain of documents shown at several positions leads from there "
        "to position 1. Groups that can be compared within themselves: positions 1..4; position 5; "
        "position 6. Between groups only a model of relevance can compare.",
    ),
    "audit.too-few-clicks": (
        {"positions": (5, 6)},
        "Not for positions 5..6: documents join all positions, but they have too few clicks there "
        "for a ratio to position 1. More sessions may help.",
    ),
    "audit.identified-where-shown": (
        {"positions": (3,)},
        "For all positions that were shown; position 3 never was.",
    ),
    "audit.precision": (
        {"depth": 10, "factor": 1.1234, "position": 10, "level": 0.95, "estimator": "AllPairs"},
        "From these sessions the examination of positions 1..10, relative to position 1, is known "
        "to within a factor of 1.12 or better (the widest is position 10, 95% interval of "
        "AllPairs).",
    ),
    "audit.positions-not-shown": (
        {"first": 31, "last": 200, "share": 0.004, "clicks": 3.0},
        "positions 31..200 hold 0.4% of the impressions and 3 clicks: not shown",
    ),
    "audit.swaps-that-join": (
        {"pairs": ((4, 5), (5, 6)), "most_lost": 0.0123},
        "The cheapest swaps that would join them: positions 4 and 5, 5 and 6. A swapped session "
        "loses at most 0.012 clicks on average.",
    ),
    "audit.believes": ({"belief": "it rains"}, "It assumes that it rains."),
    "audit.in-python": (
        {"call": "untilt.AllPairs().fit(log).bias_"},
        "In Python: untilt.AllPairs().fit(log).bias_",
    ),
    "audit.on-command-line": (
        {"command": "untilt bias LOG --method all-pairs"},
        "On the command line: `untilt bias LOG --method all-pairs`",
    ),
    "audit.clicks-first": (
        {"label": "dwell"},
        "Estimators need clicks: the label 'dwell' has other values than 0 and 1. Choose or make a "
        "click column first (log.with_label).",
    ),
    "audit.relevance-drifts": (
        {"features": ("price",), "drift": -0.041, "std_error": 0.003},
        "A document's relevance changes with the position it has: by -4.1% +- 0.3% from one "
        "position to the next, by price. Clicks of one document at several positions then differ "
        "by more than examination: a curve from them is too steep.",
    ),
    "audit.not-identified-drift": (
        {},
        "Not without a model of relevance: documents join the positions, but they stand higher "
        "when their features make them more relevant, or less.",
    ),
}


@pytest.mark.parametrize("code", MESSAGES)
def test_wording(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence


def test_one_ranker():
    assert Fact("audit.rankers", sessions={"a": 1}) == "Lists come from 1 ranker: a (1 sessions)."


def test_lists_are_cut_and_positions_are_runs():
    assert listed(range(12)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert positions_text((1, 2, 3, 4, 7)) == "positions 1..4, 7"
    assert positions_text((7,)) == "position 7"
    assert positions_text(range(1, 30, 3), most=3) == "positions 1, 4, 7 and 7 more"


def test_a_position_without_evidence_has_no_factor():
    fields = {"depth": 4, "position": 4, "level": 0.95, "estimator": "AllPairs"}
    assert Fact("audit.precision", factor=31.7, **fields) == (
        "From these sessions the examination of position 4, relative to position 1, is not known "
        "(it has the widest 95% interval of AllPairs)."
    )
    wide = Fact("audit.wide-interval", position=4, factor=float("inf"))
    assert wide.endswith("the ratio to position 1 is not known.")
    one = Fact("audit.positions-not-shown", first=21, last=21, share=1e-5, clicks=1.0)
    assert one == "position 21 holds under 0.1% of the impressions and 1 click: not shown"


@pytest.mark.parametrize(
    ("where", "value", "text"),
    [
        ("below", -1.5, "below -1.5"),
        ("unlike", 0.0, "other than 0"),
        ("missing", None, "missing"),
        ("present", None, "not missing"),
        ("above-list", 2.0, "more than 2 above the lowest of its list"),
        ("below-list", 0.0, "more than 0 below the highest of its list"),
    ],
)
def test_where_a_feature_knows_the_click(where, value, text):
    fact = Fact("audit.leak", **{**LEAK, "where": where, "value": value})
    assert f"knows the click: it is {text} in 3,961 impressions" in fact
