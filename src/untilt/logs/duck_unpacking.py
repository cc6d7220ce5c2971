"""Packed lists back to rows."""

from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt.logs.duck_bench import Bench
from untilt.logs.duck_packing import Packed, Packing


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
        found = bench.connection.execute(f"SELECT {words} FROM {name} ORDER BY code").fetchnumpy()
        parts.append((np.column_stack([found[word] for word in packing.words]), packing))
    return Unpacker(packed.packing, tuple(parts))


def unpack(words: AnyArray, packing: Packing) -> tuple[IntArray, IntArray, AnyArray]:
    """Row of `words`, place from 0, and code of every place that is not empty."""
    shifts = np.arange(packing.per_word, dtype=np.uint64) * np.uint64(packing.bits)
    mask = np.uint64((1 << packing.bits) - 1)
    places = ((words[:, :, None] >> shifts) & mask).reshape(len(words), -1)
    owner, place = np.nonzero(places)
    return owner, place, places[owner, place]


def count_places(words: AnyArray, packing: Packing) -> IntArray:
    """The number of places of each row of `words` that are not empty."""
    return np.bincount(unpack(words, packing)[0], minlength=len(words))


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
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - bits)
    label_mask = (np.uint64(1) << np.uint64(label_bits)) - np.uint64(1)
    by_id = len(doc_id) > 0
    misfits = 0
    for i in nb.prange(len(words)):
        row = row_start[i]
        begin, end = first[query[i]], first[query[i] + 1]
        for w in range(words.shape[1]):
            for slot in range(per_word):
                code = (words[i, w] >> np.uint64(slot * bits)) & mask
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
