"""A ranker remembers its training queries, and whoever judges it by them is told."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from tests.rankers.test_persist_old import SAVED

import untilt as ut
from untilt.data.seen import seen_in
from untilt.errors import OptionError
from untilt.facts import codes

BIAS = ut.EyeTracking()


@pytest.fixture(scope="module")
def log():
    judged = ut.make_judged(n_queries=150, n_features=12, seed=0)
    return ut.simulate(judged, protocol="dla", n_sessions=4_000, seed=0, n_threads=1).log


@pytest.fixture(scope="module")
def parts(log):
    return log.split(0.7, seed=0)


@pytest.fixture(scope="module")
def ranker(parts):
    model = ut.LambdaMART(ut.PRS(BIAS), n_trees=40, min_data_in_leaf=3, n_threads=1)
    return model.fit(parts[0])


def own_codes(estimates, system="system"):
    memory = {"estimate.trained-queries", "estimate.ids-again", "estimate.validated-queries"}
    memory.add("estimate.training-unknown")
    return [code for code in codes(estimates[system].warnings) if code in memory]


def test_the_training_log_is_told_and_the_held_out_part_is_not(log, parts, ranker):
    _, test = parts
    assert own_codes(ut.estimate(test, ranker, BIAS)) == []
    whole = ut.estimate(log, {"shown": ut.shown, "new": ranker}, BIAS)
    assert own_codes(whole, "new") == ["estimate.trained-queries"]
    assert own_codes(whole, "shown") == []
    fact = whole["new"].warnings[0]
    n_trained, n_queries = len(np.unique(parts[0].query)), len(np.unique(log.query))
    assert (fact.fields["n_trained"], fact.fields["n_queries"]) == (n_trained, n_queries)
    assert fact.fields["share"] == pytest.approx(n_trained / n_queries)
    assert fact.severity == "serious"


def test_the_held_out_part_has_the_value_of_a_split_made_before(log, parts, ranker):
    in_sample = ut.estimate(log, {"shown": ut.shown, "new": ranker}, BIAS)
    taken = ut.estimate(log, {"shown": ut.shown, "new": ranker}, BIAS, held_out=True)
    expected = ut.estimate(parts[1], {"shown": ut.shown, "new": ranker}, BIAS)
    assert taken["new"].value == pytest.approx(expected["new"].value)
    assert taken["shown"].value == pytest.approx(expected["shown"].value)
    assert own_codes(taken, "new") == []
    # What the warning is for: in sample the gain looks far larger.
    gain = [each["new"].value - each["shown"].value for each in (in_sample, expected)]
    assert gain[0] > 2 * gain[1]


def test_arrays_of_scores_fit_the_held_out_part(log, parts, ranker):
    systems = {"new": ranker, "scores": ranker.predict(log)}
    taken = ut.estimate(log, systems, BIAS, held_out=True)
    assert taken["scores"].value == pytest.approx(taken["new"].value)


def test_nothing_is_held_out_of_the_training_log(parts, ranker):
    with pytest.raises(OptionError, match="nothing is held out"):
        ut.estimate(parts[0], ranker, BIAS, held_out=True)


def test_other_sessions_of_the_same_queries_are_known_queries(log):
    earlier, later = log.split(0.5, by="session")
    model = ut.LinearRanker(max_rounds=5).fit(earlier)
    assert own_codes(ut.estimate(later, model, BIAS)) == ["estimate.trained-queries"]


def test_other_data_with_the_same_numbers_is_another_matter(ranker):
    other = ut.make_judged(n_queries=150, n_features=12, seed=99)
    other = replace(other, query_id=other.query_id - other.query_id.min() + 1)
    again = ut.simulate(other, protocol="dla", n_sessions=500, seed=1, n_threads=1).log
    found = ut.estimate(again, ranker, BIAS)
    assert own_codes(found) == ["estimate.ids-again"]
    assert found["system"].warnings[0].severity == "note"


def test_further_features_other_orders_and_filled_gaps_do_not_hide_the_training(parts):
    """As where features that leak the click were kept out of the training."""
    train = parts[0]
    model = ut.LambdaMART(n_trees=5, n_threads=1)
    names = train.feature_names
    kept = replace(
        train, features=train.features[:, 2:], feature_names=[f"x{n}" for n in names[2:]]
    )
    further = replace(
        train, features=train.features[:, ::-1], feature_names=[f"x{n}" for n in names[::-1]]
    )
    fewer = model.fit(kept)
    assert own_codes(ut.estimate(further, fewer, BIAS)) == ["estimate.trained-queries"]
    holes = train.features.copy()
    holes[:, 0] = np.nan
    filled = replace(train, features=np.where(np.isnan(holes), 0, holes), missing=0.0)
    model = ut.LambdaMART(n_trees=5, n_threads=1).fit(filled)
    as_they_are = replace(train, features=holes, missing="keep")
    assert own_codes(ut.estimate(as_they_are, model, BIAS)) == ["estimate.trained-queries"]


def test_text_and_numbers_are_the_same_ids(parts, ranker):
    as_text = replace(parts[0], query_id=[str(each) for each in parts[0].query_id])
    assert own_codes(ut.estimate(as_text, ranker, BIAS)) == ["estimate.trained-queries"]


def test_judged_lists_are_told_too():
    judged = ut.make_judged(n_queries=60, n_features=6, seed=3)
    train, test = judged.split(0.5)
    model = ut.LinearRanker(max_rounds=5).fit(train)
    assert codes(ut.evaluate(test, model).warnings) == []
    found = ut.evaluate(judged, model)
    assert codes(found.warnings) == ["estimate.trained-queries"]
    assert "- trained on 30 of these 60 queries" in repr(found)
    taken = ut.evaluate(judged, model, held_out=True)
    assert taken["ndcg@10"].value == ut.evaluate(test, model)["ndcg@10"].value
    assert len(taken.query_id) == 30
    weights = np.arange(60.0)
    by_weight = ut.evaluate(judged, model, weights=weights, held_out=True)
    kept = np.isin(judged.query_id, test.query_id)
    assert by_weight["map"].value == ut.evaluate(test, model, weights=weights[kept])["map"].value
    with pytest.raises(OptionError, match="held_out=True needs a ranker"):
        ut.evaluate(judged, model.predict(judged), held_out=True)


def test_what_stopped_a_ranker_is_remembered(parts):
    train, test = parts
    inner, valid = train.split(0.7, seed=2)
    model = ut.LambdaMART(ut.PRS(BIAS), n_trees=20, early_stopping=3, n_threads=1)
    model.fit(inner, valid=valid)
    assert len(model.trained_on_) == len(seen_in(inner))
    assert own_codes(ut.estimate(valid, model, BIAS)) == ["estimate.validated-queries"]
    assert own_codes(ut.estimate(test, model, BIAS)) == []
    both = ut.estimate(train, model, BIAS)
    assert own_codes(both) == ["estimate.trained-queries", "estimate.validated-queries"]


def test_select_tells_of_shared_queries_and_marks_what_it_chose_by(log, parts):
    train, valid = parts
    candidates = {"a": ut.LinearRanker(max_rounds=3)}
    clean = ut.select(candidates, train=train, valid=valid, bias=BIAS)
    assert "estimate.trained-queries" not in codes(clean.estimates.warnings)
    assert own_codes(ut.estimate(valid, clean.ranker, BIAS)) == ["estimate.validated-queries"]
    shared = ut.select(candidates, train=train, valid=log, bias=BIAS)
    assert codes(shared.estimates.warnings)[0] == "estimate.trained-queries"
    taken = ut.select(candidates, train=train, valid=log, bias=BIAS, held_out=True)
    assert taken.estimates.best.value == pytest.approx(clean.estimates.best.value)


def test_a_model_without_a_memory_is_said_to_have_none(log, parts, tmp_path):
    path = tmp_path / "old.untilt"
    path.write_bytes(base64.b64decode(SAVED))
    old = ut.load(path)
    judged = ut.make_judged(n_queries=30, n_features=4, seed=0)
    assert codes(ut.evaluate(judged, old).warnings) == ["estimate.training-unknown"]
    with pytest.raises(OptionError, match="does not say which queries it was trained on"):
        ut.evaluate(judged, old, held_out=True)


def test_a_ranker_of_ones_own_that_defines_fit_works_without_a_memory(parts):
    from untilt.rankers.base import Ranker

    class First(Ranker):
        def fit(self, data):  # type: ignore[override]
            self.feature_names_ = data.feature_names
            return self

        def _scores(self, features):
            return features[:, 0].astype(float)

    train, test = parts
    assert own_codes(ut.estimate(test, First().fit(train), BIAS)) == ["estimate.training-unknown"]
    found = ut.select([First()], train=train, valid=test, bias=BIAS)
    assert np.array_equal(found.ranker.predict(test), test.features[:, 0])


def test_the_size_of_a_memory_in_a_file(log, tmp_path):
    """12 bytes a query, and what hashes cannot be packed into."""
    model = ut.LinearRanker(max_rounds=2).fit(log)
    path = tmp_path / "r.untilt"

    def size(n):
        ids = np.arange(n)
        many = seen_in(ut.JudgedLists(np.zeros((n, 1)), np.zeros(n), np.arange(n + 1), ids))
        model.trained_on_ = many
        model.save(path)
        return path.stat().st_size

    assert size(50_000) - size(10_000) < 1.02 * 12 * 40_000
    assert len(ut.load(path).trained_on_) == 10_000
