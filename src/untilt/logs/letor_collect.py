"""Parsed blocks of LETOR lines into one JudgedLists."""

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over
from untilt.errors import BadRowsError, FileFormatError
from untilt.logs.judged import JudgedLists
from untilt.logs.letor_errors import bad_row, not_text, scattered_query
from untilt.logs.letor_lines import physical_memory
from untilt.logs.letor_parse import (
    FINE,
    MOST_COLUMNS,
    Block,
    Slices,
    parse,
    query_starts,
    read_slowly,
    slices_of,
)


class Collector:
    """Takes the lines of one or more files, block by block, and gives the judged lists."""

    def __init__(self, *, n_features: int | None, first_id: int) -> None:
        self._most_columns = n_features or MOST_COLUMNS
        self._first_id = first_id
        self._width = n_features or 0
        self._features: list[FloatArray] = []
        self._labels: list[FloatArray] = []
        self._query_id: list[str] = []
        self._first_row: list[IntArray] = []
        self._doc_id: list[list[str]] = []
        self._began_at: dict[str, str] = {}
        self._n_rows = 0
        self._file = ""
        self._n_lines = 0
        self._rows_before_file = 0

    def start_file(self, name: str) -> None:
        """The next blocks come from this file."""
        self._file, self._n_lines, self._rows_before_file = name, 0, self._n_rows

    def end_file(self) -> None:
        """No more blocks come from this file."""
        if self._n_rows == self._rows_before_file:
            raise FileFormatError(
                f"{self._file}: the file holds no rows, {self._n_lines} lines in all. A row reads "
                "`label qid:ID 1:value 2:value ...`."
            )

    def add(self, data: bytes) -> None:
        """Take whole lines."""
        block = self._parsed(data, slices_of(data))
        read_slowly(block, data, first_id=self._first_id)
        self._refuse_bad_rows(block, data)
        self._add_queries(block, data)
        self._doc_id.append(self._texts(block, data, block.spans[:, 2:]))
        self._features.append(block.features)
        self._labels.append(block.labels)
        self._n_rows += len(block.labels)
        self._n_lines += block.n_lines

    def judged(self, feature_names: tuple[str, ...] | None) -> JudgedLists:
        """Everything taken, as judged lists; the collector is empty afterwards."""
        first_row = np.concatenate([*self._first_row, [self._n_rows]])
        return JudgedLists(
            features=handed_over(_stacked(self._features, self._width)),
            labels=handed_over(np.concatenate(self._labels)),
            indptr=handed_over(first_row.astype(np.int64)),
            query_id=_identifiers(self._query_id),
            doc_id=self._documents(first_row),
            feature_names=feature_names or (),
        )

    def _parsed(self, data: bytes, slices: Slices) -> Block:
        """Parse with the width known so far, and again where a row was wider.

        Nearly all files name the last feature in their first lines, so nearly always once.
        """
        if self._width == 0:
            head = Slices(slices.start[:2], slices.row[:2], slices.line[:2])
            self._width = self._parse(data, head, 0).n_columns
        block = self._parse(data, slices, self._width)
        if block.n_columns > self._width:
            self._width = block.n_columns
            block = self._parse(data, slices, self._width)
        return block

    def _parse(self, data: bytes, slices: Slices, n_columns: int) -> Block:
        self._refuse_lack_of_memory(self._n_rows + int(slices.row[-1]), n_columns)
        return parse(
            data,
            slices,
            n_columns=n_columns,
            first_id=self._first_id,
            most_columns=self._most_columns,
        )

    def _refuse_lack_of_memory(self, n_rows: int, n_columns: int) -> None:
        needed, memory = 4 * n_rows * n_columns, physical_memory()
        if memory is not None and needed > memory:
            raise BadRowsError(
                f"{self._file}: {n_rows:,} rows with feature ids up to {n_columns:,} need "
                f"{needed / 2**30:.0f} GiB as a dense table, more than this machine has "
                f"({memory / 2**30:.0f} GiB). Mend an id that is too large, or renumber them."
            )

    def _refuse_bad_rows(self, block: Block, data: bytes) -> None:
        bad = np.flatnonzero(block.code != FINE)
        if len(bad):
            row = int(bad[0])
            raise bad_row(
                self._where(block, row),
                int(block.code[row]),
                _word(data, int(block.place[row])),
                most_columns=self._most_columns,
            )

    def _where(self, block: Block, row: int) -> str:
        return f"{self._file} line {self._n_lines + int(block.line[row]) + 1}"

    def _add_queries(self, block: Block, data: bytes) -> None:
        starts = query_starts(data, block.spans)
        texts = self._texts(block, data, block.spans[starts, :2], starts)
        if texts and self._query_id and texts[0] == self._query_id[-1]:
            starts, texts = starts[1:], texts[1:]
        for row, text in zip(starts.tolist(), texts, strict=True):
            where = self._where(block, row)
            first = self._began_at.setdefault(text, where)
            if first is not where:
                raise scattered_query(text, first, where)
        self._query_id += texts
        self._first_row.append(starts + self._n_rows)

    def _texts(
        self, block: Block, data: bytes, spans: IntArray, rows: IntArray | None = None
    ) -> list[str]:
        if np.array_equal(spans[:, 0], spans[:, 1]):  # most files name no documents
            return [""] * len(spans)
        found = [data[begin:end] for begin, end in spans.tolist()]
        try:
            # No id holds a newline, so one decoding serves all of them.
            return b"\n".join(found).decode().split("\n")
        except UnicodeDecodeError:
            place = next(i for i, one in enumerate(found) if not _is_text(one))
            row = place if rows is None else int(rows[place])
            raise not_text(self._where(block, row), found[place]) from None

    def _documents(self, first_row: IntArray) -> AnyArray | None:
        """Ids of the documents; None, which means the place in the query, where no row has one."""
        ids = [text for texts in self._doc_id for text in texts]
        if not any(ids):
            return None
        if not all(ids):
            places = ragged.place_in_list(first_row).tolist()
            ids = [text or str(place) for text, place in zip(ids, places, strict=True)]
        return _identifiers(ids)


def _stacked(blocks: list[FloatArray], n_columns: int) -> FloatArray:
    """All blocks in one table. Each is let go once copied, so the table alone stays in memory."""
    if len(blocks) == 1 and blocks[0].shape[1] == n_columns:
        return blocks.pop()
    table = np.zeros((sum(map(len, blocks)), n_columns), dtype=np.float32)
    row = 0
    for index in range(len(blocks)):
        block, blocks[index] = blocks[index], np.empty((0, 0), dtype=np.float32)
        table[row : row + len(block), : block.shape[1]] = block
        row += len(block)
    return table


def _identifiers(texts: list[str]) -> AnyArray:
    """Whole numbers if each text is how Python writes one, else the texts: 007 stays 007."""
    try:
        numbers = np.array([int(text) for text in texts], dtype=np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, dtype=object)
    same = list(map(str, numbers.tolist())) == texts
    return handed_over(numbers) if same else np.array(texts, dtype=object)


def _word(data: bytes, at: int) -> bytes:
    """The word that starts here; nothing at the end of a line."""
    line = data[at : data.index(b"\n", at)]
    return b"" if line[:1] in b"#" else line.split(maxsplit=1)[0]


def _is_text(found: bytes) -> bool:
    try:
        found.decode()
    except UnicodeDecodeError:
        return False
    return True
