"""The wording of every rule that rows of a log can break, and that each has a fix."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_log import FIXES, MESSAGES

SAID: dict[str, tuple[dict[str, Any], str]] = {
    "log.id-missing": ({"column": "doc_id"}, "doc_id is missing"),
    "log.session-missing": ({"column": "session_id"}, "session_id is missing"),
    "log.bad-position": (
        {"column": "rank", "least": 1, "most": 2147483647},
        "rank is no whole number from 1 to 2,147,483,647",
    ),
    "log.too-deep": (
        {"most": 1000, "deepest": 30_000, "impressions": 6, "share": 0.00681, "sessions": 5},
        "below position 1,000, the deepest that untilt compares: lists are cut there, as if the "
        "page ended. 6 impressions with 0.68% of the clicks, down to position 30,000. Left out "
        "whole: 5 sessions, which showed nothing above",
    ),
    "log.positions-from-0": (
        {"column": "rank", "sessions": 999, "n_sessions": 1000},
        "rank counts from 0: it is 0 at the top of 999 of 1,000 lists, and never below 0",
    ),
    "log.bad-label": (
        {"column": "click"},
        "click is missing, no number, infinite or negative",
    ),
    "log.bad-cell": (
        {"row": "y", "column": "x", "rows": 3, "columns": 4},
        "y and x are no cell: missing, no whole numbers from 1, or outside of 3 x 4",
    ),
    "log.bad-context": ({"column": "hour"}, "hour is missing or not finite"),
    "log.ranker-missing": ({"column": "system"}, "system is missing"),
    "log.bad-random": (
        {"column": "random_bool"},
        "random_bool is neither 0 nor 1, nor true or false",
    ),
    "log.bad-count": ({"column": "n", "most": 9}, "n is no whole number from 1 to 9"),
    "log.bad-time": ({"column": "ts"}, "ts is missing or no time"),
    "log.bad-feature": (
        {},
        "a feature is missing, no number, or not finite in single precision",
    ),
    "log.no-document": ({}, "a document without features"),
    "log.features-differ": (
        {},
        "a document of a query has different features in different rows",
    ),
    "log.position-twice": ({}, "in a session where a position stands twice"),
    "log.session-differs": (
        {"column": "device"},
        "in a session whose rows differ in device",
    ),
    "log.features-by-document": (
        {},
        "The documents table has no query_id: each document has the same features for all queries "
        "that showed it, and documents that no list shows are not candidates.",
    ),
}
NOTES = {"log.features-by-document"}


@pytest.mark.parametrize("code", MESSAGES)
def test_wording(code):
    fields, text = SAID[code]
    fact = Fact(code, **fields)
    severity = "serious" if code == "log.positions-from-0" else "warning"
    severity = "note" if code in NOTES else severity
    assert (str(fact), fact.severity) == (text, severity)


def test_every_rule_has_a_fix():
    assert set(FIXES) == set(MESSAGES) - NOTES
    assert set(MESSAGES) == set(SAID)
