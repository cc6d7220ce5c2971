"""Two parts of a log: nothing lost, nothing twice, and as many as asked for."""

import numpy as np
import pytest
from scipy import stats

from untilt import ClickLog
from untilt.errors import OptionError


def make(rng: np.random.Generator, *, n_queries: int = 10, n_lists: int = 60) -> ClickLog:
    """Counted lists of two to four documents; each list can be told by its time."""
    lengths = rng.integers(2, 5, n_lists)
    indptr = np.r_[0, np.cumsum(lengths)]
    query = rng.integers(0, n_queries, n_lists)
    place = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    return ClickLog(
        query_id=[f"q{i}" for i in range(n_queries)],
        doc_id=np.tile(np.arange(5), n_queries),
        doc_query=np.repeat(np.arange(n_queries), 5),
        indptr=indptr,
        query=query,
        document=np.repeat(query, lengths) * 5 + place,
        position=place + 1,
        label=rng.integers(0, 2, indptr[-1]),
        count=rng.integers(1, 9, n_lists),
        features=rng.normal(size=(5 * n_queries, 2)),
        time=rng.permutation(n_lists),
    )


@pytest.fixture
def log(rng: np.random.Generator) -> ClickLog:
    return make(rng)


def count_by_time(log: ClickLog) -> dict[int, int]:
    assert log.time is not None
    return dict(zip(log.time.tolist(), log.sessions.tolist(), strict=True))


def rows_by_time(log: ClickLog) -> dict[int, tuple]:
    """What each list shows, with ids instead of indices, and the features of the documents."""
    assert log.time is not None
    assert log.features is not None
    shown = {}
    for i, time in enumerate(log.time.tolist()):
        own = slice(log.indptr[i], log.indptr[i + 1])
        document = log.document[own]
        shown[time] = (
            log.query_id[log.query[i]],
            log.doc_id[document].tolist(),
            log.query_id[log.doc_query[document]].tolist(),
            log.position[own].tolist(),
            log.label[own].tolist(),
            log.features[document].tolist(),
        )
    return shown


@pytest.mark.parametrize("by", ["query", "session", "time"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.83])
def test_the_parts_add_up_to_the_log(log: ClickLog, by: str, share: float) -> None:
    parts = log.split(share, by=by, seed=1)
    first, second = (count_by_time(part) for part in parts)
    both = {time: first.get(time, 0) + second.get(time, 0) for time in first | second}
    assert both == count_by_time(log)
    whole = rows_by_time(log)
    for part in parts:
        for time, rows in rows_by_time(part).items():
            assert rows == whole[time]
        assert not part.label.flags.writeable


@pytest.mark.parametrize("share", [0.1, 0.5, 0.83])
def test_by_query_keeps_queries_whole(log: ClickLog, share: float) -> None:
    first, second = log.split(share, seed=1)
    assert first.n_queries == round(share * 10)
    assert sorted([*first.query_id, *second.query_id]) == sorted(log.query_id)
    assert first.n_documents == 5 * first.n_queries
    assert (first.doc_id[:5] == np.arange(5)).all()
    assert set(np.unique(first.query)) <= set(range(first.n_queries))


@pytest.mark.parametrize("share", [0.003, 0.1, 0.5, 0.83, 0.999])
@pytest.mark.parametrize("collapsed", [True, False])
def test_by_session_gives_the_exact_number(log: ClickLog, share: float, collapsed: bool) -> None:
    if not collapsed:
        log = log.take(np.arange(log.n_lists), count=np.ones(log.n_lists, dtype=int))
    for seed in range(20):
        first, second = log.split(share, by="session", seed=seed)
        assert first.n_sessions == round(share * log.n_sessions)
        assert first.n_sessions + second.n_sessions == log.n_sessions
        assert (first.sessions >= 1).all()


def test_by_session_is_a_draw_without_replacement() -> None:
    # 3 sessions out of counts (1, 2, 3): the number from the last list is hypergeometric.
    log = make(np.random.default_rng(0), n_lists=3).take([0, 1, 2], count=[1, 2, 3])
    last = log.time[2]
    drawn = [
        count_by_time(log.split(0.5, by="session", seed=s)[0]).get(last, 0) for s in range(2000)
    ]
    expected = 2000 * stats.hypergeom(6, 3, 3).pmf(np.arange(4))
    # Chi-square with 3 degrees of freedom: 21 is passed once in ten thousand.
    assert ((np.bincount(drawn, minlength=4) - expected) ** 2 / expected).sum() < 21


def test_by_session_has_no_limit_on_sessions(log: ClickLog) -> None:
    large = log.take(np.arange(log.n_lists), count=log.sessions * 10**9)
    first, _ = large.split(0.25, by="session", seed=0)
    assert first.n_sessions == round(0.25 * large.n_sessions)
    share = first.sessions / large.sessions
    np.testing.assert_allclose(share, 0.25, atol=1e-3)


def test_by_time_gives_the_earliest_sessions(log: ClickLog) -> None:
    first, second = log.split(0.4, by="time")
    assert first.time is not None
    assert second.time is not None
    assert first.time.max() < second.time.min()
    assert first.n_sessions <= round(0.4 * log.n_sessions)
    earliest = np.argmin(second.time)
    assert first.n_sessions + second.sessions[earliest] > round(0.4 * log.n_sessions)


def test_by_time_is_exact_where_each_list_is_one_session(log: ClickLog) -> None:
    plain = make(np.random.default_rng(0), n_lists=100)
    plain = plain.take(np.arange(100), count=np.ones(100, dtype=int))
    first, _ = plain.split(0.29, by="time")  # 0.29 * 100 is 28.999... in floating point
    assert first.n_sessions == 29


@pytest.mark.parametrize("by", ["query", "session"])
def test_the_seed_decides(log: ClickLog, by: str) -> None:
    one, again, other = (log.split(0.5, by=by, seed=seed)[0] for seed in (1, 1, 2))
    assert count_by_time(one) == count_by_time(again)
    assert count_by_time(one) != count_by_time(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 0}, "share must lie between 0 and 1. Got 0"),
        ({"share": 1.0}, "share must lie between 0 and 1. Got 1.0"),
        ({"share": float("nan")}, "share must lie between 0 and 1. Got nan"),
        ({"share": 0.5, "by": "user"}, "by must be one of 'query', 'session', 'time'. Got 'user'"),
    ],
)
def test_errors(log: ClickLog, options: dict, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        log.split(**options)


def test_a_collapsed_log_has_no_time_to_split_by(log: ClickLog) -> None:
    with pytest.raises(OptionError, match=r"no time to split by.*without collapsing"):
        log.collapse().split(0.5, by="time")
