"""Examination by cell of a grid, as it was estimated from clicks, beside the truth."""

import altair as alt

import untilt as ut
from untilt.charts.grid import grid_chart
from untilt.charts.theme import finished, panel_title

N_SESSIONS = 20_000
GRID = ut.Grid(4, 5)


def draw():
    """Readers in the shape of an F: the truth, and what AllPairs finds."""
    judged = ut.make_judged(300, 8, seed=0)
    made = ut.simulate_grid(judged, GRID, "f-shape", n_sessions=N_SESSIONS, seed=0)
    found = ut.AllPairs().fit(made.log).bias_.smooth()
    truth = ut.PositionBias(made.truth.examination, layout=GRID)
    panels = {"truth": truth, "estimated from clicks": found}
    charts = [
        grid_chart(GRID, bias.drawn_curve()).properties(title=panel_title(name))
        for name, bias in panels.items()
    ]
    return finished(
        alt.hconcat(*charts, spacing=40),
        title="How often readers look at each cell of a grid",
        subtitle=f"readers in the shape of an F, {N_SESSIONS:,} sessions of three rankers; "
        "relative to the first cell",
    )
