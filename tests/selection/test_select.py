"""Choosing by held-out clicks: what is chosen, what is kept, what is not done twice."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from tests.bias.moving_documents import three_rankers

from untilt._core.store import key_of
from untilt.bias.given import EyeTracking, KnownBias, PowerLaw
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.estimate import estimate
from untilt.rankers.linear.linear import LinearRanker
from untilt.rankers.networks.neural import NeuralRanker
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.rankers.validation import held_out_likelihood
from untilt.selection.select import doubling, parameter_grid, select
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting import IPS, PRS

BIAS = EyeTracking()
SMALL: dict[str, Any] = {"n_trees": 8, "n_leaves": 5, "min_data_in_leaf": 5, "n_threads": 1}
FITS = []


class OneFeature(BaseEstimator):
    """Scores by one feature; counts its fits."""

    def __init__(self, feature=0, sign=1.0, early_stopping=None):
        self.feature, self.sign, self.early_stopping = feature, sign, early_stopping

    def fit(self, log, valid=None):
        FITS.append((self.feature, self.sign))
        self.stopped_on_ = valid
        return self

    def predict(self, features):
        return self.sign * features[:, self.feature]


@pytest.fixture(scope="module")
def parts():
    judged = make_judged(120, 6, seed=2, mean_docs=8)
    return simulate(judged, "dla", sessions_per_query=30, seed=0, n_threads=1).log.split(0.6)


@pytest.fixture(autouse=True)
def _no_fits():
    FITS.clear()


def test_the_best_estimate_wins_in_the_direction_of_the_metric(parts):
    train, valid = parts
    candidates = parameter_grid(OneFeature(), feature=[0, 1, 2, 3, 4, 5], sign=[1.0, -1.0])
    for metric, better in (("dcg@5", max), ("arp", min)):
        found = select(candidates, train=train, valid=valid, bias=BIAS, metric=metric)
        values = {
            name: estimate(valid, c.fit(train), BIAS, metric=metric).best.value
            for name, c in candidates.items()
        }
        assert found.best == better(values, key=values.get)
        assert found.estimates[found.best].value == pytest.approx(values[found.best])
        assert found.ranker.feature == candidates[found.best].feature  # type: ignore[attr-defined]
        assert found.best in repr(found)
    # Opposite orders of a telling feature are told apart, equal orders are not.
    assert len(found.within_noise) < len(candidates) - 1


def test_candidates_are_cloned_and_lists_are_named_by_what_they_are(parts):
    mine = OneFeature(1)
    found = select([mine, OneFeature(2), OneFeature(2)], train=parts[0], valid=parts[1], bias=BIAS)
    assert not hasattr(mine, "stopped_on_")
    assert list(found.fitted) == [
        "OneFeature(feature=1)", "OneFeature(feature=2)", "OneFeature(feature=2) (2)",
    ]  # fmt: skip
    assert "OneFeature(feature=2)" in found.within_noise or found.best == "OneFeature(feature=2)"


def test_a_second_call_trains_only_what_is_missing(parts, tmp_path):
    train, valid = parts
    run = {"train": train, "valid": valid, "bias": BIAS, "folder": tmp_path / "runs"}
    first = select(parameter_grid(OneFeature(), feature=[0, 1]), **run)
    assert len(FITS) == 2
    again = select(parameter_grid(OneFeature(), feature=[0, 1, 2]), **run)
    assert FITS[2:] == [(2, 1.0)]
    assert [each.resumed for each in again.fitted.values()] == [True, True, False]
    for name in first.fitted:
        assert again.estimates[name].value == first.estimates[name].value
    # Another name is the same work; other data is not.
    select({"renamed": OneFeature(1)}, **run)
    assert len(FITS) == 3
    select({"renamed": OneFeature(1)}, **{**run, "train": train.take(np.arange(10))})
    assert len(FITS) == 4


@pytest.mark.parametrize("damage", ["json", "npy", "cut"])
def test_damaged_results_are_made_again(parts, tmp_path, damage):
    run = {"train": parts[0], "valid": parts[1], "bias": BIAS, "folder": tmp_path}
    select({"a": OneFeature(1)}, **run)
    (path,) = tmp_path.glob("*.npy" if damage != "json" else "*.json")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        path.write_text("{")
    found = select({"a": OneFeature(1)}, **run)
    assert len(FITS) == 2
    assert not found.fitted["a"].resumed
    facts = json.loads(next(tmp_path.glob("*.json")).read_text())["result"]
    assert facts["name"] == "a"
    assert facts["parameters"]["feature"] == "1"


def test_real_rankers_are_saved_and_loaded(parts, tmp_path):
    train, valid = parts
    candidates = {
        "prs": LambdaMART(PRS(BIAS), **SMALL),
        "linear": LinearRanker(IPS(BIAS)),
        "stopped": LambdaMART(IPS(BIAS), **SMALL, early_stopping=3),
    }
    run = {"train": train, "valid": valid, "bias": BIAS, "folder": tmp_path}
    found = select(candidates, **run)
    again = select(candidates, **run)
    assert all(each.resumed for each in again.fitted.values())
    scores = again.ranker.predict(valid.features)
    assert np.array_equal(scores, found.fitted[found.best].scores)


def test_early_stopping_sees_the_held_out_log(parts):
    train, valid = parts
    found = select(
        {"plain": OneFeature(0), "stops": OneFeature(1, early_stopping=5)},
        train=train, valid=valid, bias=BIAS,
    )  # fmt: skip
    assert found.fitted["plain"].ranker.stopped_on_ is None
    assert found.fitted["stops"].ranker.stopped_on_ is valid


@pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")  # of older JAX
def test_processes_give_the_same_as_one(parts):
    train, valid = parts
    candidates = {"a": LinearRanker(IPS(BIAS)), "b": LinearRanker(PRS(BIAS))}
    one = select(candidates, train=train, valid=valid, bias=BIAS)
    two = select(candidates, train=train, valid=valid, bias=BIAS, n_jobs=2)
    assert list(two.fitted) == ["a", "b"]
    for name in candidates:
        assert np.array_equal(one.fitted[name].scores, two.fitted[name].scores)


class Several(OneFeature):
    """Fitted several at once; feature 5 cannot be fitted."""

    calls: list[int] = []

    @classmethod
    def fit_together(cls, rankers, data):
        cls.calls.append(len(rankers))
        errors = [OptionError("not feature 5") if each.feature == 5 else None for each in rankers]
        for each, error in zip(rankers, errors, strict=True):
            if error is None:
                each.fit(data)
        return errors


class Sub(Several):
    """Inherits `fit_together`, and is fitted by itself."""


def test_candidates_fitted_together_keep_their_order_and_their_files(parts, tmp_path):
    train, valid = parts
    given = {"train": train, "valid": valid, "bias": BIAS, "folder": tmp_path}
    Several.calls.clear()
    mixed = [Several(0), OneFeature(1), Several(2), Sub(3), Several(4)]
    found = select(mixed, **given)
    assert Several.calls == [3]
    assert list(found.fitted) == [repr(each) for each in mixed]
    for each, fitted in zip(mixed, found.fitted.values(), strict=True):
        assert np.array_equal(fitted.scores, valid.features[:, each.feature])
        assert not fitted.resumed
    assert all(each.resumed for each in select(mixed, **given).fitted.values())
    # One that fails is told, and the others are kept.
    with pytest.raises(OptionError, match="not feature 5"):
        select([Several(5), Several(1), Several(3)], **given)
    FITS.clear()
    found = select([Several(1), Several(3), Several(0, -1.0)], **given)
    assert [each.resumed for each in found.fitted.values()] == [True, True, False]
    assert Several.calls == [3, 3]  # a single one is fitted as any other
    assert FITS == [(0, -1.0)]


def test_networks_of_a_search_are_those_of_fitting_each(parts):
    train, valid = parts
    options: dict[str, Any] = {"widths": (4,), "epochs": 3, "batch_size": 16, "early_stopping": 2}
    networks = parameter_grid(NeuralRanker(PRS(BIAS), **options), seed=[0, 1], l2=[0.0, 0.1])
    mixed = {"one": OneFeature(0), **networks, "two": OneFeature(1)}
    found = select(mixed, train=train, valid=valid, bias=BIAS)
    assert list(found.fitted) == list(mixed)
    for name, each in networks.items():
        alone = each.fit(train).predict(valid.features)
        assert np.allclose(found.fitted[name].scores, alone, rtol=1e-4, atol=1e-5)


def test_keys_tell_any_two_values_apart():
    theta = np.array([1.0, 0.5, 0.25])
    things = [
        1, 1.0, "1", True, None, [1], (1,), {"a": 1}, {"b": 1}, theta, theta.astype(np.float32),
        KnownBias(theta), KnownBias(np.nextafter(theta, 2)), PRS(theta), IPS(theta),
        PRS(theta, clip=2.0), OneFeature(1), OneFeature(2), LambdaMART(PRS(theta)), OneFeature,
    ]  # fmt: skip
    keys = [key_of(thing) for thing in things]
    assert len(set(keys)) == len(keys)
    assert key_of(PRS(theta.copy())) == key_of(PRS(theta))
    for vague in (object(), lambda x: x):
        with pytest.raises(OptionError, match="cannot be kept in a folder"):
            key_of(vague)


def test_doubling_and_grid():
    found = doubling(OneFeature(), "sign", start=0.5, times=3)
    assert [c.sign for c in found.values()] == [0.5, 1.0, 2.0, 4.0]  # type: ignore[attr-defined]
    assert list(found) == ["sign=0.5", "sign=1", "sign=2", "sign=4"]
    with pytest.raises(OptionError, match="no parameter 'sing'"):
        parameter_grid(OneFeature(), sing=[1])
    with pytest.raises(OptionError, match="list of values"):
        parameter_grid(OneFeature(), sign="high")
    with pytest.raises(OptionError, match="start above 0"):
        doubling(OneFeature(), "sign", start=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidates": {}}, "no candidate"),
        ({"candidates": {"a": 3}}, r"fit\(log\)"),
        ({"valid": None}, "ClickLog with features"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"metric": "ndcg@10"}, "Did you mean 'dcg@10'"),
        ({"bias": None}, "needs the position bias"),
    ],
)
def test_wrong_options_are_told_before_anything_is_fitted(parts, change, message):
    given = {"candidates": {"a": OneFeature()}, "train": parts[0], "valid": parts[1], "bias": BIAS}
    with pytest.raises(OptionError, match=message):
        select(**{**given, **change})
    assert FITS == []


def test_scores_of_a_wrong_length_name_the_candidate(parts):
    class Half(OneFeature):
        def predict(self, features):
            return features[::2, 0]

    with pytest.raises(ShapeError, match="candidate 'half'"):
        select({"half": Half()}, train=parts[0], valid=parts[1], bias=BIAS)


# ---- between curves

POWERS = {"0.5": PowerLaw(0.5), "1": PowerLaw(1.0), "2": PowerLaw(2.0)}


@pytest.fixture(scope="module")
def moving():
    """Documents move between three rankers; people look at 1/k of them; feature 0 is relevance."""
    log = three_rankers(n_queries=120, seed=1)
    noise = np.random.default_rng(0).normal(size=log.features.shape)
    return replace(log, features=np.hstack([log.features, noise]), feature_names=()).split(0.5)


def test_likelihood_finds_the_curve_where_values_prefer_the_steeper_one(moving):
    train, valid = moving
    run = {"train": train, "valid": valid}
    candidates = {"good": OneFeature(0), "noise": OneFeature(1)}
    values = [select(candidates, bias=bias, **run).estimates.best.value for bias in POWERS.values()]
    assert values[0] < values[1] < values[2]  # the rule that was: the steepest is "best"
    found = select(candidates, bias=POWERS, **run)
    assert found.curve == "1"
    assert found.best == "good"
    assert found.estimates.best.value == values[1]
    facts = {fact.code: fact for fact in found.estimates.warnings}
    assert facts["selection.curve-chosen"].fields == {"curve": "1", "worse": ("0.5", "2")}
    assert "selection.curve-fits-worse" not in facts


@pytest.mark.parametrize(
    "candidate",
    [
        LambdaMART(PRS(POWERS["1"]), **SMALL),
        LambdaMART(objective="pbm-likelihood", bias=POWERS["1"], **SMALL),
    ],
)
def test_a_candidate_with_a_better_curve_than_the_judge_is_told(moving, candidate):
    train, valid = moving
    candidates = {"steep": LambdaMART(PRS(POWERS["2"]), **SMALL), "right": candidate}
    found = select(candidates, train=train, valid=valid, bias=POWERS["2"])
    (fact,) = [f for f in found.estimates.warnings if f.code == "selection.curve-fits-worse"]
    assert fact.fields["candidate"] == "right"
    assert fact.fields["gap"] > 2 * fact.fields["std_error"]
    assert fact.fields["power"] == pytest.approx(0.5, abs=0.1)
    assert str(fact) in " ".join(repr(found).split())
    right = select(candidates, train=train, valid=valid, bias=POWERS["1"])
    assert not [f for f in right.estimates.warnings if f.code.startswith("selection.")]
    assert [each.name for each in right.curves if each.is_worse] == ["steep"]


def test_one_curve_is_not_compared(moving):
    train, valid = moving
    found = select({"a": OneFeature(0)}, train=train, valid=valid, bias=POWERS["1"])
    assert (found.curve, found.curves, found.likelihood) == (None, None, None)
    with pytest.raises(OptionError, match="no curve to judge by"):
        select({"a": OneFeature(0)}, train=train, valid=valid, bias={})


def test_where_nothing_moved_the_first_curve_judges_and_it_is_said():
    log = three_rankers(n_queries=40, moves=False)
    train, valid = log.split(0.5)
    found = select({"a": OneFeature(0)}, train=train, valid=valid, bias=POWERS)
    assert found.curve == "0.5"
    assert "selection.curves-untold" in [fact.code for fact in found.estimates.warnings]


def test_likelihood_judges_scores(moving):
    train, valid = moving
    candidates = parameter_grid(OneFeature(), feature=[0, 1], sign=[1.0, -1.0])
    found = select(candidates, train=train, valid=valid, bias=POWERS["1"], judge="likelihood")
    assert found.best == "feature=0, sign=1"
    judge = held_out_likelihood(valid, POWERS["1"])
    gain = judge.value(valid.features[:, 0])
    assert found.likelihood.value(found.best).value == pytest.approx(gain, rel=1e-6)
    # A score against the clicks says nothing: 0, never below.
    assert found.likelihood.value("feature=0, sign=-1").value == 0
    assert found.within_noise == ()
    assert found.table().rows[0][0] == found.best
    assert "Candidates by likelihood" in repr(found)
    same = {"one": OneFeature(0), "other": OneFeature(0)}
    tied = select(same, train=train, valid=valid, bias=POWERS["1"], judge="likelihood")
    assert tied.within_noise == ("other",)
    with pytest.raises(OptionError, match="judge must be one of"):
        select(candidates, train=train, valid=valid, bias=POWERS["1"], judge="votes")  # type: ignore[arg-type]


def test_a_network_is_not_stopped_by_the_clicks_that_judge_it(moving):
    train, valid = moving
    network = NeuralRanker(PRS(POWERS["1"]), widths=(2,), epochs=1)
    found = select({"n": network}, train=train, valid=valid, bias=POWERS["1"])
    assert found.ranker.summary_["held_out"].code == "network.held-out"
    assert found.ranker.summary_["held_out"].fields["n_queries"] == 12
