"""A small log with known truth: clicks of the position-based model on several orderings."""

from types import SimpleNamespace

import numpy as np
import pytest

from untilt import ClickLog


def pbm_log(
    *, n_queries=12, n_documents=8, shown=5, orderings=3, sessions=15, theta=None, seed=0,
    n_features=4,
):  # fmt: skip
    """`sessions` plain sessions per query, one list each, none collapsed.

    Relevance is sigmoid(1.5 x1 - x2) of the first two features. Each query has a few orderings of
    its documents, of which the first `shown` are seen.
    """
    rng = np.random.default_rng(seed)
    theta = 1 / np.arange(1.0, shown + 1) if theta is None else np.asarray(theta)
    n = n_queries * n_documents
    features = rng.normal(size=(n, n_features)).astype(np.float32)
    relevance = 1 / (1 + np.exp(-1.5 * features[:, 0] + features[:, 1]))
    owner = np.repeat(np.arange(n_queries), n_documents)
    slates = [
        [q * n_documents + rng.permutation(n_documents)[:shown] for _ in range(orderings)]
        for q in range(n_queries)
    ]
    query = rng.permutation(np.repeat(np.arange(n_queries), sessions))
    document = np.concatenate([slates[q][rng.integers(orderings)] for q in query])
    position = np.tile(np.arange(1, shown + 1), len(query))
    click = rng.random(len(document)) < theta[position - 1] * relevance[document]
    log = ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n),
        doc_query=owner,
        indptr=np.arange(len(query) + 1) * shown,
        query=query,
        document=document,
        position=position,
        label=click.astype(float),
        features=features,
    )
    return SimpleNamespace(log=log, relevance=relevance, theta=theta)


@pytest.fixture(name="pbm_log", scope="session")
def _pbm_log():
    return pbm_log


@pytest.fixture(scope="session")
def made():
    """One such log for tests that need no other."""
    return pbm_log()


@pytest.fixture
def tiny():
    """Three sessions of query 0 with documents 0 and 1, one of query 1 with 3 above 2."""
    return ClickLog(
        query_id=[0, 1], doc_id=[0, 1, 2, 3, 4], doc_query=[0, 0, 1, 1, 1],
        indptr=[0, 2, 4, 6], query=[0, 0, 1], document=[0, 1, 0, 1, 2, 3],
        position=[1, 2, 1, 2, 2, 1], label=[1, 0, 0, 1, 1, 0], count=[2, 1, 1],
        features=np.arange(10.0).reshape(5, 2),
    )  # fmt: skip
