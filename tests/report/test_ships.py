"""What a run ships: the step that is safe, or nothing."""

from dataclasses import replace
from math import inf

import pytest

import untilt as ut
from untilt._core import codec
from untilt._core.statistics import Interval
from untilt.evaluation.sensitivity import FIRM_SHARE
from untilt.evaluation.step import LoggedRanker, SafeStep, StepPoint


def with_step(decision, w, *, assumed=False, rankers=(), path=(0.3, 1.0)):
    points = tuple(StepPoint(each, 0.02, 0.01 if w else -0.01, 9.0, 4.0) for each in path)
    step = SafeStep(w, points, "dcg@10", 0.95, assumed=assumed, rankers=rankers)
    return replace(decision, held_out=replace(decision.held_out, step=step))


def verdict(decision):
    return decision.answer.would_be or decision.answer.verdict


@pytest.fixture
def better(decision):
    assert decision.held_out.verdict == "better"
    assert decision.answer.verdict == "better"
    return decision


def test_a_whole_step_ships_the_candidate(better):
    found = with_step(better, 1.0)
    assert (found.ships, found.shipped, verdict(found)) == (1, found.candidate, "better")
    assert found.told_of_file.code == "run.shipped"
    assert found.answer.difference == better.answer.difference


def test_a_part_of_it_is_what_the_answer_is_about(better):
    found = with_step(better, 0.3)
    answer = found.answer
    assert (found.ships, verdict(found)) == (0.3, "better")
    assert (answer.difference.value, answer.difference.interval.low) == (0.02, 0.01)
    assert answer.new.system == f"{better.held_out.chosen}, step 0.3"
    assert answer.new.value - answer.shown.value == pytest.approx(
        0.02 + better.answer.new.value - better.answer.shown.value - better.answer.difference.value
    )
    assert found.told_of_file.code == "run.shipped-step"


@pytest.mark.parametrize("higher", [True, False])
def test_a_part_that_stands_with_less_attention_has_an_interval_with_one_end(better, higher):
    found = with_step(replace(better, bias=replace(better.bias, kind="harvested")), 0.3)
    step = replace(found.held_out.step, attention=0.004, higher_is_better=higher)
    found = replace(found, held_out=replace(found.held_out, step=step))
    expected = Interval(0.004, inf) if higher else Interval(-inf, -0.004)
    assert found.answer.verdict == "better"
    assert found.answer.difference.interval == expected
    assert found.answer.attention == FIRM_SHARE


def test_without_a_safe_step_nothing_is_shipped(better):
    found = with_step(better, 0.0)
    assert (found.ships, found.shipped, verdict(found)) == (0, None, "undecided")
    assert found.candidate is better.candidate
    assert found.told_of_file.code == "run.not-shipped"
    assert "candidate.untilt" in ut.model_card(found)


def test_under_an_assumed_curve_only_what_holds_under_a_flatter_one_too(better):
    guess = replace(better, bias=replace(better.bias, kind="assumed"))
    assert [each.code for each in guess.answer.reasons] == ["run.floor-curve-assumed"]
    assert with_step(guess, 0.3, assumed=True).ships == 0.3
    assert with_step(guess, 0.3, assumed=False).ships == 0
    assert with_step(guess, 0.3, assumed=True).answer.verdict == "cannot tell"


def test_the_best_logged_ranker_is_the_old_order(better):
    interval = Interval(0.9, 1.1)
    rankers = tuple(LoggedRanker(n, 9, 1.0, interval, 1.0, interval) for n in ("v2", "v1"))
    found = with_step(better, 0.0, rankers=rankers)
    assert found.best_logged == "v2"
    assert found.answer.shown.system.endswith("of v2")
    assert found.told_of_file.fields["old"] == found.old_order


def test_figures_of_earlier_runs_shipped_in_any_case(decision, tmp_path):
    plain = decision.to_dict()
    assert decision.held_out.step is None
    assert (decision.ships, plain["candidate"] is not None) == (1, True)


def test_figures_of_earlier_runs_are_read_without_what_is_no_more(decision):
    plain = codec.to_plain(decision)
    plain["audit"]["position_features"] = ["rank"]
    read = codec.from_plain(type(decision), plain, where="figures")
    assert read.answer.verdict == decision.answer.verdict
