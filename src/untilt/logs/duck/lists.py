"""The table of packed lists as arrays, batch by batch into memory that is there from the start."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt.logs.duck.bench import Bench
from untilt.logs.duck.coding import DocumentCode
from untilt.logs.duck.documents import Documents, SuspectError
from untilt.logs.duck.labels import LabelCode
from untilt.logs.duck.unpacking import Unpacker, count_places, fill_rows

if TYPE_CHECKING:
    import pyarrow as pa

# Rows that are unpacked at a time: some hundred MB, also where lists are very long.
_BATCH_ROWS = 1 << 21


@dataclass(frozen=True)
class Lists:
    """The lists and rows of a `ClickLog`; `labels` has one row per label."""

    indptr: IntArray
    query: IntArray
    count: IntArray
    ranker: IntArray
    time: list[AnyArray]
    document: IntArray
    position: IntArray
    labels: FloatArray


@dataclass(frozen=True)
class Decoder:
    """All that is needed to turn words into documents, positions and labels."""

    unpack: Unpacker
    documents: Documents
    code: DocumentCode
    labels: LabelCode

    def rows(
        self, words: AnyArray, query: IntArray, n: IntArray, first_row: int, to: Lists
    ) -> None:
        """Write the rows of lists with these words, queries and numbers of rows from `first_row`.

        Raises SuspectError where a list has fewer places than rows (two rows stand at one position)
        or shows a document that its query does not have.
        """
        segments = self.unpack.segments(words)
        packing, size = self.unpack.packing, n
        if self.unpack.parts:
            size = count_places(segments.words, packing.bits, packing.per_word)
            if not np.array_equal(np.bincount(segments.owner, size, len(words)), n):
                raise SuspectError
        misfits = fill_rows(
            segments.words,
            packing.bits,
            packing.per_word,
            self.labels.bits,
            self.labels.values,
            segments.start,
            first_row + ragged.indptr_of(size),
            query[segments.owner],
            self.documents.first,
            *self._lookup(),
            to.document,
            to.position,
            to.labels,
        )
        if misfits:
            raise SuspectError

    def _lookup(self) -> tuple[IntArray, int]:
        """The ids to look codes up in, and the id of code 1; no ids where codes are numbers."""
        if self.code.least is None:
            return np.empty(0, dtype=np.int64), 0
        return self.documents.doc_id, self.code.least


def fetch_lists(
    bench: Bench, decoder: Decoder, *, n_labels: int, ranker: bool, time: bool, collapsed: bool
) -> Lists:
    """The lists in an order that depends on their content alone."""
    words = decoder.unpack.outer.words
    columns, order = ["q", "n", "sessions", *words], ["q", *words]
    if ranker:
        columns, order = [*columns, "r_low"], ["q", "r_low", *words]
    if not collapsed:
        order = ["session_id", "q"]
    if time:
        columns, order = [*columns, "t"], ["t", *order]
    n_lists, n_rows = bench.row("SELECT count(*), coalesce(sum(n), 0) FROM lists")
    lists = _empty(n_lists, int(n_rows), n_labels)
    numbered = "SELECT lists.*, queries.q FROM lists JOIN queries ON query = query_id"
    if decoder.code.least is None:
        numbered = "SELECT *, query AS q FROM lists"
    sql = f"SELECT {', '.join(columns)} FROM ({numbered}) ORDER BY {', '.join(order)}"
    first_list = 0
    size = max(1, min(1 << 16, _BATCH_ROWS * n_lists // max(1, int(n_rows))))
    for batch in bench.batches(sql, size=size):
        _write(batch, first_list, lists, decoder)
        first_list += len(batch)
    if first_list < n_lists:
        raise SuspectError  # a query that the documents do not have
    return lists


def _empty(n_lists: int, n_rows: int, n_labels: int) -> Lists:
    return Lists(
        indptr=np.zeros(n_lists + 1, dtype=np.int64),
        query=np.empty(n_lists, dtype=np.int32),
        count=np.empty(n_lists, dtype=np.int64),
        ranker=np.zeros(n_lists, dtype=np.int32),
        time=[],
        document=np.empty(n_rows, dtype=np.int32),
        position=np.empty(n_rows, dtype=np.int32),
        labels=np.empty((n_labels, n_rows), dtype=np.float64),
    )


def _write(batch: "pa.RecordBatch", first_list: int, lists: Lists, decoder: Decoder) -> None:
    names = batch.schema.names
    column = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
    into = slice(first_list, first_list + len(batch))
    first_row = int(lists.indptr[first_list])
    lists.indptr[into.start + 1 : into.stop + 1] = first_row + np.cumsum(column["n"])
    lists.query[into] = column["q"]
    lists.count[into] = column["sessions"]
    if "r_low" in column:
        lists.ranker[into] = column["r_low"]
    if "t" in column:
        lists.time.append(column["t"])
    words = np.column_stack([column[word] for word in decoder.unpack.outer.words])
    decoder.rows(words, lists.query[into], column["n"], first_row, lists)
