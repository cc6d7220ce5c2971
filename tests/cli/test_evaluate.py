"""`untilt evaluate` and `untilt select`, as a user runs them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from untilt.bias.given import EyeTracking, PowerLaw
from untilt.cli.main import app
from untilt.data.letor.read_letor import read_letor
from untilt.data.letor.write_letor import write_letor
from untilt.data.read.read_log import read_log
from untilt.data.write_log import write_log
from untilt.evaluation.estimate import estimate
from untilt.evaluation.judged import evaluate as by_labels
from untilt.evaluation.systems import shown
from untilt.rankers.base import load
from untilt.rankers.linear.linear import LinearRanker
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting import IPS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    judged = make_judged(80, 8, seed=0)
    write_letor(judged, folder / "judged.txt")
    log = simulate(judged, "dla", n_sessions=3_000, seed=0, n_threads=1).log
    write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    LinearRanker(IPS(EyeTracking())).fit(log).save(folder / "new.untilt")
    LinearRanker().fit(log).save(folder / "old.untilt")
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def log_of(made: Path) -> tuple[object, ...]:
    return (made / "clicks.parquet", "--documents", made / "documents.parquet")


def test_evaluate_says_what_would_turn_the_difference(made, tmp_path) -> None:
    words = ("evaluate", *log_of(made), "--bias", "eye-tracking:1", "--ranker", made / "new.untilt")
    result = run(*words, "--sensitivity-plot", tmp_path / "turn.svg")
    assert result.exit_code == 0, result.output
    assert "What would flip new minus shown" in result.output
    assert "<svg" in (tmp_path / "turn.svg").read_text()
    facts = json.loads(run(*words, "--json").stdout)["sensitivity"]
    log = read_log(made / "clicks.parquet", documents=made / "documents.parquet")
    systems = {"shown": shown, "new": load(made / "new.untilt")}
    expected = estimate(log, systems, EyeTracking()).sensitivity("new")
    assert [each["name"] for each in facts["causes"]] == [each.name for each in expected]
    assert facts["causes"][0]["at_most"] == pytest.approx(expected.causes[0].at_most)
    alone = run("evaluate", *log_of(made), "--bias", "eye-tracking:1")
    assert "What would flip" not in alone.output


def test_json_says_what_estimate_says(made, tmp_path) -> None:
    result = run(
        "evaluate", *log_of(made), "--bias", "eye-tracking:1", "--ranker", made / "new.untilt",
        "--ranker", f"b={made / 'old.untilt'}", "--json", "--plot", tmp_path / "c.svg",
        "--clip-plot", tmp_path / "clip.svg",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    log = read_log(made / "clicks.parquet", documents=made / "documents.parquet")
    systems = {"shown": shown, "new": load(made / "new.untilt"), "b": load(made / "old.untilt")}
    expected = estimate(log, systems, EyeTracking())
    for name in systems:
        assert facts["systems"][name]["value"] == pytest.approx(expected[name].value)
        assert facts["systems"][name]["interval"]["low"] == pytest.approx(
            expected[name].interval.low
        )
    assert facts["baseline"] == "shown"
    gap = expected.compare("shown")["new"]
    assert facts["differences"]["new"]["value"] == pytest.approx(gap.value)
    assert "<svg" in (tmp_path / "c.svg").read_text()
    assert "<svg" in (tmp_path / "clip.svg").read_text()
    assert (facts["clip"], facts["clip_chosen"]) == (0.0, False)  # none was asked for
    assert 0.06 <= facts["best_clip"] <= 1  # of the chart


@pytest.fixture(scope="module")
def of_rankers(tmp_path_factory) -> Path:
    """A log of three production rankers."""
    folder = tmp_path_factory.mktemp("rankers")
    judged = make_judged(60, 6, mean_docs=12, seed=0)
    log = simulate(judged, "harvest", n_sessions=2_000, seed=0, n_threads=1).log
    write_log(log, folder / "clicks.parquet", drop_unshown=True)
    return folder


def test_the_baseline_is_named_and_said(of_rankers) -> None:
    """By ranker of the log, with or without the prefix; a system to compare with goes beside it."""
    words = ("evaluate", of_rankers / "clicks.parquet", "--bias", "power-law:1", "--json")
    log = read_log(of_rankers / "clicks.parquet")
    expected = estimate(log, shown, PowerLaw(1.0), baseline="production-2")
    for given in (["ranker=production-2"], ["production-2", "shown"]):
        baseline = [word for each in given for word in ("--baseline", each)]
        result = run(*words, *baseline)
        assert result.exit_code == 0, result.output
        facts = json.loads(result.stdout)
        assert facts["systems"]["shown"]["value"] == pytest.approx(expected.best.value)
        assert "production-2" in facts["baseline_sessions"]
    both = run(*words, "--baseline", "ranker=production-1,production-2")
    assert json.loads(both.stdout)["systems"]["shown"]["n_sessions"] > expected.best.n_sessions
    said = run(*words[:-1])
    assert "baseline: all 2,000 sessions" in said.stdout
    wrong = run(*words[:-1], "--baseline", "ranker=production-9")
    assert wrong.exit_code == 2
    assert "Did you mean 'production-" in wrong.output.replace("\n", " ")


def test_people_see_values_differences_and_what_to_beware_of(made) -> None:
    result = run(
        "evaluate", *log_of(made), "--bias", "eye-tracking", "--ranker", made / "new.untilt"
    )
    assert result.exit_code == 0, result.output
    for words in (
        "by policy-aware",
        "Difference to \u201cshown\u201d",
        "Estimates per session",
        "3,000 sessions",
    ):
        assert words in result.output


def test_labels_where_there_are_some(made) -> None:
    result = run(
        "evaluate", made / "judged.txt", "--letor", "--ranker", made / "new.untilt", "--metric",
        "ndcg@10", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    expected = by_labels(read_letor(made / "judged.txt"), load(made / "new.untilt"), ["ndcg@10"])
    found = json.loads(result.stdout)["systems"]["new"]["ndcg@10"]["value"]
    assert found == pytest.approx(expected["ndcg@10"].value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranker", "nowhere.untilt"], "nowhere.untilt"),
        (["--metric", "ndcg@10", "--bias", "eye-tracking"], "Did you mean 'dcg@10'"),
        ([], "needs the position bias"),
        (["--bias", "eye-tracking", "--baseline", "nobody"], "nobody"),
        (["--bias", "eye-tracking", "--evaluator", "ips", "--clip", "0.1"], "takes no clip"),
    ],
)
def test_bad_input_is_explained(made, words, message) -> None:
    extra = ["--ranker", made / "old.untilt"] if "--baseline" in words else []
    result = run("evaluate", *log_of(made), *words, *extra)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")


def test_select_writes_the_best_and_goes_on_from_its_folder(made, tmp_path) -> None:
    words = (
        "select", *log_of(made), "--bias", "eye-tracking", "--method", "clicks", "--method", "ips",
        "--ranker", "lambdamart", "--ranker", "linear", "--trees", 5, "--threads", 1, "--json",
        "--folder", tmp_path / "search", "--out", tmp_path / "best.untilt",
    )  # fmt: skip
    first = run(*words)
    assert first.exit_code == 0, first.output
    facts = json.loads(first.stdout)
    assert set(facts["systems"]) == {
        "lambdamart clicks 5 trees", "lambdamart ips 5 trees", "linear clicks", "linear ips",
    }  # fmt: skip
    values = {name: each["value"] for name, each in facts["systems"].items()}
    assert facts["best"] == max(values, key=values.get) == facts["order"][0]
    scores = load(tmp_path / "best.untilt").predict(np.random.default_rng(0).normal(size=(9, 8)))
    assert np.ptp(scores) > 0
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "search").iterdir()}
    again = run(*words)
    assert json.loads(again.stdout)["systems"] == facts["systems"]
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "search").iterdir()}


def test_select_tries_numbers_of_trees_and_lets_held_out_queries_choose(made, tmp_path) -> None:
    out = tmp_path / "best.untilt"
    words = (
        "select", *log_of(made), "--bias", "eye-tracking", "--method", "ips", "--threads", 1,
        "--json", "--out", out,
    )  # fmt: skip
    result = run(*words, "--trees", 5, "--trees", "auto")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert set(facts["systems"]) == {"lambdamart ips 5 trees", "lambdamart ips auto trees"}
    assert run(*words, "--trees", "auto").exit_code == 0
    assert "held-out queries" in load(out).summary_["trees_chosen_by"]
    for wrong in ("many", 0):
        refused = run(*words, "--trees", wrong)
        assert refused.exit_code == 2
        assert "--trees takes auto or a whole number" in " ".join(refused.output.split())


def test_select_without_a_bias_is_refused(made, tmp_path) -> None:
    result = run("select", *log_of(made), "--out", tmp_path / "best.untilt")
    assert result.exit_code == 2
    assert "--bias" in result.output
    assert not (tmp_path / "best.untilt").exists()


def test_what_was_never_shown_is_counted_and_valued(made) -> None:
    words = ("evaluate", *log_of(made), "--bias", "power-law:1", "--ranker", made / "new.untilt")
    facts = json.loads(run(*words, "--json").stdout)
    found = facts["systems"]["new"]["unshown"]
    log = read_log(made / "clicks.parquet", documents=made / "documents.parquet")
    systems = {"shown": shown, "new": load(made / "new.untilt")}
    expected = estimate(log, systems, PowerLaw(1.0))
    assert found["share"] == pytest.approx(expected["new"].unshown.share)
    assert 0 < found["share"] <= found["queries"]
    assert found["nothing"]["value"] < found["as_shown"]["value"]
    gap = facts["differences"]["new"]["unshown"]["nothing"]["value"]
    assert gap == pytest.approx(expected.compare("shown")["new"].unshown.nothing.value)
    said = run(*words)
    assert said.exit_code == 0, said.output
    assert "All candidates ranked" in said.stdout


def test_judged_lists_beside_the_log_that_showed_some(made) -> None:
    words = (
        "evaluate", made / "judged.txt", "--letor", "--metric", "ndcg@10", "--ranker",
        made / "new.untilt", "--shown", made / "clicks.parquet",
    )  # fmt: skip
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["systems"]["new"]["ndcg@10"]
    assert 0 < found["unshown_share"] < 1
    assert found["if_unshown_nothing"] != found["if_unshown_as_shown"]
    assert "what was never shown" in run(*words).stdout
    wrong = run("evaluate", *log_of(made), "--shown", made / "clicks.parquet")
    assert wrong.exit_code == 2
    assert "--shown goes with --letor" in wrong.output.replace("\n", " ")
