"""The rules of a click log, checked once where a log is made."""

from typing import TYPE_CHECKING

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, IntArray
from untilt.errors import BadRowsError, ShapeError

if TYPE_CHECKING:
    from untilt.logs.clicklog import ClickLog


def check_log(log: "ClickLog") -> None:
    """Raise unless the arrays fit together and every row keeps the rules."""
    _check_shapes(log)
    _check_references(log)
    _check_rows(log)


def _check_shapes(log: "ClickLog") -> None:
    n_rows, n_lists, n_documents = len(log.document), len(log.query), len(log.doc_id)
    ragged.check_indptr(log.indptr, n_rows, what="ClickLog")
    sized = [
        ("indptr", log.indptr, n_lists + 1),
        ("doc_query", log.doc_query, n_documents),
        ("position", log.position, n_rows),
        ("label", log.label, n_rows),
        ("count", log.count, n_lists),
        ("features", log.features, n_documents),
        ("ranker", log.ranker, n_lists),
        ("time", log.time, n_lists),
        *((f"extra_labels[{name!r}]", column, n_rows) for name, column in log.extra_labels.items()),
    ]
    for what, array, wanted in sized:
        if array is not None and len(array) != wanted:
            raise ShapeError(f"{what} must have {wanted} entries. Got {len(array)} instead.")
        if array is not None and array.ndim != 1 and what != "features":
            raise ShapeError(f"{what} must be a flat array. Got shape {array.shape} instead.")
    if log.features is not None and log.features.shape != (n_documents, len(log.feature_names)):
        raise ShapeError(
            f"features must have shape ({n_documents}, {len(log.feature_names)}): one row per "
            f"document, one column per feature name. Got {log.features.shape} instead."
        )


def _check_references(log: "ClickLog") -> None:
    for what, index, size in (
        ("doc_query", log.doc_query, log.n_queries),
        ("query", log.query, log.n_queries),
        ("document", log.document, log.n_documents),
        ("ranker", log.ranker, len(log.ranker_names)),
    ):
        if index is not None and len(index) and (index.min() < 0 or index.max() >= size):
            raise ShapeError(
                f"{what} must hold indices from 0 to {size - 1}. "
                f"Got {index.min()} to {index.max()} instead."
            )
    if len(log.document):
        owner = log.query[ragged.list_of_row(log.indptr)]
        _refuse(
            log,
            log.doc_query[log.document] != owner,
            "a list shows a document of another query",
            "each (query, document) pair needs its own entry in the documents",
        )


def _check_rows(log: "ClickLog") -> None:
    check_count(log.sessions, log.n_lists)
    _refuse(log, log.position < 1, "a position below 1", "positions start at 1")
    for name, column in (("label", log.label), *log.extra_labels.items()):
        bad = ~(np.isfinite(column) & (column >= 0))
        _refuse(log, bad, f"{name} is missing, infinite or negative", "feedback is a number >= 0")
    order = ragged.order_within_lists(log.indptr, log.position)
    owner, sorted_position = ragged.list_of_row(log.indptr)[order], log.position[order]
    twice = np.zeros(len(order), dtype=bool)
    twice[order[1:]] = (owner[1:] == owner[:-1]) & (sorted_position[1:] == sorted_position[:-1])
    _refuse(log, twice, "a position stands twice in a session", "each place shows one document")


def check_count(count: IntArray, n_lists: int) -> None:
    """Raise unless each list stands for at least one session."""
    if len(count) != n_lists:
        raise ShapeError(f"count must have {n_lists} entries. Got {len(count)} instead.")
    if np.any(count < 1):
        first = int(np.argmax(count < 1))
        raise BadRowsError(
            f"count must be at least 1. List {first} has {int(count[first])}. "
            f"Leave out lists that nobody saw."
        )


def _refuse(log: "ClickLog", bad: BoolArray, what: str, fix: str) -> None:
    if not bad.any():
        return
    rows = np.flatnonzero(bad)
    owner = int(np.searchsorted(log.indptr, rows[0], side="right") - 1)
    raise BadRowsError(
        f"{what}: {len(rows):,} rows, first in list {owner} (query "
        f"{log.query_id[log.query[owner]]!r}) at position {int(log.position[rows[0]])}. Fix: {fix}."
    )
