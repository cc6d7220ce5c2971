"""A small judged set with short and long lists, and the fixed scores that order it."""

import numpy as np
import pytest

from untilt import JudgedLists, make_judged


@pytest.fixture(scope="session")
def judged() -> JudgedLists:
    return make_judged(n_queries=120, n_features=10, mean_docs=14, seed=3)


@pytest.fixture(scope="session")
def scores(judged) -> np.ndarray:
    """Better than chance, as a production ranker is, and without ties."""
    return judged.labels + 2 * np.random.default_rng(0).standard_normal(len(judged))
