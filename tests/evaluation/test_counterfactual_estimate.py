"""Estimates on logs: a slow twin, counts, errors by hand, gradients, options and warnings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from untilt import catalog
from untilt._core.statistics import weighted_mean
from untilt.bias.curve import PositionBias
from untilt.bias.given import KnownBias, PowerLaw
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.clip_curve import clip_curve
from untilt.evaluation.estimate import estimate
from untilt.evaluation.results import corrected_p_values
from untilt.evaluation.slots import RankMetric
from untilt.evaluation.systems import shown
from untilt.facts import codes

EVALUATORS = [each.name for each in catalog.methods("evaluator") if "propensity" not in each.needs]
NEED_BIAS = [each.name for each in catalog.methods("evaluator") if "bias" in each.needs]
DEPTH = 4
THETA = np.array([1.0, 0.6, 0.35, 0.2])
TRUST: dict[str, Any] = {
    "eps_plus": np.array([0.95, 0.9, 0.9, 0.85]),
    "eps_minus": np.array([0.3, 0.2, 0.1, 0.05]),
}
BIAS = KnownBias(THETA, **TRUST)
DOUBT = PositionBias(THETA, covariance=np.diag([0, 1e-3, 2e-3, 1e-3]) + 5e-4, **TRUST)


def random_log(seed, *, n_queries=12, n_lists=60, long=False):
    """Queries with 5..8 documents (one with 60 where `long`), lists of up to four places."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 9, n_queries)
    if long:
        sizes[0] = 60
    first = np.concatenate([[0], np.cumsum(sizes)])
    query = np.sort(rng.integers(0, n_queries - 1, n_lists))  # the last query has no session
    lengths = rng.integers(1, DEPTH + 1, n_lists)
    pick = [first[q] + rng.permutation(sizes[q])[:m] for q, m in zip(query, lengths, strict=True)]
    position = [np.sort(rng.permutation(DEPTH)[:m]) + 1 for m in lengths]
    n_rows = int(lengths.sum())
    return ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(first[-1]),
        doc_query=np.repeat(np.arange(n_queries), sizes),
        indptr=np.concatenate([[0], np.cumsum(lengths)]), query=query,
        document=np.concatenate(pick), position=np.concatenate(position),
        label=(rng.random(n_rows) < 0.4).astype(float), count=rng.integers(1, 5, n_lists),
        features=rng.normal(size=(first[-1], 2)),
        ranker=rng.integers(0, 3, n_lists), ranker_names=("one", "two", "three"),
    )  # fmt: skip


def systems_of(log, seed=0):
    rng = np.random.default_rng(seed)
    tied = rng.integers(0, 3, log.n_documents).astype(float)
    return {"shown": shown, "plain": rng.normal(size=log.n_documents), "tied": tied}


def fields(facts, code):
    """The fields of the fact with this code."""
    return dict(next(fact.fields for fact in facts if fact.code == code))


# ---- a slow twin


