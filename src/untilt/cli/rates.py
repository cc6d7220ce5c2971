"""Click rates for people (a table with bars) and for machines."""

from typing import TYPE_CHECKING, Any

from untilt.cli.console import bar

if TYPE_CHECKING:
    from untilt.logs.rates import ClickRates

COLUMNS = ("position", "shown", "rate", "interval", "")
MOST_ROWS = 40


def rates_table(rates: "ClickRates") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows; lists deeper than 40 are cut, the JSON has them all."""
    largest = max(rates.rate[rates.impressions > 0], default=0.0)
    rows: list[tuple[str, ...]] = [
        (
            f"{position:>8}",
            f"{shown:,}",
            f"{rate:.4f}",
            f"[{low:.4f}, {high:.4f}]",
            bar(rate, largest),
        )
        for position, shown, rate, low, high in zip(
            rates.position, rates.impressions, rates.rate, rates.low, rates.high, strict=True
        )
        if shown
    ]
    if len(rows) > MOST_ROWS:
        rest = len(rows) - MOST_ROWS
        rows = [*rows[:MOST_ROWS], ("...", f"{rest:,} more", "", "", "")]
    return COLUMNS, rows


def rates_record(rates: "ClickRates") -> dict[str, Any]:
    """Plain columns for JSON."""
    return {
        "position": rates.position,
        "impressions": rates.impressions,
        "clicks": rates.clicks,
        "rate": rates.rate,
        "std_error": rates.std_error,
        "low": rates.low,
        "high": rates.high,
        "level": rates.level,
    }
