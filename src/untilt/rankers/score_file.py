"""Scores and ranks for a file of documents, which may be larger than memory.

A rank needs the whole query and nothing else. Where the rows of each query stand together in a
Parquet file, it is read once from its beginning to its end, piece by piece. Any other file is first
sorted by query, by DuckDB, which spills to disk. What is held is a piece and the longest query.
"""

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt._core.feature_table import OLD_RANK, feature_array, is_numbered, of_documents
from untilt._core.files import replacing
from untilt._core.optional import explained_import
from untilt._core.places import refuse_inputs
from untilt._core.progress import progress
from untilt.data.read.columns import KEYS, documents_layout
from untilt.data.read.database import (
    Database,
    arrow_reader,
    open_database,
    quoted,
    translated_errors,
)
from untilt.data.read.files import PARQUET, Files, refuse_changed, stamps
from untilt.data.read.sources import Source, at_hand, open_source
from untilt.data.read.types import Column
from untilt.data.write_log import CSV_ENDINGS, check_ending
from untilt.errors import BadRowsError, ColumnError, OptionError, ShapeError, did_you_mean
from untilt.facts import listed
from untilt.rankers.base import Ranker, check_rounds

if TYPE_CHECKING:
    import pyarrow as pa

PathLike = str | os.PathLike[str]

SCORE, RANK = "score", "rank"
_ROW = '"row of the file"'
# Values in a piece: a few tens of MB, whatever the number of columns; and the fewest rows.
_PIECE, _FEWEST = 1 << 22, 1024


@dataclass(frozen=True)
class ScoredFile:
    """What `score_file` wrote.

    Attributes
    ----------
    path : the file
    n_rows, n_queries : that were scored; with `top`, fewer rows were written
    unused : columns of numbers that are neither ids nor features of the ranker
    """

    path: Path
    n_rows: int
    n_queries: int
    unused: tuple[str, ...] = ()


def score_file(
    ranker: Ranker,
    documents: Any,
    out: PathLike,
    *,
    columns: Mapping[str, str | None] | None = None,
    top: int | None = None,
    with_features: bool = True,
    memory_limit: str | int | None = None,
    temp_directory: PathLike | None = None,
    threads: int | None = None,
) -> ScoredFile:
    """Write the documents of a file with two more columns: `score`, and `rank` within the query.

    Rank 1 is the highest score. Equal scores rank by `doc_id`, so that the order of rows says
    nothing. A ranker that starts from the old order takes the order of rows for it, where there is
    no column `old_rank`. Rows stay in their order where those of each query stand together in a
    Parquet file; else they come by query. The file appears whole or not at all.

    Parameters
    ----------
    documents : what `read_log` takes as documents: a path to Parquet, CSV or a DuckDB database, a
        folder or a pattern, or a table; with query_id, doc_id and the features of the ranker, by
        their names and in any order. Further columns are kept
    out : ends in .parquet, .csv or .csv.gz; never one of the files that are read
    columns : our names to yours: {"query_id": "srch_id"}; {"score": "relevance"} names the new one
    top : write only so many documents of each query, the best ones
    with_features : False leaves the features out of the written file
    memory_limit, temp_directory, threads : of DuckDB, as in `read_log`
    """
    names = {SCORE: SCORE, RANK: RANK, **{k: v for k, v in (columns or {}).items() if v}}
    ranker._check_fitted()
    check_ending(out)
    with explained_import("scoring a file"):
        import pyarrow as pa  # noqa: F401
    if top is not None:
        check_rounds("top", top)
    refuse_inputs([out], [documents])
    with at_hand([documents], temp_directory) as (found,):
        files = found if isinstance(found, Files) else None
        before = [] if files is None else stamps(files)

        def attempt(threads: int | None, *, sort: bool) -> ScoredFile:
            with open_database(
                memory_limit=memory_limit,
                temp_directory=temp_directory,
                threads=threads,
                files=() if files is None else files.names,
                keep_order=OLD_RANK in ranker.feature_names_,
            ) as database:
                table = _opened_table(database, found, ranker, names)
                if not sort:
                    table.check_order()
                with replacing(out) as temporary:
                    done = table.write(temporary, out, top, with_features=with_features, sort=sort)
                    if files is not None:
                        refuse_changed(files, before)
                return done

        if files is not None and files.kind is PARQUET:
            # On one thread DuckDB hands out rows as they stand; should it not, that is seen.
            with suppress(_MixedError):
                return attempt(1, sort=False)
        return attempt(threads, sort=True)


