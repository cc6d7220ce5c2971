"""Against the likelihood of the paper, which models relevance by context as well.

sum over pairs of C_kl log(p_k(x) r_kl(x)) + N_kl log(1 - p_k(x) r_kl(x)), with log p_k and logit
r_kl linear in x. Where relevance is what that model says, both find the same; where it is not, the
paper's form blames examination for it.
"""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from untilt import ClickLog, ContextualBias

DEPTH = 3
PAIRS = list(combinations(range(DEPTH), 2))
TRUTH = np.outer(-np.log(np.arange(1, DEPTH + 1)), [1.0, 0.4])  # theta_k = k^-(1 + 0.4 x)


def draw(relevance, *, seed, n_queries=400, n_documents=6, sessions=30):
    """(log, x, impressions, clicks), the last two (documents, K)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.5, 1.5, n_queries)
    n = n_queries * n_documents
    query = np.repeat(np.arange(n_queries), n_documents)
    shown = rng.multinomial(sessions, np.full(DEPTH, 1 / DEPTH), n)
    theta = np.arange(1, DEPTH + 1) ** -(1 + 0.4 * x[query])[:, None]
    clicks = rng.binomial(shown, theta * relevance(x[query], rng)[:, None])
    count = np.stack([clicks, shown - clicks], axis=-1).ravel()
    kept = np.flatnonzero(count)
    log = ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n),
        doc_query=query,
        indptr=np.arange(len(kept) + 1),
        query=np.repeat(query, 2 * DEPTH)[kept],
        document=np.repeat(np.arange(n), 2 * DEPTH)[kept],
        position=np.tile(np.repeat(np.arange(1, DEPTH + 1), 2), n)[kept],
        label=np.tile([1.0, 0.0], n * DEPTH)[kept],
        count=count[kept],
    )
    return log, x, shown, clicks, x[query]


def paper(shown, clicks, x):
    """(K, 2) coefficients of log p_k by the paper's likelihood."""
    n_p = 2 * (DEPTH - 1)

    def loss(parameters):
        B = np.vstack([np.zeros(2), parameters[:n_p].reshape(-1, 2)])
        R = parameters[n_p:].reshape(-1, 2)
        value, slope_B, slope_R = 0.0, np.zeros_like(B), np.zeros_like(R)
        for pair, (k, l) in enumerate(PAIRS):
            both = (shown[:, k] > 0) & (shown[:, l] > 0)
            design = np.column_stack([np.ones(both.sum()), x[both]])
            w = shown[both, k] * shown[both, l] / (shown[both, k] + shown[both, l])
            r = expit(design @ R[pair])
            for m in (k, l):
                free = np.exp(design @ B[m]) * r
                p = np.minimum(free, 1 - 1e-4)
                C = w * clicks[both, m] / shown[both, m]
                N = w - C
                value -= np.sum(C * np.log(p) + N * np.log1p(-p))
                d = np.where(free < 1 - 1e-4, N * p / (1 - p) - C, 0.0)
                slope_B[m] += d @ design
                slope_R[pair] += (d * (1 - r)) @ design
        return value, np.concatenate([slope_B[1:].ravel(), slope_R.ravel()])

    start = np.concatenate(
        [np.column_stack([TRUTH[1:, 0], np.zeros(DEPTH - 1)]).ravel(), np.zeros(2 * len(PAIRS))]
    )
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    return np.vstack([np.zeros(2), found.x[:n_p].reshape(-1, 2)])


@pytest.fixture(scope="module")
def plain():
    return draw(lambda x, rng: rng.uniform(0.1, 0.9, len(x)), seed=0)


@pytest.fixture(scope="module")
def valley():
    """Relevance falls and rises again with x: no line over x can say that."""
    return draw(lambda x, _: 0.08 + 0.38 * x**2, seed=1)


def test_where_relevance_is_simple_both_find_the_same(plain):
    log, x, shown, clicks, of_document = plain
    curves = ContextualBias(l2=0.0).fit(log, x).curves_
    theirs = paper(shown, clicks, of_document)
    error = np.sqrt(np.diag(curves.by_query)).reshape(DEPTH - 1, 2) / [1, curves.scale[0]]
    assert np.all(np.abs(theirs - curves.coefficients)[1:] < 2 * error)


def test_where_it_is_not_the_paper_blames_examination_and_this_does_not(valley):
    log, x, shown, clicks, of_document = valley
    curves = ContextualBias(l2=0.0).fit(log, x).curves_
    error = np.sqrt(np.diag(curves.by_query)).reshape(DEPTH - 1, 2) / [1, curves.scale[0]]
    assert np.all(np.abs(curves.coefficients - TRUTH)[1:] < 4 * error)
    theirs = paper(shown, clicks, of_document)
    assert np.all((theirs - TRUTH)[1:, 1] < -0.15)  # slopes of the truth: -0.28 and -0.44
