"""A value for each cell of a grid, drawn where the cell lies."""

from typing import TYPE_CHECKING, Any, Protocol

from untilt._core.arrays import IntArray
from untilt.charts.curves import Curve
from untilt.charts.theme import FILE, Theme

if TYPE_CHECKING:
    import altair as alt

CELL = 56  # pixels of a cell, where there is room
LEAST = 0.12  # of the darkest colour: the lightest cell is still seen


class GridCells(Protocol):
    """What a chart needs to know of a grid: its size, and (cells,) where each cell lies."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def columns(self) -> int:
        """How many there are."""

    @property
    def row(self) -> IntArray:
        """Of each cell, from 1."""

    @property
    def column(self) -> IntArray:
        """Of each cell, from 1."""


def grid_chart(
    layout: GridCells, curve: Curve, *, value_title: str = "examination", theme: Theme = FILE
) -> "alt.LayerChart":
    """A map of the grid: the darker a cell, the larger its value, which stands in it.

    A cell that is not known is empty. The tooltip has the interval.
    """
    import altair as alt

    data = alt.Data(values=_cells(layout, curve, value_title))
    x = alt.X("column:O", title="column", axis=alt.Axis(orient="top", labelAngle=0, grid=False))
    y = alt.Y("row:O", title="row", axis=alt.Axis(grid=False))
    colour = theme.series[0]
    base = alt.Chart(data).encode(x=x, y=y)
    cells = base.mark_rect(color=colour, stroke=theme.colours["paper"], strokeWidth=2).encode(
        opacity=alt.Opacity(
            "value:Q", scale=alt.Scale(domainMin=0, range=[LEAST, 1.0]), legend=None
        ),
        tooltip=[
            alt.Tooltip(f"{name}:N", title=name)
            for name in ("row", "column", value_title, "interval")
        ],
    )
    texts = base.mark_text(fontSize=12).encode(
        text=alt.Text(f"{value_title}:N"),
        color=alt.condition(
            "datum.dark", alt.value(theme.colours["paper"]), alt.value(theme.colours["ink"])
        ),
    )
    width: Any = theme.width
    if isinstance(width, int):
        width = min(width, CELL * layout.columns)
    return alt.layer(cells, texts).properties(width=width, height=min(CELL, 36) * layout.rows)


def _cells(layout: GridCells, curve: Curve, value_title: str) -> list[dict[str, Any]]:
    points = [point for point in curve.points() if point[1] is not None]
    most = max((point[1] for point in points if point[1] is not None), default=1.0)
    rows = []
    for position, value, low, high in points:
        assert value is not None
        known = low is not None and high is not None
        rows.append(
            {
                "row": int(layout.row[int(position) - 1]),
                "column": int(layout.column[int(position) - 1]),
                "value": value,
                "dark": value > 0.55 * most,
                value_title: f"{value:.2f}",
                "interval": f"{low:.3f} to {high:.3f}" if known else "",
            }
        )
    return rows
