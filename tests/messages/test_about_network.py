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
    "network.held-out-given": ({}, "stopped by the held-out data that was given"),
    "network.held-out": (
        {"n_queries": 1200},
        "1,200 of the queries, set aside to stop training by",
    ),
    "network.too-few-to-hold-out": (
        {"n_queries": 16, "fewest": 50},
        "none: 16 queries with clicks are too few to set some aside (50 are needed), so that "
        "training went on to the last epoch. Give fit(..., valid=...), or fewer epochs",
    ),
    "network.no-early-stopping": ({}, "none: early_stopping is off"),
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
