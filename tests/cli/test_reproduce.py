"""`untilt reproduce`: list, run, go on, the page, the record, and errors."""

import json
import re

import pytest
from typer.testing import CliRunner

from untilt.charts.theme import SUFFIXES
from untilt.cli.main import app
from untilt.cli.reproduce import Picture
from untilt.papers.layouts import LAYOUTS
from untilt.papers.schema import names

TEXT = """
title = "Clicks and labels"
document = "mine"
reference = "hu2019unbiased"
source = "Table 9"
question = "Are labels better than clicks?"
form = "table"
[full]
queries = 100
test_queries = 60
sessions_per_query = 20
seeds = 3
features = 6
[quick]
queries = 15
test_queries = 10
sessions_per_query = 10
seeds = 2
features = 6
[[panel]]
name = "p"
metrics = ["ndcg@10", "map"]
[[row]]
name = "labels"
title = "Labels"
ranker = "linear"
train_on = "labels"
[[row]]
name = "clicks"
title = "Clicks"
ranker = "linear"
[[reported]]
row = "labels"
source = "Yahoo"
values = { "ndcg@10" = 0.79 }
[[claim]]
text = "Labels are better."
source = "section 1"
kind = "above"
rows = ["labels", "clicks"]
"""


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], env={"COLUMNS": "100"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("reproduce")
    (path / "mine.toml").write_text(TEXT)
    result = run(path / "mine.toml", "--out", path / "out", "--chart", "svg", "--chart", "html")
    assert result.exit_code == 0, result.stderr
    (path / "stdout.txt").write_text(result.stdout)
    return path


def test_the_list_has_every_experiment():
    result = run("--list")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in names())
    record = json.loads(run("--list", "--json").stdout)
    assert set(record["experiments"]) == set(names())


def test_people_read_tables_and_claims(folder):
    said = (folder / "stdout.txt").read_text()
    assert "mine: Clicks and labels" in said
    assert "6 cells on make_judged" in said
    assert "ndcg@10 in mine" in said
    assert "0.7900" in said
    assert "Labels are better." in said
    assert "20 sessions per query; make_judged: 100 queries, 3 seeds." in said


def test_the_page_holds_the_cells_that_were_printed(folder):
    said, page = (folder / "stdout.txt").read_text(), (folder / "out" / "mine.md").read_text()
    for line in page.splitlines():
        if line.startswith(("|Labels|", "|Clicks|")):
            name, *cells = line.strip("|").split("|")
            printed = next(x for x in said.splitlines() if x.strip().startswith(name) and "±" in x)
            assert all(cell in printed for cell in cells)
    assert "(mine-made.svg)" in page
    assert (folder / "out" / "mine-made.html").read_text().startswith("<!DOCTYPE html>")


METHODS = """
from dataclasses import dataclass
import numpy as np
import untilt as ut

@ut.method("weighting", "cli-toy", title="Toy", note="a constant")
@dataclass(frozen=True)
class Toy(ut.weightings.Weighting):
    value: float = 1.0

    def table(self, depth):
        return np.full((depth, depth), self.value)
"""


def test_methods_of_ones_own_are_imported(folder, tmp_path):
    (tmp_path / "toys.py").write_text(METHODS)
    text = TEXT.replace('name = "clicks"', 'name = "clicks"\nweighting = "cli-toy"')
    (tmp_path / "toy.toml").write_text(text)
    asked = (tmp_path / "toy.toml", "--quick", "--out", tmp_path / "out")
    result = run(*asked)
    assert result.exit_code == 2
    assert "weighting must be one of" in result.stderr
    result = run(*asked, "--import", tmp_path / "toys.py")
    assert result.exit_code == 0, result.stderr
    missing = run(*asked, "--import", "no_such_module")
    assert missing.exit_code == 2
    assert "--import no_such_module" in missing.stderr


