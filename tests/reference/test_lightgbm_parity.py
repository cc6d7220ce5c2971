"""On judged lists our lambdas are LightGBM's own: the trees tell."""

import lightgbm
import numpy as np
import pytest

from untilt.data.letor.read_letor import read_letor
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.rankers.trees.own_pipeline import lightgbm_dataset, objective
from untilt.simulation.synthetic import make_judged

TREES = 20
PARAMS = {
    "learning_rate": 0.1,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "min_sum_hessian_in_leaf": 1e-3,
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
}
WHOLE_LIST = 10_000


@pytest.fixture(scope="module")
def judged():
    return make_judged(100, 10, seed=0, mean_docs=12)


def native(judged, n_trees=TREES, **options):
    """LightGBM's lambdarank on the same rows."""
    data = lightgbm.Dataset(judged.features, judged.labels, group=np.diff(judged.indptr))
    params = {**PARAMS, "objective": "lambdarank", "lambdarank_norm": False, **options}
    return lightgbm.train(params, data, n_trees)


def ours(judged, n_trees=TREES, **options):
    ranker = LambdaMART(
        n_trees=n_trees, learning_rate=0.1, n_leaves=7, min_data_in_leaf=5, feature_fraction=1.0,
        bagging_fraction=1.0, pair_norm=False, n_threads=1, **options,
    )  # fmt: skip
    return ranker.fit(judged)


