"""Time by the size of a log, from the results of benchmarks/bench_scale.py growth."""

import json
from pathlib import Path

import altair as alt

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.theme import finished, panel_title

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "growth.json"
STEPS = ("read", "bias", "train")
# The panels: title, horizontal axis, and which time is drawn.
PANELS = {
    "sessions": ("sessions", XAxis("sessions", "log"), "cpu_seconds"),
    "queries": ("queries", XAxis("queries", "log"), "cpu_seconds"),
    "features": ("features", XAxis("features", "log"), "cpu_seconds"),
    "tail": (
        "share of distinct lists",
        XAxis("distinct lists / sessions", "linear"),
        "cpu_seconds",
    ),
    "workers": ("threads, seconds on the clock", XAxis("threads", "linear"), "seconds"),
}


def draw():
    """A panel for each size, a line for each step."""
    found = json.loads(RESULTS.read_text(encoding="utf8"))["results"]
    base = found["base"]
    parts = [_panel(found["rows"], curve, *panel) for curve, panel in PANELS.items()]
    return finished(
        alt.vconcat(alt.hconcat(*parts[:3]), alt.hconcat(*parts[3:])),
        title="How time grows with a log",
        subtitle=[
            f"{base['sessions']:,} sessions of ten impressions, {base['queries']:,} queries, "
            f"{base['features']} features, where not said otherwise; {found['trees']} trees",
            "CPU seconds on two cores; reading includes the collapse of equal sessions",
        ],
    )


def _panel(rows, curve: str, title: str, x: XAxis, time: str):
    mine = [row for row in rows if row["curve"] == curve]
    curves = {}
    for step in STEPS:
        points = sorted((row["value"], row[time]) for row in mine if row["step"] == step)
        curves[step] = Curve([v for v, _ in points], [seconds for _, seconds in points])
    chart = curves_chart(
        curves, x=x, value_title="seconds", value_format="~g", height=200, legend_columns=3
    )
    return chart.properties(width=250, title=panel_title(title))
