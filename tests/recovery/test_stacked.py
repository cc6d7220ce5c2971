"""The stacked learner against a truth that is known: readers and rankers made here, by hand."""

import numpy as np
import pytest

from untilt import ClickLog, LambdaMART
from untilt.rankers.learning_data import training_lists
from untilt.rankers.stacked.learner import fit_stacked

THETA = 1.0 / np.arange(1, 11)


def a_world(seed, *, n_queries=80, n_documents=30, sessions=40, cut=10, weight_of_old=1.0):
    """An old ranker that knows half of the truth shows its best `cut`; the rest is never shown.

    Relevance depends on features 0 and 1, the old ranker sees feature 0 and noise. Queries differ
    in level, documents have an effect of their own.
    """
    rng = np.random.default_rng(seed)
    n = n_queries * n_documents
    X = rng.normal(size=(n, 6)).astype(np.float32)
    query = np.repeat(np.arange(n_queries), n_documents)
    logit = 1.2 * X[:, 0] + 1.2 * X[:, 1] + rng.normal(size=n_queries)[query]
    eta = -1.5 + logit + 0.7 * rng.normal(size=n)
    old = weight_of_old * X[:, 0] + 0.3 * X[:, 2]
    rows = [
        np.flatnonzero(query == q)[np.argsort(-old[query == q])][:cut] for q in range(n_queries)
    ]
    document = np.tile(np.stack(rows), (1, sessions)).reshape(-1)
    k = np.tile(np.arange(cut), n_queries * sessions)
    clicked = rng.random(len(document)) < THETA[k] / (1 + np.exp(-eta[document]))
    log = ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(n_documents), n_queries),
        doc_query=query,
        indptr=np.arange(0, len(document) + 1, cut),
        query=np.repeat(np.arange(n_queries), sessions),
        document=document,
        position=k + 1,
        label=clicked.astype(float),
        features=X,
    )
    return log.collapse(), X, query, eta


def ndcg(scores, relevance, query, cut=10):
    values = []
    for q in np.unique(query):
        own, gain = scores[query == q], relevance[query == q]
        discount = 1 / np.log2(np.arange(cut) + 2)
        best = np.sort(gain)[::-1][:cut] @ discount
        values.append(gain[np.argsort(-own, kind="stable")][:cut] @ discount / best)
    return np.array(values)


def options(**more):
    return {"n_trees": 60, "n_threads": 1, "n_leaves": 8, **more}


def test_it_beats_raw_clicks_and_the_likelihood_on_new_queries():
    log, *_ = a_world(0)
    _, X, query, eta = a_world(1)
    rankers = {
        "auto": LambdaMART("auto", bias=THETA, **options()),
        "raw": LambdaMART(**options()),
        "likelihood": LambdaMART(objective="pbm-likelihood", bias=THETA, **options()),
    }
    relevance = 1 / (1 + np.exp(-eta))
    value = {name: ndcg(r.fit(log).predict(X), relevance, query) for name, r in rankers.items()}
    for other in ("raw", "likelihood"):
        lead = value["auto"] - value[other]
        assert lead.mean() > 2 * lead.std() / np.sqrt(len(lead)), other


def test_query_levels_and_document_effects_are_found():
    """v and s2 of the truth: 0.7^2 of documents; queries have 1 beyond what features tell."""
    log, *_ = a_world(2, n_queries=150, sessions=300)
    training = LambdaMART("auto", bias=THETA, **options())._training()
    fitted = fit_stacked(log, training_lists(log), training, THETA)
    assert fitted.stack["v"] == pytest.approx(0.49, rel=0.5)
    assert fitted.stack["s2"] == pytest.approx(1.0, rel=0.5)
    assert fitted.stack["k_x"] + fitted.stack["k_s"] == pytest.approx(1.0, abs=0.4)


def test_where_clicks_say_nothing_unshown_documents_do_not_fill_the_top():
    """Documents are equally relevant, whatever their features: only the old order is known."""
    rng = np.random.default_rng(3)
    log, X, query, _ = a_world(3)
    k = log.position - 1
    noise = (rng.random(len(k)) < 0.3 * THETA[k]).astype(float)
    ranker = LambdaMART("auto", bias=THETA, **options()).fit(log.with_label(noise))
    shown = np.zeros(log.n_documents, dtype=bool)
    shown[log.document] = True
    scores = ranker.predict(X)
    top = np.concatenate([np.flatnonzero(query == q)[np.argsort(-scores[query == q])[:10]]
                          for q in np.unique(query)])  # fmt: skip
    by_chance = 20 / 30
    assert np.mean(~shown[top]) < 0.75 * by_chance
