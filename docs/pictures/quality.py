"""What the methods recover, from the results of benchmarks/bench_quality.py (run that first)."""

import json
from pathlib import Path

import altair as alt
import numpy as np

from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.theme import finished, panel_title

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "quality.json"
METHODS = {
    "labels-shown": "labels of shown documents",
    "auto": "auto",
    "pbm-likelihood": "PBM likelihood",
    "balanced": "Balanced",
    "pairwise-debiasing-0": "pairwise debiasing",
    "lightgbm": "LightGBM position",
    "xgboost": "XGBoost unbiased",
}
PROTOCOLS = {"dla": "ten positions shown (protocol dla)", "prs": "whole lists shown (protocol prs)"}


def draw():
    """Share of the gap over sessions per query, one panel for each protocol."""
    rows = json.loads(RESULTS.read_text(encoding="utf8"))["results"]["rows"]
    parts = [
        curves_chart(
            {title: _curve(rows, protocol, name) for name, title in METHODS.items()},
            truth=METHODS["labels-shown"],
            x=XAxis("sessions per query", "log"),
            value_title="share of the gap",
            value_format=".1f",
            from_zero=False,
            legend_columns=4,
            height=320,
        ).properties(width=400, title=panel_title(words))
        for protocol, words in PROTOCOLS.items()
    ]
    return finished(
        alt.hconcat(*parts),
        title="How much of the gap between raw clicks (0) and human labels (1) is closed",
        subtitle=[
            "NDCG@10 on made lists, 200 trees; auto, likelihood and Balanced are given the true "
            "curve, the others learn theirs",
            "mean of 3 seeds, band: one standard deviation to either side",
        ],
    )


def _curve(rows, protocol: str, method: str) -> Curve:
    wanted = ("made", protocol, method)
    found = [row for row in rows if (row["data"], row["protocol"], row["method"]) == wanted]
    found.sort(key=lambda row: row["sessions"])
    sessions = np.array([row["sessions"] for row in found])
    share = np.array([row["share"] for row in found])
    spread = np.array([row["share_sd"] or 0.0 for row in found])
    return Curve(sessions, share, share - spread, share + spread)
