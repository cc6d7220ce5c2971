"""Tests of the model of reading on simulated people who read in a known way."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.auditing.people import fixed_lists, people

from untilt import ClickLog, PositionBias, audit, estimate, shown
from untilt._core import codec
from untilt.auditing.audit import Audit
from untilt.auditing.reading import ReadingTest, ReadingTests, reading_tests
from untilt.bias.em.trust_em import trust_test
from untilt.data.counts import position_counts
from untilt.facts import codes


def failed(log, **options) -> list[str]:
    return [test.question for test in reading_tests(log, **options).failed]


def test_people_who_read_by_position_pass():
    tests = reading_tests(people(0))
    asked = [test.question for test in tests.tests]
    assert asked == ["clicks-above", "time", "ranker", "context", "relevance"]
    assert tests.fits
    assert not tests.facts
    assert codes(tests.notes) == ["reading.fits"]
    assert all(test.low < 1.1 and test.high > 1 / 1.1 for test in tests.tests)


@pytest.mark.parametrize(
    ("way", "cause", "code"),
    [
        ({"trust": 0.3}, "relevance", "reading.trust-serious"),
        ({"cascade": True}, "clicks-above", "reading.clicks-above-serious"),
        ({"saturation": 0.4}, "clicks-above", "reading.clicks-above-serious"),
        ({"drift": 1.0}, "time", "reading.time-spread-serious"),
        ({"devices": (0.3, 1.3)}, "context", "reading.context"),
    ],
)
def test_each_way_of_reading_is_named(way, cause, code):
    tests = reading_tests(people(1, **way))
    assert tests.failed[0].question == cause
    assert tests.facts[0].code == code
    assert tests.failed[0].ratio == pytest.approx(tests.facts[0].fields["ratio"])


def test_people_who_differ_do_not_take_the_verdict():
    """Without a column that tells devices apart: clicks come together, the curve is a mean."""
    log = people(2, devices=(0.3, 1.3))
    tests = reading_tests(replace(log, context={}))
    assert codes(tests.facts)[0] == "reading.clicks-above-more"
    assert tests.failed[0].ratio > 1
    assert all(fact.severity != "serious" for fact in tests.facts)


def test_rankers_that_serve_other_people():
    """The second ranker's lists go to those who click half as often."""
    log = people(3)
    rows = np.repeat(log.ranker == 1, np.diff(log.indptr))
    half = np.random.default_rng(0).random(len(rows)) < 0.5
    tests = reading_tests(log.with_label(np.where(rows & half, 0.0, log.label)))
    assert codes(tests.facts)[0] == "reading.ranker-level-serious"
    expected = {"old": 2.0, "new": 0.5}[tests.failed[0].about]
    assert tests.failed[0].ratio == pytest.approx(expected, rel=0.1)


def test_readers_who_change_at_half_time():
    log = people(4, late=1.6)
    found = reading_tests(log).failed[0]
    assert (found.question, found.detail) == ("time", "slope")
    assert found.ratio < 1  # later they read less deep


def test_several_findings_have_one_cause_first():
    tests = reading_tests(people(5, cascade=True))
    assert len(tests.failed) > 1
    first, also = tests.facts
    assert first.code == "reading.clicks-above-serious"
    assert also.code == "reading.also"
    assert len(also.fields["others"]) == len(tests.failed) - 1


def test_collapsed_sessions_give_the_same():
    log = replace(people(6, trust=0.1), time=None)
    one, other = reading_tests(log), reading_tests(log.collapse())
    for mine, its in zip(one.tests, other.tests, strict=True):
        assert mine.p_value == pytest.approx(its.p_value, rel=1e-9)


def test_what_cannot_be_tested_says_why():
    log = people(7, n_queries=30, sessions=300)
    bare = replace(log, time=None, ranker=None, context={})
    tests = reading_tests(bare)
    untested = {fact.fields["question"]: fact.fields["why"].code for fact in tests.untested}
    assert untested == {"time": "reading.no-time"}
    still = bare.take(np.unique(bare.query, return_index=True)[1])
    untested = {
        fact.fields["question"]: fact.fields["why"].code for fact in reading_tests(still).untested
    }
    assert untested["relevance"] == "reading.nothing-moves"
    assert untested["clicks-above"] == "reading.nothing-repeats"


def test_a_number_of_many_values_is_halved():
    log = people(8, devices=(0.3, 1.3))
    age = np.where(log.context["device"] == "phone", 20.0, 50.0) + np.arange(log.n_lists) % 10
    found = reading_tests(replace(log, context={"age": age})).failed[0]
    assert (found.question, found.column) == ("context", "age")


def one_test(**changes: Any) -> ReadingTest:
    usual: dict[str, Any] = {
        "question": "relevance", "ratio": 1.5, "low": 1.3, "high": 1.8, "p_value": 1e-4,
        "adjusted": 1e-3, "effective_queries": 90.0, "detail": "slope", "position": 7,
    }  # fmt: skip
    return ReadingTest(**{**usual, **changes})


