"""`untilt plan --labels` and `untilt evaluate --labels`, as a user runs them."""

import csv
import json

import numpy as np
from typer.testing import CliRunner

from untilt.bias.given import EyeTracking
from untilt.cli.main import app
from untilt.data.write_log import write_log
from untilt.rankers.linear.linear import LinearRanker
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting import IPS


def run(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_from_a_plan_over_grades_to_a_value(tmp_path):
    judged = make_judged(80, 8, seed=0)
    log = simulate(judged, "dla", n_sessions=3_000, seed=0, n_threads=1).log
    write_log(log, tmp_path / "clicks.parquet", documents=tmp_path / "documents.parquet")
    LinearRanker(IPS(EyeTracking())).fit(log).save(tmp_path / "new.untilt")
    words: tuple[object, ...] = (
        tmp_path / "clicks.parquet", "--documents", tmp_path / "documents.parquet", "--ranker",
        tmp_path / "new.untilt",
    )  # fmt: skip
    asked = tmp_path / "to-grade.csv"
    result = run("plan", *words, "--labels", 120, "--to-grade", asked)
    assert result.exit_code == 0, result.output
    assert "120 of" in result.output
    rows = list(csv.DictReader(asked.read_text().splitlines()))
    assert len(rows) == 120
    empty = run("evaluate", *words, "--labels", asked, "--metric", "dcg@10")
    assert empty.exit_code != 0
    assert "the file holds no grade" in empty.output
    queries = np.repeat(judged.query_id, np.diff(judged.indptr)).tolist()
    keys = zip(map(str, queries), map(str, judged.doc_id.tolist()), strict=True)
    grades = dict(zip(keys, judged.labels.tolist(), strict=True))
    for row in rows:
        row["grade"] = grades[row["query_id"], row["doc_id"]]
    with asked.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    words = ("evaluate", *words, "--bias", "eye-tracking:1", "--labels", asked)
    words = (*words, "--metric", "dcg@10")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert "from 120 grades" in result.output
    assert "Predictions against the grades" in result.output
    text = run(*words, "--json")
    assert text.exit_code == 0, text.output
    found = json.loads(text.stdout)["systems"]["new - shown"]
    assert found["interval"]["low"] < found["value"] < found["interval"]["high"]
    missing = run("plan", *words[1:6], "--labels", 5)
    assert "--to-grade FILE" in missing.output
