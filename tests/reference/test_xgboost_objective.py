"""The same objective as XGBoost's custom objective."""

from dataclasses import replace

import lightgbm
import numpy as np
import pytest

import untilt as ut
from untilt.data.clicklog import ClickLog
from untilt.errors import NotFittedError, OptionError, ShapeError
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


# ---- rows of impressions, a group per session


def impressions(rng, n_sessions=40, depth=5):
    """Features, clicks and group sizes of sessions in the order shown."""
    features = rng.normal(size=(n_sessions * depth, 3)).astype(np.float32)
    clicks = (rng.random(n_sessions * depth) < 0.3).astype(float)
    return features, clicks, np.full(n_sessions, depth)


def matrix(features, clicks, sizes):
    data = xgboost.DMatrix(features, clicks, nthread=1)
    data.set_group(sizes)
    return data


def slow_gradient(scores, clicks, sizes, table):
    """Pairs of each session by hand: dNDCG weights, logistic loss with sigma 2, no pair norm."""
    gradient = np.zeros(len(scores))
    first = 0
    for size in sizes:
        rows = np.arange(first, first + size)
        rank = np.empty(size, dtype=int)
        rank[np.argsort(-scores[rows], kind="stable")] = np.arange(size)
        discount = 1 / np.log2(rank + 2)
        ideal = (1 / np.log2(np.arange(int(clicks[rows].sum())) + 2)).sum()
        for k in range(size):
            for l in range(size):
                if clicks[rows[k]] > clicks[rows[l]]:
                    gap = 2.0 * (scores[rows[k]] - scores[rows[l]])
                    weight = table[k, l] * abs(discount[k] - discount[l]) / ideal
                    step = weight * 2.0 / (1 + np.exp(gap))
                    gradient[rows[k]] -= step
                    gradient[rows[l]] += step
        first += size
    return gradient


def test_rows_of_sessions_give_the_pairs_of_each_session(rng):
    features, clicks, sizes = impressions(rng)
    weighting = ut.PRS(np.array([1.0, 0.7, 0.5, 0.4, 0.3]))
    objective = ut.xgboost_objective(weighting, pair_norm=False, gain="linear")
    scores = rng.normal(size=len(clicks))
    gradient, hessian = objective(scores, matrix(features, clicks, sizes))
    expected = slow_gradient(scores, clicks, sizes, weighting.table(5))
    # Sessions weigh 1 on average: the scale is one number for all.
    scale = (gradient @ expected) / (expected @ expected)
    assert scale > 0
    assert gradient == pytest.approx(scale * expected, abs=1e-6)
    assert np.all(hessian >= 0)


def test_positions_take_the_place_of_the_order_of_rows(rng):
    features, clicks, sizes = impressions(rng)
    scores = rng.normal(size=len(clicks))
    within = np.concatenate([rng.permutation(5) for _ in sizes])
    order = np.repeat(np.arange(len(sizes)) * 5, 5) + within
    weighting = ut.PRS(np.array([1.0, 0.7, 0.5, 0.4, 0.3]))
    plain, _ = ut.xgboost_objective(weighting)(scores, matrix(features, clicks, sizes))
    moved = ut.xgboost_objective(weighting, positions=within + 1)
    gradient, _ = moved(scores[order], matrix(features[order], clicks[order], sizes))
    assert gradient == pytest.approx(plain[order])
    other, _ = ut.xgboost_objective(weighting)(
        scores[order], matrix(features[order], clicks[order], sizes)
    )
    assert other != pytest.approx(plain[order])


def test_lightgbm_takes_the_same_rows_but_not_its_own_numbers_of_positions(rng):
    """It numbers positions by first appearance: what comes back is not what was given."""
    features, clicks, sizes = impressions(rng)
    scores = rng.normal(size=len(clicks))
    within = np.concatenate([rng.permutation(5) for _ in sizes])
    weighting = ut.PRS(np.array([1.0, 0.7, 0.5, 0.4, 0.3]))
    plain = lightgbm.Dataset(features, clicks, group=sizes).construct()
    gradient, _ = ut.lightgbm_objective(weighting, positions=within + 1)(scores, plain)
    expected, _ = ut.xgboost_objective(weighting, positions=within + 1)(
        scores, matrix(features, clicks, sizes)
    )
    assert gradient == pytest.approx(expected)
    data = lightgbm.Dataset(features, clicks, group=sizes, position=within).construct()
    with pytest.raises(OptionError, match="numbers anew"):
        ut.lightgbm_objective(weighting)(scores, data)


def test_both_libraries_train_on_rows_and_other_data_begins_anew(rng):
    features, clicks, sizes = impressions(rng)
    objective = ut.xgboost_objective(ut.PairwiseDebiasing())
    with pytest.raises(NotFittedError, match="train with this objective first"):
        objective.bias()
    params = {"nthread": 1, "disable_default_eval_metric": True}
    for n_rounds in (3, 2):
        xgboost.train(params, matrix(features, clicks, sizes), n_rounds, obj=objective)
        assert len(objective.history) == n_rounds - 1  # the first round has equal scores
    assert objective.bias() is not None
    data = lightgbm.Dataset(features, clicks, group=sizes)
    plain = ut.lightgbm_objective(ut.PRS(np.linspace(1, 0.5, 5)))
    lightgbm.train({"objective": plain, "verbosity": -1, "num_threads": 1}, data, 2)
    assert plain.bias() is None


def test_rows_without_groups_and_positions_of_another_length_are_refused(rng):
    features, clicks, sizes = impressions(rng)
    weighting = ut.PRS(np.linspace(1, 0.5, 5))
    without = xgboost.DMatrix(features, clicks, nthread=1)
    with pytest.raises(OptionError, match="the rows have no groups"):
        ut.xgboost_objective(weighting)(clicks, without)
    with pytest.raises(ShapeError, match="one for each of the 200 rows"):
        ut.xgboost_objective(weighting, positions=[1, 2])(clicks, matrix(features, clicks, sizes))
