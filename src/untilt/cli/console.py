"""How every command speaks: to people, to machines, and when something is wrong.

People read sentences and tables on stdout. With --json stdout holds one JSON object and nothing
else. Progress, details (-v) and errors go to stderr.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from untilt._core.progress import showing_progress

if TYPE_CHECKING:
    from untilt.data.rates import ClickRates


class Output:
    """What a command says while it runs, and the record that it leaves for --json."""

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.as_json, self.verbose = as_json, verbose
        self._people = Console(quiet=as_json, highlight=False)
        self._details = Console(stderr=True, quiet=not verbose, highlight=False)
        self._record: dict[str, Any] = {}
        self._started = time.monotonic()

    def say(self, text: str = "") -> None:
        """A sentence for people."""
        self._people.print(Text(text))

    def path(self, words: str, path: Any) -> None:
        """Where something is, never broken over two lines: people copy it."""
        self._people.print(Text(f"{words}: {path}"), soft_wrap=True)

    def heading(self, text: str) -> None:
        """The name of a part of what follows."""
        self._people.print(Group(Text(), Text(text, style="bold")))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table for people: the first column and bars (no name) to the left, numbers right."""
        named = any(columns)
        table = Table(box=None, pad_edge=False, header_style="dim", show_header=named)
        for number, name in enumerate(columns):
            left = number == 0 or (named and not name)
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self._people.print(Padding(table, (0, 0, 0, 2), expand=False))

    def points(self, sentences: Sequence[str]) -> None:
        """One sentence a line, with a dash; long ones go on below their beginning."""
        grid = Table.grid(padding=(0, 1))
        for sentence in sentences:
            grid.add_row("-", Text(sentence))
        self._people.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def detail(self, text: str) -> None:
        """What only -v shows, with the seconds since the start."""
        elapsed = time.monotonic() - self._started
        self._details.print(Text(f"[{elapsed:6.2f} s] {text}"), soft_wrap=True)

    def record(self, **facts: Any) -> None:
        """Facts for the JSON object."""
        self._record.update(facts)

    def finish(self) -> None:
        """Print the JSON object where it was asked for."""
        if self.as_json:
            print(json.dumps(plain(self._record), indent=2, allow_nan=False))  # noqa: T201


@contextmanager
def speaking(*, as_json: bool, verbose: bool) -> Iterator[Output]:
    """The output of one command, with progress bars for its long parts."""
    out = Output(as_json=as_json, verbose=verbose)
    with showing_progress():
        yield out
    out.finish()


def bar(value: float, largest: float, *, width: int = 30) -> str:
    """A bar for a table cell, in eighths of a character."""
    if not (math.isfinite(value) and largest > 0):
        return ""
    eighths = round(8 * width * value / largest)
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def plain(value: Any) -> Any:
    """The value as JSON knows it: arrays as lists, numbers that are not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


COLUMNS = ("position", "shown", "rate", "interval", "")


def rates_table(rates: "ClickRates") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows down to where clicks end (`drawn_depth`); the JSON has all positions."""
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
        if shown and position <= rates.drawn_depth
    ]
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
