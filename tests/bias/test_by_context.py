"""A curve for each context, wherever a bias goes: weightings, rankers and their files, estimates.

Every rule is stated against the same computation without contexts: one context alone, or the same
curve in both, must give what one curve gives.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt.bias.given import numbered_for
from untilt.data.layout import ContextCells
from untilt.errors import OptionError

DEPTH = 4
ETA = {"desktop": 0.4, "phone": 1.6}
LAYOUT = ContextCells(("device",), (("desktop",), ("phone",)))


def curve_of(device):
    return np.arange(1.0, DEPTH + 1) ** -ETA[device]


def bias_of(curves):
    """A known bias over positions of contexts, the last of them for any other."""
    cells = np.stack(curves, axis=1).ravel()
    return ut.PositionBias(cells, layout=LAYOUT)


TRUTH = bias_of([curve_of("desktop"), curve_of("phone"), np.ones(DEPTH)])


def draw_log(n_queries=40, sessions=60, seed=0, *, device_order=False):
    """Lists of four documents in random order, read with theta_k = k^-eta of the device.

    With `device_order` telephones are shown the best document last more often: then one curve for
    both devices is wrong.
    """
    rng = np.random.default_rng(seed)
    gamma = np.linspace(0.15, 0.85, DEPTH)
    n = n_queries * sessions
    device = np.where(rng.random(n) < 0.5, "phone", "desktop").astype(object)
    taste = np.where(device == "phone", 3.0, -3.0)[:, None] * np.arange(DEPTH)
    order = np.argsort(rng.gumbel(size=(n, DEPTH)) + device_order * taste, axis=1)
    theta = np.array([curve_of(each) for each in device])
    click = rng.random((n, DEPTH)) < theta * gamma[order]
    query = np.arange(n) % n_queries
    return ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.tile(np.arange(DEPTH), n_queries),
        doc_query=np.repeat(np.arange(n_queries), DEPTH),
        indptr=np.arange(n + 1) * DEPTH,
        query=query,
        document=(query[:, None] * DEPTH + order).ravel(),
        position=np.tile(np.arange(1, DEPTH + 1), n),
        label=click.ravel().astype(float),
        features=np.tile(gamma, n_queries)[:, None] + 0.1 * rng.normal(size=(n_queries * DEPTH, 1)),
        context={"device": device},
    )


@pytest.fixture(scope="module")
def log():
    return draw_log().collapse()


@pytest.fixture(scope="module")
def curves(log):
    return ut.ContextualBias().fit(log).curves_


def test_all_curves_in_one_bias_are_those_of_each_context(curves):
    found = curves.by_context()
    named = found.contexts
    assert list(named) == ["device = desktop", "device = phone", "any other"]
    for device in ETA:
        own, one = named[f"device = {device}"], curves.curve({"device": device})
        for name in ("examination", "std_error", "low", "high"):
            assert getattr(own, name) == pytest.approx(getattr(one, name), rel=1e-12)
        assert own.covariance == pytest.approx(one.covariance, abs=1e-15)
        off = np.abs(np.log(own.examination / curve_of(device)))[1:]
        assert np.all(off < 4 * (own.std_error / own.examination)[1:])
    average = curves.average()
    assert named["any other"].examination == pytest.approx(average.examination, rel=1e-12)
    assert named["any other"].low == pytest.approx(average.low, rel=1e-12)


def test_the_file_keeps_the_contexts(curves, tmp_path):
    found = curves.by_context()
    found.save(tmp_path / "bias.json")
    again = ut.PositionBias.load(tmp_path / "bias.json")
    assert again.layout == found.layout
    assert np.array_equal(again.examination, found.examination)
    assert "device = phone" in repr(again)


def test_numbering_keeps_lists_in_order_and_collapses_exactly():
    log = draw_log(6, 50)
    numbered = numbered_for(log, TRUTH)
    assert np.array_equal(numbered.rank, log.position)
    context = np.repeat((log.context["device"] == "phone").astype(int), np.diff(log.indptr))
    assert np.array_equal(numbered.position, (log.position - 1) * 3 + context + 1)
    assert numbered_for(numbered, TRUTH) is numbered
    collapsed = numbered_for(log.collapse(), TRUTH)
    other_way = numbered.collapse()
    assert np.array_equal(collapsed.position, other_way.position)
    assert np.array_equal(collapsed.count, other_way.count)
    plain = log.collapse()
    assert numbered_for(plain, ut.PowerLaw(1.0)) is plain


def test_a_context_without_a_curve_gets_the_average_and_a_missing_column_is_told(log):
    others = replace(log, context={"device": np.full(log.n_lists, "tv", object)})
    assert set(np.unique((numbered_for(others, TRUTH).position - 1) % 3)) == {2}
    with pytest.raises(OptionError, match=r"no context 'device'.*context=\['device'\]"):
        numbered_for(replace(log, context={}), TRUTH)
    deep = log._with(position=log.position + 400)
    with pytest.raises(OptionError, match="3 contexts of 404 positions"):
        numbered_for(deep, TRUTH)


RANKERS = {
    "linear": lambda weighting: ut.LinearRanker(weighting=weighting),
    "trees": lambda weighting: ut.LambdaMART(
        weighting=weighting, n_trees=5, min_data_in_leaf=2, n_threads=1
    ),
    "svm": lambda weighting: ut.RankSVM(weighting=weighting),
}


@pytest.mark.parametrize("kind", RANKERS)
@pytest.mark.parametrize("table", [ut.PRS, ut.Balanced, ut.IPS, ut.PolicyAware])
def test_a_ranker_of_one_context_is_the_ranker_of_its_curve(log, kind, table):
    phones = log.take(log.context["device"] == "phone")
    make = RANKERS[kind]
    plain = make(table(ut.PositionBias(curve_of("phone")))).fit(replace(phones, context={}))
    by_context = make(table(TRUTH)).fit(phones)
    assert by_context.predict(log.features) == pytest.approx(
        plain.predict(log.features), rel=1e-5, abs=1e-7
    )


@pytest.mark.parametrize("kind", RANKERS)
def test_the_same_curve_in_both_contexts_is_one_curve(log, kind):
    one = curve_of("phone")
    same = RANKERS[kind](ut.PRS(bias_of([one, one, one]))).fit(log)
    plain = RANKERS[kind](ut.PRS(ut.PositionBias(one))).fit(replace(log, context={}))
    assert same.predict(log.features) == pytest.approx(
        plain.predict(log.features), rel=1e-5, abs=1e-7
    )


def test_a_ranker_with_a_curve_for_each_context_is_saved_and_loaded(log, tmp_path):
    ranker = ut.LambdaMART(weighting=ut.PRS(TRUTH), n_trees=3, n_threads=1).fit(log)
    ranker.save(tmp_path / "ranker.untilt")
    again = ut.load(tmp_path / "ranker.untilt")
    assert again.weighting.bias.layout == LAYOUT
    assert np.array_equal(again.predict(log.features), ranker.predict(log.features))
    different = ut.LambdaMART(
        weighting=ut.PRS(ut.PositionBias(curve_of("phone"))), n_trees=3, n_threads=1
    ).fit(log)
    assert not np.allclose(different.predict(log.features), ranker.predict(log.features))


@pytest.mark.parametrize("evaluator", ["ips", "policy-aware", "snips", "doubly-robust"])
@pytest.mark.parametrize("metric", ["dcg@3", "arp", "precision@2"])
def test_estimates_of_one_context_are_those_of_its_curve(log, evaluator, metric):
    phones = log.take(log.context["device"] == "phone")
    systems = {"shown": ut.shown, "new": log.features[:, 0].astype(float)}
    options: dict[str, Any] = {"metric": metric, "evaluator": evaluator}
    one = ut.estimate(phones, systems, ut.PositionBias(curve_of("phone")), **options)
    both = ut.estimate(phones, systems, TRUTH, **options)
    for a, b in zip(one, both, strict=True):
        assert (b.value, b.std_error) == pytest.approx((a.value, a.std_error), rel=1e-9)


def test_of_all_documents_of_a_query_too(log):
    phones = log.take(log.context["device"] == "phone")
    systems = {"new": log.features[:, 0].astype(float)}
    options: dict[str, Any] = {"metric": "arp", "among": "shown"}
    one = ut.estimate(phones, systems, ut.PositionBias(curve_of("phone")), **options)
    both = ut.estimate(phones, systems, TRUTH, **options)
    assert both["new"].value == pytest.approx(one["new"].value, rel=1e-9)


def test_where_devices_see_other_lists_only_curves_by_context_find_the_truth():
    log = draw_log(60, 200, seed=3, device_order=True).collapse()
    gamma = np.linspace(0.15, 0.85, DEPTH)
    worst = {"worst": -np.tile(gamma, log.n_queries)}
    truth = float(np.sum(np.sort(gamma) / np.log2(np.arange(2, DEPTH + 2))))
    options: dict[str, Any] = {"metric": "dcg", "evaluator": "ips"}
    curves = ut.ContextualBias().fit(log).curves_
    assert curves.context_test().p_value < 1e-6
    found = ut.estimate(log, worst, curves.by_context(), **options)["worst"]
    assert abs(found.value - truth) < 3 * found.std_error
    one = ut.estimate(log, worst, ut.AllPairs().fit(log).bias_, **options)["worst"]
    assert abs(one.value - truth) > 4 * one.std_error
    compared = ut.compare_curves(
        log, {"by device": curves.by_context(), "one": ut.AllPairs().fit(log).bias_}
    )
    assert compared.best == "by device"
    assert compared["one"].is_worse


def test_too_many_contexts_and_contexts_without_names_are_refused(log):
    hours = replace(log, context={"hour": np.arange(log.n_lists) % 24})
    with pytest.raises(OptionError, match="at most 20 of them"):
        ut.ContextualBias().fit(hours).curves_.by_context()
    numbers = ut.ContextualBias().fit(log, np.arange(log.n_queries) % 2).curves_
    with pytest.raises(OptionError, match="know no columns by name"):
        numbers.by_context()


def test_null_tests_clip_and_sensitivity_take_it_as_well(log):
    scores = log.features[:, 0].astype(float)
    nulls = ut.null_tests(log, scores, TRUTH, n_draws=50)
    assert nulls.same_order == pytest.approx(0, abs=1e-12)
    assert ut.clip_curve(log, scores, TRUTH).value.shape
    found = ut.estimate(log, {"shown": ut.shown, "new": scores}, TRUTH).sensitivity("new", "shown")
    told = [cause.answer.fields["position"] for cause in found if "position" in cause.answer.fields]
    assert told
    assert max(told) <= DEPTH


@pytest.mark.parametrize(
    ("columns", "values", "said"),
    [
        ((), (), "at least one"),
        (("device", "hour"), (("phone",),), "a value for each"),
        (("device",), (("phone",), ("phone",)), "twice"),
    ],
)
def test_contexts_that_are_none(columns, values, said):
    with pytest.raises(OptionError, match=said):
        ContextCells(columns, values)