class _MixedError(Exception):
    """The rows of a query do not stand together."""


def _opened_table(
    database: Database, documents: Any, ranker: Ranker, names: Mapping[str, str]
) -> "_DocumentsTable":
    source = open_source(database, documents, "documents_table")
    mapped = {role: names[role] for role in KEYS if role in names}
    layout = documents_layout(source, columns=mapped, features=[])
    query, document = (layout.roles[key] for key in KEYS)
    _check_columns(source, _features(source, ranker), {query, document}, names)
    name = source.load(source.columns, frozenset({query, document}))
    if _features(source, ranker) != ranker.feature_names_:
        name = _with_old_rank(database, name, query)
    with translated_errors(source.what):
        types = {each: Column(each, kind) for each, kind in database.columns(name).items()}
    for role, column in ((KEYS[0], query), (KEYS[1], document)):
        if types[column].kind in ("other", "float"):
            raise types[column].refused(role, "whole numbers or text")
    for feature in ranker.feature_names_:
        if not types[feature].is_numeric:
            raise types[feature].refused(f"the feature {feature!r}", "numbers")
    with translated_errors(source.what):
        rows, queries, nameless = database.row(
            f"SELECT count(*), count(DISTINCT {quoted(query)}), "
            f"count(*) FILTER ({quoted(query)} IS NULL OR {quoted(document)} IS NULL) FROM {name}"
        )
    if nameless:
        raise BadRowsError(
            f"{nameless:,} of {rows:,} rows of {source.what} have no {query} or no {document}, and "
            "a rank is one within a query. Fill them in, or leave these rows out."
        )
    return _DocumentsTable(
        database, name, source, types, ranker, query, document, names[SCORE], names[RANK], rows,
        queries,
    )  # fmt: skip


def _features(source: Source, ranker: Ranker) -> tuple[str, ...]:
    """The features that the table must have."""
    names = ranker.feature_names_
    return names if source.has(OLD_RANK) else of_documents(names)


def _with_old_rank(database: Database, name: str, query: str) -> str:
    """The table with the place of each row among those of its query."""
    rows = f"(SELECT *, row_number() OVER () AS {_ROW} FROM {name})"
    rank = f"row_number() OVER (PARTITION BY {quoted(query)} ORDER BY {_ROW}) AS {OLD_RANK}"
    database.run(f"CREATE TEMP TABLE ranked AS SELECT * EXCLUDE ({_ROW}), {rank} FROM {rows}")
    return "ranked"


def _check_columns(
    source: Source, features: Sequence[str], ids: set[str], names: Mapping[str, str]
) -> None:
    """Raise where a feature is missing or cannot be known, or a new column has the name of one."""
    others = [each for each in source.columns if each not in ids and each not in set(features)]
    missing = [each for each in features if not source.has(each)]
    if missing:
        hint = did_you_mean(missing[0], others)
        raise ColumnError(
            f"{source.what} lacks {len(missing):,} of the {len(features):,} features that the "
            f"ranker was trained on: {listed(missing)}.{hint} It has, and the ranker does not "
            f"know: {listed(others) or 'none'}. Rename its columns, or add those features."
        )
    numbered = [each for each in others if each[:1] == "f" and each[1:].isdigit()]
    if is_numbered(features) and numbered:
        raise ColumnError(
            f"the features of the ranker are numbered, f1 to {features[-1]}, and {source.what} has "
            f"more of them: {listed(numbered)}. It is of another kind than the ranker was trained "
            "on; name the columns, or write those that are meant to a separate file."
        )
    taken = {each.lower(): each for each in source.columns}
    for role in (SCORE, RANK):
        if names[role].lower() in taken:
            raise OptionError(
                f"{source.what} has a column {taken[names[role].lower()]!r} already. "
                f"Give the new one another name: ⟦columns={{{role!r}: 'new_{role}'}}⟧."
            )


