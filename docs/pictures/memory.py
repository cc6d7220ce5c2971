"""Peak memory by impressions, from the results of benchmarks/bench_memory.py (run that first)."""

import json
from pathlib import Path

import altair as alt

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.theme import finished, panel_title

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "memory.json"
LOGS = {"collapsed": "sessions collapse", "distinct": "every list is distinct"}
COMMANDS = ("read", "audit", "bias", "train", "evaluate", "run")


def draw():
    """A panel for each kind of log, a line for each command; no point if it refused."""
    found = json.loads(RESULTS.read_text(encoding="utf8"))["results"]
    limit = found["limit_bytes"] / 2**30
    sizes = sorted({row["million"] for row in found["rows"]})
    parts = [
        curves_chart(
            {
                f"limit, {limit:g} GiB": Curve(sizes, [limit] * len(sizes)),
                **_curves(found["rows"], log),
            },
            truth=f"limit, {limit:g} GiB",
            x=XAxis("million impressions", "log"),
            value_title="peak memory, GiB",
            value_format=".2f",
            legend_columns=4,
        ).properties(width=360, title=panel_title(words))
        for log, words in LOGS.items()
    ]
    return finished(
        alt.hconcat(*parts),
        title="Peak memory of each command",
        subtitle=[
            f"under a limit of {limit:g} GiB; ten documents a page, ten features",
            "no point: refused with a sentence, or not measured (the tables say which)",
        ],
    )


def _curves(rows, log: str) -> dict[str, Curve]:
    finished_rows = [row for row in rows if row["log"] == log and row["outcome"] == "finished"]
    curves = {}
    for command in COMMANDS:
        found = [row for row in finished_rows if row["command"] == command]
        if found:
            sizes, peaks = ([row[name] for row in found] for name in ("million", "peak_gib"))
            curves[command] = Curve(sizes, peaks)
    return curves
