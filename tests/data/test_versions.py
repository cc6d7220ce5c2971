"""Features that change from impression to impression: a document has versions."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from untilt.data.clicklog import ClickLog
from untilt.data.read.collapse import packing
from untilt.data.read.read_log import read_log, read_log_report
from untilt.data.write_log import write_log
from untilt.errors import BadRowsError, OptionError, ShapeError


def shop_rows(rng, *, n_sessions=200, n_docs=6, depth=4, prices=3, text=False):
    """A log whose price changes from a few values to others; `brand` never changes."""
    rows = []
    for session in range(n_sessions):
        query = int(rng.integers(3))
        documents = rng.permutation(n_docs)[:depth]
        for position, document in enumerate(documents, 1):
            rows.append(
                {
                    "query_id": f"q{query}" if text else query,
                    "session_id": session,
                    "doc_id": f"d{document}" if text else int(document) * 7919,
                    "position": position,
                    "click": int(rng.random() < 0.3),
                    "timestamp": session // 2,
                    "brand": float(document),
                    "price": float(rng.integers(prices)) - 1,
                }
            )
    table = pa.Table.from_pylist(rows)
    return table.take(pa.array(rng.permutation(len(rows))))


FEATURES = ("brand", "price")


def sessions_of(log):
    """Each list with the features that stood at each position, as often as it was seen."""
    found = []
    for i in range(log.n_lists):
        rows = slice(log.indptr[i], log.indptr[i + 1])
        shown = log.document[rows]
        key = (
            log.query_id[log.query[i]],
            tuple(log.doc_id[shown].tolist()),
            tuple(log.position[rows].tolist()),
            tuple(log.label[rows].tolist()),
            str(log.features[shown].tolist()),
        )
        found += [key] * int(log.count[i])
    return sorted(found)


def slow_sessions(table):
    """The same by dictionaries from the rows."""
    lists = {}
    for row in table.to_pylist():
        lists.setdefault((row["session_id"], row["query_id"]), []).append(row)
    found = []
    for (_, query), rows in lists.items():
        rows.sort(key=lambda row: row["position"])
        features = [[float(np.float32(row[name])) for name in FEATURES] for row in rows]
        found.append(
            (
                query,
                tuple(row["doc_id"] for row in rows),
                tuple(row["position"] for row in rows),
                tuple(float(row["click"]) for row in rows),
                str(features),
            )
        )
    return sorted(found)


def assert_equal_logs(one, other):
    for name in one.__dataclass_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        elif name == "turnover":  # a sum in the order of the rows; files hold no times of counts
            assert None in (mine, theirs) or mine == pytest.approx(theirs)
        else:
            assert mine == theirs or dict(mine).keys() == dict(theirs).keys()


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("collapse", [False, True])
def test_every_impression_keeps_its_features(rng, checked, text, collapse):
    table = shop_rows(rng, text=text)
    log, report = read_log_report(table, features=FEATURES, collapse=collapse)
    checked(log)
    assert sessions_of(log) == slow_sessions(table)
    assert report.changing_features == ("price",)
    pairs = {(row["query_id"], row["doc_id"]) for row in table.to_pylist()}
    versions = {(row["query_id"], row["doc_id"], row["price"]) for row in table.to_pylist()}
    assert (log.n_items, log.n_documents) == (len(pairs), len(versions))
    assert len({*zip(log.doc_query[log.item >= 0], log.doc_id, log.item, strict=True)}) == len(
        pairs
    )
    assert f"{len(pairs)} documents in {len(versions)} versions" in repr(log)


@pytest.mark.parametrize(("most_words", "part_words"), [(1, 1), (2, 1)])
def test_lists_that_are_cut_into_parts(monkeypatch, rng, checked, most_words, part_words):
    monkeypatch.setattr(packing, "MOST_WORDS", most_words)
    monkeypatch.setattr(packing, "PART_WORDS", part_words)
    table = shop_rows(rng, n_docs=20, depth=15, n_sessions=60, prices=40)
    log = read_log(table, features=FEATURES)
    assert sessions_of(checked(log)) == slow_sessions(table)


def test_every_source_gives_the_same_log(rng, tmp_path):
    table = shop_rows(rng)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=100)
    pyarrow.csv.write_csv(table, tmp_path / "log.csv")
    (tmp_path / "folder").mkdir()
    for part in range(3):
        pq.write_table(table.slice(part * 300, 300), tmp_path / "folder" / f"{part}.parquet")
    want = read_log(table, features=FEATURES)
    for source in (
        tmp_path / "log.parquet",
        tmp_path / "log.csv",
        tmp_path / "folder",
        table.to_pandas(),
        table.take(pa.array(rng.permutation(len(table)))),
    ):
        assert_equal_logs(read_log(source, features=FEATURES, threads=2), want)


def test_collapsing_is_exact_and_once_is_enough(rng):
    # Few prices and short lists, so that whole sessions repeat.
    table = shop_rows(rng, n_sessions=2000, n_docs=2, depth=2, prices=2)
    apart = read_log(table, features=FEATURES, collapse=False)
    together = read_log(table, features=FEATURES)
    assert together.n_lists < apart.n_lists == 2000
    assert sessions_of(together) == sessions_of(apart) == sessions_of(apart.collapse())
    assert together.collapse().n_lists == together.n_lists == apart.collapse().n_lists


def test_missing_zero_and_filled_values(rng):
    table = shop_rows(rng)
    price = np.asarray(table["price"]).copy()
    price[::5] = np.nan
    price[1::5] = -0.0  # equal to 0.0 as a number, so no version of its own
    with_gaps = table.set_column(table.schema.get_field_index("price"), "price", pa.array(price))
    log = read_log(with_gaps, features=FEATURES, missing=0.0)
    filled = np.where(np.isnan(price), 0.0, price)
    same = table.set_column(table.schema.get_field_index("price"), "price", pa.array(filled + 0.0))
    assert sessions_of(log) == slow_sessions(same)
    assert log.n_documents == read_log(same, features=FEATURES).n_documents


def test_constant_features_make_no_versions(rng):
    table = shop_rows(rng, prices=1)
    log, report = read_log_report(table, features=FEATURES)
    assert log.item is None
    assert report.changing_features == ()
    assert log.n_items == log.n_documents
    assert log.without_versions() is log


def test_written_and_read_again(rng, tmp_path):
    log = read_log(shop_rows(rng), features=FEATURES)
    for ending in ("parquet", "csv.gz"):
        write_log(log, tmp_path / f"log.{ending}")
        assert_equal_logs(read_log(tmp_path / f"log.{ending}", features="*"), log)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_written_with_a_table_of_versions(rng, tmp_path, ending):
    """Documents that nobody was shown stay too, and all versions keep their numbers."""
    log = read_log(shop_rows(rng, text=True, prices=12), features=FEATURES)
    part = log.take(np.arange(log.n_lists) % 2 == 0)
    path, documents = tmp_path / f"log.{ending}", tmp_path / f"documents.{ending}"
    write_log(part, path, documents=documents)
    again = read_log(path, documents=documents, columns={"version": "version"})
    assert_equal_logs(again, part)
    with pytest.raises(BadRowsError, match="features that change over time"):
        read_log(path, documents=documents, features=FEATURES)


def versions_table():
    """Two price lists: document 5 has both, document 6 the first."""
    log = {
        "query_id": [1, 1, 1, 1], "session_id": [1, 1, 2, 2], "doc_id": [5, 6, 5, 6],
        "position": [1, 2, 1, 2], "click": [1, 0, 0, 1], "list": ["may", "may", "june", "may"],
    }  # fmt: skip
    documents = {
        "query_id": [1, 1, 1], "doc_id": [5, 5, 6], "list": ["may", "june", "may"],
        "price": [9.0, 8.0, 7.0],
    }  # fmt: skip
    return log, documents


def test_a_table_of_versions():
    rows, documents = versions_table()
    columns = {"version": "list"}
    log = read_log(pa.table(rows), documents=pa.table(documents), columns=columns, collapse=False)
    assert (log.doc_id.tolist(), log.item.tolist()) == ([5, 5, 6], [0, 0, 1])
    shown = log.features[log.document, 0]
    assert shown.tolist() == [9.0, 7.0, 8.0, 7.0]


def test_a_version_that_the_table_lacks_is_no_document():
    rows, documents = versions_table()
    rows["list"] = ["may", "may", "june", "june"]
    log, report = read_log_report(
        pa.table(rows),
        documents=pa.table(documents),
        columns={"version": "list"},
        on_bad="drop",
    )
    assert [(bad.what.code, bad.n_rows) for bad in report.bad] == [("log.no-document", 1)]
    assert log.n_impressions == 3


def test_two_rows_for_one_version_are_refused():
    rows, documents = versions_table()
    documents["list"] = ["may", "may", "may"]
    with pytest.raises(BadRowsError, match="query 1, document 5: price = 8 and 9"):
        read_log(pa.table(rows), documents=pa.table(documents), columns={"version": "list"})


def test_a_version_needs_a_table():
    with pytest.raises(OptionError, match="Give documents="):
        read_log(pa.table(versions_table()[0]), columns={"version": "list"})


def test_one_version_each_is_an_ordinary_log():
    rows, documents = versions_table()
    rows["list"] = ["may"] * 4
    documents = {name: [column[0], column[2]] for name, column in documents.items()}
    with_version = read_log(
        pa.table(rows), documents=pa.table(documents), columns={"version": "list"}
    )
    assert with_version.item is None
    assert_equal_logs(
        with_version, read_log(pa.table(rows), documents=pa.table(documents), features=["price"])
    )


def test_missing_values_that_are_kept_are_equal(rng):
    """NaN is the same version as NaN, and another than any number."""
    table = shop_rows(rng, prices=2)
    price = np.asarray(table["price"]).copy()
    coded = price.copy()
    price[::3], coded[::3] = np.nan, -7.0
    field = table.schema.get_field_index("price")
    logs = [
        read_log(
            table.set_column(field, "price", pa.array(each)), features=FEATURES, missing="keep"
        )
        for each in (price, coded)
    ]
    assert np.isnan(logs[0].features[:, 1]).any()
    assert logs[0].n_documents == logs[1].n_documents
    assert logs[0].n_lists == logs[1].n_lists == logs[0].collapse().n_lists
    sessions = [each.replace("nan", "-7.0") for *_, each in sessions_of(logs[0])]
    assert sorted(sessions) == sorted(each for *_, each in sessions_of(logs[1]))


@pytest.mark.parametrize("by", ["query", "session", "time"])
def test_both_parts_of_a_split_have_the_right_features(rng, checked, by):
    table = shop_rows(rng)
    log = read_log(table, features=FEATURES, collapse=by != "time")
    parts = log.split(0.5, by=by, seed=3)
    assert sorted(sessions_of(parts[0]) + sessions_of(parts[1])) == slow_sessions(table)
    for part in parts:
        assert checked(part).n_lists > 0


def test_a_part_whose_documents_have_one_version_each_has_no_items():
    log = ClickLog(
        query_id=[1, 2], doc_id=[5, 5, 5, 6], doc_query=[0, 0, 1, 1], indptr=[0, 1, 2, 4],
        query=[0, 0, 1], document=[0, 1, 2, 3], position=[1, 1, 1, 2], label=[0, 1, 0, 1],
        features=[[1.0], [2.0], [3.0], [4.0]], item=[0, 0, 1, 2],
    )  # fmt: skip
    parts = {part.n_lists: part for part in log.split(0.5, seed=0)}
    assert parts[2].item.tolist() == [0, 0]
    assert parts[1].item is None


def test_without_versions_is_the_log_without_features(rng):
    table = shop_rows(rng)
    plain = read_log(table, collapse=False)
    with_features = read_log(table, features=FEATURES, collapse=False)
    assert with_features.n_documents > plain.n_documents
    assert_equal_logs(with_features.without_versions(), plain)


@pytest.mark.parametrize("item", [[0, 0, 1], [1, 1, 2, 3], [0, 0, 2, 3], [0, 1, 1, 2]])
def test_items_that_are_not_numbered_right_are_refused(item):
    with pytest.raises(ShapeError, match="item"):
        ClickLog(
            query_id=[1, 2], doc_id=[5, 5, 5, 6], doc_query=[0, 0, 1, 1], indptr=[0, 1],
            query=[0], document=[0], position=[1], label=[0], item=item,
        )  # fmt: skip


def test_numbers_of_versions_do_not_depend_on_the_order_of_rows(rng):
    table = shop_rows(rng, text=True)
    logs = [
        read_log(table.take(pa.array(rng.permutation(len(table)))), features=FEATURES)
        for _ in range(3)
    ]
    for other in logs[1:]:
        assert_equal_logs(other, logs[0])


def test_prices_of_real_searches_are_versions(data_dir):
    """Hotels by destination: the price and who asks change from search to search."""
    log, report = read_log_report(
        data_dir / "expedia-sample" / "searches.csv.gz",
        columns={
            "query_id": "srch_destination_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "click": "click_bool",
        },
        features=["prop_starrating", "price_usd", "visitor_location_country_id"],
    )
    assert report.n_dropped == 0
    assert report.changing_features == ("price_usd", "visitor_location_country_id")
    assert log.n_impressions == 25_149
    assert log.n_items < log.n_documents <= 25_149
    assert log.without_versions().n_documents == 21_632
