"""Tables of text, as results print themselves."""

from collections.abc import Sequence

Cells = tuple[tuple[str, ...], list[tuple[str, ...]]]  # header and rows


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first to the left, the others to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in cells
    )
