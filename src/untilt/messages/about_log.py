"""Rows of a click log that break a rule: which rule, and what to do about it."""

from untilt.facts import Message


def _too_deep(most: int, deepest: int, impressions: int, share: float, sessions: int) -> str:
    gone = ""
    if sessions:
        what = "session, which" if sessions == 1 else "sessions, which"
        gone = f". Left out whole: {sessions:,} {what} showed nothing above"
    return (
        f"below position {most:,}, the deepest that untilt compares: lists are cut there, as if "
        f"the page ended. {impressions:,} {'impression' if impressions == 1 else 'impressions'} "
        f"with {share:.2%} of the clicks, down to position {deepest:,}{gone}"
    )


MESSAGES = {
    "log.id-missing": Message("warning", "{column} is missing"),
    "log.session-missing": Message("warning", "{column} is missing"),
    "log.bad-position": Message("warning", "{column} is no whole number from {least} to {most:,}"),
    "log.positions-from-0": Message(
        "serious",
        "{column} counts from 0: it is 0 at the top of {sessions:,} of {n_sessions:,} lists, and "
        "never below 0",
    ),
    "log.too-deep": Message("warning", _too_deep),
    "log.bad-label": Message("warning", "{column} is missing, no number, infinite or negative"),
    "log.bad-cell": Message(
        "warning",
        "{row} and {column} are no cell: missing, no whole numbers from 1, or outside of "
        "{rows} x {columns}",
    ),
    "log.bad-context": Message("warning", "{column} is missing or not finite"),
    "log.ranker-missing": Message("warning", "{column} is missing"),
    "log.bad-random": Message("warning", "{column} is neither 0 nor 1, nor true or false"),
    "log.bad-count": Message("warning", "{column} is no whole number from 1 to {most:,}"),
    "log.bad-time": Message("warning", "{column} is missing or no time"),
    "log.bad-feature": Message(
        "warning", "a feature is missing, no number, or not finite in single precision"
    ),
    "log.no-document": Message("warning", "a document without features"),
    "log.features-differ": Message(
        "warning", "a document of a query has different features in different rows"
    ),
    "log.position-twice": Message("warning", "in a session where a position stands twice"),
    "log.session-differs": Message("warning", "in a session whose rows differ in {column}"),
    "log.features-by-document": Message(
        "note",
        "The documents table has no query_id: each document has the same features for all queries "
        "that showed it, and documents that no list shows are not candidates.",
    ),
}

# What the person who made the log can do, by the code of the rule.
FIXES = {
    "log.id-missing": "give every row its ids",
    "log.session-missing": "give every row its session",
    "log.bad-position": "positions count from 1 at the top of the page",
    "log.too-deep": (
        "mend positions that nobody scrolls to; where lists are so long, nothing: what is learned "
        "holds for the positions above"
    ),
    "log.positions-from-0": (
        "say so with [[positions_from=0]], and they are read as 1, 2, 3, ...; to leave these rows "
        "out would take the top result off every page ([[positions_from=1]] says that they are no "
        "results)"
    ),
    "log.bad-label": (
        "feedback is a number of at least 0; write 0 where nothing was done, and leave out rows "
        "that nobody could see"
    ),
    "log.bad-cell": (
        "rows and columns count from 1 ([[positions_from=0]] where yours count from 0), and "
        "grid=(rows, columns) says how large the grid is"
    ),
    "log.bad-context": (
        "context is a number or text: write a value of its own, such as 'unknown', into the gaps"
    ),
    "log.ranker-missing": "name the system that made the list, or "
    "[[pass columns={{'ranker': None}}]]",
    "log.bad-random": (
        "the flag for random order is 1 or true where the list was shown in random order, else 0"
    ),
    "log.bad-count": (
        "count says how many sessions the row stands for; [[pass columns={{'count': None}}]] if not"
    ),
    "log.bad-time": "give a timestamp or a number, or [[pass columns={{'timestamp': None}}]]",
    "log.bad-feature": (
        'a missing feature can be kept for boosted trees with [[missing="keep"]], or get a value '
        "with [[missing=0.0]], which rankers then use too; what is infinite or no number must be "
        "mended"
    ),
    "log.no-document": (
        "add its (query_id, doc_id) with features to the documents, or take it out of the log"
    ),
    "log.features-differ": (
        "keep one row per (query_id, doc_id); features that change over time stand in the rows of "
        "the log instead ([[features=|--features]]), where each impression has its own"
    ),
    "log.position-twice": (
        "a session is one list: give each page load its own session_id, number positions through "
        "over all pages, and write each impression once"
    ),
    "log.session-differs": "a session is one list, and all its rows agree on what it was",
}
