"""The objective in a user's own LightGBM pipeline is the one that LambdaMART trains on."""

import re
from typing import Any

import lightgbm
import numpy as np
import pytest

from untilt import (
    PRS,
    Balanced,
    LambdaMART,
    PairwiseDebiasing,
    lightgbm_dataset,
    make_judged,
    objective,
)
from untilt.errors import OptionError

THETA = [1, 0.5, 0.3, 0.25, 0.2]
TREES = 12
SMALL: dict[str, Any] = {"n_trees": TREES, "n_leaves": 5, "min_data_in_leaf": 3, "n_threads": 1}
# What a user would write; LambdaMART's defaults spelled with LightGBM's names.
PARAMS = {
    "learning_rate": 0.05,
    "num_leaves": 5,
    "min_data_in_leaf": 3,
    "min_sum_hessian_in_leaf": 1e-3,
    "feature_fraction": 0.9,
    "bagging_fraction": 0.9,
    "bagging_freq": 1,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}


@pytest.mark.parametrize(
    ("weighting", "options"),
    [
        (None, {}),
        (PRS(THETA), {}),
        (PRS(THETA), {"metric": "arp", "sigma": 1.0, "pair_norm": False, "truncation": 3}),
        (Balanced(THETA), {"metric": "dcg", "query_weight": "sqrt"}),
        (PairwiseDebiasing(p=1), {"gain": "plain"}),
        (PRS(THETA), {"metric": "map"}),
    ],
    ids=["raw", "PRS", "PRS-arp", "Balanced-sqrt", "joint-plain", "PRS-map"],
)
def test_plain_lightgbm_gives_the_same_model(made, weighting, options):
    lambdas = objective(made.log, weighting, **options)
    plain = lightgbm.train(
        {**PARAMS, "objective": lambdas}, lightgbm_dataset(made.log), num_boost_round=TREES
    )
    ranker = LambdaMART(weighting, **options, **SMALL).fit(made.log)
    expected = ranker.predict(made.log.features)
    assert np.ptp(expected) > 0.05
    assert np.array_equal(plain.predict(made.log.features), expected)
    joint = isinstance(weighting, PairwiseDebiasing)
    assert len(lambdas.history) == len(ranker.bias_history_) == (TREES - 1 if joint else 0)
    for mine, theirs in zip(lambdas.history, ranker.bias_history_, strict=True):
        assert np.array_equal(mine.plus, theirs.plus)
        assert np.array_equal(mine.minus, theirs.minus)


def test_judged_lists_work_the_same_way():
    judged = make_judged(40, 6, mean_docs=8)
    plain = lightgbm.train(
        {**PARAMS, "objective": objective(judged)}, lightgbm_dataset(judged), num_boost_round=TREES
    )
    ranker = LambdaMART(**SMALL).fit(judged)
    assert plain.predict(judged.features) == pytest.approx(
        ranker.predict(judged.features), abs=1e-12
    )


def test_rows_are_the_shown_documents_once_in_the_order_of_the_documents(made):
    data = lightgbm_dataset(made.log, {"max_bin": 63}).construct()
    shown = np.unique(made.log.document)
    assert data.num_data() == len(shown) < made.log.n_documents
    gradient, hessian = objective(made.log)(np.zeros(len(shown)), None)
    assert gradient.shape == hessian.shape == shown.shape
    # A document above others it was clicked with gets a negative gradient: its score must rise.
    clicks = np.bincount(made.log.document, weights=made.log.label, minlength=len(made.relevance))
    never = clicks[shown] == 0
    assert np.all(gradient[never] >= 0)
    assert gradient.sum() == pytest.approx(0, abs=1e-12)


def test_dataset_takes_the_users_own_parameters(made):
    """Two bins leave one place to cut each feature at."""
    data = lightgbm_dataset(made.log, {"max_bin": 2})
    params = {**PARAMS, "objective": objective(made.log)}
    text = lightgbm.train(params, data, num_boost_round=TREES).model_to_string()
    cuts = {
        (feature, threshold)
        for features, thresholds in zip(
            re.findall(r"^split_feature=(.*)$", text, re.M),
            re.findall(r"^threshold=(.*)$", text, re.M),
            strict=True,
        )
        for feature, threshold in zip(features.split(), thresholds.split(), strict=True)
    }
    assert 2 <= len(cuts) == len({feature for feature, _ in cuts})


def test_loss_falls_while_training(made):
    lambdas = objective(made.log, PRS(THETA), metric="none", pair_norm=False)
    losses = []

    def watch(env):
        shown = np.unique(made.log.document)
        scores = env.model.predict(made.log.features[shown], num_threads=1)
        losses.append(lambdas.loss(scores))

    start = lambdas.loss(np.zeros(len(np.unique(made.log.document))))
    lightgbm.train(
        {**PARAMS, "objective": lambdas, "bagging_fraction": 1.0}, lightgbm_dataset(made.log), 10,
        callbacks=[watch],
    )  # fmt: skip
    assert np.all(np.diff([start, *losses]) < 0)


def test_joint_weighting_tells_through_the_objective(made):
    lambdas = objective(made.log, PairwiseDebiasing())
    assert lambdas.bias() is None
    first = lightgbm.train({**PARAMS, "objective": lambdas}, lightgbm_dataset(made.log), 5)
    assert len(lambdas.history) == 4  # the first tree is grown with ratios of 1
    assert lambdas.bias().examination == pytest.approx(lambdas.history[-1].plus)
    again = lightgbm.train({**PARAMS, "objective": lambdas}, lightgbm_dataset(made.log), 5)
    assert len(lambdas.history) == 4  # a second training starts anew
    assert np.array_equal(first.predict(made.log.features), again.predict(made.log.features))


def test_wrong_data_is_named(made):
    with pytest.raises(OptionError, match=r"needs a ClickLog or JudgedLists\. Got dict instead"):
        objective({"clicks": 1})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"needs a ClickLog or JudgedLists\. Got list instead"):
        lightgbm_dataset([])  # type: ignore[arg-type]
