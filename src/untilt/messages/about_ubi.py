"""An export of User Behavior Insights: how it was understood, and what was left out of it."""

from collections.abc import Mapping

from untilt.facts import Message, Texts, messages

_MOST_ACTIONS = 8


def _others(actions: Mapping[str, int]) -> str:
    named = [f"{action} ({n:,})" for action, n in list(actions.items())[:_MOST_ACTIONS]]
    more = len(actions) - len(named)
    return (
        f"Actions that were not asked for: {', '.join(named)}{f' and {more} more' if more else ''}."
    )


def _sessions(n: int) -> str:
    return f"{n:,} {'session' if n == 1 else 'sessions'}"


def _impressions(deepest: int, sessions: int) -> str:
    return (
        f"Impression events say what was shown: {_sessions(sessions)}, down to position "
        f"{deepest:,}. Other hits that were returned are not counted."
    )


def _hits(deepest: int, sessions: int) -> str:
    return (
        "There is no impression event. The first hits that were returned are taken for shown, as "
        f"many as hits_shown says: {_sessions(sessions)}, down to position {deepest:,}."
    )


def _all_hits(deepest: int, sessions: int) -> str:
    return (
        "There is no impression event, so all hits that were returned are taken for shown: "
        f"{_sessions(sessions)}, down to position {deepest:,}. Where the page shows fewer, say how "
        "many: hits_shown=10."
    )


def _ordinals(base: int, agree: int, compared: int) -> str:
    tell = f"{agree:,} of {compared:,} agree with the order of the hits"
    return f"Ordinals count from {base}: {tell if compared else 'no hits to compare them with'}."


def _order_differs(base: int, agree: int, compared: int) -> str:
    return (
        f"Ordinals count from {base}, and only {agree:,} of {compared:,} agree with the order of "
        "the hits. The page may not show results in the order in which they were returned, or put "
        "others between them: without impression events with ordinals, positions are wrong then."
    )


def _two_bases(base: int, other: int, compared: int) -> str:
    return (
        f"Ordinals are taken to count from {base}, but {other:,} of {compared:,} agree with the "
        f"order of the hits if they count from {1 - base}. If some clients count from "
        f"{1 - base}, their positions are wrong by one: send the same from all clients, or read "
        "each kind of client by itself with positions_from=0 or 1. If something else is shown "
        "above these results, positions are right."
    )


NOTES: Texts = {
    "ubi.other-actions": _others,
    "ubi.shown-by-impressions": _impressions,
    "ubi.shown-by-hits": _hits,
    "ubi.ordinals": _ordinals,
    "ubi.shown-twice": lambda n: (
        f"Objects at several places of one list, which count at the highest: {n:,}."
    ),
    "ubi.query-repeats": lambda n: (
        f"Queries that were written more than once, and count once: {n:,}."
    ),
    "ubi.event-repeats": lambda n: (
        f"Events that repeat another one of the same query, action and object, and count once: "
        f"{n:,}."
    ),
}
WARNINGS: Texts = {
    "ubi.shown-by-all-hits": _all_hits,
    "ubi.order-differs": _order_differs,
    "ubi.two-bases": _two_bases,
}
_ROWS = {
    "ubi.no-query-id": "a query without a query_id",
    "ubi.no-user-query": "a query without a user_query, or with a blank one",
    "ubi.two-queries": "a query_id that stands for two queries, rankers or contexts",
    "ubi.two-lists": "a query_id with two different lists of hits for the same page",
    "ubi.no-position": "an impression whose ordinal is missing or no whole number",
    "ubi.no-impression": "a click on a hit that has no impression event",
    "ubi.outside": "a click on an object that the list of its query does not have",
    "ubi.below": "a click on a hit below position {shown}, where the page is said to end",
    "ubi.no-object": "an event without a query_id or an object_id",
    "ubi.no-action": "an event without an action_name",
    "ubi.unknown-query": "an event whose query is not among the queries",
    "ubi.no-hits": "a query that returned nothing",
    "ubi.no-impressions": "a query without an impression event",
}
MESSAGES = (
    messages("note", NOTES)
    | messages("warning", WARNINGS)
    | {code: Message("warning", text) for code, text in _ROWS.items()}
)

# What the person who made the export can do, by the code of the rule.
FIXES = {
    "ubi.no-query-id": "give every request a query_id, and its events the same one",
    "ubi.no-user-query": (
        "write what was asked, or name the field that says so: [[columns={{'query_id': "
        "'query_attributes.category'}}]]"
    ),
    "ubi.two-queries": "give every request a query_id of its own",
    "ubi.two-lists": (
        "give every request a query_id of its own; pages of one list say where they begin "
        "(`from` in `query`, or [[columns={{'offset': 'query_attributes.offset'}}]])"
    ),
    "ubi.no-position": (
        "send event_attributes.position.ordinal with every impression; places among the hits are "
        "used where no impression has one"
    ),
    "ubi.no-impression": (
        "nothing where events are lost now and then: the object is left out of this list, clicked "
        "or not. If most impressions are missing, leave them aside: [[columns={{'impression': "
        "...}}]]"
    ),
    "ubi.outside": (
        "clicks beside the list (an advertisement, a recommendation) need an action of their own; "
        "where ids are of two kinds, name the right one: [[columns={{'doc_id': "
        "'event_attributes.object.internal_id'}}]]"
    ),
    "ubi.below": "raise hits_shown where the page shows more",
    "ubi.no-object": "nothing, if these are actions beside the list",
    "ubi.no-action": "send action_name with every event",
    "ubi.unknown-query": "export the queries of the same time; events of other searches count here",
    "ubi.no-hits": "nothing: there is no list to learn from",
    "ubi.no-impressions": (
        "nothing, if nobody saw the list; if impressions are sent for a part of the traffic alone, "
        "the log is that part"
    ),
}
