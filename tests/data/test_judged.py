"""JudgedLists: frozen, checked once, taken and split by query."""

from typing import Any

import numpy as np
import pytest

from untilt import JudgedLists
from untilt.errors import OptionError, ShapeError


def arrays(**changes: Any) -> dict[str, Any]:
    return {
        "features": np.arange(10, dtype=np.float32).reshape(5, 2),
        "labels": np.array([0.0, 2.0, 1.0, 0.0, 1.0]),
        "indptr": np.array([0, 2, 2, 5]),
        "query_id": np.array(["a", "b", "c"], dtype=object),
        "doc_id": np.array([7, 8, 7, 9, 5]),
    } | changes


def make(**changes: Any) -> JudgedLists:
    return JudgedLists(**arrays(**changes))


def test_sizes_and_defaults() -> None:
    judged = make(doc_id=None)
    assert (judged.n_queries, len(judged), judged.n_features) == (3, 5, 2)
    assert judged.doc_id is not None
    assert judged.doc_id.tolist() == [0, 1, 0, 1, 2]
    assert judged.feature_names == ("f1", "f2")
    assert judged.features.dtype == np.float32
    assert judged.labels.dtype == np.float64
    assert make(feature_names=["bm25", "pagerank"]).feature_names == ("bm25", "pagerank")


def test_repr() -> None:
    assert repr(make()) == "JudgedLists(3 queries, 5 documents, 2 features, labels {0, 1, 2})"
    many = make(
        features=np.zeros((8, 1)), labels=np.arange(8) / 2, indptr=[0, 4, 4, 8], doc_id=None
    )
    assert repr(many).endswith("labels {0, 0.5, 1, 1.5, 2, 2.5, ...})")


def test_it_cannot_be_changed_and_its_input_is_not_aliased() -> None:
    given = arrays()
    judged = JudgedLists(**given)
    with pytest.raises(AttributeError):
        judged.labels = np.zeros(5)  # type: ignore[misc]
    for name in given:
        kept = getattr(judged, name).copy()
        with pytest.raises(ValueError, match="read-only"):
            getattr(judged, name)[0] = 0
        assert given[name].flags.writeable
        np.testing.assert_array_equal(given[name], arrays()[name])
        given[name][:] = given[name][::-1].copy()
        np.testing.assert_array_equal(getattr(judged, name), kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros(5)}, "features must have two dimensions. Got 1"),
        ({"indptr": [0, 2, 4]}, "JudgedLists: indptr must end at the number of rows, 5. Got 4"),
        ({"indptr": [0, 2.5, 2.5, 5]}, "indptr must hold whole numbers"),
        ({"labels": [0, 1]}, "labels must have 5 entries. Got 2"),
        ({"doc_id": [1]}, "doc_id must have 5 entries. Got 1"),
        ({"query_id": ["a"]}, "query_id must have 3 entries. Got 1"),
        ({"feature_names": ["one"]}, "feature_names must have 2 entries. Got 1"),
        ({"labels": [0, 1, np.nan, 0, 0]}, "labels must be finite.* Got nan in row 2"),
        ({"labels": [0, 1, 0, -1, 0]}, "labels must be finite and at least 0. Got -1.0 in row 3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make(**change)


def test_take() -> None:
    judged = make()
    part = judged.take([2, 0])
    assert part.query_id.tolist() == ["c", "a"]
    assert part.labels.tolist() == [1, 0, 1, 0, 2]
    assert part.indptr.tolist() == [0, 3, 5]
    assert part.doc_id is not None
    assert part.doc_id.tolist() == [7, 9, 5, 7, 8]
    assert part.features[:, 0].tolist() == [4, 6, 8, 0, 2]
    by_mask = judged.take(np.array([True, False, True]))
    assert by_mask.query_id.tolist() == ["a", "c"]
    with pytest.raises(ShapeError, match="indices of queries must lie between 0 and 2"):
        judged.take([5])


@pytest.mark.parametrize(("share", "n"), [(0.3, 6), (0.5, 10), (0.001, 1), (0.999, 19)])
def test_split_by_query(share: float, n: int, rng: np.random.Generator) -> None:
    lengths = rng.integers(0, 4, 20)
    indptr = np.r_[0, np.cumsum(lengths)]
    judged = JudgedLists(
        features=rng.normal(size=(indptr[-1], 2)),
        labels=rng.integers(0, 3, indptr[-1]),
        indptr=indptr,
        query_id=np.arange(20),
    )
    first, second = judged.split(share, seed=4)
    assert (first.n_queries, second.n_queries) == (n, 20 - n)
    assert sorted([*first.query_id.tolist(), *second.query_id.tolist()]) == list(range(20))
    again, _ = judged.split(share, seed=4)
    assert again.query_id.tolist() == first.query_id.tolist()
    for part in (first, second):
        for i, query in enumerate(part.query_id):
            own = slice(part.indptr[i], part.indptr[i + 1])
            rows = slice(indptr[query], indptr[query + 1])
            np.testing.assert_array_equal(part.features[own], judged.features[rows])
            np.testing.assert_array_equal(part.labels[own], judged.labels[rows])
    assert len({tuple(judged.split(0.5, seed=seed)[0].query_id) for seed in range(9)}) > 1


def test_split_refuses_what_it_cannot_do() -> None:
    with pytest.raises(OptionError, match=r"share must lie between 0 and 1\. Got 1"):
        make().split(1)
    with pytest.raises(OptionError, match=r"a split needs at least two queries\. Got 1"):
        make().take([0]).split(0.5)
