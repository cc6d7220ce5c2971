"""What bench_quality.py says of lines that were made by hand, and how it keeps them."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from untilt import catalog


@pytest.fixture(scope="module")
def report(benchmark_module):
    return benchmark_module("quality_report")


@pytest.fixture(scope="module")
def bench(benchmark_module):
    return benchmark_module("bench_quality")


@pytest.fixture(scope="module")
def world(benchmark_module):
    return benchmark_module("quality_world")


def lines_of(report, setting, **rows):
    """row -> values by seed."""
    named = {"raw": "raw clicks", "lightgbm": "LightGBM position"}
    return [
        report.Line(setting, seed, named.get(row, row), np.array(values))
        for row, by_seed in rows.items()
        for seed, values in by_seed.items()
    ]


def test_differences_are_paired_by_query(report, world):
    setting = world.Setting()
    lines = lines_of(
        report, setting,
        raw={0: [0.1, 0.5], 1: [0.9]},
        auto={0: [0.2, 0.7], 1: [0.9]},
        labels={0: [0.4, 0.8], 1: [0.9]},
    )  # fmt: skip
    (cell,) = report.summary(lines, {setting: "synthetic"})
    assert cell["queries"] == 3
    assert cell["worlds"] == 2
    auto = cell["rows"]["auto"]
    assert auto["ndcg"] == pytest.approx((0.2 + 0.7 + 0.9) / 3)
    assert auto["gain"] == pytest.approx((0.1 + 0.2 + 0.0) / 3)
    assert auto["gain_error"] == pytest.approx(0.1 / np.sqrt(3), abs=1e-5)
    assert auto["share"] == pytest.approx(0.3 / 0.6)


def test_a_real_query_counts_once_however_often_it_is_drawn(report, world):
    setting = world.Setting(data="mslr")
    lines = lines_of(
        report, setting,
        raw={0: [0.1, 0.5], 5: [0.3, 0.5]},  # fold 0 twice
        auto={0: [0.2, 0.5], 5: [0.6, 0.5]},
    )  # fmt: skip
    (cell,) = report.summary(lines, {setting: "real"})
    assert cell["queries"] == 2
    assert cell["versus"]["auto"]["raw clicks"]["value"] == pytest.approx((0.2 + 0.0) / 2)
    assert cell["versus"]["auto"]["raw clicks"]["error"] == pytest.approx(0.1, abs=1e-5)


def test_losses_and_regret(report, world):
    setting = world.Setting()
    raw = np.full(50, 0.5)
    jitter = np.tile([0.001, -0.001], 25)
    lines = lines_of(
        report, setting,
        raw={0: raw},
        auto={0: raw - 0.01 + jitter},
        run={0: raw + 0.01 + jitter},
        lightgbm={0: raw + 0.02},
        balanced={0: raw + 0.04},
        labels={0: raw + 0.3},
    )  # fmt: skip
    (cell,) = report.summary(lines, {setting: "synthetic"})
    assert cell["best_of_own"] == "balanced"
    assert cell["regret"]["auto"]["value"] == pytest.approx(0.05)
    assert cell["regret"]["run"]["value"] == pytest.approx(0.03)
    told = report.counts([cell])
    name = f"synthetic: {cell['title']}"
    assert told["auto below raw clicks by more than 2 errors"] == [name]
    assert told["run below raw clicks"] == []
    assert told["run below LightGBM position"] == [name]
    assert told["auto regret over 0.005"] == [name]


def test_a_row_that_lacks_worlds_is_not_the_best(report, world):
    setting = world.Setting()
    lines = lines_of(
        report, setting,
        raw={0: [0.1, 0.3], 1: [0.2]},
        auto={0: [0.2, 0.3], 1: [0.3]},
        ips={0: [0.9, 0.5]},
        labels={0: [1.0, 1.0], 1: [0.2]},
    )  # fmt: skip
    (cell,) = report.summary(lines, {setting: "synthetic"})
    assert cell["best_of_own"] == "auto"
    assert cell["rows"]["ips"]["gain"] == pytest.approx((0.8 + 0.2) / 2)
    assert cell["rows"]["ips"]["share"] == pytest.approx(1.0 / (0.9 + 0.7), abs=1e-3)


def test_values_are_kept_to_five_digits(bench):
    values = np.random.default_rng(0).random(100)
    assert np.abs(bench.unpacked(bench.packed(values)) - values).max() <= 1.01e-5
    assert bench.unpacked(bench.packed([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_lines_of_other_code_are_not_mixed_in(bench, tmp_path):
    def line(row, label, world, value):
        setting = {"data": "synthetic", "queries": 500}
        return {
            "label": label, "world": world, "setting": setting, "seed": 0, "row": row,
            "ndcg": bench.packed([value]), "about": {}, "shown": 1.0,
        }  # fmt: skip

    written = [
        line("auto", "old", "w", 0.1),
        line("auto", "new", "w", 0.2),
        line("auto", "new", "w", 0.3),
        line("auto", "new", "other", 0.4),
        line("labels", "outside", "w", 0.5),
    ]
    (tmp_path / bench.LINES).write_text("".join(json.dumps(each) + "\n" for each in written))
    known = {each.row: float(each.ndcg[0]) for each in bench.known_lines(tmp_path, "new", "w")}
    assert known == pytest.approx({"auto": 0.3, "labels": 0.5}, abs=1e-4)


def test_what_is_known_is_not_done_again(bench, tmp_path):
    def options(**more):
        asked = {"tier": 1, "only": ["real: mslr, 10 "], "rows": [], "seeds": None}
        return Namespace(**asked | {"folder": tmp_path} | more)

    todo = list(bench.tasks(options(), "new", "w"))
    assert [task.seed for task in todo] == [0, 1, 2, 3, 4]
    bench._append(todo[2], "auto", {"ndcg": bench.packed([0.5]), "about": {}, "shown": 0.5})
    bench._append(todo[2], "run", {"error": "broke", "about": {}, "shown": 0.5})
    again = {task.seed: task.wanted for task in bench.tasks(options(), "new", "w")}
    assert set(again[2]) == {*todo[2].wanted} - {"auto"}  # what broke is tried again
    assert again[1] == todo[1].wanted
    assert [task.wanted for task in bench.tasks(options(rows=["auto"], seeds=1), "new", "w")] == [
        ("auto",)
    ]


def test_every_objective_is_a_row(bench):
    rows = bench.rows(every=False)
    assert {each.name for each in catalog.methods("objective", choose="train")} <= set(rows)
    trusting = {each.name for each in catalog.methods("weighting") if "trust" in each.needs}
    weightings = {each.name for each in catalog.methods("weighting", choose="run")} - trusting
    assert weightings - {catalog.default("weighting").name} <= set(bench.rows(every=True))
    assert {"raw clicks", "auto", "run", "LightGBM position", "XGBoost unbiased"} <= set(rows)


def test_the_design_holds_what_was_asked_for(bench, world):
    cells = bench.cells()
    assert len({cell.setting for cell in cells}) == len(cells)
    first = [cell for cell in cells if len(cell.seeds(1))]
    assert {cell.setting.data for cell in first} == {"synthetic", *world.REAL}
    assert {cell.setting.reader for cell in first} == {"pbm", "trust", "cascade"}
    assert {cell.setting.sessions for cell in first} == {10, 100, 1000}
    assert {cell.setting.rankers for cell in first} == {1, 3}
    assert {cell.setting.cut for cell in first} == {0, 10}
    assert {cell.setting.queries for cell in cells} == {500, 1500, 4000}
    assert all(set(cell.seeds(1)) <= set(cell.seeds(2)) for cell in cells)


def test_a_small_cell_is_measured(bench, world, tmp_path):
    """Raw clicks, old rankers and labels on a few queries, written as lines."""
    cell = bench.Cell("synthetic", world.Setting(queries=20, sessions=20), (1, 1))
    wanted = ("raw clicks", "labels", "old rankers")
    task = bench.Task(cell, 0, wanted, "new", bench.world_label(), tmp_path)
    assert bench.measure(task) == []
    lines = bench.known_lines(tmp_path, "new", bench.world_label())
    assert {line.row for line in lines} == set(wanted)
    assert all(len(line.ndcg) == 600 - 1 or len(line.ndcg) == 600 for line in lines)
    value = {line.row: line.ndcg.mean() for line in lines}
    assert value["old rankers"] < value["labels"]


def test_the_committed_table_keeps_the_promise(report):
    """What docs/quality.md says: no log of it is better left to raw clicks, or to a peer."""
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "quality.json"
    cells = json.loads(path.read_text())["results"]["cells"]
    assert len(cells) >= 30
    assert {cell["group"] for cell in cells} == {"synthetic", "real", "readers", "large"}
    told = report.counts(cells)
    for row in ("auto", "run"):
        for other in ("raw clicks", "LightGBM position", "XGBoost unbiased"):
            assert told[f"{row} below {other} by more than 2 errors"] == []
        assert told[f"{row} below raw clicks"] == []
