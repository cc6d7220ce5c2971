"""The wording of what is said about the training of networks: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages import about_network

BEST = {"epochs": 6, "steps": 24, "best_epoch": 3}
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "network.trained": ({"epochs": 6, "steps": 24}, "trained for 6 epochs, 24 steps"),
    "network.trained-best": (BEST, "trained for 6 epochs, 24 steps; best after epoch 3"),
    "network.stopped": (BEST, "stopped after 6 epochs, 24 steps; best after epoch 3"),
    "network.mini-batch-em": (
        {"epochs": 6, "steps": 24},
        "6 epochs of mini-batch EM, 24 steps",
    ),
    "network.uncorrected": ({"epochs": 6}, "labels as they are, 6 epochs"),
    "network.part": (
        {"part": "examination", "status": Fact("em.converged", steps=12)},
        "examination: converged in 12 steps",
    ),
}


def test_every_message_is_here():
    assert set(SAID) == set(about_network.MESSAGES)


@pytest.mark.parametrize("code", SAID)
def test_the_sentence(code):
    fields, sentence = SAID[code]
    assert Fact(code, **fields) == sentence
