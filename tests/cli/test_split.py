"""`untilt split`, and that what comes after it is told to people who skipped it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from untilt.cli.main import app
from untilt.data.letor.read_letor import read_letor
from untilt.data.letor.write_letor import write_letor
from untilt.data.read.read_log import read_log
from untilt.data.write_log import write_log
from untilt.rankers.linear.linear import LinearRanker
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("split")
    judged = make_judged(60, 5, seed=0)
    write_letor(judged, folder / "judged.txt")
    log = simulate(judged, "dla", n_sessions=1_500, seed=0, n_threads=1).log
    write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    write_log(log, folder / "wide.parquet", drop_unshown=True)
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def facts(*words: object) -> dict:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def both(folder: Path, **options):
    return [read_log(folder / f"{name}.parquet", **options) for name in ("train", "test")]


def test_by_query_nothing_is_shared_and_nothing_is_lost(made, tmp_path):
    found = facts(
        "split", made / "clicks.parquet", "--documents", made / "documents.parquet", "--out",
        tmp_path, "--share", 0.7, "--seed", 3,
    )  # fmt: skip
    whole = read_log(made / "clicks.parquet", documents=made / "documents.parquet")
    train, test = (
        read_log(tmp_path / f"{name}.parquet", documents=tmp_path / f"{name}-documents.parquet")
        for name in ("train", "test")
    )
    expected, _ = whole.split(0.7, seed=3)
    ids = set(train.query_id[np.unique(train.query)].tolist())
    assert ids == set(expected.query_id[np.unique(expected.query)].tolist())
    assert not ids & set(test.query_id[np.unique(test.query)].tolist())
    assert train.n_sessions + test.n_sessions == whole.n_sessions == 1_500
    assert train.label @ train.row_count + test.label @ test.row_count == pytest.approx(
        whole.label @ whole.row_count
    )
    assert train.n_documents + test.n_documents == whole.n_documents
    assert not set(train.query_id) & set(test.query_id)
    assert found["queries_in_both"] == 0
    assert found["parts"]["train"]["sessions"] == train.n_sessions
    assert found["parts"]["test"]["queries"] == len(np.unique(test.query))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "test-documents.parquet", "test.parquet", "train-documents.parquet", "train.parquet",
    ]  # fmt: skip


def test_features_inside_the_log_stay_there(made, tmp_path):
    facts("split", made / "wide.parquet", "--features", "f*", "--out", tmp_path, "--by", "session")
    train, test = both(tmp_path, features="f*")
    assert train.n_sessions == 1_200
    assert test.n_sessions == 300
    assert train.n_features == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_by_time_the_earliest_are_trained_on(tmp_path):
    rows = ["query_id,session_id,doc_id,position,click,timestamp"]
    rows += [f"q{s % 2},{s},d{p},{p},{int(p == 1)},{100 - s}" for s in range(10) for p in (1, 2)]
    (tmp_path / "clicks.csv").write_text("\n".join(rows))
    found = facts("split", tmp_path / "clicks.csv", "--by", "time", "--out", tmp_path / "parts")
    train, test = both(tmp_path / "parts", collapse=False)
    assert train.time.max() < test.time.min()
    assert (train.n_sessions, test.n_sessions) == (8, 2)
    assert found["queries_in_both"] == 2


def test_labels_are_split_by_query(made, tmp_path):
    found = facts("split", made / "judged.txt", "--letor", "--out", tmp_path)
    parts = [read_letor(tmp_path / f"{name}.txt") for name in ("train", "test")]
    assert [part.n_queries for part in parts] == [48, 12]
    assert sum(len(part) for part in parts) == len(read_letor(made / "judged.txt"))
    assert not set(parts[0].query_id) & set(parts[1].query_id)
    assert found["parts"]["test"]["documents"] == len(parts[1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--by", "time"], "there is no column timestamp"),
        (["--share", "1.5"], "--share must lie between 0 and 1"),
        (["--share", "0.001"], "train.parquet would hold no session"),
    ],
)
def test_bad_input_is_explained_and_writes_nothing(made, tmp_path, words, message):
    result = run("split", made / "clicks.parquet", "--out", tmp_path / "parts", *words)
    assert result.exit_code == 2
    assert message in result.output.replace("\n", " ")
    assert not (tmp_path / "parts").exists()


def test_evaluating_on_the_training_log_is_told_and_can_be_mended(made, tmp_path):
    log = (made / "clicks.parquet", "--documents", made / "documents.parquet")
    run("split", *log, "--out", tmp_path)
    train = read_log(tmp_path / "train.parquet", documents=tmp_path / "train-documents.parquet")
    LinearRanker(max_rounds=3).fit(train).save(tmp_path / "new.untilt")
    words = ("--bias", "eye-tracking", "--ranker", tmp_path / "new.untilt")
    said = run("evaluate", *log, *words)
    assert "trained on" in said.output
    assert "--held-out" in said.output
    test = (tmp_path / "test.parquet", "--documents", tmp_path / "test-documents.parquet")
    apart, taken = facts("evaluate", *test, *words), facts("evaluate", *log, *words, "--held-out")
    assert taken["systems"]["new"]["value"] == pytest.approx(apart["systems"]["new"]["value"])
    # Some queries have no session, and only what has some can be trained on.
    assert taken["held_out_queries"] == taken["systems"]["new"]["n_queries"] < 12
    labels = facts(
        "evaluate", made / "judged.txt", "--letor", "--metric", "map", *words[2:], "--held-out"
    )
    assert labels["systems"]["new"]["map"]["n_queries"] == 60 - len(np.unique(train.query))
    told = facts("evaluate", made / "judged.txt", "--letor", "--metric", "map", *words[2:])
    assert len(told["warnings"]["new"]) == 1
