"""Whether there is memory for work on a log, asked before the work begins."""

import math

from untilt._core import memory
from untilt.data.clicklog import ClickLog

MORE_MEMORY = f"or give this process more memory ({memory.VARIABLE}, the container, ulimit)"


def bytes_of(log: ClickLog) -> int:
    """What the arrays of a log take; ids that are text count for their references alone."""
    columns = [
        *(log.query_id, log.doc_id, log.doc_query, log.indptr, log.query, log.document),
        *(log.position, log.label, log.count, log.features, log.ranker, log.time, log.item),
        *log.extra_labels.values(),
        *log.context.values(),
    ]
    return sum(column.nbytes for column in columns if column is not None)


def check_room(log: ClickLog, what: str, *, per_row: int, per_document: int = 0) -> None:
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
    return (
        f"Read a share of the queries, such as read_log(..., sample_queries={share:g}), "
        f"{MORE_MEMORY}."
    )
