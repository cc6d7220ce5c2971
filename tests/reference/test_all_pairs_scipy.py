"""AllPairs against a direct maximisation of the same likelihood, written and solved another way."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from untilt import AllPairs, make_judged, simulate
from untilt.simulation.protocols import Harvest


@pytest.fixture(scope="module")
def log():
    judged = make_judged(n_queries=60, seed=3)
    return simulate(judged, Harvest(depth=5), n_sessions=20_000, seed=3).log


def clicks_and_others(log, weight):
    """C and N of the formula, from single impressions: each click weighs 1 / (times shown at k)."""
    shown, clicked = defaultdict(float), defaultdict(float)
    for i in range(log.n_lists):
        for row in range(log.indptr[i], log.indptr[i + 1]):
            key = int(log.document[row]), int(log.position[row])
            shown[key] += log.sessions[i]
            clicked[key] += log.sessions[i] * log.label[row]
    places = defaultdict(list)
    for document, position in shown:
        places[document].append(position)
    C, N = np.zeros((log.depth, log.depth)), np.zeros((log.depth, log.depth))
    for document, positions in places.items():
        for k, l in itertools.permutations(positions, 2):
            n, m = shown[document, k], shown[document, l]
            w = 1 / n if weight == "document" else m / (n + m)
            C[k - 1, l - 1] += w * clicked[document, k]
            N[k - 1, l - 1] += w * (n - clicked[document, k])
    return C, N


def minus_log_likelihood(parameters, C, N):
    """p and r are both logistic, as in the paper: every p_k r_kl is a probability."""
    K = len(C)
    p = expit(parameters[:K])
    r = np.zeros((K, K))
    r[np.triu_indices(K, 1)] = expit(parameters[K:])
    x = p[:, None] * (r + r.T)
    off = ~np.eye(K, dtype=bool)
    return -np.sum(C[off] * np.log(x[off]) + N[off] * np.log(1 - x[off]))


@pytest.mark.parametrize("weight", ["document", "session"])
def test_ten_random_starts_end_where_all_pairs_does(log, weight):
    bias = AllPairs(weight=weight).fit(log).bias_
    C, N = clicks_and_others(log, weight)
    size, rng = C.sum(), np.random.default_rng(0)
    ends = []
    for _ in range(10):
        start = rng.normal(size=log.depth + log.depth * (log.depth - 1) // 2)
        found = minimize(
            lambda q: minus_log_likelihood(q, C, N) / size,
            start,
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-9, "maxfun": 200_000, "maxiter": 5000},
        )
        ends.append(found)
    p = np.array([expit(found.x[: log.depth]) for found in ends])
    best = np.argmin([found.fun for found in ends])
    assert p[best] / p[best, 0] == pytest.approx(bias.examination, rel=1e-3)
    # Every start, not just the best, comes to the same ratios: the maximum is unique.
    assert p / p[:, :1] == pytest.approx(np.tile(bias.examination, (10, 1)), rel=0.02)
