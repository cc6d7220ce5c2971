"""`score_file` writes what `predict` says, with ranks, whatever the file and its order."""

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from untilt import LambdaMART, LinearRanker, make_judged, score_file
from untilt.errors import BadRowsError, ColumnError, OptionError
from untilt.rankers import score_file as module

NAMES = ("price", "stars", "age", "sales")


@pytest.fixture(scope="module")
def judged():
    return replace(make_judged(40, 4, seed=1), feature_names=NAMES)


@pytest.fixture(scope="module")
def ranker(judged):
    return LambdaMART(n_trees=5, n_threads=1).fit(judged)


@pytest.fixture(scope="module")
def documents(judged):
    """Rows of each query together, columns in another order than the ranker's, two more of them."""
    query = np.repeat(judged.query_id, np.diff(judged.indptr))
    n = len(query)
    columns = {"age": judged.features[:, 2], "query_id": query, "doc_id": np.arange(n)[::-1]}
    columns |= {"stars": judged.features[:, 1], "title": [f"t{i}" for i in range(n)]}
    columns |= {"stock": np.arange(n) % 5, "price": judged.features[:, 0]}
    columns["sales"] = judged.features[:, 3]
    return pa.table(columns)


def slow_twin(table, ranker):
    """{(query, document): (score, rank)}, query by query in plain Python."""
    scores = ranker.predict(table.select(list(NAMES)))
    rows = list(
        zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), scores, strict=True)
    )
    found = {}
    for query in {row[0] for row in rows}:
        own = sorted((row for row in rows if row[0] == query), key=lambda row: (-row[2], row[1]))
        found |= {(q, d): (s, rank) for rank, (q, d, s) in enumerate(own, 1)}
    return found


def with_names(table, **names):
    """Columns by other names; older Arrow has no such thing."""
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def as_dict(table):
    columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "score", "rank"))
    return {(q, d): (s, r) for q, d, s, r in zip(*columns, strict=True)}


