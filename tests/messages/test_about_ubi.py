"""The wording of what is said of an export, and that whatever is left out has a fix."""

from typing import Any

import pytest

from untilt.facts import Fact
from untilt.messages.about_ubi import FIXES, MESSAGES

NOTES: dict[str, tuple[dict[str, Any], str]] = {
    "ubi.other-actions": (
        {"actions": {f"a{n}": 1000 for n in range(9)}},
        "Actions that were not asked for: a0 (1,000), a1 (1,000), a2 (1,000), a3 (1,000), a4 "
        "(1,000), a5 (1,000), a6 (1,000), a7 (1,000) and 1 more.",
    ),
    "ubi.shown-by-impressions": (
        {"deepest": 10, "sessions": 3000},
        "Impression events say what was shown: 3,000 sessions, down to position 10. Other hits "
        "that were returned are not counted.",
    ),
    "ubi.shown-by-hits": (
        {"deepest": 10, "sessions": 1},
        "There is no impression event. The first hits that were returned are taken for shown, as "
        "many as hits_shown says: 1 session, down to position 10.",
    ),
    "ubi.shown-by-all-hits": (
        {"deepest": 100, "sessions": 2},
        "There is no impression event, so all hits that were returned are taken for shown: 2 "
        "sessions, down to position 100. Where the page shows fewer, say how many: hits_shown=10.",
    ),
    "ubi.ordinals": (
        {"base": 0, "agree": 9, "compared": 10},
        "Ordinals count from 0: 9 of 10 agree with the order of the hits.",
    ),
    "ubi.order-differs": (
        {"base": 1, "agree": 1, "compared": 10},
        "Ordinals count from 1, and only 1 of 10 agree with the order of the hits. The page may "
        "not show results in the order in which they were returned, or put others between them: "
        "without impression events with ordinals, positions are wrong then.",
    ),
    "ubi.two-bases": (
        {"base": 0, "other": 4, "compared": 9},
        "Ordinals are taken to count from 0, but 4 of 9 agree with the order of the hits if they "
        "count from 1. If some clients count from 1, their positions are wrong by one: send the "
        "same from all clients, or read each kind of client by itself with positions_from=0 or 1. "
        "If something else is shown above these results, positions are right.",
    ),
    "ubi.shown-twice": (
        {"n": 4},
        "Objects at several places of one list, which count at the highest: 4.",
    ),
    "ubi.query-repeats": (
        {"n": 1200},
        "Queries that were written more than once, and count once: 1,200.",
    ),
    "ubi.event-repeats": (
        {"n": 3},
        "Events that repeat another one of the same query, action and object, and count once: 3.",
    ),
}
ROWS = {
    "ubi.no-query-id": "a query without a query_id",
    "ubi.no-user-query": "a query without a user_query, or with a blank one",
    "ubi.two-queries": "a query_id that stands for two queries, rankers or contexts",
    "ubi.two-lists": "a query_id with two different lists of hits for the same page",
    "ubi.no-position": "an impression whose ordinal is missing or no whole number",
    "ubi.no-impression": "a click on a hit that has no impression event",
    "ubi.outside": "a click on an object that the list of its query does not have",
    "ubi.below": "a click on a hit below position 10, where the page is said to end",
    "ubi.no-object": "an event without a query_id or an object_id",
    "ubi.no-action": "an event without an action_name",
    "ubi.unknown-query": "an event whose query is not among the queries",
    "ubi.no-hits": "a query that returned nothing",
    "ubi.no-impressions": "a query without an impression event",
}
WARN = {"ubi.shown-by-all-hits", "ubi.order-differs", "ubi.two-bases"}


@pytest.mark.parametrize("code", NOTES)
def test_notes(code):
    fields, text = NOTES[code]
    fact = Fact(code, **fields)
    assert (str(fact), fact.severity) == (text, "warning" if code in WARN else "note")


@pytest.mark.parametrize("code", ROWS)
def test_rows(code):
    fact = Fact(code, **({"shown": 10} if code == "ubi.below" else {}))
    assert (str(fact), fact.severity) == (ROWS[code], "warning")


def test_whatever_is_left_out_has_a_fix():
    assert set(FIXES) == set(ROWS)
    assert set(MESSAGES) == {*NOTES, *ROWS}


def test_without_hits_ordinals_are_compared_with_nothing():
    fact = Fact("ubi.ordinals", base=1, agree=0, compared=0)
    assert str(fact) == "Ordinals count from 1: no hits to compare them with."
