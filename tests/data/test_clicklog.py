"""ClickLog: frozen, checked once, sorted by position; new logs from old ones."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from untilt import ClickLog
from untilt.errors import BadRowsError, OptionError, ShapeError


def arrays(**changes: Any) -> dict[str, Any]:
    """Two queries with three documents each (one of them never shown), three lists."""
    return {
        "query_id": np.array(["shoes", "socks"], dtype=object),
        "doc_id": np.array([10, 11, 12, 10, 20, 21]),
        "doc_query": np.array([0, 0, 0, 1, 1, 1]),
        "indptr": np.array([0, 2, 4, 7]),
        "query": np.array([0, 0, 1]),
        "document": np.array([0, 1, 1, 0, 3, 4, 5]),
        "position": np.array([1, 2, 1, 2, 1, 2, 4]),
        "label": np.array([1, 0, 0, 0, 0, 1, 1], dtype=float),
        "count": np.array([1, 2, 5]),
        "features": np.arange(12, dtype=np.float32).reshape(6, 2),
        "ranker": np.array([0, 1, 1]),
        "ranker_names": ("old", "new"),
        "time": np.array([30, 10, 20]),
        "extra_labels": {"dwell": np.array([9.5, 0, 0, 0, 0, 3, 60])},
    } | changes


def make(**changes: Any) -> ClickLog:
    return ClickLog(**arrays(**changes))


ARRAYS = [name for name, value in arrays().items() if isinstance(value, np.ndarray)]


def rows_of(log: ClickLog) -> list[list[tuple]]:
    """Per list: (position, document id, label, dwell)."""
    columns = (log.position, log.doc_id[log.document], log.label, log.extra_labels["dwell"])
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    return [rows[a:b] for a, b in zip(log.indptr[:-1], log.indptr[1:], strict=True)]


# ---- what it holds


def test_sizes() -> None:
    log = make()
    assert (log.n_queries, log.n_documents, log.n_lists, len(log)) == (2, 6, 3, 3)
    assert log.n_sessions == 1 + 2 + 5
    assert log.n_impressions == 1 * 2 + 2 * 2 + 5 * 3
    assert log.n_features == 2
    assert log.feature_names == ("f1", "f2")
    assert log.depth == 4
    assert log.is_binary
    assert not make(label=np.array([1, 0, 0, 0, 0.5, 1, 1])).is_binary
    assert log.row_count.tolist() == [1, 1, 2, 2, 5, 5, 5]


def test_defaults() -> None:
    log = make(count=None, features=None, ranker=None, ranker_names=(), time=None, extra_labels={})
    assert log.sessions.tolist() == [1, 1, 1]
    assert log.n_sessions == 3
    assert log.n_features == 0
    assert log.ranker is None
    assert log.ranker_names == ()
    assert dict(log.extra_labels) == {}
    assert make(ranker_names=()).ranker_names == ("0", "1")


def test_types_are_fixed_whatever_comes_in() -> None:
    log = make(
        position=np.array([1, 2, 1, 2, 1, 2, 4], dtype=np.uint8),
        label=[True, False, False, False, False, True, True],
        count=[1.0, 2.0, 5.0],
        features=np.arange(12).reshape(6, 2),
    )
    dtypes = {name: getattr(log, name).dtype for name in ARRAYS}
    narrow = {name for name, dtype in dtypes.items() if dtype == np.int32}
    assert narrow == {"doc_query", "query", "document", "position", "ranker"}
    assert dtypes["label"] == np.float64
    assert dtypes["features"] == np.float32
    assert dtypes["count"] == dtypes["indptr"] == dtypes["doc_id"] == np.int64


def test_a_log_cannot_be_changed() -> None:
    log = make()
    with pytest.raises(AttributeError):
        log.label = np.zeros(7)  # type: ignore[misc]
    for name in ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(log, name)[0] = 0
    with pytest.raises(TypeError):
        log.extra_labels["dwell"] = np.zeros(7)  # type: ignore[index]


def test_inputs_are_neither_changed_nor_aliased() -> None:
    given = arrays()
    log = ClickLog(**given)
    before = {name: getattr(log, name).copy() for name in ARRAYS}
    for name in ARRAYS:
        np.testing.assert_array_equal(given[name], arrays()[name])
        assert given[name].flags.writeable
        given[name][:] = given[name][::-1].copy()
    given["extra_labels"]["dwell"][:] = -1
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(log, name), before[name])
    assert log.extra_labels["dwell"].tolist() == [9.5, 0, 0, 0, 0, 3, 60]


def test_columns_of_a_data_frame_are_not_aliased() -> None:
    frame = pd.DataFrame({name: arrays()[name] for name in ("document", "label", "position")})
    log = make(**{name: frame[name] for name in frame})
    frame.loc[0, "label"] = 77.0
    assert log.label[0] == 1.0


def test_rows_in_any_order_are_sorted_by_position() -> None:
    order = np.array([1, 0, 2, 3, 6, 4, 5])
    unsorted = make(
        document=arrays()["document"][order],
        position=arrays()["position"][order],
        label=arrays()["label"][order],
        extra_labels={"dwell": arrays()["extra_labels"]["dwell"][order]},
    )
    assert rows_of(unsorted) == rows_of(make())
    with pytest.raises(ValueError, match="read-only"):
        unsorted.position[0] = 3


def test_sorting_does_not_mistake_the_start_of_a_list_for_disorder() -> None:
    # Also with empty lists at the start, in the middle and at the end.
    log = make(
        indptr=[0, 0, 2, 2, 4, 7, 7],
        query=[0, 0, 1, 0, 1, 1],
        count=None,
        ranker=None,
        time=None,
    )
    assert log.position.tolist() == [1, 2, 1, 2, 1, 2, 4]
    assert log.document.tolist() == [0, 1, 1, 0, 3, 4, 5]


def test_disorder_right_at_the_start_of_a_list_is_seen() -> None:
    log = make(
        indptr=[0, 1, 3],
        query=[0, 0],
        document=[0, 1, 2],
        position=[1, 3, 2],
        label=[0, 1, 0],
        count=None,
        ranker=None,
        time=None,
        extra_labels={},
    )
    assert log.position.tolist() == [1, 2, 3]
    assert log.document.tolist() == [0, 2, 1]
    assert log.label.tolist() == [0, 0, 1]


def test_repr() -> None:
    assert repr(make()) == (
        "ClickLog(8 sessions in 3 distinct lists, 2 queries, 6 documents, positions 1..4, "
        f"2 features, click rate {(1 * 1 + 5 * 2) / 21:.4f})"
    )
    assert repr(make(count=None, features=None, label=np.full(7, 2.0), label_name="stars")) == (
        "ClickLog(3 sessions, 2 queries, 6 documents, positions 1..4, no features, "
        "mean stars 2.0000)"
    )


def test_an_empty_log() -> None:
    nothing = ClickLog(
        query_id=[],
        doc_id=[],
        doc_query=[],
        indptr=[0],
        query=[],
        document=[],
        position=[],
        label=[],
    )
    assert (nothing.n_sessions, nothing.depth, nothing.n_impressions) == (0, 0, 0)
    assert "0 sessions" in repr(nothing)
    assert nothing.collapse().n_lists == nothing.top(3).n_lists == 0
    assert len(nothing.ctr_by_position().rate) == 0
    for part in nothing.split(0.5, by="session"):
        assert part.n_sessions == 0


# ---- what is refused

SHAPES = [
    ({"indptr": [0, 2, 7]}, "indptr must have 4 entries. Got 3 instead"),
    ({"indptr": [0, 2, 4, 6]}, "indptr must end at the number of rows, 7. Got 6"),
    ({"indptr": [1, 2, 4, 7]}, "ClickLog: indptr must be a flat array that starts at 0"),
    ({"indptr": [0, 4, 2, 7]}, "indptr must never fall"),
    ({"doc_query": [0, 0, 1]}, "doc_query must have 6 entries. Got 3 instead"),
    ({"position": [1, 2]}, "position must have 7 entries. Got 2 instead"),
    ({"label": [1.0]}, "label must have 7 entries. Got 1 instead"),
    ({"label": np.ones((7, 1))}, r"label must be a flat array. Got shape \(7, 1\)"),
    ({"count": [1, 1]}, "count must have 3 entries. Got 2 instead"),
    ({"ranker": [0]}, "ranker must have 3 entries. Got 1 instead"),
    ({"time": [0]}, "time must have 3 entries. Got 1 instead"),
    ({"extra_labels": {"dwell": [1.0]}}, r"extra_labels\['dwell'\] must have 7 entries. Got 1"),
    ({"features": np.zeros((5, 2))}, "features must have 6 entries. Got 5"),
    (
        {"feature_names": ("a", "b", "c")},
        r"features must have shape \(6, 3\): one row per document.* Got \(6, 2\)",
    ),
    ({"doc_query": [0, 0, 0, 1, 1, 2]}, "doc_query must hold indices from 0 to 1. Got 0 to 2"),
    ({"query": [0, -1, 1]}, "query must hold indices from 0 to 1. Got -1 to 1"),
    ({"document": [0, 1, 1, 0, 3, 4, 6]}, "document must hold indices from 0 to 5. Got 0 to 6"),
    ({"ranker": [0, 1, 2]}, "ranker must hold indices from 0 to 1. Got 0 to 2"),
    ({"position": [1, 2, 1, 2, 1, 2.5, 4]}, "position must hold whole numbers.* Got 2.5"),
    ({"position": [1, 2, 1, 2, 1, np.nan, 4]}, "position must hold whole numbers.* Got nan"),
    (
        {"document": [0, 1, 1, 0, 3, 4, 2**32 + 5]},
        "document must hold whole numbers that fit int32",
    ),
    ({"count": [1, 2, 5.5]}, "count must hold whole numbers.* Got 5.5"),
]


@pytest.mark.parametrize(("change", "message"), SHAPES, ids=lambda case: str(case)[:40])
def test_arrays_that_do_not_fit(change: dict, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make(**change)


ROWS = [
    (
        {"document": [0, 1, 1, 0, 3, 4, 2]},
        "a list shows a document of another query: 1 rows, first in list 2 "
        r"\(query 'socks'\) at position 4. Fix: each \(query, document\) pair needs its own entry",
    ),
    ({"count": [1, 0, -5]}, "count must be at least 1. List 1 has 0. Leave out lists"),
    (
        {"position": [1, 2, 1, 0, 1, -2, 4]},
        r"a position below 1: 2 rows, first in list 1 \(query 'shoes'\) at position 0. "
        "Fix: positions start at 1",
    ),
    (
        {"label": [1, 0, 0, 0, np.nan, 1, 1]},
        r"label is missing, infinite or negative: 1 rows, first in list 2 \(query 'socks'\) "
        "at position 1. Fix: feedback is a number >= 0",
    ),
    ({"label": [1, 0, 0, np.inf, 0, 1, 1]}, "label is missing, infinite or negative: 1 rows"),
    ({"label": [1, 0, -1, -1, 0, 1, 1]}, "label is missing, infinite or negative: 2 rows"),
    (
        {"extra_labels": {"dwell": [9.5, 0, 0, 0, 0, -3, 60]}},
        "dwell is missing, infinite or negative: 1 rows",
    ),
    (
        {"position": [1, 2, 1, 2, 4, 2, 4]},
        r"a position occurs twice in a session: 1 rows, first in list 2 \(query 'socks'\) "
        "at position 4. Fix: each position shows one document",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), ROWS, ids=lambda case: str(case)[:40])
def test_rows_that_break_a_rule(change: dict, message: str) -> None:
    with pytest.raises(BadRowsError, match=message):
        make(**change)


def test_the_same_position_in_two_lists_is_fine() -> None:
    assert make(position=[4, 2, 2, 4, 1, 2, 4]).depth == 4


# ---- new logs


def test_take() -> None:
    log = make()
    part = log.take([2, 0])
    assert rows_of(part) == [rows_of(log)[2], rows_of(log)[0]]
    assert part.query.tolist() == [1, 0]
    assert part.sessions.tolist() == [5, 1]
    assert part.ranker is not None
    assert part.ranker.tolist() == [1, 0]
    assert part.time is not None
    assert part.time.tolist() == [20, 30]
    assert part.n_documents == 6
    assert log.n_lists == 3


def test_take_by_mask_and_nothing() -> None:
    log = make()
    assert rows_of(log.take(np.array([True, False, True]))) == rows_of(log.take([0, 2]))
    assert log.take([]).n_lists == 0
    with pytest.raises(ShapeError, match="a mask of lists must have 3 entries"):
        log.take(np.array([True]))
    with pytest.raises(ShapeError, match=r"indices of lists must lie between 0 and 2\. Got 3 to 3"):
        log.take([3])


def test_take_with_counts_leaves_them_alone() -> None:
    count = np.array([7, 8])
    part = make().take([2, 0], count=count)
    count[0] = 1
    assert part.sessions.tolist() == [7, 8]
    with pytest.raises(BadRowsError, match=r"count must be at least 1\. List 1 has 0"):
        make().take([2, 0], count=[1, 0])
    with pytest.raises(ShapeError, match=r"count must have 2 entries\. Got 1"):
        make().take([2, 0], count=[1])


def test_top_cuts_by_position_not_by_row() -> None:
    log = make(position=[1, 3, 2, 3, 1, 2, 4])
    cut = log.top(1)
    assert rows_of(cut) == [[(1, 10, 1.0, 9.5)], [(1, 10, 0.0, 0.0)]]
    assert cut.query.tolist() == [0, 1]
    assert cut.sessions.tolist() == [1, 5]
    assert cut.n_documents == 6
    assert cut.depth == 1
    assert rows_of(log.top(4)) == rows_of(log)
    with pytest.raises(OptionError, match=r"top\(k\) needs k of at least 1\. Got 0"):
        log.top(0)


def test_with_label() -> None:
    log = make()
    dwell = log.with_label("dwell")
    assert dwell.label.tolist() == [9.5, 0, 0, 0, 0, 3, 60]
    assert dwell.label_name == "dwell"
    back = dwell.with_label("click")
    assert (back.label_name, back.label.tolist()) == ("click", log.label.tolist())
    assert back.extra_labels["dwell"].tolist() == dwell.label.tolist()
    assert log.label.tolist() == [1, 0, 0, 0, 0, 1, 1]
    doubled = log.with_label(log.label * 2)
    assert doubled.label.tolist() == [2, 0, 0, 0, 0, 2, 2]
    with pytest.raises(OptionError, match=r"no label column 'likes'\. This log has: dwell"):
        log.with_label("likes")
    with pytest.raises(OptionError, match="This log has: none"):
        make(extra_labels={}).with_label("likes")
    with pytest.raises(BadRowsError, match="label is missing, infinite or negative: 7 rows"):
        log.with_label(np.full(7, -1.0))


def test_new_logs_are_frozen_too() -> None:
    log = make()
    for new in (log.take([0]), log.top(1), log.with_label("dwell"), log.collapse()):
        for name in ARRAYS:
            array = getattr(new, name)
            assert array is None or not array.flags.writeable, name
        assert not any(column.flags.writeable for column in new.extra_labels.values())


def test_slates_are_lists_with_the_same_documents_at_the_same_positions() -> None:
    log = make(
        indptr=[0, 2, 4, 6, 8],
        query=[0, 0, 0, 0],
        document=[0, 1, 1, 0, 0, 1, 0, 1],
        position=[1, 2, 1, 2, 1, 2, 1, 3],
        label=[1, 0, 0, 0, 0, 1, 0, 0],
        count=None,
        ranker=[0, 1, 1, 0],
        time=None,
        extra_labels={},
    )
    assert log.slates().group_of_list.tolist() == [0, 1, 0, 2]
    assert log.slates().n_groups == 3
