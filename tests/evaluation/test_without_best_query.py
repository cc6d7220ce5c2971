"""A verdict is that of all queries but the one that speaks most for it: never less for more."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.wall.varying import World as Varying
from tests.wall.varying import make

import untilt as ut
from untilt.evaluation.uncertainty import Sums, without_best_query

K = 3


def drawn(seed, n_queries, zipf):
    """Estimates of two systems: queries of uneven traffic, some with heavy tails."""
    rng = np.random.default_rng(seed)
    sessions = np.maximum(rng.poisson(2000 * np.arange(1, n_queries + 1.0) ** -zipf), 1.0)
    difference = 0.05 + 0.2 * rng.standard_t(3, size=n_queries)
    shown = rng.random(n_queries)
    total = np.stack([shown, shown + difference], axis=1) * sessions[:, None]
    sums = Sums(total, sessions, np.zeros((2, K)), np.zeros(K), None)
    log = SimpleNamespace(query_id=np.arange(n_queries), query=np.arange(n_queries))
    return sums, SimpleNamespace(
        unbiased=sums, sums=sums, systems=["shown", "new"], level=0.95, is_bounded=False,
        inputs=SimpleNamespace(cells=SimpleNamespace(log=log)),
    )  # fmt: skip


@pytest.mark.parametrize("zipf", [0.0, 0.7, 1.3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_more_evidence_from_one_query_never_takes_a_verdict_away(zipf, sign):
    for seed in range(40):
        sums, estimates = drawn(seed, 30, zipf)
        before = without_best_query(estimates, "new", "shown", sign=sign)
        assert before is not None
        for more in (0.1, 1.0, 10.0, 1000.0):
            total = sums.total.copy()
            total[int(before.query), 1] += sign * more * sums.norm[int(before.query)]
            estimates.unbiased = Sums(total, sums.norm, sums.slope, sums.norm_slope, None)
            after = without_best_query(estimates, "new", "shown", sign=sign)
            assert after == before


def test_it_is_what_the_log_says_without_that_query():
    made = make(Varying(rankers=2, named="ranker", zipf=1.0, sessions=3000, queries=40), seed=5)
    log = ut.read_log(made.frame, features=["f0"], threads=1)
    document, query = np.asarray(log.doc_id).astype(int), np.asarray(log.query_id).astype(int)
    scores = made.worth[query[log.doc_query], document]
    given: dict[str, Any] = {"bias": ut.KnownBias(made.theta), "evaluator": "policy-aware"}
    estimates = ut.estimate(log, {"shown": ut.shown, "new": scores}, **given)
    rest = without_best_query(estimates, "new", "shown", sign=1.0)
    assert rest is not None
    left = int(np.flatnonzero(np.asarray(log.query_id).astype(str) == rest.query)[0])
    fewer = log.take(log.query != left)
    again = ut.estimate(fewer, {"shown": ut.shown, "new": scores}, **given).compare("shown")["new"]
    assert rest.value == pytest.approx(again.value)
    assert rest.interval.low == pytest.approx(again.interval.low)
    assert rest.interval.high == pytest.approx(again.interval.high)
    assert rest.share == pytest.approx(log.sessions[log.query == left].sum() / log.n_sessions)
