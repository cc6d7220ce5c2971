"""Readers of grids with known truth: row by row, column by column, and in the shape of an F."""

from typing import Any, Literal, get_args

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import find
from untilt.data.judged import JudgedLists
from untilt.data.layout import Grid
from untilt.errors import OptionError, check_choice, check_least
from untilt.simulation.protocols.clicks import DLA
from untilt.simulation.protocols.interventions import Harvest, Intervention
from untilt.simulation.simulate import Simulation, simulate

Reader = Literal["rows", "columns", "f-shape"]


def grid_examination(grid: Grid, reader: Reader = "rows", *, fall: float = 0.6) -> FloatArray:
    r"""(cells,) theta of each cell under one way of reading, row by row, 1 at the first.

        rows      theta = n^-fall,  n the number of the cell, row by row
        columns   the same, column by column
        f-shape   theta = max(r^-fall c^(-fall / 2 (r + 1)), r^-fall c^-2)

    In the shape of an F readers go along the first row, less far along each further row, and down
    the first column ([nielsen2006f]_); real eye tracking is noisier than any of the three.

    >>> grid_examination(Grid(2, 3), "columns", fall=1.0).round(2).tolist()
    [1.0, 0.33, 0.2, 0.5, 0.25, 0.17]
    """
    check_choice("reader", reader, get_args(Reader))
    check_least("fall", fall, 0)
    row, column = grid.row.astype(float), grid.column.astype(float)
    if reader == "rows":
        return np.asarray(((row - 1) * grid.columns + column) ** -fall)
    if reader == "columns":
        return np.asarray(((column - 1) * grid.rows + row) ** -fall)
    down = row**-fall
    return np.asarray(np.maximum(down * column ** (-fall / 2 * (row + 1)), down * column**-2.0))


def simulate_grid(
    judged: JudgedLists,
    grid: Grid,
    reader: Reader = "rows",
    *,
    fall: float = 0.6,
    shown: str | None = None,
    **options: Any,
) -> Simulation:
    """A log of a grid with its truth: `simulate` with cells for positions.

    Parameters
    ----------
    reader, fall : as in `grid_examination`
    shown : a protocol that intervenes: "harvest" (several rankers fill the cells row by row; where
        not given), "swap" (the document of the first cell swapped with others in half of the
        sessions) or "shuffle"
    options : as in `untilt.simulate`: n_sessions, seed, ...

    >>> from untilt import make_judged
    >>> made = simulate_grid(make_judged(80), Grid(3, 4), "f-shape", n_sessions=500)
    >>> made.log.layout, made.log.depth <= 12
    (Grid(rows=3, columns=4, order=()), True)
    """
    kind = Harvest if shown is None else find("protocol", shown, what="shown").load()
    if not issubclass(kind, Intervention):
        raise OptionError(
            f"shown must be a protocol that shows documents at several positions. Got {shown!r}."
        )
    theta = grid_examination(grid, reader, fall=fall)
    clicks = DLA(examination=theta, depth=grid.size)
    protocol = kind(clicks=clicks, depth=grid.size)
    made = simulate(judged, protocol, **options)
    return Simulation(made.log._with(layout=grid), made.truth)
