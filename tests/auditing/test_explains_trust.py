"""Whether a curve with trust explains why clicks of weaker documents fall more steeply."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import untilt as ut
from untilt.auditing.reading import explains_trust
from untilt.report.step_results import UsedBias

D, S, Q = 8, 12_000, 120
K = np.arange(1, D + 1.0)
THETA, PLUS = K**-0.7, np.full(D, 0.98)


def trusting(seed, eps=0.5):
    """A log whose readers click what they see and trust: eps- = eps / k."""
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=(Q, D))
    gamma = 1 / (1 + np.exp(1 - 1.5 * worth))
    order = rng.normal(size=(3, Q, D)) * 0.6 + 0.8 * worth
    query, ranker = rng.integers(Q, size=S), rng.integers(3, size=S)
    shown = np.argsort(-order[ranker, query], axis=1)
    seen = np.take_along_axis(gamma[query], shown, axis=1)
    click = rng.random((S, D)) < THETA * (PLUS * seen + eps / K * (1 - seen))
    frame = pd.DataFrame(
        {
            "query_id": np.repeat(query, D),
            "session_id": np.repeat(np.arange(S), D),
            "doc_id": shown.ravel(),
            "position": np.tile(np.arange(1, D + 1), S),
            "click": click.ravel().astype(int),
        }
    )
    return frame, ut.PositionBias(THETA, eps_plus=PLUS, eps_minus=eps / K)


def read(frame, **other):
    return ut.read_log(frame, features=[], threads=1, **other)


def test_the_true_curve_of_trust_is_rarely_refused():
    told = [explains_trust(read(frame), curve) for frame, curve in map(trusting, range(500, 520))]
    assert sum(told) >= 17  # 20 of 20 but for the 5% of the test


@pytest.mark.parametrize("seed", [3, 4])
def test_an_estimated_curve_explains_it_and_one_without_enough_trust_does_not(seed):
    log = read(trusting(seed)[0])
    estimated = ut.TrustEM().fit(log).bias_
    none = ut.PositionBias(
        ut.AllPairs().fit(log).bias_.examination, eps_plus=np.ones(D), eps_minus=np.full(D, 1e-6)
    )
    assert (explains_trust(log, estimated), explains_trust(log, none)) == (True, False)
    assert not explains_trust(log, ut.KnownBias(THETA))  # it knows no trust at all


def test_counts_equal_repeated_sessions():
    frame, curve = trusting(6)
    few = replace(curve, eps_minus=0.2 / K)
    frame = frame[frame["query_id"] < 20]
    logs = read(frame), read(frame, collapse=False)
    assert len({explains_trust(log, few) for log in logs}) == 1


def test_no_document_that_moves_explains_nothing():
    frame, curve = trusting(7)
    log = read(frame.assign(doc_id=frame["position"]))
    assert not explains_trust(log, curve)


def test_a_result_says_by_itself_that_it_explains_nothing():
    assert not UsedBias(ut.KnownBias(THETA), "given").explains_trust
