"""The wording of what an engine does otherwise: each message once."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_export import MESSAGES

SAID: dict[str, tuple[dict[str, Any], str]] = {
    "export.no-negative-features": (
        {"engine": "OpenSearch"},
        "OpenSearch scores features by queries, and refuses negative ones",
    ),
    "export.missing-since": (
        {"engine": "OpenSearch", "since": "the release of July 2026"},
        "missing values follow the trees from the release of July 2026 on; before, OpenSearch LTR",
    ),
    "export.constant": (
        {"constant": -1.5},
        "scores are -1.5 away from those of predict, the same for every document",
    ),
    "export.xgboost-objective": ({}, "the objective in the file stands for the scores as they are"),
    "export.solr-missing": ({}, "missing values follow the trees in Solr 9.2 and later"),
    "export.solr-unreached": (
        {"splits": 1200},
        "1,200 splits stand at values that Solr cannot compare with",
    ),
    "export.vespa-missing": ({}, "Vespa has NaN for attributes of floats and doubles"),
    "export.vespa-alone": ({}, "the file is for Vespa alone, which reads <= as <"),
    "export.judgments": (
        {"query": 0.5, "document": 1.25},
        "queries differ by 0.50 and documents of a query by 1.25",
    ),
    "export.judgments-relative": ({}, "the bias is known relative to position 1"),
    "export.judgments-no-bias": ({}, "every position counts as examined alike"),
}


def test_every_message_has_its_words():
    assert set(SAID) == set(MESSAGES)


@pytest.mark.parametrize("code", SAID)
def test_words(code):
    fields, words = SAID[code]
    assert words in Fact(code, **fields)
