"""Logs that cannot tell their bias, have no features, few queries, or no clicks but dwell."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import untilt as ut
from untilt.facts import codes
from untilt.workflow.stage_rankers import BY_RELEVANCE, best_strength, relevance

FAST: dict[str, Any] = {"trees": 5, "threads": 1, "method": ["balanced"]}


def without_features(log):
    from dataclasses import replace

    return replace(log, features=None, feature_names=())


@pytest.fixture(scope="module")
def judged():
    return ut.make_judged(n_queries=120, n_features=4, seed=8)


def test_one_ranker_and_features_the_bias_is_modelled_and_said_so(judged, tmp_path):
    log = ut.simulate(judged, "dla", n_sessions=6000, seed=8).log
    found = ut.run(log, tmp_path / "run", **FAST)
    assert found.bias_kind == "modelled"
    assert found.warnings[0].code == "run.bias-modelled"
    assert found.warnings[0].fields["estimator"] == "RegressionEM"
    answer = found.decision.answer
    assert answer.recommendation.code == "run.try-if-curve-right" or answer.verdict != "better"


def test_nothing_to_go_by_the_curve_is_assumed_and_said_so(judged, tmp_path):
    log = without_features(ut.simulate(judged, "dla", n_sessions=6000, seed=8).log)
    found = ut.run(log, tmp_path / "run", fallback="power-law:0.5", **FAST)
    assert found.bias_kind == "assumed"
    assert found.warnings[0].code == "run.bias-assumed"
    assert found.warnings[0].fields["curve"] == "power-law:0.5"
    assert found.bias.examination == pytest.approx(np.arange(1, 11) ** -0.5)
    assert found.decision.bias.is_assumed
    assert found.decision.answer.recommendation.code == "run.measure-bias-first"


def test_no_features_documents_are_reordered_and_no_ranker_is_left(judged, tmp_path):
    log = without_features(ut.simulate(judged, "harvest", n_sessions=20_000, seed=8).log)
    found = ut.run(log, tmp_path / "run", **FAST)
    assert found.bias_kind == "randomised"
    assert found.ranker is None
    assert found.candidates == {}
    order = pd.read_csv(tmp_path / "run" / "order.csv")
    assert len(order) == len(
        np.unique(log.document)
    )  # all that were shown, each query's best first
    assert order.groupby("query_id")["score"].apply(lambda each: each.is_monotonic_decreasing).all()
    assert "run.no-features" in codes(found.warnings)
    names = [each.system for each in found.decision.held_out.estimates]
    assert names == ["logged order", "raw clicks", BY_RELEVANCE]
    assert (found.folder / "tables" / "click_models.parquet").exists()


def test_no_card_of_another_ranker_is_left(judged, tmp_path):
    log = without_features(ut.simulate(judged, "harvest", n_sessions=4000, seed=8).log)
    ut.run(log, tmp_path / "run", **FAST)
    (tmp_path / "run" / "ranker.md").write_text("of an earlier run")
    ut.run(log, tmp_path / "run", title="the same log", **FAST)
    assert not (tmp_path / "run" / "ranker.md").exists()


def test_too_few_queries_are_split_by_session(tmp_path):
    small = ut.make_judged(n_queries=22, n_features=4, seed=9)
    log = ut.simulate(small, "harvest", n_sessions=4000, seed=9).log
    found = ut.run(log, tmp_path / "run", **FAST)
    assert "run.sessions-held-out" in codes(found.warnings)
    assert found.decision.split.sessions["test"] == pytest.approx(0.2 * 4000, abs=1)
    logged = found.decision.held_out.step.rankers
    assert sum(each.n_sessions for each in logged) <= found.decision.split.sessions["test"]


def test_a_given_bias_that_ends_early_cuts_the_log(judged, tmp_path):
    log = ut.simulate(judged, "harvest", n_sessions=6000, seed=8).log
    given = ut.KnownBias([1.0, 0.9, 0.7, 0.5])
    found = ut.run(log, tmp_path / "run", bias=given, **FAST)
    assert found.bias_kind == "given"
    fields = {each.code: dict(each.fields) for each in found.warnings}
    assert fields["run.bias-ends-early"] == {"known": 4, "depth": 10}
    assert len(found.decision.held_out.new_positions["balanced"].position) == 4


def test_features_that_never_vary_give_no_ranker_and_say_why(judged, tmp_path):
    from dataclasses import replace

    log = ut.simulate(judged, "harvest", n_sessions=4000, seed=8).log
    flat = replace(log, features=np.ones_like(log.features))
    found = ut.run(flat, tmp_path / "run", **FAST)
    assert found.decision.answer is None
    assert found.decision.no_answer.code == "run.nothing-trained"
    assert "constant" in found.decision.no_answer.fields["why"].fields["error"]
    assert found.ranker is None


def test_feedback_that_is_no_click(judged, tmp_path):
    log = ut.simulate(judged, "dwell", n_sessions=6000, seed=8).log
    named = log if not log.is_binary else log.with_label(next(iter(log.extra_labels)))
    assert not named.is_binary
    unasked = {name: each for name, each in FAST.items() if name != "method"}
    found = ut.run(named, tmp_path / "run", bias="power-law:1", **unasked)
    assert found.decision.audit.label_name == named.label_name
    assert [*found.candidates] == ["raw clicks", "balanced"]
    said = [fact for fact in found.warnings if fact.code == "training.no-clicks"]
    assert [fact.fields["label"] for fact in said] == [named.label_name]


def test_a_time_limit_is_kept_to_and_told(judged, tmp_path):
    log = ut.simulate(judged, "harvest", n_sessions=4000, seed=8).log
    found = ut.run(log, tmp_path / "run", threads=1, time_limit="2s", trees=2000)
    limits = [each.fields["limit"] for each in found.decision.plan.warnings]
    assert "2.0 s" in limits
    assert set(found.decision.plan.warnings) <= set(found.warnings)
    assert found.candidates["raw clicks"].n_trees_ < 2000


# ---- relevance of documents by their own clicks


def tiny(clicks):
    """Two documents of one query at positions 1 and 2 in each session."""
    n = len(clicks)
    return ut.ClickLog(
        query_id=[1],
        doc_id=[10, 11],
        doc_query=[0, 0],
        indptr=np.arange(0, 2 * n + 1, 2),
        query=np.zeros(n, int),
        document=np.tile([0, 1], n),
        position=np.tile([1, 2], n),
        label=np.array(clicks, float).ravel(),
    )


def test_relevance_by_hand():
    log = tiny([[1, 0], [1, 1], [0, 0], [0, 1]])
    # Document 0: 2 clicks of 4 looks; document 1: 2 clicks of 4 x 0.5 looks; together 4 of 6.
    found = relevance(log, ut.KnownBias([1.0, 0.5]), strength=3.0)
    assert found == pytest.approx([(2 + 3 * 4 / 6) / (4 + 3), (2 + 3 * 4 / 6) / (2 + 3)])


def test_strength_follows_how_much_documents_differ():
    same = np.random.default_rng(0).random((400, 2)) < 0.3
    apart = np.random.default_rng(0).random((400, 2)) < [0.9, 0.05]
    flat = ut.KnownBias([1.0, 1.0])
    strengths = [
        best_strength(tiny(clicks[:200]), tiny(clicks[200:]), flat) for clicks in (same, apart)
    ]
    assert strengths[0] > strengths[1]


def test_features_that_change_with_every_impression(shop, tmp_path):
    """The price of the day decides what is clicked: a ranker that learns it is found better."""
    import pyarrow as pa

    columns = shop(6000, n_queries=80, seed=7)
    gamma = columns.pop("gamma").reshape(-1, 6)
    log = ut.read_log(pa.table(columns), features=["quality", "price"])
    found = ut.run(log, tmp_path / "run", **FAST)
    assert found.bias_kind == "in turn"  # the log has no times
    assert found.bias.examination == pytest.approx(1 / np.arange(1, 7), rel=0.12)
    assert found.decision.answer.verdict == "better"
    # The truth over all sessions, each ordered by the ranker with the prices that it had.
    x = np.column_stack([columns["quality"], columns["price"]]).astype(np.float32)
    order = np.argsort(-found.candidate.predict(x).reshape(-1, 6), axis=1, kind="stable")
    discount = 1 / np.log2(2 + np.arange(6))
    truth = ((np.take_along_axis(gamma, order, axis=1) - gamma) @ discount).mean()
    interval = found.decision.answer.difference.interval
    assert 0 < interval.low < truth < interval.high
    for query in found.decision.held_out.changed:
        documents = [moved.document for moved in query.documents]
        assert len(set(documents)) == len(documents)  # no document twice for its versions
        assert max(moved.impressions for moved in query.documents) > 1


def test_a_thin_log_gets_no_verdict_and_says_what_is_missing(judged, tmp_path):
    log = ut.simulate(judged, "harvest", n_sessions=150, seed=8).log
    found = ut.run(log, tmp_path / "run", folds=1, **FAST)
    answer = found.decision.answer
    assert answer.verdict == "cannot tell"
    assert all(reason.severity == "serious" for reason in answer.reasons)
    assert {"run.floor-clicks", "run.floor-queries"} & set(codes(answer.reasons))
    assert repr(found).startswith("RunResult(undecided whether")
    assert "Cannot tell" in (found.folder / "report.html").read_text(encoding="utf-8")