@dataclass(frozen=True)
class _DocumentsTable:
    """A table that is open, and what to do with its columns."""

    database: Database
    name: str
    source: Source
    types: Mapping[str, Column]
    ranker: Ranker
    query: str
    document: str
    score: str
    rank: str
    n_rows: int
    n_queries: int

    def check_order(self) -> None:
        """Raise where the rows of a query do not come one after the other."""
        runs = _QueryRuns(self.query)
        for batch in self._batches(quoted(self.query), sort=False):
            runs.starts(batch)
        self._check(runs)

    def _check(self, runs: "_QueryRuns") -> None:
        if runs.count != self.n_queries:
            raise _MixedError

    def write(
        self, temporary: Path, out: PathLike, top: int | None, *, with_features: bool, sort: bool
    ) -> ScoredFile:
        """Score all rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kept = [
            each for each in self.types
            if with_features or each not in set(self.ranker.feature_names_)
        ]  # fmt: skip
        runs = _QueryRuns(self.query)
        # As text, because a CSV has no room for other things.
        chosen = ", ".join(
            f"CAST({quoted(each)} AS VARCHAR) AS {quoted(each)}"
            if self.types[each].type.startswith("ENUM") else quoted(each)
            for each in self.types
        )  # fmt: skip
        with translated_errors(self.source.what):
            relation = self.database.connection.sql(f"SELECT {chosen} FROM {self.name} LIMIT 0")
            with arrow_reader(relation, 1) as reader:
                found = reader.schema
        schema = pa.schema([found.field(each) for each in kept])
        schema = schema.append(pa.field(self.score, pa.float64()))
        schema = schema.append(pa.field(self.rank, pa.int32()))

        def pieces() -> "Iterator[pa.RecordBatch]":
            with progress("scoring", total=self.n_rows) as advance:
                for whole in self._whole_queries(chosen, runs, sort=sort):
                    advance(whole.num_rows)
                    ranked = self._ranked(whole)
                    if top is not None:
                        ranked = ranked.filter(pc.less_equal(ranked[self.rank], top))
                    yield from ranked.select(schema.names).cast(schema).to_batches()

        try:
            _write_table(temporary, out, schema, pieces())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise OptionError(
                f"{os.fspath(out)} cannot hold a column of the documents: {error}. Parquet can "
                "hold lists and records; else leave that column out."
            ) from error
        self._check(runs)
        used = {self.query, self.document, *self.ranker.feature_names_}
        unused = tuple(e for e, column in self.types.items() if e not in used and column.is_numeric)
        return ScoredFile(Path(out), self.n_rows, self.n_queries, unused)

    def _batches(self, chosen: str, *, sort: bool) -> "Iterator[pa.RecordBatch]":
        order = f" ORDER BY {quoted(self.query)}, {quoted(self.document)}" if sort else ""
        size = max(_FEWEST, _PIECE // max(len(self.types), 1))
        with translated_errors(self.source.what):
            sql = f"SELECT {chosen} FROM {self.name}{order}"
            yield from self.database.batches(sql, size=size)

    def _whole_queries(
        self, chosen: str, runs: "_QueryRuns", *, sort: bool
    ) -> "Iterator[pa.Table]":
        """Rows with their scores, in tables of whole queries."""
        import pyarrow as pa

        held: list[pa.Table] = []
        for batch in self._batches(chosen, sort=sort):
            scored = pa.Table.from_batches([batch])
            starts = runs.starts(batch)
            scored = scored.append_column(self.score, pa.array(self._scores(batch)))
            number = pa.array(runs.number(starts, batch.num_rows))
            # The number of the query, until all of it is here.
            scored = scored.append_column(self.rank, number)
            if len(starts):
                held.append(scored.slice(0, starts[-1]))
                if any(len(each) for each in held):
                    yield pa.concat_tables(held)
                held = [scored.slice(starts[-1])]
            else:
                held.append(scored)
        if held:
            yield pa.concat_tables(held)

    def _scores(self, batch: "pa.RecordBatch") -> FloatArray:
        features = feature_array(
            batch.select(self.ranker.feature_names_), self.ranker.feature_names_
        )
        try:
            return self.ranker.predict(features)
        except ShapeError as error:
            bad = ~np.isfinite(features) if self.ranker.missing_ is None else np.isinf(features)
            if not bad.any():
                raise
            row, column = np.argwhere(bad)[0]
            where = [batch.column(each)[int(row)].as_py() for each in (self.query, self.document)]
            raise BadRowsError(
                f"the feature {self.ranker.feature_names_[column]!r} of document {where[1]!r} of "
                f"query {where[0]!r} in {self.source.what} is {features[row, column]}, and the "
                "ranker knows no such value. Fill it in; a ranker that was trained on data with "
                "missing values (⟦missing='keep'⟧ on reading) takes NaN."
            ) from error

    def _ranked(self, whole: "pa.Table") -> "pa.Table":
        """With ranks: by score, and by document where that is the same."""
        import pyarrow as pa
        import pyarrow.compute as pc

        place = whole.schema.get_field_index(self.rank)
        keys = {"run": whole[place], "score": whole[self.score], "document": whole[self.document]}
        order = pc.sort_indices(
            pa.table(keys),
            sort_keys=[("run", "ascending"), ("score", "descending"), ("document", "ascending")],
        ).to_numpy()
        run = whole[place].to_numpy()
        first = np.concatenate([[0], np.flatnonzero(np.diff(run)) + 1])
        rank = np.empty(len(run), dtype=np.int32)
        rank[order] = np.arange(len(run)) - np.repeat(first, np.diff([*first, len(run)])) + 1
        return whole.set_column(place, self.rank, pa.array(rank))


class _QueryRuns:
    """Rows of the same query one after the other, counted over all batches."""

    def __init__(self, query: str) -> None:
        self.query, self.count = query, 0
        self._last: Any = None

    def starts(self, batch: "pa.RecordBatch") -> IntArray:
        """Where a run begins in the next batch."""
        import pyarrow.compute as pc

        column = batch.column(self.query)
        if batch.num_rows == 0:
            return np.empty(0, dtype=np.int64)
        differs = pc.not_equal(column.slice(1), column.slice(0, batch.num_rows - 1))
        first = np.array([self.count == 0 or column[0].as_py() != self._last])
        changes: BoolArray = np.concatenate([first, differs.to_numpy(zero_copy_only=False)])
        self._last = column[batch.num_rows - 1].as_py()
        self.count += int(changes.sum())
        return np.flatnonzero(changes)

    def number(self, starts: IntArray, n_rows: int) -> IntArray:
        """The number of the run of each row, of a batch whose starts were asked for last."""
        begins = np.zeros(n_rows, dtype=np.int64)
        begins[starts] = 1
        return self.count - len(starts) + np.cumsum(begins)


def _write_table(
    temporary: Path, path: PathLike, schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]
) -> None:
    """Write all batches to `temporary`, in the format that `path` asks for."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    name = os.fspath(path).lower()
    with ExitStack() as stack:
        # A file, not a path: Arrow takes no path that is not UTF-8.
        file: Any = stack.enter_context(temporary.open("wb"))
        if name.endswith(PARQUET.endings):
            opened = pq.ParquetWriter(file, schema, compression="zstd")
        else:
            if name.endswith(CSV_ENDINGS[1]):
                # Neither name nor time in the header: equal tables give equal bytes.
                file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
            opened = csv.CSVWriter(file, schema)
        writer = stack.enter_context(opened)
        for batch in batches:
            writer.write_batch(batch)