def twin(
    log, system, bias, *, evaluator, lam, clip=0.0, relevance=None, among="list", cost=False,
    rankers=None,
):  # fmt: skip
    """Value of one system, session by session and document by document."""
    alpha, beta = bias.affine()
    theta, plus, minus = bias.examination, bias.eps_plus, bias.eps_minus
    pooled = evaluator in ("policy-aware", "doubly-robust", "direct")
    g = np.zeros(log.n_documents) if relevance is None else relevance
    lists = [
        [(log.document[r], log.position[r], log.label[r]) for r in range(*log.indptr[i : i + 2])]
        for i in range(log.n_lists)
    ]
    base = [
        i for i in range(log.n_lists)
        if rankers is None or log.ranker_names[log.ranker[i]] in rankers
    ]  # fmt: skip
    of_query = {
        q: [
            d for d in np.flatnonzero(log.doc_query == q)
            if among == "candidates" or d in {e for rows in lists for e, _, _ in rows}
        ]
        for q in {log.query[i] for i in base}
    }  # fmt: skip

    def gamma(d):
        """Relevance of a document from all sessions, experiments too."""
        residual = exposure = shown_in = sessions = 0.0
        for i, rows in enumerate(lists):
            n = log.sessions[i]
            sessions += n * (log.query[i] == log.doc_query[d])
            for e, k, c in rows:
                if e == d:
                    shown_in += n
                    exposure += n * alpha[k - 1]
                    residual += n * (c - beta[k - 1] - alpha[k - 1] * g[d])
        n_d = shown_in if among == "list" else sessions
        if exposure == 0 or evaluator == "direct":
            return g[d]
        return g[d] + residual / (n_d * max(clip, exposure / n_d))

    def places(q, rows, d):
        """The slots that document d may get in this list; None is off the page."""
        if system is shown:
            return [k for e, k, _ in rows if e == d] or [None]
        slots = [k for _, k, _ in rows]
        rivals = [e for e, _, _ in rows] if among == "list" else of_query[q]
        above = sum(system[e] > system[d] for e in rivals)
        equal = sum(system[e] == system[d] for e in rivals)
        return [slots[r] if r < len(slots) else None for r in range(above, above + equal)]

    def discount(q, rows, d):
        lowest = max(k for i in base if log.query[i] == q for _, k, _ in lists[i])
        off_page = lam(max(lowest, len(of_query[q])) + 1) if cost else 0.0
        return np.mean([off_page if k is None else lam(k) for k in places(q, rows, d)])

    relevances = {d: gamma(d) for docs in of_query.values() for d in docs} if pooled else {}
    total = norm = 0.0
    for i in base:
        q, rows, n = log.query[i], lists[i], log.sessions[i]
        norm += 0.0 if evaluator == "snips" else n
        if pooled:
            for d in [e for e, _, _ in rows] if among == "list" else of_query[q]:
                total += n * relevances[d] * discount(q, rows, d)
            continue
        for d, k, c in rows:
            credit = {
                "naive": c,
                "ips": c / theta[k - 1],
                "clipped": c / max(clip, theta[k - 1]),
                "snips": c / max(clip, theta[k - 1]),
                "bayes-ips": plus[k - 1] / (plus[k - 1] + minus[k - 1]) * c / theta[k - 1],
                "affine": (c - beta[k - 1]) / alpha[k - 1],
            }[evaluator]
            total += n * credit * discount(q, rows, d)
            norm += n * credit if evaluator == "snips" else 0.0
    return total / norm


LAMBDAS = {
    "dcg@3": lambda r: 1 / np.log2(1 + r) if r <= 3 else 0.0,
    "arp": float,
}


@pytest.mark.parametrize("rankers", [None, ["one", "two"]])
@pytest.mark.parametrize("among", ["list", "shown", "candidates"])
@pytest.mark.parametrize("metric", LAMBDAS)
@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_every_method_equals_its_slow_twin(evaluator, metric, among, rankers):
    log = random_log(3, n_queries=7, n_lists=25, long=True)
    options: dict[str, Any] = {"evaluator": evaluator, "among": among}
    if evaluator in ("clipped", "snips", "policy-aware", "doubly-robust"):
        options["clip"] = 0.3
    if evaluator in ("direct", "doubly-robust"):
        options["relevance"] = np.random.default_rng(1).random(log.n_documents)
    found = estimate(log, systems_of(log), BIAS, metric=metric, baseline=rankers, **options)
    options |= {"cost": metric == "arp", "rankers": rankers}
    for name, system in systems_of(log).items():
        expected = twin(log, system, BIAS, lam=LAMBDAS[metric], **options)
        assert found[name].value == pytest.approx(expected, rel=1e-12), name


@pytest.mark.parametrize("evaluator", EVALUATORS)
def test_counts_equal_repeats_and_the_order_of_lists_does_not_matter(evaluator):
    log = random_log(4)
    repeated = log.take(np.repeat(np.arange(log.n_lists), log.sessions))
    repeated = replace(repeated, count=np.ones(repeated.n_lists, dtype=int))
    shuffled = log.take(np.random.default_rng(0).permutation(log.n_lists))
    for other in (repeated, shuffled, log.collapse()):
        a = estimate(log, systems_of(log), DOUBT, evaluator=evaluator)
        b = estimate(other, systems_of(log), DOUBT, evaluator=evaluator)
        for name in a.systems:
            assert a[name].value == pytest.approx(b[name].value, rel=1e-12)
            assert a[name].std_error == pytest.approx(b[name].std_error, rel=1e-12)
        assert a.weights.effective_n == pytest.approx(b.weights.effective_n)


