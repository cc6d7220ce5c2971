"""`untilt run` and `untilt report`: what people and machines read, files, config, exit codes."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    judged = ut.make_judged(n_queries=120, n_features=4, seed=7)
    folder = tmp_path_factory.mktemp("files")
    return ut.simulate_to_parquet(judged, folder, "harvest", n_sessions=5000, seed=7, n_threads=1)


@pytest.fixture(scope="module")
def config(files, tmp_path_factory):
    """Options in a file; paths beside it."""
    path = files.log.parent / "run.toml"
    path.write_text(
        'log = "clicks.parquet"\ndocuments = "documents.parquet"\nout = "from-config"\n'
        'trees = 5\nthreads = 1\nmethod = ["balanced"]\n'
    )
    return path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def finished(config):
    result = invoke("run", "--config", config, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_json_and_figures_say_what_would_turn_the_answer(finished, config):
    names = {each["name"] for each in finished["sensitivity"]["causes"]}
    assert {"curve", "position", "drift", "trust", "queries"} <= names
    held_out = ut.Decision.load(config.parent / "from-config" / "figures.json").held_out
    assert {each.name for each in held_out.sensitivity} == names


def test_json_holds_the_answer_and_the_files(finished, config):
    folder = config.parent / "from-config"
    assert finished["report"] == str(folder / "report.html")
    assert finished["answer"]["verdict"] in ("better", "worse", "undecided", "cannot tell")
    assert finished["bias"]["kind"] == "randomised"
    assert [entry["system"] for entry in finished["rankers"]] == [
        *("logged order", "raw clicks", "balanced")
    ]
    assert {folder / "candidate.untilt", folder / "bias.json"} <= set(
        map(type(folder), finished["files"])
    )


def test_json_and_people_read_where_the_time_went(files, tmp_path):
    arguments = (
        "run",
        files.log,
        "--documents",
        files.documents,
        "--method",
        "balanced",
        "--trees",
    )
    found = json.loads(invoke(*arguments, 5, "--out", tmp_path / "json", "--json").stdout)["times"]
    names = [(each["of"], each["name"]) for each in found]
    assert names.index(("rankers", "balanced")) > names.index(("", "rankers"))
    assert {"read", "audit", "refit", "report"} <= {name for of, name in names if not of}
    told = invoke(*arguments, 5, "--out", tmp_path / "told").stdout
    assert re.search(r"Time: [0-9.]+ s in all", told)
    page = (tmp_path / "told" / "report.html").read_text()
    assert "Where the time went" in page
    assert "rankers: balanced" in page


def test_people_read_steps_table_answer_and_the_path(finished, config):
    result = invoke("run", "--config", config)
    assert result.exit_code == 0, result.stderr
    assert "reading the log (done by an earlier run)" in result.stdout
    assert "logged order" in result.stdout
    assert "Time:" not in result.stdout, "nothing was done now"
    assert "dcg@10" in result.stdout
    assert "report.html" in result.stdout.split("Report:")[1]


def test_the_command_line_wins_over_the_file(finished, config):
    result = invoke("run", "--config", config, "--metric", "arp", "--json")
    assert json.loads(result.stdout)["answer"]["new"]["metric"] == "arp"


def test_the_report_is_built_again_from_the_figures(finished, config, tmp_path):
    folder = config.parent / "from-config"
    page = tmp_path / "again.html"
    result = invoke("report", folder, "--out", page, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["report"] == str(page)
    # Inside the charts, parameters are numbered from chart to chart of one process.
    texts = [
        re.sub(r"<(script|svg).*?</\1>", "", path.read_text(encoding="utf8"), flags=re.S)
        for path in (page, folder / "report.html")
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 5000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "there is no log to read"),
        (["run", "nowhere.parquet"], "nowhere.parquet"),
        (["run", "LOG", "--method", "balansed"], "Did you mean 'balanced'"),
        (["run", "LOG", "--bias", "all-pears"], "Did you mean 'all-pairs'"),
        (["run", "LOG", "--time-limit", "soon"], "such as 90s, 10m or 1h30m"),
        (["run", "LOG", "--column", "query"], "needs NAME=COLUMN"),
        (["run", "LOG", "--column", "query_id=nope"], "nope"),
        (["run", "LOG", "--config", "nowhere.toml"], "nowhere.toml"),
        (["report", "nowhere"], "Give the folder of `untilt run`"),
        (["report", "LOG"], "figures.json"),
    ],
)
def test_bad_input_is_exit_2_with_a_paragraph(files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = invoke(*(files.log if each == "LOG" else each for each in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "untilt-run" / "report.html").exists()


def test_an_unknown_key_in_the_file(tmp_path):
    (tmp_path / "run.toml").write_text('logg = "clicks.csv"\n')
    result = invoke("run", "--config", tmp_path / "run.toml")
    assert result.exit_code == 2
    assert "Did you mean 'log'" in result.stderr


def test_the_shell_completes_the_command_and_its_options():
    """Typer answers the shell's question through the environment."""
    asked = {"_UNTILT_COMPLETE": "complete_bash", "COMP_WORDS": "untilt r", "COMP_CWORD": "1"}

    def completed():
        return CliRunner().invoke(app, [], env=asked, prog_name="untilt").stdout.split()

    assert {"run", "report"} <= set(completed())
    asked |= {"COMP_WORDS": "untilt run --time", "COMP_CWORD": "2"}
    assert completed() == ["--time-limit"]


