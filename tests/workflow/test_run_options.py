"""Options: one list of names, checked before any work; TOML and lengths of time."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import untilt as ut
from untilt.bias.given import parse_curve
from untilt.errors import FileFormatError, OptionError, UntiltError
from untilt.facts import codes
from untilt.report.step_results import TrainingPlan
from untilt.workflow.candidates import candidate
from untilt.workflow.config import OBJECT, config_text, read_config
from untilt.workflow.options import (
    RunOptions,
    duration_text,
    options_of,
    seconds_of,
    usual_methods,
)
from untilt.workflow.stage_bias import bias_choice
from untilt.workflow.stage_rankers import Speed, plan_within


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrik": "arp"}, "has no option 'metrik'. Did you mean 'metric'"),
        ({"method": "balansed"}, "method must be one of .* Did you mean 'balanced'"),
        ({"metric": "ndgc@10"}, "Got 'ndgc' instead. Did you mean 'ndcg'"),
        ({"evaluator": "snip"}, "evaluator must be one of .* Did you mean 'snips'"),
        ({"bias": "all-pears"}, "no such file. Did you mean 'all-pairs'"),
        ({"bias": "power-law:x"}, "power-law needs a number"),
        ({"bias": 3}, "bias must be 'auto'.* Got int"),
        ({"fallback": "pivot-swap"}, "a given curve is one of power-law"),
        ({"time_limit": "ten minutes"}, "such as 90s, 10m or 1h30m. Got 'ten minutes'"),
        ({"time_limit": 0}, "time_limit must be above 0"),
        ({"trees": 0}, "trees must be 'auto' or a whole number from 1 to .* Got 0"),
        ({"test_share": 1.5}, "test_share must lie between 0 and 1"),
        ({"test_share": 0.5, "valid_share": 0.5}, "leave too little to learn from"),
        ({"level": 95}, "level must lie between 0 and 1"),
        ({"clip": "some"}, "clip must be 'auto' or a number"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_read(options, message, tmp_path):
    with pytest.raises(OptionError, match=message):
        ut.run(tmp_path / "no such log", tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_raw_clicks_are_always_among_the_methods():
    assert options_of({"method": "prs"}).method == ("clicks", "prs")
    assert options_of({"method": ["naive", "prs", "prs"]}).method == ("clicks", "prs")
    assert options_of({"method": ["usual", "ips"]}).method == (*usual_methods(), "ips")


def test_a_baseline_is_text_or_several_names(tmp_path):
    assert options_of({}).baseline is None
    assert options_of({"baseline": "ranker=one,two"}).baseline == "ranker=one,two"
    several = options_of({"baseline": ["one", "two"]})
    assert several.baseline == ("one", "two")
    (tmp_path / "run.toml").write_text(config_text(several))
    assert options_of(read_config(tmp_path / "run.toml")).baseline == ("one", "two")


def test_toml_there_and_back(tmp_path):
    options = options_of(
        {
            "columns": {"query_id": "srch id", "click": 'a"b', "count": None},
            "features": ["f_*", "price"],
            "positions_from": 0,
            "time-limit": "1h30m",
            "method": ["prs"],
            "missing": -1.5,
            "title": "Ünïted \\ hotels",
        }
    )
    path = tmp_path / "run.toml"
    path.write_text(config_text(options, log="clicks.csv"), encoding="utf8")
    found = read_config(path)
    assert found.pop("log") == str(Path.cwd() / "clicks.csv")
    assert options_of(found) == options


@pytest.mark.parametrize(
    ("log", "places"),
    [
        ("clicks/*.parquet", lambda f: str(f / "clicks/*.parquet")),
        (["a.csv", "b.csv"], lambda f: [str(f / "a.csv"), str(f / "b.csv")]),
        (("web.duckdb", "clicks"), lambda f: (str(f / "web.duckdb"), "clicks")),
    ],
    ids=["pattern", "list", "table of a database"],
)
def test_any_place_of_a_log_is_written_and_found_again(tmp_path, monkeypatch, log, places):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given.json").write_text("{}")
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "run.toml"
    options = options_of({"bias": "given.json", "documents": log})
    path.write_text(config_text(options, log=log))
    monkeypatch.chdir(tmp_path.parent)
    found = read_config(path)
    assert found["log"] == found["documents"] == places(tmp_path)
    assert found["bias"] == str(tmp_path / "given.json")


def test_what_was_no_file_is_said_to_have_been_none():
    text = config_text(options_of({"features": str.isalpha, "bias": np.ones(3)}), log=object())
    assert f'log = "{OBJECT}"' in text
    assert f'features = "{OBJECT}"' in text
    assert 'bias = "bias.json"' in text  # which a run writes beside it


def test_paths_in_a_file_are_relative_to_it(tmp_path):
    (tmp_path / "bias.json").write_text("{}")
    (tmp_path / "run.toml").write_text('log = "a.csv"\ndocuments = "b.csv"\nbias = "bias.json"\n')
    found = read_config(tmp_path / "run.toml")
    assert set(found.values()) == {str(tmp_path / name) for name in ("a.csv", "b.csv", "bias.json")}


def test_unknown_keys_and_broken_files(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("tree = 3\n")
    with pytest.raises(OptionError, match=r"unknown key 'tree'\. Did you mean 'trees'"):
        read_config(path)
    path.write_text("trees: 3\n")
    with pytest.raises(FileFormatError, match="is not TOML"):
        read_config(path)


def test_lengths_of_time():
    assert seconds_of("1h 30m 5s") == 3600 + 30 * 60 + 5
    assert seconds_of("0.5d") == 43200
    assert duration_text(seconds_of("90m")) == "1 h 30 min"
    for wrong in ("", "m", "5 parsecs", "10m?"):
        with pytest.raises(OptionError):
            seconds_of(wrong)


# ---- time limits: a second before the first tree, 0.1 s per tree, DEAR trainings for "auto"

DEAR = candidate("auto").cost


def plan(seconds, trees=300, method=("clicks", "balanced", "prs", "auto")):
    return plan_within(TrainingPlan(method, trees), Speed(1.0, 0.1), seconds, limit=600)


def test_enough_time_cuts_nothing():
    # So many trainings of 1 + 30 seconds.
    assert plan((3 + DEAR) * 31) == TrainingPlan(("clicks", "balanced", "prs", "auto"), 300)


def test_less_time_means_fewer_trees():
    found = plan((3 + DEAR) * 21)
    assert (found.method, found.trees) == (("clicks", "balanced", "prs", "auto"), 200)
    assert codes(found.warnings) == ["run.fewer-trees"]
    assert dict(found.warnings[0].fields) == {"limit": "10 min 0 s", "trees": 200, "wanted": 300}


def test_still_less_time_drops_candidates_and_the_default_last():
    # 100 trees take 11 seconds.
    assert plan((2 + DEAR) * 11).method == ("clicks", "balanced", "auto")
    found = plan((1 + DEAR) * 11)
    assert (found.method, found.trees) == (("clicks", "auto"), 100)
    assert codes(found.warnings) == ["run.fewer-trees", "run.candidates-dropped"]
    assert found.warnings[1].fields["candidates"] == ("balanced", "prs")


def test_where_the_default_is_too_dear_the_next_one_is_trained():
    found = plan(52)  # two of 250 trees; 44 of these seconds give the default no 100 trees
    assert (found.method, found.trees) == (("clicks", "balanced"), 250)
    assert found.warnings[1].fields["candidates"] == ("prs", "auto")


def test_where_the_default_is_alone_and_too_dear_balanced_is_trained():
    found = plan(52, method=("clicks", "auto"))
    assert (found.method, found.trees) == (("clicks", "balanced"), 250)
    assert found.warnings[1].fields["candidates"] == ("auto",)
    assert plan(52, method=("clicks",)).method == ("clicks",)


def test_a_number_of_trees_takes_the_place_of_a_choice_that_takes_too_long():
    choosing = 3 * (3 + DEAR) * 31
    assert plan(choosing, trees="auto").trees == "auto"
    found = plan(0.6 * choosing, trees="auto")
    assert found.trees == 300
    assert dict(found.warnings[0].fields) == {
        "limit": "10 min 0 s",
        "trees": 300,
        "wanted": "a number chosen on held-out queries",
    }
    assert plan(60, trees="auto").method == plan(60).method


def test_folds_and_the_last_training_need_their_time():
    # Five folds of two candidates, and one training that is 5/4 as long: 11.25 of 21 seconds.
    speed, wanted = Speed(1.0, 0.1, rounds=5, last=1.25), TrainingPlan(("clicks", "balanced"), 300)
    assert plan_within(wanted, speed, 11.25 * 21 + 0.01, limit=600).trees == 200


def test_no_time_leaves_two_small_rankers():
    found = plan(0.5)
    assert (found.method, found.trees) == (("clicks", "balanced"), 10)


# ---- files of options that somebody else wrote

ODD = [
    "0", "-1", "1.5", "nan", "inf", "true", '""', '"x"', "[]", "[[]]", "[1]", '["x", 2]', "{}",
    "{ a = 1 }", "1979-05-27", "9" * 400, '"' + "x" * 5000 + '"', '"\\u0000"', '"power-law:x"',
    "{ database = 1, table = 2 }",
]  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in fields(RunOptions)] + ["log", "out"])
def test_any_value_of_an_option_is_taken_or_refused(name, tmp_path):
    path = tmp_path / "run.toml"
    for value in ODD:
        path.write_text(f"{name} = {value}\n")
        try:
            read = read_config(path)
            options = options_of({k: v for k, v in read.items() if k not in ("log", "out")})
            bias_choice(options.bias)
            parse_curve(options.fallback)
        except (UntiltError, OSError):  # a name of 5,000 letters is none to the operating system
            continue


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, "trees = " + "9" * 5000, "\xff", "trees = 3\n" * 2, "{}", "\0"]
)
def test_a_damaged_file_of_options_is_refused(text, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FileFormatError, match=r"run\.toml is not TOML"):
        read_config(path)
