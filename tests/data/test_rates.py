"""Click rate by position: against plain loops, by hand, and by simulation."""

from collections import defaultdict

import numpy as np
import pytest
from scipy import stats

from untilt import ClickLog


def make(
    query: np.ndarray, label: np.ndarray, *, count: np.ndarray | None = None, first: int = 1
) -> ClickLog:
    """Lists of equal length: row i of `label` belongs to query[i]; documents are the places."""
    n_lists, depth = label.shape
    n_queries = int(query.max()) + 1
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(depth), n_queries),
        doc_query=np.repeat(np.arange(n_queries), depth),
        indptr=np.arange(0, n_lists * depth + 1, depth),
        query=query,
        document=(query[:, None] * depth + np.arange(depth)).ravel(),
        position=np.tile(np.arange(first, depth + first), n_lists),
        label=label.ravel(),
        count=count,
    )


def test_rates_equal_plain_loops(rng: np.random.Generator) -> None:
    query = rng.integers(0, 6, 40)
    log = make(query, rng.integers(0, 2, (40, 3)), count=rng.integers(1, 5, 40), first=2)
    rates = log.ctr_by_position(level=0.9)
    shown, clicked = defaultdict(int), defaultdict(float)
    for i in range(log.n_lists):
        for row in range(log.indptr[i], log.indptr[i + 1]):
            cell = (int(log.position[row]), int(log.query[i]))
            shown[cell] += int(log.sessions[i])
            clicked[cell] += float(log.label[row] * log.sessions[i])
    assert rates.position.tolist() == [1, 2, 3, 4]
    for k in (2, 3, 4):
        n = sum(shown[k, q] for q in range(6))
        c = sum(clicked[k, q] for q in range(6))
        rate = c / n
        without = [(c - clicked[k, q]) / (n - shown[k, q]) for q in range(6)]  # the jackknife
        std_error = np.sqrt(5 / 6 * sum((each - rate) ** 2 for each in without))
        effective = n**2 / sum(shown[k, q] ** 2 for q in range(6))
        half = stats.t.ppf(0.95, effective - 1) * std_error
        assert rates.impressions[k - 1] == n
        assert rates.clicks[k - 1] == c
        assert rates.rate[k - 1] == pytest.approx(rate)
        assert rates.std_error[k - 1] == pytest.approx(std_error)
        assert rates.low[k - 1] == pytest.approx(max(0, rate - half))
        assert rates.high[k - 1] == pytest.approx(min(1, rate + half))


def test_a_position_that_was_never_shown_is_unknown(rng: np.random.Generator) -> None:
    rates = make(np.array([0, 1, 1]), np.array([[1, 0], [0, 1], [1, 1]]), first=2).ctr_by_position()
    assert rates.impressions.tolist() == [0, 3, 3]
    assert np.isnan(rates.rate[0])
    assert (rates.low[0], rates.high[0]) == (0, 1)


def test_without_a_click_the_interval_is_wilsons() -> None:
    log = make(np.arange(30) % 3, np.zeros((30, 1)))
    rates = log.ctr_by_position()
    expected = stats.binomtest(0, 30).proportion_ci(0.95, method="wilson")
    assert rates.rate.tolist() == [0]
    assert (rates.low[0], rates.high[0]) == (
        pytest.approx(0, abs=1e-12),
        pytest.approx(expected.high),
    )


def test_one_query_alone_falls_back_on_its_sessions() -> None:
    clicks = np.array([[1.0], [0], [0], [0]])
    one = make(np.zeros(4, dtype=int), clicks, count=np.array([1, 1, 4, 4])).ctr_by_position()
    assert one.std_error == pytest.approx([np.sqrt(0.1 * 0.9 / 10)])
    dwell = make(np.zeros(4, dtype=int), np.array([[10.0], [20], [30], [40]])).ctr_by_position()
    assert dwell.rate.tolist() == [25]
    assert dwell.std_error == pytest.approx([np.std([10, 20, 30, 40]) / np.sqrt(4)])
    assert dwell.high[0] > 30


def test_labels_that_are_no_clicks_are_not_cut_at_one() -> None:
    rates = make(np.array([0, 1, 2]), np.array([[2.0], [4.0], [6.0]])).ctr_by_position()
    assert rates.rate.tolist() == [4]
    assert rates.std_error == pytest.approx([np.std([2, 4, 6], ddof=1) / np.sqrt(3)])
    assert rates.high[0] == pytest.approx(4 + stats.t.ppf(0.975, 2) * rates.std_error[0])


def test_the_clustered_error_is_the_spread_between_logs(rng: np.random.Generator) -> None:
    # 40 queries of 25 sessions whose click rate differs between 0.1 and 0.7 from query to query.
    found, claimed, covered = [], [], 0
    query = np.repeat(np.arange(40), 25)
    for _ in range(300):
        relevance = rng.uniform(0.1, 0.7, 40)
        log = make(query, (rng.random(1000) < relevance[query]).astype(float)[:, None])
        rates = log.ctr_by_position()
        found.append(rates.rate[0])
        claimed.append(rates.std_error[0])
        covered += rates.low[0] <= 0.4 <= rates.high[0]
    spread = np.std(found, ddof=1)  # itself known to 1/sqrt(600) = 4%
    assert np.mean(claimed) == pytest.approx(spread, rel=0.16)
    independent = np.sqrt(0.4 * 0.6 / 1000)
    assert spread > 1.5 * independent
    # 95% of 300 is 285 with a standard deviation of 3.8; four of those, and the normal interval's
    # small shortfall at 40 queries.
    assert 266 <= covered <= 300


def test_repr_and_read_only(rng: np.random.Generator) -> None:
    rates = make(
        np.array([0, 1, 1, 0]), np.array([[1, 0], [0, 0], [1, 0], [1, 0]])
    ).ctr_by_position()
    lines = repr(rates).splitlines()
    assert lines[0] == "Clicks per impression, 95% intervals clustered by query"
    assert lines[2].split()[:3] == ["1", "4", "0.7500"]
    with pytest.raises(ValueError, match="read-only"):
        rates.rate[0] = 1
