"""Documents whose features change: audited by document, and warned of where they drift."""

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut


@pytest.fixture(scope="module", params=[0.0, 2.0], ids=["by mood", "by price"])
def case(request, shop):
    """A shop whose ranker knows nothing of the price, and one that puts cheap documents first."""
    columns = shop(8000, by_price=request.param, seed=1)
    del columns["gamma"]
    table = pa.table(columns)
    return request.param > 0, ut.read_log(table, features=["quality", "price"]), ut.read_log(table)


def codes(facts):
    return {fact.code for fact in facts}


def test_documents_that_rise_when_they_are_cheap_are_not_compared_with_themselves(case):
    by_price, log, _ = case
    found = ut.audit(log)
    assert found.versions.features == ("price",)
    assert found.versions.drifts is by_price
    assert ("audit.relevance-drifts" in codes(found.warnings)) is by_price
    assert found.is_identified is not by_price
    assert found.advice.estimator == ("RegressionEM" if by_price else "AllPairs")
    assert (found.evidence is None) is by_price
    curve = getattr(ut, found.advice.estimator)(**found.advice.options).fit(log).bias_
    truth = 1 / np.arange(1, 7)
    assert curve.examination == pytest.approx(truth, rel=0.08)
    # What the guard is for: the curve that a plain comparison would give.
    off = np.max(np.abs(ut.AllPairs().fit(log).bias_.examination / truth - 1))
    assert off > 0.2 if by_price else off < 0.08


def test_positions_and_counts_are_those_of_the_log_without_features(case):
    by_price, log, plain = case
    found, want = ut.audit(log), ut.audit(plain)
    assert found.size.documents == want.size.documents == log.n_items
    assert found.coverage == want.coverage
    assert found.duplicate_impressions == want.duplicate_impressions == 0
    np.testing.assert_array_equal(found.graph.documents, want.graph.documents)
    np.testing.assert_array_equal(found.graph.clicks, want.graph.clicks)
    assert found.comparable == want.comparable
    if not by_price:
        np.testing.assert_array_equal(found.evidence.examination, want.evidence.examination)
    assert "audit.versions" in codes(found.notes)
    assert "audit.versions" not in codes(want.notes)


def test_an_experiment_is_right_whatever_the_price_does(shop):
    columns = shop(8000, by_price=2.0, seed=1)
    del columns["gamma"]
    columns["ranker"] = np.where(columns["session_id"] % 2 == 0, "shuffle", "base")
    rng, shuffled = np.random.default_rng(0), columns["session_id"] % 2 == 0
    order = np.argsort(rng.random((8000, 6)), axis=1)
    rows = np.where(shuffled.reshape(-1, 6), order, np.arange(6)) + 6 * np.arange(8000)[:, None]
    relevance = shop(8000, by_price=2.0, seed=1)["gamma"][rows.ravel()]
    for name in ("doc_id", "quality", "price"):
        columns[name] = columns[name][rows.ravel()]
    columns["click"] = (rng.random(len(relevance)) < relevance / columns["position"]).astype(int)
    log = ut.read_log(pa.table(columns), features=["quality", "price"])
    found = ut.audit(log)
    assert found.advice.estimator == "ShuffledTop"
    curve = ut.ShuffledTop().fit(log).bias_
    assert curve.examination == pytest.approx(1 / np.arange(1, 7), rel=0.1)


def test_plans_are_made_by_document(case):
    _, log, plain = case
    plans = [ut.plan_swaps(each, sessions_per_day=10_000) for each in (log, plain)]
    assert repr(plans[0]) == repr(plans[1])
