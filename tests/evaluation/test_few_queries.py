"""Few queries and uneven traffic: errors, degrees of freedom, and intervals that hold the truth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import untilt as ut
from untilt.bias.curve import PositionBias
from untilt.facts import codes
from untilt.report.decision import Decision
from untilt.report.step_results import HeldOut, UsedBias

DEPTH = 6
PLACE = np.arange(1, DEPTH + 1)
THETA = 1 / PLACE**0.8
DISCOUNT = 1 / np.log2(1 + PLACE)
TRUST: dict[str, Any] = {"eps_plus": 0.98 - 0.01 * PLACE, "eps_minus": 0.5 / PLACE}


def drawn(rng, traffic, *, noise=(0.4, 0.4), theta=THETA, gamma_of=None, eps=None):
    """A log of one list per session by two rankers, the scores of a third, and the true values.

    Queries are drawn anew; the truth is the mean over all queries like these.
    """
    n = len(traffic)
    gamma = rng.beta(1, 3, (n, DEPTH)) if gamma_of is None else gamma_of(rng, n)
    scores = gamma + np.array([*noise, noise[0]])[:, None, None] * rng.normal(size=(3, n, DEPTH))
    query = np.repeat(np.arange(n), traffic)
    order = np.argsort(-scores[rng.integers(2, size=len(query)), query], axis=1)
    seen = gamma[query[:, None], order]
    if eps is not None:
        seen = eps["eps_plus"] * seen + eps["eps_minus"] * (1 - seen)
    log = ut.ClickLog(
        query_id=np.arange(n),
        doc_id=np.arange(n * DEPTH),
        doc_query=np.repeat(np.arange(n), DEPTH),
        indptr=DEPTH * np.arange(len(query) + 1),
        query=query,
        document=(query[:, None] * DEPTH + order).ravel(),
        position=np.tile(PLACE, len(query)),
        label=(rng.random(order.shape) < theta * seen).astype(float).ravel(),
    )
    return log.collapse(), scores[2].ravel()


def zipf(rng, exponent, n_queries=300, n_sessions=3000):
    share = np.arange(1, n_queries + 1) ** -float(exponent)
    return rng.multinomial(n_sessions, share / share.sum())


def systems(new):
    return {"shown": ut.shown, "new": new}


# ---- by hand


def test_errors_are_those_of_leaving_each_query_out():
    rng = np.random.default_rng(1)
    log, new = drawn(rng, np.array([200, 100, 50, 20, 10]))
    found = ut.estimate(log, systems(new), THETA)
    n = log.sessions.sum()
    values, gaps = [], []
    for query in range(5):
        rest = ut.estimate(log.take(log.query != query), systems(new), THETA)
        values.append(rest["new"].value)
        gaps.append(rest["new"].value - rest["shown"].value)
    entry, gap = found["new"], found.compare()["new"]
    error = np.sqrt(4 / 5 * np.sum((np.array(values) - entry.value) ** 2))
    assert entry.std_error == pytest.approx(error)
    effective = n**2 / np.sum(np.array([200, 100, 50, 20, 10]) ** 2)
    assert entry.effective_queries == pytest.approx(effective)
    half = stats.t.ppf(0.975, effective - 1) * error
    assert entry.interval.high == pytest.approx(entry.value + half)
    assert gap.std_error == pytest.approx(
        np.sqrt(4 / 5 * np.sum((np.array(gaps) - gap.value) ** 2))
    )
    expected = 2 * stats.t.sf(abs(gap.value / gap.std_error), gap.effective_queries - 1)
    assert gap.p_value == pytest.approx(expected)


def test_queries_in_which_systems_agree_are_no_evidence():
    """200 queries, of which the new order changes four: as many as speak of the difference."""
    rng = np.random.default_rng(2)
    log, _ = drawn(rng, np.full(200, 20), noise=(0.4, 0.0))
    scores = -np.tile(np.arange(DEPTH), 200).astype(float)
    other = scores.copy()
    other[: 4 * DEPTH] = scores[: 4 * DEPTH][::-1]
    found = ut.estimate(
        log, {"one": scores, "other": other}, THETA, evaluator="policy-aware"
    ).compare("one")["other"]
    assert found.effective_queries == pytest.approx(4)
    half = stats.t.ppf(0.975, 3) * found.std_error
    assert found.interval.high == pytest.approx(found.value + half)


def test_errors_of_the_curve_have_degrees_of_freedom_of_their_own():
    rng = np.random.default_rng(3)
    log, new = drawn(rng, np.array([60, 50, 40, 30, 20, 10]))
    curve: dict[str, Any] = {"examination": THETA, "std_error": 0.05 * THETA * (PLACE > 1)}
    for effective, degrees in ((None, np.inf), (4.0, 3.0)):
        found = ut.estimate(
            log, new, PositionBias(**curve, effective_queries=effective), evaluator="policy-aware"
        ).best
        s, b = found.sampling_error**2, found.bias_error**2
        joint = (s + b) ** 2 / (s**2 / (found.effective_queries - 1) + b**2 / degrees)
        half = stats.t.ppf(0.975, joint) * found.std_error
        assert found.interval.high == pytest.approx(found.value + half)


def test_one_query_alone_gives_no_interval_and_no_click_no_error():
    rng = np.random.default_rng(4)
    log, new = drawn(rng, np.array([300]))
    found = ut.estimate(log, new, THETA).best
    assert (found.interval.low, found.interval.high) == (-np.inf, np.inf)
    log, new = drawn(rng, np.array([20, 20, 20]))
    silent = ut.estimate(log.with_label(np.zeros(len(log.label))), new, THETA).best
    assert silent.value == 0
    assert (silent.interval.low, silent.interval.high) == (-np.inf, np.inf)


def test_uneven_traffic_is_said():
    rng = np.random.default_rng(5)
    log, new = drawn(rng, zipf(rng, 1.6, 100))
    found = ut.estimate(log, systems(new), THETA)
    assert "estimate.few-effective-queries" in codes(found.warnings)
    assert "effective queries" in repr(found)
    assert "effective queries" in repr(found.compare())
    even, new = drawn(rng, np.full(100, 10))
    assert "estimate.few-effective-queries" not in codes(
        ut.estimate(even, systems(new), THETA).warnings
    )


# ---- evaluators that lean


@pytest.mark.parametrize("evaluator", ["clipped", "policy-aware", "snips", "doubly-robust"])
def test_with_a_clip_errors_are_those_without(evaluator):
    rng = np.random.default_rng(6)
    log, new = drawn(rng, np.full(50, 20))
    clipped = ut.estimate(log, systems(new), THETA, evaluator=evaluator, clip=0.5)
    plain = ut.estimate(log, systems(new), THETA, evaluator=evaluator, clip=0.0)
    for name in ("shown", "new"):
        one, two = clipped[name], plain[name]
        assert one.value != two.value
        assert one.clipping_bias == pytest.approx(one.value - two.value)
        assert one.std_error == pytest.approx(two.std_error)
        assert one.interval.low == pytest.approx(min(two.interval.low, one.value))
        assert one.interval.high == pytest.approx(max(two.interval.high, one.value))
    gap, true = clipped.compare()["new"], plain.compare()["new"]
    assert gap.std_error == pytest.approx(true.std_error)
    assert gap.value in gap.interval
    assert true.interval.low in gap.interval


def test_a_relevance_model_has_the_interval_of_its_correction():
    rng = np.random.default_rng(7)
    log, new = drawn(rng, np.full(50, 20))
    doubt = PositionBias(THETA, std_error=0.03 * THETA * (PLACE > 1))
    model = np.full(log.n_documents, 0.9)
    direct = ut.estimate(log, systems(new), doubt, evaluator="direct", relevance=model)
    robust = ut.estimate(log, systems(new), doubt, evaluator="doubly-robust", relevance=model)
    for name in ("shown", "new"):
        assert direct[name].bias_error == pytest.approx(robust[name].bias_error) != 0
        assert direct[name].interval.low == pytest.approx(robust[name].interval.low)
        assert direct[name].interval.high == pytest.approx(direct[name].value)  # 0.9 is too much
    none = ut.estimate(log, systems(new), evaluator="direct", relevance=model)
    assert "estimate.no-interval" in codes(none.warnings)
    assert not np.isfinite(none["new"].interval.low)
    assert np.isnan(none["new"].std_error)
    gap = none.compare()["new"]
    assert not gap.decided
    assert np.isnan(gap.p_value)


@pytest.mark.parametrize("evaluator", ["bayes-ips", "ips", "affine", "policy-aware", "direct"])
def test_a_true_trust_bias_fits_whatever_the_evaluator_makes_of_it(evaluator):
    rng = np.random.default_rng(8)
    log, new = drawn(rng, np.full(100, 200), eps=TRUST)
    bias = ut.KnownBias(THETA, **TRUST)
    found = ut.estimate(log, systems(new), bias, evaluator=evaluator)
    assert found.check.possible
    assert found.check.fits
    wrong = ut.estimate(log, systems(new), ut.KnownBias(THETA), evaluator=evaluator)
    assert not wrong.check.fits
    assert "estimate.curve-misfit" in codes(wrong.warnings)


# ---- the verdict


def test_one_query_with_most_of_the_traffic_carries_no_verdict():
    rng = np.random.default_rng(9)
    traffic = np.full(40, 20)
    traffic[0] = 4000
    log, _ = drawn(rng, traffic)
    scores = np.tile(-np.arange(DEPTH), 40).astype(float)
    bias = PositionBias(THETA, std_error=0.01 * THETA)
    part = HeldOut.of(ut.estimate(log, systems(scores), bias), "new")
    assert part.support.effective_queries < 3
    answer = Decision("t", bias=UsedBias(bias, "measured"), held_out=part).answer
    assert answer.verdict == "cannot tell"
    assert "run.floor-effective-queries" in codes(answer.reasons)


# ---- coverage


def coverage(traffic_of, n_logs, *, evaluator=None, **options):
    """How often intervals hold the truth: of two values and of their difference.

    All rankers are alike and documents of a query are independent of the query's size, so that the
    mean over many drawn queries is the truth; here from 40,000 of them.
    """
    rng = np.random.default_rng(10)
    gamma = rng.beta(1, 3, (40_000, DEPTH))
    order = np.argsort(-(gamma + 0.4 * rng.normal(size=gamma.shape)), axis=1)
    value = float(np.mean(np.take_along_axis(gamma, order, axis=1) @ DISCOUNT))
    held = np.zeros((n_logs, 3))
    for i in range(n_logs):
        rng = np.random.default_rng([11, i])
        log, new = drawn(rng, traffic_of(rng))
        found = ut.estimate(log, systems(new), THETA, evaluator=evaluator, **options)
        held[i] = (
            value in found["shown"].interval,
            value in found["new"].interval,
            0.0 in found.compare()["new"].interval,
        )
    return held.mean(axis=0)


@pytest.mark.parametrize("exponent", [1.0, 1.6])
def test_intervals_hold_under_uneven_traffic(exponent):
    held = coverage(lambda rng: zipf(rng, exponent), 60)
    assert np.all(held >= 0.88)  # 0.95 less 2.5 standard errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("evaluator", "options"),
    [
        (None, {}),
        (None, {"interval": "bootstrap", "n_draws": 400}),
        ("clipped", {"clip": "auto"}),
        ("clipped", {"clip": 0.5}),
        ("policy-aware", {"clip": "auto"}),
        ("direct", {}),
    ],
)
@pytest.mark.parametrize("traffic", ["even", "zipf 1.3", "20 queries", "sparse"])
def test_intervals_hold(evaluator, options, traffic):
    made = {
        "even": lambda rng: np.full(100, 20),
        "zipf 1.3": lambda rng: zipf(rng, 1.3),
        "20 queries": lambda rng: np.full(20, 50),
        "sparse": lambda rng: np.full(200, 3),
    }[traffic]
    held = coverage(made, 200, evaluator=evaluator, **options)
    assert np.all(held >= 0.90)


def test_judged_queries_with_weights_have_fewer_in_effect():
    judged = ut.make_judged(60, 4, seed=0)
    weights = np.r_[200.0, np.ones(59)]
    found = ut.evaluate(judged, judged.features[:, 0], "ndcg@10", weights=weights)["ndcg@10"]
    assert found.effective_queries == pytest.approx(259**2 / (200**2 + 59))
    assert "effective" in repr(found)
    even = ut.evaluate(judged, judged.features[:, 0], "ndcg@10")
    assert even["ndcg@10"].effective_queries == 60
    assert even.to_dict()["ndcg@10"]["effective_queries"] == 60
    assert replace(even["ndcg@10"], effective_queries=None).effective_queries is None