@pytest.fixture(params=[1 << 22, 40], ids=["one piece", "pieces that cut queries"])
def piece(request, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", request.param)
    monkeypatch.setattr(module, "_FEWEST", 2)


def test_rows_that_stand_together_keep_their_order(documents, ranker, tmp_path, piece):
    pq.write_table(documents, tmp_path / "d.parquet", row_group_size=100)
    found = score_file(ranker, tmp_path / "d.parquet", tmp_path / "out.parquet")
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.drop_columns(["score", "rank"]).equals(documents)
    assert as_dict(written) == slow_twin(documents, ranker)
    assert (found.n_rows, found.n_queries) == (len(documents), 40)
    assert found.unused == ("stock",)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_any_order_and_kind_of_file_gives_the_same_scores_and_ranks(
    documents, ranker, tmp_path, piece, ending
):
    mixed = documents.take(np.random.default_rng(0).permutation(len(documents)))
    write = {"parquet": pq.write_table, "csv": pacsv.write_csv}[ending]
    write(mixed, tmp_path / f"d.{ending}")
    score_file(ranker, tmp_path / f"d.{ending}", tmp_path / "out.parquet", threads=2)
    assert as_dict(pq.read_table(tmp_path / "out.parquet")) == slow_twin(documents, ranker)


def test_tables_folders_and_a_csv_as_result(documents, ranker, tmp_path):
    expected = slow_twin(documents, ranker)
    (tmp_path / "parts").mkdir()
    for part in range(3):
        rows = documents.filter(pa.array(np.arange(len(documents)) % 3 == part))
        pq.write_table(rows, tmp_path / "parts" / f"{part}.parquet")
    for source in (documents, tmp_path / "parts", str(tmp_path / "parts" / "*.parquet")):
        score_file(ranker, source, tmp_path / "out.csv")
        assert as_dict(pacsv.read_csv(tmp_path / "out.csv")) == expected


def test_equal_scores_rank_by_document(tmp_path, ranker):
    same = {name: np.zeros(7, dtype=np.float32) for name in NAMES}
    documents = list("gcafbed")
    table = pa.table({"query_id": ["b"] * 4 + ["a"] * 3, "doc_id": documents, **same})
    for source in (table, table.take(np.array([5, 0, 4, 1, 6, 2, 3]))):
        pq.write_table(source, tmp_path / "d.parquet")
        score_file(ranker, tmp_path / "d.parquet", tmp_path / "out.parquet")
        found = {
            d: r for (_, d), (_, r) in as_dict(pq.read_table(tmp_path / "out.parquet")).items()
        }
        assert found == {"a": 1, "c": 2, "f": 3, "g": 4, "b": 1, "d": 2, "e": 3}


def test_the_best_ones_without_features_under_other_names(documents, ranker, tmp_path):
    renamed = with_names(documents, query_id="qid")
    pq.write_table(renamed, tmp_path / "d.parquet")
    score_file(
        ranker, tmp_path / "d.parquet", tmp_path / "out.parquet", top=2, with_features=False,
        columns={"query_id": "qid", "score": "relevance"},
    )  # fmt: skip
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column_names == ["qid", "doc_id", "title", "stock", "relevance", "rank"]
    expected = {key: value for key, value in slow_twin(documents, ranker).items() if value[1] <= 2}
    assert as_dict(with_names(written, qid="query_id", relevance="score")) == expected


def test_no_rows_are_a_file_without_rows(documents, ranker, tmp_path):
    pq.write_table(documents.slice(0, 0), tmp_path / "d.parquet")
    found = score_file(ranker, tmp_path / "d.parquet", tmp_path / "out.parquet")
    assert (found.n_rows, found.n_queries) == (0, 0)
    written = pq.read_table(tmp_path / "out.parquet")
    assert written.column_names == [*documents.column_names, "score", "rank"]


def test_features_by_name_or_an_error_that_names_them(documents, ranker, tmp_path):
    score = partial(score_file, ranker, out=tmp_path / "out.parquet")
    lacking = with_names(documents, price="prize")
    with pytest.raises(
        ColumnError, match=r"lacks 1 of the 4 .*: price\. Did you mean 'prize'.*stock"
    ):
        score(lacking)
    text = documents.set_column(0, "age", documents["title"])
    with pytest.raises(ColumnError, match=r"the feature 'age' must be a column of numbers"):
        score(text)
    numbered = LinearRanker().fit(make_judged(10, 4, seed=0))
    more = pa.table({"query_id": [1], "doc_id": [1], **{f"f{j}": [0.5] for j in (1, 2, 3, 4, 5)}})
    with pytest.raises(ColumnError, match="more of them: f5"):
        score_file(numbered, more, tmp_path / "out.parquet")
    score_file(numbered, more.drop_columns("f5"), tmp_path / "out.parquet")


@pytest.mark.parametrize("column", ["query_id", "doc_id"])
def test_rows_without_an_id_are_refused(documents, ranker, tmp_path, column):
    holed = documents.set_column(
        documents.schema.get_field_index(column), column,
        pa.array([None, *documents[column].to_pylist()[1:]]),
    )  # fmt: skip
    with pytest.raises(BadRowsError, match=r"1 of .* rows"):
        score_file(ranker, holed, tmp_path / "out.parquet")


def test_a_gap_is_named_by_its_query_and_document(documents, ranker, tmp_path):
    values = documents["price"].to_pylist()
    values[7] = None
    holed = documents.set_column(documents.schema.get_field_index("price"), "price", [values])
    query, document = (documents[name][7].as_py() for name in ("query_id", "doc_id"))
    (tmp_path / "out.parquet").write_text("old")
    with pytest.raises(
        BadRowsError, match=rf"'price' of document {document} of query {query} .* nan"
    ):
        score_file(ranker, holed, tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_what_is_read_is_not_written_to(documents, ranker, tmp_path):
    pq.write_table(documents, tmp_path / "d.parquet")
    with pytest.raises(OptionError, match="is what is read"):
        score_file(ranker, tmp_path / "d.parquet", tmp_path / "d.parquet")
    with pytest.raises(OptionError, match=r"columns=\{'score': 'new_score'\}"):
        score_file(
            ranker,
            documents.append_column("Score", [list(range(len(documents)))]),
            tmp_path / "o.csv",
        )
    with pytest.raises(OptionError, match="must end in"):
        score_file(ranker, documents, tmp_path / "out.xlsx")
    with pytest.raises(OptionError, match="top must be"):
        score_file(ranker, documents, tmp_path / "out.csv", top=0)


def test_a_csv_cannot_hold_lists(documents, ranker, tmp_path):
    lists = documents.append_column("tags", [[[1, 2]] * len(documents)])
    with pytest.raises(OptionError, match="Parquet can"):
        score_file(ranker, lists, tmp_path / "out.csv")
    score_file(ranker, lists, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet")["tags"][0].as_py() == [1, 2]
