"""Of every method in the catalogue that returns a curve: no interval is of zero width, and what has
no honest one says so.

Logs are small and odd: a position that nobody clicks, one that everybody clicks, no position bias
at all, two queries. A method may refuse them; what it returns must not claim to know a position of
such a log to within 1%.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest

from untilt import ClickLog, LambdaMART, LinearRanker, catalog
from untilt.bias.curve import PositionBias
from untilt.errors import UntiltError

DEPTH = 4
KINDS: tuple[catalog.Kind, ...] = ("bias", "click model", "ranker")
NARROWEST = 1.01  # high / low of a position in a log of a few hundred clicks
SMALL = {
    "widths": (4,), "epochs": 3, "n_trees": 5, "min_data_in_leaf": 5, "max_steps": 3,
    "n_threads": 1,
}  # fmt: skip
ORDERS = {
    "base": [0, 1, 2, 3],
    "swap:1-2": [1, 0, 2, 3],
    "swap:1-3": [2, 1, 0, 3],
    "swap:1-4": [3, 1, 2, 0],
    "swap:2-3": [0, 2, 1, 3],
    "swap:3-4": [0, 1, 3, 2],
    "shuffle": None,
}
THETA = np.array([1.0, 0.7, 0.5, 0.4])


def log_of(theta, *, relevance=(0.1, 0.9), n_queries=12, n_sessions=600, seed=0):
    """Lists of four with swaps and shuffles, clicks of the position-based model."""
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(relevance[0], relevance[1], size=(n_queries, DEPTH))
    names = tuple(ORDERS)
    query, ranker = rng.integers(n_queries, size=n_sessions), rng.integers(7, size=n_sessions)
    order = np.array(
        [rng.permutation(DEPTH) if ORDERS[names[r]] is None else ORDERS[names[r]] for r in ranker]
    )
    clicks = rng.random((n_sessions, DEPTH)) < np.asarray(theta) * gamma[query[:, None], order]
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(DEPTH), n_queries),
        doc_query=np.repeat(np.arange(n_queries), DEPTH),
        features=gamma.reshape(-1, 1) + rng.normal(scale=0.1, size=(n_queries * DEPTH, 2)),
        indptr=np.arange(0, DEPTH * n_sessions + 1, DEPTH),
        query=query,
        document=(query[:, None] * DEPTH + order).ravel(),
        position=np.tile(np.arange(1, DEPTH + 1), n_sessions),
        label=clicks.ravel().astype(float),
        ranker=ranker,
        ranker_names=names,
    )


def fixed(log):
    """Every query in one order: nothing is shown at two positions."""
    return replace(log.take(np.flatnonzero(log.ranker == 0)), ranker=None, ranker_names=())


LOGS = {
    "usual": log_of(THETA),
    "nobody clicks position 3": log_of([1.0, 0.7, 0.0, 0.4]),
    "everybody clicks position 1": log_of([1.0, 0.7, 0.5, 0.4], relevance=(1.0, 1.0)),
    "no bias, all clicked": log_of([1.0, 1.0, 1.0, 1.0], relevance=(0.9, 1.0)),
    "no bias": log_of([1.0, 1.0, 1.0, 1.0]),
    "few clicks": log_of(THETA, relevance=(0.01, 0.05)),
    "hardly any repeats": log_of(THETA, relevance=(0.05, 0.4), n_queries=150, n_sessions=200),
    "two queries": log_of(THETA, n_queries=2, n_sessions=80),
    "one query": log_of(THETA, n_queries=1, n_sessions=200),
    "fixed order": fixed(log_of(THETA, n_sessions=3000)),
}


def small(method, **options):
    """The method with what makes it quick here."""
    known = method().get_params() if hasattr(method(), "get_params") else {}
    return method(**{name: value for name, value in SMALL.items() if name in known} | options)


def curve_of(method, log, *, contexts=False, **options):
    """The `bias_` of a method fitted to a log."""
    made = small(method, **options)
    return (made.fit(log, log.query[:, None] % 2.0) if contexts else made.fit(log)).bias_


def has_curve(method):
    """Whether a fitted one has a `bias_`."""
    return hasattr(method, "bias_") or "bias_" in getattr(method, "__dataclass_fields__", {})


def curves():
    """Name -> a function from a log to the curve that a method returns."""
    makers = {}
    for record in catalog.methods("bias"):
        by = partial(curve_of, record.load(), contexts="context" in record.needs)
        makers[f"bias {record.name}"] = by
        if "relevance" in record.takes:
            for relevance in ("counts", "features"):
                makers[f"bias {record.name} by {relevance}"] = partial(by, relevance=relevance)
    for kind in KINDS[1:]:
        for record in catalog.methods(kind):
            if has_curve(record.load()):
                makers[f"{kind} {record.name}"] = partial(curve_of, record.load())
    for record in catalog.methods("weighting"):
        if record.load().joint:
            for ranker in (LambdaMART, LinearRanker):
                name = f"{record.name} in {ranker.__name__}"
                makers[name] = partial(curve_of, ranker, weighting=record.load()())
    return makers


CURVES = curves()


# Networks take seconds to compile for each log, and have no interval on any of them.
NETWORKS = {
    *(
        f"{kind} {each.name}"
        for kind in KINDS
        for each in catalog.methods(kind)
        if "jax" in each.needs
    )
}
CASES = [
    pytest.param(*case, id=str(case))
    for case in product(CURVES, LOGS)
    if case[0] not in NETWORKS or case[1] == "usual"
]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_an_interval_has_a_width_or_is_not_given(name, shape):
    try:
        bias = CURVES[name](LOGS[shape])
    except UntiltError:
        return
    if bias is None:  # a ranker that learned none
        return
    assert isinstance(bias, PositionBias)
    assert not bias.is_known, "what clicks made is never exact"
    if not bias.has_interval:
        assert any(part.severity != "note" for part in bias.status.parts), bias.status
        return
    first = 1 if bias.relative else 0  # position 1 is the unit of a relative curve
    low, high, theta = bias.low[first:], bias.high[first:], bias.examination[first:]
    assert np.all((low >= 0) & (low <= theta) & (theta <= high)), bias
    assert np.all(high > NARROWEST * low), bias
    assert np.all(bias.std_error[first:] > 0), bias


def test_there_is_something_to_test():
    assert len(CURVES) >= len(catalog.methods("bias")) + 2
