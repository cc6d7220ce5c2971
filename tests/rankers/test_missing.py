"""A missing feature means the same to training, to `predict`, to a saved file and to an export."""

import json
from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
import pytest

from untilt import (
    JudgedLists,
    LambdaMART,
    LinearRanker,
    RankSVM,
    check_export,
    estimate,
    load,
    make_judged,
    read_log,
    simulate,
)
from untilt.errors import OptionError, ShapeError
from untilt.exports.format import export_model

SMALL: dict[str, Any] = {"n_trees": 20, "n_threads": 1}


@pytest.fixture(scope="module")
def log():
    return simulate(make_judged(60, 5, seed=3), n_sessions=2000, seed=3).log


@pytest.fixture(scope="module")
def holes(log):
    """Features of the log without a third of the first one."""
    features = log.features.copy()
    features[np.random.default_rng(1).random(len(features)) < 0.3, 0] = np.nan
    return features


@pytest.fixture(scope="module")
def rows(log):
    """Rows with gaps in every feature."""
    rows = log.features[:300].copy()
    rows[np.random.default_rng(2).random(rows.shape) < 0.3] = np.nan
    return rows


def exported(ranker, path):
    export_model(ranker, path)
    return lightgbm.Booster(model_file=path)


def test_kept_values_score_alike_in_memory_in_a_file_and_exported(log, holes, rows, tmp_path):
    ranker = LambdaMART(**SMALL).fit(replace(log, features=holes, missing="keep"))
    scores = ranker.predict(rows)
    ranker.save(tmp_path / "ranker.untilt")
    assert load(tmp_path / "ranker.untilt").missing_ == "keep"
    assert np.array_equal(load(tmp_path / "ranker.untilt").predict(rows), scores)
    assert np.array_equal(exported(ranker, tmp_path / "model.txt").predict(rows), scores)


def test_what_was_never_missing_in_training_counts_as_its_median(log, holes, rows):
    ranker = LambdaMART(**SMALL).fit(replace(log, features=holes, missing="keep"))
    median = np.median(log.features[np.unique(log.document)], axis=0)
    filled = rows.copy()
    for column in range(1, rows.shape[1]):
        filled[np.isnan(rows[:, column]), column] = median[column]
    assert np.array_equal(ranker.predict(rows), ranker.predict(filled))
    # The first feature had gaps in training, so that a way for them was learned.
    assert not np.array_equal(ranker.predict(filled), ranker.predict(np.nan_to_num(filled)))


@pytest.mark.parametrize("value", [0.0, -3.5, 7])
def test_a_fill_value_is_applied_by_predict_by_the_file_and_by_the_export(
    log, holes, rows, value, tmp_path
):
    features = np.where(np.isnan(holes), np.float32(value), holes)
    ranker = LambdaMART(**SMALL).fit(replace(log, features=features, missing=value))
    plain = LambdaMART(**SMALL).fit(replace(log, features=features))
    expected = plain.predict(np.where(np.isnan(rows), np.float32(value), rows))
    ranker.save(tmp_path / "ranker.untilt")
    assert np.array_equal(ranker.predict(rows), expected)
    assert np.array_equal(load(tmp_path / "ranker.untilt").predict(rows), expected)
    assert np.array_equal(exported(ranker, tmp_path / "model.txt").predict(rows), expected)


@pytest.mark.parametrize("kind", [LinearRanker, RankSVM])
def test_linear_rankers_fill_and_say_so_in_their_export(log, holes, rows, kind, tmp_path):
    features = np.where(np.isnan(holes), np.float32(2), holes)
    ranker = kind().fit(replace(log, features=features, missing=2.0))
    assert np.array_equal(ranker.predict(rows), ranker.predict(np.nan_to_num(rows, nan=2.0)))
    export_model(ranker, tmp_path / "model.json")
    written = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    weights = np.array([each["weight"] for each in written["features"]])
    by_hand = np.where(np.isnan(rows), written["missing"], rows) @ weights
    offset = ranker.predict(rows) - by_hand
    assert offset == pytest.approx(np.full(len(rows), offset[0]), abs=1e-6)
    with pytest.raises(ShapeError, match=r"Got nan for feature 'f1'.*missing=0\.0"):
        kind().fit(replace(log, features=holes, missing="keep"))


@pytest.mark.parametrize("kind", [LinearRanker, LambdaMART])
def test_a_ranker_trained_without_missing_values_refuses_them(log, kind):
    ranker = kind(**(SMALL if kind is LambdaMART else {})).fit(log)
    rows = log.features[:9].copy()
    rows[4, 2] = np.nan
    with pytest.raises(ShapeError, match=r"Got nan for feature 'f3' in row 4\. Fill"):
        ranker.predict(rows)
    rows[4, 2] = np.inf
    with pytest.raises(ShapeError, match=r"Got inf for feature 'f3' in row 4"):
        ranker.predict(rows)


