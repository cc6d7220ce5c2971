"""AllPairs takes for examination what a document lost in relevance while it fell."""

import numpy as np
from _cells import log_of_cells
from _curves import truth_and

import untilt as ut

N_QUERIES, N_DOCUMENTS, SESSIONS = 300, 5, 500
THETA = 1 / np.arange(1, N_DOCUMENTS + 1)
CHANGED = {"relevance stayed": 0.0, "a quarter changed": 0.25, "all changed": 1.0}


def draw():
    """Three logs that differ in how many documents changed between the weeks."""
    found = {name: ut.AllPairs().fit(_two_weeks(share)).bias_ for name, share in CHANGED.items()}
    return truth_and(
        THETA,
        found,
        title="Documents that fell because they got worse make the curve too steep",
        subtitle=f"{N_QUERIES} queries, two weeks of {SESSIONS} sessions, ordered anew each week; "
        "band: 95% interval",
    )


def _two_weeks(changed):
    """A ranker sees relevance through noise; between the weeks some of it is drawn anew."""
    rng = np.random.default_rng(0)
    shape = (N_QUERIES, N_DOCUMENTS)
    doc_query = np.repeat(np.arange(N_QUERIES), N_DOCUMENTS)
    relevance = rng.uniform(0.05, 0.9, shape)
    first = _week(relevance, rng)
    new = rng.random(shape) < changed
    second = _week(np.where(new, rng.uniform(0.05, 0.9, shape), relevance), rng)
    document, clicks = (np.concatenate(both) for both in zip(first, second, strict=True))
    position = np.tile(np.arange(1, N_DOCUMENTS + 1), 2 * N_QUERIES)
    return log_of_cells(doc_query, document, position, SESSIONS, clicks)


def _week(relevance, rng):
    order = np.argsort(-(relevance + rng.normal(0, 0.3, relevance.shape)), axis=1)
    clicks = rng.binomial(SESSIONS, THETA * np.take_along_axis(relevance, order, axis=1))
    document = np.arange(N_QUERIES)[:, None] * N_DOCUMENTS + order
    return document.ravel(), clicks.ravel()
