"""What a row tunes is chosen by held-out clicks, with the same budget for every row."""

from dataclasses import replace

import numpy as np
import pytest

from untilt import IPS, LinearRanker, PositionBias, evaluate
from untilt.papers import methods
from untilt.papers.cells import digest
from untilt.papers.datasets import JudgedSource
from untilt.papers.methods import measure
from untilt.papers.schema import ExperimentSize, Panel, Row, Sweep
from untilt.papers.setting import CellSetting, at_value

SMALL = ExperimentSize(queries=60, test_queries=20, features=6, clicks_per_query=6.0, repeats=3)
PANEL = Panel("p", protocol="prs", binary=True)
STRENGTHS = [1e-3, 1.0, 1e4]
ROW = Row("r", "R", ranker="linear", weighting="ips", bias="true", tune={"l2": STRENGTHS})


def setting_of(panel=PANEL, size=SMALL, seed=0):
    train, test = JudgedSource().parts(seed=seed, fold=1, size=size, most_queries=None)
    return CellSetting(train, test, panel, size, seed=seed)


def weighted_dcg(log, ranker, theta):
    """By hand: clicks over their propensity, at 1/log2(1 + rank) of a new order of the list."""
    value = weights = 0.0
    for one in range(log.n_lists):
        rows = slice(log.indptr[one], log.indptr[one + 1])
        scores = ranker.predict(log.features[log.document[rows]])
        rank = np.argsort(np.argsort(-scores, kind="stable"), kind="stable")
        gain = log.count[one] * log.label[rows] / theta[log.position[rows] - 1]
        value += np.sum(gain * (rank < 10) / np.log2(2 + rank))
        weights += np.sum(gain)
    return value / weights


@pytest.mark.parametrize("seed", range(4))
def test_the_value_with_the_best_held_out_clicks_is_chosen(seed):
    setting = setting_of(seed=seed)
    train, held_out = setting.log.split(0.8, seed=seed)
    bias = methods.curve_of(setting, "true", {})
    tried = [LinearRanker(IPS(bias), l2=l2).fit(train) for l2 in STRENGTHS]
    theta = bias.at(np.arange(1, held_out.depth + 1))
    values = [weighted_dcg(held_out, each, theta) for each in tried]
    assert len({round(value, 6) for value in values}) > 1
    chosen = methods.tuned(setting, ROW, setting.log)
    assert chosen.options == {"l2": STRENGTHS[int(np.argmax(values))]}


def test_the_ranker_is_then_trained_on_all_queries_and_says_what_was_tried():
    setting = setting_of()
    ranker = methods.fitted(setting, ROW)
    l2 = methods.tuned(setting, ROW, setting.log).options["l2"]
    again = LinearRanker(IPS(methods.curve_of(setting, "true", {})), l2=l2).fit(setting.log)
    assert ranker.predict(setting.test.features) == pytest.approx(
        again.predict(setting.test.features)
    )
    assert setting.trained["l2 out of"] == "0.001, 1, 10000"
    assert float(setting.trained["l2"]) == l2


def test_labels_play_no_part_where_clicks_are_learned_from(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a label was asked for")

    setting = setting_of()
    setting.log  # noqa: B018 - the clicks are there before the labels go
    monkeypatch.setattr(methods, "evaluate", refuse)
    monkeypatch.setattr(setting, "train", None)
    assert methods.tuned(setting, ROW, setting.log).options["l2"] in STRENGTHS


def test_a_row_that_learns_from_labels_is_tuned_by_labels():
    setting = setting_of()
    row = replace(ROW, train_on="labels", weighting="naive", bias="")
    train, held_out = setting.labels().split(0.8, seed=0)
    values = [
        evaluate(held_out, LinearRanker(l2=l2).fit(train), ["ndcg@10"])["ndcg@10"].value
        for l2 in STRENGTHS
    ]
    chosen = methods.tuned(setting, row, setting.labels())
    assert chosen.options["l2"] == STRENGTHS[int(np.argmax(values))]


def test_a_learned_curve_that_is_shorter_than_a_held_out_list_goes_on_level():
    bias = methods._as_deep(PositionBias([1.0, 0.5]), 4)
    assert bias.examination.tolist() == [1.0, 0.5, 0.5, 0.5]
    row = Row("r", "R", weighting="pairwise-debiasing", tune={"n_trees": [1, 3]})
    deeper = 0
    for seed in range(6):
        setting = setting_of(seed=seed)
        train, held_out = setting.log.split(0.8, seed=seed)
        if held_out.depth > train.depth:
            deeper += 1
            assert methods.tuned(setting, row, setting.log).options["n_trees"] in (1, 3)
    assert deeper


def test_clicks_per_query():
    log = setting_of().log
    assert 360 <= np.dot(log.label, log.row_count) <= 360 + log.depth
    panel, size = at_value(replace(PANEL, clicks_per_query=2.0), replace(SMALL, clicks=9), None)
    assert (size.clicks, size.clicks_per_query) == (None, 2.0)
    sweep = Sweep("size.clicks_per_query", (0.5, 3.0), "clicks per query")
    _, size = at_value(replace(PANEL, sweep=sweep), replace(SMALL, clicks=9), 0.5)
    assert (size.clicks, size.clicks_per_query) == (None, 0.5)
    assert setting_of(panel, replace(SMALL, clicks=100)).log.n_sessions < log.n_sessions


def test_what_is_tuned_and_the_panels_density_are_part_of_a_cell():
    plain = replace(ROW, tune={})
    assert digest(PANEL, ROW, SMALL, None) != digest(PANEL, plain, SMALL, None)
    dense = replace(PANEL, clicks_per_query=64.0)
    assert digest(PANEL, plain, SMALL, None) != digest(dense, plain, SMALL, None)


def test_a_ranker_is_judged_again_for_other_clicks_of_the_same_lists():
    setting = setting_of()
    row = Row("r", "R", ranker="linear", weighting="ips", bias="true")
    bias = methods.curve_of(setting, "true", {})
    by_hand = [
        evaluate(setting.test, LinearRanker(IPS(bias)).fit(repeat.log), ["ndcg@10"])[
            "ndcg@10"
        ].value
        for repeat in setting.repeats
    ]
    assert len(by_hand) == 3
    found = measure(setting_of(replace(PANEL, measure="judged-again")), row)
    assert found["mean"] == pytest.approx(sum(by_hand) / 3)
    squares = sum((value - sum(by_hand) / 3) ** 2 for value in by_hand)
    assert found["spread"] == pytest.approx((squares / 2) ** 0.5)
