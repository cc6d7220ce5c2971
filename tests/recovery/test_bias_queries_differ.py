"""Readers of different queries read differently: only the spread of queries knows that error."""

import numpy as np
import pytest

from untilt import AdjacentChain, AllPairs, ClickLog
from untilt.bias.harvesting.harvesting import tree_equations
from untilt.bias.harvesting.pairs import inverse_laplacian, pair_sums, session_noise
from untilt.data.counts import position_counts

N_QUERIES, K, SESSIONS = 80, 4, 400
THETA = np.array([1.0, 0.6, 0.4, 0.3])


def log_of_readers(rng, spread):
    """Every document at every position, each query with an examination curve of its own."""
    own = np.exp(rng.normal(-(spread**2) / 2, spread, size=(N_QUERIES, K)))
    own[:, 0] = 1
    relevance = rng.uniform(0.2, 0.6, size=(N_QUERIES, K, 1))
    clicks = rng.binomial(SESSIONS, np.minimum(relevance * (THETA * own)[:, None, :], 1))
    # Two lists of one document for each cell: with a click and without.
    count = np.stack([clicks, SESSIONS - clicks], axis=-1).ravel()
    kept = count > 0
    document = np.repeat(np.arange(N_QUERIES * K), 2 * K)[kept]
    return ClickLog(
        query_id=np.arange(N_QUERIES),
        doc_id=np.arange(N_QUERIES * K),
        doc_query=np.repeat(np.arange(N_QUERIES), K),
        indptr=np.arange(kept.sum() + 1),
        query=document // K,
        document=document,
        position=np.tile(np.repeat(np.arange(1, K + 1), 2), N_QUERIES * K)[kept],
        label=np.tile([1.0, 0.0], len(count) // 2)[kept],
        count=count[kept],
    )


def session_errors(log, z):
    """Of the chain: errors of all pairs are smaller still."""
    cells = position_counts(log)
    _, equations = tree_equations(pair_sums(cells, "session"), [(k, k + 1) for k in range(1, K)])
    inverse = inverse_laplacian(equations.curvature)
    noise = session_noise(cells, "session", equations.gain, np.exp(z), inverse)
    return np.sqrt(np.diag(noise.covariance))[1:]


def coverage(estimator, spread, n_logs):
    """(with the estimator's errors, with session noise alone)."""
    rng, inside, without = np.random.default_rng(0), [], []
    for _ in range(n_logs):
        log = log_of_readers(rng, spread)
        bias = estimator.fit(log).bias_
        inside.append(((bias.low <= THETA) & (bias.high >= THETA))[1:])
        z = np.log(bias.examination)
        without.append(np.abs(z - np.log(THETA))[1:] < 1.96 * session_errors(log, z))
    return np.mean(inside), np.mean(without)


LOGS = [50, pytest.param(150, marks=pytest.mark.slow)]


@pytest.mark.parametrize("logs", LOGS)
@pytest.mark.parametrize("estimator", [AdjacentChain(), AllPairs()], ids=str)
def test_intervals_hold_the_mean_curve_when_queries_differ(estimator, logs):
    with_clusters, sessions_alone = coverage(estimator, 0.5, logs)
    assert 0.9 <= with_clusters <= 0.99
    assert sessions_alone < 0.75


@pytest.mark.parametrize("logs", LOGS)
def test_they_are_not_much_wider_when_queries_are_alike(logs):
    with_clusters, sessions_alone = coverage(AdjacentChain(), 0.0, logs)
    assert 0.92 <= sessions_alone <= 0.98
    assert sessions_alone <= with_clusters <= 0.99
