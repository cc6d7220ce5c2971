"""Folds of queries: every query counts, none is judged by a ranker that saw it or chose by it."""

from dataclasses import replace

import numpy as np
import pytest

import untilt as ut
from untilt.data.seen import overlap_of
from untilt.errors import OptionError
from untilt.facts import Fact, note
from untilt.selection.fitting import fit_alone
from untilt.workflow.candidates import make_candidate
from untilt.workflow.options import RunOptions, options_of
from untilt.workflow.stage_rankers import _by_fold
from untilt.workflow.stage_read import Data, fold_count, query_folds

pytestmark = pytest.mark.usefixtures("no_pages")


@pytest.fixture(scope="module")
def log(made):
    return ut.read_log(made.log, documents=made.documents)


def test_folds_are_all_queries_once_and_about_equal(log):
    folds = query_folds(log, 5, 0)
    assert sorted(np.concatenate(folds)) == sorted(np.unique(log.query))
    sizes = [log.sessions[np.isin(log.query, each)].sum() for each in folds]
    assert max(sizes) < 1.2 * min(sizes)


def test_folds_do_not_depend_on_how_sessions_are_written(log):
    for plain, merged in zip(
        query_folds(log, 4, 7), query_folds(log.collapse(), 4, 7), strict=True
    ):
        assert np.array_equal(plain, merged)


def test_small_logs_are_judged_in_folds(log):
    assert fold_count(log, RunOptions()) == 5
    assert fold_count(log, RunOptions(test_share=0.3)) == 1  # a share was asked for
    assert fold_count(log, RunOptions(folds=1)) == 1
    for queries, folds in ((1500, 3), (2500, 1)):
        judged = ut.make_judged(queries, 4, seed=0)
        large = ut.simulate(judged, "harvest", n_sessions=10 * queries, seed=0).log
        assert fold_count(large, RunOptions()) == folds


@pytest.mark.parametrize("folds", [0, -1, 2.0, True, "five", None, 101])
def test_wrong_numbers_of_folds(folds):
    with pytest.raises(OptionError, match="folds must be"):
        options_of({"folds": folds})


def test_folds_need_queries(log):
    with pytest.raises(OptionError, match="folds are of queries"):
        options_of({"folds": 3, "split": "session"})
    few = log.take(np.isin(log.query, np.unique(log.query)[:30]))
    with pytest.raises(OptionError, match="40 folds and 30 queries"):
        fold_count(few, RunOptions(folds=40))


def test_no_ranker_is_judged_by_a_query_that_it_was_trained_on(crossed, log):
    for rankers in crossed.fold_candidates.values():
        for ranker, queries in zip(rankers, query_folds(log, 3, 0), strict=True):
            judged_by = log.take(np.isin(log.query, queries))
            assert overlap_of(judged_by, ranker).trained == 0
            rest = log.take(~np.isin(log.query, queries))
            assert overlap_of(rest, ranker).trained == len(np.unique(rest.query))


def pooled(found, log, name):
    scores = np.zeros(log.n_documents)
    folds = query_folds(log, 3, 0)
    for ranker, queries in zip(found.fold_candidates[name], folds, strict=True):
        own = np.isin(log.doc_query, queries)
        scores[own] = ranker.predict(log.features[own])
    return scores


def test_figures_are_those_of_the_pooled_scores(crossed, log):
    part = crossed.decision.held_out
    found = ut.estimate(
        log,
        {"shown": ut.shown, "balanced": pooled(crossed, log, "balanced")},
        crossed.bias,
        evaluator="policy-aware",
        clip=part.clip,
        baseline=crossed.decision.best_logged,
    ).compare("shown")["balanced"]
    assert part.comparison["balanced"].value == pytest.approx(found.value)
    assert part.comparison["balanced"].interval.low == pytest.approx(found.interval.low)
    assert part["balanced"].n_queries == len(np.unique(log.query))
    assert part.null_tests.same_order == 0.0
    assert crossed.decision.split.folds == 3
    assert sum(crossed.decision.split.sessions.values()) == log.n_sessions
    assert crossed.decision.bias.sessions.code == "run.curve-of-all"


def test_more_queries_tell_more(crossed, finished):
    errors = [
        found.decision.held_out.comparison["balanced"].std_error for found in (crossed, finished)
    ]
    assert errors[0] < 0.7 * errors[1]  # a fifth of the queries against all: 0.45


def test_no_query_has_a_say_in_its_own_choice():
    made = ut.simulate(ut.make_judged(120, 4, seed=3), "harvest", n_sessions=12_000, seed=3)
    bias = ut.KnownBias(made.truth.examination)
    data = Data(lambda: made.log, RunOptions(folds=3))
    judged = data.judged("valid", 10)
    by_chance = np.random.default_rng(0).random(made.log.n_documents)
    # "b" knows the truth in the queries of the first fold and is the default elsewhere.
    b = by_chance.copy()
    b[judged.rows[0]] = made.truth.relevance[judged.rows[0]]
    scores = {"auto": by_chance, "b": b}
    options = replace(RunOptions(), evaluator="policy-aware")
    assert _by_fold(judged, scores, "auto", bias, options, 0.0) == ("auto", "b", "b")


