"""Colours, shapes and sizes that all charts of a page share.

Colours are names of CSS variables: a chart drawn as SVG takes the page's colours, so dark, light
and print need no second drawing. templates/style.css gives them values from Okabe and Ito's
palette, told apart by people with any kind of colour blindness; shapes and dashes say the same
again for a grey printer.
"""

from typing import Any

COLOURS = tuple(f"var(--c{i})" for i in range(1, 8))
SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right",
)  # fmt: skip
DASHES = ([1, 0], [7, 3], [2, 3], [10, 3, 2, 3], [5, 2], [2, 2, 6, 2], [12, 4])
INK, MUTED, GRID, PAPER = "var(--ink)", "var(--muted)", "var(--grid)", "var(--paper)"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
STATIC_WIDTH = 660  # of the drawing that stands in print and where scripts do not run

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "domain": False,
        "tickColor": GRID,
        "gridColor": GRID,
        "labelColor": MUTED,
        "titleColor": MUTED,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelPadding": 6,
        "titlePadding": 10,
    },
    "text": {"fill": INK, "fontSize": 13},
    "rule": {"stroke": MUTED},
}


def shape_path(number: int) -> str:
    """The outline of a legend's symbol in a box from -6 to 6, as the charts draw it."""
    return {
        "circle": "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
        "square": "M-4,-4h8v8h-8z",
        "triangle-up": "M0,-5L5,4L-5,4z",
        "diamond": "M0,-5.5L5,0L0,5.5L-5,0z",
        "cross": "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
        "triangle-down": "M0,5L5,-4L-5,-4z",
        "triangle-right": "M5,0L-4,5L-4,-5z",
    }[SHAPES[number % len(SHAPES)]]
