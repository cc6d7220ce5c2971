"""Tables of docs/others.md and evidence.md: our figures beside those of other packages."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks/results"
GROUPS = {
    "worlds": "unusual worlds",
    "synthetic": "simulated, 500 queries",
    "large": "simulated, 1,500 and more queries",
    "real": "MQ2008, OHSUMED, MSLR",
    "readers": "readers who trust or stop",
}
COLUMNS = {
    "raw clicks": "raw clicks", "LightGBM position": "LightGBM `position`",
    "XGBoost unbiased": "XGBoost `lambdarank_unbiased`", "auto": "untilt `auto`",
    "labels": "human labels",
}  # fmt: skip


def table(name: str) -> list[list[str]]:
    """The lines of the table of this name."""
    tables = {
        "quality": _quality, "training": _training, "speed": _speed,
        "click models": _click_models, "values": _values,
    }  # fmt: skip
    return tables[name]()


def _quality() -> list[list[str]]:
    """Mean NDCG@10 over the cells of each group, and in how many `auto` is above both peers."""
    cells = _results("quality")["cells"]
    header = ["logs", "cells", *COLUMNS.values(), "`auto` above both peers"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for group, title in {**GROUPS, "": "all"}.items():
        mine = [each for each in cells if group in ("", each["group"])]
        if not mine:
            continue
        means = [_mean(each["rows"][row]["ndcg"] for each in mine) for row in COLUMNS]
        above = sum(
            all(each["versus"]["auto"][peer]["value"] > 0 for peer in _peers()) for each in mine
        )
        values = [f"{mean:.3f}".lstrip("0") for mean in means]
        lines.append([title, str(len(mine)), *values, f"{above} of {len(mine)}"])
    return lines


def _training() -> list[list[str]]:
    """Seconds and memory of 100 trees on two threads, preparation included."""
    runs = [each for each in _results("lambdamart")["runs"] if each["threads"] == 2]
    found = {(each["case"], each["who"]): each for each in runs}
    cases = {
        "165,660 sessions over 20,000 queries": ("a", "prs", "lightgbm", "xgboost"),
        "10 million sessions over 20,000 queries": ("b", "prs", "lightgbm", "xgboost"),
        "6,000 labelled queries of 120 documents": (
            "c", "labels", "lightgbm-labels", "xgboost-labels",
        ),
    }  # fmt: skip
    lines = [["100 trees on", "untilt", "LightGBM", "XGBoost"], ["---", "---:", "---:", "---:"]]
    for title, (case, *who) in cases.items():
        lines.append([title, *(_run(found[case, each]) for each in who)])
    return lines


def _run(run: dict[str, Any]) -> str:
    if "sessions" in run:
        return f"{run['seconds']:.0f} s, {run['peak_gib']:.1f} GiB for {run['sessions']:,} sessions"
    return f"{run['seconds']:.1f} s, {run['peak_gib']:.1f} GiB"


def _speed() -> list[list[str]]:
    """What else was measured beside another package, each with its command."""
    servers = _results("serve")["servers"]
    ours, theirs = servers["untilt, JSON"], servers["FastAPI + LightGBM, JSON"]
    score = next(
        each["microseconds"]
        for each in _results("score")
        if (each["trees"], each["leaves"], each["rows"]) == (300, 31, 100)
    )
    networks = json.loads((RESULTS / "neural.json").read_text(encoding="utf8"))["runs"]
    letor = _results("letor")["files"][0]["median_seconds"]
    return [
        ["what", "untilt", "beside it", "command"],
        ["---", "---:", "---:", "---"],
        [
            "score 100 documents by 300 trees of 31 leaves",
            f"{score['untilt']:.0f} µs",
            f"LightGBM {score['lightgbm']:,.0f} µs, ONNX Runtime {score['onnxruntime']:,.0f} µs",
            _command("score"),
        ],
        [
            "answer requests of 100 candidates over HTTP with JSON, one worker",
            f"{ours['requests_per_second']:.0f} a second, logged and synced",
            f"FastAPI with LightGBM, nothing logged: {theirs['requests_per_second']:.0f}",
            _command("serve"),
        ],
        [
            "train a network of 512, 256, 128 units on lists of ten, two CPU cores",
            f"{_steps(networks['cpu']):.0f} steps a second (JAX)",
            f"PyTorch {_steps(networks['torch']):.0f}",
            _command("neural"),
        ],
        [
            "read 200,000 rows of LETOR text",
            f"{letor['untilt']:.1f} s",
            f"scikit-learn {letor['sklearn']:.1f} s",
            _command("letor"),
        ],
    ]


def _click_models() -> list[list[str]]:
    """Seconds to fit, and log-likelihood of held-out sessions; means over the logs."""
    rows = _results("others")["click_models"]
    truth = next(each["log_likelihood_of_the_truth"] for each in rows if each["who"] == "untilt")
    header = ["model", "by", "CPU seconds", "seconds", "log-likelihood of a held-out session"]
    lines = [header, ["---", "---", "---:", "---:", "---:"]]
    names = {"untilt": "untilt (EM)", "clax": "CLAX (gradients)"}
    for each in rows:
        figures = (f"{each['cpu_seconds']:.1f}", f"{each['seconds']:.1f}")
        likelihood = f"{each['log_likelihood']:.4f}"
        lines.append([each["model"].upper(), names[each["who"]], *figures, likelihood])
    return [*lines, ["the truth", "the simulator", "", "", f"{truth:.4f}"]]


def _values() -> list[list[str]]:
    """Errors of the estimated clicks per session under a new order."""
    rows = _results("others")["values"]["rows"]
    header = ["estimator", "mean error", "root mean squared error", "milliseconds"]
    lines = [header, ["---", "---:", "---:", "---:"]]
    for name, each in rows.items():
        error, size = each["mean_error"], each["root_mean_square_error"]
        lines.append([name, f"{error:+.4f}", f"{size:.4f}", f"{1000 * each['median_seconds']:.0f}"])
    return lines


def _steps(run: dict[str, Any]) -> float:
    return float(run["results"][0]["steps_per_second"])


def _command(name: str) -> str:
    return f"`python benchmarks/bench_{name}.py`"


def _peers() -> Sequence[str]:
    return ("LightGBM position", "XGBoost unbiased")


def _mean(values: Any) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf8"))["results"]
