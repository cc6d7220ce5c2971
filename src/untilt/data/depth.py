"""How deep a list may go: one rule for every log, whoever made it.

What is learned of positions stands in tables with a row and a column for each position. At 1,000
positions such a table takes 8 MB, at 30,000 it would take 7 GB. So a log ends at `DEEPEST`, as if
the page did: rows further down are left out and counted, their lists keep the rows above, and
sessions that showed nothing above are gone.
"""

from math import prod

from untilt._core.memory import allow
from untilt.facts import Fact, warning

TOO_DEEP = warning(
    "log.too-deep",
    "below position {most:,}, the deepest that untilt compares: lists are cut there, as if the "
    "page ended. {impressions:,} {impressions:impression|impressions} with {share:.2%} of the "
    "clicks, down to position {deepest:,}",
)
TOO_DEEP_SESSIONS = warning(
    "log.too-deep",
    TOO_DEEP.template
    + (
        ". Left out whole: {sessions:,} {sessions:session, which|sessions, which} showed nothing "
        "above"
    ),
)

DEEPEST = 1_000


class DroppedRowsWarning(UserWarning):
    """Rows were left out: as on_bad="drop" asks for, or because they lie too deep."""


def allow_table(what: str, *shape: int, copies: int = 1) -> None:
    """Refuse tables of float64 with this shape, one axis being positions, that cannot fit.

    Tables with a row for each query, document or pair of a list grow with more than positions.
    """
    allow(8.0 * copies * prod(shape), what, "Cut the lists, log.top(50), or use fewer queries.")


def too_deep(
    *, deepest: int, impressions: float, labels: float, all_labels: float, sessions: int
) -> Fact:
    """What is said of rows below `DEEPEST`.

    Parameters
    ----------
    deepest : the lowest position
    impressions : how many were left out, counted lists as often as they stand for
    labels, all_labels : the sum of the label over them, and over all impressions
    sessions : those that showed nothing above
    """
    told = TOO_DEEP_SESSIONS if sessions else TOO_DEEP
    return told(
        most=DEEPEST,
        deepest=int(deepest),
        impressions=int(impressions),
        share=float(labels / all_labels) if all_labels else 0.0,
        sessions=int(sessions),
    )
