"""Below stated floors of evidence there is no verdict, and the answer says what is missing."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt._core.statistics import Interval
from untilt.auditing.estimators import EstimatorTest
from untilt.auditing.reading import ReadingTest, ReadingTests
from untilt.auditing.sessions import HarvestedTest
from untilt.evaluation.null_tests import NullTests
from untilt.evaluation.sensitivity import FIRM_SHARE, Cause, Sensitivity
from untilt.evaluation.uncertainty import CurveCheck, Support, WithoutQuery
from untilt.facts import codes, note, serious
from untilt.report import floors
from untilt.report.decision import Decision
from untilt.report.page import answer_view, sections_of
from untilt.report.step_results import HeldOut, UsedBias

THETA = np.array([1.0, 0.5, 0.25, 0.2])


def curve(factor=1.1, clicks=5000.0, depth=4):
    """A curve known to this factor below position 1, from so many clicks."""
    theta, spread = THETA[:depth], np.r_[1.0, np.full(depth - 1, factor)]
    status = note(
        "bias.shared-clicks", "{clicks:,.0f} clicks on documents shown at several positions"
    )(clicks=clicks)
    return ut.PositionBias(
        theta, std_error=theta / 9, low=theta / spread, high=theta * spread, status=status
    )


def support(**other):
    """Enough evidence: 1000 clicks on 100 queries at four positions."""
    clicks = np.array([500.0, 250.0, 150.0, 100.0])
    enough = {
        "n_clicks": 1000.0, "effective_n": 600.0, "clicked_queries": 100, "clipped_share": 0.1,
        "unsupported_share": 0.0, "largest_query": 0.05, "clicks_at": clicks,
        "credit_at": clicks / THETA,
    }  # fmt: skip
    return Support(**{**enough, **other})


def rest(effective_queries, value=-0.2):
    """The difference without the query that speaks most for it."""
    interval = Interval(value - 0.1, value + 0.1)
    return WithoutQuery("shoes", 0.4, value, interval, effective_queries)


def decision(decided, part, bias=None, kind="experiment", value=-0.2):
    """A decided difference on this evidence."""
    data = decided(value, bias=UsedBias(curve() if bias is None else bias, kind))
    return replace(data, held_out=replace(data.held_out, support=part))


@pytest.mark.parametrize(("value", "verdict"), [(0.2, "better"), (-0.2, "worse")])
def test_enough_evidence_keeps_its_verdict(decided, value, verdict):
    answer = decision(decided, support(), value=value).answer
    assert (answer.verdict, answer.reasons) == (verdict, ())


@pytest.mark.parametrize(
    ("part", "bias", "code", "fields"),
    [
        ({}, curve(clicks=16.0), "run.floor-curve-clicks", {"clicks": 16.0, "floor": 100}),
        ({}, curve(factor=9.0), "run.floor-curve", {"factor": 9.0, "position": 4}),
        (
            {},
            ut.PositionBias(THETA, method="learned", estimated=True),
            "run.floor-no-interval",
            {"method": "learned"},
        ),
        ({"effective_n": 29.0}, None, "run.floor-clicks", {"effective_n": 29.0, "floor": 30}),
        ({"clicked_queries": 9}, None, "run.floor-queries", {"queries": 9, "floor": 10}),
        ({"clipped_share": 0.51}, None, "run.floor-clipped", {"share": 0.51, "most": 0.5}),
        (
            {"rest": (rest(4.9), rest(50.0))},
            None,
            "run.floor-effective-queries",
            {"query": "shoes", "effective_queries": 4.9, "floor": 5},
        ),
    ],
)
def test_each_floor_takes_the_verdict_away(decided, part, bias, code, fields):
    answer = decision(decided, support(**part), bias).answer
    assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", [code])
    assert answer.reasons[0].fields.items() >= fields.items()
    assert answer.reasons[0].severity == "serious"
    assert answer.recommendation.code == "run.get-evidence-first"


@pytest.mark.parametrize(("left", "verdict"), [(-0.2, "worse"), (-0.05, "undecided")])
def test_a_verdict_stands_without_the_query_that_speaks_most_for_it(decided, left, verdict):
    answer = decision(decided, support(rest=(rest(50.0, left),))).answer
    assert (answer.verdict, answer.reasons) == (verdict, ())


def test_clicks_below_the_end_of_the_curve_count_at_least_like_those_at_its_end(decided):
    # Known: 500/1 + 250/0.5 = 1000. Below: 250 clicks, each at least 1/0.5: 500. Two thirds.
    credit = np.array([500.0, 500.0, 0.0, 0.0])
    part = support(credit_at=credit, unsupported_share=0.25)
    assert part.known_credit == pytest.approx(2 / 3)
    answer = decision(decided, part, curve(depth=2)).answer
    (reason,) = answer.reasons
    assert reason.code == "run.floor-positions"
    assert (reason.fields["known"], reason.fields["depth"]) == (2, 4)


def test_the_factor_is_that_of_the_positions_that_hold_the_credit():
    # Credit 500, 500, 600, 500 of 2100: without position 4 it is 76%, so position 4 counts.
    wide = replace_ends(curve(), 4, 8.0)
    assert support().curve_factor(wide) == (4, pytest.approx(8.0))
    # Half of the clicks there: 500, 500, 600, 250 of 1850, of which 86% do not need position 4.
    fewer = support(credit_at=np.array([500.0, 500.0, 600.0, 250.0]))
    assert fewer.curve_factor(wide)[1] == pytest.approx(1.1)
    assert fewer.curve_factor(ut.PositionBias(THETA)) == (1, 1.0)


def replace_ends(bias, position, factor):
    low, high = bias.low.copy(), bias.high.copy()
    theta = bias.examination[position - 1]
    low[position - 1], high[position - 1] = theta / factor, theta * factor
    return ut.PositionBias(
        bias.examination, std_error=bias.std_error, low=low, high=high, status=bias.status
    )


def test_clicks_that_the_page_makes_carry_no_verdict(decided):
    data = decision(decided, support())
    told = serious("estimate.automatic-clicks", "automatic clicks")(position=1, share=1.0)
    data = replace(data, held_out=replace(data.held_out, warnings=(told,)))
    assert (data.answer.verdict, data.answer.reasons) == ("cannot tell", (told,))


def test_a_curve_that_nobody_measured_carries_no_verdict(decided):
    answer = decision(decided, support(), ut.PositionBias(THETA), "assumed").answer
    assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", ["run.floor-curve-assumed"])
    assert answer.recommendation.code == "run.measure-bias-first"


def test_a_curve_that_was_given_needs_no_clicks(decided):
    assert decision(decided, support(), ut.PositionBias(THETA), "given").answer.verdict == "worse"


def test_without_support_or_bias_the_interval_alone_decides(decided):
    assert decided(0.2).answer.verdict == "better"


def test_the_page_and_the_file_say_why(decided):
    data = decision(decided, support(clicked_queries=3, effective_n=12.0))
    view = answer_view(data)
    assert (view.word, view.second) == ("Cannot tell", "First collect more sessions.")
    assert len(view.reasons) == 2
    assert all(reason.endswith(".") and reason[0].isupper() for reason in view.reasons)
    assert "%" not in view.first  # no figure in the headline
    plain = json.loads(json.dumps(data.to_dict()))
    assert plain["answer"]["verdict"] == "cannot tell"
    assert [each["code"] for each in plain["answer"]["reasons"]] == codes(data.answer.reasons)
    assert Decision.from_dict(plain).answer.reasons == data.answer.reasons


def test_the_command_line_gives_no_figure_without_a_verdict(decided):
    answer = decision(decided, support(clicked_queries=3)).view()[0]
    assert answer.paragraphs == (
        "This log cannot tell whether the new ranker \u201cnew\u201d is better than the logged "
        "order.",
        "First collect sessions of more queries.",
    )


def thin_log(n_sessions, seed=0):
    """Ten positions, two rankers, few clicks, nearly all of them at the top."""
    rng = np.random.default_rng(seed)
    judged = ut.make_judged(n_queries=60, n_features=4, seed=seed)
    relevance = rng.beta(1, 6, len(judged.labels))
    log = ut.simulate(judged, "harvest", n_sessions=n_sessions, seed=seed).log
    k = log.position
    click = rng.random(len(k)) < relevance[log.document] * k**-1.5
    return log.with_label(click.astype(float))


def test_a_few_clicks_behind_four_positions_give_no_verdict():
    """The curve reaches 4 of 10 positions and rests on 25 clicks: no "worse", however sure."""
    log = thin_log(250, seed=3)
    bias = ut.AllPairs(depth=4).fit(log).bias_
    systems = {"logged order": ut.shown, "new": log.features[:, 1].astype(float)}
    estimates = ut.estimate(log, systems, bias)
    data = Decision("t", bias=UsedBias(bias, "measured"), held_out=HeldOut.of(estimates, "new"))
    assert floors.curve_clicks(data, data.bias) == 25
    assert bias.uncertainty[3] > 9
    assert data.answer.difference.interval.high < 0
    assert data.answer.verdict == "cannot tell"
    assert {"run.floor-curve-clicks", "run.floor-curve"} <= set(codes(data.answer.reasons))


def test_a_curve_that_does_not_fit_takes_the_verdict_away(decided):
    z = np.array([0.5, -6.0])
    check = CurveCheck(np.array([1, 4]), np.array([90.0, 60.0]), np.array([88.0, 90.0]), z, 40)
    data = decision(decided, support())
    answer = replace(data, held_out=replace(data.held_out, check=check)).answer
    assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", ["run.floor-misfit"])
    assert answer.reasons[0].fields["position"] == 4
    assert answer.recommendation.code == "run.find-misfit-first"


def failed_test(**changes):
    """Weaker documents fall far more steeply: trust."""
    usual = {
        "question": "relevance", "ratio": 1.5, "low": 1.3, "high": 1.8, "p_value": 1e-4,
        "adjusted": 1e-3, "effective_queries": 90.0, "detail": "slope", "position": 7,
    }  # fmt: skip
    return ReadingTest(**{**usual, **changes})


def reading_answer(decided, test, bias=None, *, estimators=None, **of_bias):
    audit = SimpleNamespace(
        reading=ReadingTests((test,)), interventions=None, next_step=None, leaks=(), warnings=(),
        click_rates=None, notes=(), harvested=None, estimators=estimators,
    )  # fmt: skip
    data = decision(decided, support(), bias)
    return replace(data, audit=audit, bias=replace(data.bias, **of_bias)).answer


@pytest.mark.parametrize("kind", ["experiment", "randomised", "in turn", "harvested", "given"])
@pytest.mark.parametrize("p_value", [0.01, 0.2])
def test_an_experiment_that_contradicts_a_curve_of_documents_that_moved(decided, kind, p_value):
    test = HarvestedTest(0.7, 0.1, 0.5, 0.9, p_value, 600)
    audit = SimpleNamespace(
        reading=None,
        interventions=None,
        harvested=test,
        estimators=None,
        warnings=(),
        notes=(),
        leaks=(),
    )
    data = with_attention(decision(decided, support(), kind=kind, value=0.2), 0.5)
    answer = replace(data, audit=audit).answer
    if p_value < 0.05 and kind not in ("experiment", "given"):
        assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", ["run.floor-harvested"])
        assert answer.recommendation.code == "run.get-evidence-first"
    else:
        assert answer.verdict == "better"


def test_people_who_read_otherwise_take_the_verdict_away(decided):
    answer = reading_answer(decided, failed_test())
    assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", ["run.floor-reading"])
    assert answer.reasons[0].fields["finding"].code == "reading.trust-serious"
    assert answer.recommendation.code == "run.find-misfit-first"
    small = failed_test(ratio=1.05, low=1.02, high=1.08)  # sure, and too small to matter
    assert reading_answer(decided, small).verdict == "worse"


def test_estimators_that_disagree_take_the_verdict_away(decided):
    small = failed_test(ratio=1.05, low=1.02, high=1.08)
    apart = EstimatorTest("AllPairs", "TrustEM", 1.0, 0.6, 0.01)
    answer = reading_answer(decided, small, estimators=apart)
    assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", ["run.floor-reading"])
    assert answer.reasons[0].fields["finding"].code == "audit.estimators-disagree"
    agree = replace(apart, p_value=0.2)
    assert reading_answer(decided, small, estimators=agree).verdict == "worse"
    asked = note("run.bias-asked-for", "{estimator:method} was asked for")(estimator="TrustEM")
    assert reading_answer(decided, small, estimators=apart, why=asked).verdict == "worse"


def test_trust_is_no_reason_where_a_curve_that_explains_it_was_asked_for(decided):
    trusting = replace(curve(), eps_plus=np.ones(4), eps_minus=np.full(4, 0.1))
    asked = note("run.bias-asked-for", "{estimator:method} was asked for")(estimator="TrustEM")
    test, fits = failed_test(), {"explains_trust": True}
    assert reading_answer(decided, test, trusting, why=asked, **fits).verdict == "worse"
    assert reading_answer(decided, test, trusting, why=asked).verdict == "cannot tell"
    # Nobody asked: relevance that differs from session to session looks the same.
    assert reading_answer(decided, test, trusting, **fits).verdict == "cannot tell"
    other = failed_test(question="time", detail="spread")
    assert reading_answer(decided, other, trusting, why=asked, **fits).verdict == "cannot tell"


def test_an_ordinary_log_is_above_all_floors():
    judged = ut.make_judged(n_queries=100, n_features=5, seed=1)
    made = ut.simulate(judged, "harvest", n_sessions=8000, seed=1)
    log = made.log
    bias = ut.AllPairs().fit(log).bias_
    systems: dict[str, Any] = {"logged order": ut.shown, "new": made.truth.relevance}
    estimates = ut.estimate(log, systems, bias)
    data = Decision("t", bias=UsedBias(bias, "measured"), held_out=HeldOut.of(estimates, "new"))
    assert (data.answer.verdict, data.answer.reasons) == ("better", ())
    found = data.held_out.support
    assert found.n_clicks == log.label @ log.row_count
    assert found.clicks_at.sum() == found.n_clicks
    assert found.clicked_queries <= 100
    assert 0 < found.largest_query < 0.5


# Null tests: their failures take the verdict away too.


def with_null_tests(decided, **other):
    sound: dict[str, Any] = {
        "difference": 0.2, "std_error": 0.04, "same_order": 0.0, "same_order_queries": 200,
        "n_queries": 200, "relabelled_p": 0.001, "relabelled_outside": 0.05, "permuted": 0.001,
        "permuted_error": 0.002, "clipping_bias": 0.0, "by_curve": 0.0, "level": 0.95,
    }  # fmt: skip
    data = decided(0.2)
    tests = NullTests(**{**sound, **other})
    return replace(data, held_out=replace(data.held_out, null_tests=tests))


def section(data, name):
    return next(each for each in sections_of(data) if each.name == name)


def test_null_tests_that_pass_keep_the_verdict_and_are_shown(decided):
    data = with_null_tests(decided)
    assert data.answer.verdict == "better"
    tiles = {tile.label: tile.value for tile in section(data, "how-sure").tiles}
    assert tiles["Null tests"] == "passed"
    (table,) = section(data, "null-tests").tables
    assert [row[-1] for row in table.rows] == ["passes"] * 4
    assert table.marked == ()


@pytest.mark.parametrize(
    ("other", "code", "row"),
    [
        ({"same_order": 0.1}, "null.same-order", 0),
        ({"relabelled_p": 0.4}, "null.relabelled", 1),
        ({"permuted": 0.1}, "null.permuted", 2),
        ({"clipping_bias": 0.15}, "null.lean", 3),
    ],
)
def test_a_null_test_that_fails_takes_the_verdict_away(decided, other, code, row):
    data = with_null_tests(decided, **other)
    answer = data.answer
    assert (answer.verdict, codes(answer.reasons)) == ("cannot tell", [code])
    tiles = {tile.label: tile.value for tile in section(data, "how-sure").tiles}
    assert tiles["Null tests"] == "1 failed"
    (table,) = section(data, "null-tests").tables
    assert table.marked == (row,)
    assert Decision.from_dict(json.loads(json.dumps(data.to_dict()))).answer == answer


def test_a_difference_that_the_curve_makes_is_a_warning(decided):
    data = with_null_tests(decided, by_curve=0.15)
    assert data.answer.verdict == "better"
    assert "null.by-curve" in codes(data.warnings)


CONDITIONAL = [kind for kind, evidence in floors.EVIDENCE.items() if evidence.condition is not None]


def with_attention(data, stands, low=0.02):
    """The answer stands from this share of the curve's steepness on; at the floor from `low` on."""
    told = note("sensitivity.tried-attention", "{stands}")(stands=stands)
    cause = Cause(
        "attention", told, FIRM_SHARE, 1.0, low + 0.1, 0.2, told, undecided_at=stands,
        interval=Interval(low, low + 0.2),
    )  # fmt: skip
    gap = data.held_out.comparison[data.held_out.chosen]
    found = Sensitivity("new", gap.baseline, "dcg@10", gap.value, gap.interval, (cause,))
    return replace(data, held_out=replace(data.held_out, sensitivity=found))


