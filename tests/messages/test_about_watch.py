"""The wording of what `untilt watch` says: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_watch import MESSAGES

ENDS = {"ratio": 0.5, "low": 0.4, "high": 0.625}
BOTH = {"new": "b", "old": "a"}
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "watch.reading": (
        {**ENDS, "position": 5, "p_value": 0.00012},
        "people read otherwise than before: at equal documents, clicks at position 5 against "
        "position 1 are 0.50 times what they were (interval 0.40 to 0.62, p 0.00012). The old "
        "position bias no longer holds: estimate it on the new sessions, then train anew",
    ),
    "watch.clicks": (
        {**ENDS, "p_value": 0.001},
        "the same documents at position 1 are clicked 0.50 times as often as before (interval 0.40 "
        "to 0.62, p 0.001). Look for a change of the page or of what is counted as a click",
    ),
    "watch.documents": (
        {"ratio": 1.25, "p_value": 0.003},
        "documents are liked otherwise than before, by a factor of 1.25 from one to the next "
        "(p 0.003): what was learned from old clicks is getting old. Train on new ones",
    ),
    "watch.features": (
        {"features": (("price", 0.31), ("age", 0.22)), "limit": 0.2},
        "features of shown documents have other values than before: price (0.31), age (0.22); "
        "stability index, 0.2 or more is a change that matters. Look at where they come from, then "
        "train anew",
    ),
    "watch.unseen": (
        {"share": 0.61, "most": 0.5},
        "61% of what is shown now was never shown before, more than 50%: nothing was learned from "
        "clicks about it. Train on new sessions",
    ),
    "watch.new-worse": (
        {**BOTH, "text": "fewer first clicks"},
        "the new ranker b does worse than a: fewer first clicks. This holds at every look. Take it "
        "back",
    ),
    "watch.quiet": ({}, "nothing changed by more than chance explains"),
    "watch.new-better": (
        {**BOTH, "text": "more first clicks"},
        "the new ranker b does better than a: more first clicks. This holds at every look",
    ),
    "watch.new-open": (
        {**BOTH, "text": "+1%"},
        "between the new ranker b and a nothing is decided yet: +1%",
    ),
    "watch.new-too-early": (
        {**BOTH, "queries": 7.4, "least": 20},
        "7 effective queries are too few to compare b with a; from 20 on it can be watched",
    ),
    "watch.untested": (
        {"asks": "people read otherwise"},
        "whether people read otherwise could not be tested: no document was shown at the same "
        "position before and now, with clicks",
    ),
    "watch.no-curve": (
        {"period": 2, "why": "no clicks"},
        "period 2 has no curve: no clicks",
    ),
    "watch.no-features": ({}, "the log has no features, so none was looked at"),
}


def test_every_message_is_here():
    assert set(SAID) == set(MESSAGES)


@pytest.mark.parametrize("code", SAID)
def test_wording(code):
    fields, text = SAID[code]
    assert str(Fact(code, **fields)) == text
