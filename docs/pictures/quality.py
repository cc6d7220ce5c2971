"""What the methods recover, from the results of benchmarks/bench_quality.py (run that first)."""

import json
from pathlib import Path

import altair as alt
import numpy as np
from _bands import panel

from untilt.report.charts.charts import Curve, configured

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
PROTOCOLS = {"dla": "ten places shown (protocol dla)", "prs": "whole lists shown (protocol prs)"}


def draw():
    """Share of the gap over sessions per query, one panel for each protocol."""
    rows = json.loads(RESULTS.read_text(encoding="utf8"))["results"]["rows"]
    parts = [
        panel(
            {title: _curve(rows, protocol, name) for name, title in METHODS.items()},
            title=alt.TitleParams(words, anchor="start", fontSize=13, fontWeight="normal"),
            x_title="sessions per query",
            value_title="share of the gap",
            value_format=".1f",
            scale="log",
            per_row=4,
        ).properties(width=400)
        for protocol, words in PROTOCOLS.items()
    ]
    heading = alt.TitleParams(
        "How much of the gap between raw clicks (0) and human labels (1) is closed",
        subtitle=[
            "NDCG@10 on made lists, 200 trees; auto, likelihood and Balanced are given the true "
            "curve, the others learn theirs",
            "mean of 3 seeds, band: one standard deviation to either side",
        ],
        anchor="start",
        subtitleColor="#555555",
    )
    return configured(alt.hconcat(*parts, title=heading))


def _curve(rows, protocol: str, method: str) -> Curve:
    wanted = ("made", protocol, method)
    found = [row for row in rows if (row["data"], row["protocol"], row["method"]) == wanted]
    found.sort(key=lambda row: row["sessions"])
    sessions = np.array([row["sessions"] for row in found])
    share = np.array([row["share"] for row in found])
    spread = np.array([row["share_sd"] or 0.0 for row in found])
    return Curve(sessions, share, share - spread, share + spread)
