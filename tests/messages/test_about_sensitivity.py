"""The wording of what would turn a decision: each message once."""

from typing import Any

import pytest

from untilt.evaluation import sensitivity
from untilt.facts import Fact
from untilt.messages import about_sensitivity
from untilt.messages.about_sensitivity import MESSAGES, TITLES, amount_text

TURN = "the answer would turn"
HOLD = "does not turn the answer"
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "sensitivity.tried-curve": (
        {"position": 10, "least": 0.5, "most": 2.0},
        "position 10 looked at 0.5 to 2 times as often as measured, against position 1, and the "
        "others in step",
    ),
    "sensitivity.tried-position": (
        {"position": 3, "least": 0.5, "most": 2.0},
        "position 3 alone looked at 0.5 to 2 times as often as measured",
    ),
    "sensitivity.tried-drift": (
        {"position": 10, "least": 1.0, "most": 1.5},
        "documents up to 1.5 times as relevant while they stood at position 1 as while they stood "
        "at position 10",
    ),
    "sensitivity.tried-trust": (
        {"least": 0.0, "most": 0.2},
        "up to 20% of the clicks at position 1 out of trust in the top alone",
    ),
    "sensitivity.tried-clip": (
        {"least": 0.0, "most": 0.1, "used": 0.05},
        "a clip from 0 to 0.1, not 0.05",
    ),
    "sensitivity.tried-queries": ({"of": 1200}, "any one of 1,200 queries left out"),
    "sensitivity.tried-time": ({}, "the earlier or the later half of the sessions alone"),
    "sensitivity.turns-curve": (
        {"amount": 0.625, "position": 10},
        "if position 1 were looked at 1.6 times as often as measured, against position 10 (the "
        f"others in step), {TURN}",
    ),
    "sensitivity.turns-position": (
        {"amount": 0.32, "position": 2},
        f"if position 2 alone were looked at 0.32 times as often as measured, {TURN}",
    ),
    "sensitivity.turns-drift": (
        {"amount": 1.6, "position": 10},
        "if documents had been 1.6 times as relevant while they stood at position 1 as while they "
        f"stood at position 10, {TURN}",
    ),
    "sensitivity.turns-trust": (
        {"amount": 0.23},
        f"if 23% of the clicks at position 1 came from trust in the top, whatever stands there, "
        f"{TURN}",
    ),
    "sensitivity.turns-clip": (
        {"amount": 0.53, "used": 0.0},
        f"with a clip of 0.53 in place of 0 {TURN}",
    ),
    "sensitivity.turns-queries": (
        {"amount": 3.0, "of": 1200},
        f"without the 3 queries that speak most for it, of 1,200, {TURN}",
    ),
    "sensitivity.turns-time": (
        {"amount": 0.8, "early": 0.05, "late": 0.02},
        f"it went from +0.0500 in the earlier half to +0.0200 in the later: so on, {TURN} 0.8 "
        "times the length of the log after its end",
    ),
    "sensitivity.holds-curve": (
        {"amount": None, "position": 10},
        f"a curve 10 times steeper or flatter at position 10 {HOLD}",
    ),
    "sensitivity.holds-position": (
        {"amount": None, "position": 2},
        f"one position wrong by a factor of up to 10, such as position 2, {HOLD}",
    ),
    "sensitivity.holds-drift": (
        {"amount": None, "position": 10},
        f"relevance up to 10 times higher at position 1 than at position 10 {HOLD}",
    ),
    "sensitivity.holds-trust": (
        {"amount": None},
        "not even 90% of the clicks at position 1 out of trust turn the answer",
    ),
    "sensitivity.holds-clip": ({"amount": None, "used": 0.1}, f"another clip, from 0 to 1, {HOLD}"),
    "sensitivity.holds-queries": (
        {"amount": None, "of": 7},
        f"leaving out any of the 7 queries {HOLD}",
    ),
    "sensitivity.tried-bounds": (
        {"positions": (4, 5, 6)},
        "positions 4..6 at any level within their bounds",
    ),
    "sensitivity.turns-bounds": (
        {"positions": (4, 5, 6)},
        "nothing joins positions 4..6 to position 1, and levels within their bounds turn the "
        "answer",
    ),
    "sensitivity.holds-bounds": (
        {"positions": (4, 5, 6)},
        "nothing joins positions 4..6 to position 1, and no level within their bounds turns the "
        "answer",
    ),
    "sensitivity.holds-time": (
        {"amount": None, "early": 0.05, "late": 0.04},
        "the difference is +0.0500 in the earlier half and +0.0400 in the later: no clear trend "
        "towards a turn",
    ),
}


@pytest.mark.parametrize("code", MESSAGES)
def test_wording(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence


def test_other_grammar():
    one = Fact("sensitivity.turns-queries", amount=1.0, of=9)
    assert one.startswith("without the one query that speaks most for it")
    flatter = Fact("sensitivity.turns-curve", amount=1.6, position=10)
    assert flatter.startswith("if position 10 were looked at 1.6 times as often as measured")
    over = Fact("sensitivity.turns-time", amount=0.0, early=0.05, late=-0.04)
    assert over.endswith("the answer has turned already by the end of the log")


def test_the_largest_amounts_are_those_that_are_tried():
    for name in ("MOST_FACTOR", "MOST_TRUST", "MOST_CLIP"):
        assert getattr(about_sensitivity, name) == getattr(sensitivity, name)


@pytest.mark.parametrize("name", TITLES)
def test_an_amount_that_does_not_turn_is_a_dash(name):
    assert amount_text(name, None) == "-"
