"""Every interval of the package has its line in the table of measured coverage, in the band.

benchmarks/bench_coverage.py measures; docs/evidence.md shows it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from untilt import catalog

ROOT = Path(__file__).resolve().parent.parent
BENCHMARK = ROOT / "benchmarks/bench_coverage.py"
CELLS = json.loads((ROOT / "benchmarks/results/coverage.json").read_text())["results"]
LOW, HIGH = 0.90, 0.995
WITHOUT = ("no interval", "refused")


def of(cell):
    return cell["group"], cell["row"], cell["scenario"]


def with_a_curve():
    """(kind, name) of every method that gives a curve of examination, and of every evaluator.

    What needs labels has benchmarks/bench_labels.py.
    """
    for record in catalog.methods():
        own = record.home.startswith("untilt.")
        learned = record.kind == "click model" and hasattr(record.load(), "bias_")
        joint = record.kind == "weighting" and getattr(record.load(), "joint", False)
        # A ranker whose weighting learns a curve is the row of that weighting.
        ranker = record.kind == "ranker" and "weighting" not in record.takes
        along = ranker and "bias_" in vars(record.load()).get("__annotations__", {})
        elsewhere = record.name in catalog.names("bias")
        if (
            own
            and "labels" not in record.needs
            and (
                record.kind in ("bias", "evaluator")
                or learned
                or joint
                or (along and not elsewhere)
            )
        ):
            yield record.kind, record.name


def test_every_method_with_an_interval_has_its_line():
    scenarios = {cell["scenario"] for cell in CELLS}
    for method in with_a_curve():
        lines = [cell for cell in CELLS if cell["covers"] == list(method)]
        assert {cell["scenario"] for cell in lines} == scenarios, method


def test_each_cell_stands_there_once():
    assert len({of(cell) for cell in CELLS}) == len(CELLS)


def test_an_interval_holds_or_is_not_given():
    for cell in CELLS:
        if cell["verdict"] == "holds":
            assert LOW <= cell["covered"] <= (1.0 if cell["bounds"] else HIGH), of(cell)
        assert cell["verdict"] in (*WITHOUT, "holds", "unclear"), of(cell)


def test_no_interval_has_zero_width():
    assert [of(cell) for cell in CELLS if cell.get("zero_width")] == []


def test_the_figures_rest_on_enough_logs():
    few = [of(cell) for cell in CELLS if cell["logs"] < 10 and cell["verdict"] not in WITHOUT]
    assert few == []


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["zipf", "few"])
def test_some_cells_measured_anew(scenario, tmp_path):
    """Sixty logs, so that a true share of .95 falls below .85 once in a thousand times."""
    asked = ["AllPairs", "AdjacentSwap", "ShuffledTop", "policy-aware, true curve"]
    only = [word for name in asked for word in ("--only", name)]
    subprocess.run(
        [sys.executable, BENCHMARK, *only, "--scenario", scenario, "--replications", "60",
         "--jobs", "1", "--folder", tmp_path],
        check=True,
    )  # fmt: skip
    lines = (tmp_path / "coverage-cells.jsonl").read_text().splitlines()
    cells = [json.loads(line) for line in lines]
    assert len(cells) >= 2 * len(asked)
    low = [
        (cell["row"], sum(cell["held"]) / sum(cell["given"]))
        for cell in cells
        if sum(cell["given"]) and sum(cell["held"]) < 0.85 * sum(cell["given"])
    ]
    assert low == []
