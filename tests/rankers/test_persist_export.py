"""Exported models give the ranker's scores in the systems they are for."""

import json
from typing import Any

import lightgbm
import numpy as np
import pytest

from untilt import IPS, PRS, ClickLog, LambdaMART, LinearRanker, PowerLaw, RankSVM, export_model
from untilt.errors import NotFittedError, OptionError
from untilt.rankers.base import Ranker
from untilt.rankers.export import export_text

TREES: dict[str, Any] = {"n_trees": 8, "n_leaves": 5, "min_data_in_leaf": 2, "n_threads": 1}


def renamed(log, names):
    arrays = {name: getattr(log, name) for name in log.__dataclass_fields__}
    return ClickLog(**arrays | {"feature_names": names})


@pytest.mark.parametrize(
    "ranker", [LinearRanker(IPS(PowerLaw(1.0))), LinearRanker(loss="dcg-bound"), RankSVM()]
)
def test_json_weights_give_the_scores_up_to_a_constant(made, tmp_path, ranker):
    ranker.fit(made.log)
    path = export_model(ranker, tmp_path / "weights.json")
    model = json.loads(path.read_text(encoding="utf-8"))
    assert model["kind"] == type(ranker).__name__
    assert [feature["name"] for feature in model["features"]] == ["f1", "f2", "f3", "f4"]
    weights = np.array([feature["weight"] for feature in model["features"]])
    scores = made.log.features.astype(float) @ weights
    difference = scores - ranker.predict(made.log.features)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)
    assert np.array_equal(np.argsort(scores), np.argsort(ranker.predict(made.log.features)))


def test_text_model_gives_the_scores_in_plain_lightgbm(made, tmp_path):
    log = renamed(made.log, ("bm25", "größe", "click_rate", "age(days)"))
    ranker = LambdaMART(PRS(PowerLaw(1.0)), **TREES).fit(log)
    booster = lightgbm.Booster(model_file=export_model(ranker, tmp_path / "model.txt"))
    assert np.array_equal(booster.predict(log.features), ranker.predict(log.features))
    assert booster.num_trees() == 8
    assert booster.feature_name() == ["bm25", "größe", "click_rate", "age(days)"]
    assert "Column_" not in export_text(ranker)


@pytest.mark.parametrize(
    "names", [("a b", "c", "d", "e"), ("a", "a", "b", "c"), ("x:1", "b", "c", "d")]
)
def test_names_that_lightgbm_cannot_hold_become_columns(made, tmp_path, names):
    ranker = LambdaMART(**TREES).fit(renamed(made.log, names))
    booster = lightgbm.Booster(model_file=export_model(ranker, tmp_path / "model.txt"))
    assert booster.feature_name() == ["Column_0", "Column_1", "Column_2", "Column_3"]
    assert np.array_equal(booster.predict(made.log.features), ranker.predict(made.log.features))


def test_only_the_trees_in_use_are_exported(pbm_log, tmp_path):
    train, valid = pbm_log(seed=1).log, pbm_log(seed=2).log
    ranker = LambdaMART(early_stopping=2, **TREES | {"n_trees": 60}).fit(train, valid=valid)
    assert ranker.n_trees_ < 60
    booster = lightgbm.Booster(model_str=export_text(ranker))
    assert booster.num_trees() == ranker.n_trees_
    assert np.array_equal(booster.predict(valid.features), ranker.predict(valid.features))


def test_what_cannot_be_exported(made):
    class Constant(Ranker):
        def _fit(self, data):
            self.feature_names_ = data.feature_names
            return self

        def _scores(self, features):
            return np.zeros(len(features))

    with pytest.raises(NotFittedError, match="this LinearRanker has not been fitted"):
        export_text(LinearRanker())
    with pytest.raises(OptionError, match="a Constant has no form that other systems read"):
        export_text(Constant().fit(made.log))