def splits(booster):
    """(feature, threshold) of every split, tree by tree."""

    def walk(node):
        if "split_feature" not in node:
            return []
        here = (node["split_feature"], round(node["threshold"], 9))
        return [here, *walk(node["left_child"]), *walk(node["right_child"])]

    return [walk(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]


@pytest.mark.parametrize("sigma", [1.0, 2.0])
@pytest.mark.parametrize("truncation", [3, 10, WHOLE_LIST])
def test_scores_equal_those_of_native_lambdarank(judged, sigma, truncation):
    theirs = native(judged, sigmoid=sigma, lambdarank_truncation_level=truncation)
    mine = ours(judged, sigma=sigma, truncation=truncation)
    expected = theirs.predict(judged.features)
    assert np.ptp(expected) > 1  # 20 trees tell documents apart
    # LightGBM looks its sigmoid up in a table of 2^20 steps; that is all that is left.
    assert mine.predict(judged.features) == pytest.approx(expected, abs=3e-5)
    assert splits(mine.booster_) == splits(theirs)


def test_first_tree_is_equal_to_rounding(judged):
    """At scores of 0 the sigmoid is exactly 1/2 in both, so the table plays no part."""
    theirs = native(judged, n_trees=1, sigmoid=1.0, lambdarank_truncation_level=WHOLE_LIST)
    mine = ours(judged, n_trees=1, sigma=1.0)
    assert mine.predict(judged.features) == pytest.approx(theirs.predict(judged.features), abs=1e-8)


def test_no_truncation_means_the_whole_list(judged):
    whole = ours(judged, truncation=WHOLE_LIST).predict(judged.features)
    assert ours(judged, truncation=None).predict(judged.features) == pytest.approx(whole, abs=1e-12)


def test_sigma_only_scales_the_scores(judged):
    """s -> s/sigma undoes sigma in the loss; hessians are sigma^2 as large, so is their limit."""
    one = ours(judged, sigma=1.0, min_sum_hessian_in_leaf=1e-3).predict(judged.features)
    two = ours(judged, sigma=2.0, min_sum_hessian_in_leaf=4e-3).predict(judged.features)
    assert two == pytest.approx(one / 2, abs=1e-6)


def test_real_judgements_with_ties_and_sparse_features(data_dir):
    judged = read_letor(data_dir / "mq2008" / "S1.txt.gz").take(np.arange(60))
    theirs = native(judged, sigmoid=1.0, lambdarank_truncation_level=10)
    mine = ours(judged, sigma=1.0, truncation=10)
    expected = theirs.predict(judged.features)
    assert mine.predict(judged.features) == pytest.approx(expected, abs=3e-5)
    # The cut of the ideal DCG matters: with another level the two differ by far more.
    other = ours(judged, sigma=1.0, truncation=2).predict(judged.features)
    assert np.abs(other - expected).max() > 1e-2


def test_linear_gain_equals_native_label_gain(judged):
    theirs = native(
        judged, sigmoid=1.0, lambdarank_truncation_level=WHOLE_LIST, label_gain=[0, 1, 2, 3, 4]
    )
    mine = ours(judged, sigma=1.0, gain="linear")
    expected = theirs.predict(judged.features)
    assert mine.predict(judged.features) == pytest.approx(expected, abs=3e-5)


# ---- what differs, and that this is all


def looked_up(x):
    """LightGBM's 1/(1 + exp(x)): 2^20 steps over [-25, 25], rounded down (for sigmoid=1)."""
    step = 50 / 2**20
    return 1 / (1 + np.exp(np.floor((x + 25) / step) * step - 25))


def exact(x):
    return 1 / (1 + np.exp(x))


def slow_lambdas(judged, scores, truncation, sigmoid, pair_norm):
    """Gradient, hessian, and each query's sum of 2 |lambda|; a plain loop over ranked pairs."""
    gradient, hessian = np.zeros(len(judged)), np.zeros(len(judged))
    sums = np.zeros(judged.n_queries)
    for q in range(judged.n_queries):
        begin, end = judged.indptr[q], judged.indptr[q + 1]
        gain = 2.0 ** judged.labels[begin:end] - 1
        discount = 1 / np.log2(2 + np.arange(end - begin))
        ideal = np.sum(np.sort(gain)[::-1][:truncation] * discount[:truncation])
        order = begin + np.argsort(-scores[begin:end], kind="stable")
        for a in range(min(len(order), truncation)):
            for b in range(a + 1, len(order)):
                high, low = order[a], order[b]
                if judged.labels[high] == judged.labels[low]:
                    continue
                if judged.labels[high] < judged.labels[low]:
                    high, low = low, high
                delta = (gain[high - begin] - gain[low - begin]) * (discount[a] - discount[b])
                x, delta = scores[high] - scores[low], delta / ideal
                if pair_norm:
                    delta /= 0.01 + abs(x)
                rho = sigmoid(x)
                gradient[high] -= rho * delta
                gradient[low] += rho * delta
                hessian[[high, low]] += rho * (1 - rho) * delta
                sums[q] += 2 * rho * delta
    return gradient, hessian, sums


def test_the_rest_is_the_table_of_the_sigmoid(judged):
    def trained(sigmoid):
        def lambdas(scores, dataset):
            return slow_lambdas(judged, scores, 10, sigmoid, pair_norm=False)[:2]

        data = lightgbm_dataset(judged, PARAMS)
        return lightgbm.train({**PARAMS, "objective": lambdas}, data, 8).predict(judged.features)

    theirs = native(judged, 8, sigmoid=1.0, lambdarank_truncation_level=10)
    mine = ours(judged, 8, sigma=1.0, truncation=10)
    rounded, smooth = theirs.predict(judged.features), mine.predict(judged.features)
    assert trained(looked_up) == pytest.approx(rounded, abs=1e-7)
    assert trained(exact) == pytest.approx(smooth, abs=1e-7)
    assert np.abs(rounded - smooth).max() > 1e-6


def test_lambdarank_norm_is_our_pair_norm_times_a_factor_per_query(judged):
    """LightGBM multiplies a query's lambdas by log2(1 + S)/S, S their sum: per session, so it
    does not collapse, and we leave it out. Put back, the models agree."""
    lambdas = objective(judged, sigma=1.0, pair_norm=True, truncation=10)
    owner = np.repeat(np.arange(judged.n_queries), np.diff(judged.indptr))
    starts = judged.indptr[:-1]

    def with_query_factor(scores, dataset):
        gradient, hessian = lambdas(scores, dataset)
        sums = slow_lambdas(judged, scores, 10, exact, pair_norm=True)[2]
        # While all scores of a query are equal LightGBM leaves the pair factor 1/0.01 out.
        equal = np.minimum.reduceat(scores, starts) == np.maximum.reduceat(scores, starts)
        first = np.where(equal, 0.01, 1.0)
        sums = sums * first
        factor = first * np.where(sums > 0, np.log2(1 + sums) / np.maximum(sums, 1e-300), 1.0)
        return gradient * factor[owner], hessian * factor[owner]

    def trained(fun):
        data = lightgbm_dataset(judged, PARAMS)
        return lightgbm.train({**PARAMS, "objective": fun}, data, 8).predict(judged.features)

    theirs = native(
        judged, 8, lambdarank_norm=True, sigmoid=1.0, lambdarank_truncation_level=10
    ).predict(judged.features)
    assert trained(with_query_factor) == pytest.approx(theirs, abs=1e-4)
    assert np.abs(trained(lambdas) - theirs).max() > 1e-2
