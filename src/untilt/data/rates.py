"""Click rate by position: what the log shows before any bias is taken out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from untilt._core.arrays import FloatArray, IntArray, check_same_shape, handed_over, sum_by
from untilt._core.portable import Portable
from untilt._core.statistics import normal_quantile, wilson_interval
from untilt.facts import Fact, note, positions_text

if TYPE_CHECKING:
    import altair as alt

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


@dataclass(frozen=True, eq=False, repr=False)
class ClickRates(Portable):
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
        clicked = np.flatnonzero(self.clicks >= FEW_CLICKS)
        last = int(clicked[-1]) + 1 if len(clicked) else 1
        return min(len(self.position), max(ALWAYS_DRAWN, last))

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
        notes = [f"band: {self.level:.0%} interval, clustered by query"]
        notes += [] if self.not_drawn is None else [self.not_drawn]
        return finished(chart, title=title, subtitle=notes)

    def __repr__(self) -> str:
        lines = [f"click rate by position ({self.level:.0%} interval clustered by query)"]
        for k, n, rate, low, high in zip(
            self.position, self.impressions, self.rate, self.low, self.high, strict=True
        ):
            if k <= self.drawn_depth:
                lines.append(f"  {k:>3}  {rate:8.4f}  [{low:.4f}, {high:.4f}]  of {n:,}")
        lines += [] if self.not_drawn is None else [f"  {self.not_drawn}"]
        return "\n".join(lines)


def click_rates(
    query: IntArray,
    position: IntArray,
    label: FloatArray,
    count: IntArray,
    *,
    level: float = 0.95,
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
        impressions=handed_over(impressions.astype(np.int64)),
        clicks=handed_over(clicks),
        rate=handed_over(rate),
        std_error=handed_over(std_error),
        low=handed_over(low),
        high=handed_over(high),
        level=level,
    )


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
