"""Clicks and impressions per (query, document, position): all that estimators from ranks need.

Under the position-based model sessions of one (query, document) at one position are alike, so their
sum is a sufficient statistic. Ten million sessions become as many cells as there are distinct
(query, document, position), whatever their number.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numba as nb
import numpy as np
from scipy import special

from untilt._core import ragged
from untilt._core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_same_shape,
    handed_over,
    read_only_view,
    sum_by,
)
from untilt._core.portable import Portable
from untilt._core.sorting import counting_order
from untilt._core.statistics import normal_quantile, wilson_interval
from untilt.facts import Fact, note, positions_text
from untilt.views import Section, Table, View

if TYPE_CHECKING:
    import altair as alt

    from untilt.data.clicklog import ClickLog


class Cells(NamedTuple):
    """The cells of a `PositionCounts` as plain arrays, for compiled loops."""

    indptr: IntArray
    position: IntArray
    impressions: FloatArray
    clicks: FloatArray


@dataclass(frozen=True, eq=False)
class PositionCounts(Portable):
    """Documents, sorted by query, each with one cell per position where it was shown.

    Parameters
    ----------
    indptr : (documents + 1,) document i owns cells indptr[i]:indptr[i + 1]
    query, document : (documents,) indices into the log's tables
    position : (cells,) 1-based, rising within a document
    impressions : (cells,) sessions that showed the document there
    clicks : (cells,) sum of the label over them
    depth : lowest position, K
    """

    indptr: IntArray
    query: IntArray
    document: IntArray
    position: IntArray
    impressions: FloatArray
    clicks: FloatArray
    depth: int

    @property
    def arrays(self) -> Cells:
        """What compiled loops over the cells need."""
        return Cells(self.indptr, self.position, self.impressions, self.clicks)

    @property
    def n_cells(self) -> int:
        """Number of distinct (query, document, position)."""
        return len(self.position)

    @property
    def n_documents(self) -> int:
        """Number of documents, those without cells included."""
        return len(self.indptr) - 1

    @property
    def document_index(self) -> IntArray:
        """(cells,) index into `document` of the one that owns each cell."""
        return ragged.list_of_row(self.indptr)

    @property
    def position_index(self) -> IntArray:
        """(cells,) position - 1."""
        return self.position - 1

    @property
    def rate(self) -> FloatArray:
        """(cells,) clicks per impression."""
        return self.clicks / self.impressions

    @property
    def mean_position(self) -> FloatArray:
        """(documents,) mean over the impressions of each; every document must have been shown."""
        n = self.impressions
        return self.by_document(n * self.position) / self.by_document(n)

    def by_position(self, values: FloatArray) -> FloatArray:
        """(K,) sum of values (one per cell) at each position."""
        return sum_by(self.position_index, values, self.depth)

    def by_document(self, values: FloatArray) -> FloatArray:
        """(documents,) sum of values (one per cell) over each document; 0 without cells."""
        return ragged.sums_by_list(self.indptr, np.asarray(values, dtype=float))

    def corrected_sums(self, alpha: FloatArray, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(documents,) corrected clicks and exposure, for curves of at least `depth` positions.

            sum_k (c_k - n_k beta_k),   sum_k n_k alpha_k

        with E[click at k] = alpha_k gamma + beta_k. Their ratio is unbiased for the relevance gamma
        of a document ([vardasbi2020affine]_); without trust bias it is clicks per examination.
        """
        k, n = self.position_index, self.impressions
        return self.by_document(self.clicks - n * beta[k]), self.by_document(n * alpha[k])

    def where(self, keep: BoolArray) -> Self:
        """Only the documents where `keep` (documents,) is true."""
        lengths = ragged.lengths(self.indptr)
        documents = {"query": self.query[keep], "document": self.document[keep]}
        indptr = ragged.indptr_of(lengths[keep])
        return self.with_cells(np.repeat(keep, lengths), indptr=indptr, **documents)

    def with_cells(self, keep: BoolArray, **columns: IntArray) -> Self:
        """Only the cells where `keep` (cells,) is true, and these columns in place of theirs."""
        cells = {name: getattr(self, name)[keep] for name in ("position", "impressions", "clicks")}
        given = {"indptr": ragged.keep_rows(self.indptr, keep), **cells, **columns}
        kept: dict[str, Any] = {name: handed_over(column) for name, column in given.items()}
        return replace(self, **kept)

    def at_positions(self, keep: BoolArray) -> Self:
        """Only the positions where `keep` (K,) is true, numbered anew from 1.

        Documents that were shown nowhere else stay, without cells.
        """
        cells = keep[self.position_index]
        number = np.cumsum(keep).astype(self.position.dtype)
        kept = self.with_cells(cells, position=number[self.position_index[cells]])
        return replace(kept, depth=int(keep.sum()))

    def repeated(self, times: IntArray) -> Self:
        """Each document as often as `times` (documents,) says; those with 0 are left out."""
        kept = self.where(times > 0)
        factor = np.repeat(times[times > 0], ragged.lengths(kept.indptr)).astype(float)
        return replace(
            kept,
            impressions=handed_over(kept.impressions * factor),
            clicks=handed_over(kept.clicks * factor),
        )

    def grouped(self, group: IntArray) -> Self:
        """The sums over groups of documents, each as if it were one document.

        `group` (documents,) holds 0..groups - 1; `query` and `document` become the group's number.
        """
        n_groups = int(group.max()) + 1
        cell = group[self.document_index] * self.depth + self.position_index
        impressions, clicks = (
            sum_by(cell, values, n_groups * self.depth)
            for values in (self.impressions, self.clicks)
        )
        used = np.flatnonzero(impressions)
        cells = np.bincount(used // self.depth, minlength=n_groups)
        number = handed_over(np.arange(n_groups))
        return replace(
            self,
            indptr=handed_over(ragged.indptr_of(cells)),
            query=number,
            document=number,
            position=handed_over((used % self.depth + 1).astype(np.int32)),
            impressions=handed_over(impressions[used]),
            clicks=handed_over(clicks[used]),
        )


# A position with fewer clicks has no interval worth the name.
FEWEST_CLICKS = 10
# Of the sessions that a position below it has: fewer, and it is no place of results.
RARELY_SHOWN = 0.1


def left_out(shown: FloatArray, clicks: FloatArray, *, dead: bool = True) -> BoolArray:
    """(K,) positions with too little to compare, above others with enough: never the last.

    Positions that show no result; and below the first that does, those with fewer than 10 clicks in
    a tenth of the sessions that a position below has, such as the place of an advertisement, and
    `dead` ones, with no click where one below has 10.
    """

    def below(values: FloatArray) -> FloatArray:
        return np.append(np.maximum.accumulate(values[::-1])[::-1][1:], 0.0)

    lost = (shown < RARELY_SHOWN * below(shown)) & (clicks < FEWEST_CLICKS)
    if dead:
        lost |= (clicks == 0) & (below(clicks) >= FEWEST_CLICKS)
    return (shown == 0) | (lost & (np.cumsum(shown > 0) > 1))


def position_counts(
    log: "ClickLog", *, position: IntArray | None = None, depth: int | None = None
) -> PositionCounts:
    """The counts of a log's shown documents. Counted lists give the same as repeated sessions.

    `position` (rows,) replaces the log's own positions, with `depth` their number: for
    models whose examination depends on more than the position.
    """
    by_query = np.argsort(log.doc_query, kind="stable")
    rank = np.empty(log.n_documents, dtype=np.int64)
    rank[by_query] = np.arange(log.n_documents)
    counts = counts_from_rows(
        rank[log.document],
        log.position if position is None else position,
        log.row_count,
        log.label,
        log.n_documents,
        log.depth if depth is None else depth,
    )
    document = by_query[counts.document]
    return replace(
        counts, query=handed_over(log.doc_query[document]), document=handed_over(document)
    )


def clusters_of(log: "ClickLog") -> list[IntArray]:
    """(lists,) units: queries; where the log has people also these, and people within queries."""
    if log.person is None:
        return [log.query]
    both = np.unique(log.person * np.int64(log.n_queries) + log.query, return_inverse=True)[1]
    return [log.query, log.person, both]


def cell_of_rows(log: "ClickLog", document: IntArray, position: IntArray) -> IntArray:
    """(rows,) which of these cells, (document, position) each, a row is counted in; -1 for none."""
    key = document * np.int64(log.depth + 1) + position
    wanted = log.document * np.int64(log.depth + 1) + log.position
    order = np.argsort(key)
    at = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
    return np.where(key[at] == wanted, at, -1)


def corrected_clicks(
    log: "ClickLog", alpha: FloatArray, beta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`PositionCounts.corrected_sums` of all documents of a log; 0 where one was never shown."""
    k, count = log.position - 1, log.row_count
    return (
        sum_by(log.document, count * (log.label - beta[k]), log.n_documents),
        sum_by(log.document, count * alpha[k], log.n_documents),
    )


def counts_from_rows(
    document: IntArray,
    position: IntArray,
    count: IntArray | FloatArray,
    label: FloatArray,
    n_documents: int,
    depth: int,
    *,
    keep_unshown: bool = False,
) -> PositionCounts:
    """The counts of rows: document 0..n_documents - 1, all of one query 0.

    `count` may hold any weights. With `keep_unshown` documents without rows stay, without cells.
    """
    order, start = counting_order(document, n_documents)
    position = position.astype(np.int32, copy=False)  # one kernel, whoever counts
    columns = (read_only_view(column) for column in (position, count, label))
    n_cells, cell_position, impressions, clicks = _fill(order, start, *columns, depth)
    kept = np.arange(n_documents) if keep_unshown else np.flatnonzero(n_cells)
    return PositionCounts(
        indptr=handed_over(ragged.indptr_of(n_cells[kept])),
        query=handed_over(np.zeros(len(kept), dtype=np.int32)),
        document=handed_over(kept),
        position=handed_over(cell_position),
        impressions=handed_over(impressions),
        clicks=handed_over(clicks),
        depth=depth,
    )


@nb.njit(cache=True)
def _fill(
    order: IntArray, start: IntArray, position: IntArray, count: IntArray, label: FloatArray,
    depth: int,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:  # fmt: skip
    """Cells of each document, positions rising: how many, and their three columns."""
    n_cells = np.zeros(len(start) - 1, dtype=np.int64)
    # A document has at most as many cells as rows; cut to size at the end.
    cell_position = np.empty(len(order), dtype=np.int32)
    impressions = np.empty(len(order))
    clicks = np.empty(len(order))
    shown, clicked = np.zeros(depth + 1), np.zeros(depth + 1)
    cell = 0
    for i in range(len(start) - 1):
        highest, lowest = depth + 1, 0
        for at in range(start[i], start[i + 1]):
            row = order[at]
            k = position[row]
            shown[k] += count[row]
            clicked[k] += count[row] * label[row]
            highest, lowest = min(highest, k), max(lowest, k)
        for k in range(highest, lowest + 1):
            if shown[k] > 0:
                cell_position[cell], impressions[cell], clicks[cell] = k, shown[k], clicked[k]
                shown[k], clicked[k] = 0.0, 0.0
                n_cells[i] += 1
                cell += 1
    return n_cells, cell_position[:cell].copy(), impressions[:cell].copy(), clicks[:cell].copy()


# Click rate by position: what the log shows before any bias is taken out.


HARDLY_SHOWN = note(
    "audit.positions-not-shown",
    "{at} {n:holds|hold} under 0.1% of the impressions and {clicks:,.0f} {clicks:click|clicks}: "
    "not shown",
)

NOT_SHOWN = note(
    "audit.positions-not-shown",
    "{at} {n:holds|hold} {share:.1%} of the impressions and {clicks:,.0f} {clicks:click|clicks}: "
    "not shown",
)

FEW_CLICKS = 30  # at a position; below, its click rate is known to no better than a third or so
ALWAYS_DRAWN = 20  # positions that are printed and drawn whatever their clicks
MOST_LEFT_OUT = 0.05  # of the clicks: below positions with evidence


def evidence_depth(clicks: FloatArray) -> int:
    """The last position with 30 clicks, at least 20, or all of a shorter page."""
    clicked = np.flatnonzero(clicks >= FEW_CLICKS)
    last = int(clicked[-1]) + 1 if len(clicked) else 1
    return min(len(clicks), max(ALWAYS_DRAWN, last))


@dataclass(frozen=True, eq=False, repr=False)
class ClickRates(Portable, View):
    """Clicks (or summed label), impressions and mean label at positions 1..K, with intervals.

    The standard error is clustered by query: sessions of one query are alike, so they are not
    independent evidence about a position.
    """

    position: IntArray
    impressions: IntArray
    clicks: FloatArray
    rate: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    def __post_init__(self) -> None:
        names = ("position", "impressions", "clicks", "rate", "std_error", "low", "high")
        check_same_shape(self, *names)

    @property
    def drawn_depth(self) -> int:
        """Positions 1..n are printed and drawn: 20, or down to the last one with 30 clicks.

        Below, a deep list has a flat line and wide intervals that hide the top; the arrays hold
        all positions.
        """
        return evidence_depth(self.clicks)

    @property
    def not_drawn(self) -> Fact | None:
        """What is left out below `drawn_depth`, if anything."""
        below = slice(self.drawn_depth, None)
        if not self.impressions[below].any():
            return None
        share = float(self.impressions[below].sum() / self.impressions.sum())
        first, last = self.drawn_depth + 1, len(self.position)
        return (NOT_SHOWN if share >= 0.0005 else HARDLY_SHOWN)(
            first=first,
            last=last,
            at=positions_text(range(first, last + 1)),
            n=last - first + 1,
            share=share,
            clicks=float(self.clicks[below].sum()),
        )

    def plot(self, *, title: str = "Click rate by position") -> "alt.LayerChart":
        """An Altair chart of the click rates with their band, down to `drawn_depth`."""
        from untilt.charts.curves import Curve, curves_chart
        from untilt.charts.theme import finished

        curve = Curve(self.position, self.rate, self.low, self.high).down_to(self.drawn_depth)
        chart = curves_chart({"click rate": curve}, value_title="clicks per impression")
        notes = (f"band: {self.level:.0%} interval, clustered by query", self.not_drawn)
        return finished(chart, title=title, subtitle=[each for each in notes if each])

    def table(self) -> Table:
        """A row for each position down to `drawn_depth`; the arrays have all."""
        columns = (self.position, self.impressions, self.rate, self.low, self.high)
        shown = [p for p in zip(*columns, strict=True) if p[1] and p[0] <= self.drawn_depth]
        rows = tuple((str(k), f"{n:,}", *(f"{x:.4f}" for x in rate)) for k, n, *rate in shown)
        header = ("position", "shown", "click rate", "low", "high")
        return Table(header, rows, text_columns=(), bars=tuple(each[2] for each in shown))

    def view(self) -> list[Section]:
        """The click rates, and what is left out."""
        title = f"Clicks per impression, {self.level:.0%} intervals clustered by query"
        cut = () if self.not_drawn is None else (self.not_drawn,)
        return [Section("click-rate", title, tables=(self.table(),), notes=cut)]


def click_rates(
    query: IntArray, position: IntArray, label: FloatArray, count: IntArray, *, level: float = 0.95
) -> ClickRates:
    r"""Mean label per position, with a jackknife error over queries.

        se^2 = (Q-1)/Q sum_q ((C_qk - rate_k N_qk) / (N_k - N_qk))^2

    C_qk and N_qk are clicks and impressions of query q at position k, Q the queries seen there:
    without query q the rate moves by so much. Intervals are Student's t on effective queries,
    N_k^2 / sum_q N_qk^2, less one: with Zipf traffic (power 1.3) normal ones held the truth in 85%.
    All arrays have one entry per row of the log; `count` is the sessions behind it.
    """
    depth, k = int(position.max(initial=0)), position - 1
    impressions = sum_by(k, count, depth)
    clicks = sum_by(k, count * label, depth)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = clicks / impressions
    residual = count * (label - rate[k])
    cells, cell_of_row = _distinct(query.astype(np.int64) * depth + k)
    of_cell = cells % max(1, depth)
    n_queries = np.bincount(of_cell, minlength=depth)
    shown = sum_by(cell_of_row, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = sum_by(cell_of_row, residual) / (impressions[of_cell] - shown)
        squares = sum_by(of_cell, np.where(n_queries[of_cell] > 1, moved, 0.0) ** 2, depth)
        clustered = np.sqrt(squares * (n_queries - 1) / n_queries)
        effective = impressions**2 / sum_by(of_cell, shown.astype(float) ** 2, depth)
    several = n_queries > 1
    std_error = clustered
    if not several.all():
        # One query alone: its sessions are all there is; for clicks this is rate (1 - rate) / N.
        with np.errstate(invalid="ignore", divide="ignore"):
            single_query = np.sqrt(sum_by(k, count * (label - rate[k]) ** 2)) / impressions
        std_error = np.where(several, clustered, single_query)
    student = special.stdtrit(np.maximum(effective - 1, 1.0), (1 + level) / 2)
    half = np.where(several, student, normal_quantile(level)) * std_error
    low, high = rate - half, rate + half
    if np.all((label == 0) | (label == 1)):
        # A position without a click has no spread to estimate an error from; Wilson's interval
        # still knows how many tries that was.
        wilson_low, wilson_high = wilson_interval(clicks, impressions, level)
        low = np.clip(np.where(half > 0, low, wilson_low), 0, 1)
        high = np.clip(np.where(half > 0, high, wilson_high), 0, 1)
    return ClickRates(
        position=handed_over(np.arange(1, depth + 1)),
        impressions=handed_over(impressions.astype(np.int64)), clicks=handed_over(clicks),
        rate=handed_over(rate), std_error=handed_over(std_error), low=handed_over(low),
        high=handed_over(high), level=level,
    )  # fmt: skip


def _distinct(key: IntArray) -> tuple[IntArray, IntArray]:
    """Like `np.unique(key, return_inverse=True)` for keys >= 0; without a sort if they are dense.

    The sort of 20 million rows takes a minute and 40 bytes a row.
    """
    span = int(key.max(initial=-1)) + 1
    if span > min(2 * len(key), 2**31 - 1):
        values, index = np.unique(key, return_inverse=True)
        return values, index
    present = np.zeros(span, dtype=bool)
    present[key] = True
    number = np.cumsum(present, dtype=np.int32) - 1
    return np.flatnonzero(present), number[key]
