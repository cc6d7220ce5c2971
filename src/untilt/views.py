"""What a result looks like, said once: sections of sentences, tiles, figures and tables.

A result's `view()` gives its sections. `text`, `markdown` and `html` show them, and so do a
terminal (`untilt.cli.console.Output`) and the page of a report. Sections hold facts as they are,
because whoever shows a fact chooses its words; a figure is drawn when a page asks for it, so that
text needs no Altair.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from textwrap import fill
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from untilt._core import markdown as md
from untilt._core.words import sentence
from untilt.errors import OptionError, did_you_mean, safe_text
from untilt.facts import Fact

WIDTH = 100  # of text


@dataclass(frozen=True)
class Table:
    """Cells as text. Columns listed in `text_columns` are words; all others are numbers.

    marked : rows that stand out on a page
    folded, opened : a page shows the caption alone until a reader opens it
    bars : a number for each row, which text shows as a bar
    most : rows that text and Markdown show
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    text_columns: tuple[int, ...] = (0,)
    marked: tuple[int, ...] = ()
    folded: bool = False
    opened: bool = False
    bars: tuple[float | None, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class Key:
    """One entry of a legend; `number` counts from 0 and picks colour, shape and dash."""

    name: str
    number: int


@dataclass(frozen=True)
class Figure:
    """A chart, which `draw` makes, with the same in words and in a table.

    caption : sentences about the drawing; a `Fact` among them also holds for the table
    in_text : the title where the table alone is shown
    """

    name: str
    title: str
    draw: Callable[[], Any]
    description: str
    table: Table
    caption: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    in_text: str = ""

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification; its configuration is that of the page."""
        chart = self.draw().properties(description=self.description)
        spec = chart.to_dict(validate=False)
        return {name: part for name, part in spec.items() if name not in ("$schema", "config")}


@dataclass(frozen=True)
class Tile:
    """One number that matters, what it is, and what it means."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One heading and its content; a page shows small tables side by side.

    folded : a page shows the title alone until a reader opens the section
    """

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    small_tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    folded: bool = False


class View:
    """A result that shows itself by its `view`, as text and in a notebook."""

    def view(self) -> list[Section]:
        """The sections of this result."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return text(self.view())

    def _repr_html_(self) -> str:
        return html(self.view())


Entry = TypeVar("Entry")


class Entries(Generic[Entry]):
    """A result of several entries: how many there are, a loop over them, and each by its name.

    named_by : the field of an entry that is its name
    """

    entries: tuple[Entry, ...]
    named_by: ClassVar[str] = "system"

    def __getitem__(self, name: Any) -> Entry:
        names = [getattr(each, self.named_by) for each in self.entries]
        if name in names:
            return self.entries[names.index(name)]
        texts = list(map(str, names))
        raise OptionError(
            f"there is no {self.named_by} {str(name)!r} here.{did_you_mean(str(name), texts)} "
            f"There are: {', '.join(texts) or 'none'}."
        )

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def _named(self, name: str, what: str) -> Entry:
        """The entry of this name."""
        known: dict[str, Entry] = {getattr(each, "name", ""): each for each in self.entries}
        if name in known:
            return known[name]
        raise OptionError(
            f"there is no {what} {name!r} here.{did_you_mean(name, known)} There are: "
            f"{', '.join(known) or 'none'}."
        )


class Writer(Protocol):
    """What shows sections, part by part."""

    def heading(self, text: str) -> None: ...  # noqa: D102
    def caption(self, text: str) -> None: ...  # noqa: D102
    def say(self, text: str) -> None: ...  # noqa: D102
    def table(  # noqa: D102
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)
    ) -> None: ...
    def points(self, sentences: Sequence[str]) -> None: ...  # noqa: D102


def show(sections: Iterable[Section], to: Writer) -> None:
    """Hand each section over in the order of a page; of figures their tables, if they have rows."""
    for section in sections:
        to.heading(section.title)
        for paragraph in section.paragraphs:
            to.say(paragraph)
        if section.tiles:
            to.table(("", "", ""), [(t.label, t.value, t.note) for t in section.tiles], (0, 2))
        begun = bool(section.paragraphs or section.tiles)
        for figure in section.figures:
            if figure.table.rows:
                (to.caption if begun else to.say)(figure.in_text or figure.title)
                _show_table(figure.table, to, caption=to.say)
                begun = True
            to.points([each for each in figure.caption if isinstance(each, Fact)])
        for table in (*section.tables, *section.small_tables):
            if table.rows:
                _show_table(table, to, caption=to.caption if begun else to.say)
                begun = True
        to.points([*section.notes, *section.cautions])


