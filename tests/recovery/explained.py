"""Judged lists in which the features explain all of relevance that is not chance."""

import numpy as np

from untilt import JudgedLists

SHARES = [0.5, 0.75, 0.9, 0.97]  # of the documents below each grade


def make_explained(n_queries: int, *, n_features: int = 20, seed: int = 0) -> JudgedLists:
    """Judged lists whose grades depend on the features and on chance.

    What `RegressionEM` with features believes holds here exactly: two documents with the same
    features are equally relevant in expectation, wherever a ranker that sees the features puts
    them. In `make_judged` it holds nearly: its features show hidden properties through noise.
    """
    rng = np.random.default_rng([seed, 17])
    indptr = np.concatenate([[0], np.cumsum(rng.integers(10, 40, n_queries))])
    z = rng.standard_normal((indptr[-1], n_features))
    utility = (
        np.tanh(2 * z[:, 0])
        + np.maximum(z[:, 1], 0)
        + z[:, 2] * (z[:, 0] > 0)
        + 0.7 * z[:, 3]
        - 0.5 * np.abs(z[:, 4])
        + 0.7 * rng.standard_normal(len(z))
    )
    return JudgedLists(
        features=z.astype(np.float32),
        labels=np.searchsorted(np.quantile(utility, SHARES), utility).astype(float),
        indptr=indptr,
        query_id=np.arange(n_queries),
    )
