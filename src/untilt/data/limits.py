"""How deep a list may go, and how much memory work on a log may take: one rule for every log.

What is learned of positions stands in tables with a row and a column for each position. At 1,000
positions such a table takes 8 MB, at 30,000 it would take 7 GB. So a log ends at `DEEPEST`, as if
the page did: rows further down are left out and counted, their lists keep the rows above, and
sessions that showed nothing above are gone. Whether there is memory is asked before work begins.
"""

import math
from math import prod
from typing import TYPE_CHECKING

from untilt._core import memory
from untilt.facts import Fact, phrase, warning

if TYPE_CHECKING:
    from untilt.data.clicklog import ClickLog


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
# Far below 2**63, so that sums of counts stay exact; above 2**53 floats could not hold them.
MOST_COUNT = 2**53
# Fourth powers of labels are summed: beyond these they would be infinite, or 0.
LEAST_LABEL, MOST_LABEL = 1e-50, 1e50


class DroppedRowsWarning(UserWarning):
    """Rows were left out: as on_bad="drop" asks for, or because they lie too deep."""


def allow_table(what: str, *shape: int, copies: int = 1) -> None:
    """Refuse tables of float64 with this shape, one axis being positions, that cannot fit.

    Tables with a row for each query, document or pair of a list grow with more than positions.
    """
    fix = phrase("Cut the lists, ⟦log.top(50)|--depth 50⟧, or use fewer queries.")
    memory.allow(8.0 * copies * prod(shape), what, fix)


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


MORE_MEMORY = f"or give this process more memory ({memory.VARIABLE}, the container, ulimit)"


def bytes_of(log: "ClickLog") -> int:
    """What the arrays of a log take; ids that are text count for their references alone."""
    columns = [
        *(log.query_id, log.doc_id, log.doc_query, log.indptr, log.query, log.document, log.person),
        *(log.position, log.label, log.count, log.features, log.ranker, log.time, log.item),
        *log.extra_labels.values(),
        *log.context.values(),
    ]
    return sum(column.nbytes for column in columns if column is not None)


def check_room(log: "ClickLog", what: str, *, per_row: int, per_document: int = 0) -> None:
    """Raise unless work with so many bytes for each row and document of the log fits.

    The bytes are measured ones (benchmarks/bench_memory.py), for lists that are all different.
    """
    work = per_row * len(log.document) + per_document * log.n_documents
    if memory.fits(work):
        return
    rows = f"{len(log.document):,} rows in {log.n_lists:,} distinct lists"
    memory.allow(work, f"{what} on this log ({rows})", remedy(work, held=bytes_of(log)))


def remedy(needed: float, *, held: int = 0) -> str:
    """What to do where `needed` more bytes do not fit: a share of the queries that does."""
    room = memory.room() or 0
    share = 0.8 * (room + held) / max(1.0, needed + held)
    digits = 10 ** (1 - math.floor(math.log10(max(share, 1e-6))))
    share = math.floor(min(share, 0.9) * digits) / digits
    return phrase(
        "Read a share of the queries, such as "
        "⟦read_log(..., sample_queries={share:g})|--sample-queries {share:g}⟧, {more}.",
        share=share, more=MORE_MEMORY,
    )  # fmt: skip
