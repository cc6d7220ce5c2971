"""A log in which documents move, because three rankers order them: plain NumPy."""

import numpy as np

from untilt import ClickLog


def three_rankers(
    *, n_queries=80, n_documents=6, sessions=60, power=1.0, seed=0, moves=True, trust=False
):
    """Clicks of the position-based model on the lists of three good but noisy rankers.

    Relevance goes up to 0.9, far from rare clicks. With trust an irrelevant document is clicked at
    0.3 / k of the looks on it.
    """
    rng = np.random.default_rng(seed)
    relevance = rng.beta(0.7, 1.3, size=(n_queries, n_documents)) * 0.9
    noise = rng.normal(size=(3 if moves else 1, n_queries, n_documents)) * 0.3
    orders = np.argsort(-(relevance + noise), axis=2)
    query = np.repeat(np.arange(n_queries), sessions)
    document = orders[rng.integers(len(orders), size=len(query)), query]
    position = np.tile(np.arange(1, n_documents + 1), (len(query), 1))
    examined = position**-power
    minus = 0.3 / position if trust else 0.0
    chance = examined * (minus + (1 - minus) * relevance[query[:, None], document])
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n_queries * n_documents),
        doc_query=np.repeat(np.arange(n_queries), n_documents),
        indptr=np.arange(len(query) + 1) * n_documents,
        query=query,
        document=(query[:, None] * n_documents + document).ravel(),
        position=position.ravel(),
        label=(rng.random(chance.shape) < chance).ravel().astype(float),
        features=relevance.reshape(-1, 1) + rng.normal(size=(n_queries * n_documents, 1)) * 0.1,
    )
