"""People who read a page in a known way, in plain NumPy: logs for tests of the model of reading."""

from typing import Any

import numpy as np

from untilt import ClickLog


def relevance_of(worth: np.ndarray) -> np.ndarray:
    return 0.03 + 0.77 / (1 + np.exp(1.5 - 1.5 * worth))


def people(
    seed: int,
    *,
    n_queries: int = 120,
    sessions: int = 15_000,
    n_docs: int = 10,
    zipf: float = 0.0,
    rate: float = 1.0,
    lists: tuple[int, int] | None = None,
    trust: float = 0.0,
    cascade: bool = False,
    saturation: float = 0.0,
    drift: float = 0.0,
    devices: tuple[float, float] = (0.8, 0.8),
    late: float = 0.8,
    quality: float = 0.6,
    queries_differ: float = 0.0,
    people_differ: float = 0.0,
) -> ClickLog:
    """Two rankers with noise of their own for each session; examination k^-0.8 unless said.

    Parameters
    ----------
    zipf : exponent of the queries' traffic
    rate : all relevance times this
    lists : shortest and longest list of a query
    trust : probability of a click at 1 on what is not relevant; it falls with 1/k
    cascade : readers go down and stop at the first click, or by a chance of 0.1 at each position
    saturation : by so much each click lessens the chance of further ones
    drift : how far relevance is new in the second half of the time; rankers follow it
    devices, late : exponents of examination on desks and phones, and in the second half of time
    quality : correlation of the rankers' scores with worth
    queries_differ, people_differ : spread of the exponent between queries, and of its logarithm
        between sessions
    """
    rng = np.random.default_rng(seed)
    share = np.arange(1, n_queries + 1.0) ** -zipf
    query = np.sort(rng.choice(n_queries, size=sessions, p=share / share.sum()))
    is_late, phone = rng.random((2, sessions)) < 0.5
    shape = (n_queries, n_docs)
    worth = rng.normal(size=shape)
    later = (1 - drift) * worth + np.sqrt(1 - (1 - drift) ** 2) * rng.normal(size=shape)
    worths = np.stack([worth, later])
    own_noise = np.sqrt(1 - quality**2) * rng.normal(size=(2, *shape))
    scores = quality * worths[:, None] + own_noise
    ranker = rng.integers(2, size=sessions)
    time = is_late.astype(int)
    own = scores[time, ranker, query] + 0.35 * rng.normal(size=(sessions, n_docs))
    document = np.argsort(-own, axis=1)
    gamma = rate * relevance_of(worths[time[:, None], query[:, None], document])
    k = np.arange(1, n_docs + 1)
    exponent = np.where(phone, devices[1], devices[0]) + np.where(is_late, late - 0.8, 0.0)
    exponent = exponent + queries_differ * rng.normal(size=n_queries)[query]
    exponent = exponent * np.exp(people_differ * rng.normal(size=sessions))
    looked = k ** -np.maximum(exponent, 0)[:, None]
    chance = looked * (gamma + trust / k * (1 - gamma))
    if cascade:
        patient = np.cumprod(rng.random(chance.shape) < 0.9, axis=1)
        would = rng.random(chance.shape) < gamma
        click = would & (patient > 0) & (np.cumsum(would, axis=1) - would == 0)
    else:
        click, before = np.zeros(chance.shape, dtype=bool), np.zeros(sessions)
        for j in range(n_docs):
            click[:, j] = rng.random(sessions) < chance[:, j] * (1 - saturation) ** before
            before += click[:, j]
    low, high = lists or (n_docs, n_docs)
    kept = k <= rng.integers(low, high + 1, size=n_queries)[query][:, None]
    log: dict[str, Any] = {
        "query_id": np.arange(n_queries),
        "doc_id": np.arange(n_queries * n_docs),
        "doc_query": np.repeat(np.arange(n_queries), n_docs),
        "indptr": np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
        "query": query,
        "document": (query[:, None] * n_docs + document)[kept],
        "position": np.broadcast_to(k, kept.shape)[kept],
        "label": click[kept].astype(float),
        "ranker": ranker,
        "ranker_names": ("old", "new"),
        "time": time * sessions + np.arange(sessions),
        "context": {"device": np.where(phone, "phone", "desk")},
    }
    return ClickLog(**log)


def fixed_lists(
    seed: int,
    *,
    trust: float = 0.0,
    n_queries: int = 600,
    quality: float = 0.45,
    noise: float = 0.7,
) -> ClickLog:
    """One ranker, so that no document changes its place; three features tell worth with noise.

    20 sessions for each query; `quality` is the correlation of the ranker's score with worth, whose
    part that the features do not tell is the ranker's own knowledge.
    """
    rng = np.random.default_rng(seed)
    k = np.arange(1, 11)
    worth = rng.normal(size=(n_queries, 10))
    features = worth[..., None] + noise * rng.normal(size=(n_queries, 10, 3))
    score = quality * worth + np.sqrt(1 - quality**2) * rng.normal(size=worth.shape)
    order = np.argsort(-score, axis=1)
    query = np.repeat(np.arange(n_queries), 20)
    document = order[query]
    gamma = relevance_of(worth[query[:, None], document])
    click = rng.random(gamma.shape) < k**-0.8 * (gamma + trust / k * (1 - gamma))
    return ClickLog(
        np.arange(n_queries),
        np.arange(worth.size),
        np.repeat(np.arange(n_queries), 10),
        np.arange(len(query) + 1) * 10,
        query,
        (10 * query[:, None] + document).ravel(),
        np.tile(k, len(query)),
        click.ravel().astype(float),
        features=features.reshape(-1, 3),
    )


# How they read, the rule that speaks and the estimator of `auto`.
READERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "by position": ({}, "least-belief", "AllPairs"),
    "trust": ({"trust": 0.5}, "trust-in-top", "TrustEM"),
    "cascade": ({"cascade": True}, "clicks-above", "AllPairs"),
    "drift": ({"drift": 0.5}, "time", "AllPairs"),
    "devices": ({"devices": (0.5, 1.1)}, "context", "ContextualBias"),
    "devices and trust": ({"devices": (0.5, 1.1), "trust": 0.5}, "trust-in-top", "TrustEM"),
}
