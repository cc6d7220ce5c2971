"""Logs of people who come back, some very often: two rankers, and readers by position."""

import numpy as np

from untilt import ClickLog

DEPTH = 10


def heavy_users(
    seed: int,
    *,
    sessions: int = 15_000,
    n_people: int = 1000,
    n_queries: int = 120,
    by: str = "person",
    zipf: float = 1.0,
    differ: float = 0.8,
    read_differ: float = 0.0,
    effect: float = 0.0,
) -> ClickLog:
    """Chance draws the ranker once for each person, or for each session; examination k^-0.8.

    Parameters
    ----------
    zipf : exponent of the sessions by person
    differ, read_differ : spread of the logarithm of a person's click rate, and of the exponent
    effect : logarithm of the click rate under ranker "b" over that under "a", at equal positions
    """
    rng = np.random.default_rng(seed)
    busy = np.arange(1, n_people + 1.0) ** -zipf
    who = rng.choice(n_people, size=sessions, p=busy / busy.sum())
    query = np.sort(rng.integers(n_queries, size=sessions))
    often = np.exp(differ * rng.normal(size=n_people) - differ**2 / 2)
    exponent = 0.8 * np.exp(read_differ * rng.normal(size=n_people))
    arm = rng.integers(2, size=n_people)[who] if by == "person" else rng.integers(2, size=sessions)
    worth = rng.normal(size=(n_queries, DEPTH))
    gamma = 0.03 + 0.4 / (1 + np.exp(1.5 - 1.5 * worth))
    score = 0.6 * worth + 0.8 * rng.normal(size=(2, n_queries, DEPTH))
    noise = 0.5 * rng.normal(size=(sessions, DEPTH))
    shown = np.argsort(-(score[arm, query] + noise), axis=1)
    position = np.arange(1, DEPTH + 1)
    rate = position ** -exponent[who][:, None] * np.take_along_axis(gamma[query], shown, 1)
    rate *= (often[who] * np.where(arm == 1, np.exp(effect), 1.0))[:, None]
    click = rng.random((sessions, DEPTH)) < np.minimum(rate, 0.95)
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(DEPTH), n_queries),
        doc_query=np.repeat(np.arange(n_queries), DEPTH),
        indptr=np.arange(sessions + 1) * DEPTH,
        query=query,
        document=(query[:, None] * DEPTH + shown).ravel(),
        position=np.tile(position, sessions),
        label=click.astype(float).ravel(),
        ranker=arm,
        ranker_names=("a", "b"),
        person=who,
    )
