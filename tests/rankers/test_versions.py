"""Learning from features as they were at each impression."""

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt.bias.curve import PositionBias

THETA = PositionBias(1 / np.arange(1, 7))
FEATURES = ["quality", "price"]
RANKERS = {
    "trees": lambda: ut.LambdaMART(weighting=ut.PRS(THETA), n_trees=30, n_leaves=15),
    "linear": lambda: ut.LinearRanker(weighting=ut.PRS(THETA)),
}


def first_seen(columns):
    """The price of each (query, document) at its first impression, for every impression."""
    order = np.lexsort((columns["session_id"], columns["timestamp"]))
    _, first, owner = np.unique(columns["doc_id"][order], return_index=True, return_inverse=True)
    price = np.empty_like(columns["price"])
    price[order] = columns["price"][order][first][owner]
    return price


def true_dcg(columns, scores):
    """Mean over sessions: each orders its own documents, and gains their true relevance."""
    order = np.argsort(-scores.reshape(-1, 6), axis=1, kind="stable")
    gamma = np.take_along_axis(columns["gamma"].reshape(-1, 6), order, axis=1)
    return float((gamma / np.log2(2 + np.arange(6))).sum(axis=1).mean())


@pytest.mark.parametrize("ranker", RANKERS)
def test_prices_of_the_day_teach_more_than_those_seen_first(shop, ranker):
    columns = shop(6000, seed=5)
    columns["timestamp"] = columns["session_id"]
    fixed = {**columns, "price": first_seen(columns)}
    held_out = columns["session_id"] >= 4000
    value = {}
    for name, table in (("of the day", columns), ("seen first", fixed)):
        train = {key: column[~held_out] for key, column in table.items() if key != "gamma"}
        test = {key: column[held_out] for key, column in table.items()}
        log = ut.read_log(pa.table(train), features=FEATURES)
        assert (log.item is not None) is (name == "of the day")
        model = RANKERS[ranker]().fit(log)
        features = np.column_stack([test[each] for each in FEATURES]).astype(np.float32)
        value[name] = true_dcg(test, model.predict(features))
    test = {key: column[held_out] for key, column in columns.items()}
    logged, best = true_dcg(test, -test["position"]), true_dcg(test, test["gamma"])
    gain = {name: (each - logged) / (best - logged) for name, each in value.items()}
    assert gain["of the day"] > 0.9
    assert gain["seen first"] < 0.8


@pytest.mark.parametrize("ranker", RANKERS)
def test_counted_lists_are_repeated_sessions_with_versions_too(shop, ranker):
    columns = shop(400, n_queries=3, seed=6)
    columns["price"] = np.round(columns["price"])
    del columns["gamma"]
    log = ut.read_log(pa.table(columns), features=FEATURES)
    assert log.item is not None
    twice = log.take(np.arange(log.n_lists), count=2 * log.count)
    repeated = log.take(np.repeat(np.arange(log.n_lists), 2 * log.count))
    repeated = repeated._with(count=np.ones(repeated.n_lists, dtype=np.int64))
    scores = [RANKERS[ranker]().fit(each).predict(log.features) for each in (twice, repeated)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
