"""Writing click logs so that `read_log` gives them back."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.files import replacing
from untilt._core.progress import progress
from untilt.data.clicklog import ClickLog
from untilt.data.layout import Grid
from untilt.data.read.columns import CELL, KEYS, OPTIONAL, REQUIRED, VERSION
from untilt.data.table_file import PIECE, Columns, PathLike, check_ending, text_ids, write_columns
from untilt.errors import BadRowsError, OptionError


def write_log(
    log: ClickLog,
    path: PathLike,
    *,
    documents: PathLike | None = None,
    drop_unshown: bool = False,
) -> None:
    """Write a log with one row per impression, as Parquet or CSV by the ending of the name.

    Lists get the session ids 1, 2, ...; lists that stand for several sessions have their number in
    the column `count`, so a collapsed log stays small. Features stand in the rows of the log
    (`read_log(path, features="*")` finds them) or, with `documents`, in a second file with one row
    per (query, document) pair; only there can documents stand that no list shows. Documents with
    several versions then have a column `version` in both files, to be read with
    columns={"version": "version"}. Files appear whole or not at all, written piece by piece.

    `read_log` with the same names of labels and context gives an equal log: Parquet exactly, CSV
    but for text that looks like numbers (ids: pass text_ids=True) and times finer than a
    microsecond. The names of rankers that made no list are not kept, nor are queries without any
    document.

    Parameters
    ----------
    path : ends in .parquet, .csv or .csv.gz
    documents : the same, for the documents and their features
    drop_unshown : without `documents`, leave out documents that no list shows; an error otherwise
    """
    _check(log, path, documents, drop_unshown=drop_unshown)
    inline, versions = documents is None, log.item is not None
    with ExitStack() as stack:
        temporary = stack.enter_context(replacing(path))
        if documents is not None:
            # Renamed before the log, which must never stand there without its documents.
            second = stack.enter_context(replacing(documents))
            write_columns(second, documents, _documents(log))
        with progress("writing the log"):
            pieces = _impressions(log, with_features=inline, with_version=versions and not inline)
            write_columns(temporary, path, pieces)


def _check(
    log: ClickLog, path: PathLike, documents: PathLike | None, *, drop_unshown: bool
) -> None:
    check_ending(path)
    labels = [log.label_name, *log.extra_labels, *log.context]
    features = [] if documents is None else list(log.feature_names)
    if documents is None:
        labels += log.feature_names
    else:
        check_ending(documents)
        if os.path.abspath(os.fspath(documents)) == os.path.abspath(os.fspath(path)):
            raise OptionError(f"the log and its documents need two files. Got {path!r} for both.")
    version = [] if documents is None or log.item is None else [VERSION]
    if log.layout is not None and not isinstance(log.layout, Grid):
        raise OptionError(
            "the positions of this log are numbered by context, for a bias with a curve for each. "
            "Write the log that it was made of."
        )
    cell = CELL if isinstance(log.layout, Grid) else ()
    _check_names([*REQUIRED, *cell, *OPTIONAL, *version, *labels])
    _check_names([*KEYS, *version, *features])
    if np.any(ragged.lengths(log.indptr) == 0):
        raise BadRowsError(
            "a list that shows nothing has no impression to write. Leave such lists out: "
            "log.take(np.flatnonzero(np.diff(log.indptr)))."
        )
    shown = np.bincount(log.document, minlength=log.n_documents) > 0
    if documents is None and not drop_unshown and not shown.all():
        raise OptionError(
            f"{np.count_nonzero(~shown):,} documents are shown by no list, and impressions cannot "
            f"hold them. Write them to a second file with documents='documents.parquet', or leave "
            f"them out with drop_unshown=True."
        )


def _check_names(names: Sequence[str]) -> None:
    """Names that differ in case alone are one name to SQL."""
    seen: set[str] = set()
    for name in names:
        if not name or name.lower() in seen:
            raise OptionError(
                f"columns need names that differ, not in case alone: {', '.join(map(repr, names))} "
                f"holds {name!r} twice or is without a name. Rename labels or features, or write "
                f"features to a file of their own with documents=."
            )
        seen.add(name.lower())


def _versions(log: ClickLog) -> IntArray:
    """(documents,) the number of each among the versions of its document, from 1."""
    if log.item is None:
        return np.ones(log.n_documents, dtype=np.int64)
    starts = np.flatnonzero(np.diff(log.item, prepend=-1))
    return np.arange(1, log.n_documents + 1) - starts[log.item]


def _places(log: ClickLog) -> dict[str, IntArray]:
    """Where the rows stand: their position, or row and column of a grid."""
    if not isinstance(log.layout, Grid):
        return {"position": log.position}
    index = log.position - 1
    return {"row": log.layout.row[index], "column": log.layout.column[index]}


def _impressions(log: ClickLog, *, with_features: bool, with_version: bool) -> Iterator[Columns]:
    """The pieces of the log, the first one empty; a list is never cut."""
    labels = {log.label_name: log.label, **log.extra_labels}
    whole = {name for name, column in labels.items() if _is_whole(column)}
    query_id, doc_id = text_ids(log.query_id), text_ids(log.doc_id)
    rankers = np.array(log.ranker_names, dtype=object)
    version = _versions(log) if with_version else np.empty(0)
    contexts = {name: text_ids(column) for name, column in log.context.items()}
    places = _places(log)

    def piece(lists: slice) -> Columns:
        rows = slice(int(log.indptr[lists.start]), int(log.indptr[lists.stop]))
        owner = lists.start + np.repeat(
            np.arange(lists.stop - lists.start), np.diff(log.indptr[lists.start : lists.stop + 1])
        )
        columns: dict[str, AnyArray] = {
            "query_id": query_id[log.query[owner]],
            "session_id": owner + 1,
            "doc_id": doc_id[log.document[rows]],
            **{name: each[rows] for name, each in places.items()},
        }
        if with_version:
            columns[VERSION] = version[log.document[rows]]
        for name, column in labels.items():
            columns[name] = column[rows].astype(np.int64) if name in whole else column[rows]
        for name, column in contexts.items():
            columns[name] = column[owner]
        if log.ranker is not None:
            columns["ranker"] = rankers[log.ranker[owner]]
        if log.time is not None:
            columns["timestamp"] = log.time[owner]
        if np.any(log.sessions > 1):
            columns["count"] = log.sessions[owner]
        if with_features and log.features is not None:
            columns |= _feature_columns(log, log.features[log.document[rows]])
        return columns

    width = 8 + (log.n_features if with_features else 0)
    return map(piece, chain([slice(0, 0)], _slices(log.indptr, width)))


def _documents(log: ClickLog) -> Iterator[Columns]:
    query_id, doc_id = text_ids(log.query_id), text_ids(log.doc_id)
    version = np.empty(0) if log.item is None else _versions(log)

    def piece(rows: slice) -> Columns:
        columns = {"query_id": query_id[log.doc_query[rows]], "doc_id": doc_id[rows]}
        if log.item is not None:
            columns[VERSION] = version[rows]
        if log.features is not None:
            columns |= _feature_columns(log, log.features[rows])
        return columns

    places = np.arange(log.n_documents + 1)
    return map(piece, chain([slice(0, 0)], _slices(places, 2 + log.n_features)))


def _feature_columns(log: ClickLog, features: FeatureArray) -> dict[str, AnyArray]:
    return {name: features[:, j] for j, name in enumerate(log.feature_names)}


def _slices(indptr: IntArray, width: int) -> Iterator[slice]:
    """Slices of lists with about `PIECE` values each, at least one list."""
    start, last = 0, len(indptr) - 1
    while start < last:
        until = indptr[start] + max(1, PIECE // width)
        stop = max(start + 1, int(np.searchsorted(indptr, until, side="right")) - 1)
        yield slice(start, min(stop, last))
        start = stop


def _is_whole(column: FloatArray) -> bool:
    return bool(np.all((column == np.floor(column)) & (column < 2**53)))
