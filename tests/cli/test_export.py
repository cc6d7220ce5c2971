"""`untilt export`, as a user runs it."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import untilt as ut
from untilt.cli.main import app


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    judged = ut.make_judged(40, 5, seed=0)
    judged = replace(judged, features=judged.features - judged.features.min(axis=0))
    ut.LambdaMART(n_trees=5, n_threads=1).fit(judged).save(folder / "ranker.untilt")
    query = np.repeat(judged.query_id, np.diff(judged.indptr))
    columns = dict(zip(judged.feature_names, judged.features.T, strict=True))
    pq.write_table(pa.table({"query_id": query, **columns}), folder / "documents.parquet")
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("to", ["es-ltr", "solr", "vespa", "xgboost"])
def test_files_and_commands_and_no_difference(made, tmp_path, to) -> None:
    out = tmp_path / "shop.json"
    words = ("export", made / "ranker.untilt", "--to", to, "--out", out)
    result = run(*words, "--check", made / "documents.parquet", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["to"] == to
    assert told["check"]["holds"]
    assert told["check"]["lists"] == 40
    assert (told["check"]["rows_that_differ"], told["check"]["lists_reordered"]) == (0, 0)
    assert all(Path(each).exists() for each in [told["model"], *told["files"]])
    assert bool(told["commands"]) == (to != "xgboost")
    people = run(*words, "--check", made / "documents.parquet")
    assert "lists whose order changes" in people.stdout
    if to == "es-ltr":
        assert "_createmodel" in people.stdout
        assert "left as it is, since it may be filled in" in people.stdout


def test_a_model_that_scores_otherwise_ends_with_4(made, tmp_path, monkeypatch) -> None:
    from untilt.exports import forms

    monkeypatch.setattr(forms, "next32", lambda cut: cut - 1)
    words = ("export", made / "ranker.untilt", "--to", "es-ltr", "--out", tmp_path / "m.json")
    result = run(*words, "--check", made / "documents.parquet", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stdout)["check"]["rows_that_differ"] > 0


def test_negative_features_end_with_4_and_are_said_first(made, tmp_path) -> None:
    table = pq.read_table(made / "documents.parquet")
    low = table.set_column(1, "f1", pa.compute.subtract(table["f1"], 3.0))
    pq.write_table(low, tmp_path / "low.parquet")
    words = ("export", made / "ranker.untilt", "--to", "es-ltr", "--out", tmp_path / "m.json")
    result = run(*words, "--check", tmp_path / "low.parquet")
    assert result.exit_code == 4
    assert result.stdout.index("will not work") < result.stdout.index("the same scores?")
    assert run(*words, "--check", made / "documents.parquet").exit_code == 0


@pytest.mark.parametrize("better", [False, True])
def test_a_candidate_that_its_run_does_not_ship_is_warned_of(
    made, tmp_path, monkeypatch, better
) -> None:
    """The run's figures say so, where they lie beside the candidate."""
    from untilt.report import decision

    (tmp_path / "candidate.untilt").write_bytes((made / "ranker.untilt").read_bytes())
    words = ("export", tmp_path / "candidate.untilt", "--to", "xgboost", "--json")
    alone = run(*words, "--out", tmp_path / "alone.json")
    assert "export.not-shipped" not in alone.stdout
    (tmp_path / "figures.json").write_text("{}")
    answer = SimpleNamespace(verdict="better" if better else "cannot tell")
    found = SimpleNamespace(ships=float(better), answer=answer, old_order="logged order")
    monkeypatch.setattr(decision.Decision, "load", lambda _: found)
    told = json.loads(run(*words, "--out", tmp_path / "model.json").stdout)
    texts = [each["text"] for each in told["notes"] if each["code"] == "export.not-shipped"]
    assert texts == [] if better else "'cannot tell', and the logged order stays" in texts[0]


def test_a_sample_under_other_names_is_never_one_list(made, tmp_path) -> None:
    table = pq.read_table(made / "documents.parquet")
    pq.write_table(
        table.rename_columns(["search_term", *table.column_names[1:]]), tmp_path / "named.parquet"
    )
    words = ("export", made / "ranker.untilt", "--out", tmp_path / "m.c")
    result = run(*words, "--check", tmp_path / "named.parquet")
    assert result.exit_code == 2
    assert "--column query_id=YOUR_COLUMN" in " ".join(result.stderr.split())
    mapped = ("--column", "query_id=search_term", "--json")
    result = run(*words, "--check", tmp_path / "named.parquet", *mapped)
    assert json.loads(result.stdout)["check"]["lists"] == 40
    assert "Give --check too" in " ".join(run(*words, *mapped).stderr.split())


def test_no_file_beside_the_model_replaces_an_input(made, tmp_path) -> None:
    (tmp_path / "m.query.json").write_bytes((made / "ranker.untilt").read_bytes())
    result = run(
        "export", tmp_path / "m.query.json", "--to", "es-ltr", "--out", tmp_path / "m.json"
    )
    assert result.exit_code == 2
    assert "is what is read" in result.stderr
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "m.json"), "Say which: --to es-ltr"),
        (("--out", "m.txt", "--to", "solr"), "ends in .json"),
        (("--out", "m.json", "--to", "solar"), "Did you mean 'solr'"),
        (("--out", "m.json", "--to", "solr", "--name", "a b"), "'a_b' would do"),
        (("--out", "m.c", "--check", "gone.parquet"), "there is no such file"),
    ],
)
def test_bad_options_end_with_2_and_a_sentence(made, tmp_path, monkeypatch, words, message) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("export", made / "ranker.untilt", *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())


# ---- untilt judgments


@pytest.fixture(scope="module")
def clicks(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("judgments")
    judged = ut.make_judged(20, 4, seed=0)
    log = ut.simulate(judged, n_sessions=400, seed=0).log
    ut.write_log(log, folder / "clicks.parquet", drop_unshown=True)
    return folder / "clicks.parquet"


def test_judgments_are_written_with_what_they_mean(clicks, tmp_path) -> None:
    out = tmp_path / "shop.json"
    result = run("judgments", clicks, "--bias", "power-law:1", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["to"] == "opensearch"
    body = json.loads(out.read_text())
    assert len(body["judgmentRatings"]) == told["queries"]
    assert sum(len(each["ratings"]) for each in body["judgmentRatings"]) == told["documents"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "j.json"), "Give a curve, such as that of an experiment (--bias FILE"),
        (("--out", "j.xml", "--bias", "none"), "Got 'j.xml'"),
        (("--out", "j.csv", "--bias", "none", "--to", "qrels"), "ends in .qrels or .txt"),
        (("--out", "j.csv", "--bias", "none", "--level", "2"), "--level must lie between 0 and 1"),
    ],
)
def test_judgments_refuse_with_a_sentence(clicks, tmp_path, monkeypatch, words, message) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("judgments", clicks, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not list(tmp_path.iterdir())
