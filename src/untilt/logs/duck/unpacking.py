"""Packed lists back to rows."""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt.logs.duck.bench import Bench
from untilt.logs.duck.packing import Packed, Packing


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
            owner, place, code = unpack(segments.words, packing)
            start = (segments.start[owner] + place) * inner.span
            segments = Segments(segments.owner[owner], start, table[code.astype(np.int64) - 1])
            packing = inner
        return segments


def unpacker(bench: Bench, packed: Packed) -> Unpacker:
    """Fetch the tables of parts; they hold each distinct part once."""
    parts = []
    for name, packing in packed.parts:
        words = ", ".join(packing.words)
        found = bench.arrays(f"SELECT {words} FROM {name} ORDER BY code")
        parts.append((np.column_stack([found[word] for word in packing.words]), packing))
    return Unpacker(packed.packing, tuple(parts))


def unpack(words: AnyArray, packing: Packing) -> tuple[IntArray, IntArray, AnyArray]:
    """Row of `words`, place from 0, and code of every place that is not empty."""
    row_start = ragged.indptr_of(count_places(words, packing.bits, packing.per_word))
    place = np.empty(row_start[-1], dtype=np.int64)
    code = np.empty(row_start[-1], dtype=np.uint64)
    _fill_places(words, packing.bits, packing.per_word, row_start, place, code)
    return ragged.list_of_row(row_start), place, code


@nb.njit(cache=True)
def _code_at(word: np.uint64, slot: int, bits: int) -> np.uint64:
    all_ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    return (word >> np.uint64(slot * bits)) & (all_ones >> np.uint64(64 - bits))


@nb.njit(parallel=True, cache=True)
def count_places(words: AnyArray, bits: int, per_word: int) -> IntArray:
    """The number of places of each row of `words` that are not empty."""
    count = np.zeros(len(words), dtype=np.int64)
    for i in nb.prange(len(words)):
        for w in range(words.shape[1]):
            for slot in range(per_word):
                count[i] += _code_at(words[i, w], slot, bits) != np.uint64(0)
    return count


@nb.njit(parallel=True, cache=True)
def _fill_places(
    words: AnyArray,
    bits: int,
    per_word: int,
    row_start: IntArray,
    place: IntArray,
    code: AnyArray,
) -> None:
    for i in nb.prange(len(words)):
        row = row_start[i]
        for w in range(words.shape[1]):
            for slot in range(per_word):
                found = _code_at(words[i, w], slot, bits)
                if found != np.uint64(0):
                    place[row] = w * per_word + slot
                    code[row] = found
                    row += 1


@nb.njit(parallel=True, cache=True)
def fill_rows(
    words: AnyArray,
    bits: int,
    per_word: int,
    label_bits: int,
    label_values: FloatArray,
    start: IntArray,
    row_start: IntArray,
    query: IntArray,
    first: IntArray,
    doc_id: IntArray,
    least: int,
    document: IntArray,
    position: IntArray,
    labels: FloatArray,
) -> int:
    """Write the rows of every segment; returns how many things do not fit.

    A segment does not fit if it has fewer places than rows, a document if its query lacks it. With
    an empty `doc_id` the code is the document's number within its query; else it is an id, counted
    from the least, to find among the query's, which are sorted.
    """
    label_mask = (np.uint64(1) << np.uint64(label_bits)) - np.uint64(1)
    by_id = len(doc_id) > 0
    misfits = 0
    for i in nb.prange(len(words)):
        row = row_start[i]
        begin, end = first[query[i]], first[query[i] + 1]
        for w in range(words.shape[1]):
            for slot in range(per_word):
                code = _code_at(words[i, w], slot, bits)
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
                position[row] = start[i] + w * per_word + slot + 1
                for j in range(len(labels)):
                    labels[j, row] = label_values[j, code & label_mask]
                row += 1
        misfits += row != row_start[i + 1]
    return misfits
