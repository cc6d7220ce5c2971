"""Shown lists as a few 64-bit words, so that DuckDB can group whole sessions without sorting them.

The place of a position inside the words holds the number of the document there (from 1 within its
query, so 0 is an empty place) and its labels. Two sessions of a query have the same words if and
only if they showed the same documents at the same positions with the same labels: nothing is
hashed, so nothing can collide. Grouping by the words is the collapse, and the words unpack to the
rows again, so the log is not read a second time for them.

A list that needs more than `MOST_WORDS` words is cut into parts of `PART_WORDS` words. Distinct
parts are numbered, and the list of part numbers is packed in turn, as often as needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from untilt._core.progress import progress
from untilt.logs.duck.bench import Bench

MOST_WORDS = 16
PART_WORDS = 4


@dataclass(frozen=True)
class Packing:
    """Places of `bits` bits, as many to a word as fit, in `n_words` words."""

    bits: int
    n_words: int

    @property
    def per_word(self) -> int:
        """Places in one word."""
        return 64 // self.bits

    @property
    def span(self) -> int:
        """Places in all words."""
        return self.per_word * self.n_words

    @property
    def words(self) -> list[str]:
        """The columns that hold the words."""
        return [f"w{number}" for number in range(self.n_words)]

    @property
    def aggregates(self) -> list[str]:
        """SQL that makes the words out of the columns that `placed` gives."""
        return [
            f"coalesce(bit_or(shifted) FILTER (word = {number}), 0) AS w{number}"
            for number in range(self.n_words)
        ]

    def placed(self, rows: str, place: str) -> str:
        """`rows` with the number of their word, and their code where it stands in that word."""
        within = f"CAST({place} % {self.per_word} * {self.bits} AS UBIGINT)"
        return (
            f"(SELECT *, {place} // {self.per_word} AS word, code << {within} AS shifted "
            f"FROM {rows})"
        )


@dataclass(frozen=True)
class Carried:
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
    bench: Bench, rows: str, *, bits: int, depth: int, carried: Sequence[Carried], collapse: bool
) -> Packed:
    """Pack rows (session_id, query, place, code and the carried columns) into the table `lists`."""
    packing, size = fitting(bits, depth), "count(*)"
    parts: list[tuple[str, Packing]] = []
    while packing.n_words > MOST_WORDS:
        part = Packing(packing.bits, PART_WORDS)
        with progress("numbering the parts of long lists"):
            rows, n_parts = _cut(bench, rows, part, carried, size, number=len(parts))
        parts.append((f"parts_{len(parts)}", part))
        carried = [Carried(value.name, value.function, value.name) for value in carried]
        depth, size = -(-depth // part.span), "CAST(sum(n) AS BIGINT)"
        packing = fitting(n_parts.bit_length(), depth)
    with progress("grouping impressions by session"):
        _group(bench, rows, packing, carried, size, collapse)
    return Packed(packing, tuple(reversed(parts)))


def _cut(
    bench: Bench, rows: str, part: Packing, carried: Sequence[Carried], size: str, *, number: int
) -> tuple[str, int]:
    """Sessions cut into parts, the parts numbered from 1; rows with part numbers as codes."""
    cells, parts = f"cells_{number}", f"parts_{number}"
    words = ", ".join(part.words)
    beside = ", ".join([f"{size} AS n", *_aggregates(carried), *part.aggregates])
    placed = part.placed(rows, f"(place % {part.span})")
    bench.run(
        f"CREATE OR REPLACE TEMP TABLE {cells} AS SELECT session_id, query, part, {beside} "
        f"FROM (SELECT *, place // {part.span} AS part FROM {placed}) "
        f"GROUP BY session_id, query, part"
    )
    bench.run(
        f"CREATE OR REPLACE TEMP TABLE {parts} AS SELECT {words}, "
        f"CAST(row_number() OVER (ORDER BY {words}) AS UBIGINT) AS code "
        f"FROM (SELECT DISTINCT {words} FROM {cells})"
    )
    (n_parts,) = bench.row(f"SELECT count(*) FROM {parts}")
    names = ", ".join(["n", *(value.name for value in carried)])
    return (
        f"(SELECT session_id, query, part AS place, code, {names} "
        f"FROM {cells} JOIN {parts} USING ({words}))",
        n_parts,
    )


def _group(
    bench: Bench,
    rows: str,
    packing: Packing,
    carried: Sequence[Carried],
    size: str,
    collapse: bool,
) -> None:
    beside = ", ".join([f"{size} AS n", *_aggregates(carried), *packing.aggregates])
    sessions = (
        f"(SELECT session_id, query, {beside} FROM {packing.placed(rows, 'place')} "
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
    bench.run(
        f"CREATE OR REPLACE TEMP TABLE lists AS SELECT {chosen}, {copies} AS copies, "
        f"CAST({total} AS BIGINT) AS sessions, {spread} AS spread FROM {sessions} {tail}"
    )


def _aggregates(carried: Sequence[Carried]) -> list[str]:
    return [f"{value.function}({value.column}) AS {value.name}" for value in carried]
