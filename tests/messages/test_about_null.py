"""The wording of null tests, each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_null import MESSAGES

SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "null.same-order": (
        {"difference": 0.137, "queries": 40, "of": 1200},
        "the order that was shown, compared with itself (40 of 1,200 queries), differs by +0.1370: "
        "the evaluation is not neutral on lists like these. Order each list on its own (--among "
        "list), and look for rows that were lost",
    ),
    "null.relabelled": (
        {"p_value": 0.5, "level": 0.95},
        "with the names of the two orders drawn at random for each query, a difference as large "
        "comes up in 50% of the draws: a few queries make it. Collect sessions of more queries",
    ),
    "null.permuted": (
        {"difference": -0.1, "std_error": 0.002},
        "with clicks that changed places within their position, so that no document is better than "
        "another, the difference is still -0.1000 +- 0.0020: the structure of the lists makes it, "
        "not the documents. Order each list on its own (--among list), and look for rows that were "
        "lost or lists that were cut",
    ),
    "null.lean": (
        {"lean": -0.05, "difference": -0.06},
        "the clip and the end of the examination curve alone change the difference by -0.0500, and "
        "without that it could be chance (-0.0600 was found). Give a lower --clip, measure the "
        "curve further down (`untilt plan`), or collect more sessions",
    ),
    "null.by-curve": (
        {"by_curve": 0.15, "difference": 0.2},
        "Most of the difference (+0.1500 of +0.2000) comes from positions, not from documents: it "
        "would be there if every position showed documents of its mean relevance. A curve that is "
        "too steep does that, and so does an order that was worse than chance. Check the curve "
        "with swaps (`untilt plan`).",
    ),
}


@pytest.mark.parametrize("code", SENTENCES)
def test_each_message_says_its_sentence(code):
    fields, sentence = SENTENCES[code]
    assert Fact(code, **fields) == sentence


def test_every_message_is_here():
    assert set(SENTENCES) == set(MESSAGES)


def test_what_takes_the_verdict_away_is_serious():
    serious = {code for code, message in MESSAGES.items() if message.severity == "serious"}
    assert serious == set(MESSAGES) - {"null.by-curve"}
