"""Document 002: clicks by position, and rankers whose C is chosen with the test's propensities."""

from dataclasses import replace

import pytest

from untilt import IPS, Naive, PowerLaw, RankSVM, estimate
from untilt.bias.given import PageSteps
from untilt.papers.datasets import JudgedSource
from untilt.papers.methods import measure
from untilt.papers.schema import ExperimentSize, load
from untilt.papers.setting import CellSetting

SMALL = ExperimentSize(queries=60, test_queries=10, features=6, sessions_per_query=8)


def setting_of(panel, **changes):
    train, test = JudgedSource().parts(seed=0, fold=1, size=SMALL, most_queries=None)
    return CellSetting(train, test, replace(panel, **changes), SMALL, seed=0)


def average_rank(log, ranker, curve):
    found = estimate(log, {"it": ranker}, curve, metric="arp", evaluator="snips", among="shown")
    return found["it"].value


def test_clicks_are_counted_by_position():
    experiment = load("002-figure-2")
    setting = setting_of(experiment.panels[0])
    counted = measure(setting, experiment.rows[0])["clicks"]
    assert isinstance(counted, list)
    log, by_hand = setting.log, [0.0] * len(counted)
    for one in range(log.n_lists):
        for row in range(log.indptr[one], log.indptr[one + 1]):
            if log.position[row] <= len(counted):
                by_hand[log.position[row] - 1] += log.count[one] * log.label[row]
    assert sum(by_hand) > 0
    assert counted == by_hand


@pytest.mark.parametrize("test_bias", ["", "rank"])
@pytest.mark.parametrize("row", ["weighted", "normal"])
def test_c_is_chosen_with_the_propensities_of_the_test(row, test_bias):
    """Sections 5.3 and 5.4: weighted in training or not, validation clicks weigh as test clicks."""
    experiment = load("002-figure-5")
    setting = setting_of(experiment.panels[0], test_bias=test_bias)
    values = measure(setting, replace(experiment.row(row), bias="rough"))
    train, valid, test = setting.split
    judge = PowerLaw(1.0) if test_bias else PageSteps.rough()
    weighting = IPS(PageSteps.rough(), against="all") if row == "weighted" else Naive()
    ranker = RankSVM(weighting, C="search", against="all", valid_bias=judge)
    ranker.fit(train, valid=valid)
    assert values["average rank"] == pytest.approx(average_rank(test, ranker, judge))


def test_the_learning_curve_is_that_of_the_validation_queries():
    """A quarter of the training queries, C chosen and measured on the validation queries."""
    experiment = load("002-figure-3")
    setting = setting_of(experiment.panel("by training data"), test_bias="rank")
    row = experiment.row("normal-searched")
    values = measure(setting, replace(row, options={**row.options, "train_share": 0.25}))
    train, valid, _ = setting.split
    quarter, _ = train.split(0.25, by="query", seed=setting.seed)
    assert quarter.n_queries < train.n_queries / 3
    ranker = RankSVM(C="search", against="all", valid_bias=PowerLaw(1.0))
    ranker.fit(quarter, valid=valid)
    assert values["average rank"] == pytest.approx(average_rank(valid, ranker, PowerLaw(1.0)))
