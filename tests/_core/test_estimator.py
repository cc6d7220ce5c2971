"""The contract without scikit-learn: what it says of parameters and copies is what that says."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV

import untilt as ut
from untilt import catalog
from untilt._core.estimator import PlainEstimator, plain_clone

ESTIMATORS = [
    record
    for record in catalog.methods()
    if record.kind in ("ranker", "bias", "click model") and hasattr(record.load(), "fit")
]


class Inner(PlainEstimator):
    def __init__(self, rate=0.1, depth=3):
        self.rate, self.depth = rate, depth


class Outer(PlainEstimator):
    def __init__(self, inner=None, *, curve=None):
        self.inner, self.curve = inner, curve


@pytest.mark.parametrize("record", ESTIMATORS, ids=lambda each: each.name)
def test_parameters_are_those_that_scikit_learn_finds(record):
    """The same with and without scikit-learn; records such as `trees` are no parameters."""
    kind = record.load()
    names = PlainEstimator.__dict__["_get_param_names"].__func__(kind)
    assert names == BaseEstimator.__dict__["_get_param_names"].__func__(kind)
    records = getattr(kind, "_records", ())
    assert kind._get_param_names() == [name for name in names if name not in records]


def test_those_are_of_all_kinds():
    assert {record.kind for record in ESTIMATORS} == {"ranker", "bias", "click model"}


def test_copies_are_those_of_scikit_learn():
    bias = ut.PowerLaw(eta=1.0)
    ranker = ut.LambdaMART(weighting=ut.PRS(bias, clip=2.0), n_trees=7)
    for copied in (clone(ranker), plain_clone(ranker)):
        assert copied.n_trees == 7
        assert copied.weighting is not ranker.weighting
        assert np.array_equal(copied.weighting.table(4), ranker.weighting.table(4))


def test_parameters_given_in_a_record_are_copied_and_searched_by_their_own_names():
    ranker = ut.LambdaMART(trees=ut.Trees(n_trees=7, n_leaves=4))
    assert "trees" not in ranker.get_params()
    for copied in (clone(ranker), plain_clone(ranker), clone(ranker).set_params(sigma=1.0)):
        assert (copied.n_trees, copied.n_leaves) == (7, 4)
    assert clone(ranker).set_params(trees=ut.Trees(n_trees=9)).n_trees == 9
    judged = ut.make_judged(n_queries=12, n_features=4, seed=0)
    search = GridSearchCV(ranker, {"n_leaves": [2, 3]}, cv=ut.QueryKFold(2))
    with config_context(enable_metadata_routing=True):
        search.fit(judged.features, judged.labels, groups=judged.groups)
    assert search.best_estimator_.n_trees == 7
    assert search.best_estimator_.n_leaves == search.best_params_["n_leaves"]


def test_a_copy_has_parameters_of_its_own_and_nothing_learned():
    outer = Outer(Inner(rate=0.5), curve=np.array([1.0, 0.5]))
    vars(outer)["learned_"] = 1
    copied = plain_clone(outer)
    assert isinstance(copied.inner, Inner)
    assert copied.inner is not outer.inner
    assert copied.curve is not outer.curve
    assert np.array_equal(copied.curve, outer.curve)
    assert not hasattr(copied, "learned_")
    assert [each.rate for each in plain_clone([Inner(1.0), Inner(2.0)])] == [1.0, 2.0]


def test_parameters_of_parameters():
    outer = Outer(Inner())
    assert set(outer.get_params()) == {"inner", "inner__rate", "inner__depth", "curve"}
    assert set(outer.get_params(deep=False)) == {"inner", "curve"}
    outer.set_params(inner__rate=0.7, curve=(1.0,))
    assert (outer.inner.rate, outer.curve) == (0.7, (1.0,))
    with pytest.raises(ValueError, match=r"no parameter 'shape'\. It has: curve, inner"):
        outer.set_params(shape=1)


def test_what_is_printed_is_what_was_changed():
    assert repr(Outer(Inner(rate=0.5))) == "Outer(inner=Inner(rate=0.5))"
    assert repr(Inner()) == "Inner()"