def test_many_systems_in_one_call_are_each_as_alone():
    """More than are held at once, and enough for the parallel kernel."""
    log = random_log(5, n_queries=400, n_lists=1500)
    rng = np.random.default_rng(0)
    many = {f"s{i}": rng.integers(0, 5, log.n_documents).astype(float) for i in range(40)}
    together = estimate(log, many, DOUBT)
    for name, scores in many.items():
        alone = estimate(log, {name: scores}, DOUBT)[name]
        assert together[name].value == pytest.approx(alone.value, rel=1e-12)
        assert together[name].std_error == pytest.approx(alone.std_error, rel=1e-12)


# ---- doubt


def test_the_sampling_error_is_that_of_the_clustered_mean():
    log = random_log(6)
    found = estimate(log, systems_of(log)["plain"], BIAS).best
    per_query, sessions = [], []
    for q in np.unique(log.query):
        part = log.take(np.flatnonzero(log.query == q))
        per_query.append(estimate(part, systems_of(log)["plain"], BIAS).best.value)
        sessions.append(part.n_sessions)
    mean = weighted_mean(np.array(per_query), np.array(sessions, dtype=float))
    assert found.value == pytest.approx(mean.value)
    assert found.std_error == pytest.approx(mean.std_error)
    assert found.interval.low == pytest.approx(mean.interval().low)


@pytest.mark.parametrize("evaluator", NEED_BIAS)
def test_the_bias_error_is_the_delta_method_by_finite_differences(evaluator):
    log, step = random_log(7), 1e-6
    options = {"evaluator": evaluator}
    if evaluator in ("clipped", "policy-aware", "doubly-robust"):
        options["clip"] = 0.2345  # no mean propensity of this log: there the value has a kink
    if evaluator == "doubly-robust":
        options["relevance"] = np.full(log.n_documents, 0.3)
    found = estimate(log, systems_of(log), DOUBT, **options)
    with_clip = dict(zip(found.systems, found.sums.means().bias_error, strict=True))
    for name in found.systems:
        slope = np.empty(DEPTH)
        for k in range(DEPTH):
            ends = []
            for sign in (1, -1):
                theta = THETA.copy()
                theta[k] += sign * step
                moved = KnownBias(theta, **TRUST)
                ends.append(estimate(log, systems_of(log), moved, **options)[name].value)
            slope[k] = (ends[0] - ends[1]) / (2 * step)
        expected = np.sqrt(slope @ DOUBT.covariance @ slope)
        assert with_clip[name] == pytest.approx(expected, rel=1e-5), name
        both = np.hypot(found[name].sampling_error, found[name].bias_error)
        assert found[name].std_error == pytest.approx(both, rel=1e-5)
        if found.unbiased is found.sums:
            assert found[name].bias_error == pytest.approx(expected, rel=1e-5), name


def test_weights_by_hand():
    """Clicks: two at position 1, one at 2, one at 4, in five sessions of one list."""
    log = ClickLog(
        query_id=[0], doc_id=[0, 1, 2], doc_query=[0, 0, 0], indptr=[0, 3, 6], query=[0, 0],
        document=[0, 1, 2, 0, 1, 2], position=[1, 2, 4, 1, 2, 4], label=[1, 0, 0, 0, 1, 1],
        count=[2, 1],
    )  # fmt: skip
    clipped = estimate(log, shown, [1.0, 0.5, 0.4, 0.1], evaluator="clipped", clip=0.25).best
    assert clipped.largest_weight == 1 / 0.25
    assert clipped.clipped_share == 1 / 4
    assert clipped.effective_n == pytest.approx((1 + 1 + 2 + 4) ** 2 / (1 + 1 + 4 + 16))
    short = estimate(log, shown, [1.0, 0.5])
    assert short.best.unsupported_share == 1 / 4
    assert fields(short.warnings, "estimate.clicks-unsupported") == {"share": 1 / 4}
    lam = 1 / np.log2([2, 3])
    assert short.best.value == pytest.approx((2 * lam[0] + 2 * lam[1]) / 3)


