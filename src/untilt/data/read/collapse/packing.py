"""Shown lists as a few 64-bit words, so that DuckDB can group whole sessions without sorting them.

Each position has a slot in the words, which holds the number of the document there (from 1 within
its query, so 0 is an empty slot) and its labels. Two sessions of a query have the same words if and
only if they showed the same documents at the same positions with the same labels: nothing is
hashed, so nothing can collide. Grouping by the words is the collapse, and the words unpack to the
rows again, so the log is not read a second time for them.

A list that needs more than `MOST_WORDS` words is cut into parts of `PART_WORDS` words. Distinct
parts are numbered, and the list of part numbers is packed in turn, as often as needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.progress import progress
from untilt._core.threads import Share, parallel_kernel
from untilt.data.read.database import Database

MOST_WORDS = 16
PART_WORDS = 4


@dataclass(frozen=True)
class Packing:
    """Slots of `bits` bits, as many to a word as fit, in `n_words` words."""

    bits: int
    n_words: int

    @property
    def per_word(self) -> int:
        """Slots in one word."""
        return 64 // self.bits

    @property
    def span(self) -> int:
        """Slots in all words."""
        return self.per_word * self.n_words

    @property
    def words(self) -> list[str]:
        """The columns that hold the words."""
        return [f"w{number}" for number in range(self.n_words)]

    @property
    def aggregates(self) -> list[str]:
        """SQL that makes the words out of the columns that `in_words` gives."""
        return [
            f"coalesce(bit_or(shifted) FILTER (word = {number}), 0) AS w{number}"
            for number in range(self.n_words)
        ]

    def in_words(self, rows: str, slot: str) -> str:
        """`rows` with the number of their word, and their code where it stands in that word."""
        within = f"CAST({slot} % {self.per_word} * {self.bits} AS UBIGINT)"
        return (
            f"(SELECT *, {slot} // {self.per_word} AS word, code << {within} AS shifted "
            f"FROM {rows})"
        )


@dataclass(frozen=True)
class SessionColumn:
    """What a session has beside its list: the least or greatest value of a column of its rows."""

    name: str
    function: str
    column: str


@dataclass(frozen=True)
class Packed:
    """The table `lists`, and the tables of parts that unpack it, outermost first.

    A list has its query, its number of rows n, its words, the carried values, the `copies` of it
    that the log holds, the `sessions` these stand for, and by how much counts `spread` in a copy.
    """

    packing: Packing
    parts: tuple[tuple[str, Packing], ...]


def fitting(bits: int, depth: int) -> Packing:
    """The packing for lists of this depth, however many words that takes."""
    return Packing(bits, max(1, -(-depth // (64 // bits))))


def pack(
    database: Database,
    rows: str,
    *,
    bits: int,
    depth: int,
    carried: Sequence[SessionColumn],
    collapse: bool,
) -> Packed:
    """Pack rows (session_id, query, slot, code and the carried columns) into the table `lists`."""
    packing, size = fitting(bits, depth), "count(*)"
    parts: list[tuple[str, Packing]] = []
    while packing.n_words > MOST_WORDS:
        part = Packing(packing.bits, PART_WORDS)
        with progress("numbering the parts of long lists"):
            rows, n_parts = _cut(database, rows, part, carried, size, number=len(parts))
        parts.append((f"parts_{len(parts)}", part))
        carried = [SessionColumn(value.name, value.function, value.name) for value in carried]
        depth, size = -(-depth // part.span), "CAST(sum(n) AS BIGINT)"
        # No part at all where no row has a document: it is noticed by the missing rows.
        packing = fitting(max(1, n_parts.bit_length()), depth)
    with progress("grouping impressions by session"):
        _group(database, rows, packing, carried, size, collapse)
    return Packed(packing, tuple(reversed(parts)))


def _cut(
    database: Database,
    rows: str,
    part: Packing,
    carried: Sequence[SessionColumn],
    size: str,
    *,
    number: int,
) -> tuple[str, int]:
    """Sessions cut into parts, the parts numbered from 1; rows with part numbers as codes."""
    cells, parts = f"cells_{number}", f"parts_{number}"
    words = ", ".join(part.words)
    beside = ", ".join([f"{size} AS n", *_aggregates(carried), *part.aggregates])
    shifted = part.in_words(rows, f"(slot % {part.span})")
    database.run(
        f"CREATE OR REPLACE TEMP TABLE {cells} AS SELECT session_id, query, part, {beside} "
        f"FROM (SELECT *, slot // {part.span} AS part FROM {shifted}) "
        f"GROUP BY session_id, query, part"
    )
    database.run(
        f"CREATE OR REPLACE TEMP TABLE {parts} AS SELECT {words}, "
        f"CAST(row_number() OVER (ORDER BY {words}) AS UBIGINT) AS code "
        f"FROM (SELECT DISTINCT {words} FROM {cells})"
    )
    (n_parts,) = database.row(f"SELECT count(*) FROM {parts}")
    names = ", ".join(["n", *(value.name for value in carried)])
    return (
        f"(SELECT session_id, query, part AS slot, code, {names} "
        f"FROM {cells} JOIN {parts} USING ({words}))",
        n_parts,
    )


def _group(
    database: Database,
    rows: str,
    packing: Packing,
    carried: Sequence[SessionColumn],
    size: str,
    collapse: bool,
) -> None:
    beside = ", ".join([f"{size} AS n", *_aggregates(carried), *packing.aggregates])
    sessions = (
        f"(SELECT session_id, query, {beside} FROM {packing.in_words(rows, 'slot')} "
        f"GROUP BY session_id, query)"
    )
    counted = any(value.name == "c_low" for value in carried)
    names = ["query", "n", *packing.words]
    names += [value.name for value in carried if not value.name.startswith("c_")]
    chosen = ", ".join(names)
    if collapse:
        total, spread = ("sum(c_low)", "max(c_high - c_low)") if counted else ("count(*)", "0")
        copies, tail = "count(*)", f"GROUP BY {chosen}"
    else:
        total, spread = ("c_low", "c_high - c_low") if counted else ("1", "0")
        chosen, copies, tail = f"session_id, {chosen}", "1", ""
    database.run(
        f"CREATE OR REPLACE TEMP TABLE lists AS SELECT {chosen}, {copies} AS copies, "
        f"CAST({total} AS BIGINT) AS sessions, {spread} AS spread FROM {sessions} {tail}"
    )


def _aggregates(carried: Sequence[SessionColumn]) -> list[str]:
    return [f"{value.function}({value.column}) AS {value.name}" for value in carried]


@dataclass(frozen=True)
class Segments:
    """Stretches of lists that are packed into words: whose they are, and where they begin."""

    owner: IntArray
    start: IntArray
    words: AnyArray


@dataclass(frozen=True)
class Unpacker:
    """Undoes the outer layers of `pack`: what is left are words with documents and labels."""

    outer: Packing
    parts: tuple[tuple[AnyArray, Packing], ...]

    @property
    def packing(self) -> Packing:
        """How the words of the segments are packed."""
        return self.parts[-1][1] if self.parts else self.outer

    def segments(self, words: AnyArray) -> Segments:
        """The segments of lists with these words, shape (lists, words)."""
        n = len(words)
        segments, packing = Segments(np.arange(n), np.zeros(n, dtype=np.int64), words), self.outer
        for table, inner in self.parts:
            owner, slot, code = unpack(segments.words, packing)
            start = (segments.start[owner] + slot) * inner.span
            segments = Segments(segments.owner[owner], start, table[code.astype(np.int64) - 1])
            packing = inner
        return segments


def unpacker(database: Database, packed: Packed) -> Unpacker:
    """Fetch the tables of parts; they hold each distinct part once."""
    parts = []
    for name, packing in packed.parts:
        words = ", ".join(packing.words)
        columns = database.arrays(f"SELECT {words} FROM {name} ORDER BY code")
        parts.append((np.column_stack([columns[word] for word in packing.words]), packing))
    return Unpacker(packed.packing, tuple(parts))


def unpack(words: AnyArray, packing: Packing) -> tuple[IntArray, IntArray, AnyArray]:
    """Row of `words`, slot from 0, and code of every slot that is not empty."""
    codes = _codes(words, packing)
    row, slot = np.nonzero(codes)
    return row, slot, codes[row, slot]


def _codes(words: AnyArray, packing: Packing) -> AnyArray:
    """The code in every slot of each row of `words`; 0 where it is empty."""
    shift = np.arange(packing.per_word, dtype=np.uint64) * np.uint64(packing.bits)
    mask = np.uint64((1 << packing.bits) - 1)
    return ((words[:, :, None] >> shift) & mask).reshape(len(words), packing.span)


@nb.njit(cache=True)
def _code_at(word: np.uint64, j: int, bits: int) -> np.uint64:
    all_ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    return (word >> np.uint64(j * bits)) & (all_ones >> np.uint64(64 - bits))


def count_filled(words: AnyArray, packing: Packing) -> IntArray:
    """The number of slots of each row of `words` that are not empty."""
    return np.count_nonzero(_codes(words, packing), axis=1)


@parallel_kernel()
def fill_rows(
    mine: Share, words: AnyArray, bits: int, per_word: int, label_bits: int,
    label_values: FloatArray, start: IntArray, row_start: IntArray, query: IntArray,
    first: IntArray, doc_id: IntArray, least: int, document: IntArray, position: IntArray,
    labels: FloatArray,
) -> int:  # fmt: skip
    """Write the rows of every segment; returns how many things do not fit.

    A segment does not fit if it has fewer slots than rows, a document if its query lacks it. With
    an empty `doc_id` the code is the document's number within its query; else it is an id, counted
    from the least, to find among the query's, which are sorted.
    """
    label_mask = (np.uint64(1) << np.uint64(label_bits)) - np.uint64(1)
    by_id = len(doc_id) > 0
    misfits = 0
    for i in range(mine[0], mine[1]):
        row = row_start[i]
        begin, end = first[query[i]], first[query[i] + 1]
        for w in range(words.shape[1]):
            for j in range(per_word):
                code = _code_at(words[i, w], j, bits)
                if code == np.uint64(0):
                    continue
                number = np.int64(code >> np.uint64(label_bits)) - 1
                index = begin + number
                if by_id:
                    wanted = least + number
                    index, high = begin, end
                    while index < high:
                        middle = (index + high) >> 1
                        if doc_id[middle] < wanted:
                            index = middle + 1
                        else:
                            high = middle
                    if index == end or doc_id[index] != wanted:
                        misfits += 1
                document[row] = index
                position[row] = start[i] + w * per_word + j + 1
                for label in range(len(labels)):
                    labels[label, row] = label_values[label, code & label_mask]
                row += 1
        misfits += row != row_start[i + 1]
    return misfits
