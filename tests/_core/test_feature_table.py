"""Features are found by their names, whatever kind of table holds them."""

import numpy as np
import pytest

from untilt._core.feature_table import feature_array, in_order
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import ColumnError

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
NAMES = ("price", "stars", "match")
VALUES = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=np.float32)


def reversed_columns() -> dict[str, np.ndarray]:
    return {name: VALUES[:, NAMES.index(name)] for name in reversed(NAMES)}


def of_polars():
    pl = pytest.importorskip("polars")
    return pl.DataFrame(reversed_columns())


def of_duckdb():
    duckdb = pytest.importorskip("duckdb")
    return duckdb.sql("select * from (values (3, 2, 1.0), (6, 5, 4.0)) as t(match, stars, price)")


TABLES = {
    "pandas": lambda: pd.DataFrame(reversed_columns()),
    "pandas with an index": lambda: pd.DataFrame(reversed_columns(), index=[7, 9]),
    "pandas nullable": lambda: pd.DataFrame(reversed_columns()).convert_dtypes(),
    "polars": of_polars,
    "arrow": lambda: pa.table(reversed_columns()),
    "arrow batch": lambda: pa.RecordBatch.from_pydict(reversed_columns()),
    "duckdb": of_duckdb,
    "judged": lambda: JudgedLists(
        VALUES[:, ::-1], [0, 1], [0, 2], [5], feature_names=NAMES[::-1]
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)
def test_columns_are_found_by_name(make):
    found = feature_array(make(), NAMES)
    assert found.dtype == np.float32
    assert np.array_equal(found, VALUES)


def test_an_array_and_numbered_columns_go_by_their_order():
    assert np.array_equal(feature_array(VALUES, NAMES), VALUES)
    assert np.array_equal(feature_array(pd.DataFrame(VALUES), NAMES), VALUES)
    numbered = ("f1", "f2", "f3")
    assert in_order(VALUES, numbered, NAMES) is VALUES
    assert in_order(VALUES, NAMES, numbered) is VALUES
    assert np.array_equal(in_order(VALUES, ("f2", "f1", "f3"), numbered), VALUES[:, [1, 0, 2]])


def test_a_gap_is_nan_and_truth_is_a_number():
    frame = pd.DataFrame({"b": [True, False], "a": [1, None]})
    wanted = [[1.0, 1.0], [np.nan, 0.0]]
    for table in (frame, frame.convert_dtypes(), pa.Table.from_pandas(frame)):
        assert np.array_equal(feature_array(table, ("a", "b")), wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="stars"), ["Missing: 'stars'"]),
        (lambda t: t.assign(query_id=1), ["Not among them: 'query_id'"]),
        (lambda t: t.rename(columns={"stars": "star"}), ["Missing: 'stars'", "mean 'star'"]),
        (lambda t: t.assign(stars=["three", "four"]), ["'stars' must hold numbers"]),
        (lambda t: pd.concat([t, t[["stars"]]], axis=1), ["More than once: 'stars'"]),
    ],
)  # fmt: skip
def test_other_columns_are_named(change, words):
    with pytest.raises(ColumnError) as error:
        feature_array(change(TABLES["pandas"]()), NAMES)
    for each in words:
        assert each in str(error.value)


def test_a_named_table_does_not_fit_a_ranker_without_names():
    with pytest.raises(ColumnError, match="an array goes by their order"):
        feature_array(TABLES["pandas"](), ("f1", "f2", "f3"))


def test_a_lazy_frame_is_told_to_collect():
    pl = pytest.importorskip("polars")
    with pytest.raises(ColumnError, match=r"collect\(\)"):
        feature_array(pl.DataFrame(reversed_columns()).lazy(), NAMES)


def test_data_made_of_a_table_has_its_names():
    table = TABLES["pandas"]()
    judged = JudgedLists(table, [0, 1], [0, 2], [5])
    assert judged.feature_names == NAMES[::-1]
    assert np.array_equal(judged.features, VALUES[:, ::-1])
    chosen = JudgedLists(TABLES["arrow"](), [0, 1], [0, 2], [5], feature_names=NAMES)
    assert np.array_equal(chosen.features, VALUES)
    renamed = JudgedLists(table, [0, 1], [0, 2], [5], feature_names=("a", "b", "c"))
    assert np.array_equal(renamed.features, VALUES[:, ::-1])
    log = ClickLog([1], [0, 1], [0, 0], [0, 2], [0], [0, 1], [1, 2], [0, 1], features=table)
    assert log.feature_names == NAMES[::-1]