def test_bootstrap_and_normal_intervals_agree_on_many_queries():
    log = random_log(8, n_queries=500, n_lists=2500)
    normal = estimate(log, systems_of(log), DOUBT)
    drawn = estimate(log, systems_of(log), DOUBT, interval="bootstrap", n_draws=4000)
    for name in normal.systems:
        width = normal[name].interval.high - normal[name].interval.low
        for end in ("low", "high"):
            a, b = getattr(normal[name].interval, end), getattr(drawn[name].interval, end)
            assert abs(a - b) < 0.08 * width
    again = estimate(log, systems_of(log), DOUBT, interval="bootstrap", n_draws=4000)
    assert again["tied"].interval == drawn["tied"].interval
    assert normal.bootstrap(n_draws=4000)["tied"] == drawn["tied"].interval


# ---- comparison


def test_a_difference_is_paired_and_its_power_by_hand():
    log = random_log(9, n_queries=100, n_lists=600)
    found = estimate(log, systems_of(log), BIAS)
    gap = found.compare("shown", correction="none")["plain"]
    total, norm = found.sums.total[:, 1] - found.sums.total[:, 0], found.sums.norm
    n = len(norm)
    left_out = (total.sum() - total) / (norm.sum() - norm)
    assert gap.value == pytest.approx(found["plain"].value - found["shown"].value)
    assert gap.value == pytest.approx(total.sum() / norm.sum())
    error = np.sqrt((n - 1) / n * np.sum((left_out - gap.value) ** 2))
    assert gap.std_error == pytest.approx(error)
    used = norm[total != 0]
    assert gap.effective_queries == pytest.approx(used.sum() ** 2 / np.sum(used**2))
    t = stats.t.ppf([0.975, 0.8], gap.effective_queries - 1).sum()
    assert gap.interval.low == pytest.approx(
        gap.value - stats.t.ppf(0.975, gap.effective_queries - 1) * error
    )
    needed = log.n_sessions * (t * gap.std_error / gap.value) ** 2
    assert gap.sessions_needed == pytest.approx(needed, rel=1e-4, abs=1)
    assert gap.more_sessions == max(0, gap.sessions_needed - log.n_sessions)


def test_equal_systems_never_differ_and_a_hopeless_bias_is_never_overcome():
    log = random_log(10, n_queries=60, n_lists=300)
    scores = systems_of(log)["plain"]
    same = estimate(log, {"a": scores, "b": 2 * scores + 1}, DOUBT).compare()["b"]
    assert (same.value, same.p_value, same.decided) == (0.0, 1.0, False)
    vague = PositionBias(THETA, covariance=np.diag([0, 0.1, 0.1, 0.05]))
    gap = estimate(log, {"a": scores, "b": -scores}, vague).compare()["b"]
    assert gap.sessions_needed == np.inf
    assert "never" in repr(estimate(log, {"a": scores, "b": -scores}, vague).compare())


def test_corrections_by_hand():
    p = np.array([0.01, 0.04, 0.03, 0.5])
    assert corrected_p_values(p, "none") == pytest.approx(p)
    assert corrected_p_values(p, "bonferroni") == pytest.approx([0.04, 0.16, 0.12, 1.0])
    assert corrected_p_values(p, "holm") == pytest.approx([0.04, 0.09, 0.09, 0.5])
    bh = [0.04, 0.04 * 4 / 3, 0.04 * 4 / 3, 0.5]
    assert corrected_p_values(p, "benjamini-hochberg") == pytest.approx(bh)


# ---- clip curve


