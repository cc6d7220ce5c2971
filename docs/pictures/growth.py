"""Time by the size of a log, from the results of benchmarks/bench_scale.py growth."""

import json
from pathlib import Path

import altair as alt

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.theme import finished, panel_title

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "growth.json"
STEPS = ("read", "bias", "train")
PANELS = {
    "sessions": XAxis("sessions", "log"),
    "queries": XAxis("queries", "log"),
    "features": XAxis("features", "log"),
    "tail": XAxis("distinct lists / sessions", "linear"),
}
ON_THE_CLOCK = {
    "threads": XAxis("threads", "linear"),
    "workers": XAxis("worker processes of one thread", "linear"),
}


def draw():
    """A panel for each size, a line for each step."""
    found = json.loads(RESULTS.read_text(encoding="utf8"))["results"]
    base = found["base"]
    parts = [_panel(found["rows"], curve, x, "CPU seconds") for curve, x in PANELS.items()]
    parts += [_panel(found["rows"], curve, x, "seconds") for curve, x in ON_THE_CLOCK.items()]
    return finished(
        alt.vconcat(*(alt.hconcat(*parts[at : at + 2]) for at in (0, 2, 4))),
        title="How time grows with a log",
        subtitle=[
            f"{base['sessions']:,} sessions of ten impressions, {base['queries']:,} queries, "
            f"{base['features']} features, where not said otherwise; {found['trees']} trees",
            "two threads; reading includes the collapse of equal sessions",
        ],
    )


def _panel(rows, curve: str, x: XAxis, unit: str):
    mine = [row for row in rows if row["curve"] == curve]
    curves = {}
    for step in (each for each in STEPS if any(row["step"] == each for row in mine)):
        column = unit.replace("CPU ", "cpu_")
        points = sorted((row["value"], row[column]) for row in mine if row["step"] == step)
        curves[step] = Curve([round(v, 2) for v, _ in points], [seconds for _, seconds in points])
    chart = curves_chart(
        curves, x=x, value_title=unit, value_format="~g", height=200, legend_columns=3
    )
    return chart.properties(width=320, title=panel_title(x.title))
