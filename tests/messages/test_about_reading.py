"""The wording of the tests of the model of reading, each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_reading import MESSAGES

RATIO = {"ratio": 0.7, "low": 0.6, "high": 0.8, "p_value": 1e-5}
TRUST = {"position": 7, "estimator": "TrustEM", "name": "trust-em"}
GRAVE = " This can turn a decision: no verdict rests on such a curve."
FINDINGS: dict[str, tuple[dict[str, Any], str]] = {
    "reading.trust": (
        {**RATIO, "ratio": 1.5, "low": 1.3, "high": 1.8, **TRUST},
        "From position 1 to 7, clicks of weaker documents fall 1.50 times [1.30, 1.80] as much as "
        "those of better ones (p 1e-05). The likely cause is trust: readers click the top because "
        "it is the top. Other causes are readers that stop at a click, and relevance that changes. "
        "Use TrustEM, which knows trust (`--bias trust-em`), or measure by an experiment.",
    ),
    "reading.better-fall-steeper": (
        {**RATIO, **TRUST},
        "From position 1 to 7, clicks of weaker documents fall 0.70 times [0.60, 0.80] as much as "
        "those of better ones (p 1e-05), so that no one curve fits both. The likely cause is "
        "relevance that changes over time, or from person to person, and a ranker that follows it; "
        "it is not trust in the top, so TrustEM (`trust-em`) does not help. Use a recent, shorter "
        "part of the log, or measure by an experiment.",
    ),
    "reading.trust-by-features": (
        {**RATIO, "ratio": 1.5, "low": 1.3, "high": 1.8, **TRUST},
        "From position 1 to 7, clicks of documents whose features are weaker fall 1.50 times "
        "[1.30, 1.80] as much as those of documents with better ones (p 1e-05). The likely cause "
        "is trust: readers click the top because it is the top. Production may also know of "
        "relevance what the features do not tell. Use TrustEM, which knows trust (`--bias "
        "trust-em`), or measure by an experiment.",
    ),
    "reading.features": (
        {**RATIO, **TRUST},
        "From position 1 to 7, clicks of documents whose features are weaker fall 0.70 times "
        "[0.60, 0.80] as much as those of documents with better ones (p 1e-05), so that features "
        "do not explain relevance alike at every position. Production may know of it what the "
        "features do not tell, or relevance changes; it is not trust, so TrustEM (`trust-em`) does "
        "not help. Measure by an experiment.",
    ),
    "reading.clicks-above": (
        {**RATIO, "share": 0.31},
        "The same document at the same position is clicked 0.70 times [0.60, 0.80] as often where "
        "something above it was clicked (p 1e-05; so it is in 31% of the impressions below the "
        "top). The likely cause is that readers stop after a click: how far they get then depends "
        "on the documents above, not on the position alone. Use weights of a click model that "
        "knows clicks above (`untilt clickmodels LOG` compares them).",
    ),
    "reading.time-spread": (
        {**RATIO, "ratio": 1.6, "low": 1.4, "high": 1.9},
        "Documents are not clicked alike in the first and the second half of the time: at the same "
        "position, rates change by a factor of 1.60 [1.40, 1.90] or so, up for some and down for "
        "others (p 1e-05). The likely cause is relevance that changes. Use a recent, shorter part "
        "of the log (`untilt split LOG --by time`), or measure by an experiment.",
    ),
    "reading.time-slope": (
        {**RATIO, "position": 7},
        "People read deeper in one half of the time than in the other: relative to position 1, the "
        "same documents are clicked 0.70 times [0.60, 0.80] as often at position 7 in the second "
        "half (p 1e-05). The page or its readers may have changed. Use a recent, shorter part of "
        "the log (`untilt split LOG --by time`).",
    ),
    "reading.ranker-level": (
        {**RATIO, "about": "new"},
        "The same document at the same position is clicked 0.70 times [0.60, 0.80] as often in "
        "lists of 'new' as in those of other rankers (p 1e-05). They may serve other people or "
        "other times, or know more about a session than the log. Estimate the bias from the lists "
        "of one ranker, give what differs as a context, or draw the ranker of each session at "
        "random.",
    ),
    "reading.ranker-slope": (
        {**RATIO, "about": "new", "position": 7},
        "Lists of 'new' are not read as deep as those of other rankers, or deeper: relative to "
        "position 1, the same documents are clicked 0.70 times [0.60, 0.80] as often at position 7 "
        "(p 1e-05). They may serve other people, or the documents around may matter. Estimate the "
        "bias from the lists of one ranker, or give what differs as a context.",
    ),
}
SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    **FINDINGS,
    **{f"{code}-serious": (fields, said + GRAVE) for code, (fields, said) in FINDINGS.items()},
    "reading.clicks-above-more": (
        {**RATIO, "ratio": 1.3, "low": 1.2, "high": 1.4, "share": 0.31},
        "The same document at the same position is clicked 1.30 times [1.20, 1.40] as often where "
        "something above it was clicked (p 1e-05; so it is in 31% of the impressions below the "
        "top). The likely cause is that people differ in how much they click or how far they read. "
        "The curve is their mean and can be right all the same; if a column tells them apart "
        "(device, say), give it as a context.",
    ),
    "reading.context": (
        {**RATIO, "position": 7, "column": "device", "about": "phone",
         "estimator": "ContextualBias"},
        "Sessions with device 'phone' are not read as deep as others, or deeper: relative to "
        "position 1, the same documents are clicked 0.70 times [0.60, 0.80] as often at position 7 "
        "(p 1e-05). One curve is the mean of both and is right only where they see the same lists. "
        "Use ContextualBias, which gives each context its own curve.",
    ),
    "reading.also": (
        {"others": (("time", "", 0.01), ("context", "device", 1e-4))},
        "Clicks differ from the position-based model in this too: the two halves of the time (p "
        "0.01), the values of device (p 0.0001). It may be the same cause; look again when that "
        "one is dealt with.",
    ),
    "reading.fits": (
        {"asked": (("ranker", "ranker"), ("relevance", ""))},
        "Clicks fit the position-based model as far as these were compared: rankers, better and "
        "weaker documents.",
    ),
    "reading.passed": (
        {"asks": "context", "column": "device", "p_value": 0.4},
        "Compared: the values of device. Nothing speaks against the position-based model (p 0.4).",
    ),
    "reading.compared": (
        {"asks": "context", "column": "device", "about": "phone"},
        "the values of device (phone to the others)",
    ),
    "reading.untested": (
        {"asks": "time", "why": "there is none"},
        "Not compared: the two halves of the time, because there is none.",
    ),
    "reading.no-time": ({}, "the log does not say when (column `timestamp`)"),
    "reading.nothing-moves": (
        {},
        "hardly any document with clicks was shown at several positions (it takes two queries)",
    ),
    "reading.nothing-repeats": (
        {},
        "hardly any document was shown at the same position both ways, with clicks and without (it "
        "takes two queries)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("code", SENTENCES)
def test_each_message_says_its_sentence(code):
    fields, sentence = SENTENCES[code]
    assert Fact(code, **fields) == sentence


def test_every_message_is_here():
    assert set(SENTENCES) == set(MESSAGES)


def test_what_can_turn_a_decision_is_serious():
    serious = {code for code, message in MESSAGES.items() if message.severity == "serious"}
    assert serious == {f"{code}-serious" for code in FINDINGS}