def test_the_clip_curve_is_the_clipped_estimate_at_every_clip():
    log = random_log(11, n_queries=80, n_lists=400)
    scores = systems_of(log)["tied"]
    curve = clip_curve(log, scores, DOUBT, clip=[0.3, 0.5, 1.0])
    assert curve.clip.tolist() == [0.2, 0.3, 0.5, 1.0]  # 0.2 is the smallest theta: no clip
    for i, clip in enumerate(curve.clip):
        found = estimate(log, scores, DOUBT, evaluator="clipped", clip=clip)
        one, (mean,) = found.best, found.sums.means()
        assert curve.value[i] == pytest.approx(one.value)
        assert curve.std_error[i] == pytest.approx(mean.std_error)
        assert curve.low[i] == pytest.approx(mean.interval().low)
        assert one.std_error == pytest.approx(curve.std_error[0])
        assert one.interval.low == pytest.approx(min(curve.low[0], one.value))
        assert one.interval.high == pytest.approx(max(curve.high[0], one.value))
        assert curve.clipped_share[i] == pytest.approx(one.clipped_share)
    assert curve.value[0] == pytest.approx(estimate(log, scores, DOUBT, evaluator="ips").best.value)
    assert curve.bias == pytest.approx(curve.value - curve.value[0])
    assert curve.mse[0] == pytest.approx(curve.std_error[0] ** 2)
    drawn = curve.plot().to_dict()
    assert [row["x"] for row in drawn["data"]["values"]] == curve.clip.tolist()
    assert [row["value"] for row in drawn["data"]["values"]] == curve.value.tolist()
    assert {"x": curve.best} in drawn["layer"][0]["data"]["values"]


def test_the_automatic_clip_has_the_least_estimated_error_and_is_the_default():
    steep = KnownBias([1.0, 0.3, 0.05, 0.004])
    log = random_log(12, n_queries=200, n_lists=1500)
    chance = 0.5 * steep.at(log.position)
    log = log.with_label((np.random.default_rng(0).random(len(chance)) < chance).astype(float))
    scores = systems_of(log)["plain"]
    curve = clip_curve(log, scores, steep)
    assert curve.mse.min() == curve.mse[curve.clip == curve.best].item()
    # One click at position 4 counts 250, and there are hardly any: clipping must win.
    assert 0 < log.label[log.position == 4].sum() < 10
    assert curve.best > 0.004
    auto = estimate(log, scores, steep, evaluator="clipped")
    assert auto.clip == curve.best
    both = estimate(log, {"a": scores, "b": -scores}, steep, evaluator="clipped")
    summed = clip_curve(log, -scores, steep).mse + curve.mse
    assert both.clip == curve.clip[np.argmin(summed)]


# ---- warnings and options