def test_trust_is_named_where_both_tests_show_it():
    assert one_test().names_trust
    unseen = one_test(trust_p=0.9)
    assert unseen.fact.code == "reading.weaker-fall-slower-serious"
    assert not unseen.names_trust


def test_the_other_test_of_trust_is_that_of_trust_em():
    for seed, trust in ((6, 0.3), (7, 0.3), (0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0)):
        log = people(seed, trust=trust)
        asked = next(t for t in reading_tests(log).tests if t.question == "relevance")
        own = trust_test(position_counts(log.without_versions()))
        assert (asked.trust_p is None) == (own.t < 0 and own.p_value < 0.5)
        assert not trust or asked.trust_p is None


def test_severity_asks_for_more_than_significance():
    assert one_test().fact.code == "reading.trust-serious"
    assert one_test(ratio=1.06, low=1.03, high=1.09).fact.code == "reading.trust"
    assert one_test(ratio=0.7, low=0.6, high=0.8).fact.code == "reading.better-fall-steeper-serious"
    assert one_test(adjusted=0.2).fact.code == "reading.passed"
    assert " changes. TrustEM models trust." in one_test().fact
    above = {"question": "clicks-above", "ratio": 0.6, "low": 0.5, "high": 0.7, "detail": "level"}
    assert one_test(**above, share=0.5).fact.severity == "serious"  # examination less 15% or more
    assert one_test(**above, share=0.05).fact.severity == "warning"


def test_holm_over_all_tests():
    tests = reading_tests(people(9))
    raw = sorted(test.p_value for test in tests.tests)
    steps = [(len(raw) - i) * p for i, p in enumerate(raw)]
    expected = np.minimum(1, np.maximum.accumulate(steps))
    assert sorted(test.adjusted for test in tests.tests) == pytest.approx(list(expected))


def test_the_audit_tells_and_keeps_it():
    seen = audit(people(10, trust=0.3))
    assert "reading.trust-serious" in codes(seen.warnings)
    assert (seen.next_step.rule, seen.next_step.method) == ("trust-in-top", "TrustEM")
    assert "Does the position-based model fit?" in repr(seen)
    again = codec.from_plain(Audit, codec.to_plain(seen), where="audit")
    assert again.reading == seen.reading
    assert isinstance(again.reading, ReadingTests)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [{}, {"zipf": 1.3}, {"n_queries": 20, "sessions": 4000}, {"rate": 0.05}, {"lists": (3, 10)}],
    ids=str,
)
def test_size(case):
    """People who read by position fail in 5% of the logs at most: 11 of 100 is beyond chance."""
    assert sum(bool(failed(people(seed, **case))) for seed in range(100)) < 12


def test_features_stand_in_where_no_document_moves():
    trusting = reading_tests(fixed_lists(0, trust=0.4))
    assert [test.question for test in trusting.tests] == ["clicks-above", "features"]
    assert [fact.fields["question"] for fact in trusting.untested] == ["time"]
    assert codes(trusting.facts) == ["reading.trust-by-features-serious"]
    assert trusting.veto(knows_trust=True) is None
    assert reading_tests(fixed_lists(0)).fits


def test_features_that_tell_nothing_test_nothing():
    log = fixed_lists(1, trust=0.4)
    noise = np.random.default_rng(0).normal(size=log.features.shape)
    tests = reading_tests(replace(log, features=noise))
    assert [test.question for test in tests.tests] == ["clicks-above"]


def test_a_curve_carries_the_doubt():
    """`run` writes it into the status, and `estimate` repeats it wherever the curve is used."""
    curve = PositionBias(np.array([1.0, 0.5]), status=one_test().fact)
    log = people(11, n_queries=30, sessions=600)
    found = estimate(log.top(2), {"shown": shown}, curve)
    assert "estimate.bias-doubted" in codes(found.warnings)


@pytest.mark.parametrize("seed", [40, 54, 154, 254, 299])
def test_small_and_extreme_logs_give_ordered_intervals(seed):
    """A handful of sessions, curves to k^-5, people, counts to 10^12: warnings are errors here."""
    rng = np.random.default_rng(seed)
    n, docs = int(rng.choice([10, 40, 300])), 5
    query, order = rng.integers(3, size=n), np.argsort(rng.random((n, docs)), axis=1)
    steep, differ = rng.choice([0, 1, 5]), rng.choice([0, 3])
    p = 0.3 * np.arange(1, docs + 1.0) ** -steep
    p = p * np.exp(differ * rng.normal(size=(3, docs))[query[:, None], order])
    log = ClickLog(
        np.arange(3), np.arange(15), np.repeat(np.arange(3), docs), np.arange(n + 1) * docs, query,
        (docs * query[:, None] + order).ravel(), np.tile(np.arange(1, docs + 1), n),
        (rng.random((n, docs)) < p).ravel() * 1.0, person=rng.integers(5, size=n),
        count=rng.choice([1, 1000, 10**12], size=n), time=rng.permutation(n),
    )  # fmt: skip
    for test in reading_tests(log).tests:
        assert 0 <= test.low <= test.ratio <= test.high
