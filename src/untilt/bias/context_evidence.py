"""Documents shown at several positions, with the context in which people saw them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray, IntArray, handed_over
from untilt._core.suggest import check_choice
from untilt.bias.cells import Cells, cells_from_rows
from untilt.errors import OptionError, ShapeError
from untilt.logs.clicklog import ClickLog

PER = ("query", "list")


@dataclass(frozen=True, eq=False)
class Contexts:
    """Distinct contexts, and which of them each list was seen in.

    values : (contexts, d) float64; of_list : (lists,) index; sessions : (contexts,)
    """

    values: FloatArray
    of_list: IntArray
    sessions: FloatArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """One line for each (document, context) that was shown at several positions and clicked.

    impressions, clicks : (lines, K); context : (lines,) index into `Contexts`, never falling
    query : (lines,) the units that errors are clustered by
    """

    impressions: FloatArray
    clicks: FloatArray
    context: IntArray
    query: IntArray

    def __len__(self) -> int:
        return len(self.context)

    def take(self, lines: IntArray) -> "Evidence":
        """These lines alone."""
        return Evidence(
            self.impressions[lines], self.clicks[lines], self.context[lines], self.query[lines]
        )


def contexts_of(log: ClickLog, context: Any, *, per: str) -> Contexts:
    """Context given as an array, or as a mapping of query ids, checked and without repeats."""
    check_choice("per", per, PER)
    if isinstance(context, Mapping):
        given = _by_id(log, context, per)
    else:
        given = _as_table(context, log.n_queries if per == "query" else log.n_lists, per)
    row_of_list = log.query if per == "query" else np.arange(log.n_lists)
    _check_finite(given, row_of_list, per)
    used = np.zeros(len(given), dtype=bool)
    used[row_of_list] = True
    values, of_used = np.unique(given[used], axis=0, return_inverse=True)
    of_row = np.zeros(len(given), dtype=np.int64)
    of_row[used] = of_used.ravel()
    of_list = of_row[row_of_list]
    sessions = np.bincount(of_list, weights=log.sessions, minlength=len(values))
    return Contexts(handed_over(values), handed_over(of_list), handed_over(sessions))


def context_cells(log: ClickLog, contexts: Contexts) -> tuple[Cells, IntArray]:
    """Cells of (document, context), sorted by context, and the context of each.

    A document may be as relevant as it likes in each context: nothing is compared across contexts.
    """
    lengths = np.diff(log.indptr)
    row_context = np.repeat(contexts.of_list, lengths).astype(np.int64)
    key = row_context * log.n_documents + log.document
    pairs, pair = np.unique(key, return_inverse=True)
    cells = cells_from_rows(
        pair.ravel(), log.position, log.row_count, log.label, len(pairs), log.depth
    )
    context, document = np.divmod(pairs, log.n_documents)
    found = Cells(
        indptr=cells.indptr,
        query=handed_over(log.doc_query[document]),
        document=handed_over(document),
        position=cells.position,
        impressions=cells.impressions,
        clicks=cells.clicks,
        depth=cells.depth,
    )
    return found, context


def evidence_of(cells: Cells, context: IntArray) -> Evidence:
    """The lines that can tell anything: several positions, and a click at one of them."""
    n = len(cells.indptr) - 1
    line = np.repeat(np.arange(n), np.diff(cells.indptr))
    impressions, clicks = np.zeros((n, cells.depth)), np.zeros((n, cells.depth))
    impressions[line, cells.position - 1] = cells.impressions
    clicks[line, cells.position - 1] = cells.clicks
    useful = (np.diff(cells.indptr) > 1) & (clicks.sum(axis=1) > 0)
    return Evidence(impressions, clicks, context, cells.query).take(np.flatnonzero(useful))


def _by_id(log: ClickLog, context: Mapping[Any, Any], per: str) -> FloatArray:
    if per != "query":
        raise OptionError(
            'a mapping of query ids is context per="query". For context per="list" give an array '
            "with a row for each list of the log."
        )
    ids = log.query_id.tolist()
    shown = np.zeros(log.n_queries, dtype=bool)
    shown[log.query] = True
    missing = [ids[i] for i in np.flatnonzero(shown) if ids[i] not in context]
    if missing:
        raise OptionError(
            f"context has no entry for {len(missing):,} of the queries shown, among them "
            f"{missing[0]!r}. Give one for each query id, in the type of log.query_id."
        )
    some = next(np.atleast_1d(context[i]) for i in ids if i in context)
    absent = np.zeros(len(some))  # never looked at: these queries were shown to nobody
    rows = [np.atleast_1d(context.get(i, absent)) for i in ids]
    if len({row.shape for row in rows}) > 1:
        raise ShapeError("context must have the same number of values for every query.")
    return np.array(rows, dtype=np.float64)


def _as_table(context: Any, n: int, per: str) -> FloatArray:
    if context is None:
        raise OptionError(
            "ContextualBias needs to know the context: fit(log, context=array) with a row of "
            "numbers for each query of the log, or a mapping of query ids to such rows."
        )
    table = np.asarray(context, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != n or table.shape[1] == 0:
        unit = "queries, in the order of log.query_id" if per == "query" else "lists"
        raise ShapeError(
            f"context must have one row for each of the {n:,} {unit}, and at least one column. "
            f"Got shape {np.shape(context)} instead."
        )
    return table


def _check_finite(given: FloatArray, used: IntArray, per: str) -> None:
    wrong = ~np.isfinite(given[used]).all(axis=1)
    if wrong.any():
        where = int(np.asarray(used)[np.argmax(wrong)])
        raise OptionError(
            f"context must be finite numbers. Row {where} ({per} {where}) is "
            f"{given[where].tolist()}. Fill in what is missing, with a column that says so."
        )
