"""How values print: as `name:option=value,...` that reads back, and as tables of text."""

from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields
from typing import Any

from untilt.errors import OptionError, did_you_mean


def options_text(value: Any, *, without: Collection[str] = ()) -> str:
    """`:option=value,...` for the fields of a dataclass that differ from their defaults.

    Only numbers and text have a spelling; other fields (an array, a model) are left out.
    """
    shown = [field for field in fields(value) if field.name not in without]
    spelled = [
        f"{field.name}={_text(option)}"
        for field, option in zip(shown, (getattr(value, each.name) for each in shown), strict=True)
        if isinstance(option, str | int | float)
        and (field.default is MISSING or option != field.default)
    ]
    return ":" + ",".join(spelled) if spelled else ""


def parse_options(
    text: str | None, kind: type, name: str, *, without: Collection[str] = ()
) -> dict[str, float | str]:
    """The options of `option=value,...` by name, numbers as such; `kind` is a dataclass."""
    known = [field.name for field in fields(kind) if field.name not in without]
    options: dict[str, float | str] = {}
    for part in text.split(",") if text is not None else ():
        option, equals, value = (piece.strip() for piece in part.partition("="))
        if option not in known or not equals:
            hint = did_you_mean(option, known)
            raise OptionError(
                f"{name} has no option {part!r}.{hint} Its options: {', '.join(known) or 'none'}."
            )
        options[option] = _value(value)
    return options


def _text(value: str | float) -> str:
    """As short as it can be and still read back as the same value."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value)


def _value(text: str) -> float | str:
    """A number where it is one; else the text, which the value itself checks."""
    try:
        return float(text)
    except ValueError:
        return text


# Tables of text, as results print themselves.

Cells = tuple[tuple[str, ...], list[tuple[str, ...]]]  # header and rows


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first to the left, the others to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in cells
    )
