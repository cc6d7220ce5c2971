"""The wording of what is said about the curves of a search: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages import about_selection

SAID: dict[str, tuple[dict[str, Any], str]] = {
    "selection.curve-chosen": (
        {"curve": "measured", "worse": ("steep", "flat")},
        "judged by the curve measured, which fits the held-out clicks best; clearly worse: steep, "
        "flat",
    ),
    "selection.curves-untold": (
        {"curve": "first", "n_clicks": 3.0},
        "judged by the curve first, the first one given: 3 held-out clicks on documents shown at "
        "several positions are too few to choose between curves",
    ),
    "selection.curve-fits-worse": (
        {"candidate": "prs", "gap": 0.02, "std_error": 0.004, "power": 0.5},
        "the curve that candidates are judged by fits the held-out clicks worse than that of prs, "
        "by 0.0200 +- 0.0040 log-likelihood per click; power 0.50 of it would fit best. Estimate "
        "the curve from this log: `untilt bias`",
    ),
}


def test_every_message_is_here():
    assert set(SAID) == set(about_selection.MESSAGES)


@pytest.mark.parametrize("code", SAID)
def test_the_sentence(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence


def test_a_choice_within_noise():
    assert "within noise" in Fact("selection.curve-chosen", curve="measured", worse=())
