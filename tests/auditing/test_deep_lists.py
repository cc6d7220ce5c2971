"""One deep row, and lists that go down to the end, cost memory that fits anywhere."""

import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import untilt as ut
from untilt.clickmodels.examination import MOST_CONDITIONS
from untilt.clickmodels.examination_curve import comparable
from untilt.data.counts import PositionCounts, position_counts
from untilt.data.limits import DEEPEST, DroppedRowsWarning
from untilt.errors import IdentifiabilityError, MemoryLimitError

MB = 2**20


def log_of(length, n_queries, sessions_per_query, seed=0, deep=None):
    """Lists in slightly different orders; with `deep`, the last row of the first list is there."""
    rng = np.random.default_rng(seed)
    n_lists = n_queries * sessions_per_query
    query = np.repeat(np.arange(n_queries), sessions_per_query)
    order = np.argsort(np.arange(length) + 2 * rng.normal(size=(n_lists, length)), axis=1)
    document = order + length * query[:, None]
    relevance = rng.uniform(0.1, 0.9, size=n_queries * length)
    position = np.tile(np.arange(1, length + 1), (n_lists, 1))
    click = rng.random((n_lists, length)) < relevance[document] / position**0.3
    if deep is not None:
        position[0, -1] = deep
    return ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(length), n_queries),
        doc_query=np.repeat(np.arange(n_queries), length),
        indptr=np.arange(n_lists + 1) * length,
        query=query,
        document=document.ravel(),
        position=position.ravel(),
        label=click.ravel(),
    )


def peak_of(work):
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()


def test_one_row_at_position_30_000_changes_nothing_but_its_own_row():
    with pytest.warns(DroppedRowsWarning, match="30,000"):
        log = log_of(6, 40, 10, deep=30_000)
    found, peak = peak_of(lambda: ut.audit(log))
    assert peak < 100
    assert found.graph.depth == 6


def test_one_row_at_the_deepest_position_costs_little():
    log = log_of(6, 40, 10, deep=DEEPEST)
    assert log.depth == DEEPEST
    found, peak = peak_of(lambda: ut.audit(log, depth=DEEPEST))
    # A few tables of 8 MB.
    assert peak < 200
    assert found.graph.depth == DEEPEST
    bias, peak = peak_of(lambda: ut.RegressionEM().fit(log).bias_)
    assert peak < 100
    assert bias.depth == DEEPEST


@pytest.mark.parametrize("length", [1_500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_lists_are_cut(length):
    with pytest.warns(DroppedRowsWarning, match="below position 1,000"):
        log = log_of(length, 1, 2)
    assert log.depth == DEEPEST
    graph, peak = peak_of(lambda: ut.position_graph(log))
    assert peak < 150
    assert graph.depth == DEEPEST


def conditions_of_ubm(depth):
    return depth * (depth + 1) // 2


def test_ubm_learns_only_the_conditions_that_occur():
    log = log_of(200, 2, 4)
    assert conditions_of_ubm(log.depth) > MOST_CONDITIONS
    model, peak = peak_of(lambda: ut.UBM(max_steps=20).fit(log))
    # Tables of all 20,100 conditions would take 3.2 GB each.
    assert peak < 100
    assert model.examination_.shape == (200, 200)
    lower = np.tril(np.ones((200, 200), dtype=bool))
    assert np.all((model.examination_[lower] > 0) & (model.examination_[lower] <= 1))


def test_ubm_says_where_its_curve_has_too_many_conditions(monkeypatch):
    monkeypatch.setattr("untilt.clickmodels.examination.MOST_CONDITIONS", 5)
    model = ut.UBM(max_steps=20).fit(log_of(4, 40, 20))
    with pytest.raises(IdentifiabilityError, match="at most 5"):
        assert model.bias_


def comparable_slowly(counts: PositionCounts) -> list[bool]:
    """By the table of pairs: [i, j] where a document clicked in i was shown in j, and its paths."""
    depth = counts.depth
    edge = np.zeros((depth, depth), dtype=bool)
    for d in range(counts.n_documents):
        cells = range(counts.indptr[d], counts.indptr[d + 1])
        for a in cells:
            for b in cells:
                if counts.clicks[a] > 0:
                    edge[counts.position[a] - 1, counts.position[b] - 1] = True
    path = edge | np.eye(depth, dtype=bool)
    for k in range(depth):
        path |= path[:, [k]] & path[[k], :]
    joined = path[0] & path[:, 0]
    clicked = counts.by_position(counts.clicks) > 0
    return list((joined & clicked) | (~clicked & edge[joined].any(axis=0)))


@pytest.mark.parametrize("seed", range(8))
def test_comparable_conditions_are_those_of_the_table_of_pairs(seed):
    rng = np.random.default_rng(seed)
    log = log_of(6, 3, 2, seed=seed)
    label = (rng.random(len(log.label)) < 0.15).astype(float)
    counts = position_counts(log.with_label(label))
    assert list(comparable(counts)) == comparable_slowly(counts)


def test_pairs_of_long_lists_that_cannot_fit_are_refused(monkeypatch):
    log = log_of(300, 2, 4)
    table = np.random.default_rng(0).normal(size=(log.n_documents, 2))
    features = {"features": table, "feature_names": ("a", "b")}
    monkeypatch.setenv("UNTILT_MEMORY_LIMIT", "16MB")
    with pytest.raises(MemoryLimitError, match="counts every pair of every list"):
        ut.PairwiseTrustRanker().fit(replace(log, **features))


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 * 10**9,) * 2)
from typer.testing import CliRunner
from untilt.cli.main import app
log = sys.argv[1]
for command in (["audit", log], ["bias", log], ["plan", log, "--sessions-per-day", "1000"],
                ["clickmodels", log], ["split", log, "--out", sys.argv[2]]):
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, (command, result.output, result.exception)
    assert "30,000" in result.output, (command, result.output)
"""


def test_commands_under_a_limit_of_memory(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "clicks.parquet"
    ut.write_log(log_of(5, 30, 30), path)
    rows = pq.read_table(path)
    deep = {**rows.slice(0, 1).to_pydict(), "position": [30_000]}
    pq.write_table(pa.concat_tables([rows, pa.table(deep, schema=rows.schema)]), path)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(tmp_path / "parts")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