def pbm_log(theta, *, seed=0, n_queries=300, n_sessions=200):
    """Two documents per query that change places in half of the sessions."""
    rng = np.random.default_rng(seed)
    gamma = rng.random((n_queries, 2))
    rows = []
    for q in range(n_queries):
        for first in (0, 1):
            order = np.array([first, 1 - first])
            clicks = rng.random((n_sessions // 2, 2)) < theta * gamma[q, order]
            rows += [(q, 2 * q + order, c) for c in clicks]
    n = len(rows)
    return ClickLog(
        query_id=np.arange(n_queries), doc_id=np.arange(2 * n_queries),
        doc_query=np.repeat(np.arange(n_queries), 2), indptr=2 * np.arange(n + 1),
        query=[row[0] for row in rows], document=np.concatenate([row[1] for row in rows]),
        position=np.tile([1, 2], n), label=np.concatenate([row[2] for row in rows]).astype(float),
    ).collapse()  # fmt: skip


def test_a_curve_that_does_not_fit_the_log_is_named():
    log = pbm_log(np.array([0.9, 0.45]))
    right = estimate(log, shown, KnownBias([0.9, 0.45]))
    assert right.check.fits
    assert right.check.n_documents == 600
    wrong = estimate(log, shown, KnownBias([0.9, 0.3]), evaluator="policy-aware")
    assert not wrong.check.fits
    misfit = fields(wrong.warnings, "estimate.curve-misfit")
    assert misfit == {**wrong.check.fact.fields, "needs": ""}  # policy-aware corrects trust
    assert misfit["position"] in (1, 2)
    # Position 2 has about 1.25 of 300 x 200 x ...: the pooled relevance takes half of the error.
    worst = wrong.check.observed / wrong.check.expected
    assert worst[0] < 0.95
    assert worst[1] > 1.1


def test_a_log_without_moves_cannot_check_the_curve_and_says_so():
    log = random_log(13)
    fixed = log.take([0])
    found = estimate(fixed, shown, KnownBias(THETA))
    assert not found.check.possible
    assert found.check.fact.code == "estimate.curve-check-impossible"
    assert "estimate.curve-unchecked" in codes(found.warnings)


def test_unshown_candidates_are_counted_and_warned_of():
    log = ClickLog(
        query_id=[0, 1], doc_id=np.arange(6), doc_query=[0, 0, 0, 1, 1, 1], indptr=[0, 2, 4],
        query=[0, 1], document=[0, 1, 3, 4], position=[1, 2, 1, 2], label=[1, 0, 0, 1],
    )  # fmt: skip
    scores = np.array([1.0, 2.0, 3.0, 3.0, 2.0, 1.0])  # the unshown document first, and last
    found = estimate(log, scores, [1.0, 0.5], among="candidates", metric="dcg@2").best
    assert found.unshown_share == pytest.approx((1 / 2 + 0) / 2)
    share = fields(found.warnings, "estimate.unshown-documents")["share"]
    assert share == found.unshown_share
    # Document 0 is third of three, so below the cut; document 4 is second.
    assert found.value == pytest.approx(2 / np.log2(3) / 2)
    among_shown = estimate(log, scores, [1.0, 0.5], metric="dcg@2").best
    assert among_shown.value == pytest.approx((1 / np.log2(3) + 2 / np.log2(3)) / 2)


def test_what_should_not_be_trusted_is_said():
    log = random_log(15)
    heavy = replace(log, count=np.where(log.query == log.query[0], 5000, 1))
    assert (
        fields(estimate(heavy, shown, KnownBias(THETA)).best.warnings, "estimate.one-query")[
            "share"
        ]
        > 0.1
    )
    vague = PositionBias(THETA, std_error=np.full(DEPTH, 0.15))
    assert "estimate.bias-dominates" in codes(estimate(log, shown, vague).best.warnings)
    ips = estimate(log, shown, BIAS, evaluator="ips").warnings
    assert fields(ips, "estimate.trust-ignored") == {"evaluator": "ips", "instead": "policy-aware"}
    assert fields(ips, "estimate.few-queries") == {"n_queries": 11}
    assert "estimate.bias-without-errors" in codes(ips)
    learned = PositionBias(THETA, method="learned", estimated=True)
    unknown = estimate(log, shown, learned).warnings
    assert fields(unknown, "estimate.bias-without-interval") == {"method": "learned"}
    two = estimate(log, {"shown": shown, "new": np.arange(log.n_documents)}, learned)
    compared = two.compare("shown")
    assert "estimate.bias-without-interval" in codes(compared.warnings)
    assert str(compared.warnings[0]) in " ".join(repr(compared).split())
    assert "estimate.bias-without-errors" not in codes(unknown)
    affine = estimate(log, shown, BIAS, evaluator="affine").warnings
    assert "estimate.trust-ignored" not in codes(affine)
    steep = KnownBias([1.0, 0.5, 0.1, 0.001])
    few = fields(
        estimate(log, shown, steep, evaluator="ips").warnings, "estimate.few-effective-clicks"
    )
    assert few["largest_weight"] == 1 / 0.001
    clipped = estimate(log, shown, steep, evaluator="clipped", clip=0.5)
    share = fields(clipped.warnings, "estimate.clicks-clipped")["share"]
    assert share == clipped.best.clipped_share
    naive = estimate(log, shown, evaluator="naive")
    assert "estimate.clicks-as-they-are" in codes(naive.warnings)


def test_each_evaluator_says_what_its_values_are_multiples_of():
    log, relative = random_log(15), PositionBias(THETA, relative=True)
    scale = {
        name: estimate(log, shown, relative, evaluator=name, clip=clip).scale.code
        for name, clip in (("ips", None), ("clipped", 0.5), ("snips", None), ("naive", None),
                           ("direct", None), ("policy-aware", None))
    }  # fmt: skip
    assert scale == {
        "ips": "estimate.scale-relative", "clipped": "estimate.scale-relative",
        "snips": "estimate.scale-per-relevant", "naive": "estimate.scale-clicks",
        "direct": "estimate.scale-absolute", "policy-aware": "estimate.scale-relative",
    }  # fmt: skip
    absolute = PositionBias(THETA, relative=False)
    assert estimate(log, shown, absolute).scale.code == "estimate.scale-absolute"


def half_shown(n=4000, seed=0):
    """Two documents alike in every session of a query, and a third in half of them: the best."""
    rng = np.random.default_rng(seed)
    gamma, orders = np.array([0.2, 0.2, 0.9]), np.array([[0, 1], [0, 2]])
    shown_documents = orders[rng.integers(0, 2, n)]
    chance = np.array([1.0, 0.5]) * gamma[shown_documents]
    return ClickLog(
        query_id=np.arange(1), doc_id=np.arange(3), doc_query=np.zeros(3, int),
        indptr=np.arange(0, 2 * n + 1, 2), query=np.zeros(n, int),
        document=shown_documents.ravel(), position=np.tile([1, 2], n),
        label=(rng.random((n, 2)) < chance).ravel().astype(float),
    )  # fmt: skip


def test_documents_that_only_some_sessions_show_need_the_policy_aware_method():
    """Best first is better than the shown order by any account; session by session it is not.

    The page has two slots. Expected: shown 0.2 + (0.2 + 0.9)/2/log2(3), new 0.9 + 0.2/log2(3). In
    each list by itself the best may go up only where it was: (0.2 + 0.9)/2 + 0.2/log2(3).
    """
    log, curve = half_shown(), KnownBias([1.0, 0.5])
    systems: dict[str, Any] = {"shown": shown, "new": np.array([0.5, 0.0, 1.0])}
    right = estimate(log, systems, curve, among="shown")
    assert right["new"].value == pytest.approx(0.9 + 0.2 / np.log2(3), rel=0.05)
    assert right["shown"].value == pytest.approx(0.2 + 0.55 / np.log2(3), rel=0.05)
    assert "estimate.documents-absent" not in codes(right.warnings)
    wrong = estimate(log, systems, curve, evaluator="ips", among="shown")
    assert wrong["new"].value == pytest.approx(0.45 + 0.2 / np.log2(3), rel=0.05)
    absent = fields(wrong.warnings, "estimate.documents-absent")
    assert absent["share"] == pytest.approx(1 / 3)
    assert (absent["evaluator"], absent["instead"]) == ("ips", "policy-aware")
    for evaluator in ("ips", "policy-aware"):
        by_list = estimate(log, systems, curve, evaluator=evaluator)
        assert by_list["new"].value == pytest.approx(0.55 + 0.2 / np.log2(3), rel=0.05)
        assert by_list["shown"].value == pytest.approx(0.2 + 0.55 / np.log2(3), rel=0.05)
        assert "estimate.documents-absent" not in codes(by_list.warnings)


def test_the_doubt_of_the_curve_enters_its_check():
    """A curve that is off by as much as its own standard error is no reason to complain."""
    log = pbm_log(np.array([0.9, 0.45]))
    sure, vague = (
        estimate(log, shown, PositionBias(np.array([0.9, 0.36]), std_error=np.array([0, error])))
        for error in (1e-6, 0.09)
    )
    assert not sure.check.fits
    assert vague.check.fits
    # By hand: each document was shown as often at both, so E_2 = y theta_2/(theta_1 + theta_2)
    # and dE_2/dtheta_2 = y theta_1/(theta_1 + theta_2)^2 with y all clicks.
    clicks = vague.check.observed.sum()
    moved = clicks * 0.9 / (0.9 + 0.36) ** 2 * 0.09
    error = {
        name: (each.check.observed - each.check.expected)[1] / each.check.z[1]
        for name, each in (("sure", sure), ("vague", vague))
    }
    assert error["vague"] == pytest.approx(np.hypot(error["sure"], moved), rel=1e-3)


def test_rankers_are_scored_and_results_can_be_read():
    class Second:
        def predict(self, features):
            return features[:, 1]

    log = random_log(14)
    found = estimate(log, {"shown": shown, "second": Second()}, PowerLaw(1.0))
    array = estimate(log, {"second": log.features[:, 1]}, PowerLaw(1.0))
    assert found["second"].value == array["second"].value
    assert found.order[0] == found.best.system
    table = found.view()[0].tables[0]
    assert float(table.rows[1][table.header.index("DCG@10")]) == pytest.approx(
        found["second"].value, abs=1e-2
    )
    assert "second" in repr(found)
    assert "policy-aware" in repr(found)
    with pytest.raises(OptionError, match="Did you mean 'second'"):
        found["secnd"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "ndcg@10"}, "Did you mean 'dcg@10'"),
        ({"metric": "mrr"}, "Did you mean 'reciprocal'"),
        ({"metric": "reciprocal@x"}, "whole number"),
        ({"metric": RankMetric("bad", lambda r: 1 / (r - 1 + 1e-400))}, "one finite number"),
        ({"evaluator": "isp"}, "Did you mean 'ips'"),
        ({"evaluator": "clipped:clp=1"}, "Did you mean 'clip'"),
        ({"bias": None}, "needs the position bias"),
        ({"evaluator": "ips", "clip": 0.1}, "takes no clip"),
        ({"evaluator": "clipped", "clip": -1}, "at least 0"),
        ({"evaluator": "snips", "clip": "most"}, "clip must be a number"),
        ({"relevance": np.ones(3)}, "takes no relevance"),
        ({"evaluator": "direct", "relevance": np.full(80, 2.0)}, "must be probabilities|must give"),
        ({"among": "all"}, "among must be"),
        ({"interval": "exact"}, "interval must be"),
        ({"level": 95}, "level must lie"),
        ({"n_draws": 1}, "n_draws"),
        ({"systems": {}}, "no system"),
        ({"systems": {"a": object()}}, "must be a ranker"),
        ({"systems": {"a": np.ones((2, 2))}}, "must be a ranker"),
    ],
)
def test_wrong_options_say_what_to_do(options, message):
    log = random_log(1)
    given = {"systems": systems_of(log), "bias": BIAS, **options}
    with pytest.raises((OptionError, ShapeError), match=message), np.errstate(divide="ignore"):
        estimate(log, **given)


