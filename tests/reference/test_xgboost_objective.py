"""The same objective as XGBoost's custom objective."""

from dataclasses import replace

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog
from untilt.metrics import parse_metric
from untilt.rankers.trees.own_pipeline import objective, xgboost_matrix
from untilt.simulation.synthetic import make_judged
from untilt.weighting import PRS, PairwiseDebiasing

xgboost = pytest.importorskip("xgboost")

PARAMS = {
    "eta": 0.3,
    "max_depth": 3,
    "min_child_weight": 1e-3,
    "lambda": 0.0,
    "nthread": 1,
    "disable_default_eval_metric": True,
    "seed": 0,
}
THETA = 1 / np.arange(1.0, 7)


@pytest.fixture(scope="module")
def judged():
    return make_judged(40, 6, seed=3, mean_docs=8)


@pytest.fixture(scope="module")
def log(judged):
    """Thirty sessions per query, six documents shown in one of two random orders."""
    rng = np.random.default_rng(0)
    relevance = (2.0**judged.labels - 1) / 15
    lists = []
    for q in range(judged.n_queries):
        own = np.arange(judged.indptr[q], judged.indptr[q + 1])
        orders = [rng.permutation(own)[:6] for _ in range(2)]
        lists += [(q, orders[rng.integers(2)]) for _ in range(30)]
    length = [len(documents) for _, documents in lists]
    document = np.concatenate([documents for _, documents in lists])
    position = np.concatenate([np.arange(1, n + 1) for n in length])
    clicks = rng.random(len(document)) < THETA[position - 1] * (0.1 + 0.9 * relevance[document])
    return ClickLog(
        query_id=judged.query_id, doc_id=np.arange(len(judged)), features=judged.features,
        doc_query=np.repeat(np.arange(judged.n_queries), np.diff(judged.indptr)),
        indptr=np.cumsum([0, *length]), query=[q for q, _ in lists], document=document,
        position=position, label=clicks.astype(float), feature_names=judged.feature_names,
    )  # fmt: skip


def test_first_round_grows_leaves_of_our_gradient(log):
    """One tree of depth 1: each leaf is -eta * (sum of gradients) / (sum of hessians)."""
    lambdas, matrix = objective(log, PRS(THETA)), xgboost_matrix(log)
    params = {**PARAMS, "max_depth": 1, "base_score": 0.0}
    tree = xgboost.train(params, matrix, 1, obj=lambdas)
    gradient, hessian = lambdas(np.zeros(matrix.num_row()), None)
    scores = tree.predict(matrix, output_margin=True)
    leaves = np.unique(scores)
    assert len(leaves) == 2
    for leaf in leaves:
        rows = scores == leaf
        assert leaf == pytest.approx(-0.3 * gradient[rows].sum() / hessian[rows].sum(), rel=1e-4)


def test_gradient_does_not_depend_on_the_constant_that_xgboost_starts_from(log):
    lambdas, n = objective(log, PRS(THETA)), len(np.unique(log.document))
    at_zero, at_half = lambdas(np.zeros(n), None), lambdas(np.full(n, 0.5), None)
    assert at_half[0] == pytest.approx(at_zero[0], abs=1e-12)
    assert at_half[1] == pytest.approx(at_zero[1], abs=1e-12)


def test_rows_and_names_are_those_of_the_log(log):
    matrix, shown = xgboost_matrix(log), np.unique(log.document)
    assert matrix.num_row() == len(shown)
    assert matrix.feature_names == list(log.feature_names)
    assert np.array_equal(matrix.get_data().toarray(), log.features[shown])


@pytest.mark.parametrize("first", ["age < 30", "tf[title]", "f2"])
def test_names_that_xgboost_refuses_are_left_out(log, first):
    renamed = replace(log, feature_names=(first, *log.feature_names[1:]))
    matrix = xgboost_matrix(renamed)
    assert matrix.feature_names is None
    assert matrix.num_col() == 6


def test_training_lowers_the_loss_and_ranks_well(log, judged):
    lambdas, matrix = (
        objective(log, PRS(THETA), metric="none", pair_norm=False),
        xgboost_matrix(log),
    )
    losses = [lambdas.loss(np.zeros(matrix.num_row()))]

    def watch(scores, _):
        losses.append(lambdas.loss(scores))
        return "loss", losses[-1]

    model = xgboost.train(
        PARAMS, matrix, 15, obj=lambdas, custom_metric=watch, evals=[(matrix, "train")],
        verbose_eval=False,
    )  # fmt: skip
    assert np.all(np.diff(losses) < 0)
    every = xgboost.DMatrix(judged.features, feature_names=list(log.feature_names))
    ndcg = parse_metric("ndcg@5")
    reached = ndcg.per_list(model.predict(every), judged.labels, judged.indptr).mean()
    tied = ndcg.per_list(np.zeros(len(judged)), judged.labels, judged.indptr).mean()
    assert reached > tied + 0.2


def test_joint_weighting_is_learned_inside_xgboost_too(log):
    lambdas, matrix = objective(log, PairwiseDebiasing()), xgboost_matrix(log)
    xgboost.train(PARAMS, matrix, 6, obj=lambdas)
    assert len(lambdas.history) == 5
    curve = lambdas.bias().examination
    assert curve[0] == 1
    # Position 1 is clicked most, so its pairs lose most.
    assert np.all(curve[1:] < 0.9)
