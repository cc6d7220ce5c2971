"""How every command speaks: to people, to machines, and when something is wrong.

People read sentences and tables on stdout. With --json stdout holds one JSON object and nothing
else. Progress, details (-v) and errors go to stderr.
"""

import json
import math
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, Group
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from untilt._core.progress import progress, showing_progress
from untilt._core.words import sentence
from untilt.cli.wording import current_voice
from untilt.errors import safe_text
from untilt.facts import Command, Fact
from untilt.views import show

if TYPE_CHECKING:
    from untilt.data.counts import ClickRates
    from untilt.views import Section


# Exit codes of all commands; 0 is success.
CRASH, BAD_INPUT, ALARM, DIFFERS, VERDICT = 1, 2, 3, 4, 5
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
EXITS = (
    f"Exit codes: 0 done; {CRASH} a bug of untilt; {BAD_INPUT} bad input or wrong option; {ALARM} "
    f"an alarm of `watch`; {DIFFERS} a failed check of `export`; {VERDICT} a verdict that misses "
    f"`run --fail-unless`; {INTERRUPTED} Ctrl-C; {TERMINATED} SIGTERM."
)


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """The options that every command has."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Report each step and its time on stderr.")
    ] = False


class Terminal(Console):
    """A console that no id and no name of a file can command."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        """The text of each piece with its control characters spelled out."""
        for each in super().render(renderable, options):
            yield each if each.control else each._replace(text=safe_text(each.text))


class Output:
    """What a command says while it runs, and the record that it leaves for --json."""

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.as_json, self.verbose = as_json, verbose
        self._people = Terminal(quiet=as_json, highlight=False)
        self._details = Terminal(stderr=True, quiet=not verbose, highlight=False)
        self._record: dict[str, Any] = {}
        self._started = time.monotonic()
        self._voice = current_voice()

    def said(self, text: str) -> str:
        """A fact or a command in the words of this command line; other text as it is."""
        return text.said(self._voice) if isinstance(text, Fact | Command) else text

    def say(self, text: str = "") -> None:
        """A sentence for people."""
        self._people.print(Text(self.said(text)))

    def step(self, text: str) -> None:
        """What a run has done."""
        self.say(f"  {self.said(text)}")

    def path(self, words: str, path: Any) -> None:
        """Where something is, never broken over two lines: people copy it."""
        self._people.print(Text(f"{words}: {path}"), soft_wrap=True)

    def heading(self, text: str) -> None:
        """The name of a part of what follows."""
        self._people.print(Group(Text(), Text(self.said(text), style="bold")))

    caption = heading

    def show(self, sections: "Iterable[Section]") -> None:
        """The view of a result."""
        show(sections, self)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)
    ) -> None:
        """A table for people: words (columns by number) and bars (no name) to the left.

        No word is cut: where the terminal is narrow, bars are drawn shorter, then cells go on below
        between their words, and where not even that fits, each row becomes a few lines.
        """
        rows = [[self.said(cell) for cell in row] for row in rows]
        room = self._people.width - INDENT
        columns, rows = _with_shorter_bars(columns, rows, room)
        widths = _widths(columns, rows, room)
        if widths is None:
            self._stacked(columns, rows)
            return
        named = any(columns)
        # Gaps are columns: before 14.3 rich counts padding beside a fixed width once too often.
        table = Table(box=None, padding=0, header_style="dim", show_header=named)
        for number, (name, width) in enumerate(zip(columns, widths, strict=True)):
            if number:
                table.add_column(width=GAP)
            left = number in words or (named and not name) or _is_prose(number, rows)
            table.add_column(name, justify="left" if left else "right", width=width)
        for first, *others in rows:
            table.add_row(Text(first), *(t for cell in others for t in ("", Text(cell))))
        self._people.print(Padding(table, (0, 0, 0, INDENT), expand=False))

    def _stacked(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table that is too wide: a line for each cell, with the name of its column."""
        for first, *others in rows:
            self._people.print(Text(" " * INDENT + first), soft_wrap=True)
            for name, cell in zip(columns[1:], others, strict=True):
                if cell:
                    told = f"{name}: {cell}" if name else cell
                    self._people.print(Text(" " * 2 * INDENT + told), soft_wrap=True)

    def points(self, sentences: Sequence[str]) -> None:
        """One sentence a line, with a dash; long ones go on below their beginning.

        Commands stand in backticks. One with arguments gets a line of its own below the sentence.
        A finding becomes a whole sentence; a phrase may begin with a name and stays as it is.
        """
        for each in sentences:
            told = self.said(each)
            told = sentence(told) if isinstance(each, Fact) and each.code else told
            grid = Table.grid(padding=(0, 1))
            line = Text(_COMMAND.sub(_named, told))
            if isinstance(each, Fact) and each.code and each.severity != "note":
                line.append(f" [{each.code}]", style="dim")
            grid.add_row("-", line)
            self._people.print(Padding(grid, (0, 0, 0, INDENT), expand=False))
            for command in dict.fromkeys(_COMMAND.findall(told)):
                self.command(command)

    def command(self, command: str) -> None:
        """A command on a line of its own, never broken: people paste it."""
        self._people.print(Text(" " * 3 * INDENT + command), soft_wrap=True)

    def draw(
        self, path: Path, chart: Callable[[], Any], words: str = "Drawn", key: str = "plot"
    ) -> None:
        """Write the chart, and where it is."""
        from untilt.charts.theme import save_chart

        with progress("drawing"):
            self.record(**{key: save_chart(chart(), path)})
        self.path(words, path)

    def detail(self, text: str) -> None:
        """What only -v shows, with the seconds since the start."""
        elapsed = time.monotonic() - self._started
        self._details.print(Text(f"[{elapsed:6.2f} s] {self.said(text)}"), soft_wrap=True)

    def record(self, **facts: Any) -> None:
        """Facts for the JSON object."""
        self._record.update(facts)

    def finish(self) -> None:
        """Print the JSON object where it was asked for."""
        if self.as_json:
            print(json.dumps(plain(self._record, self.said), indent=2, allow_nan=False))  # noqa: T201


