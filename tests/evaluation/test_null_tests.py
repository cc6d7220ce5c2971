"""Null tests: pass on logs that are sound, and each fires on a log that breaks it."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt import catalog
from untilt._core.statistics import Interval
from untilt.evaluation.null_tests import NullTests
from untilt.facts import codes

DEPTH = 8
THETA = 1.0 / np.arange(1, DEPTH + 1)


def made_log(relevance, scores, queries, rng, *, kept=1.0, noise=0.05):
    """One session per entry of `queries`, in the order of `scores`; rows are kept by chance."""
    rows: dict[str, list[Any]] = {name: [] for name in ("document", "position", "label", "n")}
    n_documents = relevance.shape[1]
    for q in queries:
        order = np.argsort(-(scores[q] + noise * rng.normal(size=n_documents)))[:DEPTH]
        click = rng.random(DEPTH) < THETA * relevance[q, order]
        keep = np.flatnonzero(rng.random(DEPTH) < kept)
        keep = keep if len(keep) else np.array([0])
        rows["document"].append(q * n_documents + order[keep])
        rows["position"].append(keep + 1)
        rows["label"].append(click[keep].astype(float))
        rows["n"].append(len(keep))
    n_queries = len(relevance)
    return ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(relevance.size),
        doc_query=np.repeat(np.arange(n_queries), n_documents),
        indptr=np.r_[0, np.cumsum(rows["n"])],
        query=np.asarray(queries),
        document=np.concatenate(rows["document"]),
        position=np.concatenate(rows["position"]),
        label=np.concatenate(rows["label"]),
    )


def world(seed, n_queries=60, n_documents=10):
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 3, (n_queries, n_documents))
    return rng, relevance, relevance + 0.2 * rng.normal(size=relevance.shape)


@pytest.fixture(scope="module")
def sound():
    """(log, truth, other scores as good as the logged ones): 60 queries, 4000 sessions."""
    rng, relevance, scores = world(0)
    log = made_log(relevance, scores, rng.integers(60, size=4000), rng)
    other = relevance + 0.2 * rng.normal(size=relevance.shape)
    return log, relevance.ravel(), other.ravel()


def difference(log, new, bias=THETA, **options):
    systems: dict[str, Any] = {"shown": ut.shown, "new": new}
    return ut.estimate(log, systems, bias, **options).compare("shown")["new"]


def both(log, new, bias=THETA, **options):
    return ut.null_tests(log, new, bias, **options), difference(log, new, bias, **options)


def test_a_sound_log_passes(sound):
    log, truth, other = sound
    for new in (truth, other, -truth):
        tests, found = both(log, new)
        assert tests.failures(found) == ()
        assert tests.difference == pytest.approx(found.value)
        assert (tests.same_order, tests.same_order_queries) == (0.0, 60)
        assert tests.permuted == pytest.approx(0, abs=1e-9)
        assert 0 < tests.permuted_error < 0.1
        assert tests.clipping_bias == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "evaluator",
    [each.name for each in catalog.methods("evaluator") if "propensity" not in each.needs],
)
def test_the_same_order_differs_by_nothing_in_every_evaluator(evaluator):
    rng, relevance, scores = world(1, 20)
    log = made_log(relevance, scores, rng.integers(20, size=200), rng, kept=0.8)
    assert ut.null_tests(log, relevance.ravel(), THETA, evaluator=evaluator).same_order == 0.0


def test_the_shown_order_itself_has_nothing_to_relabel(sound):
    tests, found = both(sound[0], ut.shown)
    assert (tests.difference, tests.relabelled_p, tests.relabelled_outside) == (0.0, 1.0, 0.0)
    assert tests.failures(found) == ()


def test_the_same_seed_gives_the_same_result_and_inputs_are_untouched(sound):
    log, truth, _ = sound
    before = log.label.copy()
    assert ut.null_tests(log, truth, THETA, seed=4) == ut.null_tests(log, truth, THETA, seed=4)
    assert np.array_equal(log.label, before)


def test_counted_lists_are_repeated_sessions(sound):
    log, truth, _ = sound
    a, b = (ut.null_tests(each, truth, THETA) for each in (log, log.collapse()))
    for name in (
        "difference",
        "std_error",
        "same_order",
        "clipping_bias",
        "by_curve",
        "relabelled_p",
    ):
        assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-12), name


def test_the_mean_over_permutations_is_that_of_the_mean_clicks(make_log):
    """Every permutation of the clicks at each of two positions, enumerated by hand."""
    log = make_log([(0, (0, 1), (0,)), (0, (1, 0), ()), (1, (0, 1), (0, 1)), (1, (0, 1), ())])
    new, total = np.array([0.0, 1.0, 0.0, 1.0]), []
    top, low = (log.label[log.position == k] for k in (1, 2))
    rate = [top.mean(), low.mean()]
    for first, second in itertools.product(*(itertools.permutations(x) for x in (top, low))):
        label = np.empty(len(log.label))
        label[log.position == 1], label[log.position == 2] = first, second
        curve = np.array(rate) / rate[0]
        total.append(difference(log.with_label(label), new, curve).value)
    assert np.mean(total) == pytest.approx(0, abs=1e-12)
    tests = ut.null_tests(log, new, [1.0, 0.5])
    assert tests.permuted == pytest.approx(np.mean(total), abs=1e-12)


def test_random_labels_by_enumeration():
    """Four queries with totals 4, 3, 2, 1: of 16 labellings 2 are as far out as 10."""
    from untilt.evaluation.null_tests import _relabelled

    total, norm = np.array([4.0, 3.0, 2.0, 1.0]), np.ones(4)
    p_value, _ = _relabelled(total, norm, 0.95, 20_000, np.random.default_rng(0))
    assert p_value == pytest.approx(2 / 16, abs=0.01)


def test_permuted_clicks_stay_at_their_position():
    from untilt.evaluation.null_tests import _shared_out

    impressions = np.array([5.0, 0.0, 3.0, 2.0])
    rng = np.random.default_rng(0)
    drawn = np.array([_shared_out(impressions, 4.0, rng) for _ in range(2000)])
    assert (drawn.sum(axis=1) == 4).all()
    assert (drawn <= impressions).all()
    assert drawn.mean(axis=0) == pytest.approx(4 * impressions / 10, abs=0.08)


# Each test fires where its assumption is broken.


def test_lists_filled_from_others_make_the_same_order_better():
    """Half of the rows are lost; among="shown" fills each list with the best of other lists."""
    rng, relevance, _ = world(2)
    log = made_log(relevance, relevance, rng.integers(60, size=3000), rng, kept=0.5, noise=0.0)
    filled, found = both(log, relevance.ravel(), among="shown")
    assert found.p_value < 1e-6  # better than itself
    assert filled.same_order == pytest.approx(found.value)
    assert filled.same_order_queries == 60
    assert "null.same-order" in codes(filled.failures(found))
    by_list, honest = both(log, relevance.ravel())
    assert (honest.value, by_list.same_order) == (0.0, 0.0)
    assert by_list.failures(honest) == ()


def test_documents_that_nobody_was_shown_make_any_new_order_worse():
    """Two of ten candidates are never shown; they count as irrelevant wherever they come."""
    rng, relevance, scores = world(7)
    log = made_log(np.full_like(relevance, 0.3), scores, rng.integers(60, size=3000), rng, noise=0)
    new = rng.random(relevance.size)
    tests, found = both(log, new, among="candidates")
    assert found.interval.high < 0  # "worse", though all documents are equally relevant
    assert "null.permuted" in codes(tests.failures(found))
    by_list, honest = both(log, new)
    assert by_list.failures(honest) == ()


def test_one_giant_query_decides_alone():
    """A query with 90% of the sessions is the only one whose order changes."""
    rng, relevance, scores = world(3, 12)
    queries = np.r_[np.zeros(3000, dtype=int), rng.integers(12, size=300)]
    log = made_log(relevance, scores, queries, rng, noise=0.0)
    new = scores.copy()
    new[0] = relevance[0]
    tests = ut.null_tests(log, new.ravel(), THETA)
    assert tests.relabelled_p == 1.0
    narrow = replaced(difference(log, new.ravel()), low=0.01, high=0.02)
    assert codes(tests.failures(narrow)) == ["null.relabelled"]


def replaced(found, low, high):
    from dataclasses import replace

    from untilt._core.statistics import Interval

    value = (low + high) / 2
    return replace(found, value=value, interval=Interval(low, high))


def test_a_clip_that_makes_the_difference_is_found():
    """Equal documents below a good top: a clip takes credit from what stood low."""
    rng, relevance, scores = world(4)
    log = made_log(np.full_like(relevance, 0.4), scores, rng.integers(60, size=6000), rng)
    new = rng.random(relevance.size)
    clipped, found = both(log, new, clip=0.6, evaluator="policy-aware")
    # Seemingly worse, though all documents are equally relevant; the interval knows of the clip.
    assert clipped.clipping_bias < found.value / 2
    assert found.value < 0 < found.interval.high
    certain = replace(found, interval=Interval(found.value - 0.01, found.value + 0.01))
    assert "null.lean" in codes(clipped.failures(certain))
    plain, honest = both(log, new)
    assert plain.clipping_bias == pytest.approx(0, abs=1e-12)
    assert plain.failures(honest) == ()


def test_a_curve_that_ends_early_is_found():
    rng, relevance, scores = world(5)
    log = made_log(np.full_like(relevance, 0.4), scores, rng.integers(60, size=6000), rng)
    new = rng.random(relevance.size)
    cut, found = both(log, new, THETA[:3])
    assert found.interval.high < 0
    assert "null.lean" in codes(cut.failures(found))


def test_a_curve_that_is_too_steep_makes_an_inverted_order_better():
    """Production is no better than chance and the curve twice too steep: a warning, no veto."""
    rng, relevance, _ = world(6)
    scores = rng.normal(size=relevance.shape)
    log = made_log(relevance, scores, rng.integers(60, size=6000), rng)
    tests, found = both(log, -scores.ravel(), THETA**2)
    assert found.interval.low > 0
    assert codes(tests.warnings(found)) == ["null.by-curve"]
    right, honest = both(log, -scores.ravel())
    assert right.warnings(honest) == ()


def test_raw_clicks_fail_because_they_favour_what_stood_high(sound):
    log, _, other = sound
    tests, found = both(log, other, evaluator="naive")
    assert "null.permuted" in codes(tests.failures(found))


def outcome(**other):
    """Nothing failed; difference 0.2 with an interval of 0.1 to 0.3."""
    sound = {
        "difference": 0.2, "std_error": 0.05, "same_order": 0.0, "same_order_queries": 5,
        "n_queries": 5, "relabelled_p": 0.001, "relabelled_outside": 0.05, "permuted": 0.0,
        "permuted_error": 0.01, "clipping_bias": 0.0, "by_curve": 0.0, "level": 0.95,
    }  # fmt: skip
    return NullTests(**{**sound, **other})


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({}, None),
        ({"same_order": 0.03}, "null.same-order"),
        ({"same_order": 0.01}, None),  # a twentieth of what was found
        ({"same_order": -0.5}, None),  # makes the verdict more cautious
        ({"same_order": float("nan")}, None),
        ({"relabelled_p": 0.06}, "null.relabelled"),
        ({"relabelled_outside": 0.2}, None),  # for information
        ({"permuted": 0.1}, "null.permuted"),
        ({"permuted": 0.03}, None),  # within the spread of one log
        ({"permuted": float("nan"), "permuted_error": float("nan")}, None),
        ({"clipping_bias": 0.09}, None),
        ({"clipping_bias": 0.11}, "null.lean"),
        ({"clipping_bias": -0.5}, None),
    ],
)
def test_what_counts_as_a_failure(sound, other, code):
    found = replaced(difference(sound[0], sound[1]), low=0.1, high=0.3)
    assert codes(outcome(**other).failures(found)) == ([code] if code else [])


def test_costs_are_better_where_they_are_lower(sound):
    found = replaced(difference(sound[0], sound[1]), low=-0.3, high=-0.1)
    tests = outcome(by_curve=-0.15)
    assert codes(tests.warnings(found, higher_is_better=False)) == ["null.by-curve"]
    assert tests.warnings(found) == ()


@pytest.mark.slow
def test_false_alarms_are_rare():
    """200 logs without fault: at most 1% fail."""
    alarms = 0
    for seed in range(200):
        rng, relevance, scores = world(100 + seed, 30)
        log = made_log(relevance, scores, rng.integers(30, size=800), rng, kept=0.9)
        new = relevance + 0.2 * rng.normal(size=relevance.shape)
        tests, found = both(log, new.ravel())
        alarms += bool(tests.failures(found))
    assert alarms <= 2
