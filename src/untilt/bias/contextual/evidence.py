"""Contexts as numbers, and the documents shown at several positions in each of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over, sum_by
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.data.layout import as_text
from untilt.errors import OptionError, ShapeError, check_choice, did_you_mean

PER = ("query", "list")
# Numbers for each query or list, or for each query id.
Context = npt.ArrayLike | Mapping[Any, npt.ArrayLike] | None


@dataclass(frozen=True)
class ContextColumns:
    """How named columns of context become numbers.

    A column of numbers is taken as it is. A column of categories becomes a column of 0 and 1 for
    each category but the first, which is what the others are compared with.

    categories : column name -> its categories in order; empty for a column of numbers
    """

    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, columns: Mapping[str, AnyArray]) -> "ContextColumns":
        """As the columns of a log have it."""
        return cls(
            {
                name: tuple(sorted(set(values))) if values.dtype == object else ()
                for name, values in columns.items()
            }
        )

    def table(self, columns: Mapping[str, npt.ArrayLike]) -> FloatArray:
        """(n, d) the numbers for columns of n entries, or of one."""
        missing = [name for name in self.categories if name not in columns]
        if missing:
            raise OptionError(
                f"a context here has {', '.join(self.categories)}. Got {', '.join(columns)}: "
                f"{missing[0]!r} is missing."
            )
        return np.column_stack(
            [
                number
                for name, known in self.categories.items()
                for number in _numbers(name, known, np.atleast_1d(columns[name]))
            ]
        )

    def describe(self, row: FloatArray) -> str:
        """A row of `table` in words, such as "device = phone, hour = 9"."""
        values = zip(self.categories, self._values(row), strict=True)
        told = (f"{name} = {v if isinstance(v, str) else f'{v:g}'}" for name, v in values)
        return ", ".join(told)

    def texts(self, rows: FloatArray) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """The names of the columns, and what they hold in each row of `table`, as text."""
        values = tuple(tuple(as_text(v) for v in self._values(row)) for row in rows)
        return tuple(self.categories), values

    def _values(self, row: FloatArray) -> list[str | float]:
        """What the columns hold in a row of `table`."""
        numbers, values = iter(row.tolist()), []
        for known in self.categories.values():
            chosen = [next(numbers) for _ in known[1:] or ("",)]
            which = chosen.index(1.0) + 1 if len(known) > 1 and 1.0 in chosen else 0
            values.append(known[which] if known else chosen[0])
        return values


def _numbers(name: str, known: tuple[str, ...], values: AnyArray) -> list[FloatArray]:
    if not known:
        return [values.astype(np.float64)]
    text = [str(value) for value in values]
    unknown = next((value for value in text if value not in known), None)
    if unknown is not None:
        raise OptionError(
            f"context {name!r} must be one of {', '.join(known)}. Got {unknown!r} instead."
            f"{did_you_mean(unknown, known)}"
        )
    # A single category is a column that never varies: it has no effect.
    return [np.array([value == each for value in text], float) for each in known[1:] or known]


@dataclass(frozen=True, eq=False)
class Contexts:
    """Distinct contexts, and which of them each list was seen in.

    values : (contexts, d) float64; of_list : (lists,) index; sessions : (contexts,)
    columns : what the d numbers are, where they come from the columns of a log
    """

    values: FloatArray
    of_list: IntArray
    sessions: FloatArray
    columns: ContextColumns | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """One row for each (document, context) that was shown at several positions and clicked.

    impressions, clicks : (rows, K); context : (rows,) index into `Contexts`, never falling
    query : (rows,) the units that errors are clustered by
    """

    impressions: FloatArray
    clicks: FloatArray
    context: IntArray
    query: IntArray

    def __len__(self) -> int:
        return len(self.context)

    def take(self, rows: IntArray) -> "Evidence":
        """These rows alone."""
        return Evidence(
            self.impressions[rows], self.clicks[rows], self.context[rows], self.query[rows]
        )


def contexts_of(
    log: ClickLog, context: Context = None, *, per: str, columns: ContextColumns | None = None
) -> Contexts:
    """The context of each list, checked and without repeats.

    context : an array or a mapping of query ids; where not given, the context columns of the log,
        as numbers in the way of `columns`, or of a way of their own
    """
    check_choice("per", per, PER)
    if context is None and log.context:
        columns = columns or ContextColumns.of(log.context)
        given, per = columns.table(log.context), "list"
    elif isinstance(context, Mapping):
        given, columns = _by_id(log, context, per), None
    else:
        given, columns = (
            _as_table(context, log.n_queries if per == "query" else log.n_lists, per),
            None,
        )
    row_of_list = log.query if per == "query" else np.arange(log.n_lists)
    _check_finite(given, row_of_list, per)
    used = np.zeros(len(given), dtype=bool)
    used[row_of_list] = True
    values, of_used = np.unique(given[used], axis=0, return_inverse=True)
    of_row = np.zeros(len(given), dtype=np.int64)
    of_row[used] = of_used.ravel()
    of_list = of_row[row_of_list]
    sessions = sum_by(of_list, log.sessions, len(values))
    return Contexts(handed_over(values), handed_over(of_list), handed_over(sessions), columns)


def context_cells(log: ClickLog, contexts: Contexts) -> tuple[PositionCounts, IntArray]:
    """Cells of (document, context), sorted by context, and the context of each.

    A document may be as relevant as it likes in each context: nothing is compared across contexts.
    """
    lengths = np.diff(log.indptr)
    row_context = np.repeat(contexts.of_list, lengths).astype(np.int64)
    key = row_context * log.n_documents + log.document
    pairs, pair = np.unique(key, return_inverse=True)
    cells = counts_from_rows(
        pair.ravel(), log.position, log.row_count, log.label, len(pairs), log.depth
    )
    context, document = np.divmod(pairs, log.n_documents)
    counts = replace(
        cells, query=handed_over(log.doc_query[document]), document=handed_over(document)
    )
    return counts, context


def evidence_of(cells: PositionCounts, context: IntArray) -> Evidence:
    """The rows that say anything: several positions, and a click at one of them."""
    n_positions = np.diff(cells.indptr)
    impressions, clicks = np.zeros((2, len(n_positions), cells.depth))
    at = cells.document_index, cells.position_index
    impressions[at], clicks[at] = cells.impressions, cells.clicks
    useful = (n_positions > 1) & (clicks.sum(axis=1) > 0)
    return Evidence(impressions, clicks, context, cells.query).take(np.flatnonzero(useful))


def _by_id(log: ClickLog, context: Mapping[Any, npt.ArrayLike], per: str) -> FloatArray:
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


def _as_table(context: npt.ArrayLike | None, n: int, per: str) -> FloatArray:
    if context is None:
        raise OptionError(
            "ContextualBias needs to know the context. Read the log with columns of it, "
            "read_log(..., context=['device']), or give fit(log, context=array) a row of numbers "
            "for each query of the log, or a mapping of query ids to such rows."
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