@contextmanager
def speaking(*, as_json: bool, verbose: bool) -> Iterator[Output]:
    """The output of one command, with progress bars for its long parts."""
    out = Output(as_json=as_json, verbose=verbose)
    try:
        with showing_progress():
            yield out
    except typer.Exit:  # an answer with a code of its own
        out.finish()
        raise
    out.finish()


_COMMAND = re.compile(r"`(untilt [a-z]+ [^`]+)`")


def _named(command: re.Match[str]) -> str:
    """What stands in a sentence for a command that is printed below it."""
    if command.end() == len(command.string):
        return "" if command.string[: command.start()].endswith(": ") else "this"
    return "`" + " ".join(command[1].split()[:2]) + "`"


INDENT, GAP = 2, 2  # before a table, and between its columns


def _with_shorter_bars(
    columns: Sequence[str], rows: Sequence[Sequence[str]], room: int
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The table with bars (a last column without a name) as long as there is room for."""
    if not any(columns) or columns[-1]:
        return columns, rows
    widest = max((len(row[-1]) for row in rows), default=0)
    others = _natural(columns[:-1], [row[:-1] for row in rows])
    left = room - sum(others) - GAP * len(others)
    if left >= widest:
        return columns, rows
    if left < 4:
        return columns[:-1], [row[:-1] for row in rows]
    return columns, [(*row[:-1], row[-1][: round(len(row[-1]) * left / widest)]) for row in rows]


def _natural(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The widest cell of each column."""
    cells = zip(columns, *rows, strict=True)
    return [max(map(cell_len, column)) for column in cells]


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths that fit, each at least a word wide; None where there are none."""
    widths = _natural(columns, rows)
    words = [max(cell_len(w) for cell in c for w in [*cell.split(), ""]) for c in
             zip(columns, *rows, strict=True)]  # fmt: skip
    while sum(widths) + GAP * (len(widths) - 1) > room:
        spare = [w if w > least else 0 for w, least in zip(widths, words, strict=True)]
        if not any(spare):
            return None
        widths[spare.index(max(spare))] -= 1
    return widths


def _is_prose(number: int, rows: Sequence[Sequence[str]]) -> bool:
    """Whether a column holds sentences rather than figures."""
    return any(len(row[number].split()) > 4 for row in rows)


def plain(value: Any, said: Callable[[str], str] = str) -> Any:
    """The value as JSON knows it: arrays as lists, numbers that are not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): plain(item, said) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, said) for item in value]
    if isinstance(value, str):
        return said(value)
    return str(value) if isinstance(value, Path) else value


def attributes(value: Any, names: str) -> dict[str, Any]:
    """Attributes of a value by their names, with a space between, for a record."""
    return {name: getattr(value, name) for name in names.split()}


def rates_record(rates: "ClickRates") -> dict[str, Any]:
    """Plain columns for JSON."""
    return attributes(rates, "position impressions clicks rate std_error low high level")
