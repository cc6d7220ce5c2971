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
    taste: float = 0.0,
    fall_differ: float = 0.0,
    halves: bool = False,
    experiment: str = "",
) -> ClickLog:
    """Chance draws the ranker once for each person, or for each session; examination k^-0.8.

    Parameters
    ----------
    zipf : exponent of the sessions by person
    differ, read_differ : spread of the logarithm of a person's click rate, and of the exponent
    effect : logarithm of the click rate under ranker "b" over that under "a", at equal positions
    taste : spread of the logarithm of what a person clicks a document more often than others do
    fall_differ : spread of b, where a person sees documents as k^(-b x), x = log relevance
    halves : each person comes in one half of the time
    experiment : "shuffle", all lists in random order; or "swap", position 1 with one of 2..5 in the
        lists of half of the people, or of the sessions
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
    names: tuple[str, ...] = ("a", "b")
    if experiment == "shuffle":
        shown, names = np.argsort(noise, axis=1), ("shuffle", "shuffle")
    if experiment == "swap":
        to = rng.integers(1, 5, size=n_people)[who]
        to = to if by == "person" else rng.integers(1, 5, size=sessions)
        arm, names = arm * to, ("base", *(f"swap:1-{k + 1}" for k in range(1, 5)))
        shown = np.argsort(-score[0], axis=1)[query]
        row = np.arange(sessions)
        shown[row, 0], shown[row, arm] = shown[row, arm], shown[row, 0]
    position = np.arange(1, DEPTH + 1)
    rate = position ** -exponent[who][:, None] * np.take_along_axis(gamma[query], shown, 1)
    rate *= (often[who] * np.where(arm == 1, np.exp(effect), 1.0))[:, None]
    if fall_differ:
        x = np.log(np.take_along_axis(gamma[query], shown, 1) / 0.15)
        rate *= position ** -(fall_differ * rng.normal(size=n_people)[who][:, None] * x)
    if taste:
        own = np.exp(taste * rng.normal(size=(n_people, n_queries, DEPTH)) - taste**2 / 2)
        rate *= np.take_along_axis(own[who, query], shown, 1)
    half = rng.integers(2, size=n_people)[who] if halves else np.zeros(sessions, dtype=np.int64)
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
        ranker_names=names,
        person=who,
        time=half * sessions + rng.permutation(sessions) if halves else None,
    )
