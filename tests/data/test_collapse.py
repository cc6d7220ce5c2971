"""Collapsing is exact: against a dictionary, under forced hash collisions, for every statistic."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt import ClickLog
from untilt._core import grouping
from untilt.metrics import parse_metric

N_DOCUMENTS = 3  # per query
TRUE_HASH = grouping._hash_lists
HASHES: dict[str, Callable[..., np.ndarray]] = {
    "true hash": TRUE_HASH,
    "one bucket": lambda *lists: np.zeros_like(TRUE_HASH(*lists)),
    "two buckets": lambda *lists: TRUE_HASH(*lists) % np.uint64(2),
}


@st.composite
def logs(draw: st.DrawFn) -> ClickLog:
    """Small logs in which the same session often comes again; rows in any order."""
    shown = st.permutations(range(N_DOCUMENTS))
    sessions = draw(
        st.lists(
            st.tuples(
                st.integers(0, 1),  # query
                shown,
                st.integers(0, N_DOCUMENTS),  # length
                shown,  # positions
                st.lists(st.integers(0, 1), min_size=N_DOCUMENTS, max_size=N_DOCUMENTS),
                st.integers(1, 3),  # count
                st.integers(0, 1),  # ranker
                st.sampled_from([0.0, 0.0, 2.5]),  # dwell of a click
            ),
            max_size=14,
        )
    )
    with_ranker = draw(st.booleans())
    rows = [
        (q * N_DOCUMENTS + documents[i], positions[i] + 1, clicks[i], clicks[i] * dwell)
        for q, documents, length, positions, clicks, _, _, dwell in sessions
        for i in range(length)
    ]
    document, position, label, dwell = np.array(rows, dtype=float).reshape(-1, 4).T
    query, _, length, _, _, count, ranker, _ = zip(*sessions, strict=True) if sessions else [()] * 8
    return ClickLog(
        query_id=["a", "b"],
        doc_id=np.tile(np.arange(N_DOCUMENTS), 2),
        doc_query=np.repeat([0, 1], N_DOCUMENTS),
        indptr=np.r_[0, np.cumsum(length)].astype(int),
        query=query,
        document=document,
        position=position,
        label=label,
        count=count,
        ranker=ranker if with_ranker else None,
        ranker_names=("old", "new") if with_ranker else (),
        extra_labels={"dwell": dwell},
    )


def sessions_of(log: ClickLog) -> Counter[tuple]:
    """Every distinct session and how often it happened: the slow twin of a collapsed log."""
    sessions: Counter[tuple] = Counter()
    columns = (log.document, log.position, log.label, log.extra_labels["dwell"])
    for i in range(log.n_lists):
        own = slice(log.indptr[i], log.indptr[i + 1])
        rows = tuple(zip(*(column[own].tolist() for column in columns), strict=True))
        ranker = None if log.ranker is None else int(log.ranker[i])
        sessions[int(log.query[i]), ranker, rows] += int(log.sessions[i])
    return sessions


def unrolled(log: ClickLog) -> ClickLog:
    """One list per session."""
    each = np.repeat(np.arange(log.n_lists), log.sessions)
    return log.take(each, count=np.ones(len(each), dtype=int))


@pytest.mark.parametrize("name", HASHES)
@settings(deadline=None, max_examples=60)
@given(log=logs())
def test_collapse_is_what_a_dictionary_says(name: str, log: ClickLog) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_hash_lists", HASHES[name])
        collapsed = log.collapse()
        again = collapsed.collapse()
    expected = sessions_of(log)
    assert sessions_of(collapsed) == expected
    assert collapsed.n_lists == len(expected)
    # Idempotent, to the last array.
    for array in ("indptr", "query", "document", "position", "label", "count"):
        np.testing.assert_array_equal(getattr(again, array), getattr(collapsed, array))


@settings(deadline=None, max_examples=60)
@given(log=logs(), k=st.integers(1, N_DOCUMENTS))
def test_every_statistic_survives(log: ClickLog, k: int) -> None:
    plain, collapsed = unrolled(log), log.collapse()
    for name in ("n_sessions", "n_impressions", "depth", "is_binary", "n_queries", "n_documents"):
        assert getattr(plain, name) == getattr(collapsed, name), name
    assert repr(plain).split("queries")[1] == repr(collapsed).split("queries")[1]
    one, other = plain.ctr_by_position(), collapsed.ctr_by_position()
    for name in ("position", "impressions", "clicks", "rate", "std_error", "low", "high"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    assert sessions_of(plain.top(k)) == sessions_of(collapsed.top(k))
    assert sessions_of(plain.top(k).collapse()) == sessions_of(collapsed.top(k).collapse())


@pytest.mark.parametrize("name", ["ndcg@2", "dcg", "arp", "map", "mrr", "precision@2", "recall@1"])
@settings(deadline=None, max_examples=25)
@given(log=logs())
def test_every_metric_survives(name: str, log: ClickLog) -> None:
    metric = parse_metric(name)
    plain, collapsed = (
        metric.mean(
            -part.position, part.label, part.indptr, weights=part.sessions, units=part.query
        )
        for part in (unrolled(log), log.collapse())
    )
    assert plain.n == collapsed.n
    assert plain.value == pytest.approx(collapsed.value, rel=1e-12, nan_ok=True)
    assert plain.std_error == pytest.approx(collapsed.std_error, abs=1e-9, nan_ok=True)


def two_sessions(**second: Any) -> ClickLog:
    """Two equal sessions, except for what the test changes in the second."""
    first: dict[str, Any] = {"ranker": 0, "dwell": 5.0, "label": 1.0, "position": 2, "document": 1}
    other = first | second
    both = {name: [first[name], other[name]] for name in first}
    return ClickLog(
        query_id=["a"],
        doc_id=[1, 2, 3],
        doc_query=[0, 0, 0],
        indptr=[0, 2, 4],
        query=[0, 0],
        document=[0, both["document"][0], 0, both["document"][1]],
        position=[1, both["position"][0], 1, both["position"][1]],
        label=[0, both["label"][0], 0, both["label"][1]],
        ranker=both["ranker"],
        time=[5, 9],
        extra_labels={"dwell": [0, both["dwell"][0], 0, both["dwell"][1]]},
    )


def test_equal_sessions_merge_and_lose_their_time() -> None:
    collapsed = two_sessions().collapse()
    assert collapsed.sessions.tolist() == [2]
    assert collapsed.time is None


@pytest.mark.parametrize(
    "difference", [{"ranker": 1}, {"dwell": 5.5}, {"label": 0.0}, {"position": 3}, {"document": 2}]
)
def test_any_difference_keeps_sessions_apart(difference: dict) -> None:
    assert two_sessions(**difference).collapse().sessions.tolist() == [1, 1]


def test_zero_and_minus_zero_are_the_same_label() -> None:
    log = two_sessions()
    assert log.with_label(np.array([0.0, 1.0, -0.0, 1.0])).collapse().n_lists == 1
