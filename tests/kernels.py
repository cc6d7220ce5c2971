"""Compile the kernels that most tests use, once, before two workers meet them: `make kernels`.

    python -m tests.kernels

A fresh clone has none of them, and two workers that begin together compile the same ones side by
side. Two processes share the work here, each with kernels of its own; where they lie on disk
already, this takes as long as loading them.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import untilt as ut
from untilt import catalog

THETA = np.array([1.0, 0.7, 0.5, 0.4, 0.3])


def log_of(n_queries: int = 40, n_sessions: int = 600) -> Any:
    """Lists of five in several orders, with features; made without a kernel."""
    rng = np.random.default_rng(0)
    query = rng.integers(n_queries, size=n_sessions)
    order = rng.permuted(np.tile(np.arange(6), (n_sessions, 1)), axis=1)[:, :5]
    gamma = rng.uniform(0.1, 0.9, size=(n_queries, 6))
    clicks = rng.random(order.shape) < THETA * gamma[query[:, None], order]
    return ut.ClickLog(
        np.arange(n_queries), np.tile(np.arange(6), n_queries), np.repeat(np.arange(n_queries), 6),
        np.arange(0, 5 * n_sessions + 1, 5), query, (6 * query[:, None] + order).ravel(),
        np.tile(np.arange(1, 6), n_sessions), clicks.ravel().astype(float),
        features=np.column_stack([gamma.ravel(), rng.normal(size=(6 * n_queries, 3))]),
        ranker=rng.integers(2, size=n_sessions), ranker_names=("a", "b"),
    )  # fmt: skip


def of_data() -> None:
    """Simulation, reading, statistics of logs, estimators of the bias, click models."""
    judged = ut.make_judged(n_queries=30, n_features=5, seed=0)
    for protocol in ("dla", "cascade", "dwell"):
        ut.simulate(judged, protocol, n_sessions=300, seed=0, n_threads=1)
    log = log_of()
    ut.audit(log)
    for record in catalog.methods("bias"):
        if record.name in ("all-pairs", "regression-em", "trust-em"):
            record.make().fit(log)
    for record in catalog.methods("click model"):
        if "jax" not in record.needs:
            record.make().fit(log).log_likelihood(log)


def of_rankers() -> None:
    """Rankers, their weightings and objectives, metrics, evaluators."""
    log, curve = log_of(), ut.KnownBias(THETA)
    few: dict[str, Any] = {"n_trees": 2, "n_leaves": 4, "min_data_in_leaf": 3, "n_threads": 1}
    for weighting in (ut.Balanced(curve), ut.PRS(curve), ut.PairwiseDebiasing(), None):
        ranker = ut.LambdaMART(weighting, **few).fit(log)
    ut.LambdaMART("auto", bias=curve, folds=2, **few).fit(log)
    ut.LambdaMART(**few).fit(ut.make_judged(n_queries=30, n_features=5, seed=0))
    ut.LinearRanker(ut.PRS(curve), max_rounds=2).fit(log)
    ut.RankSVM(ut.IPS(curve), max_rounds=2).fit(log)
    judged = ut.make_judged(n_queries=30, n_features=4, seed=1)
    ut.evaluate(judged, ranker, metrics=["ndcg@10", "map", "arp"])
    for among in ("list", "shown"):
        ut.estimate(log, ranker, curve, among=among)


def in_two_processes(first: Callable[[], None], second: Callable[[], None]) -> int:
    """The exit status of the worse one; neither has used a thread before it is alone."""
    child = os.fork()
    if not child:
        try:
            first()
            os._exit(0)
        finally:
            os._exit(1)
    second()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(in_two_processes(of_data, of_rankers))
