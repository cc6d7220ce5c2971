"""The wording of the notes of a plan: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_plan import MESSAGES

SAID: dict[str, tuple[dict[str, Any], str]] = {
    "plan.log-swaps": (
        {"estimator": "PivotSwap(pivot=1)"},
        "Log what happened as `ranker`: 'swap:1-5' for a swap of 1 and 5, 'base' otherwise. "
        "Then: untilt.PivotSwap(pivot=1).fit(log).",
    ),
    "plan.serve": (
        {"explore": "swaps:1-2=0.01", "lost": 0.00123, "is_bound": True},
        "A server of ours draws and logs them by itself, at a cost of at most 0.0012 clicks a "
        "session: `untilt serve RANKER --explore swaps:1-2=0.01`",
    ),
    "plan.mean-width": (
        {"width": 0.4, "probability": 0.024},
        "The widths are means: all positions are within 40% with probability 2%. With --assurance "
        "0.9 the plan is for all of them.",
    ),
    "plan.assured": (
        {"width": 0.4, "probability": 0.9003},
        "All positions are within 40% with probability 90%, if the click rates and the guess of "
        "the bias are right.",
    ),
    "plan.watch-any-time": (
        {},
        "The intervals hold once the planned sessions are there. To look at them while the "
        "experiment runs, and to stop on what they say: --option any_time=true.",
    ),
    "plan.ends-early": (
        {"depth": 4, "empty": 5},
        "Planned for positions 1..4: nobody clicked at position 5 in this log, so no number of "
        "sessions can be promised for it.",
    ),
    "plan.by-length": (
        {},
        "Swapped lists are compared with others of their length: queries hardly ever repeat in "
        "this log, so the same documents are not shown at two positions.",
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
