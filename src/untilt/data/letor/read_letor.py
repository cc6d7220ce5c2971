"""Judged lists from LETOR text, the format of nearly all public learning-to-rank data.

    2 qid:10032 1:0.056 2:0.25 3:1 #docid = GX029-35-5894638

A label, the query, features by number, and a comment that may name the document. SVMlight text with
query ids is the same thing.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import (
    AnyArray,
    FeatureArray,
    FloatArray,
    IntArray,
    Missing,
    check_missing,
    handed_over,
)
from untilt._core.declared import is_whole
from untilt.data.judged import JudgedLists
from untilt.data.letor import parse as codes
from untilt.data.letor.parse import (
    FINE,
    MOST_COLUMNS,
    Slices,
    TextBlock,
    line_blocks,
    parse,
    physical_memory,
    query_starts,
    read_slowly,
    slices_of,
)
from untilt.errors import BadRowsError, FileFormatError, OptionError

PathLike = str | os.PathLike[str]

# What the parser's codes mean to the person who has to mend the file.
_SHAPE = "Write lines as `label qid:ID 1:value 2:value ...`"
_EXPLAINED = {
    codes.BAD_LABEL: ("a line must start with its label, a finite number", _SHAPE),
    codes.NEGATIVE_LABEL: ("a label must be at least 0", "Shift labels so that 0 is not relevant"),
    codes.NO_QID: ("`qid:ID` must follow the label", _SHAPE),
    codes.BAD_FEATURE: ("a feature must read id:value with a whole number as id", _SHAPE),
    codes.ZERO_ID: ("feature ids start at 1", "Read with zero_based=True if they start at 0 here"),
    codes.BIG_ID: (
        "a feature id is too large: features fill a dense table of at most {most:,} columns here",
        "Correct the id, raise n_features if it was given, or renumber the features",
    ),
    codes.TWICE: ("a feature occurs twice in one line", "Keep one of the two"),
    codes.BAD_VALUE: (
        "a feature's value must be a finite number",
        "Leave a missing feature out of the line, it is then 0; or write nan and read with "
        "missing='keep' or a number",
    ),
    codes.INFINITE: (
        "a feature's value is too large for single precision (3.4e38)",
        "Rescale the feature",
    ),
}


def read_letor(
    path: PathLike | Sequence[PathLike],
    *,
    n_features: int | None = None,
    feature_names: Sequence[str] | None = None,
    zero_based: bool = False,
    missing: Missing = None,
) -> JudgedLists:
    r"""Read judged lists from LETOR (SVMlight) text, plain or gzip.

    Each line is `label qid:ID id:value id:value ... # comment`, with any spacing and the features
    in any order; blank lines and lines with a comment alone are skipped. A feature that a line does
    not name is 0. Values are exactly float32(float(text)).

    Query and document ids become whole numbers if all of them are written as such, else they stay
    text. A document's id is the word after `docid =` in the comment, else the comment's first word,
    else its place in the query, counted from 0.

    Several files are read as one long file: a query may go on from the end of one file to the start
    of the next. Rows of a query that are not together are an error, as is any line
    that is not in the format; the message names file and line.

    Parameters
    ----------
    path : one file, or several in this order
    n_features : columns of `features`; where absent, the largest feature id
    feature_names : one name per feature; where absent, f1, f2, ...
    zero_based : feature ids start at 0 instead of 1
    missing : treatment of the value nan, as in `read_log`: "keep", or a number in its place

    Examples
    --------
    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("2 qid:a 1:0.5 2:1 #docid = X\n0 qid:a 2:3 #docid = Y\n")
    ...     file.flush()
    ...     read_letor(file.name)
    JudgedLists(1 queries, 2 documents, 2 features, labels {0, 2})
    """
    check_missing(missing)
    names = _names(feature_names)
    first_id = 0 if zero_based else 1
    collector = Collector(n_features=_width(n_features, names), first_id=first_id, missing=missing)
    for file in _paths(path):
        collector.start_file(str(file))
        for data in line_blocks(file):
            collector.add(data)
        collector.end_file()
    return collector.judged(names)


def _paths(path: PathLike | Sequence[PathLike]) -> list[Path]:
    several = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(several, Sequence) or len(several) == 0:
        raise OptionError(f"path must be a file or a list of files. Got {path!r} instead.")
    for one in several:
        if not isinstance(one, (str, os.PathLike)) or "\0" in os.fspath(one):
            raise OptionError(f"path must be a file or a list of files. Got {one!r} instead.")
    return [Path(one) for one in several]


def _names(feature_names: Sequence[str] | None) -> tuple[str, ...] | None:
    if feature_names is None:
        return None
    names = () if isinstance(feature_names, str) else tuple(feature_names)
    if not names or not all(isinstance(name, str) for name in names):
        raise OptionError(
            "feature_names must be a list with one name per feature. "
            f"Got {feature_names!r} instead."
        )
    return names


def _width(n_features: int | None, names: tuple[str, ...] | None) -> int | None:
    if n_features is None:
        return None if names is None else len(names)
    if not is_whole(n_features, 1, MOST_COLUMNS):
        raise OptionError(
            f"n_features must be a whole number from 1 to {MOST_COLUMNS:,}. "
            f"Got {n_features!r} instead."
        )
    if names is not None and len(names) != n_features:
        raise OptionError(
            f"feature_names must have n_features = {n_features} entries. Got {len(names)} instead."
        )
    return int(n_features)


class Collector:
    """Takes the lines of one or more files, block by block, and gives the judged lists."""

    def __init__(self, *, n_features: int | None, first_id: int, missing: Missing = None) -> None:
        self._missing = missing
        self._most_columns = n_features or MOST_COLUMNS
        self._first_id = first_id
        self._width = n_features or 0
        self._features: list[FeatureArray] = []
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
        features = _stacked(self._features, self._width)
        if self._missing not in (None, "keep"):
            features[np.isnan(features)] = self._missing
        return JudgedLists(
            features=handed_over(features),
            labels=handed_over(np.concatenate(self._labels)),
            indptr=handed_over(first_row.astype(np.int64)),
            query_id=_identifiers(self._query_id),
            doc_id=self._documents(first_row),
            feature_names=feature_names or (),
            missing=self._missing,
        )

    def _parsed(self, data: bytes, slices: Slices) -> TextBlock:
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

    def _parse(self, data: bytes, slices: Slices, n_columns: int) -> TextBlock:
        self._refuse_lack_of_memory(self._n_rows + int(slices.row[-1]), n_columns)
        return parse(
            data,
            slices,
            n_columns=n_columns,
            first_id=self._first_id,
            most_columns=self._most_columns,
            takes_missing=self._missing is not None,
        )

    def _refuse_lack_of_memory(self, n_rows: int, n_columns: int) -> None:
        needed, memory = 4 * n_rows * n_columns, physical_memory()
        if memory is not None and needed > memory:
            raise BadRowsError(
                f"{self._file}: {n_rows:,} rows with feature ids up to {n_columns:,} need "
                f"{needed / 2**30:.0f} GiB as a dense table, more than this machine has "
                f"({memory / 2**30:.0f} GiB). Correct an id that is too large, or renumber the "
                "features."
            )

    def _refuse_bad_rows(self, block: TextBlock, data: bytes) -> None:
        bad = np.flatnonzero(block.code != FINE)
        if len(bad):
            row = int(bad[0])
            what, fix = _EXPLAINED[int(block.code[row])]
            got = shown(_word(data, int(block.byte[row])))
            raise BadRowsError(
                f"{self._where(block, row)}: {what.format(most=self._most_columns)}. Got {got} "
                f"instead. {fix}."
            )

    def _where(self, block: TextBlock, row: int) -> str:
        return f"{self._file} line {self._n_lines + int(block.line[row]) + 1}"

    def _add_queries(self, block: TextBlock, data: bytes) -> None:
        starts = query_starts(data, block.spans)
        texts = self._texts(block, data, block.spans[starts, :2], starts)
        if texts and self._query_id and texts[0] == self._query_id[-1]:
            starts, texts = starts[1:], texts[1:]
        for row, text in zip(starts.tolist(), texts, strict=True):
            where = self._where(block, row)
            first = self._began_at.setdefault(text, where)
            if first is not where:
                raise BadRowsError(
                    f"{where}: query {text!r} comes back after other queries; it began at {first}. "
                    "The rows of a query must be together. Sort the rows by query id, or give each "
                    "list its own id."
                )
        self._query_id += texts
        self._first_row.append(starts + self._n_rows)

    def _texts(
        self, block: TextBlock, data: bytes, spans: IntArray, rows: IntArray | None = None
    ) -> list[str]:
        if np.array_equal(spans[:, 0], spans[:, 1]):  # most files name no documents
            return [""] * len(spans)
        ids = [data[begin:end] for begin, end in spans.tolist()]
        try:
            # No id holds a newline, so one decoding serves all of them.
            return b"\n".join(ids).decode().split("\n")
        except UnicodeDecodeError:
            index = next(i for i, one in enumerate(ids) if not _is_text(one))
            row = index if rows is None else int(rows[index])
            raise BadRowsError(
                f"{self._where(block, row)}: an id must be UTF-8 text. Got {shown(ids[index])} "
                "instead. Convert the file to UTF-8."
            ) from None

    def _documents(self, first_row: IntArray) -> AnyArray | None:
        """Ids of the documents; None, which means the place in the query, where no row has one."""
        ids = [text for texts in self._doc_id for text in texts]
        if not any(ids):
            return None
        if not all(ids):
            places = ragged.index_in_list(first_row).tolist()
            ids = [text or str(place) for text, place in zip(ids, places, strict=True)]
        return _identifiers(ids)


def _stacked(blocks: list[FeatureArray], n_columns: int) -> FeatureArray:
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
    """Whole numbers if each text is as Python writes one, else the texts: 007 stays 007."""
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


def _is_text(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True


def shown(word: bytes) -> str:
    """Bytes as a message may show them: short, quoted, and readable whatever they hold."""
    if not word:
        return "the end of the line"
    start = word[:40]
    text = repr(start.decode()) if start.isascii() else repr(start)[1:]
    return text + ("..." if len(word) > 40 else "")
