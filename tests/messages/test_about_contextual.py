"""The wording of every message about position bias by context."""

import pytest

from untilt.facts import Fact
from untilt.messages.about_contextual import MESSAGES

WORDING = {
    "contextual.position-based": (
        "clicks follow the position-based model: P(click) = theta_k(context) gamma"
    ),
    "contextual.same-relevance": (
        "in one context a document is as relevant at one position as at another"
    ),
    "contextual.same-top": (
        "for averages over contexts: position 1 is examined alike in all of them"
    ),
}


@pytest.mark.parametrize(("code", "text"), WORDING.items())
def test_wording(code, text):
    assert str(Fact(code)) == text


def test_every_message_is_worded_here():
    assert set(WORDING) == set(MESSAGES)
