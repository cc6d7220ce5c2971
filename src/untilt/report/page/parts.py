"""What a page is made of: sections of sentences, tiles, figures and tables.

Text is not escaped here; the template does that.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Cells as text. Columns listed in `text_columns` are words; all others are numbers.

    `marked` rows stand out; `folded` tables open under their caption.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    text_columns: tuple[int, ...] = (0,)
    marked: tuple[int, ...] = ()
    folded: bool = False
    opened: bool = False


@dataclass(frozen=True)
class Key:
    """One entry of a legend; `number` counts from 0 and picks colour, shape and dash."""

    name: str
    number: int


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite specification, with the same in words and in a table."""

    name: str
    title: str
    spec: dict[str, Any]
    description: str
    table: Table
    caption: str = ""
    keys: tuple[Key, ...] = ()


def specification(chart: Any, description: str) -> dict[str, Any]:
    """The Vega-Lite specification of an Altair chart; its configuration is that of the page."""
    spec = chart.properties(description=description).to_dict(validate=False)
    return {name: part for name, part in spec.items() if name not in ("$schema", "config")}


@dataclass(frozen=True)
class Tile:
    """One number that matters, what it is, and what it means."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One heading of the page and what stands under it; small tables side by side."""

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    small_tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