def test_infinite_features_are_refused_in_training_too(log, holes):
    odd = holes.copy()
    odd[log.document[0], 1] = -np.inf
    with pytest.raises(ShapeError, match="Got -inf for feature 'f2'"):
        LambdaMART(**SMALL).fit(replace(log, features=odd, missing="keep"))


def test_held_out_data_is_filled_like_the_training_data(log, holes):
    """Early stopping sees what `predict` would see."""
    train, valid = log.split(0.7)
    filled = replace(train, missing=-1.0)
    gaps = np.where(np.arange(valid.n_documents)[:, None] % 3 == 0, np.nan, valid.features)
    options = {**SMALL, "early_stopping": 5, "bias": [1 / k for k in range(1, log.depth + 1)],
               "objective": "pbm-likelihood"}  # fmt: skip
    first = LambdaMART(**options).fit(filled, valid=replace(valid, features=gaps, missing="keep"))
    by_hand = replace(valid, features=np.nan_to_num(gaps, nan=-1.0))
    second = LambdaMART(**options).fit(filled, valid=by_hand)
    assert first.watched_ == second.watched_
    with pytest.raises(ShapeError, match="Got nan for feature 'f1'"):
        LambdaMART(**options).fit(train, valid=replace(valid, features=gaps))


def test_the_way_of_a_missing_feature_is_read_with_the_log():
    """From the reader to the ranker: `missing` of the log becomes `missing_`."""
    rng = np.random.default_rng(0)
    n = 400
    quality = rng.normal(size=n)
    table = pa.table(
        {
            "query_id": np.arange(n) // 4, "session_id": np.arange(n) // 4, "doc_id": np.arange(n),
            "position": np.arange(n) % 4 + 1, "click": (quality > 0.3).astype(int),
            "f": np.where(rng.random(n) < 0.2, np.nan, quality), "g": rng.normal(size=n),
        }
    )  # fmt: skip
    for missing in ("keep", 0.5):
        read = read_log(table, features=["f", "g"], missing=missing)
        assert read.missing == missing
        assert np.isnan(read.features).any() == (missing == "keep")
        ranker = LambdaMART(**SMALL, min_data_in_leaf=5).fit(read)
        assert ranker.missing_ == missing
        assert np.isfinite(ranker.predict([[np.nan, 0.0], [1.0, np.nan]])).all()


@pytest.mark.parametrize(("trained", "here"), [("keep", 0.0), (-1.0, 0.0)])
def test_data_that_was_filled_otherwise_than_in_training_is_refused(log, holes, trained, here):
    """A ranker that takes -1 for a gap must not be judged on a log where a gap is 0."""

    def read(missing: Any) -> Any:
        filled = holes if missing == "keep" else np.nan_to_num(holes, nan=missing)
        return replace(log, features=filled, missing=missing)

    ranker = LambdaMART(**SMALL).fit(read(trained))
    theta = [1 / k for k in range(1, log.depth + 1)]
    with pytest.raises(OptionError, match=r"was trained with missing features .*missing='keep'"):
        estimate(read(here), {"new": ranker}, theta)
    values = [estimate(read(m), {"new": ranker}, theta)["new"].value for m in (trained, "keep")]
    assert values[0] == values[1]


@pytest.fixture(scope="module")
def telling_gaps():
    """A log whose clicked documents are those without a value: LightGBM then splits at infinity."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 2)).astype(np.float32)
    labels = rng.integers(0, 2, 400).astype(float)
    features[labels == 1, 0] = np.nan
    return JudgedLists(features, labels, np.arange(0, 401, 10), np.arange(40), missing="keep")


def test_splits_between_missing_and_known_are_saved_and_exported(telling_gaps, tmp_path):
    ranker = LambdaMART(n_trees=3, n_threads=1, min_data_in_leaf=2).fit(telling_gaps)
    assert "threshold=inf " in ranker.booster_.model_to_string()
    scores = ranker.predict(telling_gaps)
    ranker.warm_up()  # splits at infinity are LightGBM's, also where our kernels are at hand
    assert np.array_equal(ranker.predict(telling_gaps), scores)
    ranker.save(tmp_path / "ranker.untilt")
    assert np.array_equal(load(tmp_path / "ranker.untilt").predict(telling_gaps), scores)
    for to in ("es-ltr", "solr", "vespa", "xgboost"):
        path = export_model(ranker, tmp_path / "model.json", to)
        assert check_export(ranker, path, telling_gaps, to).largest < 1e-6
