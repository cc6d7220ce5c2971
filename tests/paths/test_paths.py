"""The ways of five users from the first command to what they came for, on small logs.

Each test is a script of commands (or of Python, for those who use it) and ends at the result.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder for each user."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def untilt(*words: object, exit_code: int = 0) -> str:
    """What a command prints; it ends with this code."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "80"})
    assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
    return " ".join((result.stdout if exit_code == 0 else result.output).split())


def facts(*words: object, exit_code: int = 0) -> dict:
    result = CliRunner().invoke(app, [*(str(word) for word in words), "--json"])
    assert result.exit_code == exit_code, (result.stdout, result.stderr, result.exception)
    return json.loads(result.stdout)


def shop(path: Path, *, n_queries=60, sessions=4000, seed=0) -> None:
    """A shop's export with its own names: three rankers, two devices that read differently."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_queries, 8, 3))
    relevance = 1 / (1 + np.exp(1.2 - features @ [1.5, 0.8, 0.0]))
    query = rng.integers(n_queries, size=sessions)
    ranker = rng.integers(3, size=sessions)
    steep = np.where(rng.random(sessions) < 0.5, 0.5, 1.2)
    old = np.argsort(-(features[:, :, 0] + rng.normal(size=(3, n_queries, 8))), axis=2)
    shown = old[ranker, query]
    k = np.arange(1, 9)
    clicked = rng.random(shown.shape) < k ** -steep[:, None] * relevance[query[:, None], shown]
    rows = pd.DataFrame({
        "search_term": np.repeat(query, 8), "visit": np.repeat(np.arange(sessions), 8),
        "sku": shown.ravel() + 8 * np.repeat(query, 8), "slot": np.tile(k - 1, sessions),
        "was_clicked": clicked.ravel().astype(int),
        "bucket": np.char.add("r", np.repeat(ranker, 8).astype(str)),
        "device": np.where(np.repeat(steep, 8) < 1, "pc", "phone"),
    })  # fmt: skip
    rows.to_csv(path / "shop.csv", index=False)
    pd.DataFrame({
        "search_term": np.repeat(np.arange(n_queries), 8), "sku": np.arange(8 * n_queries),
        "match": features[:, :, 0].ravel() + 5, "rating": features[:, :, 1].ravel() + 5,
        "noise": features[:, :, 2].ravel() + 5,
    }).to_csv(path / "documents.csv", index=False)  # fmt: skip


NAMES = """
documents = "documents.csv"
positions-from = 0
[columns]
query_id = "search_term"
session_id = "visit"
doc_id = "sku"
position = "slot"
click = "was_clicked"
ranker = "bucket"
[run]
method = ["balanced"]
trees = 20
folds = 3
threads = 1
"""


def test_a_search_engineer_goes_from_a_csv_to_a_model_in_an_engine(folder):
    shop(folder)
    assert "--column query_id=" in untilt("audit", "shop.csv", exit_code=2)
    (folder / "untilt.toml").write_text(NAMES)
    audited = facts("audit", "shop.csv", "--context", "device")
    assert "audit.use-by-context" in str(audited) or audited["advice"]["estimator"]
    told = untilt("run", "shop.csv", "--out", "decision", "--fail-unless", "better")
    assert "The answer: better" in told
    assert json.loads((folder / "decision" / "figures.json").read_text())
    untilt("export", "decision/ranker.untilt", "--to", "es-ltr", "--out", "model.json")
    assert json.loads((folder / "model.json").read_text())


def test_a_scheduler_reads_the_verdict_from_the_exit_code(folder):
    shop(folder, n_queries=8, sessions=80)
    (folder / "untilt.toml").write_text(NAMES)
    words = ("run", "shop.csv", "--out", "decision", "--fail-unless", "better")
    answer = facts(*words, exit_code=5)["answer"]
    assert answer is None or answer["verdict"] != "better"
    assert facts("run", "gone.csv", exit_code=2)["error"]["exit_code"] == 2


def test_a_data_scientist_reads_sparse_logs_with_times_and_gaps(folder):
    """One session per query and a time; then pages whose position 3 shows no result."""
    rng = np.random.default_rng(1)
    columns = ["query_id", "session_id", "doc_id", "position", "click", "timestamp"]
    rows = [[s, s, k, k, int(rng.random() < 0.3), s] for s in range(80) for k in range(1, 6)]
    pd.DataFrame(rows, columns=columns).to_csv("sparse.csv", index=False)
    assert facts("audit", "sparse.csv")["size"]["sessions"] == 80
    lists: list[list[object]] = []
    for s in range(3000):
        query, order = rng.integers(30), rng.permutation(6)
        for k, document in zip((1, 2, 4, 5, 6, 7), order, strict=True):
            click = int(rng.random() < k**-0.8 * (0.2 + 0.1 * document))
            lists.append([query, s, document, k, click, "shuffle"])
    pd.DataFrame(lists, columns=[*columns[:5], "ranker"]).to_csv("gaps.csv", index=False)
    found = facts("bias", "gaps.csv")
    assert found["positions"] == [1, 2, 4, 5, 6, 7]
    at = np.array(found["positions"])
    low, high = (np.array(found[end], float)[at - 1] for end in ("low", "high"))
    assert np.all((low <= 1.1 * at**-0.8) & (0.9 * at**-0.8 <= high))


def test_an_engineer_with_lightgbm_adds_the_correction(folder):
    lightgbm = pytest.importorskip("lightgbm")
    judged, test = ut.make_judged(120, 6, seed=0).split(0.7)
    log = ut.simulate(judged, "dla", sessions_per_query=60, seed=0).log
    options = {"num_leaves": 15, "num_threads": 1, "verbosity": -1}
    scores = {}
    for name, weighting in {"raw": ut.Naive(), "corrected": ut.PRS(ut.EyeTracking())}.items():
        objective = ut.objective(log, weighting)
        data = ut.lightgbm_dataset(log)
        model = lightgbm.train({**options, "objective": objective}, data, num_boost_round=30)
        found = ut.evaluate(test, model.predict(test.features), metrics=["ndcg@10"])
        scores[name] = found["ndcg@10"].value
    assert scores["corrected"] > scores["raw"]


def test_a_platform_engineer_serves_collects_and_watches(folder):
    from tests.serving.loop import closed_loop

    closed_loop(folder, sessions=150, queries=6)
    days = sorted(folder.rglob("clicks-*.parquet"))
    assert days
    audited = facts("audit", days[0].parent)
    assert audited["size"]["sessions"] > 0
    assert facts("watch", days[0].parent, "--periods", "2")["quiet"] in (True, False)


def test_a_researcher_compares_methods_over_folds(folder):
    judged = ut.make_judged(90, 5, seed=0)
    truth = ut.EyeTracking()
    values: dict[str, list[np.ndarray]] = {"raw": [], "corrected": []}
    for train, test in ut.QueryKFold(3, seed=0).split(judged):
        log = ut.simulate(judged.take(train), "dla", sessions_per_query=60, seed=0).log
        for name, weighting in {"raw": ut.Naive(), "corrected": ut.PRS(truth)}.items():
            ranker = ut.LambdaMART(weighting=weighting, n_trees=20, n_threads=1).fit(log)
            found = ut.evaluate(judged.take(test), ranker, metrics=["ndcg@10"])
            values[name].append(found["ndcg@10"].per_query)
    gain = np.concatenate(values["corrected"]) - np.concatenate(values["raw"])
    assert np.nanmean(gain) > -0.02
    assert len(gain) == judged.n_queries