# ---- the options of a finished run start it again


@pytest.fixture(scope="module")
def elsewhere(files, tmp_path_factory):
    """A log under other names, with positions from 0 and features of its own, and its run."""
    import pandas as pd

    folder = tmp_path_factory.mktemp("a shop")
    keys = ["query_id", "doc_id"]
    log = pd.read_parquet(files.log).merge(pd.read_parquet(files.documents), on=keys)
    log = log.assign(position=log["position"] - 1, count="no number", noise=0.5)
    log.rename(columns={"query_id": "search"}).to_parquet(folder / "the log.parquet")
    return folder


FIRST = ["the log.parquet", "--column", "query_id=search", "--column", "count=", "--features",
         "f1,f2", "--features", "f[34]", "--positions-from", 0, "--bias", "curve.json", "--trees",
         4, "--threads", 1, "--method", "prs", "--out", "results"]  # fmt: skip


def figures(folder):
    """What a run found out: without where the log lay, and how long it took."""
    found = json.loads((folder / "figures.json").read_text())
    assert found["held_out"]["estimates"]
    return {part: found[part] for part in ("bias", "split", "held_out")}


def test_the_options_of_a_run_start_it_again_from_anywhere(elsewhere, tmp_path, monkeypatch):
    monkeypatch.chdir(elsewhere)
    ut.PositionBias(1 / np.arange(1, 11)).save("curve.json")
    first = invoke("run", *FIRST, "--json")
    assert first.exit_code == 0, first.stderr
    (elsewhere / "results").rename(elsewhere / "moved")
    monkeypatch.chdir(tmp_path)
    again = invoke("run", "--config", elsewhere / "moved" / "run.toml", "--out", "again", "--json")
    assert again.exit_code == 0, again.stderr
    assert figures(tmp_path / "again") == figures(elsewhere / "moved")
    assert json.loads(again.stdout)["resumed"] == []
    # And in the folder that was moved everything is there already.
    kept = invoke("run", "--config", elsewhere / "moved" / "run.toml", "--out",
                  elsewhere / "moved", "--json")  # fmt: skip
    assert "evaluate" in json.loads(kept.stdout)["resumed"], kept.stderr


def test_options_of_a_run_on_objects_ask_for_files(elsewhere, tmp_path):
    (tmp_path / "run.toml").write_text('log = "<an object of Python>"\ntrees = 3\n')
    refused = invoke("run", "--config", tmp_path / "run.toml")
    assert refused.exit_code == 2
    assert "was given log as an object" in refused.stderr
