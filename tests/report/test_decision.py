"""What a report says, as data: JSON and back, the answer that follows, errors that say where."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt._core.statistics import Interval
from untilt.errors import FileFormatError, OptionError
from untilt.facts import codes, serious, warning
from untilt.report.decision import Decision, first_sentence, write_report
from untilt.report.step_results import HeldOut, Training, UsedBias, verdict_of


def test_json_round_trip(decision, tmp_path):
    decision.save(tmp_path / "figures.json")
    again = Decision.load(tmp_path / "figures.json")
    assert again == decision
    assert again.answer == decision.answer
    assert again.warnings == decision.warnings
    assert np.array_equal(again.audit.graph.weight, decision.audit.graph.weight)


def test_an_empty_decision_round_trips():
    empty = Decision("nothing")
    assert Decision.from_dict(json.loads(json.dumps(empty.to_dict()))) == empty
    assert empty != Decision("something")


def test_the_file_holds_the_answer_for_other_tools(decision):
    plain = json.loads(json.dumps(decision.to_dict(), allow_nan=False))
    assert plain["answer"]["difference"]["value"] == 0.2
    assert plain["answer"]["verdict"] == "better"
    assert plain["answer"]["recommendation"]["code"] == "run.try-it"
    assert [each["text"] for each in plain["warnings"]] == list(decision.warnings)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("title",), 3, "checksum does not match"),
        (("answer", "verdict"), "worse", "checksum does not match"),
        (("held_out", "chosen"), "raw", "checksum does not match"),
        (("version",), 99, r"version 99 of the format; this untilt reads version 2"),
        (("kind",), "other", r'lacks "kind": "untilt decision"'),
    ],
)
def test_an_edited_file_is_noticed(decision, path, value, message):
    plain = json.loads(json.dumps(decision.to_dict()))
    *way, last = path
    place = plain
    for step in way:
        place = place[step]
    place[last] = value
    with pytest.raises(FileFormatError, match=message):
        Decision.from_dict(plain)


def test_figures_of_the_first_version_say_what_to_do():
    with pytest.raises(FileFormatError, match=r"untilt 0\.1.*Start `untilt run` again"):
        Decision.from_dict({"format": "untilt decision", "version": 1, "title": "t"})


def test_a_file_that_is_no_json_or_not_there(tmp_path):
    (tmp_path / "figures.json").write_text("{half")
    with pytest.raises(FileFormatError, match=r"figures\.json is no JSON"):
        Decision.load(tmp_path / "figures.json")
    with pytest.raises(OptionError, match=r"there is no file .*none\.json"):
        Decision.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("low", "high", "higher", "verdict"),
    [
        (0.1, 0.3, True, "better"),
        (0.1, 0.3, False, "worse"),
        (-0.3, -0.1, True, "worse"),
        (-0.3, -0.1, False, "better"),
        (-0.1, 0.5, True, "undecided"),
        (-np.inf, np.inf, True, "undecided"),
        (np.nan, np.nan, True, "undecided"),
        (0.0, 0.5, True, "undecided"),
    ],
)
def test_the_verdict_is_what_the_interval_says(low, high, higher, verdict):
    assert verdict_of(Interval(low, high), higher_is_better=higher) == verdict


def used(kind):
    return UsedBias(ut.KnownBias([1.0, 0.5]), kind)


@pytest.mark.parametrize(
    ("value", "kind", "code"),
    [
        (0.2, "experiment", "run.try-it"),
        (0.2, "randomised", "run.try-it"),
        (0.2, "in turn", "run.measure-bias-first"),
        (0.2, "versions", "run.measure-bias-first"),
        (0.2, "harvested", "run.measure-bias-first"),
        (0.2, "modelled", "run.measure-bias-first"),
        (0.2, "given", "run.try-if-curve-right"),
        (0.2, "assumed", "run.measure-bias-first"),
        (-0.2, "experiment", "run.keep-order"),
        (-0.2, "harvested", "run.keep-order"),
        (-0.2, "assumed", "run.measure-bias-first"),
    ],
)
def test_what_to_do_follows_from_the_verdict_and_the_bias(decided, value, kind, code):
    assert decided(value, bias=used(kind)).answer.recommendation.code == code


def test_a_misfit_comes_before_a_recommendation(decision):
    worse = replace(decision.held_out.check, z=np.array([9.0, -9.0]))
    data = replace(decision, held_out=replace(decision.held_out, check=worse))
    assert data.answer.recommendation.code == "run.find-misfit-first"


def test_undecided_says_how_many_sessions_are_missing(undecided):
    fact = undecided(12_000.0).answer.recommendation
    assert (fact.code, fact.fields["sessions"]) == ("run.collect-sessions", 12_000.0)
    hopeless = undecided(np.inf)
    assert hopeless.answer.recommendation.code == "run.do-not-decide"
    assert codes(hopeless.notes) == ["run.sessions-not-enough"]


def test_the_same_order_leaves_nothing_to_decide(undecided):
    """A difference of exactly 0 in every query: no sessions to collect, no hopeless search."""
    data = undecided(np.inf)
    (gap,) = data.held_out.comparison
    same = replace(gap, value=0.0, std_error=0.0, interval=Interval(0.0, 0.0), decided=False)
    comparison = replace(data.held_out.comparison, entries=(same,))
    answer = replace(data, held_out=replace(data.held_out, comparison=comparison)).answer
    assert answer.verdict == "undecided"
    assert answer.recommendation.code == "run.same-order"
    assert replace(data, held_out=replace(data.held_out, comparison=comparison)).notes == ()


def test_no_answer_says_why():
    assert Decision("t").no_answer.code == "run.nothing-compared"
    failed = warning(
        "run.candidate-failed", "The candidate {candidate} could not be trained: {error}"
    )(candidate="prs", error="no pairs")
    fact = Decision("t", training=Training(warnings=(failed,))).no_answer
    assert (fact.code, fact.fields["why"].code) == ("run.nothing-trained", "run.candidate-failed")


def test_warnings_of_all_parts_the_gravest_first_none_twice(decision):
    grave, warned = (
        serious("run.no-features", "no features")(),
        warning("run.bias-from-all-queries", "bias from all queries")(),
    )
    bias = replace(decision.bias, warnings=(warned, warned, grave))
    told = codes(replace(decision, bias=bias).warnings)
    assert told[0] == "run.no-features"
    assert told.count("run.bias-from-all-queries") == 1
    assert told[-1] == "general.text"


def test_a_finding_inside_another_is_told_once(decision):
    finding = warning("run.bias-from-all-queries", "bias from all queries")()
    doubt = serious("estimate.bias-doubted", "the bias itself says: {doubt}")(doubt=finding)
    told = codes(replace(decision, bias=replace(decision.bias, warnings=(finding, doubt))).warnings)
    assert "estimate.bias-doubted" in told
    assert "run.bias-from-all-queries" not in told


def test_a_decision_from_estimates_of_ones_own():
    judged = ut.make_judged(n_queries=40, n_features=5, seed=0)
    log = ut.simulate(judged, "harvest", n_sessions=2000, seed=0).log
    systems: dict[str, Any] = {"logged order": ut.shown, "new": np.zeros(log.n_documents)}
    estimates = ut.estimate(log, systems, ut.PowerLaw(1.0))
    part = HeldOut.of(estimates, "new")
    answer = Decision("t", held_out=part).answer
    assert answer.new == estimates["new"]
    assert answer.difference.value == estimates["new"].value - estimates["logged order"].value
    assert Decision.from_dict(Decision("t", held_out=part).to_dict()).answer == answer


def test_a_failed_report_leaves_the_old_file(decision, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    changed = (replace(decision.held_out.changed[0], documents=None),)
    bad = replace(decision, held_out=replace(decision.held_out, changed=changed))
    with pytest.raises(FileFormatError, match="do not fit together"):
        write_report(bad, path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("never", "conditional"),
    [((0.6, -0.2, 0.3), True), ((0.4, -0.2, 0.3), False), ((0.6, 0.2, 0.3), False), (None, False)],
)
def test_better_is_not_said_without_if_where_unshown_documents_decide(decided, never, conditional):
    bias = UsedBias(ut.PositionBias([1.0, 0.5]), "measured")
    answer = decided(0.2, never=never, bias=bias).answer
    assert answer.verdict == "better"
    assert (answer.condition is not None) == conditional
    assert (", if " in first_sentence(answer)) == conditional
    assert (answer.recommendation.code == "run.try-within-lists") == conditional
    if conditional:
        assert answer.condition.code == "run.if-within-lists"
        assert answer.recommendation.fields["measured"]


def test_where_all_candidates_are_ranked_the_condition_is_their_worth(decided):
    data = decided(-0.2, never=(0.6, -0.2, 0.3))
    part = replace(data.held_out, among="candidates")
    answer = replace(data, held_out=part).answer
    assert answer.verdict == "worse"
    assert answer.condition.code == "run.if-unshown-worthless"
