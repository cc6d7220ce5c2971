"""The wording of what the comparison of click models says: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_clickmodels import MESSAGES

SAID: dict[str, tuple[dict[str, Any], str]] = {
    "clickmodels.examined-by-last-click": ({}, "the position and on the last click above"),
    "clickmodels.not-comparable": ({"share": 0.01}, "1.00% of the impressions cannot be compared"),
    "clickmodels.pbm-best": ({}, "PBM predicts held-out clicks best: it is enough here."),
    "clickmodels.ahead-by-chance": (
        {"model": "ubm"},
        "UBM is ahead of PBM by no more than chance allows: PBM is enough here.",
    ),
    "clickmodels.ahead-by-little": (
        {"model": "ubm", "share": 0.004},
        "UBM predicts best but takes away 0.4% of PBM's conditional perplexity above 1: PBM is "
        "nearly enough here.",
    ),
    "clickmodels.ahead": (
        {"model": "dbn", "share": 0.052},
        "DBN predicts best and takes away 5.2% of PBM's conditional perplexity above 1: PBM is "
        "not the whole truth here.",
    ),
    "clickmodels.curve-is-right": ({}, "A curve over positions describes how people look"),
    "clickmodels.last-click-matters": ({}, "depends on where they clicked last"),
    "clickmodels.readers-stop": ({}, "People read from the top and stop"),
    "clickmodels.network-is-better": ({}, "in ways that a network finds"),
    "clickmodels.rates-are-best": ({}, "A plain click rate predicts best"),
    "clickmodels.worse-than-shown": (
        {"models": ("dctr", "pbm"), "n_models": 4},
        "DCTR, PBM (2 of 4 models) order documents worse than the shown lists, by human labels.",
    ),
    "clickmodels.few-sessions": (
        {"sessions": 1.41},
        "1.4 sessions per query: these models cannot order documents.",
    ),
    "clickmodels.ruled-out": (
        {"model": "cm", "share": 0.0312},
        "CM took 3.12% of what happened for impossible",
    ),
    "clickmodels.not-installed": (
        {"model": "ncm"},
        "NCM was left out: it needs JAX. Install it: pip install 'untilt[neural]'",
    ),
    "clickmodels.too-slow": (
        {"model": "ncm", "n_lists": 50_000},
        "NCM was left out: it would take many minutes on 50,000 distinct lists.",
    ),
}


@pytest.mark.parametrize("code", MESSAGES)
def test_wording(code):
    fields, text = SAID[code]
    assert text in Fact(code, **fields)