def without(sections: Iterable[Section], code: str) -> list[Section]:
    """The sections without the notes of this code."""
    return [
        replace(each, notes=tuple(n for n in each.notes if getattr(n, "code", "") != code))
        for each in sections
    ]


def _show_table(table: Table, to: Writer, caption: Callable[[str], None]) -> None:
    if table.caption:
        caption(table.caption)
    header, rows = table.header, table.rows
    if table.bars:
        largest = max((each for each in table.bars if each is not None), default=0.0)
        header = (*header, "")
        rows = tuple((*row, bar(v, largest)) for row, v in zip(rows, table.bars, strict=True))
    to.table(header, rows[: table.most], table.text_columns)
    if table.most is not None and len(rows) > table.most:
        to.say(f"and {len(rows) - table.most:,} more")


def bar(value: float | None, largest: float, *, width: int = 30) -> str:
    """A bar for a table cell, in eighths of a character."""
    if value is None or not (math.isfinite(value) and largest > 0):
        return ""
    eighths = round(8 * width * value / largest)
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def finished(told: str) -> str:
    """A fact as a whole sentence, for a page; other text as it is."""
    return sentence(told) if isinstance(told, Fact) else told


def text(sections: Iterable[Section]) -> str:
    """Sections as plain text, for `print`."""
    to = _Text()
    show(sections, to)
    return safe_text("\n".join(to.lines).strip("\n"))


def markdown(sections: Iterable[Section]) -> str:
    """Sections as Markdown, in which no name of the data becomes markup."""
    to = _Markdown()
    show(sections, to)
    return "\n\n".join(to.parts)


def html(sections: Iterable[Section]) -> str:
    """Sections as plain HTML without scripts, for a notebook, with the charts that can be drawn."""
    to = _Html()
    for section in sections:
        show([section], to)
        shown = (figure for figure in section.figures if figure.table.rows)
        to.parts += [draw(figure.spec) for figure in shown for draw in drawers]
    return "".join(to.parts)


drawers: list[Callable[[dict[str, Any]], str]] = []  # of a specification as SVG, by untilt.charts


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def heading(self, text: str) -> None:
        self.lines += ["", text]

    caption = heading

    def say(self, text: str) -> None:
        self.lines.append(fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)
    ) -> None:
        cells = [*([columns] if any(columns) else []), *rows]
        left = [not name or i in words for i, name in enumerate(columns)]
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in cells:
            aligned = (
                cell.ljust(width) if words else cell.rjust(width)
                for cell, width, words in zip(row, widths, left, strict=True)
            )
            self.lines.append(("  " + "  ".join(aligned)).rstrip())

    def points(self, sentences: Sequence[str]) -> None:
        self.lines += [
            fill(f"- {each}", WIDTH, initial_indent="  ", subsequent_indent="    ")
            for each in sentences
        ]


class _Markdown:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def heading(self, text: str) -> None:
        self.parts.append(f"## {md.plain(text)}")

    def caption(self, text: str) -> None:
        self.parts.append(f"### {md.plain(text)}")

    def say(self, text: str) -> None:
        self.parts.append(md.plain(finished(text)))

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)
    ) -> None:
        self.parts.append(md.table(columns, rows, words))

    def points(self, sentences: Sequence[str]) -> None:
        if sentences:
            self.parts.append(md.bullets(map(finished, sentences)))


class _Html:
    def __init__(self) -> None:
        self.parts: list[str] = []

    def heading(self, text: str) -> None:
        self.parts.append(f"<h4>{escape(text)}</h4>")

    def caption(self, text: str) -> None:
        self.parts.append(f"<h5>{escape(text)}</h5>")

    def say(self, text: str) -> None:
        self.parts.append(f"<p>{escape(finished(text))}</p>")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)
    ) -> None:
        def cells(row: Sequence[str], kind: str) -> str:
            sides = ("left" if i in words or not columns[i] else "right" for i in range(len(row)))
            return "".join(
                f'<{kind} style="text-align: {side}">{escape(cell)}</{kind}>'
                for cell, side in zip(row, sides, strict=True)
            )

        lines = [cells(columns, "th")] if any(columns) else []
        lines += [cells(row, "td") for row in rows]
        self.parts.append(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")

    def points(self, sentences: Sequence[str]) -> None:
        if sentences:
            items = "".join(f"<li>{escape(finished(each))}</li>" for each in sentences)
            self.parts.append(f"<ul>{items}</ul>")
