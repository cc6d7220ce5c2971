"""One weight per feature cannot say "this one helps only together with that one"."""

import numpy as np
from _panels import over_seeds, panels

import untilt as ut

SEEDS = range(5)
BIAS = ut.EyeTracking()
WEIGHTING = ut.IPS(BIAS, against="all")
CASES = {"relevance grows with a + b": "sum", "relevance grows with a times b": "product"}


def draw():
    """Rankers on the same clicks; the last has been given a times b as a feature."""
    found = {case: [qualities(kind, seed) for seed in SEEDS] for case, kind in CASES.items()}
    return panels(
        {
            case: {name: over_seeds([each[name] for each in values]) for name in values[0]}
            for case, values in found.items()
        },
        title="A linear ranker cannot learn that two features help only together",
        subtitle=[
            "true NDCG@10 on 200 fresh queries; 200 queries of 12 documents, features a, b and two "
            "of noise",
            "100 sessions per query in random order, examination by eye tracking; mean and range "
            "of 5 seeds",
        ],
        value_title="true NDCG@10",
        width=280,
    )


def qualities(kind, seed):
    """NDCG@10 of each ranker, trained on clicks."""
    train, test = made(kind, seed), made(kind, 1000 + seed)
    with_product = [made(kind, s, product=True) for s in (seed, 1000 + seed)]
    chance = np.random.default_rng(seed).normal(size=len(test.labels))
    trees = ut.LambdaMART(ut.Balanced(BIAS), n_trees=60, n_threads=1)
    return {
        "random order": _ndcg(test, chance),
        "LinearRanker": _trained(ut.LinearRanker(WEIGHTING), train, test, seed),
        "RankSVM": _trained(ut.RankSVM(WEIGHTING, C=0.1), train, test, seed),
        "LambdaMART": _trained(trees, train, test, seed),
        "LinearRanker, a times b as a feature": _trained(
            ut.LinearRanker(WEIGHTING), *with_product, seed
        ),
    }


def made(kind, seed, *, product=False, n_queries=200, per_query=12):
    """Judged lists with grades 0 to 4 by the sum or the product of the first two features."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_queries * per_query, 4))
    both = x[:, 0] * x[:, 1]
    utility = (x[:, 0] + x[:, 1] if kind == "sum" else both) + 0.3 * rng.normal(size=len(x))
    return ut.JudgedLists(
        features=np.column_stack([x, both]) if product else x,
        labels=np.searchsorted(np.quantile(utility, [0.5, 0.75, 0.88, 0.95]), utility),
        indptr=np.arange(n_queries + 1) * per_query,
        query_id=np.arange(n_queries),
    )


def _trained(ranker, train, test, seed):
    order = np.random.default_rng(seed).normal(size=len(train.labels))
    log = ut.simulate(
        train, "dla", sessions_per_query=100, ranker=order, seed=seed, n_threads=1
    ).log
    return _ndcg(test, ranker.fit(log).predict(test.features))


def _ndcg(test, scores):
    return ut.evaluate(test, scores, metrics=["ndcg@10"])["ndcg@10"].value
