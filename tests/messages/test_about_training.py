"""The wording of what rankers and weightings say: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_training import MESSAGES

ENDED = {"slope": 2.5e-7, "iterations": 31}
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "training.settled": ({"fits": 7}, "settled after 7 fits"),
    "training.not-settled": ({"fits": 50}, "not settled after 50 fits"),
    "training.converged": (ENDED, "converged (largest slope 2.5e-07 after 31 iterations)"),
    "training.stopped-early": (
        {"message": "STOP: TOTAL NO. OF ITERATIONS REACHED LIMIT", **ENDED},
        "stopped early: STOP: TOTAL NO. OF ITERATIONS REACHED LIMIT (largest slope 2.5e-07 after "
        "31 iterations)",
    ),
    "training.gap-closed": (
        {"gap": 9.1e-4, "rounds": 44},
        "converged (duality gap 9.1e-04 after 44 rounds)",
    ),
    "training.gap-open": (
        {"gap": 0.2, "rounds": 3},
        "stopped early (duality gap 2.0e-01 after 3 rounds)",
    ),
    "training.labels": ({}, "judged lists need no correction"),
    "training.stacked": (
        {"clicks": 0.91, "old_ranker": 0.09, "unshown": 0.5},
        "held-out clicks weigh what clicks say with 91% and the old ranker with 9%; 50% of the "
        "candidates were never shown",
    ),
    "training.no-clicks": (
        {"label": "seconds"},
        "seconds is no click: its pairs are weighted, as there is no likelihood of clicks to learn "
        "from. A column of clicks as the label (log.with_label) gives the stacked learner",
    ),
    "training.one-query": (
        {},
        "there is a single query, which cannot be held out: its pairs are weighted. Two or more "
        "queries give the stacked learner",
    ),
    "training.blend-best": (
        {},
        "the blend of likelihood and posterior labels did best on held-out clicks",
    ),
    "training.better-than-blend": (
        {"gain": 0.01234},
        "better than the blend on held-out clicks by 0.0123 DCG@10",
    ),
    "training.ahead-within-noise": (
        {"candidate": "balanced", "gain": 0.00125},
        "balanced was ahead on held-out clicks by 0.0013 DCG@10, within noise",
    ),
    "training.consistent": (
        {},
        "consistent: pairs are ordered by relevance at every pair of positions",
    ),
    "training.nearly-consistent": (
        {"k": 1, "l": 10, "pull": 0.125},
        "nearly consistent: of two equally relevant documents at positions 1 and 10 it prefers "
        "one by 12.5% and so keeps the shown order",
    ),
    "training.not-consistent": (
        {"k": 1, "l": 3, "pull": -0.5},
        "not consistent: of two equally relevant documents at positions 1 and 3 it prefers one by "
        "50.0% and so reverses the shown order",
    ),
}


@pytest.mark.parametrize("code", MESSAGES)
def test_wording(code):
    fields, sentence = SAID[code]
    assert str(Fact(code, **fields)) == sentence
