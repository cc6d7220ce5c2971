"""Whether production shows documents to the sessions that want them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.wall.varying import WORLDS, make

import untilt as ut
from untilt.auditing.sessions import session_test

THETA = np.arange(1, 11.0) ** -0.8


def log_of(name, seed, **other):
    return ut.read_log(make(replace(WORLDS[name], **other), seed).frame, features=[], threads=1)


def slow(frame, theta, covariance):
    """Session by session, with the derivative by finite differences."""

    def by_query(theta):
        frame["seen"] = theta[frame["position"] - 1]
        sums = frame.groupby(["query_id", "doc_id"])[["click", "seen"]].sum()
        g = (sums["click"] / sums["seen"]).to_dict()
        total = dict.fromkeys(frame["query_id"].unique(), 0.0)
        for (query, _), rows in frame.groupby(["query_id", "session_id"]):
            best = sorted(rows["doc_id"], key=lambda d: (mean[query, d], rank[query, d]))
            for place, (_, row) in zip(best, rows.sort_values("position").iterrows(), strict=True):
                k = row["position"]
                new = 1 / np.log2(1 + k)  # of the document that the mean order puts at k
                total[query] += new * own(rows, place, theta, g[query, place])
                total[query] -= new * own(rows, row["doc_id"], theta, g[query, row["doc_id"]])
        return np.array(list(total.values()))

    def own(rows, document, theta, g):
        row = rows[rows["doc_id"] == document].iloc[0]
        return row["click"] / theta[int(row["position"]) - 1] - g

    mean = frame.groupby(["query_id", "doc_id"])["position"].mean().to_dict()
    rank = {pair: number for number, pair in enumerate(sorted(mean))}
    T, step = by_query(theta), 1e-5
    G = np.empty(len(theta))
    for k in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[k] += step
        down[k] -= step
        G[k] = (by_query(up).sum() - by_query(down).sum()) / (2 * step)
    return T.sum() / np.sqrt(np.sum(T**2) + G @ covariance @ G)


def test_a_session_at_a_time():
    rng = np.random.default_rng(0)
    rows = [
        (q, 100 * q + s, d, k, int(rng.random() < THETA[k - 1] * (0.2 + 0.15 * d)))
        for q in range(5)
        for s in range(8)
        for k, d in enumerate(rng.permutation(4), start=1)
    ]
    frame = pd.DataFrame(rows, columns=["query_id", "session_id", "doc_id", "position", "click"])
    root = rng.normal(size=(4, 4)) * 0.05
    covariance = root @ root.T
    covariance[0] = covariance[:, 0] = 0
    curve = ut.PositionBias(
        THETA[:4], std_error=np.sqrt(np.diag(covariance)), covariance=covariance, method="known"
    )
    found = session_test(ut.read_log(frame, features=[]), curve)
    assert found.z == pytest.approx(slow(frame, THETA[:4], covariance), rel=1e-4)
    apart = session_test(ut.read_log(frame, features=[], collapse=False), curve)
    assert apart.z == pytest.approx(found.z, rel=1e-9)


def test_lists_that_are_all_the_same_cannot_tell():
    assert session_test(log_of("rankers", 0, rankers=1), ut.KnownBias(THETA)) is None


@pytest.mark.parametrize(("logs", "most"), [(10, 2), pytest.param(40, 6, marks=pytest.mark.slow)])
def test_chance_alone_is_rarely_found(logs, most):
    # Fresh seeds; at most 6 of 40, or 2 of 10, with probability .986 where the size is .05.
    found = [session_test(log_of("noise", 700 + i), ut.KnownBias(THETA)) for i in range(logs)]
    assert sum(each.rejects for each in found) <= most


@pytest.mark.parametrize("name", ["taste", "stock"])
def test_lists_that_follow_sessions_are_found(name):
    logs = [log_of(name, seed) for seed in range(700, 704)]
    assert all(session_test(log, ut.KnownBias(THETA)).rejects for log in logs)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("stock_and_shuffles", "reading.sessions-differ"),
        ("shuffles", None),  # production shows one list a query: nothing can tell
    ],
)
def test_the_audit_tests_production_by_the_curve_of_the_experiment(name, code):
    found = ut.audit(log_of(name, 3)).sessions
    assert (found and found.fact.code) == code


def test_without_an_experiment_the_audit_does_not_ask():
    assert ut.audit(log_of("noise", 3)).sessions is None
