"""Small logs on which click models can be checked by hand."""

import itertools

import numpy as np
import pytest

from untilt import ClickLog, catalog


def make_log(lists, *, count=None, n_documents=None, doc_query=None, positions=None):
    """lists: (query, documents, clicks); documents are indices."""
    indptr = np.concatenate([[0], np.cumsum([len(documents) for _, documents, _ in lists])])
    document = np.concatenate([documents for _, documents, _ in lists]).astype(int)
    query = np.array([q for q, _, _ in lists])
    n = int(document.max()) + 1 if n_documents is None else n_documents
    if doc_query is None:
        doc_query = np.zeros(n, dtype=int)
        doc_query[document] = np.repeat(query, np.diff(indptr))
    places = [np.arange(1, len(documents) + 1) for _, documents, _ in lists]
    return ClickLog(
        query_id=np.arange(max(int(query.max()), int(np.max(doc_query))) + 1),
        doc_id=np.arange(n),
        doc_query=doc_query,
        indptr=indptr,
        query=query,
        document=document,
        position=np.concatenate(places if positions is None else positions),
        label=np.concatenate([clicks for _, _, clicks in lists]).astype(float),
        count=count,
    )


def random_log(seed, *, n_lists=400, n_queries=4, n_candidates=6, depth=4):
    """Shuffled lists with clicks that fall down the page and differ by document."""
    rng = np.random.default_rng(seed)
    appeal = rng.uniform(0.1, 0.8, n_queries * n_candidates)
    lists = []
    for _ in range(n_lists):
        q = int(rng.integers(n_queries))
        documents = q * n_candidates + rng.permutation(n_candidates)[:depth]
        clicks = rng.random(depth) < appeal[documents] / np.arange(1, depth + 1) ** 0.7
        lists.append((q, documents, clicks))
    doc_query = np.repeat(np.arange(n_queries), n_candidates)
    return make_log(
        lists,
        count=rng.integers(1, 4, n_lists),
        n_documents=len(appeal),
        doc_query=doc_query,
    )


@pytest.fixture
def log():
    return random_log(0)


@pytest.fixture
def all_patterns():
    """One list of four documents of query 0 with each of its 16 patterns of clicks."""
    patterns = list(itertools.product([0, 1], repeat=4))
    doc_query = np.repeat(np.arange(4), 6)
    return make_log([(0, [4, 1, 0, 3], c) for c in patterns], n_documents=24, doc_query=doc_query)


MODELS = [record.load() for record in catalog.methods("click model")]
# The neural one has no hidden variables to enumerate and no parameters to find again:
# test_neural.py.
WITH_HIDDEN_VARIABLES = [model for model in MODELS if not model.requires]


@pytest.fixture(params=WITH_HIDDEN_VARIABLES, ids=lambda model: model.__name__)
def model_class(request):
    return request.param


@pytest.fixture
def logs():
    """The makers themselves, for tests that need other sizes."""
    return make_log, random_log
