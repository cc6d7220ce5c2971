"""What can be asked of every estimator, fitted or not: `hasattr`, `dir`, and options in records."""

import numpy as np
import pytest
from tests.contract.test_bias_estimators import LOG
from tests.contract.test_rankers import SMALL

from untilt import catalog
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, UntiltError
from untilt.rankers import LambdaMART, Lambdas, NetworkShape, NetworkSteps, NeuralRanker, Trees

ESTIMATORS = [
    record for record in catalog.methods() if record.kind in ("ranker", "bias", "click model")
]
QUICK = [each for each in ESTIMATORS if not {"jax", "context", "labels"} & {*each.needs}]


def check_attributes(model):
    for name in ("bias_", *dir(model)):
        assert hasattr(model, name) in (True, False)


@pytest.mark.parametrize("record", ESTIMATORS, ids=lambda each: f"{each.kind} {each.name}")
def test_attributes_of_an_unfitted_estimator_can_be_asked_for(record):
    check_attributes(record.make())


@pytest.mark.parametrize("record", QUICK, ids=lambda each: f"{each.kind} {each.name}")
def test_attributes_of_a_fitted_estimator_can_be_asked_for(record):
    check_attributes(record.make(**SMALL.get(record.name, {})).fit(LOG))


def test_a_click_model_without_a_curve_has_no_bias():
    """Nobody was shown the same document at two positions: no curve can be told from relevance."""
    log = ClickLog(
        query_id=np.arange(2), doc_id=np.arange(4), doc_query=np.array([0, 0, 1, 1]),
        indptr=np.array([0, 2, 4]), query=np.arange(2), document=np.arange(4),
        position=np.array([1, 2, 1, 2]), label=np.array([1.0, 0.0, 0.0, 1.0]),
        count=np.array([10, 10]),
    )  # fmt: skip
    for name in ("pbm", "ubm"):
        model = catalog.find("click model", name).make().fit(log)
        assert not hasattr(model, "bias_")
        with pytest.raises(UntiltError):
            _ = model.bias_
        check_attributes(model)


def test_options_may_come_in_records():
    ranker = LambdaMART(trees=Trees(n_trees=7, n_leaves=5), lambdas=Lambdas(metric="dcg"), seed=3)
    assert (ranker.n_trees, ranker.n_leaves, ranker.metric, ranker.seed) == (7, 5, "dcg", 3)
    assert ranker.learning_rate == LambdaMART().learning_rate
    assert (
        ranker.get_params() == LambdaMART(n_trees=7, n_leaves=5, metric="dcg", seed=3).get_params()
    )
    assert ranker.set_params(trees=Trees(n_trees=9), seed=4).n_trees == 9
    network = NeuralRanker(shape=NetworkShape(widths=(8,)), steps=NetworkSteps(epochs=2))
    assert (network.widths, network.epochs, network.batch_size) == ((8,), 2, 256)


def test_an_option_is_given_once():
    with pytest.raises(OptionError, match="n_trees is given twice"):
        LambdaMART(n_trees=300, trees=Trees(n_trees=300))
    with pytest.raises(OptionError, match="n_trees is given twice"):
        LambdaMART().set_params(n_trees=300, trees=Trees(n_trees=300))
    with pytest.raises(OptionError, match="trees must be a record"):
        LambdaMART(trees=300)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_leafs"):
        LambdaMART(trees={"n_leafs": 3})  # type: ignore[arg-type]
