"""A step as one booster: its scores are the formula, everywhere that scores."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import untilt as ut
from untilt._core.feature_table import OLD_RANK
from untilt.data.slates import slates_of
from untilt.errors import ColumnError, ShapeError
from untilt.exports.format import write_export
from untilt.rankers.score_file import score_file
from untilt.rankers.trees.stepped import RANKS, can_step, stepped

W, OLD_SPREAD = 0.3, 0.8


@pytest.fixture(scope="module")
def log():
    return ut.simulate(ut.make_judged(120, 5, seed=1), "harvest", n_sessions=4000, seed=1).log


@pytest.fixture(scope="module")
def whole(log):
    return ut.LambdaMART(ut.Balanced(ut.PowerLaw(1.0)), n_trees=20, n_threads=1).fit(log)


@pytest.fixture(scope="module")
def ranker(log, whole):
    return stepped(whole, W, log, old="rank", old_spread=OLD_SPREAD)


def new_part(log, whole):
    scores, (slates, _) = whole.predict(log.features), slates_of(log)
    return W * scores / slates.spread(scores[slates.document])


def arriving(log):
    """Ranks by the order of the log's documents, which stand by query."""
    first = np.searchsorted(log.doc_query, log.doc_query)
    return np.column_stack([log.features, np.arange(log.n_documents) - first + 1])


def test_scores_are_the_formula(log, whole, ranker, tmp_path):
    rank = np.random.default_rng(0).integers(1, 2 * RANKS, log.n_documents)
    rows = np.column_stack([log.features, rank])
    old = -np.log(np.minimum(rank, RANKS)) / OLD_SPREAD
    expected = (1 - W) * old + new_part(log, whole)
    assert ranker.predict(rows) == pytest.approx(expected, abs=1e-5)
    assert ranker.feature_names_ == (*whole.feature_names_, OLD_RANK)
    assert OLD_RANK not in whole.feature_names_
    ranker.save(tmp_path / "ranker.untilt")
    again = ut.load(tmp_path / "ranker.untilt")
    assert np.array_equal(again.predict(rows), ranker.predict(rows))
    assert np.array_equal(again.warm_up().predict(rows), ranker.predict(rows))
    assert not can_step(again)
    assert can_step(whole)
    assert not can_step(ut.LinearRanker().fit(log))


def test_an_old_score_is_a_tree_of_its_own_feature(log, whole):
    found = stepped(whole, W, log, old="f2", old_spread=OLD_SPREAD)
    assert found.feature_names_ == whole.feature_names_
    old = log.features[:, 1] / OLD_SPREAD
    expected = (1 - W) * old + new_part(log, whole)
    shown = np.unique(log.document)
    assert np.corrcoef(found.predict(log.features)[shown], expected[shown])[0, 1] > 0.999


def test_without_the_old_rank_it_says_what_that_is(log, ranker):
    with pytest.raises(ShapeError, match="'old_rank' is the rank of each candidate"):
        ranker.predict(log.features)
    with pytest.raises(ColumnError, match="'old_rank' is the rank of each candidate"):
        ut.estimate(log, {"shown": ut.shown, "new": ranker}, ut.PowerLaw(1.0))


@pytest.mark.parametrize("to", ["es-ltr", "solr", "vespa", "xgboost", "lightgbm", "c"])
def test_exports_score_it_alike_and_say_what_they_read(log, ranker, tmp_path, to):
    place = tmp_path / {"lightgbm": "m.txt", "c": "m.c"}.get(to, "m.json")
    written = write_export(ranker, place, to)
    assert "export.reads-old-rank" in [each.code for each in written.notes]
    check = ut.check_export(ranker, place, log, to)
    assert check.holds
    assert (check.rows, check.lists) == (log.n_documents, len(np.unique(log.doc_query)))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_is_scored_in_the_order_of_its_rows(log, ranker, tmp_path, ending):
    rows = np.random.default_rng(1).permutation(log.n_documents)
    query = log.query_id[log.doc_query[rows]]
    table = pa.table(
        {"query_id": query, "doc_id": log.doc_id[rows]}
        | {name: log.features[rows, j] for j, name in enumerate(log.feature_names)}
    )
    file, out = tmp_path / f"documents.{ending}", tmp_path / "scored.parquet"
    (parquet.write_table if ending == "parquet" else csv.write_csv)(table, file)
    score_file(ranker, file, out)
    rank = [int(np.sum(query[: i + 1] == each)) for i, each in enumerate(query)]
    expected = ranker.predict(np.column_stack([log.features[rows], rank]))
    names = zip(query.tolist(), log.doc_id[rows].tolist(), strict=True)
    scores = dict(zip(names, expected.tolist(), strict=True))
    found = parquet.read_table(out).to_pylist()
    assert {(r["query_id"], r["doc_id"]): r["score"] for r in found} == pytest.approx(scores)


def test_a_column_of_ranks_wins_over_the_order_of_rows(log, ranker, tmp_path):
    rows = arriving(log)
    rows[:, -1] = 7
    columns = {"query_id": log.query_id[log.doc_query], "doc_id": log.doc_id}
    columns |= dict(zip(ranker.feature_names_, rows.T, strict=True))
    parquet.write_table(pa.table(columns), tmp_path / "documents.parquet")
    score_file(ranker, tmp_path / "documents.parquet", tmp_path / "scored.parquet")
    found = parquet.read_table(tmp_path / "scored.parquet")["score"].to_numpy()
    assert np.sort(found) == pytest.approx(np.sort(ranker.predict(rows)))


def test_a_server_takes_the_order_in_which_candidates_arrive(log, ranker, tmp_path):
    from untilt.serving.models import candidates_of, load_model
    from untilt.serving.wire import JSON, RankRequest, decode

    ranker.save(tmp_path / "ranker.untilt")
    model = load_model(tmp_path / "ranker.untilt")
    assert model.names == log.feature_names
    rows = log.features[:6]
    body = {"session": "s", "query": "q", "documents": list("abcdef"), "features": rows.tolist()}
    request = decode(json.dumps(body).encode(), JSON, RankRequest)
    found = candidates_of(request, "q", request.documents, model, None, unknown_last=False)
    expected = np.column_stack([rows, np.arange(1, 7)])
    assert found.of(model) == pytest.approx(expected)
    assert model.described()["features"] == list(log.feature_names)
