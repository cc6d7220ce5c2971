"""Who is above raw clicks, from the results of benchmarks/bench_quality.py (run that first)."""

import json
from pathlib import Path

import altair as alt
import pandas as pd

from untilt.charts.theme import LIGHT, finished, panel_title

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "quality.json"
GROUPS = {
    "worlds": "eighteen unusual worlds",
    "synthetic": "synthetic set, 500 queries",
    "real": "real sets; lists cut at ten, 3 rankers, unless said",
    "readers": "readers with trust bias, or who read from the top (cascade)",
    "large": "synthetic sets, 1,500 queries and more",
}
COLOURS = {
    "run": LIGHT["c1"],
    "auto": LIGHT["c3"],
    "LightGBM position": LIGHT["c2"],
    "XGBoost unbiased": LIGHT["c5"],
}
ROOM = 38  # for the four marks of a cell
SHAPES = ("circle", "diamond", "square", "triangle-up")


def draw():
    """A line for each cell: NDCG@10 minus that of raw clicks, with two standard errors."""
    cells = json.loads(RESULTS.read_text(encoding="utf8"))["results"]["cells"]
    left = [_panel(cells, group) for group in ("worlds", "synthetic", "readers")]
    right = [_panel(cells, group) for group in ("real", "large")]
    columns = [alt.vconcat(*filter(None, each), spacing=24) for each in (left, right)]
    return finished(
        alt.hconcat(*columns, spacing=36),
        title="NDCG@10 above raw clicks, on human labels of queries that gave no clicks",
        subtitle=[
            "dot: mean over test queries; line: two standard errors to either side, paired by "
            "query; grey tick: trained on human labels",
            "a cell is a kind of log, its number the sessions per query; bias estimated from the "
            "clicks; peers and raw clicks have the best of several numbers of trees",
        ],
    )


def _panel(cells, group):
    here = [cell for cell in cells if cell["group"] == group]
    if not here:
        return None
    points = pd.DataFrame(
        {
            "cell": cell["title"], "row": name, "gain": cell["rows"][name]["gain"],
            "low": cell["rows"][name]["gain"] - 2 * cell["rows"][name]["gain_error"],
            "high": cell["rows"][name]["gain"] + 2 * cell["rows"][name]["gain_error"],
        }
        for cell in here
        for name in COLOURS
        if name in cell["rows"]
    )  # fmt: skip
    labels = pd.DataFrame(
        {"cell": cell["title"], "gain": cell["rows"]["labels"]["gain"]}
        for cell in here
        if "labels" in cell["rows"]
    )
    order = [cell["title"] for cell in here]
    axis = alt.Axis(labelLimit=260, minExtent=170, ticks=False, grid=True, bandPosition=0)
    y = alt.Y("cell:N", sort=order, title=None, axis=axis, scale=alt.Scale(domain=order))
    offset = alt.YOffset("row:N", sort=list(COLOURS), scale=alt.Scale(domain=list(COLOURS)))
    x = alt.X("gain:Q", title=None, axis=alt.Axis(format="+.2f", tickCount=6, labelOverlap=True))
    colour = alt.Color(
        "row:N",
        title=None,
        sort=list(COLOURS),
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
    )
    shape = alt.Shape(
        "row:N", title=None, scale=alt.Scale(domain=list(COLOURS), range=list(SHAPES))
    )
    zero = alt.Chart(pd.DataFrame({"gain": [0.0]})).mark_rule(color=LIGHT["ink"]).encode(x=x)
    best = (
        alt.Chart(labels)
        .mark_tick(color=LIGHT["muted"], thickness=2, size=ROOM - 6)
        .encode(x=x, y=y)
    )
    lines = (
        alt.Chart(points)
        .mark_rule(strokeWidth=1.5)
        .encode(x=alt.X("low:Q", title=None), x2="high:Q", y=y, yOffset=offset, color=colour)
    )
    dots = (
        alt.Chart(points)
        .mark_point(filled=True, size=36, opacity=1)
        .encode(x=x, y=y, yOffset=offset, color=colour, shape=shape)
    )
    return alt.layer(zero, best, lines, dots).properties(
        width=360, height=ROOM * len(order), title=panel_title(GROUPS[group])
    )
