"""Simulated logs on disk: the very log of `simulate`, whatever the chunks, whole or not at all."""

import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from untilt import JudgedLists, catalog, read_log, simulate
from untilt.errors import OptionError
from untilt.simulation.simulate import simulate_to_parquet

PROTOCOLS = [record.load() for record in catalog.methods("protocol")]
KINDS = pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.name)


@KINDS
def test_rows_are_those_of_the_log_in_memory(judged, tmp_path, kind):
    files = simulate_to_parquet(judged, tmp_path, kind(), n_sessions=700, seed=3, chunk_sessions=99)
    log = simulate(judged, kind(), n_sessions=700, seed=3, collapse=False).log
    rows = pq.read_table(files.log).to_pydict()
    session = np.repeat(log.time, np.diff(log.indptr))
    assert rows["session_id"] == rows["timestamp"] == session.tolist()
    assert rows["query_id"] == log.query_id[log.query[session]].tolist()
    assert rows["doc_id"] == log.doc_id[log.document].tolist()
    assert rows["position"] == log.position.tolist()
    click = log.extra_labels.get("click", log.label)
    assert rows["click"] == click.tolist()
    assert rows.get("dwell") == (log.label.tolist() if kind.name == "dwell" else None)
    names = [log.ranker_names[r] for r in log.ranker[session]] if log.ranker_names else None
    assert rows.get("ranker") == names
    assert (files.n_sessions, files.n_impressions) == (700, log.n_impressions)
    assert files.n_clicks == click.sum()


@KINDS
def test_chunks_and_threads_change_nothing(judged, tmp_path, kind):
    one = simulate_to_parquet(judged, tmp_path / "a", kind(), n_sessions=400, n_threads=1)
    two = simulate_to_parquet(
        judged, tmp_path / "b", kind(), n_sessions=400, chunk_sessions=37, n_threads=2
    )
    assert pq.read_table(one.log).equals(pq.read_table(two.log))
    assert pq.read_table(one.documents).equals(pq.read_table(two.documents))
    np.testing.assert_allclose(one.truth.examination, two.truth.examination)


@pytest.mark.parametrize("name", ["dla", "swap", "dwell", "cascade"])
def test_reading_it_back_gives_the_log(judged, tmp_path, name):
    files = simulate_to_parquet(judged, tmp_path, name, n_sessions=900)
    sim = simulate(judged, name, n_sessions=900)
    label = sim.log.label_name
    extra = ["click"] if label == "dwell" else []
    read = read_log(files.log, documents=files.documents, label=label, labels=extra)
    assert (read.n_sessions, read.n_lists) == (sim.log.n_sessions, sim.log.n_lists)
    assert (read.n_documents, read.n_features) == (sim.log.n_documents, sim.log.n_features)
    assert read.label @ read.row_count == pytest.approx(sim.log.label @ sim.log.row_count)
    assert sorted(read.ranker_names) == sorted(
        {sim.log.ranker_names[r] for r in sim.log.ranker} if sim.log.ranker_names else ()
    )
    for a, b in ((read, sim.log), (sim.log, read)):
        rates, others = a.ctr_by_position(), b.ctr_by_position()
        np.testing.assert_allclose(rates.rate, others.rate)
    # The truth speaks of documents in the order of the documents file.
    ids = pq.read_table(files.documents, columns=["query_id", "doc_id"])
    judged_here = files.truth.judged
    owner = np.repeat(judged_here.query_id, np.diff(judged_here.indptr))
    assert ids["query_id"].to_pylist() == owner.tolist()
    assert ids["doc_id"].to_pylist() == judged_here.doc_id.tolist()


def test_text_ids_stay_text(tmp_path):
    judged = JudgedLists(
        features=np.arange(6.0).reshape(3, 2),
        labels=np.array([0.0, 2, 1]),
        indptr=np.array([0, 2, 3]),
        query_id=np.array(["red shoes", "boots"]),
        doc_id=np.array(["a", "b", "a"]),
        feature_names=("price", "sales"),
    )
    files = simulate_to_parquet(judged, tmp_path, n_sessions=50, ranker=[1.0, 2.0, 3.0])
    rows = pq.read_table(files.log).to_pydict()
    assert set(rows["query_id"]) == {"red shoes", "boots"}
    documents = pq.read_table(files.documents).to_pydict()
    assert documents == {
        "query_id": ["red shoes", "red shoes", "boots"],
        "doc_id": ["a", "b", "a"],
        "price": [0, 2, 4],
        "sales": [1, 3, 5],
    }
    log = read_log(files.log, documents=files.documents)
    assert log.feature_names == ("price", "sales")


def test_clicks_can_be_asked_for(judged, tmp_path):
    files = simulate_to_parquet(judged, tmp_path, "prs", n_clicks=500)
    assert 500 <= files.n_clicks < 600
    assert files.n_sessions == simulate(judged, "prs", n_clicks=500).log.n_sessions


def test_an_interrupted_run_leaves_the_old_files(judged, tmp_path, monkeypatch):
    before = simulate_to_parquet(judged, tmp_path, n_sessions=20)
    old = before.log.read_bytes(), before.documents.read_bytes()
    module = sys.modules[simulate_to_parquet.__module__]
    draw, calls = module.draw_sessions, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(module, "draw_sessions", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate_to_parquet(judged, tmp_path, n_sessions=1000, chunk_sessions=100, seed=1)
    assert (before.log.read_bytes(), before.documents.read_bytes()) == old
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["clicks.parquet", "documents.parquet"]


def test_chunks_of_nothing_are_refused(judged, tmp_path):
    with pytest.raises(OptionError, match="chunk_sessions must be at least 1"):
        simulate_to_parquet(judged, tmp_path, n_sessions=10, chunk_sessions=0)
    with pytest.raises(OptionError, match="give only one of"):
        simulate_to_parquet(judged, tmp_path, n_sessions=10, n_clicks=10)
    assert list(tmp_path.iterdir()) == []