def test_scores_must_fit_the_log():
    log = random_log(1)
    with pytest.raises(ShapeError, match="one per document of the log"):
        estimate(log, np.ones(3), BIAS)
    with pytest.raises(OptionError, match="NaN"):
        estimate(log, np.full(log.n_documents, np.nan), BIAS)
    with pytest.raises(OptionError, match="ClickLog"):
        estimate(np.ones(3), shown, BIAS)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no sessions"):
        estimate(log.take([]), shown, BIAS)
    last = np.where(np.arange(log.n_documents) % 2, 1.0, -np.inf)
    assert np.isfinite(estimate(log, last, BIAS).best.value)


@pytest.mark.parametrize(("n_sessions", "told"), [(100, True), (99, False)])
def test_a_position_that_is_always_clicked_says_nothing_about_documents(make_log, n_sessions, told):
    # Position 1 plays by itself: clicked in every session, whichever document stands there.
    log = make_log(
        [(0, [0, 1], [0], n_sessions // 2), (0, [1, 0], [1], n_sessions - n_sessions // 2)]
    )
    found = estimate(log, {"shown": shown}, [1.0, 0.5])
    facts = [each for each in found.warnings if each.code == "estimate.automatic-clicks"]
    assert [dict(each.fields) for each in facts] == told * [{"position": 1, "share": 1.0}]