def test_finished_cells_are_not_run_again(folder):
    before = (folder / "out" / "results" / "mine-made.jsonl").read_text()
    result = run(folder / "mine.toml", "--out", folder / "out")
    assert "6 of them finished before" in result.stdout
    assert (folder / "out" / "results" / "mine-made.jsonl").read_text() == before
    more = run(folder / "mine.toml", "--out", folder / "out", "--seeds", 4)
    assert "8 cells on make_judged, 6 of them finished before" in more.stdout


def test_a_record_for_machines(folder):
    result = run(folder / "mine.toml", "--out", folder / "out", "--json")
    record = json.loads(result.stdout)
    assert (record["experiment"], record["data"], record["cells"]) == ("mine", "made", 6)
    point = next(p for p in record["points"] if p["row"] == "labels" and p["metric"] == "map")
    assert point["runs"] == 3
    assert point["low"] < point["value"] < point["high"]
    assert record["claims"][0]["verdict"] in ("holds", "does not hold", "undecided")


def test_quick_stands_beside_the_full_run(folder):
    result = run(folder / "mine.toml", "--out", folder / "out", "--quick")
    assert result.exit_code == 0, result.stderr
    assert "15 queries, 2 seeds" in (folder / "out" / "mine-quick.md").read_text()
    assert "100 queries, 3 seeds" in (folder / "out" / "mine.md").read_text()


def test_a_public_set_adds_a_section(folder, tmp_path):
    for part in range(1, 6):
        rows = [
            f"{d % 3} qid:{100 * part + q} "
            + " ".join(f"{j}:{(q * d + j) % 7}" for j in range(1, 47))
            for q in range(6)
            for d in range(8)
        ]
        (tmp_path / f"S{part}.txt").write_text("\n".join(rows) + "\n")
    result = run(
        folder / "mine.toml", "--out", folder / "out", "--data", "mq2008", "--path", tmp_path,
        "--folds", 2,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "4 cells on MQ2008" in result.stdout
    page = (folder / "out" / "mine.md").read_text()
    assert "|make_judged|MQ2008|" in page
    assert "MQ2008: 2 folds x 1 seeds" in page


def test_a_folder_of_ones_own_stays_on_the_page(folder, tmp_path):
    for name, n_features in (("shop", 5), ("shelf", 6)):
        (tmp_path / name).mkdir()
        for part, first in (("train", 0), ("test", 100)):
            rows = [
                f"{d % 3} qid:{first + q} "
                + " ".join(f"{j}:{(q * d + j) % 7}" for j in range(1, n_features + 1))
                for q in range(20)
                for d in range(8)
            ]
            (tmp_path / name / f"{part}.txt").write_text("\n".join(rows) + "\n")
        result = run(folder / "mine.toml", "--out", folder / "out", "--data", tmp_path / name)
        assert result.exit_code == 0, result.stderr
        assert f"{name} holds data of your own: train.txt, test.txt" in " ".join(
            result.stdout.split()
        )
    page = (folder / "out" / "mine.md").read_text()
    assert "; shelf: 3 seeds" in page
    assert "; shop-" in page  # from its results; where it lay is not known any more


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which one? Give a NAME"),
        (("003-table-3",), "Did you mean '003-table-2'?"),
        (("003-table-2", "--path", "x"), "--path is for public data sets"),
        (("003-table-2", "--data", "yahoo", "--path", "nowhere"), "nowhere is no folder"),
        (("003-table-2", "--data", "yaho"), "Did you mean 'yahoo'?"),
        (("003-table-2", "--data", "./nowhere"), "nowhere is no folder"),
        (("003-table-2", "--out", "page.md"), "--out is a folder"),
        (("003-table-2", "--quick", "--full"), "--quick and --full are two sizes"),
        (("gone.toml",), "gone.toml: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_choices_are_those_of_the_library():
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", run("--help").stdout).split())
    assert ", ".join(LAYOUTS) in shown
    assert {f".{kind}" for kind in Picture} <= set(SUFFIXES)