def test_five_kinds_depend_on_what_a_log_cannot_show():
    assert set(floors.EVIDENCE) == {
        "experiment", "randomised", "in turn", "versions", "harvested", "modelled", "given",
        "assumed", "measured", "propensities", "labels",
    }  # fmt: skip
    assert CONDITIONAL == ["in turn", "versions", "harvested", "modelled", "labels"]


@pytest.mark.parametrize("kind", CONDITIONAL)
@pytest.mark.parametrize("stands", [1.0, 0.61])
def test_an_answer_that_needs_the_whole_curve_is_one_under_a_condition(decided, kind, stands):
    data = with_attention(decision(decided, support(), kind=kind, value=0.2), stands)
    answer = data.answer
    assert (answer.verdict, answer.would_be) == ("cannot tell", "better")
    assert answer.condition == floors.EVIDENCE[kind].condition
    assert codes(answer.reasons) == ["run.conditional"]
    assert answer.recommendation.code == "run.measure-bias-first"
    assert answer.difference.interval == data.held_out.comparison["new"].interval


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_an_answer_that_stands_with_less_says_how_much_it_may_be(decided, kind):
    data = with_attention(decision(decided, support(), kind=kind, value=0.2), 0.6)
    answer = data.answer
    assert (answer.verdict, answer.reasons, answer.would_be) == ("better", (), None)
    assert answer.difference.interval == Interval(0.02, np.inf)
    assert answer.attention == FIRM_SHARE
    sure = "95% interval at least +0.020 if at least 60% of the curve's steepness is attention)."
    assert answer_view(data).first.endswith(sure)
    assert data.to_dict()["answer"]["difference"]["interval"]["high"] == "inf"
    assert answer.difference.value == data.held_out.comparison["new"].value


@pytest.mark.parametrize("kind", CONDITIONAL)
def test_a_worse_order_is_one_under_a_condition_however_much_stands(decided, kind):
    answer = with_attention(decision(decided, support(), kind=kind, value=-0.2), 0.1, -0.3).answer
    assert (answer.verdict, answer.would_be) == ("cannot tell", "worse")


@pytest.mark.parametrize("kind", ["experiment", "randomised", "given", "measured"])
def test_firm_evidence_has_the_interval_of_the_curve(decided, kind):
    data = with_attention(decision(decided, support(), kind=kind, value=0.2), 1.0)
    assert data.answer.verdict == "better"
    assert data.answer.difference.interval == data.held_out.comparison["new"].interval
    assert "steepness" not in answer_view(data).first