def test_folds_that_choose_differently_are_judged_together(
    made, small_options, tmp_path, monkeypatch
):
    """The estimate is then that of the choices, fold by fold; what is shipped is chosen by all."""
    monkeypatch.setattr(
        "untilt.workflow.stage_rankers._by_fold", lambda *_: ("linear", "balanced", "linear")
    )
    options = {**small_options, "folds": 3}
    found = ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    log = ut.read_log(made.log, documents=made.documents)
    part, training = found.decision.held_out, found.decision.training
    assert part.chosen == "chosen by fold"
    folds = query_folds(log, 3, 0)
    scores = {name: pooled(found, log, name) for name in ("linear", "balanced")}
    second = np.isin(log.doc_query, folds[1])
    mixed = np.where(second, scores["balanced"], scores["linear"])
    by_hand = ut.estimate(
        log, mixed, found.bias, evaluator="policy-aware", clip=part.clip,
        baseline=found.decision.best_logged,
    )  # fmt: skip
    assert part["chosen by fold"].value == pytest.approx(by_hand.entries[0].value)
    notes = [each for each in found.decision.notes if isinstance(each, Fact)]
    note = next(each for each in notes if each.code == "run.choice-by-fold")
    assert note.fields["chosen"] == ("linear in 2", "balanced in 1")
    assert found.decision.candidate.method == training.best.method


@pytest.mark.parametrize("kind", ["finished", "crossed"])
def test_the_ranker_is_the_chosen_method_trained_on_all_queries(kind, log, request):
    found = request.getfixturevalue(kind)
    shipped, method = found.decision.candidate, found.decision.training.best.method
    assert (shipped.refit, shipped.method, shipped.note.code) == (True, method, "run.refit")
    assert shipped.queries == len(np.unique(log.query))
    assert shipped.sessions == log.n_sessions
    again = make_candidate(method, found.bias, trees=8, threads=1, seed=0).fit(log.collapse())
    assert found.candidate.predict(log.features) == pytest.approx(again.predict(log.features))
    assert overlap_of(log, found.candidate).trained == shipped.queries
    assert str(found.decision.told_of_file) in repr(found)
    assert str(shipped.note) in found.report.read_text(encoding="utf-8")
    systems = {"shown": ut.shown, "new": found.candidate}
    warned = ut.estimate(log, systems, found.bias)["new"].warnings
    assert "estimate.trained-queries" in [each.code for each in warned]


@pytest.fixture
def trained_on_all(monkeypatch):
    """Each training on all queries: its name, and whether it was found in the folder."""
    seen = []

    def fit(name, *given, **options):
        fitted = fit_alone(name, *given, **options)
        seen.append((name, fitted.resumed))
        return fitted

    monkeypatch.setattr("untilt.workflow.stage_rankers.fit_alone", fit)
    return seen


def test_idle_cores_train_the_default_on_all_queries_beside_the_candidates(
    made, finished, small_options, tmp_path, trained_on_all
):
    options = {**small_options, "threads": 2}
    found = ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    assert trained_on_all == [("balanced", False), ("balanced", True)]
    features = ut.read_log(made.log, documents=made.documents).features
    assert np.array_equal(found.candidate.predict(features), finished.candidate.predict(features))
    assert found.decision.candidate == finished.decision.candidate


def test_what_a_small_run_has_trained_it_does_not_load(made, small_options, tmp_path, monkeypatch):
    def load(path):
        raise AssertionError(path)

    monkeypatch.setattr("untilt.selection.fitting.load", load)
    options = {**small_options, "threads": 2}
    found = ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    assert found.decision.held_out.importances


def test_another_choice_than_the_default_is_still_trained_on_all_queries(
    made, small_options, tmp_path, monkeypatch, trained_on_all
):
    chosen = (
        "linear",
        note("run.only-candidate", "Only one candidate was trained: {chosen}.")(chosen="linear"),
        None,
    )
    monkeypatch.setattr("untilt.workflow.stage_rankers.choose", lambda *_: chosen)
    options = {**small_options, "threads": 2}
    found = ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    assert trained_on_all == [("balanced", False), ("linear", False)]
    assert (found.decision.candidate.method, found.decision.candidate.refit) == ("linear", True)
    assert type(found.candidate) is ut.LinearRanker
    assert [each.w for each in found.decision.held_out.step.path] == [1.0]


def test_what_cannot_be_trained_ahead_is_told_by_the_refit(
    made, small_options, tmp_path, monkeypatch
):
    def fit(*_, **__):
        raise OptionError("no room")

    monkeypatch.setattr("untilt.workflow.stage_rankers.fit_alone", fit)
    options = {**small_options, "threads": 2}
    found = ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    shipped = found.decision.candidate
    assert (shipped.refit, shipped.note.code) == (False, "run.refit-failed")
    assert shipped.note.fields["error"] == "no room"


def test_without_time_the_judged_ranker_is_shipped(made, small_options, tmp_path):
    options = {**small_options, "time_limit": 0.01}
    found = ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    shipped = found.decision.candidate
    assert (shipped.refit, shipped.note.code) == (False, "run.refit-late")
    assert shipped.note in found.warnings
    kept = found.candidates[found.decision.training.chosen]
    features = ut.read_log(made.log, documents=made.documents).features
    assert np.array_equal(found.candidate.predict(features), kept.predict(features))
    assert shipped.queries < found.decision.audit.size.queries


def test_a_run_that_is_stopped_trains_the_other_folds_alone(
    made, small_options, tmp_path, monkeypatch
):
    from untilt.selection import fitting

    fit_one, trained, stop_at = fitting._fit_one, [], [4]

    def counted(name, *rest):
        if len(trained) in stop_at:
            raise KeyboardInterrupt
        trained.append(name)
        return fit_one(name, *rest)

    options = {**small_options, "folds": 3}
    monkeypatch.setattr(fitting, "_fit_one", counted)
    with pytest.raises(KeyboardInterrupt):
        ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    stop_at.clear()
    ut.run(made.log, tmp_path / "run", documents=made.documents, **options)
    assert len(trained) == 9  # three candidates in three folds, none twice
