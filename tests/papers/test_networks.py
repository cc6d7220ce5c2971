"""Networks of an experiment get the same budget, and held-out queries choose among penalties."""

from dataclasses import replace

import numpy as np
import pytest

from untilt import ClickLog, make_judged
from untilt.papers.methods import HELD_OUT, _with_chosen_penalty, fitted, ranker_of
from untilt.papers.schema import ExperimentSize, Panel, Row
from untilt.papers.setting import CellSetting

pytest.importorskip("jax")

SIZE = ExperimentSize(
    sessions_per_query=20, epochs=2, widths=(4,), batch=8, learning_rate=0.02, patience=2,
    penalties=(0.0, 3.0),
)  # fmt: skip
CLICKS = Panel("p", protocol="dla")
DWELL = Panel("p", protocol="dwell")


def setting_of(panel):
    train, test = (make_judged(n_queries=60, n_features=4, mean_docs=8, seed=s) for s in (1, 2))
    return CellSetting(train, test, panel, SIZE, seed=3, n_threads=1)


@pytest.fixture(scope="module")
def clicks():
    return setting_of(CLICKS)


@pytest.fixture(scope="module")
def dwell():
    return setting_of(DWELL)


def row(ranker, train_on="clicks", **options):
    return Row("r", "R", ranker=ranker, train_on=train_on, options=options)


def tried(setting, row, data):
    """Held-out value by penalty, each trained here, by the options that the row's ranker has."""
    train, held_out = data.split(1 - HELD_OUT, seed=setting.seed)
    values = {}
    for l2 in SIZE.penalties:
        ranker = ranker_of(setting, row).set_params(l2=l2).fit(train, valid=held_out)
        values[l2] = ranker.summary_["held_out_value"]
    return values


def test_held_out_clicks_choose_the_penalty(clicks):
    values = tried(clicks, row("neural"), clicks.log)
    assert values[0.0] > values[3.0]  # a penalty of 3 leaves nothing of the scores
    best = fitted(clicks, row("neural"))
    assert best.l2 == 0.0
    assert clicks.trained["l2"] == "0"
    assert clicks.trained["l2 out of"] == "0, 3"
    assert clicks.trained["held out"] == "20% of the queries"
    # Where the held-out clicks say otherwise, so does the choice: not the first, nor the smallest.
    turned = replace(SIZE, penalties=(3.0, 0.0))
    setting = setting_of(CLICKS)
    setting.size = turned
    assert fitted(setting, row("neural")).l2 == 0.0


def test_every_network_has_the_budget_of_the_size(clicks):
    for name in ("neural", "dual-learning", "pairwise-trust", "tower"):
        ranker = ranker_of(clicks, row(name))
        found = ranker.widths, ranker.epochs, ranker.learning_rate, ranker.early_stopping
        assert found == ((4,), 2, 0.02, 2)
        assert ranker.batch_size == 8


def test_a_batch_of_rows_holds_what_a_batch_of_lists_shows(clicks):
    tower = fitted(clicks, row("tower", combine="none"))
    train = clicks.log.split(1 - HELD_OUT, seed=3)[0]
    per_list = np.diff(train.indptr).mean()
    assert per_list > 2
    assert tower.batch_size == round(8 * per_list)


def test_numbers_are_judged_by_which_of_them_are_clicks(dwell, monkeypatch):
    judged_by, learned_from = [], []

    def fit(self, train, *, valid):
        judged_by.append(valid.label)
        learned_from.append(train)
        self.summary_ = {"held_out_value": 0.0}
        return self

    ranker = ranker_of(dwell, row("neural"))
    monkeypatch.setattr(type(ranker), "fit", fit)
    numbers = dwell.log
    assert isinstance(numbers, ClickLog)
    assert not numbers.is_binary
    _with_chosen_penalty(dwell, ranker, numbers)
    assert len(judged_by) == len(SIZE.penalties)
    assert not any(log.is_binary for log in learned_from)  # what is learned from stays as it is
    for label in judged_by:
        assert set(np.unique(label)) == {0.0, 1.0}


def test_labels_are_judged_by_labels(clicks):
    best = fitted(clicks, row("neural", train_on="labels"))
    assert 0 < best.summary_["held_out_value"] <= 1  # NDCG@10
