"""The click log: which lists were shown for which query, and what people did with them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from untilt._core import arrays, ragged
from untilt._core.feature_table import with_names
from untilt._core.grouping import Groups, group_equal_lists
from untilt._core.portable import Portable
from untilt._core.random import Seed
from untilt.data.counts import ClickRates, click_rates
from untilt.data.layout import AnyLayout, ranks_of
from untilt.data.limits import (
    DEEPEST,
    LEAST_LABEL,
    MOST_COUNT,
    MOST_LABEL,
    DroppedRowsWarning,
    too_deep,
)
from untilt.errors import BadRowsError, OptionError, ShapeError
from untilt.views import Section, Tile, View

PROPENSITY = "propensity"  # the column of that name
HALVES = 2  # values of the time where equal sessions of each half are merged


@dataclass(frozen=True, eq=False, repr=False, init=False)
class ClickLog(Portable, View):
    """A click log. A list stands for `count` sessions that were alike in everything.

    Three tables share this object. *Documents* stand once per (query, document), shown or not, or
    once per version of it where features change from impression to impression. *Lists* are what a
    session showed. *Rows* are the positions of the lists, in order.
    All arrays are read-only; methods return new logs that share memory with this one.

    Parameters
    ----------
    query_id : (queries,) whole numbers or text
    doc_id, doc_query : (documents,) the document's id and the index of its query
    indptr : (lists + 1,) list i owns rows indptr[i]:indptr[i + 1]
    query : (lists,) index of the query
    document : (rows,) index into the documents
    position : (rows,) 1-based, explicit: never the order of the rows. Rows below position 1,000 are
        left out with a `DroppedRowsWarning`, as if the page ended there
    label : (rows,) click 0/1, or any feedback >= 0
    count : (lists,) sessions that the list stands for; 1 each where not given
    features : (documents, d) float32, or None
    ranker : (lists,) index into `ranker_names` of the system that made the list, or None
    time : (lists,) when it was shown, any increasing number, or None
    extra_labels : further feedback columns, name -> (rows,); "propensity" is the probability with
        which the logging policy showed the document at this position in this session
    context : what is known of the sessions of a list (device, hour), name -> (lists,) numbers or
        text; sessions of different contexts are different lists
    item : (documents,) which (query, document) each is a version of, numbered 0, 0, 1, 2, 2, ...:
        versions stand side by side. None where every document has one version
    missing : what became of missing features on reading: None where there were none to be,
        "keep" (they are NaN), or the number that was put in their place
    layout : what positions stand for where they are more than ranks: cells of a grid, say
    turnover : of the variance of a document's positions, the part that is left between sessions
        that follow one another; kept where equal sessions are merged and their times are lost. Near
        0 where lists change from one period to the next; None where the times are not known
    person : (lists,) whose sessions a list stands for, numbered from 0 in the order of the ids that
        were given, or None; sessions of different people are different lists
    """

    query_id: arrays.AnyArray
    doc_id: arrays.AnyArray
    doc_query: arrays.IntArray
    indptr: arrays.IntArray
    query: arrays.IntArray
    document: arrays.IntArray
    position: arrays.IntArray
    label: arrays.FloatArray
    count: arrays.IntArray
    features: arrays.FeatureArray | None
    feature_names: tuple[str, ...]
    ranker: arrays.IntArray | None
    ranker_names: tuple[str, ...]
    time: arrays.AnyArray | None
    label_name: str
    extra_labels: Mapping[str, arrays.FloatArray]
    context: Mapping[str, arrays.AnyArray]
    item: arrays.IntArray | None
    missing: arrays.Missing
    layout: AnyLayout | None
    turnover: float | None
    person: arrays.IntArray | None

    def __init__(
        self,
        query_id: npt.ArrayLike,
        doc_id: npt.ArrayLike,
        doc_query: npt.ArrayLike,
        indptr: npt.ArrayLike,
        query: npt.ArrayLike,
        document: npt.ArrayLike,
        position: npt.ArrayLike,
        label: npt.ArrayLike,
        count: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
        feature_names: Sequence[str] = (),
        ranker: npt.ArrayLike | None = None,
        ranker_names: Sequence[object] = (),
        time: npt.ArrayLike | None = None,
        label_name: str = "click",
        extra_labels: Mapping[str, npt.ArrayLike] = MappingProxyType({}),
        context: Mapping[str, npt.ArrayLike] = MappingProxyType({}),
        *,
        item: npt.ArrayLike | None = None,
        missing: arrays.Missing = None,
        layout: AnyLayout | None = None,
        turnover: float | None = None,
        person: npt.ArrayLike | None = None,
    ) -> None:
        lists = arrays.whole_numbers(query, np.int32, what="query")
        features, feature_names = with_names(features, feature_names)
        table = None if features is None else arrays.frozen(features, np.float32)
        made_by = None if ranker is None else arrays.whole_numbers(ranker, np.int32, what="ranker")
        if table is not None and table.ndim == 2 and not feature_names:
            feature_names = [f"f{j + 1}" for j in range(table.shape[1])]
        if made_by is not None and len(made_by) and not ranker_names:
            ranker_names = range(int(made_by.max()) + 1)
        indices = {"doc_query": doc_query, "document": document, "position": position, "item": item}
        counts = {"indptr": indptr, "count": np.ones(len(lists), int) if count is None else count}
        self._store(
            **{
                name: None if given is None else arrays.whole_numbers(given, dtype, what=name)
                for each, dtype in ((indices, np.int32), (counts, np.int64))
                for name, given in each.items()
            },
            query_id=arrays.identifiers(query_id),
            doc_id=arrays.identifiers(doc_id),
            query=lists,
            label=arrays.frozen(label, np.float64),
            features=table,
            feature_names=tuple(feature_names),
            ranker=made_by,
            ranker_names=tuple(str(name) for name in ranker_names),
            time=None if time is None else arrays.frozen(time),
            label_name=label_name,
            extra_labels={
                name: arrays.frozen(each, np.float64) for name, each in extra_labels.items()
            },
            context={name: _categories_or_numbers(column) for name, column in context.items()},
            missing=missing,
            layout=layout,
            turnover=turnover,
            person=None if person is None else _numbered(person),
        )
        check_log(self)
        self._sort_rows()
        if self.depth > DEEPEST:
            self._cut()

    def _store(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(
                self, name, MappingProxyType(value) if isinstance(value, dict) else value
            )

    def _sort_rows(self) -> None:
        """Rows by position inside each list, so that equal lists have equal rows."""
        steps = np.diff(self.position.astype(np.int64))
        inside = np.ones(len(steps), dtype=bool)
        starts = self.indptr[1:-1]
        inside[starts[(starts > 0) & (starts < len(self.position))] - 1] = False
        if np.all(steps[inside] > 0):
            return
        order = ragged.order_within_lists(self.indptr, self.position)
        self._store(**self._handed_over(self._rows(order)))

    def _cut(self) -> None:
        """End the lists at `DEEPEST`, and say what that leaves out."""
        deep, count = self.position > DEEPEST, self.row_count
        kept = self.top(DEEPEST)
        fact = too_deep(
            deepest=self.depth,
            impressions=count[deep].sum(),
            labels=np.dot(count[deep], self.label[deep]),
            all_labels=np.dot(count, self.label),
            sessions=self.n_sessions - kept.n_sessions,
        )
        text = f"{int(deep.sum()):,} {'row' if deep.sum() == 1 else 'rows'} of the log: {fact}"
        warnings.warn(text, DroppedRowsWarning, stacklevel=3)
        self._store(**{name: getattr(kept, name) for name in self.__dataclass_fields__})

    # ---- size and shape

    @property
    def n_queries(self) -> int:
        """Queries in the documents table, shown or not."""
        return len(self.query_id)

    @property
    def n_documents(self) -> int:
        """Entries of the documents table, shown or not; a version of a document is an entry."""
        return len(self.doc_id)

    @property
    def n_items(self) -> int:
        """Distinct (query, document) pairs, shown or not, whatever their number of versions."""
        return self.n_documents if self.item is None else int(self.item[-1]) + 1

    @property
    def n_lists(self) -> int:
        """Lists stored; fewer than the sessions once collapsed."""
        return len(self.query)

    @property
    def n_sessions(self) -> int:
        """Sessions that the lists stand for."""
        return int(self.count.sum())

    @property
    def sessions(self) -> arrays.IntArray:
        """(lists,) the same as `count`."""
        return self.count

    @property
    def n_impressions(self) -> int:
        """Documents shown, over all sessions."""
        return int(np.dot(ragged.lengths(self.indptr), self.count))

    @property
    def n_features(self) -> int:
        """Number of features, 0 where there are none."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def depth(self) -> int:
        """The lowest position shown anywhere, K."""
        return int(self.position.max()) if len(self.position) else 0

    @property
    def rank(self) -> arrays.IntArray:
        """(rows,) what a metric takes each position for: itself, unless the layout says else."""
        return (
            self.position
            if self.layout is None
            else ranks_of(self.layout, self.depth)[self.position - 1]
        )

    @property
    def propensity(self) -> arrays.FloatArray | None:
        """(rows,) with which the logging policy showed the document there; None where not known."""
        return self.extra_labels.get(PROPENSITY)

    @property
    def is_binary(self) -> bool:
        """Whether all labels are 0 or 1, as clicks are."""
        return bool(np.all((self.label == 0) | (self.label == 1)))

    @property
    def row_count(self) -> arrays.IntArray:
        """(rows,) sessions each row stands for."""
        return np.repeat(self.count, ragged.lengths(self.indptr))

    def __len__(self) -> int:
        return self.n_lists

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        """No array: tools that want one get an error that says what to use instead."""
        raise OptionError(
            "a ClickLog is no array, so scikit-learn's tools cannot cut it into rows: clicks need "
            "their lists and positions. Use ut.select, which fits candidates on one part of a log "
            "and judges them on another (ut.selection.parameter_grid makes the candidates)."
        )

    # ---- new logs from this one

    def take(self, lists: npt.ArrayLike, *, count: npt.ArrayLike | None = None) -> "ClickLog":
        """The lists with these indices, or where this mask is true; documents stay as they are.

        With `count`, one number of sessions for each list taken, in place of the old ones.
        """
        chosen = ragged.chosen_lists(lists, self.n_lists, what="lists")
        sessions = self.count[chosen]
        if count is not None:
            sessions = arrays.whole_numbers(count, np.int64, what="count")
            check_count(sessions, len(chosen))
        rows = ragged.rows_of_lists(self.indptr, chosen)
        known = {"ranker": self.ranker, "time": self.time, "person": self.person}
        return self._with(
            indptr=ragged.indptr_of(ragged.lengths(self.indptr)[chosen]),
            query=self.query[chosen],
            count=sessions,
            **{name: each[chosen] for name, each in known.items() if each is not None},
            context={name: column[chosen] for name, column in self.context.items()},
            **self._rows(rows),
        )

    def top(self, k: int) -> "ClickLog":
        """Only positions 1..k. Lists left empty go; their documents stay as unshown candidates."""
        if k < 1:
            raise OptionError(f"top(k) needs k of at least 1. Got {k} instead.")
        return self.at_positions(np.arange(1, self.depth + 1) <= k)

    def at_positions(self, kept: arrays.BoolArray) -> "ClickLog":
        """Only the positions that are kept (K,). Lists left empty go, as in `top`."""
        keep = kept[self.position - 1]
        indptr = ragged.keep_rows(self.indptr, keep)
        cut = self._with(indptr=indptr, **self._rows(np.flatnonzero(keep)))
        empty = ragged.lengths(indptr) == 0
        return cut.take(np.flatnonzero(~empty)) if empty.any() else cut

    def collapse(self, *, halves: bool = False) -> "ClickLog":
        """Merge sessions of one query, list, ranker, context and person with the same labels.

        Exact: every statistic of the result equals that of the log. Collapsing twice changes
        nothing. The time of a session is lost; split by time first. With `halves` sessions of the
        two halves of the time stay apart, and `time` becomes 0 and 1.
        """
        from untilt.data.transform import later_half

        half = later_half(self).astype(np.int64) if halves and self.time is not None else None
        return self._merged(half)

    def _merged(self, part: arrays.IntArray | None) -> "ClickLog":
        """Equal sessions merged, those of each `part` (lists,) by themselves: it is their time."""
        list_keys = [self.query, *([] if self.ranker is None else [self.ranker])]
        list_keys += [each for each in (self.person, part) if each is not None]
        list_keys += [np.unique(each, return_inverse=True)[1] for each in self.context.values()]
        row_keys = [self.document, self.position, self.label, *self.extra_labels.values()]
        groups = group_equal_lists(self.indptr, row_keys, list_keys)
        times = self if self.time is None else self._with(turnover=turnover_of(self))
        timeless = times._with(time=None)  # the new time may have another type
        timeless = timeless if part is None else timeless._with(time=part)
        if groups.n_groups == self.n_lists:  # nothing to merge, so nothing to copy
            return timeless
        count = np.zeros(groups.n_groups, dtype=np.int64)
        np.add.at(count, groups.group_of_list, self.count)
        return timeless.take(groups.first, count=count)

    def split(self, share: float, by: str = "query", seed: Seed = 0) -> "tuple[ClickLog, ClickLog]":
        """Two parts; the first holds `share` of the queries, of the sessions, or of the time.

        by="query" keeps all sessions of a query together (for held-out queries), by="session"
        draws single sessions, also out of counted lists, by="time" gives the earliest ones first.
        """
        from untilt.data.transform import split

        return split(self, share, by=by, seed=seed)

    def with_label(self, label: npt.ArrayLike) -> "ClickLog":
        """The same log with another feedback column as its label: an array or an extra's name.

        By name, the two change places, so that the way back is open; an array takes the place of
        the label.
        """
        if not isinstance(label, str):
            return replace(self, label=arrays.frozen(label, np.float64))
        if label not in self.extra_labels:
            have = ", ".join(self.extra_labels) or "none"
            raise OptionError(f"there is no label column {label!r}. This log has: {have}.")
        others = {name: column for name, column in self.extra_labels.items() if name != label}
        return replace(
            self,
            label=self.extra_labels[label],
            label_name=label,
            extra_labels={**others, self.label_name: self.label},
        )

    def without_versions(self) -> "ClickLog":
        """The log with one document per (query, document) and no features; itself where it is so.

        For questions about positions and documents, to which it does not matter what the features
        were at the time.
        """
        if self.item is None:
            return self
        first = np.flatnonzero(np.diff(self.item, prepend=-1))
        return self._with(
            doc_id=self.doc_id[first],
            doc_query=self.doc_query[first],
            document=self.item[self.document],
            features=None,
            feature_names=(),
            item=None,
        )

    # ---- statistics

    def ctr_by_position(self, level: float = 0.95) -> ClickRates:
        """Click rate at each position with an interval clustered by query."""
        query = np.repeat(self.query, ragged.lengths(self.indptr))
        return click_rates(query, self.position, self.label, self.row_count, level=level)

    def slates(self) -> Groups:
        """Lists grouped by what was shown: same query, same documents at the same positions."""
        return group_equal_lists(self.indptr, [self.document, self.position], [self.query])

    # ---- inside

    def _rows(self, rows: arrays.IntArray) -> dict[str, Any]:
        extra = {name: column[rows] for name, column in self.extra_labels.items()}
        return {
            "document": self.document[rows],
            "position": self.position[rows],
            "label": self.label[rows],
            "extra_labels": extra,
        }

    def _with(self, **changes: Any) -> "ClickLog":
        """A log with some arrays exchanged for ones known to be right: not checked again."""
        new = object.__new__(ClickLog)
        kept = {name: getattr(self, name) for name in self.__dataclass_fields__}
        new._store(**kept | self._handed_over(changes))
        return new

    def _with_positions(self, position: arrays.IntArray, layout: AnyLayout) -> "ClickLog":
        """The same lists with other numbers for their positions, rows in the order of those."""
        new = self._with(position=position, layout=layout)
        order = ragged.order_within_lists(new.indptr, new.position)
        return new._with(**new._rows(order))

    def _handed_over(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The same values, read-only and in the types that the log has them in."""

        def ready(name: str, value: Any) -> Any:
            if isinstance(value, Mapping):
                return {each: arrays.handed_over(column) for each, column in value.items()}
            if not isinstance(value, np.ndarray):
                return value
            dtype = getattr(getattr(self, name), "dtype", None)
            return arrays.handed_over(value, None if dtype is np.dtype(object) else dtype)

        return {name: ready(name, value) for name, value in changes.items()}

    def view(self) -> list[Section]:
        """How large the log is, and the click rate by position."""
        sizes = {
            "sessions": self.n_sessions, "queries": self.n_queries, "documents": self.n_items,
            "impressions": self.n_impressions, "features": self.n_features,
        }  # fmt: skip
        tiles = tuple(Tile(name, f"{size:,}") for name, size in sizes.items())
        return [Section("log", "Click log", tiles=tiles), *self.ctr_by_position().view()]

    def __repr__(self) -> str:
        lists = "" if self.n_lists == self.n_sessions else f" in {self.n_lists:,} distinct lists"
        features = f"{self.n_features} features" if self.n_features else "no features"
        impressions = max(1, self.n_impressions)
        mean = float(np.dot(self.label, self.row_count)) / impressions
        what = f"{self.label_name} rate" if self.is_binary else f"mean {self.label_name}"
        versions = "" if self.item is None else f" in {self.n_documents:,} versions"
        return (
            f"ClickLog({self.n_sessions:,} sessions{lists}, {self.n_queries:,} queries, "
            f"{self.n_items:,} documents{versions}, positions 1..{self.depth}, {features}, "
            f"{what} {mean:.4f})"
        )


def check_log(log: ClickLog) -> None:
    """Raise unless the arrays fit together and every row keeps the rules."""
    arrays.check_missing(log.missing)
    _check_shapes(log)
    _check_references(log)
    _check_rows(log)
    for name, column in log.context.items():
        if column.dtype == np.float64 and not np.all(np.isfinite(column)):
            raise BadRowsError(
                f"context[{name!r}] must be finite numbers or text. List "
                f"{int(np.argmin(np.isfinite(column)))} has none. Fill the gaps with a value."
            )


def _check_shapes(log: ClickLog) -> None:
    n_rows, n_lists, n_documents = len(log.document), len(log.query), len(log.doc_id)
    ragged.check_indptr(log.indptr, n_rows, what="ClickLog")
    sized = [
        ("indptr", log.indptr, n_lists + 1),
        ("doc_query", log.doc_query, n_documents),
        ("position", log.position, n_rows),
        ("label", log.label, n_rows),
        ("count", log.count, n_lists),
        ("features", log.features, n_documents),
        ("item", log.item, n_documents),
        ("ranker", log.ranker, n_lists),
        ("time", log.time, n_lists),
        ("person", log.person, n_lists),
        *((f"extra_labels[{name!r}]", column, n_rows) for name, column in log.extra_labels.items()),
        *((f"context[{name!r}]", column, n_lists) for name, column in log.context.items()),
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


def _check_references(log: ClickLog) -> None:
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
    if log.item is not None:
        _check_versions(log, log.item)
    if len(log.document):
        owner = log.query[ragged.list_of_row(log.indptr)]
        _refuse(
            log,
            log.doc_query[log.document] != owner,
            "a list shows a document of another query",
            "each (query, document) pair needs its own entry in the documents",
        )


def _check_versions(log: ClickLog, item: arrays.IntArray) -> None:
    step = np.diff(item, prepend=-1)
    if len(item) == 0 or step[0] != 1 or np.any((step != 0) & (step != 1)):
        raise ShapeError(
            "item must number the documents 0, 0, 1, 2, 2, ...: the versions of a document side by "
            "side, each number once. Sort the documents by (query, document) first."
        )
    again = np.flatnonzero(step == 0)
    differ = (log.doc_id[again] != log.doc_id[again - 1]) | (
        log.doc_query[again] != log.doc_query[again - 1]
    )
    if differ.any():
        d = int(again[np.argmax(differ)])
        raise ShapeError(
            f"versions of one document must have its doc_id and doc_query. Got documents "
            f"{log.doc_id[d - 1]!r} and {log.doc_id[d]!r} for item {int(item[d])} instead."
        )


def _check_rows(log: ClickLog) -> None:
    check_count(log.count, log.n_lists)
    _refuse(log, log.position < 1, "a position below 1", "positions start at 1")
    for name, column in (("label", log.label), *log.extra_labels.items()):
        bad = ~(np.isfinite(column) & (column >= 0))
        _refuse(log, bad, f"{name} is missing, infinite or negative", "feedback is a number >= 0")
        bad = (column > MOST_LABEL) | ((column > 0) & (column < LEAST_LABEL))
        what = f"{name} is above {MOST_LABEL:g}, or below {LEAST_LABEL:g} and not 0"
        _refuse(log, bad, what, "measure it in another unit")
    if log.propensity is not None:
        bad = (log.propensity <= 0) | (log.propensity > 1)
        _refuse(log, bad, "a propensity that is no probability", "it is above 0 and at most 1")
    order = ragged.order_within_lists(log.indptr, log.position)
    owner, sorted_position = ragged.list_of_row(log.indptr)[order], log.position[order]
    twice = np.zeros(len(order), dtype=bool)
    twice[order[1:]] = (owner[1:] == owner[:-1]) & (sorted_position[1:] == sorted_position[:-1])
    _refuse(log, twice, "a position occurs twice in a session", "each position shows one document")


def check_count(count: arrays.IntArray, n_lists: int) -> None:
    """Raise unless each list stands for at least one session."""
    if len(count) != n_lists:
        raise ShapeError(f"count must have {n_lists} entries. Got {len(count)} instead.")
    if np.any(count < 1):
        first = int(np.argmax(count < 1))
        raise BadRowsError(
            f"count must be at least 1. List {first} has {int(count[first])}. "
            f"Leave out lists that were never shown."
        )
    if (total := float(np.sum(count, dtype=np.float64))) > MOST_COUNT:
        raise BadRowsError(
            f"count adds up to {total:.3g} sessions, and at most {MOST_COUNT:,} (2**53) can be "
            "counted exactly. Divide the counts by a common factor."
        )


def _refuse(log: ClickLog, bad: arrays.BoolArray, what: str, fix: str) -> None:
    if not bad.any():
        return
    rows = np.flatnonzero(bad)
    owner = int(np.searchsorted(log.indptr, rows[0], side="right") - 1)
    (query,) = log.query_id[[log.query[owner]]].tolist()
    raise BadRowsError(
        f"{what}: {len(rows):,} rows, first in list {owner} (query {query!r}) at position "
        f"{int(log.position[rows[0]])}. Fix: {fix}."
    )


def _categories_or_numbers(values: npt.ArrayLike) -> arrays.AnyArray:
    """A column of context: int64 or float64 where it holds numbers or truth values, else text."""
    array = np.asarray(values)
    if array.dtype.kind == "b":
        return arrays.handed_over(array.astype(np.int64))
    return (
        arrays.frozen(array, np.float64) if array.dtype.kind == "f" else arrays.identifiers(values)
    )


def _numbered(ids: npt.ArrayLike) -> arrays.IntArray:
    number: arrays.IntArray = np.unique(arrays.identifiers(ids), return_inverse=True)[1]
    return arrays.handed_over(number.astype(np.int32))


def turnover_of(log: ClickLog) -> float | None:
    """`ClickLog.turnover` by the times of a log: sum (k_s - k_s')^2 / 2 over sum (k_s - mean)^2.

    s and s' are sessions that follow one another among those that show a document.
    """
    if log.turnover is not None or log.time is None or len(np.unique(log.time)) <= HALVES:
        return log.turnover
    owner = log.document if log.item is None else log.item[log.document]
    when = np.unique(log.time, return_inverse=True)[1]
    order = np.lexsort((when[ragged.list_of_row(log.indptr)], owner))
    owner, k = owner[order], log.position[order].astype(float)
    means = arrays.sum_by(owner, k) / np.maximum(np.bincount(owner), 1)
    total = float(np.sum((k - means[owner]) ** 2))
    steps = np.diff(k)[np.diff(owner) == 0]
    return float(np.sum(steps**2)) / 2 / total if total > 0 else None
