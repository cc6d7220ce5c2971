"""The rows of a session mostly stand together: then sessions are packed as the rows go by.

Most logs are written session by session. Rows of one session and one query that follow each other
are a *run*. Runs are packed into words (see `packing`) and merged where they are alike, in one
pass, without a table of all sessions. That is exact if no session has two runs. Where one has, or
where anything else is odd, `pack_runs` says so, and the log is grouped by DuckDB, whatever the
order of its rows.

No session has two runs if the runs come in rising order of (session, query). Where the order
breaks, a new stretch begins, and no two stretches may overlap. Where sessions come in no order, a
hash of each run is kept: no hash twice means no session twice. Two sessions with the same hash cost
time and no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numba as nb
import numpy as np

from untilt._core import memory
from untilt._core.arrays import AnyArray, BoolArray, IntArray
from untilt._core.grouping import splitmix64
from untilt.data.read.collapse.packing import Packing, SessionColumn
from untilt.data.read.database import Database

_WHOLE = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
)

# Distinct lists that are merged at a time, and the memory that they may take. When there are more,
# they go to DuckDB, which merges them again at the end and can spill.
_MOST_LISTS = 1 << 22
_MOST_BYTES = 512 << 20

# Rows that are packed at a time, at most: DuckDB hands out fewer.
_PIECE = 1 << 20

# With fewer rows than this for each run, rows seem to stand in no order: DuckDB is faster then.
# Asked when so many rows have gone by.
_LEAST_ROWS_OF_RUN = 1.5
_ENOUGH_ROWS = 1 << 20

# With more stretches than this for each run, sessions seem to come in no order.
_MOST_STRETCHES = 1 / 8


class _LeaveToDuckDBError(Exception):
    """Rows that DuckDB must group."""


@dataclass(frozen=True)
class RowCode:
    """How the number of a document and the labels of a row become one code, as in `packing`.

    The code of a row is (number - least + 1) << label_bits, with the labels side by side in the
    bits below: label j has `widths[j]` of them. Numbers go from `least` to `most`.
    """

    least: int
    most: int
    widths: tuple[int, ...]

    @property
    def limits(self) -> IntArray:
        """(labels, 2) how far each label is shifted, and what it must be below."""
        shifts = np.cumsum([0, *self.widths[:-1]])
        return np.column_stack([shifts, 1 << np.array(self.widths, dtype=np.int64)])


@dataclass(frozen=True)
class Seen:
    """What the rows held: numbers, the deepest position, and the bits that each label needs."""

    least: int
    most: int
    depth: int
    widths: tuple[int, ...]


def pack_runs(
    database: Database,
    rows: str,
    packing: Packing,
    code: RowCode,
    *,
    depth: int,
    carried: Sequence[SessionColumn],
) -> Seen | None:
    """Pack rows into the table `lists`, as `packing.pack` does; None where that is not possible.

    `rows` has session_id, query, slot, number, label_0 and so on, and the carried columns. Rows of
    a run and runs may come in any order.
    """
    if database.columns(rows)["session_id"] not in _WHOLE:
        return None
    try:
        return _fold(database, rows, _PackedLists(database, packing, carried), code, depth)
    except _LeaveToDuckDBError:
        return None
    finally:
        database.run("DROP TABLE IF EXISTS merged")


def _fold(database: Database, rows: str, lists: "_PackedLists", code: RowCode, depth: int) -> Seen:
    types = {"session_id": "BIGINT", "query": "BIGINT", "slot": "INTEGER", "number": "BIGINT"}
    beside = [*lists.beside, *(["counted"] if lists.has_count else [])]
    columns = [f"CAST({name} AS {type_}) AS {name}" for name, type_ in types.items()]
    columns += [f"label_{j}" for j in range(len(code.widths))]
    columns += [f"CAST({name} AS BIGINT) AS {name}" for name in beside]
    runs, keys, n_rows = _RunPacker(lists, code, depth), _Keys(), 0
    with database.in_order():
        for piece in database.pieces(f"SELECT {', '.join(columns)} FROM {rows}", size=_PIECE):
            closed = runs.add(piece)
            keys.add(*closed[:, :2].view(np.int64).T)
            lists.add(closed)
            n_rows += len(piece["slot"])
            if n_rows > _ENOUGH_ROWS and n_rows < _LEAST_ROWS_OF_RUN * keys.n:
                raise _LeaveToDuckDBError
    keys.add(*runs.open[:, :2].view(np.int64).T)
    lists.add(runs.open)
    if keys.repeat():
        raise _LeaveToDuckDBError
    lists.finish()
    return runs.seen


class _PackedLists:
    """Distinct lists and how often each was seen.

    A record is a row of 64-bit numbers: query, rows, what a session has beside its list, words,
    copies, sessions. All but the last two say which list it is. `table` finds it by a hash.
    """

    def __init__(
        self, database: Database, packing: Packing, carried: Sequence[SessionColumn]
    ) -> None:
        self.database, self.packing, self.carried = database, packing, carried
        columns = dict.fromkeys(value.column for value in carried)
        self.has_count = "counted" in columns
        self.beside = tuple(name for name in columns if name != "counted")
        self.key = ("query", "n", *self.beside, *packing.words)
        size, room = 8 * (len(self.key) + 4), memory.room()
        most = _MOST_BYTES if room is None else min(_MOST_BYTES, room // 8)
        n = 1 << max(10, min(_MOST_LISTS, most // size).bit_length() - 1)
        self.table = np.zeros(4 * n, dtype=np.int32)
        self.records = np.zeros((n, len(self.key) + 2), dtype=np.uint64)
        self.n = self.n_flushed = 0

    def add(self, runs: AnyArray) -> None:
        """Count runs, whose records have the session before them and end with the count."""
        begin = 0
        while begin < len(runs):
            begin, self.n = _merge(begin, runs, self.table, self.records, self.n)
            if begin < len(runs):
                self._flush()

    def _flush(self) -> None:
        """Hand the lists over to DuckDB, and begin anew."""
        columns = dict(
            zip((*self.key, "copies", "sessions"), self.records[: self.n].T, strict=True)
        )
        self.database.append(
            "merged",
            {
                name: column.copy() if name in self.packing.words else column.astype(np.int64)
                for name, column in columns.items()
            },
        )
        self.table[:] = 0
        self.n, self.n_flushed = 0, self.n_flushed + 1

    def finish(self) -> None:
        """Make the table `lists`."""
        self._flush()
        columns = ["query", "n", *self.packing.words]
        columns += [
            f"{each.column} AS {each.name}" for each in self.carried if each.column != "counted"
        ]
        sums, tail = ["copies", "sessions"], ""
        if self.n_flushed > 1:
            sums = [f"CAST(sum({name}) AS BIGINT) AS {name}" for name in sums]
            tail = f"GROUP BY {', '.join(self.key)}"
        self.database.run(
            f"CREATE OR REPLACE TEMP TABLE lists AS SELECT {', '.join([*columns, *sums])}, "
            f"0 AS spread FROM merged {tail}"
        )


class _RunPacker:
    """Rows that follow each other, packed. `open` is the record of the last run: it may go on."""

    def __init__(self, lists: _PackedLists, code: RowCode, depth: int) -> None:
        self.beside, self.code, packing = lists.beside, code, lists.packing
        largest = {value.column for value in lists.carried if value.function == "max"}
        self.must_agree: BoolArray = np.array([name in largest for name in self.beside], dtype=bool)
        slots = np.arange(depth)
        self.place = (slots // packing.per_word, slots % packing.per_word * packing.bits)
        self.open = np.empty((0, len(lists.key) + 2), dtype=np.uint64)
        self.bounds = np.array([code.most, code.least, 0], dtype=np.int64)
        self.labels = np.zeros(len(code.widths), dtype=np.int64)

    @property
    def seen(self) -> Seen:
        """What the rows so far held."""
        widths = tuple(max(1, int(each).bit_length()) for each in self.labels)
        least, most, depth = map(int, self.bounds)
        return Seen(least, most, depth, widths)

    def add(self, piece: dict[str, AnyArray]) -> AnyArray:
        """Records of the runs that ended: session, query, rows, beside, words, count."""
        labels = self._table(piece, [f"label_{j}" for j in range(len(self.labels))])
        beside = self._table(piece, self.beside)
        count = piece.get("counted", np.empty(0, dtype=np.int64))
        whole = [piece[name] for name in ("session_id", "query", "slot", "number")]
        if any(column.dtype.kind == "f" for column in (*whole, count)):
            raise _LeaveToDuckDBError  # a NULL
        runs = np.empty((len(labels) + 1, self.open.shape[1]), dtype=np.uint64)
        runs[: len(self.open)] = self.open
        n_runs = _pack_rows(
            *whole, labels, beside, count, self.code.least, self.code.most, self.code.limits,
            self.must_agree, *self.place, runs, len(self.open), self.bounds, self.labels,
        )  # fmt: skip
        if n_runs < 0:
            raise _LeaveToDuckDBError
        self.open = runs[n_runs - 1 : n_runs].copy()
        return runs[: n_runs - 1]

    def _table(self, piece: dict[str, AnyArray], names: Sequence[str]) -> IntArray:
        """Some columns side by side."""
        table = np.empty((len(piece["slot"]), len(names)), dtype=np.int64)
        for j, name in enumerate(names):
            if piece[name].dtype.kind not in "iu":
                raise _LeaveToDuckDBError
            table[:, j] = piece[name]
        return table


class _Keys:
    """Session and query of all runs, as far as they are needed to say that none came twice."""

    def __init__(self) -> None:
        self.stretches: list[IntArray] = []
        self.hashes: list[AnyArray] | None = None
        self.n = 0

    def add(self, session: IntArray, query: IntArray) -> None:
        """More runs."""
        if not len(session):
            return
        self.n += len(session)
        if self.hashes is None:
            rises = _less(session[:-1], query[:-1], session[1:], query[1:])
            breaks = np.flatnonzero(~rises) + 1
            first, last = np.append(0, breaks), np.append(breaks, len(session)) - 1
            ends = [session[first], query[first], session[last], query[last]]
            if len(first) <= max(1, _MOST_STRETCHES * len(session)):
                self.stretches.append(np.column_stack(ends))
                return
            if self.stretches:
                raise _LeaveToDuckDBError  # in order at first, and then no longer
            self.hashes = []
        if not memory.fits(16 * self.n):
            raise _LeaveToDuckDBError
        self.hashes.append(_hash(session, query))

    def repeat(self) -> bool:
        """Whether any run may have come twice."""
        if self.hashes is not None:
            every = np.sort(np.concatenate(self.hashes))
            return bool((every[1:] == every[:-1]).any())
        if not self.stretches:
            return False
        every = np.concatenate(self.stretches)
        every = every[np.lexsort((every[:, 1], every[:, 0]))]
        begin, end = every[1:, :2].T, every[:-1, 2:].T
        return not bool(_less(*end, *begin).all())


def _less(session: IntArray, query: IntArray, session_: IntArray, query_: IntArray) -> BoolArray:
    less: BoolArray = (session < session_) | ((session == session_) & (query < query_))
    return less


def _hash(session: IntArray, query: IntArray) -> AnyArray:
    return splitmix64(session.view(np.uint64) + splitmix64(query.view(np.uint64)))


@nb.njit(cache=True, nogil=True)
def _pack_rows(
    session: IntArray, query: IntArray, slot: IntArray, number: IntArray, labels: IntArray,
    beside: IntArray, count: IntArray, least: int, most: int, limits: IntArray,
    must_agree: BoolArray, word_of: IntArray, shift_of: IntArray, runs: AnyArray, n_runs: int,
    bounds: IntArray, seen: IntArray,
) -> int:  # fmt: skip
    """Write the records of all runs behind those there are, and their number; -1 for odd rows.

    Two rows at one position leave fewer slots than rows, which is noticed when lists are unpacked.
    """
    n_beside, n_labels, last, j = beside.shape[1], labels.shape[1], runs.shape[1] - 1, n_runs - 1
    first_word, counted, one = 3 + n_beside, len(count) > 0, np.uint64(1)
    label_bits = np.uint64(0)
    for k in range(n_labels):
        while (np.int64(1) << np.int64(label_bits)) < limits[k, 1] << limits[k, 0]:
            label_bits += one
    lowest, highest, deepest = bounds[0], bounds[1], bounds[2]
    for i in range(len(slot)):
        s, q, at = np.uint64(session[i]), np.uint64(query[i]), slot[i]
        c = np.uint64(count[i]) if counted else one
        if j < 0 or runs[j, 0] != s or runs[j, 1] != q:
            j += 1
            runs[j, 0], runs[j, 1], runs[j, last] = s, q, c
            for k in range(2, last):
                runs[j, k] = 0
            for k in range(n_beside):
                runs[j, 3 + k] = np.uint64(beside[i, k])
        lowest, highest = min(lowest, number[i]), max(highest, number[i])
        deepest = max(deepest, at + 1)
        if at < 0 or at >= len(word_of) or runs[j, last] != c or lowest < least or highest > most:
            return -1
        code = np.uint64(number[i] - least + 1) << label_bits
        for k in range(n_labels):
            label = labels[i, k]
            if label < 0 or label >= limits[k, 1]:
                return -1
            seen[k] |= label
            code |= np.uint64(label) << np.uint64(limits[k, 0])
        for k in range(n_beside):
            if np.int64(runs[j, 3 + k]) != beside[i, k]:
                if must_agree[k]:
                    return -1
                runs[j, 3 + k] = np.uint64(min(np.int64(runs[j, 3 + k]), beside[i, k]))
        runs[j, first_word + word_of[at]] |= code << np.uint64(shift_of[at])
        runs[j, 2] += one
    bounds[0], bounds[1], bounds[2] = lowest, highest, deepest
    return j + 1


@nb.njit(cache=True, nogil=True)
def _merge(
    begin: int, runs: AnyArray, table: IntArray, records: AnyArray, n: int
) -> tuple[int, int]:
    """Count runs from `begin` with the lists that they are.

    The run to go on with, which is new where there is no room for it, and the number of lists.
    """
    last, mask = runs.shape[1] - 1, np.uint64(len(table) - 1)
    keys = np.empty(len(runs), dtype=np.uint64)
    for i in range(begin, len(runs)):
        key = np.uint64(0)
        for k in range(1, last):
            key = (key ^ runs[i, k]) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
        keys[i] = key & mask
    for i in range(begin, len(runs)):
        at = keys[i]
        j = table[at] - 1
        while j >= 0:
            same = True
            for k in range(1, last):
                same &= records[j, k - 1] == runs[i, k]
            if same:
                break
            at = (at + np.uint64(1)) & mask
            j = table[at] - 1
        if j < 0:
            if n == len(records):
                return i, n
            j, n = n, n + 1
            table[at] = n
            for k in range(1, last):
                records[j, k - 1] = runs[i, k]
            records[j, last - 1] = records[j, last] = 0
        records[j, last - 1] += np.uint64(1)
        records[j, last] += runs[i, last]
    return len(runs), n
