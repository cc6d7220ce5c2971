"""Grades beside clicks in `estimate` and `run`: one answer."""

import csv
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app
from untilt.errors import BadRowsError
from untilt.facts import codes
from untilt.report.decision import Decision

RUN: dict[str, Any] = {
    "bias": "eye-tracking",
    "trees": 40,
    "method": ["prs"],
    "threads": 1,
    "folds": 4,
}


@pytest.fixture(scope="module")
def judged():
    return ut.make_judged(n_queries=200, n_features=20, seed=0)


def log_of(judged, sessions):
    return ut.simulate(judged, protocol="dla", sessions_per_query=sessions, seed=0).log


def graded(judged, log, systems, budget, change=lambda grade: grade):
    plan = ut.labels.plan_labels(log, systems, budget=budget, spare=0.3)
    pairs = zip(judged.groups.tolist(), judged.doc_id.tolist(), strict=True)
    truth = dict(zip(pairs, judged.labels.tolist(), strict=True))
    asked = zip(plan.query_id.tolist(), plan.doc_id.tolist(), strict=True)
    told = [change(truth[each]) for each in asked]
    return ut.labels.Grades(plan.query_id, plan.doc_id, told, None, plan.probability, plan.drawn)


def write(labels, path):
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["query_id", "doc_id", "grade", "probability", "drawn"])
        rows.writerows(zip(labels.query_id.tolist(), labels.doc_id.tolist(), labels.grade.tolist(),
                           labels.probability.tolist(), ["documents"] * len(labels),
                           strict=True))  # fmt: skip
    return path


def test_estimate_has_both(judged):
    log = log_of(judged, 20)
    new = ut.LinearRanker(ut.IPS(ut.EyeTracking())).fit(log)
    systems: Any = {"shown": ut.shown, "new": new}
    labels = graded(judged, log, systems, 200)
    plain = ut.estimate(log, systems, ut.EyeTracking())
    both = ut.estimate(log, systems, ut.EyeTracking(), labels=labels)
    assert plain.labels is None
    assert both["new"].interval == plain["new"].interval
    assert both.labels["new - shown"].grades > 100
    alone = ut.labels.estimate_labels(log, systems, labels)["new - shown"]
    assert both.labels["new - shown"].alone == alone.alone
    assert [each.name for each in both.view()][-2:] == ["labels", "judges"]


@pytest.fixture(scope="module")
def first(judged, tmp_path_factory):
    """A run whose clicks say better."""
    folder, log = tmp_path_factory.mktemp("run"), log_of(judged, 40)
    result = ut.run(log, folder, **RUN)
    assert result.decision.answer.verdict == "better"
    return folder, log, {"shown": ut.shown, "new": ut.load(folder / "candidate.untilt")}


def test_a_run_where_both_agree_says_so(judged, first, tmp_path):
    folder, log, systems = first
    path = write(graded(judged, log, systems, 400), tmp_path / "grades.csv")
    again = ut.run(log, folder, grades=path, **RUN).decision
    assert again.answer.verdict == "better"
    assert not again.answer.by_labels
    assert "run.labels-say" in codes(again.notes)
    assert again.held_out.by_labels.interval.low > 0
    assert Decision.load(folder / "figures.json").answer == again.answer
    page = (folder / "report.html").read_text()
    assert "Predictions against the grades" in page
    assert f'grades = "{path}"' in (folder / "run.toml").read_text()


def test_grades_that_say_the_opposite_take_the_verdict_away(judged, first):
    folder, log, systems = first
    labels = graded(judged, log, systems, 600, lambda grade: 4 - grade)
    found = ut.run(log, folder, grades=labels, **RUN).decision
    assert found.answer.verdict == "cannot tell"
    assert codes(found.answer.reasons)[0] == "run.labels-disagree"
    assert not found.ships
    assert not (folder / "ranker.untilt").exists()


def test_grades_decide_where_clicks_do_not(judged, first, tmp_path):
    _, _, systems = first
    log = log_of(judged, 4)
    before = ut.run(log, tmp_path / "run", **RUN).decision
    assert before.answer.verdict != "better"
    assert not before.ships
    systems = {"shown": ut.shown, "new": ut.load(tmp_path / "run" / "candidate.untilt")}
    labels = graded(judged, log, systems, 10**6)
    after = ut.run(log, tmp_path / "run", grades=labels, **RUN).decision
    assert after.answer.by_labels
    assert (after.answer.verdict, after.ships) == ("better", 1.0)
    assert not after.answer.reasons
    assert {"run.labels-say", "run.clicks-say"} <= set(codes(after.notes))
    assert after.answer.difference.interval.low > 0
    assert (tmp_path / "run" / "ranker.untilt").exists()


def test_grades_of_other_queries_are_said_not_to_count(first, tmp_path):
    folder, log, _ = first
    other = ut.labels.Grades(["x"], ["y"], [1], None, [1.0], "documents")
    found = ut.run(log, folder, grades=other, **RUN).decision
    assert found.held_out.labels is None
    assert "run.grades-unused" in codes(found.warnings)
    bad = tmp_path / "bad.csv"
    bad.write_text("query_id,doc_id,grade\n1,2,good\n")
    with pytest.raises(BadRowsError, match="'good' is no number"):
        ut.run(log, folder, grades=bad, **RUN)


def test_the_command_line_takes_grades(judged, first, tmp_path):
    _, log, systems = first
    path = write(graded(judged, log, systems, 300), tmp_path / "grades.csv")
    ut.write_log(log, tmp_path / "clicks.parquet", drop_unshown=True)
    for words in (
        ["bias", "clicks.parquet", "--labels", path, "--out", "bias.json"],
        ["judgments", "clicks.parquet", "--bias", "eye-tracking", "--labels", path,
         "--out", "j.csv"],
    ):  # fmt: skip
        place = [str(tmp_path / w) if str(w).endswith((".parquet", ".json", "j.csv")) else str(w)
                 for w in words]  # fmt: skip
        done = CliRunner().invoke(app, place)
        assert done.exit_code == 0, done.output
    assert ut.PositionBias.load(tmp_path / "bias.json").rests_on == "labels"
    assert (tmp_path / "j.csv").read_text().partition("\n")[0].endswith("rests_on")
    assert np.isfinite(ut.PositionBias.load(tmp_path / "bias.json").examination).all()
