"""The wording of the notes of a plan: each message once."""

import pytest

from untilt.facts import Fact
from untilt.messages.about_plan import MESSAGES

SAID = {
    "plan.log-swaps": (
        {"estimator": "PivotSwap(pivot=1)"},
        "Log what happened as `ranker`: 'swap:1-5' for a swap of 1 and 5, 'base' otherwise. "
        "Then: untilt.PivotSwap(pivot=1).fit(log).",
    ),
    "plan.draw-by-session": (
        {},
        "Draw the swap for each session by itself, whatever the query or the reader.",
    ),
    "plan.hardest-case": (
        {},
        "No guess of the bias was given: the sessions are for the hardest case, and no bias makes "
        "the swaps cost more. With --examination both can be smaller.",
    ),
}


@pytest.mark.parametrize("code", MESSAGES)
def test_wording(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence
