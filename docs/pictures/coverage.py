"""How often intervals hold the truth, from the results of benchmarks/bench_coverage.py."""

import json
from pathlib import Path

import altair as alt
import pandas as pd

from untilt.charts.theme import LIGHT, finished, panel_title

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "coverage.json"
SCENARIOS = {
    "even": "even traffic",
    "zipf": "Zipf 1.3",
    "few": "20 queries",
    "rare": "1% clicks",
    "lengths": "lists of 3 to 10",
    "people": "repeated users",
}
LEAST = 0.6  # of the axis; what lies below is drawn at its end
COLOURS = {
    "holds": LIGHT["c1"],
    "unclear": LIGHT["c6"],
    "wide": LIGHT["c5"],
    "too low": LIGHT["c2"],
}


def draw():
    """A column for each kind of log, a line for each interval; the band is .90 to .995."""
    cells = pd.DataFrame(json.loads(RESULTS.read_text(encoding="utf8"))["results"])
    curves = cells[cells.group == "curves"]
    rest = cells[cells.group.isin(["differences", "other"])].copy()
    rest.loc[rest.group == "differences", "row"] += ": difference"
    return finished(
        alt.vconcat(
            alt.hconcat(*_panels(curves), spacing=12), alt.hconcat(*_panels(rest), spacing=12)
        ),
        title="How often 95% intervals hold the truth",
        subtitle=[
            "dot: share over all positions or figures; line: its 95% interval by the number of "
            "logs; grey: from .90 to .995",
            "blue: holds (light: outside, but so few logs may do that by chance), orange: too low, "
            "ochre: wider than need be",
            f"no dot: no interval is given; what lies below {LEAST:.1f} is drawn there",
        ],
    )


def _panels(cells):
    names = list(dict.fromkeys(cells["row"]))
    for number, (scenario, title) in enumerate(SCENARIOS.items()):
        here = cells[(cells.scenario == scenario) & cells.covered.notna()].copy()
        for column in ("covered", "from", "to"):
            here[column] = here[column].clip(lower=LEAST)
        yield _panel(here, names, title, labels=number == 0)


def _panel(cells, names, title, *, labels: bool):
    axis = alt.Axis(labelLimit=260, ticks=False) if labels else alt.Axis(labels=False, ticks=False)
    y = alt.Y("row:N", sort=names, title=None, axis=axis, scale=alt.Scale(domain=names))
    scale = alt.Scale(domain=[LEAST, 1.0], nice=False)
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
        legend=None,
    )
    band = (
        alt.Chart(pd.DataFrame({"from": [0.9], "to": [0.995]}))
        .mark_rect(color=LIGHT["grid"], opacity=0.8)
        .encode(x=alt.X("from:Q", scale=scale), x2="to:Q")
    )
    marks = alt.Axis(values=[0.6, 0.7, 0.8, 0.9, 1.0], format=".1f", title=None)
    lines = (
        alt.Chart(cells)
        .mark_rule(strokeWidth=1.5)
        .encode(x=alt.X("from:Q", scale=scale, axis=marks), x2="to:Q", y=y, color=colour)
    )
    dots = (
        alt.Chart(cells)
        .mark_point(filled=True, size=34, opacity=1)
        .encode(x=alt.X("covered:Q", scale=scale, axis=marks), y=y, color=colour)
    )
    return alt.layer(band, lines, dots).properties(
        width=120, height=alt.Step(15), title=panel_title(title)
    )
